"""Checks of chapter 02. First scripted cases, then the exact law of one step, then samples: see `stepping` for how a law is had."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from autograder.checks.core import SIMPLE, Mistake, Result, Signal, Wrong, call, register, time_limit
from autograder.checks.rejection_mistakes import ACCEPT, RESIDUAL, STEP, accepts, residual
from autograder.checks.stepping import (
    EXACT,
    GRID_CASES,
    PREFIX,
    Models,
    OtherRandomness,
    Probabilities,
    Sampling,
    TooManyUniforms,
    constant,
    emitted_tokens,
    grid_tables,
    law_of_step,
    right_law,
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


def _probe(student: Callable, seed: int) -> None:
    """One ordinary step within a few seconds, so that an endless loop is not waited for as long as thousands of steps."""
    with time_limit(PROBE_SECONDS):
        emitted_tokens(student, PREFIX, Models(grid_tables(seed)), 2, Sampling(seed))


@register("02.spec_step")
def spec_step(student: Callable, seed: int) -> Result:
    """Steps whose outcome does not depend on chance, or only a little: k = 0, p = q, p and q apart, greedy."""
    _probe(student, seed)
    a, b = random.Random(f"edges {seed}").sample(range(3), 2)
    one_hot = {t: [float(i == t) for i in range(3)] for t in (a, b)}
    half = [0.5 if i in (a, b) else 0.0 for i in range(3)]
    cases = [
        ("k = 0 emits one token from p", constant([0.5, 0.25, 0.25], [1 / 3] * 3), 0),
        ("p = q accepts every draft and emits k + 1 tokens", constant(half, half), 2),
        ("at temperature 0, with equal argmax, k + 1 tokens come", constant(one_hot[a], one_hot[a]), 2),
        ("at temperature 0, with another argmax, one token comes: the target's", constant(one_hot[a], one_hot[b]), 2),
        ("a draft that the target excludes is rejected, and one token from p comes", constant(one_hot[b], half), 2),
    ]
    for what, tables, k in cases:
        calls: Counter = Counter()
        try:
            found = law_of_step(student, tables, PREFIX, k, calls)
        except TooManyUniforms:  # tokens by inverse CDF: one draft is enough for these cases
            k = 1
            calls.clear()
            found = law_of_step(student, tables, PREFIX, k, calls)
        if law_distance(found, right_law(tables, PREFIX, k)) > EXACT:
            _explain(what, tables, PREFIX, k, found, student, seed)
        for who, most in (("draft", k), ("target", k + 1)):
            if calls[who] > most:
                raise Wrong(
                    f"{who} is called for {calls[who]} different prefixes in one step", f"at most {most} with k = {k}",
                    hint="The draft runs once per drafted token; the target scores k + 1 positions and no others.",
                )  # fmt: skip
    return Result(
        True, f"{len(cases)} special cases are right (k = 0, p = q, temperature 0, excluded tokens), and no model is called too often"
    )


@register("02.exact_law")
def exact_law(student: Callable, seed: int) -> Result:
    """The joint law of all emitted tokens, K = 1 and K = 2, on models that depend on the whole prefix."""
    _probe(student, seed)
    tables = grid_tables(seed)
    outcomes, worst, note, picture = 0, 0.0, "", None
    for prefix, k in GRID_CASES:
        right = right_law(tables, prefix, k)
        try:
            found = law_of_step(student, tables, prefix, k)
        except TooManyUniforms:
            note = ". Your tokens come from uniform(): K = 1 was enumerated, longer drafts are left to 02.equivalence"
            continue
        distance = law_distance(found, right)
        picture = {"kind": "law", "right": right, "student": found}
        if distance > EXACT:
            what = f"the joint law of one step with k = {k} equals the right one (it is off by TV = {distance:.3f})"
            _explain(what, tables, prefix, k, found, student, seed)
        outcomes, worst = outcomes + len(right), max(worst, distance)
    message = f"the law of one step is exact: TV = {worst:.0e} over {outcomes} outcomes{note}"
    return Result(True, message, picture=picture, facts={"tv": worst})


def _explain(
    what: str, tables: Probabilities, prefix: tuple[int, ...], k: int, found: dict, student: Callable, seed: int
) -> None:
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
        first, *others = [law_of_step(student, grid_tables(seed), PREFIX, 1) for _ in range(REPEATS)]
    except OtherRandomness:
        return True
    except Signal:  # what else is wrong with this step is not the question here
        return False
    return any(law_distance(first, other) > EXACT for other in others)


def _named_step(failure: tuple, student: Callable, seed: int) -> Mistake | None:
    """The mistake of the catalogue with the student's law. K = 1 is quick and mostly enough; K = 2 decides between what is left."""
    candidates = STEP
    for k in (1, 2):
        evidence = [failure] if failure[2] == k else []
        evidence += [(grid_tables(seed), prefix, k, None) for prefix, grid_k in GRID_CASES if grid_k == k]
        for tables, prefix, _, found in evidence:
            with contextlib.suppress(Signal):  # what breaks there is another check's business
                found = found or law_of_step(student, tables, prefix, k)
                candidates = [m for m in candidates if _behaves_so(m, tables, prefix, k, found)]
        if len(candidates) <= 1:
            break
    return candidates[0] if candidates else None


def _behaves_so(mistake: Mistake, tables: Probabilities, prefix: tuple[int, ...], k: int, found: dict) -> bool:
    try:
        return law_distance(found, law_of_step(mistake.variant, tables, prefix, k)) < EXACT
    except Wrong:  # the variant breaks a rule on these tables; the student's step did not
        return False


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

PAIRS = 25_000
FALSE_FAIL = 1e-9
CLOSE = 0.01  # TV and KL of the token histogram
K_SAMPLED = 2

# One token carries most of the mass, so that 50,000 tokens measure TV well below CLOSE: with N tokens the noise of a cell is
# √(p(1 - p)/N). With a flat target the target's own samples would miss TV < 0.01 now and then. (p, q) by the last token.
_PEAKED = {
    None: ([0.90, 0.06, 0.04], [0.40, 0.35, 0.25]),
    0: ([0.88, 0.02, 0.10], [0.30, 0.50, 0.20]),
    1: ([0.92, 0.05, 0.03], [0.97, 0.01, 0.02]),
    2: ([0.91, 0.01, 0.08], [0.60, 0.20, 0.20]),
}


def peaked_tables(seed: int) -> Probabilities:
    """Models for sampling; a seed names the tokens anew and changes nothing else, so that every seed is equally hard."""
    order = random.Random(f"peaked {seed}").sample(range(3), 3)  # token t of the table is called order[t]
    back = [order.index(t) for t in range(3)]

    @cache
    def pair(prefix: tuple[int, ...]) -> tuple[list[float], list[float]]:
        p, q = _PEAKED[back[prefix[-1]] if len(prefix) > len(PREFIX) else None]
        return [p[i] for i in back], [q[i] for i in back]

    return pair


def pair_law(tables: Probabilities) -> dict[tuple[int, int], float]:
    """The target's exact law of two tokens in a row."""
    p = tables(PREFIX)[0]
    return {(x, y): p[x] * tables((*PREFIX, x))[0][y] for x in range(3) for y in range(3)}


@register("02.equivalence", seconds=45)
def equivalence(student: Callable, seed: int) -> Result:
    """50,000 tokens as 25,000 independent pairs: the first two tokens after a fixed prefix, joint cells, G test; TV and KL."""
    _probe(student, seed)
    tables = peaked_tables(seed)
    models = Models(tables)
    pairs = sampled_tokens(student, [PREFIX] * PAIRS, models, K_SAMPLED, f"equivalence {seed}")
    short = [i for i, tokens in enumerate(pairs) if len(tokens) < 2]
    behind = sampled_tokens(student, [(*PREFIX, *pairs[i]) for i in short], models, K_SAMPLED, f"equivalence {seed} second")
    for i, tokens in zip(short, behind):
        pairs[i] += tokens
    pairs = Counter(tokens[:2] for tokens in pairs)
    exact = pair_law(tables)
    test = goodness_of_fit([pairs[pair] for pair in exact], list(exact.values()), FALSE_FAIL)
    observed = [sum(n * pair.count(t) for pair, n in pairs.items()) / (2 * PAIRS) for t in range(3)]
    expected = [sum(m * pair.count(t) for pair, m in exact.items()) / 2 for t in range(3)]
    tv = sum(abs(a - b) for a, b in zip(observed, expected)) / 2
    kl = sum(a * math.log(a / b) for a, b in zip(observed, expected) if a > 0)
    picture = {"kind": "histogram", "observed": observed, "expected": expected, "samples": 2 * PAIRS}
    figures = f"G = {test.statistic:.1f}, threshold {test.threshold:.1f}; TV = {tv:.4f} and KL = {kl:.1e} of 50,000 tokens"
    if not test.passed or tv >= CLOSE or kl >= CLOSE:
        raise Wrong(
            "50,000 emitted tokens do not follow the target's distribution",
            f"G <= {test.threshold:.1f}, TV < {CLOSE}, KL < {CLOSE}; a right program fails once in a billion runs", figures,
            "Get 02.exact_law to pass first: its message names the mistake.", picture,
        )  # fmt: skip
    return Result(
        True,
        f"{figures}. A right program fails once in a billion runs; a step whose pairs are off by TV = {test.detectable_tv:.2f} or more "
        "passes no more often. The target puts nine tenths on one token: the sampling noise of TV is then about 0.001, well below 0.01",
        picture=picture,
        facts={"tv": tv, "kl": kl, "g": test.statistic},
    )
