import pytest
import torch

from specdec.tree import TokenTree


def random_tree(n, seed):
    generator = torch.Generator().manual_seed(seed)
    parents = [int(torch.randint(-1, i, (1,), generator=generator)) if i else -1 for i in range(n)]
    return TokenTree(torch.arange(n), torch.tensor(parents, dtype=torch.long)), parents


@pytest.mark.parametrize("seed", range(10))
def test_mask_depths_and_paths_against_brute_force(seed):
    tree, parents = random_tree(12, seed)
    for i in range(12):
        ancestors, node = [], i
        while node >= 0:
            ancestors.append(node)
            node = parents[node]
        assert tree.mask[i].nonzero().flatten().tolist() == sorted(ancestors)
        assert tree._mask_by_gathers()[i].nonzero().flatten().tolist() == sorted(ancestors)  # as on an accelerator
        assert tree.depths[i] == len(ancestors)
        assert tree.path_to(i) == ancestors[::-1]
    assert sorted(path[-1] for path in tree.paths) == [i for i in range(12) if i not in parents]
    assert sorted(child for node in range(-1, 12) for child in tree.children(node)) == list(range(12))


def test_a_chain_is_a_tree_without_branches():
    q = torch.rand(3, 5)
    chain = TokenTree.chain(torch.tensor([4, 2, 0]), q)
    assert chain.is_chain
    assert chain.parents.tolist() == [-1, 0, 1]
    assert chain.depths.tolist() == [1, 2, 3]
    assert chain.q.shape == (4, 5)
    assert chain.paths == [[0, 1, 2]]
    assert torch.equal(chain.mask, torch.ones(3, 3).tril().bool())


def test_an_empty_tree_is_plain_decoding():
    empty = TokenTree.empty()
    assert len(empty) == 0
    assert empty.paths == []
    assert empty.mask.shape == (0, 0)
    assert TokenTree.chain(torch.empty(0, dtype=torch.long), torch.empty(0, 5)).q.shape == (1, 5)


@pytest.mark.parametrize(("tokens", "parents", "q", "message"), [
    ([1, 2], [-1], None, r"must both be \(\.\.\., N\)"),
    ([1, 2], [-1, 1], None, r"parents\[1\]"),
    ([1, 2], [-2, 0], None, r"parents\[1\] is 0, which is no node"),
    ([1, 2], [-1, 0], torch.ones(2, 5), r"N = 2"),
])  # fmt: skip
def test_malformed_trees_are_named(tokens, parents, q, message):
    with pytest.raises(ValueError, match=message):
        TokenTree(torch.tensor(tokens), torch.tensor(parents), q)
