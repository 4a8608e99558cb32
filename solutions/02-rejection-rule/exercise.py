# %% [markdown]
# # Exercise: the rejection rule
#
# You build one step of speculative decoding, in three functions of a few lines each. That takes about an hour.
#
# **When you are done you can**
#
# - decide whether a drafted token is accepted,
# - compute the distribution from which a rejected token is replaced,
# - put both together into a step that emits 1 to k + 1 tokens, distributed **exactly** as the target's own.
#
# Read the lesson first. Notation: p is the target's probability vector, q the draft's, k the number of drafted tokens.
#
# Write your code where it says `YOUR CODE HERE`. Run the cell, then the check below it. A check that fails says what it saw and
# names the mistake if it knows it. Plain Python lists are enough; numpy and torch are welcome.

# %%
import math

import numpy as np
import torch

from autograder.checks import check

# %% [markdown]
# ## Task 1: accept or reject (2 points, 5 minutes, easy)
#
# The draft proposed a token x. It had the probability `q_prob` = q(x) there, and the target gives it `p_prob` = p(x). Accept it with
# probability min(1, p(x)/q(x)).
#
# `u` is a number drawn uniformly from [0, 1). Your function turns it into the decision: **accept when u lies below p(x)/q(x)**. The
# decision depends on nothing else, so that the same u always gives the same answer.
#
# <details>
# <summary>Hint: why "u below r" is "with probability r"</summary>
#
# A uniform number in [0, 1) falls below r with probability r, for every r between 0 and 1. If r is 1 or more, it always does.
#
# </details>
#
# <details>
# <summary>Hint: q(x) = 0</summary>
#
# A token with q(x) = 0 is never drafted, but rounding can produce the case, and your function must not crash. p(x)/q(x) is infinite
# there, so the token is accepted. The comparison u · q(x) < p(x) needs no division.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "accept_or_reject", "locked": false, "schema_version": 3, "solution": true, "task": false}
def accept_or_reject(p_prob, q_prob, u):
    """Whether the drafted token is accepted.

    p_prob: p(x), the target's probability of the drafted token.
    q_prob: q(x), the draft's.
    u: uniform in [0, 1).
    Returns True or False.
    """
    ### BEGIN SOLUTION
    return u * q_prob < p_prob
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_accept_or_reject", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("02.accept_or_reject", accept_or_reject)
### BEGIN HIDDEN TESTS
check("02.accept_or_reject", accept_or_reject, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# A picture in which your dots lie on the line min(1, p/q), and
# `✓ 02.accept_or_reject: 127 decisions are right, u within 0.0001 of each threshold among them`
#
# </details>
#
# What this check cannot see: whether the two numbers that you will hand to your function belong to the same token and the same position. That is task 3.

# %% [markdown]
# ## Task 2: the residual (2 points, 10 minutes, easy)
#
# Acceptances emit token x with probability min(p(x), q(x)). What is missing to p(x) is (p(x) − q(x))₊, that is p(x) − q(x) where it is
# positive and 0 elsewhere. A rejected token is replaced by a draw from exactly that, divided by its sum so that it is a distribution:
#
# $$\text{residual}(x) = \frac{(p(x) - q(x))_+}{\sum_y (p(y) - q(y))_+}$$
#
# `p` and `q` are the **whole vectors** at the rejected position.
#
# <details>
# <summary>Hint: nothing left</summary>
#
# With p = q the sum is 0. Nothing is rejected then, but rounding can bring you here all the same. Return p in that case: it is a
# distribution, and NaN is not.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "residual_dist", "locked": false, "schema_version": 3, "solution": true, "task": false}
def residual_dist(p, q):
    """The distribution of the token that replaces a rejected one.

    p, q: lists of V probabilities, target and draft.
    Returns V probabilities: a list, an array or a tensor.
    """
    ### BEGIN SOLUTION
    excess = [max(0.0, a - b) for a, b in zip(p, q)]
    total = sum(excess)
    return [e / total for e in excess] if total > 0 else list(p)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_residual_dist", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("02.residual_dist", residual_dist)
### BEGIN HIDDEN TESTS
check("02.residual_dist", residual_dist, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# A picture in which your bars reach the black marks, and
# `✓ 02.residual_dist: 7 residuals are exact, and p = q gives a distribution`
#
# </details>
#
# What this check cannot see: whether the q that you subtract is the one from which the token was drawn. It hands you both vectors.

# %% [markdown]
# ## Task 3: one step (6 points, 45 minutes, hard)
#
# Now the whole step. You get
#
# - `prefix`, a tuple of token ids: the text so far;
# - `target(prefix)` and `draft(prefix)`, which return a list of V probabilities for the next token. They depend on the whole prefix. Ask
#   about a longer text with `target(prefix + (x,))`;
# - `k`, the number of tokens to draft, 0 or more;
# - `rng`, your only source of chance: `rng.uniform()` is a number in [0, 1), `rng.categorical(probs)` a token id drawn from `probs`.
#
# The step:
#
# 1. Draft k tokens, one after the other, each drawn from `draft` given the tokens before it.
# 2. Go through them from the first. Token i is judged by p and q **at its position**, given the drafted tokens before it.
# 3. At the first rejection, emit one token from the residual at that position and stop.
# 4. If all k are accepted, emit one more token from the target, the *bonus token*.
#
# Return the list of emitted tokens, without the prefix: the accepted ones, then one more. That is 1 to k + 1 tokens. Call `draft` for
# at most k different prefixes and `target` for at most k + 1: on a real model these calls are what a step costs.
#
# <details>
# <summary>Hint: positions</summary>
#
# With `drafted = [x₁, x₂, …]`, the token with index i is judged by `target(prefix + tuple(drafted[:i]))` and by the vector
# q from which you drew it. Keep those vectors while you draft.
#
# </details>
#
# <details>
# <summary>Hint: what must not happen</summary>
#
# - The drafts after a rejected token continue a text that no longer exists. They are dropped.
# - The q in p/q is the distribution from which the token was really drawn.
# - With k = 0 the loop does nothing, and the step emits one token from the target: plain decoding.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "spec_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def spec_step(prefix, target, draft, k, rng):
    """One step of speculative decoding: the emitted tokens, a list of 1 to k + 1 token ids."""
    ### BEGIN SOLUTION
    drafted, draft_probs = [], []
    for _ in range(k):
        q = draft(prefix + tuple(drafted))
        drafted.append(rng.categorical(q))
        draft_probs.append(q)

    for i, x in enumerate(drafted):
        p, q = target(prefix + tuple(drafted[:i])), draft_probs[i]
        if not accept_or_reject(p[x], q[x], rng.uniform()):
            return drafted[:i] + [rng.categorical(residual_dist(p, q))]
    return drafted + [rng.categorical(target(prefix + tuple(drafted)))]
    ### END SOLUTION


# %% [markdown]
# ### Special cases (1 point)
#
# Steps whose outcome hardly depends on chance: k = 0, p = q, temperature 0 (all of p on one token), and a draft that the target excludes.
#
# What this check cannot see: whether the probabilities are right where chance decides. That is the next one.

# %% nbgrader={"grade": true, "grade_id": "check_spec_step", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
check("02.spec_step", spec_step)
### BEGIN HIDDEN TESTS
check("02.spec_step", spec_step, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# ### The exact law (3 points)
#
# This check does not sample. It runs your step once for **every** way in which the random draws can fall, adds up the probabilities of
# everything that it can emit, and compares them with the formula. The total variation between the two must be 0, up to rounding.
# A right step cannot fail by bad luck, and a wrong one cannot pass by good luck.
#
# There are one, two and three drafts, on models that depend on the whole text before a token. Each bar below is one outcome, the tuple
# of all tokens that one step with one draft emits. A step that never emits the bonus token has the right text but the wrong tuples, and
# is seen here.
#
# What this check cannot see: what your step does to longer drafts and larger vocabularies than it tries, and how long it takes.
#
# <details>
# <summary>How can a check know every value of <code>rng.uniform()</code>?</summary>
#
# All probabilities in this check are multiples of 1/6 (of 1/4 with two drafts, of 1/2 with three), and so is every p(x)/q(x) below 1 and
# every sum of probabilities. Your step therefore does the same for all u between two neighbouring multiples, and it is enough to try
# a value or two near the ends of each such interval. It does not matter whether you write u < p/q, u · q <= p or 1 − u < p/q, nor
# whether you draw tokens with `rng.categorical` or from `rng.uniform()` yourself. Only draw one number for one choice: a step that
# draws until something fits has no end of ways to go through.
#
# </details>

# %% nbgrader={"grade": true, "grade_id": "check_exact_law", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("02.exact_law", spec_step)
### BEGIN HIDDEN TESTS
check("02.exact_law", spec_step, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# ### 50,000 tokens (2 points)
#
# Last, what the theorem promises: text. Your step writes 12,500 texts of four tokens, with k from 0 to 3, and the texts of each k are
# compared with the target's own distribution by the G test, the likelihood-ratio form of the chi-square test. Its threshold is set so
# that a right step fails once in a billion runs. (At the usual 5 % it would fail one right reader in twenty.) This takes a few seconds.
#
# What this check cannot see: how many tokens a step emits, and how often it calls the models. A step without
# a bonus token writes the right text, too. And a sample sees only large errors; those that are too small for it the exact law finds.

# %% nbgrader={"grade": true, "grade_id": "check_equivalence", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("02.equivalence", spec_step)
### BEGIN HIDDEN TESTS
check("02.equivalence", spec_step, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output of the three checks</summary>
#
# `✓ 02.spec_step: 5 special cases are right …`, then a picture in which both bars of every outcome are equally high and
# `✓ 02.exact_law: the law of one step is exact: TV = …e-16 …`, then a histogram and `✓ 02.equivalence: G = …, threshold 313; TV = 0.00…`
#
# </details>
#
# ## What to remember
#
# - Accept with probability min(1, p/q); replace from (p − q)₊, normalised; add a bonus token when everything was accepted.
# - The result is the target's distribution exactly, whatever the draft is. A bad draft costs time, never quality.
# - One check that enumerates says more than a million samples.
