"""How long a draft should be: tokens per step and speedup over the draft length, for a chosen α and c.

Every point is `theory.expected_tokens` or `theory.speedup`: each draft token is accepted with the same probability α,
a draft call takes c target calls, and a target call takes as long over γ + 1 rows as over one.
"""

from __future__ import annotations

from typing import Any

from ..theory import best_gamma, expected_accepted, expected_tokens, speedup
from . import fallback, figures, style
from .fallback import live, show

LONGEST = 16  # drafts drawn, and the longest that is tried for the best


def reading(alpha: float, gamma: int, c: float) -> str:
    """A setting in words.

    Example:
        >>> reading(0.8, 4, 0.1)
        'α = 0.80, γ = 4, c = 0.10: a step outputs 3.36 tokens, 2.36 of them accepted drafts, and takes the time of \
1.40 target calls: 2.40 times as fast as without a draft. The best draft length is γ = 6, with 2.47.'
        >>> reading(0.1, 2, 0.2)
        'α = 0.10, γ = 2, c = 0.20: a step outputs 1.11 tokens, 0.11 of them accepted drafts, and takes the time of \
1.40 target calls: 0.79 times as fast as without a draft. No draft length gains, because α is not above c.'
    """
    best = best_gamma(alpha, c, LONGEST)
    word = f"The best draft length is γ = {best}, with {speedup(alpha, best, c):.2f}."
    if best == LONGEST:
        word = f"The best draft length is γ = {LONGEST} or more, with at least {speedup(alpha, best, c):.2f}."
    if best == 0:
        word = "No draft length gains, because α is not above c."
    return (
        f"α = {alpha:.2f}, γ = {gamma}, c = {c:.2f}: a step outputs {expected_tokens(alpha, gamma):.2f} tokens, "
        f"{expected_accepted(alpha, gamma):.2f} of them accepted drafts, and takes the time of {1 + gamma * c:.2f} "
        f"target calls: {speedup(alpha, gamma, c):.2f} times as fast as without a draft. {word}"
    )


def draw(alpha: float, gamma: int, c: float) -> Any:
    """Both curves as a matplotlib figure, 7.6 by 3.4 inches: the chosen γ is ringed, the best one a star."""
    from matplotlib.figure import Figure

    lengths = range(LONGEST + 1)
    with style.used():
        fig = Figure(figsize=(7.6, 3.4))
        left, right = fig.subplots(1, 2)
        left.plot(lengths, [expected_tokens(alpha, g) for g in lengths], label="output tokens", **style.line(0))
        left.plot(lengths, [expected_accepted(alpha, g) for g in lengths], label="accepted drafts", **style.line(1))
        if alpha < 1:
            left.axhline(1 / (1 - alpha), color="#7F7F7F", linestyle=":", label="ceiling 1/(1 − α)")
        left.set(title="Tokens per step", ylim=(0, 1.12 * min(1 / (1 - alpha), 17) if alpha < 1 else 18))
        gains = [speedup(alpha, g, c) for g in lengths]
        right.plot(lengths, gains, label="speedup", **style.line(2))
        right.axhline(1, color="black", linewidth=1)
        right.axhspan(0, 1, facecolor="#EEEEEE", hatch="///", edgecolor="#BBBBBB", label="slower than no draft")
        best = best_gamma(alpha, c, LONGEST)
        star = {"marker": "*", "markersize": 16, "markeredgecolor": "black", "linestyle": "none", "zorder": 4}
        right.plot(best, gains[best], color=style.PALETTE[6], label=f"best: γ = {best}", **star)
        right.set(title="Speedup", ylim=(0, 1.15 * max(1.2, *gains)))
        ring = style.RING | {"zorder": 5}
        left.plot([gamma] * 2, [expected_tokens(alpha, gamma), expected_accepted(alpha, gamma)], **ring)
        right.plot(gamma, gains[gamma], label=f"chosen: γ = {gamma}", **ring)
        for axes in (left, right):
            axes.set_xlabel("γ, tokens drafted per step")
            axes.set_xticks(range(0, LONGEST + 1, 2))
            axes.legend(loc="best", fontsize=8, markerscale=0.6, frameon=True, framealpha=0.9, edgecolor="none")
    return fig


def page(alpha: float, gamma: int, c: float) -> str:
    """The curves and their reading as HTML that needs no file."""
    return figures.page(reading(alpha, gamma, c), draw(alpha, gamma, c))


def sliders(alpha: float = 0.8, gamma: int = 4, c: float = 0.1) -> None:
    """Show the curves with sliders; without a kernel, the given setting and one with a draft as dear as it is good."""
    import ipywidgets as widgets

    settings = ("α, accepted", alpha, 0, 1, 0.01), ("γ, drafted", gamma, 0, LONGEST, 1), ("c, cost", c, 0, 1, 0.01)
    rate, count, cost = fallback.sliders(330, 90, *settings, continuous_update=False)
    shown = live(lambda: page(rate.value, count.value, cost.value), rate, count, cost)
    static = page(alpha, gamma, c) + page(alpha, gamma, alpha)
    box = widgets.VBox([widgets.HBox([rate, cost]), count, shown])
    show(box, static, "Tokens per step and speedup over the draft length, for a chosen acceptance and cost")
