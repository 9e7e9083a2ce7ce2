"""The hit-rate model: a method that looks drafts up in a memory, and finds one in some of its steps.

Coverage is P(the memory holds the context's suffix), once per step. Regularity is P(the target agrees with the
continuation found | covered), token by token. The model is this book's; it needs no more than the sum of
P(at least i accepted) that `acceptance.expected_tokens_by_depth` rests on.
"""

from __future__ import annotations

import numpy as np

from . import checks
from .acceptance import expected_tokens_by_depth
from .checks import Number, Vector


def conditional_alphas(coverage: float, regularities: Vector) -> np.ndarray:
    """α_1 = coverage · r_1 and α_i = r_i from there on: acceptance by depth, given the tokens before.

    Coverage enters once. It is a property of the step, not of a token: if token i - 1 of a draft was accepted
    there was a draft. The product coverage · r_i at every depth, which reads like the same model, has the
    memory lose its draft afresh at each token and gives too few tokens for γ >= 2.

    Args:
        coverage: P(hit), in [0, 1].
        regularities: (γ,) r_i = P(token i accepted | hit, tokens 1 ... i-1 accepted). A continuation that
            ends before depth i counts as not accepted there.

    Returns:
        (γ,) float64, what `expected_tokens_by_depth` takes.

    Example:
        >>> conditional_alphas(0.5, [0.8, 0.9]).tolist()
        [0.4, 0.9]
    """
    coverage = checks.probability("coverage", coverage)
    regularities = checks.probabilities("regularities", regularities)
    return np.concatenate([coverage * regularities[:1], regularities[1:]])


def hit_rate_tokens(coverage: float, regularities: Vector) -> float:
    """E[output tokens per step] = 1 + coverage · (r_1 + r_1 r_2 + ... + r_1 ... r_γ).

    The bracket is E[accepted | hit]; a step without a hit outputs one token. Args: as `conditional_alphas`.

    Example:
        >>> round(hit_rate_tokens(0.5, [0.8, 0.9]), 12)  # 1 + 0.5 * (0.8 + 0.72)
        1.76
    """
    return expected_tokens_by_depth(conditional_alphas(coverage, regularities))


def hit_rate_speedup(
    coverage: Number, accepted: Number, t_hit: float, t_miss: float, t_1: float, t_draft: float = 0.0
) -> Number:
    """(1 + coverage · A) t(1) / (coverage · t_hit + (1 - coverage) · t_miss + t_draft).

    Expected tokens over expected time of a step. A method that drafts only on a hit has t_miss = t(1): it
    pays for no verification when it finds nothing. One that always runs the same number of rows (a fixed
    tree, a lookahead window) has t_miss = t_hit = t(rows).

    Args:
        coverage: P(hit), in [0, 1], or an array.
        accepted: A = E[accepted | hit], >= 0, or an array.
        t_hit, t_miss: time > 0 of the target forward in a step with and without a hit.
        t_1: time > 0 of an autoregressive step, t(1).
        t_draft: time >= 0 of a lookup, paid in every step.

    Returns:
        speedup over autoregressive decoding.

    Example:
        >>> round(hit_rate_speedup(0.5, 1.52, t_hit=1.2, t_miss=1.0, t_1=1.0), 4)  # 1.76 / 1.1
        1.6
    """
    coverage, accepted = checks.probability("coverage", coverage), checks.nonnegative("accepted", accepted)
    t_hit, t_miss, t_1, t_draft = _times(t_hit, t_miss, t_1, t_draft)
    tokens = 1.0 + np.asarray(coverage) * accepted
    return checks.plain(tokens * t_1 / (coverage * t_hit + (1.0 - np.asarray(coverage)) * t_miss + t_draft))


def break_even_hit_rate(accepted: float, t_hit: float, t_miss: float, t_1: float, t_draft: float = 0.0) -> float:
    """The smallest coverage at which `hit_rate_speedup` is 1 or more.

    Speedup >= 1 rearranges to coverage · (A t(1) - (t_hit - t_miss)) >= t_miss + t_draft - t(1): what a hit
    gains, as often as it comes, against what every step pays. With t_miss = t(1) and free lookups nothing is
    paid up front, so coverage cancels: a method that drafts only on a hit gains at any coverage if
    A > t_hit / t(1) - 1, and at none otherwise.

    Args: as `hit_rate_speedup`, for single numbers.

    Returns:
        coverage; above 1 where even a hit in every step does not pay, infinite where a hit gains nothing (the
        smallest number of an empty set).

    Example:
        >>> round(break_even_hit_rate(1.5, t_hit=1.3, t_miss=1.3, t_1=1.0), 4)  # fixed shape: 0.3 / 1.5
        0.2
        >>> break_even_hit_rate(1.5, t_hit=1.3, t_miss=1.0, t_1=1.0)  # drafts only on a hit, free lookup
        0.0
    """
    accepted = checks.nonnegative("accepted", accepted)
    t_hit, t_miss, t_1, t_draft = _times(t_hit, t_miss, t_1, t_draft)
    paid, gained = t_miss + t_draft - t_1, accepted * t_1 - (t_hit - t_miss)
    if paid <= 0:
        return 0.0
    return float(paid / gained) if gained > 0 else float("inf")


def _times(t_hit: float, t_miss: float, t_1: float, t_draft: float) -> tuple[float, float, float, float]:
    t_hit, t_miss = checks.positive("t_hit", t_hit), checks.positive("t_miss", t_miss)
    return t_hit, t_miss, checks.positive("t_1", t_1), checks.nonnegative("t_draft", t_draft)
