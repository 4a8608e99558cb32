"""Runs a module of this folder: `python -I start.py MODULE SITE …` calls its `main` with what stands behind MODULE.

What is ours becomes a package whose name nobody can write in an import, so that a student's `plain.py` or `shell.py` is theirs and ours is
ours. SITE is where libraries lie.
"""

from __future__ import annotations

import importlib.util
import os
import sys

PACKAGE = "<inside>"

if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(sys.argv[2])
    spec = importlib.util.spec_from_file_location(PACKAGE, f"{folder}/__init__.py", submodule_search_locations=[folder])
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    importlib.import_module(f"{PACKAGE}.{sys.argv[1]}").main(*sys.argv[3:])
