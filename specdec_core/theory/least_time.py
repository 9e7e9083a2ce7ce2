"""The least time of a forward: reading the weights, or computing with them (Williams, Waterman and Patterson 2009)."""

from __future__ import annotations


def roofline(q: float, weight_bytes: float, parameters: float, bandwidth: float, flops: float) -> float:
    """The least time, in seconds, of a forward with q rows: the slower of reading the weights and computing with them.

    Each weight is read once, whatever q is, and multiplied and added once per row. Attention over the cache and
    everything but matrix products are left out.

    Args:
        q: rows.
        weight_bytes, parameters: of the matrices that a forward multiplies with.
        bandwidth: bytes per second from memory.
        flops: floating-point operations per second, a multiply-add being two.

    Example:
        >>> roofline(1, 270e6, 135e6, bandwidth=20e9, flops=200e9)  # reading: 270 MB at 20 GB/s
        0.0135
        >>> roofline(40, 270e6, 135e6, bandwidth=20e9, flops=200e9)  # computing: 40 x 0.27 GFLOP at 200 GFLOP/s
        0.054
    """
    return max(weight_bytes / bandwidth, 2 * parameters * q / flops)


def ridge(bytes_per_parameter: float, bandwidth: float, flops: float) -> float:
    """The number of rows at which computing takes as long as reading: the corner of `roofline`.

    Example:
        >>> ridge(2, bandwidth=20e9, flops=200e9)
        10.0
    """
    return bytes_per_parameter * flops / (2 * bandwidth)
