"""What runs in a browser needs neither numpy nor torch nor scipy; and the package's names come when they are asked for."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import specdec

ROOT = Path(__file__).parents[1]
# -S and -I: no site-packages, no environment. The finder says so by name if anything asks for one of the three all the same.
BARE = """
import sys
sys.path.insert(0, {root!r})
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "torch", "scipy"):
            raise ModuleNotFoundError(f"{{name}} was imported")
sys.meta_path.insert(0, Missing())
"""
LAW = """
import specdec
from specdec import expected_tokens, law, optimal_k
from specdec.statistics import goodness_of_fit, samples_needed
assert law(lambda choose: choose.categorical([0.25, 0.75])) == {0: 0.25, 1: 0.75}
assert optimal_k(0.8, 0.1)[0] == 6
assert goodness_of_fit([480, 520], [0.5, 0.5]) and samples_needed(0.1, 3) > 1000
assert "generate" in dir(specdec)
"""
CHECKS = """
from autograder.checks import names, run
right = {{}}
exec({right!r}, right)
wrong = {{**right, **{{}}}}
exec({wrong!r}, wrong)
asked = {asked!r}
assert list(asked) == names({chapter!r})
for name, functions in asked.items():
    result = run(name, *(right[f] for f in functions), seed=3)
    assert result.passed, (name, result)
result = run({caught!r}, *(wrong[f] for f in asked[{caught!r}]), seed=3)
assert not result.passed and {says!r} in result.message, result
"""


def bare(code: str) -> None:
    done = subprocess.run([sys.executable, "-S", "-I", "-c", BARE.format(root=str(ROOT)) + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_laws_and_theory_need_nothing_but_python():
    bare(LAW)


def test_the_control_an_import_of_one_of_the_three_fails():
    with pytest.raises(AssertionError, match=r"(numpy|torch) was imported"):
        bare("from specdec import generate")


@pytest.mark.parametrize(
    ("assignment", "solution", "mistake"),
    [("02-rejection-rule", "recursion", "step_bonus_from_q"), ("04-speedup", "closed_form", "tokens_power_k")],
)
def test_the_checks_of_a_chapter_need_nothing_but_python(assignment, solution, mistake):
    from autograder import zoo

    right, wrong = zoo.case("right", assignment, solution), zoo.case("wrong", assignment, mistake)
    code = CHECKS.format(
        right=right.path.read_text(encoding="utf-8"), wrong=wrong.path.read_text(encoding="utf-8"), asked=zoo.checks(assignment),
        chapter=assignment[:2], caught=wrong.check, says=wrong.says,
    )  # fmt: skip
    bare(code)


# -- the package's names -----------------------------------------------------------------------------------------------


def test_every_name_of_the_package_can_be_had_and_is_listed():
    assert set(specdec.__all__) <= set(dir(specdec))
    for name in specdec.__all__:
        assert getattr(specdec, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        specdec.generat  # noqa: B018


def test_type_checkers_see_what_comes_later():
    """The names that they are shown, the names that come, and __all__ are the same."""
    tree = ast.parse(inspect.getsource(specdec))
    shown = next(node for node in tree.body if isinstance(node, ast.If))
    listed = {node.module.removeprefix("specdec."): tuple(alias.name for alias in node.names) for node in shown.body}
    assert listed == specdec._LATER
    assert set(specdec._HOME) | {"law", "law_distance", "expected_tokens", "optimal_k", "speedup"} == set(specdec.__all__)


def test_the_name_of_a_module_stays_the_function():
    code = "import specdec.law; from specdec.law import Choose; from specdec import law; assert callable(law) and callable(specdec.law)"
    bare(code)
