"""Formulas of acceptance against slow references (enumeration, direct sums) and the engine's exact law."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from drafters_for_tests import Drawing
from hypothesis import given
from hypothesis import strategies as st
from laws import EXACT, PLAIN, Draw

from specdec_core import theory
from specdec_core.core.engine import Run
from specdec_core.core.rng import enumerate_law
from specdec_core.core.rules import verify
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree

ALPHAS = [0.0, 0.1, 0.425, 0.8, 0.999999, 1.0]
chance = st.floats(0, 1)


def mean(law):
    return sum(value * mass for value, mass in law.items())


def accepted_prefix(outcomes):
    return sum(1 for _ in itertools.takewhile(bool, outcomes))


def output_by_enumeration(alphas):
    """E[output tokens]: every pattern of acceptances, each token tested whether or not it would be."""
    total = 0.0
    for outcomes in itertools.product([True, False], repeat=len(alphas)):
        mass = math.prod(a if ok else 1 - a for a, ok in zip(alphas, outcomes, strict=True))
        total += mass * (accepted_prefix(outcomes) + 1)
    return total


# One draft


def test_the_two_numbers_that_are_not_to_be_confused():
    assert theory.expected_tokens(0.8, 4) == pytest.approx(3.3616, abs=1e-12)
    assert theory.expected_accepted(0.8, 4) == pytest.approx(2.3616, abs=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("gamma", range(6))
def test_expected_tokens_by_enumeration(alpha, gamma):
    total = output_by_enumeration([alpha] * gamma)
    assert theory.expected_tokens(alpha, gamma) == pytest.approx(total, rel=1e-14)
    assert theory.expected_tokens_by_depth([alpha] * gamma) == pytest.approx(total, rel=1e-14)


@given(st.fractions(0, Fraction(999, 1000), max_denominator=1000), st.integers(0, 60))
def test_expected_tokens_equals_the_closed_form_in_exact_arithmetic(alpha, gamma):
    closed, number = (1 - alpha ** (gamma + 1)) / (1 - alpha), float(alpha)
    assert theory.expected_tokens(number, gamma) == pytest.approx(float(closed), rel=1e-13)
    assert theory.expected_accepted(number, gamma) == pytest.approx(float(closed - 1), rel=1e-13, abs=1e-300)


def test_expected_tokens_in_the_limits():
    assert theory.expected_tokens(1.0, 7) == 8.0 and theory.expected_accepted(1.0, 7) == 7.0
    assert theory.expected_tokens(0.0, 7) == 1.0 and theory.expected_tokens(0.3, 0) == 1.0
    assert theory.expected_tokens(0.8, 400) == pytest.approx(1 / (1 - 0.8), rel=1e-14)


@given(chance, chance, st.integers(0, 20))
def test_expected_tokens_grows_with_alpha_and_gamma_and_is_convex_in_alpha(a, b, gamma):
    low, high = sorted((a, b))
    assert theory.expected_tokens(low, gamma) <= theory.expected_tokens(high, gamma)
    assert theory.expected_tokens(a, gamma) <= theory.expected_tokens(a, gamma + 1)
    half = theory.expected_tokens((a + b) / 2, gamma)
    assert half <= theory.expected_tokens(np.array([a, b]), gamma).mean() * (1 + 1e-14)


@given(st.lists(chance, max_size=7))
def test_expected_tokens_by_depth_by_enumeration(alphas):
    assert theory.expected_tokens_by_depth(alphas) == pytest.approx(output_by_enumeration(alphas), rel=1e-12)


def test_expected_tokens_by_depth_is_exact_where_depths_depend_on_each_other():
    """Half of the steps accept a token with 0.9, half with 0.3: what is tested deep down is a good step."""
    gamma, betas = 4, (0.9, 0.3)
    at_least = [np.mean([beta**i for beta in betas]) for i in range(gamma + 1)]
    conditional = [at_least[i + 1] / at_least[i] for i in range(gamma)]
    truth = np.mean([output_by_enumeration([beta] * gamma) for beta in betas])
    assert theory.expected_tokens_by_depth(conditional) == pytest.approx(truth, rel=1e-14)
    assert theory.expected_tokens(np.mean(betas), gamma) < truth - 0.3  # a constant alpha is not exact


# Acceptance and residual


@st.composite
def pairs_of_laws(draw):
    size = draw(st.integers(1, 6))
    weights = st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any)
    p, q = (np.array(draw(weights), float) for _ in range(2))
    return p / p.sum(), q / q.sum()


@given(pairs_of_laws())
def test_acceptance_rate_is_one_minus_the_distance_and_both_denominators_are_the_rest(laws):
    p, q = laws
    beta = theory.acceptance_rate(p, q)
    assert beta == pytest.approx(1 - 0.5 * np.abs(p - q).sum(), abs=1e-12)
    assert theory.residual_denominators(p, q) == pytest.approx((1 - beta, 1 - beta), abs=1e-12)


@given(pairs_of_laws())
def test_acceptance_rate_is_what_verification_does(laws):
    p, q = laws

    def accepted(rng):
        tree = DraftTree.chain(0, [rng.pick(q)], q[None], "iid")
        return verify(np.stack([p, p]), tree, rng).accepted

    assert mean(enumerate_law(accepted)) == pytest.approx(theory.acceptance_rate(p, q), abs=1e-12)


# The engine's own law


def first_step_tokens(target, drafter, gamma):
    """The exact law of the tokens that the decode loop emits in its first step."""

    def tokens(rng):
        run = Run(target, (0, 1), drafter, max_new_tokens=gamma + 2, sampling=PLAIN, rngs=(rng, rng))
        return len(next(iter(run)).tokens)

    return enumerate_law(tokens)


def rotated(law):
    """A table whose every row is the same law, shifted: contexts differ, acceptance does not."""
    return TableLM(np.log([np.roll(law, shift) for shift in range(len(law))]))


@pytest.mark.parametrize("gamma", range(4))
def test_expected_tokens_is_the_engine_s_where_acceptance_is_constant(gamma):
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.45, 0.35])
    alpha = theory.acceptance_rate(p, q)
    law = first_step_tokens(rotated(p), Drawing(Draw(rotated(q), (1,) * gamma)), gamma)
    geometric = {k + 1: alpha**k * (1 - alpha if k < gamma else 1) for k in range(gamma + 1)}
    assert law == pytest.approx(geometric, abs=EXACT)
    assert mean(law) == pytest.approx(theory.expected_tokens(alpha, gamma), abs=EXACT)


@pytest.mark.parametrize("seed", range(3))
def test_expected_tokens_by_depth_is_the_engine_s_where_it_varies(seed):
    target, draft, gamma = TableLM.random(3, seed=seed), TableLM.random(3, seed=seed + 50), 3
    # reach[x]: the first i tokens are accepted and the i-th is x. From a to x it is multiplied by min(p, q).
    kept = np.array([np.minimum(target.law([a]), draft.law([a])) for a in range(3)])
    reach, at_least = np.array([0.0, 1.0, 0.0]), [1.0]
    for _ in range(gamma):
        reach = reach @ kept
        at_least.append(reach.sum())
    alphas = [at_least[i + 1] / at_least[i] for i in range(gamma)]
    assert max(alphas) - min(alphas) > 1e-3
    law = first_step_tokens(target, Drawing(Draw(draft, (1,) * gamma)), gamma)
    assert mean(law) == pytest.approx(theory.expected_tokens_by_depth(alphas), abs=EXACT)


@pytest.mark.parametrize("widths", [(3,), (2, 2), (3, 2, 1), (1, 3)], ids=str)
def test_the_value_of_a_tree_is_the_engine_s(widths):
    """Each node of a point tree is accepted with p(its token | its path)."""
    target, draft = TableLM.random(4, seed=1), Draw(TableLM.random(4, seed=2), widths, "point")
    tree = draft((0, 1), None)
    accept = [target.law([tree.tokens[tree.parents[i]]])[tree.tokens[i]] for i in range(1, tree.size + 1)]
    expected = theory.expected_tokens_tree(tree.parents, accept)
    assert mean(first_step_tokens(target, Drawing(draft), len(widths))) == pytest.approx(expected, abs=EXACT)


# Several drafts


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.425, 1.0])
@pytest.mark.parametrize("gamma, b", [(0, 2), (1, 3), (3, 1), (2, 3), (4, 2), (3, 4)])
def test_expected_tokens_b_by_enumeration_of_independent_drafts(alpha, gamma, b):
    """Every combination of matched lengths of b drafts; P(length = i) = P(>= i) - P(>= i + 1)."""
    at_least = [alpha**i for i in range(gamma + 1)] + [0.0]
    exactly = [at_least[i] - at_least[i + 1] for i in range(gamma + 1)]
    total = 0.0
    for lengths in itertools.product(range(gamma + 1), repeat=b):
        total += math.prod(exactly[length] for length in lengths) * (1 + max(lengths))
    assert theory.expected_tokens_b(alpha, gamma, b) == pytest.approx(total, rel=1e-13)


@given(chance, st.integers(0, 12), st.integers(0, 40))
def test_expected_tokens_b_limits_and_growth(alpha, gamma, b):
    value = theory.expected_tokens_b(alpha, gamma, b)
    assert 1.0 <= value <= gamma + 1
    assert value <= theory.expected_tokens_b(alpha, gamma, b + 1) + 1e-12
    assert theory.expected_tokens_b(alpha, gamma, 1) == pytest.approx(theory.expected_tokens(alpha, gamma))
    assert theory.expected_tokens_b(alpha, gamma, 0) == 1.0


def test_expected_tokens_b_grows_with_the_logarithm_of_b_and_then_not_at_all():
    alpha = theory.PAPER_ALPHA
    doubling = math.log(2) / math.log(1 / alpha)
    values = theory.expected_tokens_b(alpha, 60, 2.0 ** np.arange(4, 20))
    np.testing.assert_allclose(np.diff(values), doubling, rtol=0.025)
    short = theory.expected_tokens_b(alpha, 4, np.array([15, 30, 60, 1e6]))
    assert np.diff(short)[1] < np.diff(short)[0] < 0.7 * doubling  # N = 5 bends before W = 15
    assert short[-1] == pytest.approx(5.0)


def test_distinct_drafts_do_better_than_independent_ones():
    """Two chains that differ from the first token on, each token right with 1/4, through the engine's law."""
    tree = DraftTree.from_paths(1, [[0, 1], [2, 3]])

    def tokens(rng):
        return len(verify(np.full((5, 4), 0.25), tree, rng).tokens)

    exact = mean(enumerate_law(tokens))
    assert exact == pytest.approx(theory.expected_tokens_tree(tree.parents, [0.25] * 4), abs=EXACT)
    assert exact == pytest.approx(1 + 2 * (0.25 + 0.25**2), abs=EXACT)
    assert exact > theory.expected_tokens_b(0.25, 2, 2) + 0.05


@given(pairs_of_laws(), st.integers(1, 3))
def test_drafts_tested_one_after_another_do_no_better_than_independent_ones(laws, b):
    p, q = laws

    def tokens(rng):
        drawn = np.array([0] + [rng.pick(q) for _ in range(b)])
        tree = DraftTree(drawn, np.array([-1] + [0] * b), "iid", np.tile(q, (b + 1, 1)))
        return len(verify(np.tile(p, (b + 1, 1)), tree, rng).tokens)

    bound = theory.expected_tokens_b(theory.acceptance_rate(p, q), 1, b)
    assert mean(enumerate_law(tokens)) <= bound + 1e-9


# Lookahead


def test_step_compression_is_the_mean_over_f_steps():
    assert theory.step_compression(4, 3.0) == np.mean([1, 1, 1, 3.0])
    assert theory.step_compression(1, 2.5) == 2.5 and theory.step_compression(7.3, 1.0) == 1.0


def test_the_paper_s_settings():
    assert [theory.lookahead_step_tokens(W, 5, W) for W in (15, 10, 7)] == [120, 80, 56]
    # Table 3 reports S = 1.96 for N = 5, W = G = 15 without the prompt's n-grams.
    expected = theory.expected_tokens_b(theory.PAPER_ALPHA, 4, 15)
    assert theory.step_compression(theory.PAPER_F, expected) == pytest.approx(1.96, abs=0.03)


SETTINGS = [(1, 4), (5, 4), (15, 4), (30, 4), (15, 9), (7, 2)]  # (b, gamma)


def compressions(alpha, f):
    """(6,) S by `SETTINGS`; a grid of alphas and fs gives (6, grid)."""
    return np.array([theory.step_compression(f, theory.expected_tokens_b(alpha, g, b)) for b, g in SETTINGS])


def measured(values):
    return [(b, g, S) for (b, g), S in zip(SETTINGS, values, strict=True)]


@pytest.mark.parametrize("alpha, f", [(0.425, 3.106), (0.05, 1.0), (0.9, 12.5), (0.61234, 2.0)])
def test_a_fit_recovers_the_parameters_that_made_the_points(alpha, f):
    fit = theory.fit_alpha_f(measured(compressions(alpha, f)))
    assert (fit.alpha, fit.f) == pytest.approx((alpha, f), rel=1e-5)
    assert fit.rms < 1e-8 and np.abs(fit.residuals).max() < 1e-8


def test_a_fit_of_noisy_points_is_a_least_squares_optimum_with_its_residuals():
    S = compressions(0.5, 3.0) + np.random.default_rng(0).normal(scale=0.03, size=len(SETTINGS))
    fit = theory.fit_alpha_f(measured(S))
    np.testing.assert_allclose(fit.residuals, S - compressions(fit.alpha, fit.f), atol=1e-12)
    assert fit.rms == pytest.approx(np.sqrt((fit.residuals**2).mean()))
    np.testing.assert_allclose([fit.S(b, g) for b, g in SETTINGS], S - fit.residuals, atol=1e-12)
    alphas, fs = np.meshgrid(np.linspace(0.4, 0.6, 401), np.linspace(2.5, 3.5, 401))
    squares = ((S[:, None, None] - compressions(alphas, fs)) ** 2).sum(0)
    assert (fit.residuals**2).sum() <= squares.min() < 1.01 * (fit.residuals**2).sum()


def test_a_fit_keeps_f_at_one_or_above():
    """S at its ceiling asks for f < 1 at most alphas; every step good is as good as it gets."""
    fit = theory.fit_alpha_f([(1, 4, 5.5), (5, 4, 5.5)])
    assert fit.f == 1.0 and fit.alpha == 1.0 and fit.residuals.tolist() == [0.5, 0.5]


# What a user may get wrong


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: theory.expected_tokens(1.2, 4), r"alpha must be a probability, in \[0, 1\]; got 1.2"),
        (lambda: theory.expected_tokens([0.5, math.nan], 4), "alpha must be a probability"),
        (lambda: theory.expected_tokens(0.5, -1), "gamma must be one integer >= 0; got -1"),
        (lambda: theory.expected_tokens(0.5, 2.5), "gamma must be one integer >= 0; got 2.5"),
        (lambda: theory.expected_tokens_by_depth(0.5), r"alphas must be a vector.*shape \(\)"),
        (lambda: theory.expected_tokens_by_depth([0.5, -0.1]), "alphas must be a probability"),
        (lambda: theory.acceptance_rate(np.array([1.0, 2.0]), np.array([0.5, 0.5])), "p must be .*sum 3.0"),
        (lambda: theory.acceptance_rate(np.array([1.0]), np.array([0.5, 0.5])), "lengths 1 and 2"),
        (lambda: theory.expected_tokens_b(0.5, 4, -1), "b must be finite and >= 0; got -1"),
        (lambda: theory.step_compression(0.5, 2.0), "f must be finite and >= 1; got 0.5"),
        (lambda: theory.step_compression(2.0, 0.9), "expected must be finite and >= 1; got 0.9"),
        (lambda: theory.lookahead_step_tokens(5, 1, 2), "N must be one integer >= 2; got 1"),
        (lambda: theory.fit_alpha_f([(3, 4, 1.5), (3, 4, 1.6)]), "two or more different"),
        (lambda: theory.fit_alpha_f([(3, 4, 1.0), (5, 4, 1.0)]), "no gain"),
        (lambda: theory.fit_alpha_f([(0, 4, 1.0), (5, 4, 1.5)]), "b must be finite and >= 1"),
    ],
)
def test_errors_say_what_came_and_what_was_expected(call, words):
    with pytest.raises(ValueError, match=words):
        call()
