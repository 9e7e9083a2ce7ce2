"""A near tie: two logits, the numbers that a format has there, and a second forward that rounds one of them otherwise.

Token A has the largest exact logit, token B one that is smaller by the gap. A forward stores the nearest numbers of
its format; in a forward of another shape the sum behind B comes out a little higher. Of equal logits the argmax takes
the token with the lower id, here A.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..theory import BITS, rounded, spacing
from . import figures, style
from .fallback import live, show, sliders

_FINEST = 1 / 200  # of the picture's width: numbers that lie closer are not drawn one by one


def stored(best: float, gap: float, shift: float, format: str) -> tuple[float, float, float]:
    """The numbers that stand for A, for B, and for B in the other forward.

    Args:
        best: the larger exact logit, > 0.
        gap: by how much B's is smaller, >= 0.
        shift: what B's sum gains in the other forward.
        format: a name in `theory.BITS`.

    Example:
        >>> stored(20.3, 0.04, 0.06, "bfloat16")
        (20.25, 20.25, 20.375)
    """
    bits = BITS[format]
    return rounded(best, bits), rounded(best - gap, bits), rounded(best - gap + shift, bits)


def reading(best: float, gap: float, shift: float, format: str) -> str:
    """What the two forwards choose, in words. Args: as `stored`.

    Example:
        >>> reading(20.3, 0.04, 0.06, "bfloat16")
        'In bfloat16 the numbers near 20.3 lie 0.125 apart. A = 20.3 is stored as 20.25, B = 20.26 as \
20.25: an exact tie, and A wins by its lower id. In the other forward B comes out 0.06 higher and is stored as \
20.375: B wins. The token turns.'
    """
    a, b, other = stored(best, gap, shift, format)
    first = "an exact tie, and A wins by its lower id" if a == b else "A wins" if a > b else "B wins"
    second = "A wins" if a > other else "an exact tie, and A wins by its lower id" if a == other else "B wins"
    turns = "The token turns." if (b > a) != (other > a) else "The token stays."
    moved = f"{abs(shift):g} {'higher' if shift >= 0 else 'lower'}"
    digits = 8 if format == "float32" else 6
    return (
        f"In {format} the numbers near {best:g} lie {spacing(best, BITS[format]):.3g} apart. A = {best:g} is stored as "
        f"{a:.{digits}g}, B = {best - gap:.6g} as {b:.{digits}g}: {first}. In the other forward B comes out {moved} "
        f"and is stored as {other:.{digits}g}: {second}. {turns}"
    )


def draw(best: float, gap: float, shift: float, format: str) -> Any:
    """Both forwards as a matplotlib figure, 7.6 by 2.6 inches: exact logits hollow, stored numbers filled."""
    from matplotlib.figure import Figure

    step = spacing(best, BITS[format])
    exact = np.array([best, best - gap, best - gap + shift])
    values = np.concatenate([exact, stored(best, gap, shift, format)])
    margin = max(0.1 * np.ptp(values), 0.2)
    low, high = values.min() - margin, values.max() + margin
    with style.used():
        fig = Figure(figsize=(7.6, 2.6))
        axes = fig.add_subplot()
        if step > _FINEST * (high - low):
            for number in np.arange(np.ceil(low / step), high / step) * step:
                axes.axvline(number, color="#AAAAAA", linewidth=0.8, zorder=0)
            axes.set_title(f"Vertical lines: the numbers of {format}")
        else:
            axes.set_title(f"{format} has {round((high - low) / step):,} numbers in this picture")
        for row, b in ((1, 1), (0, 2)):
            for i, (name, value) in enumerate((("A", exact[0]), ("B", exact[b]))):
                kept, height = rounded(value, BITS[format]), row + 0.16 - 0.32 * i
                look = {"color": style.PALETTE[i + 1], "marker": style.MARKERS[i], "linestyle": "none", "markersize": 8}
                if abs(kept - value) > _FINEST * (high - low):
                    arrow = {"arrowstyle": "->", "color": "#555555"}
                    axes.annotate("", (kept, height), (value, height), arrowprops=arrow)
                axes.plot(value, height, markerfacecolor="white", **look)
                axes.plot(kept, height, **look, label=f"{name}, stored" if row else None)
        axes.set_yticks([0, 1], ["other shape", "one row"])
        axes.set(ylim=(-0.6, 1.6), xlim=(low, high), xlabel="logit")
        axes.grid(visible=False)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def page(best: float, gap: float, shift: float, format: str) -> str:
    """Picture and words as HTML that needs no file."""
    return figures.page(reading(best, gap, shift, format), draw(best, gap, shift, format))


def slider(best: float, gap: float, shift: float) -> None:
    """Show the near tie with sliders; without a kernel, the given one in bfloat16 and in float32."""
    import ipywidgets as widgets

    settings = ("logit of A", best, 4, 40, 0.1), ("gap to B", gap, 0, 0.5, 0.01), ("shift of B", shift, -0.3, 0.3, 0.01)
    level, closeness, change = sliders(360, 120, *settings, continuous_update=False)
    look = {"description_width": "120px"}
    format = widgets.Dropdown(options=list(BITS), value="bfloat16", description="format", style=look)
    controls = (level, closeness, change, format)
    shown = live(lambda: page(*(control.value for control in controls)), *controls)
    static = "".join(page(best, gap, shift, format) for format in ("bfloat16", "float32"))
    box = widgets.VBox([widgets.HBox([level, closeness]), widgets.HBox([change, format]), shown])
    show(box, static, "A near tie: two logits, how a format stores them, and which token wins in two forwards")
