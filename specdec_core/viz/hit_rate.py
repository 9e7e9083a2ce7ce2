"""The hit-rate map: predicted speedup over coverage and regularity, with measured t(q) and the break-even line.

A step has a draft with probability h, the coverage; of its γ tokens each is accepted with the same probability r,
the regularity, given the ones before it. Every point of the map is `theory.hit_rate_speedup` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from ..measure.costs import Costs
from ..theory import alpha_for, expected_accepted, hit_rate_speedup
from . import fallback, figures, style
from .fallback import live, show

LEVELS = (0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
_FINE = np.linspace(0, 1, 101)
Points = Mapping[str, tuple[float, float]]  # name -> (coverage, regularity)


def gain(costs: Costs, gamma: int, coverage: Any, regularity: Any, fixed: bool = False) -> Any:
    """Predicted speedup over autoregressive decoding.

    Args:
        costs: measured from q = 1 to γ + 1 at least.
        gamma: γ >= 1, tokens of every draft.
        coverage, regularity: in [0, 1]; numbers, or arrays that broadcast.
        fixed: whether a step without a draft runs γ + 1 rows all the same, as a window of fixed shape does.

    Example:
        >>> costs = Costs(256, 5, (1, 5), (0.010, 0.012), (0.010, 0.012), (0.010, 0.012))
        >>> round(gain(costs, 4, 0.5, 0.8), 4)  # (1 + 0.5 * 2.3616) / (1 + 0.5 * 0.2)
        1.9825
        >>> round(gain(costs, 4, 0.5, 0.8, fixed=True), 4)  # 2.1808 / 1.2
        1.8173
    """
    t_hit = costs.t(gamma + 1)
    accepted = expected_accepted(regularity, gamma)
    return hit_rate_speedup(coverage, accepted, t_hit, t_hit if fixed else costs.t(1), costs.t(1))


def least_regularity(costs: Costs, gamma: int, coverage: float, fixed: bool = False) -> float:
    """The regularity at which nothing is won or lost; above 1 (infinite) where none is enough.

    A hit must bring t(γ + 1)/t(1) - 1 accepted tokens. If misses run as many rows they cost as much, and the hits
    have to earn that too: the same divided by the coverage.

    Args: as `gain`, for one number.

    Example:
        >>> costs = Costs(256, 5, (1, 2), (0.010, 0.012), (0.010, 0.012), (0.010, 0.012))
        >>> [round(least_regularity(costs, 1, 0.5, fixed), 6) for fixed in (False, True)]
        [0.2, 0.4]
    """
    extra = costs.break_even(gamma + 1) - 1
    if extra == 0:
        return 0.0
    needed = extra if not fixed else extra / coverage if coverage > 0 else float("inf")
    return alpha_for(1 + needed, gamma) if needed <= gamma else float("inf")


def reading(costs: Costs, gamma: int, coverage: float, regularity: float, fixed: bool = False) -> str:
    """A point of the map in words.

    Example:
        >>> costs = Costs(256, 5, (1, 5), (0.010, 0.012), (0.010, 0.012), (0.010, 0.012))
        >>> reading(costs, 4, 0.5, 0.8)
        'A hit drafts 4 tokens, of which 2.36 are accepted; its forward takes 1.20 t(1). Half of the steps at a miss, \
t(1) each, makes 2.18 tokens per step and 1.10 t(1): 1.98 times as fast as ordinary decoding. Break-even at this \
coverage: r = 0.17.'
    """
    accepted, r = expected_accepted(regularity, gamma), costs.break_even(gamma + 1)
    tokens, time = 1 + coverage * accepted, r if fixed else 1 + coverage * (r - 1)
    share = "Half" if coverage == 0.5 else f"{1 - coverage:.0%}"
    least = least_regularity(costs, gamma, coverage, fixed)
    needs = "any r" if least == 0 else f"r = {least:.2f}" if least <= 1 else "out of reach"
    return (
        f"A hit drafts {gamma} token{'s' * (gamma > 1)}, of which {accepted:.2f} are accepted; its forward takes "
        f"{r:.2f} t(1). {share} of the steps at a miss, {f'{r:.2f} ' if fixed else ''}t(1) each, makes {tokens:.2f} "
        f"tokens per step and {time:.2f} t(1): {gain(costs, gamma, coverage, regularity, fixed):.2f} times as fast as "
        f"ordinary decoding. Break-even at this coverage: {needs}."
    )


def draw(
    costs: Costs, gamma: int, coverage: float, regularity: float, fixed: bool = False, points: Points | None = None
) -> Any:
    """The map as a matplotlib figure, 7.6 by 4.4 inches; hatched where drafting costs more than it brings.

    Args:
        costs, gamma, fixed: as `gain`.
        coverage, regularity: the point to mark.
        points: name -> (coverage, regularity) of what was measured.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    x, y = np.meshgrid(_FINE, _FINE)
    z = gain(costs, gamma, x, y, fixed)
    with style.used():
        fig = Figure(figsize=(7.6, 4.4))
        axes = fig.add_subplot()
        least = [min(least_regularity(costs, gamma, h, fixed), 1.0) for h in _FINE]
        axes.fill_between(_FINE, least, facecolor="#EEEEEE", hatch="///", edgecolor="#BBBBBB")
        lines = axes.contour(x, y, z, levels=LEVELS, colors="#555555", linewidths=0.8, linestyles="--")
        for number in axes.clabel(lines, fmt=lambda level: f"{level:g}×", fontsize=8):
            number.set_clip_on(False)  # whole, where its line leaves the map
        handles = axes.plot(_FINE, least, color="black", linewidth=2, label="break-even: 1×")
        handles.append(Patch(facecolor="#EEEEEE", edgecolor="#BBBBBB", hatch="///", label="slower than no draft"))
        for i, (name, (h, r)) in enumerate((points or {}).items()):
            look = {"marker": style.MARKERS[i % 11], "markersize": 8, "markeredgecolor": "white", "linestyle": "none"}
            handles += axes.plot(h, r, color=style.PALETTE[i % 7], clip_on=False, label=name, **look)
        handles += axes.plot(coverage, regularity, label="the chosen point", **style.RING)
        misses = "misses run γ + 1 rows too" if fixed else "misses run one row"
        axes.set(xlim=(0, 1), ylim=(0, 1), title=f"Predicted speedup, γ = {gamma}, {misses}")
        axes.set_xlabel("h, coverage: share of the steps with a draft")
        axes.set_ylabel("r, regularity: acceptance given a hit")
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def page(
    costs: Costs, gamma: int, coverage: float, regularity: float, fixed: bool = False, points: Points | None = None
) -> str:
    """The map and its reading as HTML that needs no file."""
    at = (costs, gamma, coverage, regularity, fixed)
    return figures.page(reading(*at), draw(*at, points))


def sliders(
    costs: Costs,
    points: Points | None = None,
    gamma: int = 4,
    coverage: float = 0.5,
    regularity: float = 0.5,
    model: figures.Measured | None = None,
) -> None:
    """Show the map with sliders; without a kernel, both kinds of misses at the given setting.

    Args:
        costs: measured from q = 1 on; γ goes up to one less than its widest forward.
        points: name -> (coverage, regularity) of what was measured.
        gamma, coverage, regularity: what to begin with.
        model: the loaded model that was measured; named below the map, if given.
    """
    import ipywidgets as widgets

    small = "font-family:sans-serif;font-size:11px;color:#404040"
    below = f'<p style="{small}">{escape(figures.caption(figures.provenance(model)))}</p>' if model else ""
    shares = ("h, coverage", coverage, 0, 1, 0.05), ("r, regularity", regularity, 0, 1, 0.05)
    settings = (*shares, ("γ", gamma, 1, costs.widths[-1] - 1, 1))
    h, r, count = fallback.sliders(360, 120, *settings, continuous_update=False)
    always = widgets.Checkbox(value=False, description="misses run γ + 1 rows too")

    def drawn() -> str:
        return page(costs, count.value, h.value, r.value, always.value, points) + below

    shown = live(drawn, count, h, r, always)
    both = (page(costs, gamma, coverage, regularity, fixed, points) for fixed in (False, True))
    static = "".join(both) + below
    box = widgets.VBox([widgets.HBox([h, r]), widgets.HBox([count, always]), shown])
    show(box, static, "The hit-rate map: predicted speedup over coverage and regularity")
