"""The judge: runs an exercise's checks in this process on a submission whose code runs in the sandbox.

Checks, models, random numbers, expected values and marks never leave this side; see `session` for what crosses, and `sandbox` for the
other side.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import hmac
import re
import time
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbformat import NotebookNode

from autograder import course
from autograder.checks import core
from autograder.inside.shell import COURSE, not_run, not_there
from autograder.intake.reading import Unreadable, parse, read_bytes
from autograder.intake.rebuilding import rebuild, title
from autograder.intake.submission import Submission
from autograder.judging.sandbox import GIVEN, PACKAGE, Limits, Sandbox
from autograder.judging.session import Lost, RemoteFunction, Session
from autograder.marks import CheckMark, Mark

CELL_SECONDS = 10.0  # for a cell outside the checks
MOST_NOTES = 20  # of cells that raised: a notebook may have thousands
LOAD_SECONDS = 30.0  # for all of them, cells that must be left out and a new child each time included


@dataclass(frozen=True)
class Settings:
    """unsafe: without bubblewrap; seconds: as `clock` counts them, for all of a submission together; torch: as `Sandbox`."""

    unsafe: bool = False
    seconds: float = 300.0
    limits: Limits = field(default_factory=Limits)
    torch: bool = True


@dataclass(frozen=True)
class Task:
    """A graded cell of an exercise: the check that it makes, and the names of what it is made on."""

    grade_id: str
    points: float
    check: str
    functions: tuple[str, ...]

    def blank(self, why: str) -> CheckMark:
        """The check where nothing could be run."""
        return CheckMark(self.check, self.grade_id, 0.0, self.points, why)


class Code(NamedTuple):
    """A cell to run. title: what the student knows it by."""

    name: str
    title: str
    source: str


@dataclass(frozen=True)
class Job:
    """A submission ready to be judged, plain data that can go to another machine. given: the modules of the course that the exercise
    has."""

    student: str
    assignment: str
    tasks: tuple[Task, ...]
    cells: tuple[Code, ...]
    seed: int
    submission: str
    version: str
    notes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    def mark(self, status: str, checks: tuple[CheckMark, ...], notes: tuple[str, ...] = ()) -> Mark:
        return Mark(self.student, self.assignment, status, checks, (*self.notes, *notes), self.submission, self.version)

    def nothing(self, status: str, why: str) -> Mark:
        """The mark where nothing could be run."""
        return self.mark(status, tuple(task.blank(why) for task in self.tasks), (why,) if why else ())


class Exercise:
    """What all submissions of an assignment have in common.

    Raises:
        ValueError: if a graded cell does not begin with `check("NN.name", function, …)`, or there is no such check, or a cell imports
            more of the course than `sandbox.GIVEN` has.
    """

    def __init__(self, assignment: str, release: NotebookNode, secret: str = ""):
        self.assignment, self.release, self._secret = assignment, release, secret
        self.tasks = tuple(_task(cell) for cell in release.cells if cell.metadata.get("nbgrader", {}).get("grade"))
        unknown = {task.check for task in self.tasks} - _registered(assignment)
        if unknown:
            raise ValueError(f"{assignment} asks for checks that there are not: {', '.join(sorted(unknown))}")
        self.given = _given(release)
        self.version = self._version()

    def taken(self, submission: Submission) -> Job | Mark:
        """What a submission to this assignment becomes: a job for a judge, or its mark where nothing of it can be run."""
        student, notes = submission.student, submission.notes
        nothing = Job(student, self.assignment, self.tasks, (), 0, "", self.version, notes)
        if submission.path is None:
            return nothing.mark(submission.status, tuple(task.blank(submission.status) for task in self.tasks))
        try:
            content = read_bytes(submission.path)
        except Unreadable as error:
            return nothing.nothing(error.status, str(error))
        try:
            return self.job(student, content, notes)
        except Unreadable as error:
            return replace(nothing, submission=_digest(content)).nothing(error.status, str(error))

    def job(self, student: str, content: bytes, notes: tuple[str, ...] = ()) -> Job:
        """The job of a notebook file's content; notes come before its own.

        Raises:
            Unreadable: if it is no notebook.
        """
        notebook, remarks = rebuild(parse(content), self.release)
        code = [c for c in notebook.cells if c.cell_type == "code" and not c.metadata.get("nbgrader", {}).get("grade")]
        cells = tuple(Code(c.metadata.get("nbgrader", {}).get("grade_id", c.id), title(c), c.source) for c in code)
        digest = _digest(content)
        seed = self.seed(student, digest)
        return Job(student, self.assignment, self.tasks, cells, seed, digest, self.version, (*notes, *remarks), self.given)

    def seed(self, student: str, submission: str) -> int:
        """What a submission's fixtures and samples are made from: nobody without the secret can know it, and it can be repeated.

        submission: the digest of its file. Who hands in something else has another seed: the one on a page helps nobody.
        """
        return 1 + int.from_bytes(self._keyed(f"{student}/{self.assignment}/{submission}")[:6], "big")

    def _keyed(self, text: str) -> bytes:
        return hmac.new(self._secret.encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()

    def _version(self) -> str:
        """Changes with everything that can change a mark: the chapter's checks, what they import, the judge, the notebook, the secret."""
        found = hashlib.sha256(course.text(self.release).encode() + self._keyed("version"))
        for name in sorted(_imported(f"autograder.checks.{_checks(self.assignment).stem}") | _imported(__name__) | set(self.given)):
            found.update(_file(name).read_bytes())
        for path in sorted((PACKAGE / "inside").glob("*.py")):
            found.update(path.read_bytes())
        return found.hexdigest()[:12]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _task(cell: NotebookNode) -> Task:
    match ast.parse(cell.source).body[:1]:
        case [ast.Expr(ast.Call(func=ast.Name("check"), args=[ast.Constant(str(name)), _, *_] as given))]:
            functions = tuple(ast.unparse(function) for function in given[1:])
            return Task(cell.metadata.nbgrader.grade_id, float(cell.metadata.nbgrader.points), name, functions)
    raise ValueError(f'the graded cell {cell.metadata.nbgrader.grade_id} does not begin with check("NN.name", function, …)')


def _checks(assignment: str) -> Path:
    """The module with an assignment's checks."""
    return next(Path(core.__file__).parent.glob(f"{assignment[:2]}_*.py"))


@cache
def _registered(assignment: str) -> frozenset[str]:
    """The names of an assignment's checks, read and not imported: that is the judges', and brings torch for some."""
    calls = (node for node in ast.walk(ast.parse(_checks(assignment).read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return frozenset(ast.literal_eval(call.args[0]) for call in calls if isinstance(call.func, ast.Name) and call.func.id == "register")


def _given(release: NotebookNode) -> tuple[str, ...]:
    """The modules of the course that the exercise's own cells import, beside `check`: that is how it declares what it needs."""
    found = set()
    for name in sorted(name for cell in release.cells if cell.cell_type == "code" for name in _imports(cell.source)):
        if name.partition(".")[0] in COURSE and name != "autograder.checks.check":
            module = next((given for given in GIVEN if f"{name}.".startswith(f"{given}.")), None)
            if module is None:
                raise ValueError(f"a cell imports {name}, and sandbox.GIVEN has of the course only {', '.join(GIVEN)}")
            found.add(module)
    return tuple(name for name in GIVEN if name in found)


def _imports(source: str) -> set[str]:
    """What a cell imports: "package.module", or "package.module.name" of a name in it."""
    names = set()
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _parsed(source: str) -> ast.Module:
    """A cell without IPython's own lines."""
    return ast.parse("\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines()))


@cache
def _imported(module: str) -> frozenset[str]:
    """A module of this project with all of this project's that it imports, directly or not."""
    found, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in found or not name.startswith(("autograder", "specdec")) or not _file(name).is_file():
            continue
        found.add(name)
        for node in ast.walk(ast.parse(_file(name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return frozenset(found)


def _file(module: str) -> Path:
    """Where a module of this project lies, if it is one; found without importing what is above it."""
    place = PACKAGE.parent.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


# -- one submission ----------------------------------------------------------------------------------------------------


class Judge:
    """Judges submissions, one after the other, in one warm sandbox.

    Raises:
        SandboxError: if there can be none here; from `judge`, if it broke.
    """

    def __init__(self, settings: Settings = Settings()):
        self._settings, self._sandbox = settings, Sandbox(settings.limits, settings.unsafe, settings.torch)
        gc.freeze()  # a judge makes millions of small lists: its collector must not walk over the libraries each time

    def judge(self, job: Job) -> Mark:
        core.load(job.assignment[:2])  # the first time this takes as long as the sandbox's start, which is awaited after it
        work = _Work(self._sandbox, job, self._settings.seconds)
        try:
            checks = tuple(work.check(task, job.seed) for task in job.tasks)
            return job.mark(*work.outcome(checks))
        finally:
            work.close()

    def close(self) -> None:
        self._sandbox.close()


class _Work:
    """One submission's cells in a child, and in another one when a check has lost it.

    status: what became of the code; said: what became of cells, once each; left_out: of those that were not run in the end.
    """

    def __init__(self, sandbox: Sandbox, job: Job, seconds: float):
        self._sandbox, self._cells, self._given = sandbox, list(job.cells), job.given
        self._seconds, self._spent = seconds, 0.0
        self._session: Session | None = None
        self.status = "graded"
        self.said: dict[str, None] = {}
        self.left_out: dict[str, None] = {}
        for cell in self._cells:
            for why in not_run(cell.source):
                _note(self.said, f"{cell.title}: {why}")

    def outcome(self, checks: tuple[CheckMark, ...]) -> tuple[str, tuple[CheckMark, ...], tuple[str, ...]]:
        """Status, checks and notes of a mark. A cell that raised may be why points are missing, and is none of anybody's concern where
        none are; what a check says already is not said again."""
        if all(check.passed for check in checks):
            return "graded", checks, tuple(self.left_out)
        told = {check.message for check in checks}
        return self.status, checks, (*self.left_out, *(note for note in self.said if note not in told))

    def check(self, task: Task, seed: int) -> CheckMark:
        began = time.perf_counter()
        try:
            session = self._ready()
            with session.budget(max(0.1, self._seconds - self._used()), self._seconds):
                functions = [self._function(session, name) for name in task.functions]
                result = core.run(task.check, *functions, seed=seed, host=session)
        except core.Wrong as wrong:
            result = wrong.result
        except core.OutOfTime as late:
            result = core.Result(False, str(late))
        except core.Elsewhere as error:  # outside any call: somebody meddles with the conversation
            result = core.Result(False, f"your code raised {error.kind} where none of it was asked for")
        if self._session is not None and self._session.lost:
            self._lost(self._session)
        result = core.bounded(result)
        credit = 1.0 if result.passed else min(max(result.credit, 0.0), 1.0)
        shown: dict[str, Any] = {
            name: getattr(result, name) for name in ("message", "expected", "got", "hint", "printed", "picture")
        }
        seconds = round(time.perf_counter() - began, 3)
        return CheckMark(task.check, task.grade_id, credit * task.points, task.points, **shown, seed=seed, seconds=seconds)

    def _function(self, session: Session, name: str) -> RemoteFunction:
        if not session.defined(name):
            why = "; ".join(self.said | self.left_out)
            raise core.Wrong(f"{name} is not defined", f"a cell that defines {name}", why, "Run all cells of your notebook anew.")
        return RemoteFunction(session, name)

    def _ready(self) -> Session:
        """A child in which all cells have run, but for those that never end or end the process."""
        began = self._used()
        while self._session is None:
            if self._used() > min(began + LOAD_SECONDS, self._seconds):
                self.status = "timeout"
                raise core.OutOfTime(LOAD_SECONDS)
            self._session = session = Session(self._sandbox.open(self._given))
            for cell in list(self._cells):
                try:
                    with session.time_limit(CELL_SECONDS):
                        session.request("cell", name=cell.name, source=cell.source)
                except core.Elsewhere as error:
                    _note(self.said, _raised(cell, error))
                except (core.OutOfTime, Lost) as error:
                    _note(self.left_out, f"{cell.title} was left out: {error}")
                    self._cells.remove(cell)
                    self._lost(session)
                    break
        return self._session

    def _lost(self, session: Session) -> None:
        self.status = "timeout" if session.lost == "late" or self.status == "timeout" else "crashed"
        self.close()

    def _used(self) -> float:
        """Seconds that its children are charged in all."""
        return self._spent + (self._session.used() if self._session is not None else 0.0)

    def close(self) -> None:
        if self._session is not None:
            self._spent = self._used()
            self._session.close()
            self._session = None


def _raised(cell: Code, error: core.Elsewhere) -> str:
    if error.stub:
        return f"{error.stub} is not written yet"  # as a check says it
    told = f"{cell.title} raised {error.kind}: {str(error)[:200]}"
    missing = re.fullmatch(r"No module named '(\w+)'", str(error))
    return f"{told} ({not_there(missing[1])})" if missing else told


def _note(notes: dict[str, None], note: str) -> None:
    """Adds a note, unless there are too many."""
    notes[note if len(notes) < MOST_NOTES else "and more cells"] = None


def released(assignment: str) -> NotebookNode:
    """The student notebook, a copy of one's own: see `course.released`."""
    return nbformat.v4.reads(course.released(assignment))
