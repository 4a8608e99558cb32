"""What comes in: folders and Canvas's zips become submissions, and a submitted notebook is put into a copy of the released one.

Nothing here runs a student's code.
"""
