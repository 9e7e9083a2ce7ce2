"""How many tokens one draft path brings, from the probability that a draft token is accepted.

"L" is Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding (ICML 2023,
arXiv:2211.17192).
"""

from __future__ import annotations

import numpy as np

from . import checks
from .checks import Number, Vector


def acceptance_rate(p: np.ndarray, q: np.ndarray) -> float:
    """β = sum_x min(p(x), q(x)) = 1 - TV(p, q): how often a token drawn from q is accepted.

    Source: L, Theorem 3.5 with Lemma 3.3; their D_LK(p, q) is the total variation distance. A token x is
    drawn with probability q(x) and kept with min(1, p(x)/q(x)); the product of the two is min(q(x), p(x)).

    Args:
        p, q: (V,) distributions of target and draft, as sampled from: after temperature, top-k and top-p.

    Example:
        >>> round(acceptance_rate(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.2])), 12)
        0.7
    """
    p, q = _distributions(p, q)
    return float(np.minimum(p, q).sum())


def residual_denominators(p: np.ndarray, q: np.ndarray) -> tuple[float, float]:
    """The two ways to write the mass by which the residual distribution is divided; they are equal.

    Derived backwards, the residual is r = (p - min(p, q)) / sum(q - min(p, q)), divided by the probability of
    a rejection. Derived forwards (L, section 2.3 and appendix A.1) it is max(p - q, 0) / sum(max(p - q, 0)),
    divided by what the numerator sums to. Both sums are 1 - β = TV(p, q), because p and q both sum to one.

    Args:
        p, q: (V,) distributions.

    Returns:
        (sum_x (q(x) - min(p(x), q(x))), sum_x max(p(x) - q(x), 0)).

    Example:
        >>> rejected, excess = residual_denominators(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.2]))
        >>> round(rejected, 12), round(excess, 12)
        (0.3, 0.3)
    """
    p, q = _distributions(p, q)
    return float((q - np.minimum(p, q)).sum()), float(np.maximum(p - q, 0.0).sum())


def expected_tokens(alpha: Number, gamma: int) -> Number:
    """E[output tokens per step] = 1 + α + ... + α^γ = (1 - α^(γ+1)) / (1 - α), and γ + 1 at α = 1.

    Source: L, equation (1). The number of tokens is a geometric variable capped at γ + 1. It holds where
    every draft token is accepted with the same probability α whatever came before; where α varies with depth
    use `expected_tokens_by_depth`. Where β varies from step to step but not within one, the mean of this
    formula over β is at least the formula at the mean: it is convex in α.

    Summed as written on the left, which needs no special case at α = 1 and loses no digits near it.

    Args:
        alpha: in [0, 1], or an array of them.
        gamma: γ >= 0, an integer.

    Returns:
        tokens, in [1, γ + 1], and never above 1 / (1 - α).

    Example:
        >>> round(expected_tokens(0.8, 4), 4)
        3.3616
    """
    return checks.plain(1.0 + np.asarray(expected_accepted(alpha, gamma)))


def expected_accepted(alpha: Number, gamma: int) -> Number:
    """E[accepted draft tokens per step] = α + ... + α^γ = α (1 - α^γ) / (1 - α), and γ at α = 1.

    One less than `expected_tokens`, which counts the bonus or correction token too; never above α / (1 - α).

    Args: as `expected_tokens`.

    Example:
        >>> round(expected_accepted(0.8, 4), 4)
        2.3616
    """
    alpha, gamma = checks.probability("alpha", alpha), checks.count("gamma", gamma, 0)
    total = np.zeros_like(alpha)
    for _ in range(gamma):
        total = alpha * (1.0 + total)
    return checks.plain(total)


def expected_tokens_by_depth(alphas: Vector) -> float:
    """E[output tokens per step] = 1 + α_1 + α_1 α_2 + ... + α_1 ... α_γ.

    The sum over i of P(at least i accepted), which is exact for any dependence between depths provided that
    α_i = P(token i accepted | tokens 1 ... i-1 accepted): accepted at depth i / tested at depth i. Equation
    (1) of L is the case of equal α_i.

    Args:
        alphas: (γ,) conditional acceptance probabilities, in [0, 1], nearest first; empty for no draft.

    Example:
        >>> round(expected_tokens_by_depth([0.8, 0.5]), 12)  # 1 + 0.8 + 0.4
        2.2
    """
    return 1.0 + float(np.cumprod(checks.probabilities("alphas", alphas)).sum())


def _distributions(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p, q = checks.distribution("p", p), checks.distribution("q", q)
    if len(p) != len(q):
        raise ValueError(f"p and q must be distributions over one vocabulary; got lengths {len(p)} and {len(q)}")
    return p, q


def alpha_for(tokens: float, gamma: int) -> float:
    """The acceptance probability at which gamma drafted tokens yield ``tokens`` per call on average.

    The inverse of `expected_tokens` for tokens in 1 ... gamma + 1; no alpha gives others.

    Example:
        >>> round(alpha_for(3.3616, gamma=4), 6)
        0.8
    """
    if not 1 <= tokens <= gamma + 1:
        raise ValueError(f"{gamma} drafted tokens yield 1 ... {gamma + 1} tokens per call; got {tokens}")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**k for k in range(gamma + 1)) < tokens else (low, middle)
    return (low + high) / 2
