"""autograder: the exercises' checks, the student notebooks made from `solutions/`, and grading on top of nbgrader."""
