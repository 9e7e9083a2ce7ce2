"""Choosing among methods: what each one's recorded steps would gain with other tasks, batches and costs of a forward.

A method is its steps: rows, tokens, and the time of drafting. With B sequences in a forward a step of the batch has the
rows of B such steps, drawn from those recorded, one next to the other without padding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import theory
from ..core.trace import Steps
from ..measure.costs import Costs
from . import figures, style
from .fallback import live, show

DRAWS = 200  # steps of a batch


def speedup(steps: Steps, costs: Costs, B: int = 1) -> float:
    """Predicted speedup over autoregressive decoding of the same batch; nan where t(q, B) was not measured.

    Args:
        steps: of each of the B sequences.
        costs: t(q, B).
        B: sequences in a forward, at least 1.

    Example:
        >>> costs = Costs(0, 1, (1, 5), (1.0, 1.4), (1.0, 1.4), (1.0, 1.4))
        >>> steps = Steps({5: 1}, {1: 1}, tokens=4, seconds={"draft": 0.05})
        >>> round(speedup(steps, costs), 4)  # 2 tokens in (1 + 1.4) / 2 + 0.05
        1.6
    """
    try:
        forward = steps.mean(costs.t) if B == 1 else np.mean([costs.t(q, B) for q in _batch_rows(steps, B)])
        # One row of each of B sequences takes the target t(1, B), and a drafter's model as many times longer; a
        # search is made for one sequence after the other.
        draft = steps.draft_seconds * (costs.t(1, B) / costs.t(1) if steps.has_model else B)
        return float(steps.tokens_per_call * costs.t(1, B) / (forward + draft))
    except ValueError:
        return float("nan")


def _batch_rows(steps: Steps, B: int) -> np.ndarray:
    """(DRAWS,) rows per sequence of forwards in which B sequences take a step each."""
    counts = Counter(steps.hit_rows) + Counter(steps.miss_rows)
    rows, weights = np.array(sorted(counts.items()), float).T
    return np.random.default_rng(0).choice(rows, (DRAWS, B), p=weights / weights.sum()).mean(1)


def roofline(
    ridge: float, t_1: float = 1.0, batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64), widest: int = 65
) -> Costs:
    """Costs of a machine where rows are free up to ``ridge`` of them and in proportion beyond.

    Args:
        t_1: seconds of a forward of one row. With that of another machine, drafting keeps its price relative to it.

    Example:
        >>> costs = roofline(40)
        >>> costs.t(8), costs.t(8, B=4), costs.t(8, B=16)
        (1.0, 1.0, 3.2)
    """
    widths = tuple(range(1, widest + 1))
    parts = []
    for B in batches:
        times = tuple(t_1 * theory.roofline(q * B, 1.0, 1.0, 1.0, 2 * ridge) for q in widths)
        parts.append(Costs(0, 1, widths, times, times, times, batch=B))
    return Costs(0, 1, widths, *(parts[0].median,) * 3, batch=parts[0].batch, larger=tuple(parts[1:]))


def ranking(methods: Mapping[str, Steps], costs: Costs, B: int) -> list[tuple[str, float]]:
    """(method, predicted speedup), the fastest first; without those that have a step wider than was measured."""
    found = [(name, speedup(steps, costs, B)) for name, steps in methods.items()]
    return sorted((pair for pair in found if not np.isnan(pair[1])), key=lambda pair: -pair[1])


def reading(task: str, methods: Mapping[str, Steps], costs: Costs, B: int) -> str:
    """The ranking in words.

    Example:
        >>> steps = {"a": Steps({5: 1}, {}, tokens=3), "b": Steps({5: 1}, {}, tokens=1)}
        >>> reading("math", steps, roofline(40), 1)
        'math, B = 1: a is fastest, 3.00 times as fast as no draft. 1 of 2 methods gain.'
    """
    order = ranking(methods, costs, B)
    gain = sum(round(value, 2) > 1 for _, value in order)
    best, value = order[0] if order else ("", 0.0)
    words = "no method gains: decode without a draft."
    if gain:
        words = f"{_plain(best)} is fastest, {value:.2f} times as fast as no draft."
    unknown = len(methods) - len(order)
    more = f" Of {unknown} the forward was not measured so wide." if unknown else ""
    return f"{_plain(task)}, B = {B}: {words} {gain} of {len(order)} methods gain.{more}"


def draw(task: str, methods: Mapping[str, Steps], costs: Costs, B: int) -> Any:
    """The ranking as a matplotlib figure, 7.6 inches wide: one bar per method, blue for a gain, hatched for a loss."""
    from matplotlib.figure import Figure

    order = ranking(methods, costs, B)
    with style.used():
        fig = Figure(figsize=(7.6, 0.8 + 0.28 * max(1, len(order))))
        axes = fig.add_subplot()
        for place, (_, value) in enumerate(order):
            gained = round(value, 2) > 1
            look = style.bar(5 if gained else 0) | {"hatch": "///" if _lost(value) else ""}
            axes.barh(place, value, height=0.7, **look)
            axes.text(value, place, f" {value:.2f}", va="center", fontsize=8)
        axes.axvline(1, color="black", linestyle="--", linewidth=1)
        axes.set_yticks(range(len(order)), [_plain(name) for name, _ in order])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(title=f"{_plain(task)}, {B} sequence{'s' * (B > 1)}", xlabel="predicted speedup (hatched: a loss)")
        axes.set_xlim(0, 1.12 * max([1.0, *(value for _, value in order)]))
    return fig


def table(gains: Mapping[tuple[str, str], float], best: str = "fastest of its task") -> Any:
    """Speedups of methods (rows) by task (columns) as a matplotlib figure.

    The number stands in each field; a loss is hatched, the largest of a column has a heavy frame.

    Args:
        gains: (method, task) -> speedup, complete.
        best: what the frame means, for the legend.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    methods, tasks = (list(dict.fromkeys(key[i] for key in gains)) for i in (0, 1))
    with style.used():
        fig = Figure(figsize=(7.6, 1.3 + 0.33 * len(methods)))
        axes = fig.add_subplot()
        for x, task in enumerate(tasks):
            top = max(methods, key=lambda name: gains[name, task])
            for y, name in enumerate(methods):
                value = gains[name, task]
                look, box = {"facecolor": _blue(value), "edgecolor": "white"}, None
                if _lost(value):
                    look = {"facecolor": "#F2F2F2", "hatch": "///", "edgecolor": "#BBBBBB"}
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
                axes.add_patch(Rectangle((x, y), 1, 1, linewidth=0.8, **look))
                axes.text(x + 0.5, y + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=8, bbox=box)
                if name == top and round(value, 2) > 1:
                    frame = Rectangle((x + 0.03, y + 0.05), 0.94, 0.9, fill=False, linewidth=2, edgecolor="black")
                    axes.add_patch(frame)
        axes.set(xlim=(0, len(tasks)), ylim=(len(methods), 0))
        axes.set_xticks([x + 0.5 for x in range(len(tasks))], [_plain(task).replace(" ", "\n") for task in tasks])
        axes.set_yticks([y + 0.5 for y in range(len(methods))], [_plain(name) for name in methods])
        axes.tick_params(length=0, labelsize=8, labeltop=True, labelbottom=False)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        handles = [
            Patch(facecolor="white", edgecolor="black", linewidth=2, label=best),
            Patch(facecolor="#F2F2F2", edgecolor="#BBBBBB", hatch="///", label="a loss"),
        ]
        fig.legend(handles=handles, loc="outside upper right", ncols=2)  # the caption stands below
    return fig


def page(task: str, methods: Mapping[str, Steps], costs: Costs, B: int) -> str:
    """The ranking and its reading as HTML that needs no file."""
    return figures.page(reading(task, methods, costs, B), draw(task, methods, costs, B))


def chooser(recorded: Mapping[str, Mapping[str, Steps]], machines: Mapping[str, Costs]) -> None:
    """Show the ranking with controls; without a kernel, the first task and machine at its smallest and largest batch.

    Args:
        recorded: task -> method -> its steps.
        machines: name -> t(q, B).
    """
    import ipywidgets as widgets

    wide = {"layout": {"width": "420px"}, "style": {"description_width": "110px"}}
    task = widgets.Dropdown(options=[(_plain(name), name) for name in recorded], description="task", **wide)
    machine = widgets.Dropdown(options=list(machines), description="t(q, B)", **wide)
    batch = widgets.SelectionSlider(options=_batches(machines[machine.value]), description="B, sequences", **wide)

    def drawn() -> str:
        return page(task.value, recorded[task.value], machines[machine.value], batch.value)

    def change_machine(_: Any) -> None:
        sizes = _batches(machines[machine.value])
        batch.options, batch.value = sizes, min(sizes, key=lambda size: abs(size - batch.value))

    machine.observe(change_machine, "value")  # before the page is drawn anew
    shown = live(drawn, task, machine, batch)
    name, costs = task.value, machines[machine.value]
    sizes = _batches(costs)
    static = "".join(page(name, recorded[name], costs, B) for B in dict.fromkeys((sizes[0], sizes[-1])))
    box = widgets.VBox([widgets.HBox([task, batch]), machine, shown])
    show(box, static, "Methods in the order of their predicted speedup, by task, batch and cost of a forward")


def _batches(costs: Costs) -> list[int]:
    return [part.batch for part in costs.by_batch]


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _lost(value: float) -> bool:
    """As far as two decimals show."""
    return round(value, 2) < 1


def _blue(value: float) -> str:
    """White up to 1, the palette's sky blue from 3 on."""
    share = min(1.0, max(0.0, (value - 1) / 2))
    mixed = [round(255 + share * (int(style.PALETTE[5][i : i + 2], 16) - 255)) for i in (1, 3, 5)]
    return "#" + "".join(f"{part:02X}" for part in mixed)
