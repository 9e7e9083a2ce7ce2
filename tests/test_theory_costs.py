"""Formulas of speed, trees and hit rates against slow references: every tree, every step, every setting."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core import theory
from specdec_core.core.tree import DraftTree
from specdec_core.measure import Costs

chance = st.floats(0, 1)


# Speed


@given(chance, st.integers(0, 12), st.floats(0, 3))
def test_speedup_is_tokens_over_time(alpha, gamma, c):
    steps = 1000
    tokens, time = steps * theory.expected_tokens(alpha, gamma), steps * (gamma * c + 1)
    assert theory.speedup(alpha, gamma, c) == pytest.approx(tokens / time)
    measured = theory.speedup_measured(theory.expected_tokens(alpha, gamma), 2.5, gamma * c * 2.5, 2.5)
    assert measured == pytest.approx(theory.speedup(alpha, gamma, c))


@given(chance, st.floats(0, 1.5))
def test_drafting_gains_exactly_where_alpha_exceeds_c(alpha, c):
    values = [theory.speedup(alpha, gamma, c) for gamma in range(33)]
    best = theory.best_gamma(alpha, c)
    assert values[best] == pytest.approx(max(values), rel=1e-11)
    assert all(value < max(values) for value in values[:best])
    if alpha > c + 1e-9:
        assert best >= 1 and values[best] >= (1 + alpha) / (1 + c) * (1 - 1e-11)
    if alpha <= c:
        assert best == 0 and max(values) <= 1 + 1e-12


@given(chance, st.floats(0.001, 1))
def test_best_gamma_measured_with_a_flat_cost_is_best_gamma(alpha, c):
    assert theory.best_gamma_measured([alpha] * 32, lambda q: 2.0, 2.0 * c) == theory.best_gamma(alpha, c)


def measured(times):
    """t(q) of times by width."""
    return Costs(0, 1, tuple(times), *[tuple(times.values())] * 3).t


def test_best_gamma_measured_sees_steps_in_the_cost():
    """t jumps after 4 rows and then stays: three drafts fill the first stair, eleven pay for the second."""
    t = measured({1: 1.0, 4: 1.0, 5: 1.6, 12: 1.6})
    assert theory.best_gamma_measured([0.7] * 11, t) == 3
    assert theory.best_gamma_measured([0.95] * 11, t) == 11
    assert theory.best_gamma_measured([0.01] * 11, measured({1: 1.0, 12: 12.0})) == 0
    assert theory.best_gamma_measured([0.7, 0.0, 0.7], t) == 1  # nothing behind a certain rejection


# Trees


def all_trees(ranks_by_depth, nodes):
    """Every tree of that many nodes, as a set of rank paths in which each has its parent."""
    paths = [
        path for depth in range(1, len(ranks_by_depth) + 1)
        for path in itertools.product(*(range(k) for k in ranks_by_depth[:depth]))
    ]  # fmt: skip
    for chosen in itertools.combinations(paths, nodes):
        if all(len(path) == 1 or path[:-1] in chosen for path in chosen):
            yield chosen


def tree_value(accept, tree):
    return 1 + sum(math.prod(accept[d][k] for d, k in enumerate(path)) for path in tree)


@st.composite
def acceptance_tables(draw):
    shape = draw(st.sampled_from([(3,), (2, 2), (3, 2), (2, 1, 2), (1, 2, 1)]))
    rows = [draw(st.lists(st.integers(0, 10), min_size=k, max_size=k)) for k in shape]
    return [[weight / (sum(row) + draw(st.integers(1, 10))) for weight in row] for row in rows]


@given(acceptance_tables(), st.integers(0, 5))
def test_no_tree_of_as_many_nodes_beats_the_greedy_one(accept, nodes):
    parents, ranks, reach = theory.grow_tree(accept, nodes)
    tree = DraftTree(np.zeros(len(parents), int), parents)  # refuses what is not a tree
    shape = [len(row) for row in accept]
    best = max(tree_value(accept, other) for n in range(nodes + 1) for other in all_trees(shape, n))
    assert reach.sum() == pytest.approx(best, rel=1e-12)
    conditional = [accept[tree.depths[i] - 1][ranks[i - 1]] for i in range(1, len(parents))]
    assert theory.expected_tokens_tree(parents, conditional) == pytest.approx(reach.sum(), rel=1e-12)
    siblings = list(zip(parents[1:].tolist(), ranks.tolist(), strict=True))
    assert len(set(siblings)) == len(siblings) <= nodes
    assert (np.diff(reach) <= 1e-15).all()  # likeliest first, so smaller best trees are its beginnings


COSTS = {
    "flat": lambda q: 1.0,
    "linear": lambda q: 1.0 + 0.1 * q,
    "steps": lambda q: 1.0 + 0.4 * ((q - 1) // 3),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("t_draft", [0.0, 0.15, 5.0])
@given(accept=acceptance_tables())
def test_best_tree_against_all_trees(cost, t_draft, accept):
    t, shape, max_nodes = COSTS[cost], [len(row) for row in accept], 4
    values = [
        tree_value(accept, tree) * t(1) / (t(nodes + 1) + t_draft * max(map(len, tree), default=0))
        for nodes in range(max_nodes + 1) for tree in all_trees(shape, nodes)
    ]  # fmt: skip
    best = theory.best_tree(accept, t, max_nodes, t_draft)
    assert best.speedup == pytest.approx(max(values), rel=1e-11)
    depth = DraftTree(np.zeros(len(best.parents), int), best.parents).depths.max()
    value = theory.speedup_measured(best.expected_tokens, t(len(best.parents)), depth * t_draft, t(1))
    assert best.speedup == pytest.approx(value, rel=1e-12)
    assert best.expected_tokens == pytest.approx(best.reach.sum(), rel=1e-12)


def test_best_tree_of_one_rank_is_the_best_chain():
    t = measured({1: 1.0, 4: 1.1, 12: 3.0})
    tree = theory.best_tree([[0.7]] * 11, t, 11)
    assert tree.parents.tolist() == list(range(-1, theory.best_gamma_measured([0.7] * 11, t)))
    assert theory.best_tree([], t, 11).parents.tolist() == [-1]


# Hit rate


@given(chance, st.lists(chance, max_size=4))
def test_hit_rate_tokens_adds_up_hits_and_misses(coverage, regularities):
    """A miss gives one token; a hit goes on to each depth only through the ones before it."""
    hit = 1 + sum(math.prod(regularities[:i]) for i in range(1, len(regularities) + 1))
    total = (1 - coverage) * 1 + coverage * hit
    assert theory.hit_rate_tokens(coverage, regularities) == pytest.approx(total, rel=1e-12)
    naive = theory.expected_tokens_by_depth([coverage * r for r in regularities])
    assert naive <= theory.hit_rate_tokens(coverage, regularities) * (1 + 1e-12)


def test_coverage_at_every_depth_counts_it_again_and_again():
    """Coverage 0.5, always right once covered, four tokens: 1 + 0.5 * 4, not 1 + 0.5 + 0.25 + ..."""
    assert theory.hit_rate_tokens(0.5, [1.0] * 4) == 3.0
    assert theory.expected_tokens_by_depth([0.5 * 1.0] * 4) == 1.9375
    assert theory.conditional_alphas(0.5, [1.0] * 4).tolist() == [0.5, 1.0, 1.0, 1.0]
    assert theory.conditional_alphas(0.5, []).tolist() == []


times = st.floats(0.5, 4)


@given(chance, st.floats(0, 8), times, times, times, st.floats(0, 1))
def test_hit_rate_speedup_adds_up_the_steps(coverage, accepted, t_hit, t_miss, t_1, t_draft):
    steps = np.array([coverage, 1 - coverage])
    tokens, time = steps @ [1 + accepted, 1], steps @ [t_hit + t_draft, t_miss + t_draft]
    value = theory.hit_rate_speedup(coverage, accepted, t_hit, t_miss, t_1, t_draft)
    assert value == pytest.approx(tokens * t_1 / time)


@given(st.floats(0, 8), times, times, times, st.floats(0, 1))
def test_break_even_is_where_the_speedup_crosses_one(accepted, t_hit, t_miss, t_1, t_draft):
    edge = theory.break_even_hit_rate(accepted, t_hit, t_miss, t_1, t_draft)

    def gain(coverage):
        return theory.hit_rate_speedup(coverage, accepted, t_hit, t_miss, t_1, t_draft)

    if edge > 1:
        assert gain(1.0) < 1 + 1e-12 and gain(0.5) < 1 + 1e-12
    elif edge > 0:
        assert gain(edge) == pytest.approx(1.0, abs=1e-9)
        assert gain(edge / 2) < 1 <= gain(min(1, edge * 1.01)) + 1e-9
    else:
        assert gain(0.0) >= 1


@given(st.floats(0, 1), st.floats(0.01, 4), st.floats(1, 3))
def test_coverage_cancels_where_misses_cost_nothing(coverage, accepted, t_hit):
    value = theory.hit_rate_speedup(coverage, accepted, t_hit, t_miss=1.0, t_1=1.0)
    assert (value >= 1 - 1e-12) if accepted >= t_hit - 1 else (value <= 1 + 1e-12)


# What a user may get wrong


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: theory.speedup(0.5, 4, -0.1), "c must be finite and >= 0; got -0.1"),
        (lambda: theory.speedup_measured(2.0, 0.0, 0.1, 1.0), "t_verify must be finite and > 0; got 0.0"),
        (lambda: theory.best_gamma_measured([0.5], lambda q: math.nan), r"t\(1\) must be a finite time > 0"),
        (lambda: theory.expected_tokens_tree([-1, 0, 2], [0.5, 0.5]), "earlier rows"),
        (lambda: theory.expected_tokens_tree([-1, 0], [0.5, 0.5]), "2 earlier rows"),
        (lambda: theory.expected_tokens_tree([-1, 0, 0], [0.6, 0.6]), r"siblings .* got \[1.2"),
        (lambda: theory.grow_tree([[0.5], [0.9, 0.2]], 3), r"accept\[1\] sums to <= 1; got 1.1"),
        (lambda: theory.hit_rate_tokens(1.5, [0.5]), "coverage must be a probability"),
        (lambda: theory.break_even_hit_rate(-1.0, 1.0, 1.0, 1.0), "accepted must be finite and >= 0"),
    ],
)
def test_errors_say_what_came_and_what_was_expected(call, words):
    with pytest.raises(ValueError, match=words):
        call()
