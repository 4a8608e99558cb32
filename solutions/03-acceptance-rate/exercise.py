# %% [markdown]
# # Exercise: the acceptance rate, exactly and counted
#
# **When you are done you can**
#
# - compute α from two distributions, and from two models' logits at any temperature,
# - count α from the rounds of a real run without counting tokens that nobody judged,
# - say how far a counted α may be off, and why rounds must be treated as a whole,
# - build a draft that has the better KL and the worse α.
#
# About 60 minutes in all. Notation: p is the target's distribution, q the draft's, α the acceptance rate, T a temperature. Plain lists of floats go in;
# lists, NumPy arrays or tensors may come out.

# %%
import math

import numpy as np

from autograder.checks import check

# %% [markdown]
# ## Task 1: α of two distributions (2 points, 5 minutes, easy)
#
# A token drawn from q is accepted with probability min(1, p(x)/q(x)). On average over x that is
#
# $$\alpha = \sum_x q(x) \min\left(1, \frac{p(x)}{q(x)}\right) = \sum_x \min(p(x), q(x)).$$
#
# <details>
# <summary>Hint</summary>
#
# The form on the right has no division. Entries of p and q may be 0.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "acceptance_rate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def acceptance_rate(p, q):
    """α, a number in [0, 1].

    p, q: two lists of the same length, each a distribution: entries >= 0 that sum to 1.
    """
    ### BEGIN SOLUTION
    return sum(min(a, b) for a, b in zip(p, q))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_acceptance_rate", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("03.acceptance_rate", acceptance_rate)
### BEGIN HIDDEN TESTS
check("03.acceptance_rate", acceptance_rate, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Bars of p, q and the overlap, and
# `✓ 03.acceptance_rate: 27 pairs are right, equal and disjoint ones among them`
#
# </details>
#
# What this check cannot see: whether p and q are those of your models. It hands you distributions; real bugs often sit in how they were made. That is task 2.

# %% [markdown]
# ## Task 2: α at a temperature (2 points, 15 minutes, medium)
#
# The target decodes at one temperature, and the draft may draw at another. At temperature T the probabilities are
#
# $$p(x) = \frac{e^{z_x / T}}{\sum_y e^{z_y / T}}$$
#
# for the logits z. At T = 0 all mass stands on the largest logit, and where several are largest on the one with the lowest id. Each model has its own logits and
# its own temperature. Logits may be as large as 1000, and T as small as 0.01.
#
# <details>
# <summary>Hint: large logits</summary>
#
# `math.exp(1000)` overflows. Subtract the largest logit from all of them first: numerator and denominator shrink by the same factor, and no exponent is above 0.
#
# </details>
# <details>
# <summary>Hint: T = 0</summary>
#
# Do not divide. Make a list of zeros with a single 1. `z.index(max(z))` finds the first of equal logits.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "alpha_at", "locked": false, "schema_version": 3, "solution": true, "task": false}
def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    """α where the target samples at one temperature and the draft at another; each may be 0.

    target_logits, draft_logits: two lists of floats of the same length.
    """
    ### BEGIN SOLUTION
    def probabilities(logits, T):
        top = max(logits)
        if T == 0:
            return [float(i == logits.index(top)) for i in range(len(logits))]
        weights = [math.exp((z - top) / T) for z in logits]
        return [w / sum(weights) for w in weights]

    return acceptance_rate(probabilities(target_logits, target_temperature), probabilities(draft_logits, draft_temperature))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_alpha_at", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("03.alpha_at", alpha_at)
### BEGIN HIDDEN TESTS
check("03.alpha_at", alpha_at, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Three curves of α over the draft's temperature, one for each of the target's, and
# `✓ 03.alpha_at: 33 values are right, T = 0, ties and large logits among them`
#
# </details>
#
# What this check cannot see: whether your rule later divides by the same q from which it drew. α of the wrong q is a number like any other.

# %% [markdown]
# ## Task 3: α from the rounds of a run (2 points, 10 minutes, medium)
#
# A run leaves one pair for each round: how many tokens were drafted, and how many of them were accepted. The rule stops at the first rejection. What was drafted
# after it was never *judged*: it is neither a success nor a failure. So a round of `drafted` tokens with `accepted` successes has judged
#
# $$n = \min(\texttt{accepted} + 1, \texttt{drafted})$$
#
# tokens: one more than it accepted, unless it accepted all. With N judged tokens in the whole run and A accepted ones the estimate is α = A / N, and the 95 % interval
# of a coin that is tossed N times is α ± 1.96 √(α(1 − α)/N).
#
# <details>
# <summary>Hint</summary>
#
# Add up over all rounds first, divide once at the end. A round that drafted nothing judged nothing.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "alpha_from_rounds", "locked": false, "schema_version": 3, "solution": true, "task": false}
def alpha_from_rounds(rounds):
    """The pair (α, error): the estimate, and the half width of its 95 % interval.

    rounds: a list of pairs (drafted, accepted), whole numbers with drafted >= accepted >= 0; at least one token was judged.
    """
    ### BEGIN SOLUTION
    judged = sum(min(accepted + 1, drafted) for drafted, accepted in rounds)
    alpha = sum(accepted for _, accepted in rounds) / judged
    return alpha, 1.96 * math.sqrt(alpha * (1 - alpha) / judged)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_alpha_from_rounds", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("03.alpha_from_rounds", alpha_from_rounds)
### BEGIN HIDDEN TESTS
check("03.alpha_from_rounds", alpha_from_rounds, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Your estimate with its interval for longer and longer runs of a draft with α = 0.7, closing in on the line, and
# `✓ 03.alpha_from_rounds: 25 runs are right, with full acceptances and rounds without a draft among them`
#
# </details>
#
# What this check cannot see: whether one α describes the run at all. If some rounds are easy and others hard, the interval is too narrow. That is task 4.

# %% [markdown]
# ## Task 4: the error when rounds differ (2 points, 10 minutes, medium)
#
# Write $a_r$ for the accepted and $n_r$ for the judged tokens of round r, and N for the sum of all $n_r$. If the rate α were the same everywhere, a round's surplus
# $a_r - \alpha n_r$ would average 0. How much it scatters shows how much the estimate may be off, whether the tokens of a round are independent or not:
#
# $$\text{error} = \frac{1.96}{N} \sqrt{\sum_r (a_r - \alpha n_r)^2}$$
#
# with α = A / N from task 3.
#
# <details>
# <summary>Hint</summary>
#
# One surplus for each round, squared, summed over the rounds, then the root, then the division by N, the number of judged *tokens*.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "error_by_rounds", "locked": false, "schema_version": 3, "solution": true, "task": false}
def error_by_rounds(rounds):
    """The half width of the 95 % interval of α, with each round as one draw.

    rounds: as in task 3.
    """
    ### BEGIN SOLUTION
    alpha, _ = alpha_from_rounds(rounds)
    counts = [(min(accepted + 1, drafted), accepted) for drafted, accepted in rounds]
    scatter = sum((a - alpha * n) ** 2 for n, a in counts)
    return 1.96 * math.sqrt(scatter) / sum(n for n, _ in counts)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_error_by_rounds", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("03.error_by_rounds", error_by_rounds)
### BEGIN HIDDEN TESTS
check("03.error_by_rounds", error_by_rounds, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Two runs with the same α, one of a steady draft and one that comes in runs of good and bad rounds: your error is the wider one for the second, and
# `✓ 03.error_by_rounds: 25 runs are right; for a steady draft the error is the coin's, for one that comes in runs it is larger`
#
# </details>
#
# What this check cannot see: whether your rounds are independent of each other. Rounds of one text are not. The same formula with a whole text as one draw covers that.

# %% [markdown]
# ## Task 5: the better KL and the worse α (2 points, 20 minutes, hard)
#
# Given p, return two drafts. The first must be closer to p in KL(p‖q) and still be accepted *less* often. Both differences must be at least 0.01:
#
# $$\operatorname{KL}(p \Vert \text{first}) + 0.01 \le \operatorname{KL}(p \Vert \text{second}), \qquad \alpha(p, \text{first}) + 0.01 \le \alpha(p, \text{second}).$$
#
# No entry of a draft may be 0: an infinite KL would be too easy. The p that you get have 3 to 8 tokens, each with a probability of at least 0.02.
#
# <details>
# <summary>Hint: what KL fears</summary>
#
# A token with p(x) = 0.1 and q(x) = 10⁻⁹ costs KL 0.1 · log(10⁸), almost 2 nats. It costs α at most 0.1. Take the least probable token.
#
# </details>
# <details>
# <summary>Hint: the other draft</summary>
#
# The first draft must lose a little more α than that, but spread it so that no ratio p(x)/q(x) is extreme. Mix p with one token's point mass: (1 − λ) p + λ e. Compute both
# numbers for λ = 0.01, 0.02, … and take the first λ that is enough.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "better_kl_worse_alpha", "locked": false, "schema_version": 3, "solution": true, "task": false}
def better_kl_worse_alpha(p):
    """The pair (first, second) of drafts: the first has the better KL and the worse α.

    p: a list of 3 to 8 probabilities, each at least 0.02. Each draft is a list of as many positive numbers that sum to 1.
    """
    ### BEGIN SOLUTION
    rare = p.index(min(p))
    almost_never = [1e-9 if x == rare else y for x, y in enumerate(p)]
    second = [y / sum(almost_never) for y in almost_never]
    for percent in range(1, 100):
        mix = percent / 100
        first = [(1 - mix) * y + mix * (x == rare) for x, y in enumerate(p)]
        if acceptance_rate(p, first) < acceptance_rate(p, second) - 0.011:
            return first, second
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_better_kl_worse_alpha", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("03.better_kl_worse_alpha", better_kl_worse_alpha)
### BEGIN HIDDEN TESTS
check("03.better_kl_worse_alpha", better_kl_worse_alpha, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Bars of p and your two drafts, and
# `✓ 03.better_kl_worse_alpha: for each of 12 targets your first draft has the better KL and the worse α`
#
# </details>
#
# What this check cannot see: whether a training run would ever produce such drafts. The lesson shows real ones.
#
# ## What to remember
#
# - α = Σ min(p, q), with p and q as they were really used: own logits, own temperature, T = 0 without a division.
# - Counted: accepted over *judged*, never accepted over drafted. Add up first, divide once.
# - The interval of a coin supposes one rate for all rounds. Let the rounds say themselves how much they scatter.
# - KL bounds α. It does not rank drafts by α.
