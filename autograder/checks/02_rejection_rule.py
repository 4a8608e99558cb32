"""Checks of chapter 02. First scripted cases, then the exact law of one step, then samples: see `stepping` for how a law is had."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from autograder.checks.core import SIMPLE, Mistake, Result, Signal, Wrong, call, register, time_limit
from autograder.checks.rejection_mistakes import ACCEPT, RESIDUAL, STEP, accepts, residual
from autograder.checks.step_tables import (
    PREFIX,
    Tables,
    coarse_cases,
    constant,
    grid_cases,
    grid_tables,
    right_law,
    text_law,
    text_tables,
)
from autograder.checks.stepping import (
    EXACT,
    InverseCdf,
    Models,
    OtherRandomness,
    Sampling,
    calls,
    emitted_tokens,
    law_of_step,
    sampled_tokens,
)
from autograder.inside.plain import number, shown, vector
from specdec.law import law_distance
from specdec.statistics import goodness_of_fit

REPEATS = 7  # of a short step, to see randomness that is not the check's
HALF = 0.5  # of the points, where only a limiting case is wrong
NEAR = 1e-4  # of a threshold, relatively: no drawn u lies nearer, so that single precision cannot decide otherwise
MASS = 0.2  # of a drawn residual at least: what is divided by less loses digits that single precision does not have

# -- accept_or_reject --------------------------------------------------------------------------------------------------


@register("02.accept_or_reject", seconds=SIMPLE)
def accept_or_reject(student: Callable, seed: int) -> Result:
    """u just below and just above p/q, p >= q, p = 0, q = 0."""
    cases = _accept_cases(seed)
    answers = [_truth(call(student, p, q, u, what=f"accept_or_reject({p:.3g}, {q:.3g}, {u:.6g})")) for p, q, u in cases[:-1]]
    picture = {"kind": "acceptance", "points": _acceptance_curve(student)}
    wrong = [(case, answer) for case, answer in zip(cases, answers) if answer != accepts(*case)]
    if wrong:
        (p, q, u), answer = wrong[0]
        named = next((m for m in ACCEPT if [bool(m.variant(*case)) for case in cases[:-1]] == answers), None)
        raise Wrong(
            named.name if named else f"{len(wrong)} of {len(answers)} decisions are wrong",
            f"accept_or_reject({p:.4g}, {q:.4g}, {u:.6g}) is {not answer}: p/q is {p / q:.4g}",
            str(answer),
            named.hint if named else "Accept when u is below p/q: that happens with probability min(1, p/q).",
            picture,
        )
    p, q, u = cases[-1]
    try:
        accepted = _truth(call(student, p, q, u, what="q = 0"))
    except Wrong as wrong_zero:
        if type(wrong_zero) is not Wrong:  # the student's process is gone
            raise
        error = wrong_zero.result
        raise Wrong(
            "q(x) = 0 breaks the division", f"accept_or_reject({p}, 0.0, {u}) is True", error.got or error.message,
            "p/q is then infinite. Compare u * q with p, or handle q = 0 first.", picture, credit=HALF,
        ) from None  # fmt: skip
    if not accepted:
        name, expected = "rejects where q(x) = 0", f"accept_or_reject({p}, 0.0, {u}) is True: p/q is infinite"
        raise Wrong(name, expected, "False", "", picture, credit=HALF)
    return Result(True, f"{len(cases)} decisions are right, u within 0.0001 of each threshold among them", picture=picture)


def _accept_cases(seed: int) -> list[tuple[float, float, float]]:
    """(p, q, u); the last one has q = 0."""
    draw = random.Random(f"accept {seed}")
    cases = [(0.3, 0.6, 0.4999), (0.3, 0.6, 0.5001), (0.6, 0.3, 0.9999), (0.4, 0.4, 0.9999), (0.0, 0.5, 1e-9), (0.01, 0.9, 0.5)]
    for _ in range(30):  # the last u tells p * q from p - q, and both from p
        p, q = _redrawn(lambda: (draw.uniform(0.02, 0.6), draw.uniform(0.02, 0.6)), lambda pair: abs(pair[0] / pair[1] - 1) > 0.01)
        threshold = min(1.0, p / q)
        uniforms = [_redrawn(u, lambda u, p=p, q=q: abs(u * q - p) > NEAR * p) for u in (draw.random, lambda p=p: draw.uniform(0, p))]
        cases += [(p, q, u) for u in (threshold - 1e-4, min(threshold + 1e-4, 0.9999), *uniforms)]
    return [*cases, (0.2, 0.0, 0.5)]


def _redrawn(draw: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
    """The first draw that fits."""
    while not fits(found := draw()):
        continue
    return found


def _truth(answer: Any) -> bool:
    """True or False; numpy's and torch's booleans and 0 and 1 are fine."""
    try:
        return bool({0: False, 1: True}[number(answer)])
    except (KeyError, ValueError):
        raise Wrong("accept_or_reject must return True or False", "True or False", shown(answer)) from None


def _acceptance_curve(student: Callable) -> list[tuple[float, float]]:
    """(p/q, share of evenly spaced u that is accepted) for the picture."""
    shares = []
    for p in (0.02, 0.08, 0.14, 0.2, 0.26, 0.32, 0.38, 0.44, 0.5, 0.56):
        answers = [_truth(call(student, p, 0.4, (i + 0.5) / 40)) for i in range(40)]
        shares.append((p / 0.4, sum(answers) / 40))
    return shares


# -- residual_dist -----------------------------------------------------------------------------------------------------


@register("02.residual_dist", seconds=SIMPLE)
def residual_dist(student: Callable, seed: int) -> Result:
    """Against norm((p - q)₊); and a distribution, whichever, where the residual has no mass."""
    draw = random.Random(f"residual {seed}")
    cases = [([0.1, 0.55, 0.35], [0.5, 0.3, 0.2]), ([0.6, 0.4, 0.0], [0.2, 0.3, 0.5])]
    cases += [_random_pair(draw, v) for v in (2, 3, 5, 8, 40)]
    answers = [_vector(student, p, q) for p, q in cases]
    p, q = cases[0]
    picture = {"kind": "residual", "p": p, "q": q, "right": residual(p, q), "student": answers[0]}
    for (p, q), answer in zip(cases, answers):
        if _furthest(answer, residual(p, q)) > EXACT:
            named = _name(answers, [[m.variant(p, q) for p, q in cases] for m in RESIDUAL], RESIDUAL)
            raise Wrong(
                named.name if named else "the residual is wrong",
                f"residual_dist({_shown(p)}, {_shown(q)}) is {_shown(residual(p, q))}", _shown(answer),
                named.hint if named else "Clamp p - q at 0, entry by entry, then divide by the sum.", picture,
            )  # fmt: skip
    for p in ([0.2, 0.3, 0.5], [0.0, 1.0, 0.0]):
        answer = _vector(student, p, list(p), no_mass=True)
        if not all(a >= 0 for a in answer) or abs(sum(answer) - 1) > EXACT:
            raise Wrong(
                "a residual without mass is no distribution", f"residual_dist(p, q) with p = q = {_shown(p)} is p", _shown(answer),
                "With p = q nothing is ever rejected, but rounding can call you there: return p when the sum is 0.", picture, credit=HALF,
            )  # fmt: skip
    return Result(True, f"{len(cases)} residuals are exact, and p = q gives a distribution", picture=picture)


def _random_pair(draw: random.Random, size: int) -> tuple[list[float], list[float]]:
    """p and q with a residual of some mass."""
    return _redrawn(
        lambda: (_random_distribution(draw, size), _random_distribution(draw, size)),
        lambda pair: sum(max(0.0, a - b) for a, b in zip(*pair)) > MASS,
    )


def _random_distribution(draw: random.Random, size: int) -> list[float]:
    weights = [draw.random() ** 2 for _ in range(size)]
    return [w / sum(weights) for w in weights]


def _vector(student: Callable, p: list[float], q: list[float], no_mass: bool = False) -> list[float]:
    asked = f"{len(p)} probabilities"
    try:
        answer = call(student, list(p), list(q), what=f"residual_dist with {asked}")
    except Wrong as wrong:
        if no_mass and "ZeroDivision" in wrong.result.message:
            raise Wrong(
                "a residual without mass divides by zero", f"residual_dist(p, q) with p = q = {_shown(p)} is p", wrong.result.got,
                "With p = q the sum is 0: return p then.", credit=HALF,
            ) from None  # fmt: skip
        raise
    try:
        values = vector(answer)
    except ValueError:
        raise Wrong("residual_dist did not return a list of numbers", asked, shown(answer)) from None
    if len(values) != len(p):
        raise Wrong(f"residual_dist returned {len(values)} numbers for a vocabulary of {len(p)}", asked, _shown(values))
    return values


def _furthest(a: Sequence[float], b: Sequence[float]) -> float:
    """The largest difference; infinite if there is a NaN."""
    differences = [abs(x - y) for x, y in zip(a, b)]
    return math.inf if any(d != d for d in differences) else max(differences)


def _name(answers: list, behaviours: list[list], catalogue: list[Mistake]) -> Mistake | None:
    """The first entry that behaves as the student does in every case."""
    for mistake, behaviour in zip(catalogue, behaviours):
        if all(_furthest(a, b) < EXACT for a, b in zip(answers, behaviour)):
            return mistake
    return None


def _shown(values: Sequence[float], most: int = 5) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values[:most]) + (", …]" if len(values) > most else "]")


# -- spec_step ---------------------------------------------------------------------------------------------------------


PROBE_SECONDS = 5.0
PROBED = 99  # a table of which no law is asked


def _probe(student: Callable, seed: int) -> None:
    """One ordinary step within a few seconds, so that an endless loop is not waited for as long as thousands of steps."""
    with time_limit(PROBE_SECONDS):
        emitted_tokens(student, PREFIX, Models(grid_tables(seed, 2, PROBED)), 2, Sampling(seed).row())


@register("02.spec_step")
def spec_step(student: Callable, seed: int) -> Result:
    """Steps whose outcome does not depend on chance, or only a little: k = 0, p = q, p and q apart, greedy."""
    _probe(student, seed)
    a, b = random.Random(f"edges {seed}").sample(range(3), 2)
    one_hot = {t: [float(i == t) for i in range(3)] for t in (a, b)}
    half = [0.5 if i in (a, b) else 0.0 for i in range(3)]
    cases = [
        ("k = 0 emits one token from p", constant([0.5, 0.25, 0.25], [1 / 3] * 3, 4), 0),
        ("p = q accepts every draft and emits k + 1 tokens", constant(half, half), 2),
        ("at temperature 0, with equal argmax, k + 1 tokens come", constant(one_hot[a], one_hot[a]), 3),
        ("at temperature 0, with another argmax, one token comes: the target's", constant(one_hot[a], one_hot[b]), 3),
        ("a draft that the target excludes is rejected, and one token from p comes", constant(one_hot[b], half), 2),
    ]
    for what, tables, k in cases:
        found = law_of_step(student, tables, PREFIX, k, calls(k))
        if law_distance(found, right_law(tables, PREFIX, k)) > EXACT:
            _explain(what, tables, PREFIX, k, found, student, seed)
    return Result(
        True, f"{len(cases)} special cases are right (k = 0, p = q, temperature 0, excluded tokens), and no model is called too often"
    )


@register("02.exact_law")
def exact_law(student: Callable, seed: int) -> Result:
    """The joint law of all emitted tokens, K = 1, 2 and 3, on models that depend on the whole prefix."""
    _probe(student, seed)
    outcomes, worst, picture = 0, 0.0, None
    for tables, prefix, k in grid_cases(seed):
        right, found = right_law(tables, prefix, k), law_of_step(student, tables, prefix, k)
        distance = law_distance(found, right)
        if distance > EXACT:
            what = f"the joint law of one step with k = {k} equals the right one (it is off by TV = {distance:.3f})"
            _explain(what, tables, prefix, k, found, student, seed)
        picture = picture or {"kind": "law", "right": right, "student": found}
        outcomes, worst = outcomes + len(right), max(worst, distance)
    message = f"the law of one step is exact: TV = {worst:.0e} over {outcomes} outcomes, with 1, 2 and 3 drafts"
    return Result(True, message, picture=picture, facts={"tv": worst})


def _explain(what: str, tables: Tables, prefix: tuple[int, ...], k: int, found: dict, student: Callable, seed: int) -> None:
    """Raises Wrong with the name of the mistake, or with what can be said without one."""
    if law_distance(found, law_of_step(student, tables, prefix, k)) > EXACT or _changes(student, seed):
        raise OtherRandomness
    right = right_law(tables, prefix, k)
    outcome = max(sorted(found.keys() | right.keys()), key=lambda o: abs(found.get(o, 0) - right.get(o, 0)))
    named = _named_step((tables, prefix, k, found), student, seed)
    raise Wrong(
        named.name if named else _part(found, right, k),
        f"{what}; P(emits {list(outcome)}) = {right.get(outcome, 0):.4f}", f"P(emits {list(outcome)}) = {found.get(outcome, 0):.4f}",
        named.hint if named else "Go through the step by hand for this outcome: which draws lead to it, and how likely is each?",
        {"kind": "law", "right": right, "student": found},
    )  # fmt: skip


def _changes(student: Callable, seed: int) -> bool:
    """Whether the law of a short step differs from run to run. Own coins may fall the same way twice, but hardly each time."""
    try:
        first, *others = [law_of_step(student, grid_tables(seed, 3), PREFIX, 1) for _ in range(REPEATS)]
    except OtherRandomness:
        return True
    except Signal:  # what else is wrong with this step is not the question here
        return False
    return any(law_distance(first, other) > EXACT for other in others)


def _named_step(failure: tuple, student: Callable, seed: int) -> Mistake | None:
    """The mistake of the catalogue with the student's law, in every case.

    A threshold inside a cell, which only wrong steps have, counts as half of the cell. So a wrong step that draws its tokens from uniform
    numbers has other laws than one with rng.categorical, and is compared once more, with a catalogue that draws as it does.
    """
    named = _fitting((failure, *((*case, None) for case in grid_cases(seed))), student, False)
    if named is None:
        cases = [(*case, law_of_step(student, *case)) for case in coarse_cases(seed)]
        if any(law_distance(found, right_law(*case)) > EXACT for *case, found in cases):
            named = _fitting(cases, student, True)
    return named


def _fitting(cases: Iterable[tuple], student: Callable, own_sampler: bool) -> Mistake | None:
    """The first entry that behaves as the student does in all (tables, prefix, k, the student's law or None)."""
    candidates = STEP
    for tables, prefix, k, found in cases:
        with contextlib.suppress(Signal):  # what breaks there is another check's business
            found = found or law_of_step(student, tables, prefix, k)
            laws = [(m, _law_of_mistake(m, tables, prefix, k, own_sampler)) for m in candidates]
            candidates = [m for m, law in laws if law is not None and law_distance(found, law) < EXACT]
        if not candidates:
            return None
    return candidates[0]


@lru_cache(16384)
def _law_of_mistake(mistake: Mistake, tables: Tables, prefix: tuple[int, ...], k: int, own_sampler: bool = False) -> dict | None:
    """None if the variant breaks a rule on these tables."""

    def step(prefix: tuple[int, ...], target: Callable, draft: Callable, k: int, rng: Any) -> list[int]:
        return mistake.variant(prefix, target, draft, k, InverseCdf(rng) if own_sampler else rng)

    try:
        return law_of_step(step, tables, prefix, k)
    except Wrong:
        return None


def _part(found: dict, right: dict, k: int) -> str:
    """Which part of a step's law is wrong, where no mistake of the catalogue fits."""

    def marginal(law: dict, of: Callable) -> dict:
        sums: Counter = Counter()
        for outcome, mass in law.items():
            sums[of(outcome)] += mass
        return sums

    if max(map(len, found)) == 1 < k + 1:
        return "one token a step: the drafts are never used"
    if law_distance(marginal(found, len), marginal(right, len)) < EXACT:
        return "as many tokens come as should, but their probabilities are wrong: look at the correction and the bonus token"
    if law_distance(marginal(found, lambda o: o[0]), marginal(right, lambda o: o[0])) < EXACT:
        return f"the first token's law is right, but not how many come: they should be up to {k + 1}"
    return "the first token's law is wrong already: look at the acceptance and the residual"


# -- samples -----------------------------------------------------------------------------------------------------------

FALSE_FAIL = 1e-9  # half of it is for the G tests, half for CLOSE
CLOSE = 0.01  # TV and KL of the token histogram
TEXT = 4  # tokens of one text: one step with k = 3 can emit them all, the bonus token too
TEXTS = {3: 6500, 2: 3000, 1: 2500, 0: 500}  # of each k: together 50,000 tokens
TOKENS = TEXT * sum(TEXTS.values())
AUDITED = 4  # steps of each turn that are run once more, question by question: up to 64 in all


@register("02.equivalence", seconds=45)
def equivalence(student: Callable, seed: int) -> Result:
    """12,500 texts of four tokens, made of whole steps with k = 0 to 3: for each k a G test of the joint cells; TV and KL of all tokens."""
    _probe(student, seed)
    tables = text_tables(seed)
    exact = text_law(tables, PREFIX, TEXT)
    tests, tokens = {}, Counter()
    for k, count in TEXTS.items():
        texts = Counter(_texts(student, tables, k, count, seed))
        tests[k] = goodness_of_fit([texts[text] for text in exact], list(exact.values()), FALSE_FAIL / 2 / len(TEXTS))
        for text, times in texts.items():
            tokens.update({token: times * text.count(token) for token in text})
    observed = [tokens[t] / TOKENS for t in range(3)]
    expected = [sum(mass * text.count(t) for text, mass in exact.items()) / TEXT for t in range(3)]
    tv = sum(abs(a - b) for a, b in zip(observed, expected)) / 2
    kl = sum(a * math.log(a / b) for a, b in zip(observed, expected) if a > 0)
    picture = {"kind": "histogram", "observed": observed, "expected": expected, "samples": TOKENS}
    threshold = tests[1].threshold  # the same for each
    shown = ", ".join(f"{test.statistic:.0f} (k = {k})" for k, test in sorted(tests.items()))
    figures = f"G = {shown}, threshold {threshold:.0f}; TV = {tv:.4f} and KL = {kl:.1e} of 50,000 tokens"
    failed = [k for k, test in sorted(tests.items()) if not test.passed]
    if failed or tv >= CLOSE or kl >= CLOSE:
        raise Wrong(
            "50,000 emitted tokens do not follow the target's distribution" + (f", with k = {failed[0]} for one" if failed else ""),
            f"G <= {threshold:.0f} for each k, TV < {CLOSE}, KL < {CLOSE}; a right program fails once in a billion runs", figures,
            "Get 02.exact_law to pass first: its message names the mistake.", picture,
        )  # fmt: skip
    return Result(
        True,
        f"{figures}. A right program fails once in a billion runs; one whose texts with k = 3 are off by TV = {tests[3].detectable_tv:.2f} "
        "or more passes no more often. Only the text is seen here: how many tokens a step emits, and how often it calls the models, is not",
        picture=picture,
        facts={"tv": tv, "kl": kl, "g": max(test.statistic for test in tests.values())},
    )


def _texts(student: Callable, tables: Callable, k: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """Texts of TEXT tokens, each of as many whole steps as it takes; what the last one emits beyond is cut off."""
    texts: list[tuple[int, ...]] = [()] * count
    for turn in range(TEXT):
        short = [i for i, text in enumerate(texts) if len(text) < TEXT]
        prefixes = [(*PREFIX, *texts[i]) for i in short]
        behind = sampled_tokens(student, prefixes, tables, k, f"equivalence {seed} {k} {turn}", AUDITED)
        for i, tokens in zip(short, behind):
            texts[i] = (*texts[i], *tokens)[:TEXT]
    return texts
