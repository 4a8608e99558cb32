"""The checks of every exercise: the same code gives the instant answer in a notebook and the mark.

`check("02.residual_dist", residual_dist)` is what a notebook calls: it prints, draws, and raises CheckFailed. `run` is the pure
part beneath it: a check takes the student's functions and a seed, and returns a Result, which is plain data.
"""

from autograder.checks.core import Result, names, run
from autograder.checks.notebook import CheckFailed, check

__all__ = ["CheckFailed", "Result", "check", "names", "run"]
