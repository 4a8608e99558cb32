"""autograder: the exercises' checks, the student notebooks made from `solutions/`, and grading on top of nbgrader."""

import sys

# jsonschema, which nbformat brings, looks for this to check addresses of pages, which no notebook has: its grammar takes most of the
# time in which everything else here is imported.
sys.modules.setdefault("rfc3987_syntax", None)
