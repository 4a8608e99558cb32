"""The checks against submissions whose verdict is known: right ones in several styles, and each mistake by its name."""


import importlib
import math
from fractions import Fraction
from pathlib import Path

import pytest

from autograder import checks, zoo
from autograder.checks import core, rejection_mistakes, step_tables, stepping
from autograder.checks.core import Wrong
from specdec.law import law_distance

chapter_02 = importlib.import_module("autograder.checks.02_rejection_rule")
ASSIGNMENTS = ("01-why-decoding-is-slow", "02-rejection-rule", "03-acceptance-rate", "04-speedup", "05-kv-rollback")


def verdicts(assignment, case, names=None, seed=0):
    """{check: Result} of a case, on the functions that the exercise hands to each check."""
    functions = zoo.functions(assignment, case)
    asked = zoo.checks(assignment)
    return {name: checks.run(name, *(functions[f] for f in asked[name]), seed=seed) for name in names or asked}


def by_name(cases):
    return pytest.mark.parametrize("case", cases, ids=str)


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_an_exercise_asks_for_every_check_of_its_chapter(assignment):
    assert list(zoo.checks(assignment)) == checks.names(assignment[:2])
    assert len(zoo.cases("right", assignment)) >= 2


@by_name(zoo.cases("right"))
def test_right_submissions_pass_every_check(case):
    names = [name for name in zoo.checks(case.assignment) if name != "02.equivalence"]
    for name, result in verdicts(case.assignment, case, names, seed=5).items():
        assert result.passed, f"{name}: {result}"


def test_a_right_step_passes_the_sampling_check():
    case = zoo.case("right", "02-rejection-rule", "recursion")
    result = verdicts(case.assignment, case, ["02.equivalence"])["02.equivalence"]
    assert result.passed
    assert result.facts["tv"] < 0.01
    assert result.facts["kl"] < 0.01


@by_name([case for case in zoo.cases("wrong") if case.path.stem != "step_endless"])
def test_each_mistake_is_caught_by_its_check_and_named(case):
    result = verdicts(case.assignment, case, [case.check])[case.check]
    assert not result.passed
    assert case.says
    assert case.says in result.message
    assert "\n" not in result.message
    assert len(checks.CheckFailed(case.check, result).lines()) < 15


def test_an_endless_loop_is_a_message_after_some_seconds(monkeypatch):
    monkeypatch.setattr(chapter_02, "PROBE_SECONDS", 0.3)
    case = zoo.case("wrong", "02-rejection-rule", "step_endless")
    result = verdicts(case.assignment, case, [case.check])[case.check]
    assert not result.passed
    assert case.says in result.message


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_stubs_fail_with_the_advice_to_write_them(assignment):
    def stub(*_):
        raise NotImplementedError

    for name, asked in zoo.checks(assignment).items():
        result = checks.run(name, *[stub] * len(asked))
        assert not result.passed
        assert "not written yet" in result.message
        assert "NotImplementedError" in result.hint


# -- the exact law -----------------------------------------------------------------------------------------------------


def grid_distances(step, seed):
    """The total variation between a step's law and the right one, for one case of the check after the other."""
    for tables, prefix, k in step_tables.grid_cases(seed):
        try:
            found = stepping.law_of_step(step, tables, prefix, k)
        except Wrong:  # no token at all, for instance
            yield 1.0
        else:
            yield law_distance(found, step_tables.right_law(tables, prefix, k))


def by_vectors(accept):
    return lambda s, i: accept(s.p(i), s.q(i), s.drafted[i], s.rng)


def by_inverse_cdf(step):
    """The same step, which draws its tokens from rng.uniform()."""

    class Own:
        def __init__(self, rng):
            self.uniform = rng.uniform

        def categorical(self, probs):
            u, total = self.uniform(), 0.0
            return next((t for t, p in enumerate(probs) if u < (total := total + p)), len(probs) - 1)

    return lambda prefix, target, draft, k, rng: step(prefix, target, draft, k, Own(rng))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("drawn", [lambda step: step, by_inverse_cdf])
def test_the_right_step_has_the_closed_form_s_law(seed, drawn):
    assert max(grid_distances(drawn(rejection_mistakes.step), seed)) < 1e-12


@pytest.mark.parametrize("drawn", [lambda step: step, by_inverse_cdf])
def test_every_mistake_of_the_catalogue_is_far_from_the_right_law(drawn):
    for mistake in rejection_mistakes.STEP[:: 1 if drawn is not by_inverse_cdf else 9]:  # that one has thousands of branches
        assert any(distance > 0.01 for distance in grid_distances(drawn(mistake.variant), 1)), mistake.name


def test_no_two_mistakes_of_different_names_have_the_same_laws():
    groups = [rejection_mistakes.STEP]
    for case in step_tables.grid_cases(1):  # only those that are alike so far need another look
        parts = {}
        for number, group in enumerate(group for group in groups if len({mistake.name for mistake in group}) > 1):
            for mistake in group:
                law = chapter_02._law_of_mistake(mistake, *case) or {}
                parts.setdefault((number, *sorted((o, round(mass, 6)) for o, mass in law.items())), []).append(mistake)
        groups = parts.values()
    assert [group for group in groups if len({mistake.name for mistake in group}) > 1] == []


@pytest.mark.parametrize("step", [
    lambda prefix, target, draft, k, rng: next(t for t in iter(lambda: rng.categorical(target(prefix)), None) if rng.uniform() > 0.9),
    lambda prefix, target, draft, k, rng: [rng.categorical(target(prefix)) for _ in range(30)][:1] if draft(prefix) else [],
])  # fmt: skip
def test_a_step_that_never_stops_drawing_cannot_be_enumerated_and_is_told_so(step):
    result = checks.run("02.exact_law", step, seed=1)
    assert not result.passed
    assert "too many random numbers" in result.message


@pytest.mark.parametrize(("step", "says"), [
    (lambda prefix, target, draft, k, rng: [rng.categorical([1.0, 0, 0])], "never asks target"),
    (lambda prefix, target, draft, k, rng: [rng.categorical(target(prefix))], "the drafts are never used"),
])  # fmt: skip
def test_a_step_must_ask_both_models(step, says):
    for check in ("02.spec_step", "02.exact_law", "02.equivalence"):
        result = checks.run(check, step, seed=1)
        assert not result.passed
        assert says in result.message


def test_too_many_calls_are_seen_even_if_the_step_catches_what_stops_it():
    def step(prefix, target, draft, k, rng):
        for x in range(3):
            try:
                target((*prefix, x))
            except Exception:
                continue
        return rejection_mistakes.step(prefix, target, draft, k, rng)

    result = checks.run("02.spec_step", step, seed=1)
    assert not result.passed
    assert "target is called for" in result.message


@pytest.mark.parametrize("shift", [-0.02, -0.001, 0.001, 0.02])
def test_a_threshold_that_is_off_by_little_is_seen(shift):
    def step(*arguments):
        return rejection_mistakes.step(*arguments, accept=by_vectors(lambda p, q, x, rng: rng.uniform() < p[x] / q[x] + shift))

    assert any(distance > 0.01 for distance in grid_distances(step, 0))


@pytest.mark.parametrize(
    "accept",
    [
        lambda p, q, x, rng: rng.uniform() < p[x] / q[x],
        lambda p, q, x, rng: rng.uniform() <= p[x] / q[x],
        lambda p, q, x, rng: rng.uniform() * q[x] < p[x],
        lambda p, q, x, rng: not rng.uniform() >= min(1, p[x] / q[x]),
        lambda p, q, x, rng: 1 - rng.uniform() < p[x] / q[x],
        lambda p, q, x, rng: rng.uniform() > 1 - p[x] / q[x],
        lambda p, q, x, rng: p[x] >= q[x] or rng.uniform() < p[x] / q[x],
    ],
)
def test_the_law_is_exact_however_the_comparison_is_written(accept):
    assert max(grid_distances(lambda *arguments: rejection_mistakes.step(*arguments, accept=by_vectors(accept)), 0)) < 1e-12


@pytest.mark.parametrize("k", [1, 2, 3])
def test_tables_depend_on_the_context_and_on_the_seed(k):
    first, second = step_tables.grid_tables(1, k), step_tables.grid_tables(2, k)
    contexts = [(*step_tables.PREFIX, x) for x in range(4)]
    assert len({str(first(context)) for context in contexts}) > 2
    assert any(first(context) != second(context) for context in contexts)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_threshold_of_a_right_step_is_the_end_of_a_cell(k):
    for p, q in step_tables._PAIRS[k]:
        cells = step_tables._CELLS[k]
        p, q = [Fraction(a, cells) for a in p], [Fraction(b, cells) for b in q]
        excess = [max(0, a - b) for a, b in zip(p, q)]
        assert sum(p) == sum(q) == 1
        ratios = [a / b for a, b in zip(p, q) if a < b]
        for number in (*p, *q, *ratios, *([e / sum(excess) for e in excess] if any(excess) else [])):
            assert (number * cells).denominator == 1, (p, q)


# -- the sampling check ------------------------------------------------------------------------------------------------


def test_a_text_s_law_sums_to_one_and_a_seed_only_names_the_tokens_anew():
    laws = [step_tables.text_law(step_tables.text_tables(seed), step_tables.PREFIX, chapter_02.TEXT) for seed in range(6)]
    assert len({tuple(law.values()) for law in laws}) > 1
    for law in laws:
        assert math.isclose(sum(law.values()), 1)
        assert sorted(law.values()) == pytest.approx(sorted(laws[0].values()))


def test_the_sampling_check_sees_a_step_that_resamples_from_p():
    case = zoo.case("wrong", "02-rejection-rule", "step_residual_from_p")
    result = verdicts(case.assignment, case, ["02.equivalence"])["02.equivalence"]
    assert not result.passed


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_failure_prints_a_few_lines_and_no_traceback():
    with pytest.raises(checks.CheckFailed) as failed:
        checks.check("04.expected_tokens", lambda alpha, k: k + 1)
    lines = failed.value._render_traceback_()
    assert lines[0].startswith("✗ 04.expected_tokens: always K + 1 tokens")
    assert [line.split()[0] for line in lines[1:]] == ["expected", "got", "hint"]


def test_an_exception_of_the_student_is_reported_with_its_line():
    def speedup(alpha, k, c):
        return [alpha][k]

    result = checks.run("04.speedup", speedup)
    assert "IndexError" in result.message
    assert "in speedup" in result.got
    assert "[alpha][k]" in result.got


def test_prints_and_warnings_are_shown_and_cost_nothing(capsys):
    case = zoo.case("right", "04-speedup", "numpy_table")
    functions = zoo.functions(case.assignment, case)
    checks.check("04.optimal_k", functions["optimal_k"])
    shown = capsys.readouterr()
    assert "best of 65" in shown.out
    assert "the draft is too dear" in shown.out
    assert shown.err == ""


CASES = {  # functions, and what the message must have
    "a whole number beyond every float": ("04.expected_tokens", [lambda a, k: 10**400], "no number"),
    "an infinite number": ("04.expected_tokens", [lambda a, k: math.inf], "expected_tokens is wrong"),
    "an infinite K": ("04.optimal_k", [lambda a, c: (math.inf, 1.0)], "did not return the pair"),
    "a K beyond every float": ("04.optimal_k", [lambda a, c: (10**400, 1.0)], "another K is faster"),
    "an infinite decision": ("02.accept_or_reject", [lambda p, q, u: math.inf], "True or False"),
    "an infinite residual": ("02.residual_dist", [lambda p, q: [math.inf] * len(p)], "residual"),
    "a token beyond every float": ("02.spec_step", [lambda prefix, target, draft, k, rng: [10**400]], "outside the vocabulary"),
    "an exit": ("04.speedup", [lambda a, k, c: exit()], "SystemExit"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_answer_makes_a_check_raise(case):
    check, functions, told = CASES[case]
    result = checks.run(check, *functions)
    assert not result.passed
    assert told in result.message


@pytest.fixture
def registered(monkeypatch):
    """Makes a function the check 99.it."""
    return lambda function: monkeypatch.setitem(core._registry, "99.it", (function, 5.0))


def test_an_exception_that_escapes_a_check_is_a_failure_that_names_it(registered, monkeypatch):
    def judge(student, seed):
        return int(core.call(student))

    registered(judge)
    monkeypatch.setattr(core, "OURS", (*core.OURS, Path(__file__).parent))
    result = checks.run("99.it", lambda: math.inf)
    said = "this check cannot judge what your code returned (OverflowError in judge: cannot convert float infinity to integer)"
    assert (result.passed, result.message) == (False, said)


def test_an_exception_of_the_student_s_outside_of_call_is_the_student_s(registered):
    registered(lambda student, seed: student())
    names = {}
    exec(compile("def work():\n    return {}['k']", "<cell>", "exec"), names)
    result = checks.run("99.it", names["work"])
    assert result.message == "your code raised KeyError: 'k'"
    assert result.got == "KeyError in work, line 2"


def test_a_fault_of_the_host_stays_the_host_s(registered):
    class Broken(RuntimeError):
        pass

    class Host(core.Here):
        faults = (Broken,)

    def fails():
        raise Broken("the sandbox is gone")

    for check in (lambda student, seed: student(), lambda student, seed: core.call(student)):
        registered(check)
        with pytest.raises(Broken):
            checks.run("99.it", fails, host=Host())
        assert "sandbox is gone" in checks.run("99.it", fails).message, "in the notebook it is an exception like any other"


class Fails(core.Here):
    """A host that `fail`s at an answer and at all behind it; with none of that it counts them."""

    class Broken(RuntimeError):  # as the judge's SandboxError is
        pass

    class Lost(Wrong):  # as the judge's own
        pass

    faults = (Broken,)

    def __init__(self, at=math.inf, failure=None):
        self.at, self.failure, self.answers = at, failure, 0

    def answer(self, function, value):
        self.answers += 1
        if self.answers > self.at:
            raise self.failure("it is gone")
        return super().answer(function, value)


@pytest.mark.parametrize("check", [name for name in checks.names() if name != "02.equivalence"])
def test_a_failure_of_the_host_is_no_answer_wherever_it_falls(check):
    assignment = next(a for a in ASSIGNMENTS if a.startswith(check[:2]))
    functions = zoo.functions(assignment)
    asked = [functions[name] for name in zoo.checks(assignment)[check]]
    counting = Fails()
    assert checks.run(check, *asked, host=counting).passed
    for at in sorted({*range(4), *(counting.answers * i // 12 for i in range(12)), counting.answers - 1}):
        with pytest.raises(Fails.Broken):
            checks.run(check, *asked, host=Fails(at, Fails.Broken))
        result = checks.run(check, *asked, host=Fails(at, Fails.Lost))
        assert (result.passed, result.message, result.credit) == (False, "it is gone", 0)


def test_what_a_result_keeps_is_bounded_and_the_same_in_every_run(registered):
    def verbose(student, seed):
        raise core.Wrong(
            f"an object {object()!r} " + "m" * 10**6, "e" * 10**6, "g" * 10**6, "h" * 10**6, {"kind": "law", "right": {(0,): 10**400}}
        )

    registered(verbose)
    result = checks.run("99.it", None)
    assert "0x7" not in result.message
    assert all(len(text) < 2100 for text in (result.message, result.expected, result.got, result.hint))
    assert result.picture is None, "a number that no picture can have"


@pytest.mark.parametrize("values", [[0.5] * 10**6, [[[0.5] * 100] * 100] * 100, ["a" * 100] * 10**6], ids=["long", "deep", "text"])
def test_a_picture_with_too_many_parts_is_left_out(registered, values):
    registered(lambda student, seed: core.Result(True, "", picture={"kind": "residual", "p": values}))
    assert checks.run("99.it", None).picture is None


def test_a_picture_s_numbers_are_finite_floats(registered):
    picture = {"kind": "k", "values": [math.inf, Fraction(1, 2), True, 3], "marks": [("K", -math.inf)]}
    registered(lambda student, seed: core.Result(True, "", picture=picture))
    found = checks.run("99.it", None).picture
    assert str(found) == "{'kind': 'k', 'values': [nan, 0.5, True, 3], 'marks': [('K', nan)]}"


def test_an_unknown_check_names_those_that_there_are():
    with pytest.raises(KeyError, match=r"02\.exact_law"):
        checks.run("02.nothing", None)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("acceptance", {"points": [(0.1, 0.1), (1.2, 1.0)]}),
        ("law", {"right": {(0,): 0.5, (1, 0): 0.5}, "student": {(0,): 1.0}}),
        ("distributions", {"series": {"p": [0.5, 0.5], "q": [0.1, 0.9]}, "title": "t"}),
        ("several", {"lines": {"a": ([0, 1], [0.2, 0.4])}, "title": "t", "xlabel": "x", "ylabel": "y"}),
        ("intervals", {"points": [(10, 0.5, 0.1), (99, 0.6, 0.05)], "truth": 0.6, "title": "t", "xlabel": "x", "ylabel": "y"}),
        ("beside", {"labels": ["a"], "right": [1], "student": [3], "title": "t", "ylabel": "GB", "xlabel": "model", "log": True}),
        ("lines", {"x": [1, 2, 4], "right": [1, 1, 2], "student": [1, 2, 4], "title": "t", "xlabel": "n", "ylabel": "ms"}),
        ("slots", {"rows": {"before": ["cached", "drafted"], "after": ["cached", "dropped"]}, "title": "t"}),
    ],
)
def test_pictures_are_drawn_from_plain_data(kind, data, tmp_path):
    from autograder.checks.figures import draw

    figure = draw(kind, **data)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert figure.axes[0].get_xlabel()


def test_a_threshold_inside_a_cell_shows_even_where_one_number_stands_for_it():
    """A step with a sampler of its own that accepts a hundredth too rarely, and only the third draft."""

    def step_with(slack):
        def step(prefix, target, draft, k, rng):
            def drawn(weights):
                u, total = rng.uniform(), 0.0
                for token, weight in enumerate(weights):
                    total += weight
                    if u < total:
                        return token

            drafted = []
            for _ in range(k):
                drafted.append(drawn(draft((*prefix, *drafted))))
            for i, x in enumerate(drafted):
                context = (*prefix, *drafted[:i])
                p, q = target(context), draft(context)
                if rng.uniform() >= p[x] / q[x] - (slack if i == 2 else 0):
                    excess = [max(0.0, a - b) for a, b in zip(p, q)]
                    return [*drafted[:i], drawn([a / sum(excess) for a in excess] if sum(excess) else p)]
            return [*drafted, drawn(target((*prefix, *drafted)))]

        return step

    for tables, prefix, k in step_tables.grid_cases(seed=3):
        if k == 3:
            right = step_tables.right_law(tables, prefix, k)
            assert law_distance(stepping.law_of_step(step_with(0.0), tables, prefix, k), right) < stepping.EXACT
            assert law_distance(stepping.law_of_step(step_with(0.01), tables, prefix, k), right) > stepping.EXACT, tables.name
