"""What a student's code can import: the libraries, its own files, and of the course what the exercise declares."""

from __future__ import annotations

import importlib.util
import sys
import types
from importlib.machinery import ModuleSpec, PathFinder

from .shell import COURSE, RESERVED


class Hidden:
    """Finds nothing of the course, wherever it lies, and says so. given: what the exercise may have of it."""

    def __init__(self, given: list[str]):
        self.given = given

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in COURSE:
            there = ", ".join(["check", *self.given])
            raise ModuleNotFoundError(f"{name} is not there when your work is graded; of the course this exercise has {there}", name=name)


class Libraries:
    """Finds Python's own modules and the course's libraries before a file of the student's that is called like one.

    Most of them a notebook's kernel has imported before the student's first cell, and here some are imported later, by us."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [folder for folder in sys.path if folder]) if path is None and name in RESERVED else None


def give(modules: dict[str, str]) -> None:
    """What the exercise declares of the course, a `check` that leaves it to the judge, and the files of the current folder, as a notebook
    has them. In the child: another's has no trace of it."""
    parents = {".".join(name.split(".")[:n]) for name in modules for n in range(1, name.count(".") + 1)}
    for name in {"autograder", "autograder.checks"} | parents:
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = []
    sys.modules["autograder.checks"].check = lambda *_args, **_kwargs: None
    for name, path in modules.items():
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    sys.meta_path[:0] = [Hidden(list(modules)), Libraries()]
    sys.path.insert(0, "")
