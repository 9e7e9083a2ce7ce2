"""`DraftTree`: what it refuses, and what it knows about itself."""

import json

import numpy as np
import pytest

from specdec_core.core.rng import Rng
from specdec_core.core.rules import Greedy, verify
from specdec_core.core.tree import DraftTree

Q = np.full((3, 4), 0.25)


@pytest.mark.parametrize(
    "fields, says",
    [
        (dict(tokens=[], parents=[]), r"one length >= 1; got shapes \(0,\), \(0,\), \(0,\)"),
        (dict(tokens=[1, 2], parents=[-1]), r"got shapes \(2,\), \(1,\), \(2,\)"),
        (dict(tokens=[[1]], parents=[-1]), "vectors of one length"),
        (dict(tokens=[1], parents=[-1], candidate=[True, True]), r"\(1,\), \(1,\), \(2,\)"),
        (dict(tokens=[1, 2], parents=[0, 0]), r"-1 for row 0 and an earlier row elsewhere; got \[0, 0\]"),
        (dict(tokens=[1, 2], parents=[-1, 1]), r"an earlier row elsewhere; got \[-1, 1\]"),
        (dict(tokens=[1, 2], parents=[-1, -1]), r"an earlier row elsewhere; got \[-1, -1\]"),
        (dict(tokens=[1], parents=[-1], candidate=[False]), "the root is always a candidate"),
        (
            dict(tokens=[1, 2, 3], parents=[-1, 0, 1], candidate=[True, False, True]),
            "a candidate cannot hang from a scratch row",
        ),
        (dict(tokens=[1], parents=[-1], draw="beam"), "draw must be 'point' or .*'without_replacement'; got 'beam'"),
        (dict(tokens=[1, 2, 3], parents=[-1, 0, 0], draw="iid"), r"needs q of shape \(3, V\), .*; got None"),
        (dict(tokens=[1, 2], parents=[-1, 0], draw="iid", q=Q), r"needs q of shape \(2, V\), .*; got \(3, 4\)"),
        (dict(tokens=[1, 2], parents=[-1, 0], draw="without_replacement", q=Q[0]), r"got \(4,\)"),
    ],
)
def test_what_is_no_tree_is_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        DraftTree(**fields)


def test_a_chain_with_too_few_laws_is_refused():
    with pytest.raises(ValueError, match=r"needs q of shape \(4, V\), the laws drawn from; got \(3, 4\)"):
        DraftTree.chain(0, [1, 2, 3], Q[:2], "iid")


def test_empty_tree():
    tree = DraftTree.empty(5)
    assert tree.size == 0 and tree.is_chain and tree.children(0) == [] and tree.path_to(0) == [0]
    assert tree.depths.tolist() == [0] and tree.ancestors.tolist() == [[True]]


def test_chain_of_no_tokens_is_the_empty_tree():
    for q in (None, np.zeros((0, 4))):
        assert DraftTree.chain(5, [], q, "iid").size == 0


def test_shared_prefixes_are_stored_once_and_a_limit_keeps_the_first_paths():
    paths = [[1, 2, 3], [1, 2, 4], [1, 5], [6]]
    assert DraftTree.from_paths(0, paths).tokens.tolist() == [0, 1, 2, 3, 4, 5, 6]
    cut = DraftTree.from_paths(0, paths, limit=4)
    assert cut.tokens.tolist() == [0, 1, 2, 3, 4] and cut.parents.tolist() == [-1, 0, 1, 2, 2]
    assert DraftTree.from_paths(0, paths, limit=0).size == 0


def test_ancestors_are_the_paths_to_each_row():
    tree = DraftTree(np.arange(7), np.array([-1, 0, 0, 1, 3, 2, 1]))
    for i in range(7):
        assert np.flatnonzero(tree.ancestors[i]).tolist() == sorted(tree.path_to(i))
        assert tree.depths[i] == len(tree.path_to(i)) - 1
    assert not tree.is_chain


def test_children_come_in_the_order_drawn_and_without_scratch_rows():
    candidate = np.array([True, True, False, True, True])
    tree = DraftTree(np.array([9, 4, 4, 4, 2]), np.array([-1, 0, 0, 0, 1]), candidate=candidate)
    assert tree.children(0) == [1, 3] and tree.children(1) == [4] and tree.children(2) == []


def test_a_trace_keeps_the_tree_without_its_laws():
    tree = DraftTree.chain(0, [1, 2], Q[:2], "iid").without_q()
    assert tree.q is None and tree.tokens.tolist() == [0, 1, 2]
    json.dumps(tree.path_to(2))  # plain integers


@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
def test_without_its_laws_a_tree_says_how_it_was_drawn_and_cannot_be_verified(draw):
    whole = DraftTree.chain(0, [1, 2], Q[:2], draw)
    bare = whole.without_q()
    assert bare.draw == draw and bare.is_chain and bare.children(0) == [1]
    assert whole.q is not None, "the tree itself keeps them"
    with pytest.raises(ValueError, match="was stored without them"):
        verify(Q[[0, 1, 1]], bare, Rng(0))
    assert verify(Greedy([1, 2, 0]), bare, Rng(0)).tokens == (1, 2, 0), "greedy needs no law"
