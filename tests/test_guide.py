"""A term by the instructor's guide: every command in it is run, in the guide's order, in a copy of the project, and does what it says."""

import csv
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from nbgrader.utils import get_username

from autograder import course, zoo
from autograder.intake.submission import NOTEBOOK
from autograder.judging import sandbox
from autograder.judging.judge import released
from autograder.marks import from_json

pytestmark = [pytest.mark.slow, pytest.mark.in_order]

GUIDE = (course.ROOT / "appendices" / "instructor.md").read_text(encoding="utf-8")
A, B = "04-speedup", "02-rejection-rule"
ME = get_username()  # by which nbgrader calls whoever runs the guide's commands
MARKS = {(ME, A): 0.0, ("ben", A): 6.0, ("ben", B): 3.0}  # in the exchange, before anybody is late
PROJECT = ("Makefile", ".gitignore", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "LICENSE-text")
FOLDERS = ("appendices", "autograder", "chapters", "scripts", "solutions", "specdec")
NBGRADERS = ("__pycache__", "source", "release", "submitted", "autograded", "feedback", "*.db")  # what an instructor here may have


@dataclass(frozen=True)
class Instead:
    """What is run in place of a command that a test cannot run, and what it must print for that to mean something."""

    why: str
    command: str
    prints: str


REPLACED = {
    "sudo sh scripts/install-system.sh": Instead(
        "it installs packages; where no program is to be found, it must name them all",
        "! env PATH=/nowhere /bin/sh scripts/install-system.sh",
        "Please install: chromium python3-venv bubblewrap postgresql",
    ),
    "make test": Instead("it would run this test too", "make -n test", r"pytest"),
    "make zoo": Instead("it takes long, and tests/test_zoo.py judges its fast part", "make -n zoo", r"python -m autograder zoo --whole"),
    "jupyter lab": Instead("it opens a server", "jupyter labextension list 2>&1", r"@jupyter/nbgrader \S+ \S*enabled"),
    "make lab": Instead("it opens a server", "make -n lab && .venv/bin/jupyter lab --version", r"bin/jupyter lab .*chapters\b[^\n]*\n\d"),
    "sudo install -d -m 777 /usr/local/share/nbgrader/exchange": Instead(
        "it writes outside the test's folder; the path must be the one where nbgrader looks",
        'install -d -m 777 "$EXCHANGE"; python -c "from nbgrader.exchange.default import Exchange as E; print(E.root.default_value)"',
        r"^/usr/local/share/nbgrader/exchange$",
    ),
}

# -- the guide's text --------------------------------------------------------------------------------------------------


def parts(text):
    """(heading, language, content) of every fenced block."""
    heading, found = "", []
    for title, language, content in re.findall(r"^#+ ([^\n]+)$|^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if title:
            heading = title
        else:
            found.append((heading, language, content))
    return found


def steps(text):
    """{heading: the blocks of commands under it}, in order."""
    found = {}
    for heading, language, content in parts(text):
        if language == "sh":
            found.setdefault(heading, []).append(content)
    return found


def commands(text):
    return [line for blocks in steps(text).values() for block in blocks for line in block.splitlines()]


def stray(text):
    """What looks like a command and stands in no sh block, not even in part."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = re.findall(r"`([^`\n]+)`", prose)
    lines += [line.strip() for _, language, content in parts(text) if language != "sh" for line in content.splitlines()]
    known, program = commands(text), r"(sudo|sh|make|git|cd|cat|cp|mkdir|pip|python|nbgrader|jupyter|specdec|\.venv/bin/\w+) "
    return [line for line in lines if re.match(program, line) and not any(command.startswith(line) for command in known)]


def under(heading):
    """The guide's text from a heading to the next."""
    return re.split(r"^#+ ", GUIDE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_section_with_commands_is_a_step_here():
    here = re.findall(r'^    (?:\w+ = )?term\.run\("(.+)"\)$', Path(__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert list(steps(GUIDE)) == here, "give each section of the guide that has commands a test here that runs them, in the guide's order"


def test_no_command_of_the_guide_stands_where_it_is_not_run():
    assert {language for _, language, _ in parts(GUIDE)} <= {"", "sh"}, "put the guide's commands into ```sh blocks, which are run"
    assert stray(GUIDE) == [], "put these commands into ```sh blocks of the guide, which are run"


def test_a_command_that_is_not_run_would_be_seen():
    more = GUIDE + "\n## New\n\nRun `nbgrader list --all` or\n\n```\nmake more\n```\n\nor\n\n```sh\nmake it\n```\n"
    assert stray(more) == ["nbgrader list --all", "make more"]
    assert list(steps(more))[-1] == "New"


def test_what_is_replaced_stands_in_the_guide():
    assert set(REPLACED) <= set(commands(GUIDE)), "drop from REPLACED what the guide no longer says"


# -- the term ----------------------------------------------------------------------------------------------------------


class Term:
    """A copy of the project, with this environment as its .venv, and an instructor's home with Downloads in it."""

    def __init__(self, folder):
        self.project, self.home, self.exchange = folder / "course" / "specdec", folder / "home", folder / "exchange"
        self.todo, self.terminal = list(steps(GUIDE)), ""
        (self.home / ".jupyter").mkdir(parents=True)
        (self.home / "Downloads").mkdir()
        (self.home / ".jupyter" / "nbgrader_config.py").write_text(f"c.Exchange.root = {str(self.exchange)!r}\n")
        # Nothing of the environment may be found before the guide says how.
        path = [p for p in os.environ["PATH"].split(os.pathsep) if Path(p) != Path(sys.executable).parent]
        ours = re.compile("MAKE|MFLAGS|AUTOGRADER|JUPYTER|VIRTUAL_ENV|PYTHON")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not ours.match(name)},
            "PATH": os.pathsep.join(path), "HOME": str(self.home), "EXCHANGE": str(self.exchange), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self._copy()

    def _copy(self):
        self.project.mkdir(parents=True)
        for name in PROJECT:
            shutil.copy(course.ROOT / name, self.project)
        for name in FOLDERS:
            shutil.copytree(course.ROOT / name, self.project / name, ignore=shutil.ignore_patterns(*NBGRADERS))
        (self.project / ".venv").mkdir()
        for entry in Path(sys.prefix).iterdir():
            (self.project / ".venv" / entry.name).symlink_to(entry)
        stamp = self.project / ".venv" / ".installed"
        stamp.unlink(missing_ok=True)
        stamp.touch()  # newer than all that it was made from, so that make installs nothing
        self.sh("git init -q; git add .; git -c user.name=t -c user.email=t@localhost commit -q -m t")

    def sh(self, script):
        """What the commands print, in a new terminal, in the project's folder."""
        command = ["sh", "-e", "-c", f"{self.terminal}\n{script}"]
        done = subprocess.run(command, cwd=self.project, env=self.environment, capture_output=True, text=True, timeout=3600)
        assert done.returncode == 0, f"these commands fail:\n{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    def run(self, heading):
        """Runs all commands under a heading. Returns what they print."""
        if self.todo[:1] != [heading]:
            pytest.skip(f"the step {self.todo[0]!r} comes first, and has failed or was left out: run the whole file")
        told = "".join(map(self._block, steps(GUIDE)[heading]))
        self.todo.pop(0)
        return told

    def _block(self, block):
        lines = block.splitlines()
        told = self.sh("\n".join(REPLACED[line].command if line in REPLACED else line for line in lines))
        for one in (REPLACED[line] for line in lines if line in REPLACED):
            wrong = f"`{one.command}` stands for a command of the guide ({one.why}), and does not print {one.prints}:\n{told}"
            assert re.search(one.prints, told, re.MULTILINE), wrong
        return told

    def marks(self):
        """{(student, assignment): when the mark was written}."""
        paths = (self.project / "graded" / "exchange" / "marks").glob("[!.]*.json")
        kept = {path: from_json(path.read_bytes()) for path in paths}
        return {(mark.student, mark.assignment): path.stat().st_mtime_ns for path, mark in kept.items()}


def solved(kind, name, assignment=A):
    return course.text(zoo.filled(assignment, released(assignment), zoo.case(kind, assignment, name)))


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def scores(path):
    return {(row["student"], row["assignment"]): float(row["score"]) for row in rows(path)}


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    if sandbox.unavailable():
        pytest.skip(f"the guide's commands grade in a sandbox: {sandbox.unavailable()}")
    return Term(tmp_path_factory.mktemp("term"))


def test_the_installation_names_what_is_needed(term):
    term.run("Install")


def test_the_programs_of_the_environment_are_found(term):
    term.run("In every terminal")
    (term.terminal,) = steps(GUIDE)["In every terminal"]
    programs = [str(term.project / ".venv" / "bin" / name) for name in ("python", "nbgrader", "alembic")]
    assert term.sh("command -v python; command -v nbgrader; command -v alembic").split() == programs


def test_notebooks_are_generated(term):
    put(term.project / "chapters" / A / NOTEBOOK, "edited by hand")
    told = term.run("Change an exercise")
    assert f"written: chapters/{A}/{NOTEBOOK}" in told
    assert term.sh("git status --porcelain chapters") == "", "the notebooks in chapters/ are not what solutions/ generates"


def test_what_is_handed_out_has_no_solutions(term):
    term.run("Hand out the project")
    with zipfile.ZipFile(term.project.parent / "specdec.zip") as archive:
        names = set(archive.namelist())
    assert {f"specdec/chapters/{A}/{NOTEBOOK}", "specdec/Makefile", "specdec/autograder/checks/04_speedup.py"} <= names
    assert [name for name in names if re.match(r"specdec/(solutions|autograder/zoo)/", name)] == []


def test_the_exchange_gets_the_student_notebook(term):
    term.run("Release through the exchange")
    handed_out = term.exchange / "specdec" / "outbound" / A / NOTEBOOK
    assert handed_out.read_bytes() == (term.project / "chapters" / A / NOTEBOOK).read_bytes()
    assert (term.project / "chapters" / A / "lesson.md").is_file()


def test_a_student_gets_the_notebook(term):
    term.run("Students fetch")
    assert (term.project / "work" / A / NOTEBOOK).read_bytes() == (term.project / "chapters" / A / NOTEBOOK).read_bytes()


def test_two_students_hand_in(term):
    """Both by the guide's command: I as it stands, ben under a name of his own."""
    (block,) = steps(GUIDE)["Students hand in"]
    put(term.project / "work" / A / NOTEBOOK, solved("wrong", "best_from_one"))
    term.sh(f"{block.rstrip()} --student ben")
    put(term.project / "work" / A / NOTEBOOK, solved("wrong", "tokens_all"))
    term.run("Students hand in")
    inbound = sorted(path.name.split("+")[:2] for path in (term.exchange / "specdec" / "inbound").iterdir())
    assert inbound == sorted([["ben", A], [ME, A]])


def test_submissions_lie_where_the_guide_says(term):
    term.run("From the exchange")
    submitted = term.project / "autograder" / "submitted"
    assert (submitted / "ben" / A / NOTEBOOK).read_text(encoding="utf-8") == solved("wrong", "best_from_one")
    assert (submitted / ME / A / NOTEBOOK).read_text(encoding="utf-8") == solved("wrong", "tokens_all")


ROSTER = """Student,ID,SIS User ID,SIS Login ID,Section,Speedup 04-speedup (987)
    Points Possible,,,,,10
"Lovelace, Ada",1234,u1,al1,S1,
"Noether, Emmy",77,u2,en,S1,
"Curie, Marie",78,u3,mc,S1,4
"""


def test_marks_are_right_wherever_submissions_come_from(term):
    put(term.project / "autograder" / "submitted" / "ben" / B / NOTEBOOK, solved("wrong", "residual_from_p", B))
    put(term.project / "submitted" / "ada" / A / NOTEBOOK, solved("right", "closed_form"))
    put(term.project / "submitted" / "emmy" / A / NOTEBOOK, solved("wrong", "tokens_all"))
    put(term.home / "Downloads" / "gradebook.csv", ROSTER)
    with zipfile.ZipFile(term.home / "Downloads" / "submissions.zip", "w") as archive:
        archive.writestr("lovelaceada_1234_1_exercise.ipynb", solved("wrong", "tokens_all"))
        archive.writestr("lovelaceada_1234_2_exercise-1.ipynb", solved("right", "numpy_table"))
        archive.writestr("noetheremmy_LATE_77_3_exercise.ipynb", solved("wrong", "best_from_one"))
    term.run("Grade")
    graded = term.project / "graded"
    assert scores(graded / "exchange" / "grades.csv") == MARKS
    assert scores(graded / "folder" / "grades.csv") == {("ada", A): 10, ("emmy", A): 0}
    assert scores(graded / "canvas" / "grades.csv") == {("lovelaceada_1234", A): 10, ("noetheremmy_77", A): 6}
    assert (graded / "canvas" / "canvas.csv").read_text(encoding="utf-8").splitlines() == [
        "Student,ID,SIS User ID,SIS Login ID,Section,Speedup 04-speedup (987)",
        "    Points Possible,,,,,10",
        '"Lovelace, Ada",1234,u1,al1,S1,10',
        '"Noether, Emmy",77,u2,en,S1,6',
        '"Curie, Marie",78,u3,mc,S1,',  # empty: Canvas leaves it as it is
    ]


def test_the_options_are_listed(term):
    told = term.run("Options")
    named = set(re.findall(r"`(--[\w-]+)", under("Options")))
    assert named >= {"--jobs", "--tls-ca"}
    assert {option for option in named if option not in told} == set(), "the guide names an option that the command does not have"


def test_a_secret_of_one_s_own_is_taken(term):
    term.run("A secret")
    put(term.project / "in" / "ada" / A / NOTEBOOK, "no notebook")
    (variable,) = re.findall(r"`(SECRET_FILE=.+?)`", under("A secret"))
    told = term.sh(f"make grade SUBMISSIONS=in OUT=graded/secret {variable}")
    assert "unreadable" in told
    assert not (term.project / "graded" / "secret" / "secret").exists(), "a run that is given a secret makes none"


def test_what_there_is_to_look_at(term):
    told = term.run("Look")
    assert "K = 0, do not speculate, is left out" in told
    graded = term.project / "graded" / "exchange"
    terms = " ".join(re.findall(r"^(`.+`)\n: ", under("Look"), re.MULTILINE))
    listed = set(re.findall(r"`(.+?)`", terms))
    assert listed == {path.name + "/" * path.is_dir() for path in graded.iterdir()}, "the guide lists what a folder of results holds"
    assert "K = 0, do not speculate, is left out" in (graded / "class.html").read_text(encoding="utf-8")
    pages = {str(path.relative_to(graded / "feedback")) for path in (graded / "feedback").rglob("*.html")}
    assert pages == {f"{student}/{assignment}.html" for student, assignment in MARKS}
    assert (graded / "course" / "gradebook.db").is_file()


def test_only_a_late_submission_is_graded_again(term):
    before = term.marks()
    put(term.project / "work" / A / NOTEBOOK, solved("right", "hill_climb"))
    term.sh(*steps(GUIDE)["Students hand in"])
    term.run("Somebody hands in late")
    assert scores(term.project / "graded" / "exchange" / "grades.csv") == MARKS | {(ME, A): 10}
    assert len(before) == 3
    changed = {key for key, written in term.marks().items() if before[key] != written}
    assert changed == {(ME, A)}, "other submissions than the late one were graded"


def test_only_the_exercise_of_a_mended_check_is_graded_again(term):
    before = term.marks()
    check = term.project / "autograder" / "checks" / "speedup_mistakes.py"  # which the check imports
    text = check.read_text(encoding="utf-8")
    put(check, text.replace("K = 0, do not speculate, is left out", "the mended check: K = 0 is left out"))
    term.run("A check was mended")
    told = {(row["student"], row["assignment"]): row["message"] for row in rows(term.project / "graded" / "exchange" / "grades.csv")}
    assert "the mended check" in told["ben", A]
    kept = {key for key, written in term.marks().items() if before[key] == written}
    assert kept == {("ben", B)}, "the exercise of the mended check is graded again, and no other"
    assert scores(term.project / "graded" / "exchange" / "grades.csv") == MARKS | {(ME, A): 10}


def test_exports_hold_the_marks(term):
    term.run("Export")
    exported = term.project / "graded" / "exchange"
    table = {(row["student_id"], row["assignment"]): float(row["score"]) for row in rows(exported / "course" / "grades.csv")}
    assert table == MARKS | {(ME, A): 10, (ME, B): 0}
    line = {row["Student"]: (row[B], row[A]) for row in rows(exported / "canvas.csv")}
    assert (line["ben"], line[ME]) == (("3", "6"), ("", "10"))
    for student, score in (("ben", 6), (ME, 10)):
        page = exported / "course" / "feedback" / student / A / "exercise.html"
        assert f"Score: {score}.0 / 10.0" in page.read_text(encoding="utf-8"), f"nbgrader's feedback for {student} has another score"


def test_gradescope_s_zip_is_built(term):
    term.run("Gradescope")
    with zipfile.ZipFile(term.project / "autograder.zip") as archive:
        names = set(archive.namelist())
    assert {"setup.sh", "run_autograder", f"autograder/released/{A}.ipynb"} <= names
    assert not [name for name in names if "solutions" in name or "zoo" in name]
