# %% [markdown]
# # Exercise: how much faster, and the best draft length
#
# **When you are done you can**
#
# - say how many tokens one target forward emits, given an acceptance rate and a draft length,
# - turn that into a speedup, once you know what the draft costs,
# - find the draft length that is fastest, and see when it is best not to speculate at all.
#
# Three tasks, about 30 minutes. Notation: α (`alpha`) is the acceptance rate, the probability that a drafted token is accepted. K (`k`) is the draft length. c is the cost of
# one draft step divided by the cost of one target step. τ is the number of tokens that one target forward emits, on average.

# %%
import math

import numpy as np

from autograder.checks import check

# %% [markdown]
# ## Task 1: tokens per target forward (3 points, 5 minutes, easy)
#
# One step drafts K tokens, and each is accepted with probability α if all before it were. Then the step emits one token more, the recovered or
# the bonus token. Token number i + 1 of a step is emitted when the first i drafts were accepted, which has probability αⁱ. So
#
# $$\tau = 1 + \alpha + \alpha^2 + \dots + \alpha^K = \frac{1 - \alpha^{K+1}}{1 - \alpha}$$
#
# Your function must also be right where the fraction is 0/0: at α = 1 every draft is accepted. With K = 0 nothing is drafted. Five right digits
# are enough.
#
# <details>
# <summary>Hint</summary>
#
# The sum on the left has no trouble with α = 1, and K is small.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "expected_tokens", "locked": false, "schema_version": 3, "solution": true, "task": false}
def expected_tokens(alpha, k):
    """τ, the expected number of tokens that one target forward emits.

    alpha: acceptance rate in [0, 1].
    k: draft length, a whole number >= 0.
    """
    ### BEGIN SOLUTION
    return sum(alpha**i for i in range(k + 1))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_expected_tokens", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("04.expected_tokens", expected_tokens)
### BEGIN HIDDEN TESTS
check("04.expected_tokens", expected_tokens, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Five curves over K that flatten out at 1 / (1 − α), and
# `✓ 04.expected_tokens: 30 values are right, α = 0, α = 1 and K = 0 among them`
#
# </details>
#
# What this check cannot see: an α closer to 1 than 0.9995 that is treated as 1, and a K above 64.
#
# Look at the curves: each rises for ever. By tokens alone the best K is always the largest one. Without a cost c the question "which K is best"
# has no answer.

# %% [markdown]
# ## Task 2: the speedup (3 points, 5 minutes, easy)
#
# Measure time in target forwards. A step costs K draft steps at c each, and one target forward, which scores all drafts at once. It emits τ tokens;
# plain decoding emits one token per target forward. So
#
# $$\text{speedup} = \frac{\tau}{cK + 1}$$
#
# (Leviathan et al. 2023, theorem 3.8.) The 1 supposes that scoring K + 1 positions costs the target no more than one. The lesson sets that against a measurement.

# %% nbgrader={"grade": false, "grade_id": "speedup", "locked": false, "schema_version": 3, "solution": true, "task": false}
def speedup(alpha, k, c):
    """How many times faster than plain decoding; 1 for k = 0.

    c: cost of a draft step in target forwards, >= 0.
    """
    ### BEGIN SOLUTION
    return expected_tokens(alpha, k) / (c * k + 1)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_speedup", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("04.speedup", speedup)
### BEGIN HIDDEN TESTS
check("04.speedup", speedup, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Four curves for α = 0.8. Now each has a top, the further left the dearer the draft, and
# `✓ 04.speedup: 29 values are right, α = 1, c = 0 and K = 0 among them`
#
# </details>
#
# What this check cannot see: whether you call `expected_tokens` or sum anew; it looks at values only.

# %% [markdown]
# ## Task 3: the best draft length (4 points, 20 minutes, medium)
#
# Find the K with the largest speedup, from 0 up to and including `k_max`. Return the pair `(K, speedup)`. Where several K are equally fast take
# the smallest. So the answer is `(0, 1.0)`, do not speculate, wherever no K above 0 is faster than plain decoding: where speculation loses, and
# where it is just as fast (α = c, or α = c = 0). Where each further drafted token helps (c = 0 and α > 0, or α = 1 and c < 1) it is `k_max`,
# or a smaller K from which on rounding makes all speedups equal.
#
# <details>
# <summary>Hint</summary>
#
# There are only `k_max` + 1 candidates. Try them all, K = 0 included.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "optimal_k", "locked": false, "schema_version": 3, "solution": true, "task": false}
def optimal_k(alpha, c, k_max=64):
    """The pair (K, speedup) with the largest speedup among K = 0 … k_max."""
    ### BEGIN SOLUTION
    best = max(range(k_max + 1), key=lambda k: speedup(alpha, k, c))
    return best, speedup(alpha, best, c)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_optimal_k", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("04.optimal_k", optimal_k)
### BEGIN HIDDEN TESTS
check("04.optimal_k", optimal_k, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# Five curves with a star at each top, K = 14, 11, 8, 6 and 4, and
# `✓ 04.optimal_k: the best K is right for 62 pairs (α, c), ties, other k_max, and K = 0 where nothing helps among them`
#
# </details>
#
# What this check cannot see: which of two equally fast K above 0 you take (α = 0.5, c = 0.2: K = 1 and K = 2), for there rounding decides.
#
# Print the table of the best K yourself:

# %%
for c in (0.01, 0.02, 0.05, 0.1, 0.2):
    row = [optimal_k(alpha, c) for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)]
    print(f"c = {c:<4}  " + "  ".join(f"{k:>2} ({speed:.2f}×)" for k, speed in row))

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# | c | α = 0.5 | 0.6 | 0.7 | 0.8 | 0.9 |
# |---|---|---|---|---|---|
# | 0.01 | 5 (1.88×) | 7 (2.30×) | 9 (2.97×) | 14 (4.23×) | 24 (7.49×) |
# | 0.02 | 4 (1.79×) | 6 (2.17×) | 8 (2.76×) | 11 (3.82×) | 19 (6.37×) |
# | 0.05 | 3 (1.63×) | 4 (1.92×) | 6 (2.35×) | 8 (3.09×) | 13 (4.67×) |
# | 0.1 | 2 (1.46×) | 3 (1.67×) | 4 (1.98×) | 6 (2.47×) | 10 (3.43×) |
# | 0.2 | 1 (1.25×) | 2 (1.40×) | 3 (1.58×) | 4 (1.87×) | 7 (2.37×) |
#
# </details>
#
# ## What to remember
#
# - τ = 1 + α + … + α^K saturates at 1 / (1 − α); the cost cK + 1 does not.
# - The best K needs c. It grows with α and falls with c.
# - Some K > 0 helps if and only if α > c. Otherwise K = 0 is the right answer.
