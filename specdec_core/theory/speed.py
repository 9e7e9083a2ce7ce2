"""From tokens per step to speedup: with a cost ratio c, and with measured times.

"L" is Leviathan, Kalman and Matias (ICML 2023, arXiv:2211.17192). Times may be in any one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import checks
from .acceptance import expected_tokens, expected_tokens_by_depth
from .checks import Number, Vector


def speedup(alpha: Number, gamma: int, c: Number) -> Number:
    """(1 - α^(γ+1)) / ((1 - α)(γ c + 1)): speedup in wall time over autoregressive decoding.

    Source: L, Theorem 3.8: a step outputs `expected_tokens` and takes γ draft calls of c and one target call of 1. It
    assumes that a target call over γ + 1 rows takes as long as over one; `speedup_measured` does not.

    Args:
        alpha: in [0, 1], or an array.
        gamma: γ >= 0.
        c: cost ratio, >= 0, or an array.

    Example:
        >>> round(speedup(0.8, 4, 0.1), 4)  # 3.3616 / 1.4
        2.4011
    """
    c = checks.nonnegative("c", c)
    return checks.plain(np.asarray(expected_tokens(alpha, gamma)) / (gamma * np.asarray(c) + 1.0))


def speedup_measured(expected: Number, t_verify: Number, t_draft: Number, t_1: Number) -> Number:
    """E · t(1) / (t_verify + t_draft): the same from measured times; Theorem 3.8 of L is t_verify = t(1).

    Args:
        expected: E[output tokens per step], >= 1.
        t_verify: time > 0 of the step's target forward, t(rows).
        t_draft: time >= 0 of everything else in the step: drafting, verifying, bookkeeping.
        t_1: time > 0 of an autoregressive step, t(1).

    Example:
        >>> round(speedup_measured(3.3616, t_verify=1.25, t_draft=0.15, t_1=1.0), 4)
        2.4011
    """
    expected, t_draft = checks.at_least_one("expected", expected), checks.nonnegative("t_draft", t_draft)
    t_verify, t_1 = checks.positive("t_verify", t_verify), checks.positive("t_1", t_1)
    return checks.plain(np.asarray(expected) * t_1 / (np.asarray(t_verify) + t_draft))


def best_gamma(alpha: float, c: float, gamma_max: int = 32) -> int:
    """The γ <= gamma_max with the largest `speedup`; 0 where drafting does not pay.

    Source: L, section 3.5 and Corollary 3.9: some γ gains if α > c, by a factor of at least (1 + α)/(1 + c),
    which is γ = 1. The converse holds as well: 1 + α + ... + α^γ <= 1 + γ α, so nothing gains where α <= c.
    The shorter draft is taken on a tie.

    Args:
        alpha, c: as `speedup`. At c = 0 more is always better, until one token more adds less than a part in 10^12.
        gamma_max: largest γ tried, >= 0.

    Example:
        >>> best_gamma(0.8, 0.1), best_gamma(0.5, 0.1), best_gamma(0.1, 0.1)
        (6, 2, 0)
    """
    return _first_best([speedup(alpha, g, c) for g in range(checks.count("gamma_max", gamma_max, 0) + 1)])


def best_gamma_measured(alphas: Vector, t: Callable[[int], float], t_draft: float = 0.0) -> int:
    """The γ <= len(alphas) with the largest measured-cost speedup; 0 where drafting does not pay.

    Maximizes E(γ) t(1) / (t(γ + 1) + γ t_draft) over every γ, since a measured t(q) has steps and
    the quotient need not have a single peak.

    Args:
        alphas: (gamma_max,) conditional acceptance by depth; ``[alpha] * gamma_max`` for a constant one.
        t: time > 0 of a target forward over q rows, for q = 1 ... gamma_max + 1, such as `measure.Costs.t`.
        t_draft: time to draft one token, >= 0, in the unit of t.

    Example:
        >>> best_gamma_measured([0.8] * 16, lambda q: 1.0 if q <= 8 else 2.0)
        7
    """
    alphas = checks.probabilities("alphas", alphas)
    t_draft, t_1 = checks.nonnegative("t_draft", t_draft), checks.cost(t, 1)
    expected = [expected_tokens_by_depth(alphas[:g]) for g in range(len(alphas) + 1)]
    return _first_best([speedup_measured(E, checks.cost(t, g + 1), g * t_draft, t_1) for g, E in enumerate(expected)])


def _first_best(values: Sequence[Number]) -> int:
    # Equal quotients can differ in the last digit; the shorter draft should still win.
    array = np.asarray(values)
    return int(np.flatnonzero(array >= array.max() * (1 - 1e-12))[0])
