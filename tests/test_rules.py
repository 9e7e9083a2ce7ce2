"""`verify`, `clip` and the formulas below them, worked by hand; and rules that must agree with each other."""

import numpy as np
import pytest

from specdec_core.core.rng import Rng, enumerate_law, total_variation
from specdec_core.core.rules import Greedy, Trial, accept_probability, clip, residual, verify, without
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree


class Scripted:
    """A random source that answers with the given uniforms and picks, in order, and nothing more."""

    def __init__(self, uniforms=(), picks=()):
        self.uniforms, self.picks, self.laws = list(uniforms), list(picks), []

    def uniform(self):
        return self.uniforms.pop(0)

    def pick(self, law):
        self.laws.append(np.asarray(law))
        return self.picks.pop(0)


P = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
Q = np.array([[0.2, 0.6, 0.2], [0.5, 0.25, 0.25]])


def test_chain_accepted_whole_ends_in_a_bonus_from_the_last_row_of_p():
    """Token 1: p/q = 0.3/0.6 = 0.5 > 0.49. Token 2: 0.8/0.25 > 1, so 1. The bonus comes from p after both."""
    rng = Scripted([0.49, 0.999], picks=[0])
    verdict = verify(P, DraftTree.chain(7, [1, 2], Q, "iid"), rng)
    assert verdict.tokens == (1, 2, 0) and verdict.path == (0, 1, 2) and verdict.accepted == 2
    assert verdict.next_token == 0
    assert verdict.trials == (Trial(1, 0.5, True), Trial(2, 1.0, True))
    np.testing.assert_array_equal(rng.laws, [P[2]])


def test_chain_rejected_ends_in_a_correction_from_the_residual():
    """0.5 < 0.5 is false, so token 1 is rejected; max(p - q, 0) = (0.3, 0, 0), which leaves token 0 alone."""
    rng = Scripted([0.5], picks=[0])
    verdict = verify(P, DraftTree.chain(7, [1, 2], Q, "iid"), rng)
    assert verdict.tokens == (0,) and verdict.path == (0,)
    assert verdict.trials == (Trial(1, 0.5, False),)
    np.testing.assert_allclose(rng.laws, [[1.0, 0.0, 0.0]], rtol=1e-15)


def test_siblings_without_replacement_by_hand():
    """p = (.5, .3, .2), q = (.2, .6, .2), drawn 1 then 2.

    1: .3/.6 = .5, rejected at u = .9. p' = norm(.3, 0, 0) = (1, 0, 0); q' = norm(.2, 0, .2) = (.5, 0, .5).
    2: p'(2)/q'(2) = 0, rejected at any u. p'' = norm(max((1, 0, 0) - (.5, 0, .5), 0)) = (1, 0, 0).
    """
    tree = DraftTree(np.array([7, 1, 2]), np.array([-1, 0, 0]), "without_replacement", np.tile(Q[0], (3, 1)))
    rng = Scripted([0.9, 0.0], picks=[0])
    assert verify(P, tree, rng).trials == (Trial(1, 0.5, False), Trial(2, 0.0, False))
    np.testing.assert_allclose(rng.laws, [[1.0, 0.0, 0.0]], rtol=1e-15)


def test_point_draft_accepts_the_child_that_was_sampled():
    """Target samples 2: child 1 fails, child 2 is taken; below it the target samples 0, and no child is 0."""
    tree = DraftTree.from_paths(7, [[1], [2, 1]])
    rng = Scripted(picks=[2, 0])
    verdict = verify(np.vstack([P, P[:1]]), tree, rng)
    assert verdict.tokens == (2, 0) and verdict.path == (0, 2)
    assert verdict.trials == (Trial(1, 0.3, False), Trial(2, 0.2, True), Trial(3, 0.2, False))


def test_no_draft_is_one_draw_from_p():
    rng = Scripted(picks=[2])
    verdict = verify(P, DraftTree.empty(7), rng)
    assert verdict.tokens == (2,) and verdict.path == (0,) and verdict.trials == ()
    np.testing.assert_array_equal(rng.laws, [P[0]])


def test_scratch_rows_are_never_tested():
    """Row 1 holds the very token that the target wants, but it is scratch."""
    tree = DraftTree(np.array([7, 1, 2]), np.array([-1, 0, 0]), candidate=np.array([True, False, True]))
    assert verify(Greedy([1, 1, 1]), tree, Rng(0)).trials == (Trial(2, 0.0, False),)


@pytest.mark.parametrize("keep, path, tokens", [(1, (0, 1), (5,)), (2, (0, 1, 2), (5, 6)), (3, (0, 1, 2), (5, 6, 9))])
def test_clip_keeps_the_first_tokens_and_commits_one_less(keep, path, tokens):
    """Of k + 1 = 3 tokens; the last one kept waits as the next root, so the cache gets the root and keep - 1 more."""
    whole = verify(Greedy([5, 6, 9]), DraftTree.chain(7, [5, 6]), Rng(0))
    cut = clip(whole, keep)
    assert cut.tokens == tokens and cut.next_token == tokens[-1]
    assert cut.path == path[:keep]
    assert cut.trials == whole.trials  # what was tested stays on record


@pytest.mark.parametrize("keep", [0, 4, -1])
def test_clip_refuses_other_lengths(keep):
    whole = verify(Greedy([5, 6, 9]), DraftTree.chain(7, [5, 6]), Rng(0))
    with pytest.raises(ValueError, match=f"between 1 and 3, the tokens of the verdict; got {keep}"):
        clip(whole, keep)


def test_formulas_refuse_what_cannot_have_been_drawn():
    with pytest.raises(ValueError, match="no mass under q"):
        accept_probability(0.5, 0.0)
    with pytest.raises(ValueError, match="token 1 carried all the mass"):
        without(np.array([0.0, 1.0]), 1)
    np.testing.assert_allclose(residual(P[0], Q[0]), [1.0, 0.0, 0.0], rtol=1e-15)


def random_tree(rng, vocab_size, nodes, draw):
    """Nodes hung anywhere; siblings repeat unless drawn without replacement."""
    tokens, parents = [int(rng.integers(vocab_size))], [-1]
    for _ in range(nodes):
        parent = int(rng.integers(len(tokens)))
        taken = {tokens[i] for i, above in enumerate(parents) if above == parent}
        free = [x for x in range(vocab_size) if draw != "without_replacement" or x not in taken]
        if free:
            tokens.append(int(rng.choice(free)))
            parents.append(parent)
    q = None if draw == "point" else rng.dirichlet(np.ones(vocab_size), size=len(tokens))
    return DraftTree(np.array(tokens), np.array(parents), draw, q)


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
def test_greedy_ids_stand_for_one_hot_laws(draw):
    """T = 0 stored as ids or as dense rows: same path, tokens and tests, and no randomness in either."""
    rng, accepted = np.random.default_rng(5), 0
    for _ in range(300):
        tree = random_tree(rng, vocab_size=4, nodes=7, draw=draw)
        ids = rng.integers(4, size=len(tree.tokens))
        by_ids, by_laws = verify(Greedy(ids), tree, Rng(0)), verify(np.eye(4)[ids], tree, Rng(1))
        assert by_ids.tokens == by_laws.tokens and by_ids.path == by_laws.path
        assert by_ids.trials == by_laws.trials
        accepted += by_ids.accepted
    assert accepted > 100


def accept_then_renormalize(p, tree, rng):
    """The sampling loop of the lookahead paper (arXiv:2402.02057, Algorithm 4): accept a child x with probability
    p(x); on rejection remove x from p and renormalize."""
    node, tokens, path = 0, [], [0]
    while True:
        law = np.array(p[node])
        for child in tree.children(node):
            x = int(tree.tokens[child])
            if rng.uniform() < law[x]:
                break
            if law[x] > 0:
                law = without(law, x)
        else:
            return tuple(path), (*tokens, rng.pick(law))
        tokens.append(x)
        path.append(child)
        node = child


@pytest.mark.parametrize(
    "paths", [[[1]], [[1, 2], [1, 0], [2]], [[0], [1], [2], [3]], [[0, 1, 2], [0, 2], [3, 3, 3]]], ids=str
)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_sample_then_match_is_accept_then_renormalize(paths, temperature):
    """Both loops enumerated: the same law over (path, tokens), for distinct fixed siblings."""
    tree, model = DraftTree.from_paths(0, paths), TableLM.random(4, order=2, seed=9)
    sampling = Sampling(temperature=temperature)
    model.prefill([])
    p = np.array([sampling.law(row) for row in model.forward(tree).logits.numpy()])

    def match(rng):
        verdict = verify(p, tree, rng)
        return verdict.path, verdict.tokens

    law = enumerate_law(match)
    assert len(law) > 1 or temperature == 0
    assert total_variation(law, enumerate_law(lambda rng: accept_then_renormalize(p, tree, rng))) <= 1e-12
