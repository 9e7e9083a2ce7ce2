"""t(q) drawn, and a slider along it: what a forward with q rows costs, and what its draft must earn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..measure.costs import Costs
from ..theory import alpha_for
from . import figures, style
from .fallback import show, stepped


def draw(costs: Costs, floor: Callable[[int], float] | None = None, mark: int | None = None) -> Any:
    """A matplotlib figure, 7.6 by 4 inches: t(q) with its quartiles on logarithmic axes.

    Args:
        costs: measured from q = 1 on.
        floor: seconds that a forward with q rows cannot undercut, such as `theory.roofline`; drawn if given.
        mark: a number of rows to point at.
    """
    from matplotlib.figure import Figure

    widths, ms = costs.widths, 1e3
    with style.used():
        fig = Figure(figsize=(7.6, 4.0))
        axes = fig.add_subplot()
        middle, low, high = ([ms * costs.t(q, level=level) for q in widths] for level in ("median", "low", "high"))
        axes.fill_between(widths, low, high, color="#0072B2", alpha=0.2, linewidth=0)
        axes.plot(widths, middle, **style.line(1), label="t(q), one forward with q rows")
        one_by_one = [ms * q * costs.t(1) for q in widths]
        axes.plot(widths, one_by_one, color="black", linestyle=":", label="q · t(1), the same q tokens one by one")
        if floor is not None:
            fine = [widths[0] * (widths[-1] / widths[0]) ** (i / 60) for i in range(61)]
            name = "roofline: the slower of reading and computing"
            axes.plot(fine, [ms * floor(q) for q in fine], color="#D55E00", linestyle="-.", label=name)
        if mark is not None:
            axes.axvline(mark, color="#7F7F7F", linewidth=0.8)
            axes.plot([mark], [ms * costs.t(mark)], **style.RING)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(widths, [str(q) for q in widths])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        least, most = axes.get_ylim()
        axes.set_yticks([m * 10**e for e in range(-3, 6) for m in (1, 2, 5) if least <= m * 10**e <= most])
        axes.set_xlabel("q, rows in the forward (the last token and q − 1 drafted ones)")
        axes.set_ylabel("milliseconds")
        axes.legend(loc="upper left")
    return fig


def slider(costs: Costs) -> None:
    """Show t(q) with a slider for q; without a kernel, a table over the measured widths."""
    last = costs.widths[-1]
    widget = stepped(lambda q: figures.page(reading(costs, q), draw(costs, mark=q)), "q", 1, last, min(8, last))
    show(widget, table(costs), "t(q) by the number of rows q")


def table(costs: Costs) -> str:
    """An HTML table over the measured widths: t(q), what it must yield, and the time per token if all is accepted."""
    head = ("q", "t(q), ms", "ms per token, all accepted", "tokens to break even", "α to break even")
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    for q in costs.widths:
        ms, must = 1e3 * costs.t(q), costs.break_even(q)
        alpha = "–" if q == 1 else "impossible" if must > q else f"{alpha_for(must, q - 1):.2f}"
        row = (f"{q}", f"{ms:.1f}", f"{ms / q:.1f}", f"{must:.2f}", alpha)
        lines.append("".join(f"<td>{cell}</td>" for cell in row))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def reading(costs: Costs, q: int) -> str:
    """One sentence on a forward with q rows.

    Example:
        >>> reading(Costs(256, 5, (1, 8), (0.010, 0.016), (0.010, 0.016), (0.010, 0.016)), 8)
        't(8) = 16.0 ms. All 7 drafts accepted: 2.0 ms per token. To break even it must yield 1.60 tokens: each draft \
accepted with probability 0.38.'
    """
    times = f"t({q}) = {1e3 * costs.t(q):.1f} ms."
    if q == 1:
        return f"{times} No draft: one token per forward, which is autoregressive decoding."
    must = costs.break_even(q)
    drafts = f"All {q - 1} drafts accepted" if q > 2 else "The draft accepted"
    best = f"{times} {drafts}: {1e3 * costs.t(q) / q:.1f} ms per token."
    if must > q:
        return f"{best} Even so it loses: one by one, a token takes {1e3 * costs.t(1):.1f} ms."
    if must == 1:
        return f"{best} It takes no longer than one row, so it cannot lose."
    alpha = alpha_for(must, q - 1)
    return f"{best} To break even it must yield {must:.2f} tokens: each draft accepted with probability {alpha:.2f}."
