"""Several drafts in one step, and lookahead decoding's step compression.

"F" is Fu, Bailis, Stoica and Zhang, Break the Sequential Dependency of LLM Inference Using Lookahead Decoding
(ICML 2024, arXiv:2402.02057).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from . import checks
from .checks import Number

# What F, Figure 4(b), fits to LLaMA-2-Chat-7B on MT-Bench (A100); quoted, not measured here.
PAPER_ALPHA = 0.425
PAPER_F = 3.106


def expected_tokens_b(alpha: Number, gamma: int, b: Number) -> Number:
    """E[output tokens per step] with b drafts of length γ: (γ + 1) - sum_{i=1..γ} (1 - α^i)^b.

    Source: F, equation (5). Derivation: let L_j be how many tokens of draft j match. The step outputs 1 + max_j L_j
    tokens, and E[max_j L_j] = sum_i P(max_j L_j >= i) = sum_i (1 - P(L_1 < i)^b) if the L_j are independent and P(L_j
    >= i) = α^i. That is all it assumes: whole drafts that match independently of one another, each token with the same
    α. Equation (4), `expected_tokens`, is b = 1: γ + 1 - γ + sum_i α^i = 1 + α + ... + α^γ.

    Real drafts answer to one target sequence, so they are not independent:

    * distinct first tokens exclude one another. One of them is right with the sum of their probabilities, b α
      if they are equal, which is more than 1 - (1 - α)^b. But real ones are not equal, and the sum is at most
      1, so such drafts never bring more than 1 + 1/(1 - α) tokens (Sequoia, arXiv:2402.12374, section 3.1.2);
    * drafts drawn from one q and tested one after another (SpecInfer, arXiv:2305.09781) do worse: the
      residual after a rejection overlaps no more with q than p did;
    * equal drafts count once.

    α and b of a fit are therefore effective values. For the exact value of a given set use
    `trees.expected_tokens_tree`.

    Growth with b: never above γ + 1. Beyond the first few drafts, and while α^γ b is small, it grows by
    1 / ln(1/α) for every factor e in b, as the mean maximum of b geometric variables does: linear in log b,
    not in b, and flat from b = α^-γ or so. For α = 0.425 and γ = 4 that is b = 31.

    Args:
        alpha: in [0, 1], or an array.
        gamma: γ >= 0, an integer; N - 1 for lookahead decoding.
        b: drafts per step, >= 0, or an array; fractions are allowed, so that curves can be drawn.

    Example:
        >>> round(expected_tokens_b(0.5, 2, 2), 4)  # 3 - 0.5**2 - 0.75**2
        2.1875
    """
    alpha, gamma = checks.probability("alpha", alpha), checks.count("gamma", gamma, 0)
    b = checks.nonnegative("b", b)
    total = np.ones(np.broadcast_shapes(np.shape(alpha), np.shape(b)))
    for i in range(1, gamma + 1):
        total = total + (1.0 - np.power(1.0 - np.power(alpha, i), b))
    return checks.plain(total)


def step_compression(f: Number, expected: Number) -> Number:
    """S = (f - 1 + E) / f: of every f steps, f - 1 give one token and one gives E.

    Source: F, equation (7), with S defined in (6) as generated tokens / steps, and E from (5) with b = W = G
    and γ = N - 1. As E <= N, S <= (f - 1 + N) / f: for a fixed N there is a ceiling, whatever W.

    Args:
        f: steps to one good draft, >= 1.
        expected: E[output tokens] of a good step, >= 1.

    Example:
        >>> round(step_compression(PAPER_F, expected_tokens_b(PAPER_ALPHA, 4, 15)), 3)  # N = 5, W = G = 15
        1.979
    """
    f, expected = checks.at_least_one("f", f), checks.at_least_one("expected", expected)
    return checks.plain((f - 1.0 + np.asarray(expected)) / f)


def lookahead_step_tokens(W: int, N: int, G: int) -> int:
    """(W + G)(N - 1), the rows of a full lookahead step, the current token included.

    Source: F, section 5.5 and Table 4: W (N - 1) rows of window, of which the current token is one, and G candidates of
    N - 1 tokens. It is a maximum: fewer candidates, or candidates that share a prefix, take less.

    Args:
        W: window columns, >= 1. N: n-gram length, >= 2. G: candidates, >= 0.

    Example:
        >>> [lookahead_step_tokens(W, 5, W) for W in (15, 10, 7)]
        [120, 80, 56]
    """
    return (checks.count("W", W, 1) + checks.count("G", G, 0)) * (checks.count("N", N, 2) - 1)


@dataclass(frozen=True, eq=False)
class AlphaF:
    """A fit of S(b, γ) by `step_compression` of `expected_tokens_b`.

    Attributes:
        alpha, f: the two parameters.
        residuals: (points,) measured S - fitted S, in the order of the points.
        rms: root mean square of the residuals.
    """

    alpha: float
    f: float
    residuals: np.ndarray
    rms: float

    def S(self, b: Number, gamma: int) -> Number:
        """The fitted step compression at (b, γ)."""
        return step_compression(self.f, expected_tokens_b(self.alpha, gamma, b))


def fit_alpha_f(points: Iterable[tuple[float, int, float]]) -> AlphaF:
    """Least squares of (α, f) to measured step compressions, as in Figure 4(b) of F.

    S - 1 = (E(α) - 1) / f is linear in 1/f, so the best f for each α has a closed form and only α is
    searched: a grid over [0, 1], refined around its best point. f is kept >= 1, which its meaning asks for.

    Args:
        points: (b, γ, S) triples; b = W = G and γ = N - 1 for lookahead decoding. The equation has no b for
            settings with W != G.

    Returns:
        the `AlphaF`. Look at the residuals before believing it: two parameters fit any two points.

    Raises:
        ValueError: if there are fewer than two different (b, γ), which leave (α, f) undetermined; if b or γ
            is below 1; or if S is not above 1 on balance, which leaves α undetermined.

    Example:
        >>> truth = [(b, 4, step_compression(3.0, expected_tokens_b(0.4, 4, b))) for b in (1, 5, 15)]
        >>> fit = fit_alpha_f(truth)
        >>> round(fit.alpha, 6), round(fit.f, 6), fit.rms < 1e-9
        (0.4, 3.0, True)
    """
    points = [(float(b), checks.count("gamma", gamma, 1), float(S)) for b, gamma, S in points]
    if len({(b, gamma) for b, gamma, _ in points}) < 2:
        raise ValueError(f"(alpha, f) needs measurements at two or more different (b, gamma); got {points}")
    checks.at_least_one("b", [b for b, _, _ in points])
    gain = checks.positive("S", [S for _, _, S in points]) - 1.0  # (points,)

    alphas, width = np.linspace(0.0, 1.0, 1001), 1e-3
    while True:
        # (points, grid)
        extra = np.stack([expected_tokens_b(alphas, gamma, b) - 1.0 for b, gamma, _ in points])
        square = (extra**2).sum(0)
        projected = np.divide(gain @ extra, square, out=np.zeros_like(square), where=square > 0)
        share = np.clip(projected, 0.0, 1.0)  # 1/f
        best = int(((gain[:, None] - share * extra) ** 2).sum(0).argmin())
        if width < 1e-10:
            break
        alphas = np.clip(alphas[best] + np.linspace(-width, width, 101), 0.0, 1.0)
        width /= 50.0
    if not share[best] > 0:
        raise ValueError(f"these S show no gain over one token per step, so nothing fixes alpha; got {points}")
    alpha, f = float(alphas[best]), float(1.0 / share[best])
    residuals = gain - share[best] * extra[:, best]
    return AlphaF(alpha, f, residuals, float(np.sqrt((residuals**2).mean())))
