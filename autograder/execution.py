"""How nbgrader runs a submission here: within a time for the whole notebook, past a dead kernel, and deaf to warnings."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader import utils
from nbgrader.preprocessors import Execute as NbgraderExecute
from nbgrader.preprocessors import NbGraderPreprocessor

DEADLINE = "SPECDEC_DEADLINE"  # Unix time by which the notebook must be done; without it only cells have a limit
KERNEL_DIED, OUT_OF_TIME = "KernelDied", "OutOfTime"


class Execute(NbgraderExecute):
    """A cell that kills the kernel, and the cells after it, are marked as failed; what passed before keeps its points."""

    _stopped: NotebookNode | None = None

    def preprocess(self, *args: Any, **kwargs: Any) -> tuple[NotebookNode, dict]:
        self._stopped, self._cell_timeout = None, self.timeout
        return super().preprocess(*args, **kwargs)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        left = float(os.environ.get(DEADLINE, "inf")) - time.time()
        if left < 1 and self._stopped is None:
            self._stopped = _error(OUT_OF_TIME, "the notebook as a whole ran out of time")
        if self._stopped is None:
            self.timeout = int(min(self._cell_timeout, left))
            try:
                return super().preprocess_cell(cell, resources, index)
            except DeadKernelError:
                self._stopped = _error(KERNEL_DIED, "this cell ended the Python process; later cells were not run")
        if cell.cell_type == "code":  # a cell without an error output would count as passed
            cell.setdefault("outputs", []).append(self._stopped)
        return cell, resources


def _error(name: str, message: str) -> NotebookNode:
    return new_output("error", ename=name, evalue=message, traceback=[f"{name}: {message}"])


class HideHiddenTests(NbGraderPreprocessor):
    """Takes the code of hidden checks out of the feedback page (nbgrader leaves it in)."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        cell.source = re.sub(r"\n?### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", cell.source, flags=re.DOTALL)
        return cell, resources


class KeepWarningsOutOfMarks(NbGraderPreprocessor):
    """nbgrader gives 0 to a cell that wrote to stderr, as a warning or a log line in right code does. Moves it to stdout."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if utils.is_grade(cell) and cell.cell_type == "code":
            for output in cell.outputs:
                if output.output_type == "stream":
                    output.name = "stdout"
        return cell, resources
