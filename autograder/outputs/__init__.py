"""What a grading run leaves behind, made from marks alone: tables, pages, nbgrader's gradebook and notebooks, the class report.

Nothing here runs a student's code, and every file is written whole or not at all.
"""
