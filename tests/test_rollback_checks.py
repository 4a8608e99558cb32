"""Chapter 05's checks, for every seed: each mistake of the catalogue by its name, and each wrong submission of the zoo."""

import importlib

import pytest
import torch

from autograder import checks, zoo
from autograder.checks import rollback_mistakes
from autograder.checks.rollback_mistakes import DIFFERENT, EARLIER, EMITTED, KEPT, LATER, MATCHING, SHAPES, Verification, named

chapter_05 = importlib.import_module("autograder.checks.05_kv_rollback")
A = "05-kv-rollback"
SEEDS = range(60)
RIGHT = zoo.functions(A)


def verifying(emitted=lambda v: v.right, kept=lambda v: v.kept):
    """A student's function that emits and keeps what these say. Of the text it knows the length and the last token."""

    def verify_and_rollback(model, cache, last, drafts):
        text = [0] * cache.length + [last]
        v = Verification(text, drafts, model([last, *drafts], cache).argmax(-1).tolist())
        cache.rollback(kept(v))
        return emitted(v)

    return verify_and_rollback


def verified(student, seed):
    return checks.run("05.verify_and_rollback", RIGHT["StaticCache"], student, seed=seed)


def test_cases_are_what_their_shape_says():
    for seed in SEEDS:
        model, cases = chapter_05.cases_of(seed)
        for case, (length, k, accepted, wrong, tail) in zip(cases, SHAPES, strict=True):
            assert (len(case.text), len(case.drafts), case.accepted) == (length, k, accepted)
            fresh = model(case.text + case.drafts, rollback_mistakes.PlainCache()).argmax(-1).tolist()
            assert case.rows == fresh[length - 1 :]
            assert len(set(case.rows)) == k + 1
            after = [draft == row for draft, row in zip(case.drafts[accepted + 1 :], case.rows[accepted + 1 :])]
            assert all(after) if tail == MATCHING else not any(after) or tail != DIFFERENT
            assert wrong != EARLIER or case.drafts[accepted] in case.rows[:accepted]
            assert wrong != LATER or case.drafts[accepted] == case.rows[accepted + 1]


@pytest.mark.parametrize("catalogue", [EMITTED, KEPT])
def test_each_mistake_shows_for_every_seed_and_has_a_name_of_its_own(catalogue):
    for seed in SEEDS:
        _, cases = chapter_05.cases_of(seed)
        right = [case.right if catalogue is EMITTED else case.kept for case in cases]
        for mistake in catalogue:
            answers = [mistake.variant(case) for case in cases]
            assert answers != right
            assert named(catalogue, cases, answers) is mistake


@pytest.mark.parametrize("mistake", [m for m in EMITTED if "whole text" not in m.name], ids=lambda mistake: mistake.name)
def test_the_check_names_what_is_emitted(mistake):
    for seed in (0, 3):
        result = verified(verifying(emitted=mistake.variant), seed)
        assert (result.passed, result.message, result.hint) == (False, mistake.name, mistake.hint)


@pytest.mark.parametrize("mistake", KEPT, ids=lambda mistake: mistake.name)
def test_the_check_names_what_is_kept(mistake):
    for seed in (0, 3):
        result = verified(verifying(kept=mistake.variant), seed)
        assert (result.passed, result.message, result.hint) == (False, mistake.name, mistake.hint)


def test_a_mistake_that_raises_later_is_named_by_what_went_before():
    """One slot too many: after full acceptance there is no such slot, and rollback raises."""
    result = verified(verifying(kept=lambda v: v.kept + 1), 0)
    assert "rollback is off by one" in result.message
    assert verified(verifying(), 0).passed


class Unplain(RIGHT["StaticCache"]):
    """Where it should raise ValueError it returns what is no answer; what a check says of that is a ValueError, too."""

    def append(self, k, v):
        if self.length + k.shape[1] > self.keys.shape[1]:
            return {"full"}
        return super().append(k, v)

    def rollback(self, length):
        if not 0 <= length <= self.length:
            return (number for number in ())
        return super().rollback(length)


class Silent(Unplain):
    def append(self, k, v):
        super().append(k, v)

    def rollback(self, length):
        super().rollback(length)


def test_only_what_the_student_s_code_raises_is_its_value_error():
    for kind, said in ((Unplain, "your code returned"), (Silent, "raises nothing")):
        for check in ("05.append", "05.rollback"):
            result = checks.run(check, kind)
            assert not result.passed
            assert said in result.message


# What is right in any one round, and only seen by rounds in a row, by a draft that is another model, or by caches of other forms.


class PerForm(RIGHT["StaticCache"]):
    """Draft and target have caches of one form."""

    tensors = {}  # noqa: RUF012  (the mistake itself)

    def __init__(self, heads, max_length, head_dim, device, dtype):
        form = heads, max_length, head_dim, device, dtype
        self.keys, self.values = self.tensors.setdefault(form, torch.zeros(2, *form[:3], device=device, dtype=dtype))
        self.length = 0


def test_tensors_of_all_caches_are_seen_in_every_check_that_has_two():
    for seed in SEEDS[:10]:
        results = {
            "05.append": checks.run("05.append", PerForm, seed=seed),
            "05.verify_and_rollback": checks.run("05.verify_and_rollback", PerForm, RIGHT["verify_and_rollback"], seed=seed),
            "05.speculate": checks.run("05.speculate", PerForm, RIGHT["speculate"], seed=seed),
        }
        assert not any(result.passed for result in results.values())
        assert results["05.append"].message == "two caches share their tensors"
        assert "its cache gives it other slots" in results["05.speculate"].message


def test_target_and_draft_are_different_models():
    """Each of them with the other's cache, and each in place of the other."""
    right = RIGHT["speculate"]
    wrong = [
        lambda target, draft, one, other, tokens, k: right(target, draft, other, one, tokens, k),
        lambda target, draft, one, other, tokens, k: right(draft, target, one, other, tokens, k),
        lambda target, draft, one, other, tokens, k: right(target, target, one, other, tokens, k),
        lambda target, draft, one, other, tokens, k: right(target, draft, one, one, tokens, k),
    ]
    for student in wrong:
        for seed in SEEDS[:10]:
            assert not checks.run("05.speculate", RIGHT["StaticCache"], student, seed=seed).passed


def test_an_assert_of_the_student_s_is_called_by_its_name_and_line():
    result = checks.run("05.append", zoo.functions(A, zoo.case("wrong", A, "cache_asserts"))["StaticCache"])
    assert "AssertionError: the cache is full, not ValueError" in result.message
    assert "in append, line 9: assert end <=" in result.got
    assert "python -O" in result.hint


def test_right_submissions_pass_for_every_seed():
    for seed in SEEDS[:20]:
        for name, asked in zoo.checks(A).items():
            result = checks.run(name, *(RIGHT[f] for f in asked), seed=seed)
            assert result.passed, (seed, result)


@pytest.mark.slow
@pytest.mark.parametrize("case", zoo.cases("wrong", A), ids=str)
def test_each_wrong_submission_is_seen_for_every_seed_and_named(case):
    functions = zoo.functions(A, case)
    for seed in SEEDS:
        if "shared" in str(case):  # it keeps things in its class
            functions = zoo.functions(A, case)
        result = checks.run(case.check, *(functions[f] for f in zoo.checks(A)[case.check]), seed=seed)
        assert not result.passed
        assert case.says in result.message
