"""Every acceptance rule by itself, exactly: draft from tables, let the real code judge, continue with plain target sampling. The joint
law of the text must be the target's, for uniforms at both edges of every interval that a right rule tells apart."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch

from specdec import verification
from specdec.distributions import Sampling, greedy_choice, inverse_cdf
from specdec.law import law, law_distance
from specdec.tree import TokenTree, full_tree
from specdec.verification import verify_block, verify_chain, verify_tree, walk, walk_greedily

F64 = torch.float64


def table(seed: int, V: int):
    """prefix → a distribution that depends on all of it; some entries are 0."""

    @cache
    def distribution(prefix: tuple[int, ...]) -> np.ndarray:
        weights = np.random.default_rng([seed, len(prefix), *prefix]).dirichlet(np.full(V, 0.7))
        weights[weights < 0.02] = 0
        return weights / weights.sum()

    return distribution


def residue(p, q):
    excess = np.maximum(p - q, 0)
    return excess / excess.sum() if excess.sum() > 0 else p


class Script:
    """Draws through `choose`, and notes uniforms that lead a right rule the same way, near one edge of their interval."""

    def __init__(self, choose, edge: int):
        self.choose, self.edge = choose, edge

    def _inside(self, lower, upper):
        nudge = min(1e-9, (upper - lower) / 4)
        return upper - nudge if self.edge else lower + nudge

    def coin(self, threshold):
        threshold = min(1.0, threshold)
        heads = self.choose.uniform_below(threshold)
        return heads, self._inside(0, threshold) if heads else self._inside(threshold, 1)

    def token(self, probabilities):
        cdf = np.concatenate([[0], np.cumsum(probabilities)])
        x = self.choose.categorical(probabilities)
        return x, self._inside(cdf[x], cdf[x + 1])


def continued(choose, text: list[int], p, length: int) -> tuple[int, ...]:
    while len(text) < length:
        text.append(choose.categorical(p(tuple(text))))
    return tuple(text)


def target_law(p, length: int) -> dict:
    return law(lambda choose: continued(choose, [], p, length))


def tensor(rows):
    return torch.tensor(np.array(rows), dtype=torch.float64)


# -- chains ------------------------------------------------------------------------------------------------------------


def chain_coins(script: Script, P, Q, tokens) -> tuple[list[float], int, np.ndarray]:
    """Coins, accepted length and next distribution of token-by-token rejection."""
    coins, count = [], 0
    for i, x in enumerate(tokens):
        accepted, coin = script.coin(P[i][x] / Q[i][x]) if count == i else (False, 0.5)
        count += accepted
        coins.append(coin)
    return coins, count, P[count] if count == len(tokens) else residue(P[count], Q[count])


def block_coins(script: Script, P, Q, tokens) -> tuple[list[float], int, np.ndarray]:
    """The same of block verification, from its definition."""
    K, s = len(tokens), [1.0]
    for i, x in enumerate(tokens):
        s.append(min(1.0, s[i] * P[i][x] / Q[i][x]))
    coins, count = [], 0
    for i in range(1, K + 1):
        if i < K:
            Z = np.maximum(s[i] * P[i] - Q[i], 0).sum()
            h = Z / (Z + 1 - s[i]) if Z + 1 - s[i] > 0 else 1.0
        else:
            h = s[K]
        accepted, coin = script.coin(h)
        count = i if accepted else count
        coins.append(coin)
    return coins, count, P[K] if count == K else residue(s[count] * P[count], Q[count])


def chain_law(rule, judge, K: int, V: int, edge: int, point_mass: bool) -> dict:
    p, q = table(1, V), table(2, V)

    def program(choose):
        script, tokens, P, Q = Script(choose, edge), [], [], []
        for _ in range(K):
            P.append(p(tuple(tokens)))
            Q.append(q(tuple(tokens)))
            if point_mass:
                Q[-1] = np.eye(V)[Q[-1].argmax()]
            tokens.append(choose.categorical(Q[-1]))
        P.append(p(tuple(tokens)))
        coins, _, rest = judge(script, P, Q, tokens)
        verdict = rule(tensor(P), None if point_mass else tensor(Q), torch.tensor(tokens), tensor([*coins, script.token(rest)[1]]))
        return continued(choose, [*tokens[: int(verdict.count)], int(verdict.next_token)], p, K + 1)

    return law(program)


RULES = {"token by token": (verify_chain, chain_coins), "block": (verify_block, block_coins)}


@pytest.mark.parametrize("point_mass", [False, True])
@pytest.mark.parametrize(("K", "V"), [(1, 3), (2, 3), (3, 2)])
@pytest.mark.parametrize("name", RULES)
def test_chain_rules_are_exact(name, K, V, point_mass):
    rule, judge = RULES[name]
    for edge in (0, 1):
        assert law_distance(chain_law(rule, judge, K, V, edge, point_mass), target_law(table(1, V), K + 1)) < 1e-12


def test_block_verification_accepts_at_least_as_much():
    """The same drafts and coins: the mean accepted length of each rule, exactly."""
    p, q = table(1, 3), table(2, 3)

    def accepted(judge):
        def program(choose):
            tokens, P, Q = [], [], []
            for _ in range(3):
                P.append(p(tuple(tokens)))
                Q.append(q(tuple(tokens)))
                tokens.append(choose.categorical(Q[-1]))
            P.append(p(tuple(tokens)))
            return judge(Script(choose, 0), P, Q, tokens)[1]

        return sum(count * mass for count, mass in law(program).items())

    assert accepted(block_coins) > accepted(chain_coins) + 0.01


def test_block_verification_on_the_papers_example():
    """p = (1/3, 2/3), q = (2/3, 1/3) at every position, K = 2: 10/9 accepted tokens become 11/9 (2403.10444, section 2)."""
    P, Q = [np.array([1, 2]) / 3] * 3, [np.array([2, 1]) / 3] * 2
    means = {}
    for name, (rule, judge) in RULES.items():

        def program(choose, rule=rule, judge=judge):
            script, tokens = Script(choose, 0), [choose.categorical(Q[0]), choose.categorical(Q[1])]
            coins, count, _ = judge(script, P, Q, tokens)
            assert int(rule(tensor(P), tensor(Q), torch.tensor(tokens), tensor([*coins, 0.5])).count) == count
            return count

        means[name] = sum(count * mass for count, mass in law(program).items())
    assert means == {"token by token": pytest.approx(10 / 9), "block": pytest.approx(11 / 9)}


def test_negative_control_block_rule_that_stops_at_the_first_failure():
    def stops(p, q, tokens, u):
        verdict = verify_block(p, q, tokens, u)
        passed = [int(verify_block(p[: i + 1], q[:i], tokens[:i], u[: i + 1]).count) == i for i in range(1, len(tokens) + 1)]
        first = next((i for i, ok in enumerate(passed) if not ok), len(tokens))
        return verdict if int(verdict.count) == first else verify_chain(p, q, tokens, u)

    wrong = max(law_distance(chain_law(stops, block_coins, 3, 2, e, False), target_law(table(1, 2), 4)) for e in (0, 1))
    assert wrong > 1e-3


# -- trees -------------------------------------------------------------------------------------------------------------

SHAPES = {"three siblings": [-1, -1, -1], "3 × 2": [-1, -1, -1, 0, 0, 1, 1, 2, 2], "chain": [-1, 0], "mixed": [-1, -1, 0, 0]}


def without(q, x):
    """q with x removed, renormalised; all 0 once nothing is left."""
    rest = np.where(np.arange(len(q)) == x, 0, q)
    return rest / max(rest.sum(), 1e-300)


def draw_children(choose, q, n: int, kind: str) -> list[int]:
    if kind == "point masses":
        return list(np.argsort(-q, kind="stable")[:n])
    drawn = []
    for _ in range(n):
        drawn.append(choose.categorical(q) if q.sum() > 0 else 0)  # once q has run out, any token, as a point mass
        if kind == "without_replacement":
            q = without(q, drawn[-1])
    return drawn


def tree_law(parents: list[int], kind: str, edge: int, V: int = 3, seed: int = 3, prepare=None) -> dict:
    """Every way to draft and to judge is enumerated first; then the rule judges all of them as one batch.

    prepare(tree, siblings): what the rule is given, for negative controls; the script keeps to the right rule.
    """
    p, full = table(seed, V), table(seed + 1, V)
    families = {node: [i for i, parent in enumerate(parents) if parent == node] for node in range(-1, len(parents))}

    @cache
    def q(prefix):  # drawing without replacement needs mass on as many tokens as there are siblings
        return 0.9 * full(prefix) + 0.1 / V

    runs = []

    def program(choose):
        script, tokens, texts = Script(choose, edge), [0] * len(parents), {-1: ()}
        for node, children in families.items():
            if children:
                for child, token in zip(children, draw_children(choose, q(texts[node]), len(children), kind), strict=True):
                    tokens[child], texts[child] = int(token), (*texts[node], int(token))
        coins, at = [0.5] * len(parents), -1
        while True:  # the walk, from the rule's definition
            rest, proposal, went = p(texts[at]), q(texts[at]), False
            for child in families[at]:
                x = tokens[child]
                now = np.eye(V)[x] if kind == "point masses" or proposal.sum() == 0 else proposal
                went, coins[child] = script.coin(rest[x] / now[x])
                if went:
                    at = child
                    break
                rest = residue(rest, now)
                if kind == "without_replacement":
                    proposal = without(proposal, x)
            if not went:
                break
        rows = [texts[node] for node in range(-1, len(parents))]
        runs.append((tokens, [p(t) for t in rows], [q(t) for t in rows], [*coins, script.token(rest)[1]]))
        return len(runs) - 1

    masses = law(program)
    tokens, P, Q, u = (tensor(part) for part in zip(*runs, strict=True))
    tree = TokenTree(tokens.long(), torch.tensor(parents), None if kind == "point masses" else Q)
    tree, siblings = prepare(tree) if prepare else (tree, "iid" if kind == "iid" else "without_replacement")
    verdict = verify_tree(P, tree, u, siblings)
    emitted = {}
    for run, mass in masses.items():
        path = verdict.path[run, : int(verdict.count[run])].tolist()
        assert all(parents[b] == a for a, b in zip([-1, *path], path, strict=False)), "the path must go from parent to child"
        text = (*(int(tree.tokens[run, node]) for node in path), int(verdict.next_token[run]))
        emitted[text] = emitted.get(text, 0) + mass
    depth, completed = TokenTree([0] * len(parents), parents).depth, {}
    for text, mass in emitted.items():
        for whole, share in law(lambda choose, text=text: continued(choose, list(text), p, depth + 1)).items():
            completed[whole] = completed.get(whole, 0) + mass * share
    return completed


KINDS = ["without_replacement", "iid", "point masses"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_tree_rules_are_exact(shape, kind):
    parents = SHAPES[shape]
    V = 2 if shape == "3 × 2" and kind == "iid" else 3  # 9 independent draws of 3 tokens have too many outcomes
    depth = TokenTree([0] * len(parents), parents).depth
    for edge in (0, 1):
        assert law_distance(tree_law(parents, kind, edge, V), target_law(table(3, V), depth + 1)) < 1e-12


def test_three_draws_without_replacement_from_two_tokens():
    """The third is a point mass: q has run out."""
    for edge in (0, 1):
        assert law_distance(tree_law(SHAPES["3 × 2"], "without_replacement", edge, V=2), target_law(table(3, 2), 3)) < 1e-12


CONTROLS = {
    "independent children judged as if without replacement": ("iid", lambda tree: (tree, "without_replacement")),
    "children without replacement judged as if independent": ("without_replacement", lambda tree: (tree, "iid")),
    "top-k children treated as samples": (
        "point masses",
        lambda tree: (TokenTree(tree.tokens, tree.parents, torch.full((*tree.tokens.shape[:1], 3, 4), 1 / 4, dtype=torch.float64)), "iid"),
    ),
    "independent children, a repeated one skipped": ("iid", lambda tree: (_without_repetitions(tree), "iid")),
    "children without replacement, sorted again before they are judged": (
        "without_replacement", lambda tree: (_sorted(tree), "without_replacement"),
    ),
}


def _without_repetitions(tree):
    """A second child equal to the first is taken out of the tree."""
    again = tree.tokens[:, 1] == tree.tokens[:, 0]
    return TokenTree(tree.tokens, torch.stack([torch.full_like(tree.tokens[:, 0], -1), torch.where(again, -2, -1)], -1), tree.q)


def _sorted(tree):
    """The more probable child first."""
    order = tree.q[:, 0].gather(-1, tree.tokens).argsort(-1, descending=True)
    return TokenTree(tree.tokens.gather(-1, order), tree.parents, tree.q)


# With some distributions the residual after one rejection is a single token, and every variant is right by accident. Not with these.
CONTROL_SEED = 5


@pytest.mark.parametrize("name", CONTROLS)
def test_negative_control_the_wrong_kind_of_siblings(name):
    kind, prepare = CONTROLS[name]
    right, wrong = (
        max(law_distance(tree_law([-1, -1], kind, edge, 4, CONTROL_SEED, f), target_law(table(CONTROL_SEED, 4), 2)) for edge in (0, 1))
        for f in (None, prepare)
    )
    assert right < 1e-12
    assert wrong > 1e-3


def test_negative_control_q_not_renormalised(monkeypatch):
    monkeypatch.setattr(verification, "_without", lambda q, x: q.scatter(-1, x, 0.0))
    laws = [tree_law([-1, -1], "without_replacement", edge, 4, CONTROL_SEED) for edge in (0, 1)]
    assert max(law_distance(found, target_law(table(CONTROL_SEED, 4), 2)) for found in laws) > 1e-3


def test_point_masses_are_the_limit_of_one_hot_draws():
    """The fast rule for point masses against the walk, to which a row of q without mass means the same."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        parents = [int(torch.randint(-1, i, (1,), generator=generator)) if i else -1 for i in range(9)]
        p = torch.randn(5, 10, 4, generator=generator, dtype=torch.float64).softmax(-1)
        tokens = torch.randint(0, 4, (5, 9), generator=generator)  # some siblings repeat a token
        u = torch.rand(5, 10, generator=generator, dtype=torch.float64)
        fast, walk = (verify_tree(p, TokenTree(tokens, parents, q), u) for q in (None, torch.zeros_like(p)))
        assert torch.equal(fast.path, walk.path)
        assert torch.equal(fast.next_token, walk.next_token)


def test_a_batch_of_trees_is_judged_tree_by_tree():
    """Trees of different sizes, padded with what is no node, drawn and not drawn."""
    generator = torch.Generator().manual_seed(0)
    for drawn in (False, True):
        trees, P, U = [], [], []
        for n in (0, 4, 7, 1):
            parents = [int(torch.randint(-1, i, (1,), generator=generator)) if i else -1 for i in range(n)]
            q = torch.randn(n + 1, 6, generator=generator).softmax(-1) if drawn and n else None
            trees.append(TokenTree(torch.randint(0, 6, (n,), generator=generator), parents, q))
            P.append(torch.randn(8, 6, generator=generator).softmax(-1))
            U.append(torch.rand(8, generator=generator))
        together = verify_tree(torch.stack(P), TokenTree.stack(trees), torch.stack(U))
        for row, tree in enumerate(trees):
            n = len(tree)
            alone = verify_tree(P[row][: n + 1], tree, torch.cat([U[row][:n], U[row][-1:]]))
            assert together.count[row] == alone.count
            assert together.next_token[row] == alone.next_token
            assert together.path[row, : alone.count].tolist() == alone.path[: alone.count].tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("drawn", [False, True])
def test_trees_in_half_precision_never_become_nan(dtype, drawn):
    """One-hot, equal and nearly equal p and q, and masses that underflow."""
    V, parents = 5, [-1, -1, -1, 0, 0]
    rows = torch.tensor([[1, 0, 0, 0, 0], [0.2] * 5, [1 - 6e-8, 6e-8, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 0, 0, 1], [0.3, 0.7, 0, 0, 0]])
    for shift in range(5):
        p, q = rows.roll(shift, 0).to(dtype), rows.to(dtype)
        for u in (0.0, 0.5, 1 - 1e-7):
            tree = TokenTree([0, 1, 2, 0, 4], parents, q if drawn else None)
            verdict = verify_tree(p, tree, torch.full((6,), u))
            assert 0 <= verdict.next_token < V
            at = int(verdict.path[verdict.count - 1]) + 1 if verdict.count else 0
            assert p[at, verdict.next_token] > 0, "a token without probability was emitted"


def test_a_chain_is_a_tree():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        p, q = torch.randn(2, 5, 6, generator=generator, dtype=torch.float64).softmax(-1)
        tokens, u = torch.randint(0, 6, (4,), generator=generator), torch.rand(5, generator=generator, dtype=torch.float64)
        for declared in (q[:4], None):
            chain, tree = verify_chain(p, declared, tokens, u), verify_tree(p, TokenTree.chain(tokens, declared), u)
            assert (chain.count, chain.next_token) == (tree.count, tree.next_token)
            assert tree.path.tolist() == [*range(int(chain.count))] + [-1] * (4 - int(chain.count))


def test_no_nodes():
    verdict = verify_tree(torch.tensor([[0.25, 0.75]]), TokenTree.empty(), torch.tensor([0.5]))
    assert (verdict.count, verdict.next_token, len(verdict.path)) == (0, 1, 0)


def test_tree_shapes_are_named():
    tree = TokenTree(torch.tensor([0, 1]), torch.tensor([-1, -1]))
    with pytest.raises(ValueError, match=r"2 nodes needs p \(3, .V.\) and u \(3,\)"):
        verify_tree(torch.rand(2, 4), tree, torch.rand(3))
    with pytest.raises(ValueError, match="siblings must be"):
        verify_tree(torch.rand(3, 4), tree, torch.rand(3), "top-k")


# The walk of one tree on the host is the twin of the rules on tensors.


@pytest.mark.parametrize("kind", ["without_replacement", "iid", "point masses", "some empty"])
@pytest.mark.parametrize("shape", [[1, 1, 1], [2, 2, 1], [3, 2], [4]], ids=str)
def test_the_walk_equals_the_rules_on_tensors(kind, shape):
    generator, V = torch.Generator().manual_seed(len(shape)), 5
    parents, counts = full_tree(shape), Counter()
    N = len(parents)
    for _ in range(200):
        p, q = ((torch.randn(N + 1, V, generator=generator, dtype=F64) * 2).softmax(-1) for _ in range(2))
        if kind == "some empty":
            q[torch.rand(N + 1, generator=generator) < 0.5] = 0
        tokens, u = torch.randint(0, V, (N,), generator=generator), torch.rand(N + 1, generator=generator, dtype=F64)
        tree = TokenTree(tokens, parents, None if kind == "point masses" else q, "iid" if kind == "iid" else "without_replacement")
        path, left = walk(p.__getitem__, tree, u[:-1].tolist())
        verdict = verify_tree(p, tree, u)
        assert path == verdict.path[: int(verdict.count)].tolist()
        assert int(inverse_cdf(left, u[-1])) == int(verdict.next_token)
        if set(shape) == {1}:
            assert len(path) == int(verify_chain(p, None if tree.q is None else q[:N], tokens, u).count)
        counts[len(path)] += 1
    assert len(counts) > 1, f"the coins must decide both ways, every path was {counts} long"


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("shape", [[], [1, 1, 1], [2, 2, 1], [3, 2], [4]], ids=str)
def test_the_greedy_walk_is_the_walk_with_one_hot_p(drawn, shape):
    generator, V, parents, counts = torch.Generator().manual_seed(len(shape)), 4, full_tree(shape), Counter()
    for _ in range(100):
        logits = torch.randn(len(parents) + 1, V, generator=generator, dtype=F64)
        tokens, u = torch.randint(0, V, (len(parents),), generator=generator), torch.rand(len(parents) + 1, generator=generator)
        tree = TokenTree(tokens, parents, logits.softmax(-1) if drawn else None)
        path, left = walk(lambda row, logits=logits: Sampling(0).probabilities(logits[row]), tree, u[:-1].tolist())
        assert walk_greedily(lambda row, logits=logits: greedy_choice(logits[row]), tree) == (path, int(inverse_cdf(left, u[-1])))
        counts[len(path)] += 1
    assert len(counts) > 1 or not shape


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_where_no_number_is_largest_nothing_is_chosen(wrong):
    logits = torch.tensor([0.0, 1.0, -torch.inf])
    assert greedy_choice(logits) == 1
    logits[0] = wrong
    assert greedy_choice(logits) == 3
    assert greedy_choice(torch.full((3,), -torch.inf)) == 3


def test_the_walk_asks_for_the_rows_on_its_path_alone():
    p, asked = torch.full((8, 3), 1 / 3), []
    tree = TokenTree([0, 1, 0, 1, 0, 1, 2], [-1, -1, 0, 0, 1, 1, 5])
    path, _ = walk(lambda row: asked.append(row) or p[row], tree, [0.9, 0.1, 0.9, 0.9, 0.9, 0.1, 0.9])
    assert path == [1, 5]
    assert asked == [0, 2, 6]


@pytest.mark.parametrize("where", ["p", "q"])
def test_the_walk_rejects_what_is_no_number(where):
    p, q = torch.full((2, 3), 1 / 3), torch.full((2, 3), 1 / 3)
    (p if where == "p" else q).fill_(torch.nan)
    path, left = walk(p.__getitem__, TokenTree([0], [-1], q), [0.0])
    assert path == []
    assert int(inverse_cdf(left, torch.tensor(0.5))) == (3 if where == "p" else 1), "a NaN of the target chooses no token"


def _walked(p, tree, u):
    path, left = walk(lambda row: p[row], tree, u[:-1].tolist())
    return len(path), int(inverse_cdf(left, u[-1]))


def _judged(rule):
    def judged(p, tree, u):
        arguments = (p, tree, u) if rule is verify_tree else (p, None if tree.q is None else tree.q[:-1], tree.tokens, u)
        verdict = rule(*arguments)
        return int(verdict.count), int(verdict.next_token)

    return judged


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "point mass"])
@pytest.mark.parametrize("rule", [verify_chain, verify_block, verify_tree, walk], ids=lambda rule: rule.__name__)
def test_a_coin_of_zero_accepts_nothing_that_the_target_excludes(rule, drawn):
    """u is in [0, 1) and 0 among it, so a token is accepted below its threshold and not at it. The least next token is excluded too."""
    p = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], dtype=F64)
    q = torch.tensor([[0.5, 0.5, 0.0]], dtype=F64) if drawn else None
    decide = _walked if rule is walk else _judged(rule)
    assert decide(p, TokenTree.chain([0], q), torch.zeros(2, dtype=F64)) == (0, 2)
