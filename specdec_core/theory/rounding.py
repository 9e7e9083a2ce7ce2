"""Rounding: how far apart the numbers of a format lie, and what a small shift of the logits can do.

A logit is a sum of thousands of products. Computed in another order it comes out shifted by a few roundings, and
where the two best tokens are closer than the shift, greedy decoding may take the other one. The formulas are this
book's; the spacing is IEEE 754's, for numbers that are neither subnormal nor too large.
"""

from __future__ import annotations

import numpy as np

from . import checks
from .checks import Number, Vector

BITS = {"float32": 24, "float16": 11, "bfloat16": 8}  # of the significand, the leading one included


def spacing(x: Number, bits: int) -> Number:
    """Distance from ``x`` to the next number of a format: 2^(e - bits + 1) for 2^e <= \\|x\\| < 2^(e + 1).

    Args:
        x: finite and not zero.
        bits: of the significand, see `BITS`; at least 1.

    Example:
        >>> spacing(20.0, 8), spacing(20.0, 24) == 2.0**-19
        (0.125, True)
    """
    bits = checks.count("bits", bits, 1)
    size = checks.positive("the size of x", np.abs(x))
    return checks.plain(2.0 ** (np.floor(np.log2(size)) - (bits - 1)))


def rounded(x: Number, bits: int) -> Number:
    """The nearest number with a significand of ``bits`` bits; halfway, the one whose last bit is 0.

    Example:
        >>> rounded(257.0, 8), rounded(258.0, 8), rounded(0.0, 8)
        (256.0, 258.0, 0.0)
    """
    x = np.asarray(x, np.float64)
    step = spacing(np.where(x == 0, 1.0, x), bits)
    return checks.plain(np.rint(x / step) * step)


def near_tie_density(gaps: Vector, within: float) -> float:
    """f(0): how many gaps between the two best logits lie near zero, per unit of logit and per token.

    Args:
        gaps: (n,) largest minus second largest logit, >= 0, n >= 1.
        within: the density is counted over [0, within); wide enough to hold some, narrow enough to be near zero.

    Example:
        >>> near_tie_density([0.1, 3.0, 0.3, 5.0], within=0.5)
        1.0
    """
    gaps = np.asarray(gaps, np.float64)
    if gaps.ndim != 1 or not gaps.size:
        raise ValueError(f"gaps must be a vector of at least one; got shape {gaps.shape}")
    checks.nonnegative("gaps", gaps)
    return float((gaps < checks.positive("within", within)).mean() / within)


def flip_rate(density: float, shift: float) -> float:
    """Probability per token that a shift of the logits turns the argmax: f(0) E\\|d\\| / 2.

    The argmax turns if the gap g is less than -d, where d is what the shift adds to it. With gaps of density f(0)
    near zero that is f(0) E[max(0, -d)], and half of \\|d\\| falls on that side if d is as often positive as negative.
    It holds while \\|d\\| is small beside the distance over which the density changes.

    Args:
        density: f(0), see `near_tie_density`; 1 / logit.
        shift: E\\|d\\|, the mean size of the change of the gap; logits.

    Example:
        >>> flip_rate(0.25, 0.125)
        0.015625
    """
    return min(checks.nonnegative("density", density) * checks.nonnegative("shift", shift) / 2, 1.0)


def identical_probability(rate: Number, tokens: Number) -> Number:
    """(1 - rate)^tokens: that no token of an answer is turned. The mean wait for the first turn is 1 / rate.

    Example:
        >>> round(identical_probability(0.01, 100), 3)
        0.366
    """
    return checks.plain((1 - checks.probability("rate", rate)) ** checks.nonnegative("tokens", tokens))


def law_shift_bound(delta: Number) -> Number:
    """Largest total variation between softmax distributions whose logits differ by at most ``delta``: tanh(delta / 2).

    Weights grow and shrink by at most a factor e^delta. If mass a grows and the rest shrinks, the grown part becomes
    a r / (a r + 1 - a) with r = e^(2 delta); its gain is largest at a = 1 / (1 + e^delta), where it is tanh(delta / 2).

    Example:
        >>> round(law_shift_bound(0.1), 5)
        0.04996
    """
    return checks.plain(np.tanh(checks.nonnegative("delta", delta) / 2))
