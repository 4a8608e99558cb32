# %% [markdown]
# # Exercise: a cache that can forget
#
# **When you are done you can**
#
# - write a key-value cache that allocates its memory once,
# - roll it back after a rejection by changing one number,
# - run whole rounds of speculative decoding with two caches, the target's and the draft's, without a stale slot in either.
#
# Three tasks, about 75 minutes.
#
# *Slot* i of a cache holds the key and the value of token i of the text. A *forward* runs the model on new tokens; it appends their keys and values
# to the cache and attends to everything in it.
#
# To keep the arithmetic small, target and draft are models with one attention layer here. The class is twenty lines long: read
# `TinyAttention` in `autograder/checks/tiny.py`. Real caches hold the same thing once per layer.

# %%
import torch

from autograder.checks import check
from autograder.checks.tiny import PlainCache, TinyAttention, prefill

# %% [markdown]
# `model(tokens, cache)` takes a list of new token ids and returns logits of shape (T, V). Row t belongs to `tokens[t]`: it scores the token that
# comes *after* it. The reference cache below grows by concatenation, which copies everything at every step:

# %%
model, cache = TinyAttention(seed=0), PlainCache()
logits = model([3, 1, 4, 1, 5], cache)
print(logits.shape, "cached:", cache.length, "next token:", int(logits[-1].argmax()))

# %% [markdown]
# ## Task 1: a static cache (4 points, easy, 20 minutes)
#
# Write a cache whose two tensors are allocated once and never again. Target and draft have a cache each, so every cache needs tensors of its own:
#
# - `keys` and `values`, each of shape (heads, max_length, head_dim), with the given device and dtype;
# - `length`, the number of slots in use;
# - `append(k, v)`: writes k and v, each (heads, T, head_dim), after the last slot in use. If T slots are not free it raises `ValueError`
#   **before** it writes anything;
# - `read()`: the pair (keys, values) of the slots in use, each (heads, length, head_dim), as **views**, not copies;
# - `rollback(length)`: from now on only the first `length` slots are in use. It copies and clears nothing. A `length` below 0 or
#   above the present one raises `ValueError`. The slots after it are free again.
#
# The device is "cuda" where there is a GPU: put the tensors where you are told to.
#
# <details>
# <summary>Hint: views</summary>
#
# Slicing a tensor, `t[:, 3:7]`, gives a view: no number is copied, and assigning to the slice writes into `t`.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "static_cache", "locked": false, "schema_version": 3, "solution": true, "task": false}
class StaticCache:
    """Keys and values of one layer, in tensors that are allocated once."""

    def __init__(self, heads, max_length, head_dim, device, dtype):
        ### BEGIN SOLUTION
        self.keys = torch.zeros(heads, max_length, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.length = 0
        ### END SOLUTION

    def append(self, k, v):
        """Writes k, v (heads, T, head_dim) behind the last slot in use."""
        ### BEGIN SOLUTION
        end = self.length + k.shape[1]
        if end > self.keys.shape[1]:
            raise ValueError(f"{self.keys.shape[1]} slots, {self.length} in use, {k.shape[1]} more asked for")
        self.keys[:, self.length : end] = k
        self.values[:, self.length : end] = v
        self.length = end
        ### END SOLUTION

    def read(self):
        """Views of the slots in use: keys and values, (heads, length, head_dim) each."""
        ### BEGIN SOLUTION
        return self.keys[:, : self.length], self.values[:, : self.length]
        ### END SOLUTION

    def rollback(self, length):
        """Only the first `length` slots stay in use."""
        ### BEGIN SOLUTION
        if not 0 <= length <= self.length:
            raise ValueError(f"length must lie in [0, {self.length}], got {length}")
        self.length = length
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_append", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("05.append", StaticCache)
### BEGIN HIDDEN TESTS
check("05.append", StaticCache, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "check_rollback", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("05.rollback", StaticCache)
### BEGIN HIDDEN TESTS
check("05.rollback", StaticCache, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# `✓ 05.append: 12 slots in three pieces, read back as views; three caches at once; a full one refuses and stays as it is (cpu)` and
# `✓ 05.rollback: 4 rollbacks changed a number and no tensor, and dropped slots were overwritten`
#
# What `05.append` cannot see: whether a cache really goes to the device it is told, where there is but one.
#
# What `05.rollback` cannot see: how long anything takes, and whether somebody had to wait for the number: on a CPU nobody has.
#
# </details>

# %% [markdown]
# ## Task 2: verify, then roll back (3 points, medium, 20 minutes)
#
# Now one verification at temperature 0, where the rule is simple: a draft is accepted if and only if it is the target's argmax.
#
# The text so far has 10 tokens. The cache holds the first 9; the newest one, `last`, has been chosen but not fed yet. Five tokens are drafted.
#
# 1. Run the target **once**, on `[last] + drafts`. That appends 6 slots, and row i of the logits says what the target puts after `last` and i drafts.
# 2. Accept drafts from the first while they equal the target's argmax.
# 3. The emitted tokens are the accepted drafts and one more: the target's own choice at the first rejection (the *correction*), or after
#    the last draft if all were right (the *bonus token*).
# 4. Roll the cache back so that it holds the 10 tokens and the accepted drafts, and nothing else. The correction is the next `last`.
#
# If the draft is wrong at position 3, the next forward must see exactly: the prefix, the first two drafts, the correction. The check fills every slot that
# you dropped with NaN, then runs that forward and compares its logits with those of a fresh forward over the whole text. It does so for every
# accept length from 0 to 5, and for texts and drafts of other lengths: take both from what you are given.
#
# <details>
# <summary>Hint: how many slots stay?</summary>
#
# Before the forward there were `cache.length` slots. Of the 6 new ones the first belongs to `last` and stays; then come the drafts.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "verify_and_rollback", "locked": false, "schema_version": 3, "solution": true, "task": false}
def verify_and_rollback(model, cache, last, drafts):
    """One greedy verification. Returns the emitted tokens: the accepted drafts and one more.

    cache: holds the text without `last`; afterwards the text with `last` and the accepted drafts.
    last: the newest token of the text.  drafts: a list of K token ids, K >= 1.
    """
    ### BEGIN SOLUTION
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()  # K + 1 of them
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[accepted]]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_verify_and_rollback", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("05.verify_and_rollback", StaticCache, verify_and_rollback)
### BEGIN HIDDEN TESTS
check("05.verify_and_rollback", StaticCache, verify_and_rollback, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# A picture whose last two rows are alike, and
# `✓ 05.verify_and_rollback: accept lengths 0 to 5, and other lengths: right tokens, one forward each, and the next one equals a fresh one (cpu)`
#
# What this check cannot see: a tie between two logits, for its texts have none; and sampling. At temperature 0 the rule is an equality.
#
# </details>

# %% [markdown]
# ## Task 3: rounds with two caches (3 points, hard, 35 minutes)
#
# The draft is another model, with a cache of its own. It drafts one token per forward. Write the whole round:
#
# 1. Draft k tokens: feed the draft what its cache lacks, take the argmax, feed that, and so on.
# 2. Verify them with the target.
# 3. Roll the draft's cache back as well: it holds drafts that were rejected. Accepted ones stay.
#
# The draft computes nothing twice: in one round it is fed at most k + 2 tokens. k may change from round to round.
#
# When the round begins the target's cache holds `tokens` without the last one. The draft's cache holds **at most** that. Think about the round
# after one in which all k drafts were accepted: which of them has the draft itself never been fed?
#
# <details>
# <summary>Hint</summary>
#
# What a cache lacks of a text is `text[cache.length:]`. Mostly that is one token, sometimes it is two. `rollback` cannot go up:
# roll back to the smaller of the present length and the length that you want.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "speculate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def speculate(target, draft, target_cache, draft_cache, tokens, k):
    """One round of greedy speculative decoding: the list of new tokens, 1 to k + 1 of them.

    tokens: the text so far, a list.  k: how many tokens are drafted, at least 1.
    """
    ### BEGIN SOLUTION
    drafts = []
    for _ in range(k):
        lacking = (tokens + drafts)[draft_cache.length :]
        drafts.append(int(draft(lacking, draft_cache)[-1].argmax()))
    emitted = verify_and_rollback(target, target_cache, tokens[-1], drafts)
    accepted_text = len(tokens) + len(emitted) - 1
    draft_cache.rollback(min(draft_cache.length, accepted_text))
    return emitted
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_speculate", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("05.speculate", StaticCache, speculate)
### BEGIN HIDDEN TESTS
check("05.speculate", StaticCache, speculate, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# `✓ 05.speculate: rounds that accept 4 of 4, 2 of 4, 3 of 3, 4 of 4, 0 of 2, 1 of 5, 3 of 4, 1 of 1, 2 of 4: plain greedy decoding's text, and
# both caches are right after each (cpu)` (the last accept length is drawn at random by the check)
#
# What this check cannot see: what you do with a draft's logits beside their argmax, and rounds with k = 0.
#
# </details>
#
# ## What to remember
#
# - In a static cache a rollback moves no data: one number changes. (Where a GPU computes that number, fetching it is a wait; see the lesson.)
# - After a round the cache holds exactly the committed text without its newest token, which is the first token of the next forward.
# - After full acceptance the draft's cache lags by two tokens. Feeding "what is lacking" is right in every case; feeding "the last token" is not.
