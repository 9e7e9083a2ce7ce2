"""The figure of a race: speedup by task, tokens per target call by task, and where the time of a step goes.

Drawn from the record alone, in the look of `style`: what a color says, a hatch or a marker says again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from ..core.trace import PHASES
from ..measure.machine import in_words
from ..race.results import ALL, Row
from . import style

_GRAYS = ("#f7f7f7", "#cccccc", "#969696", "#525252", "#000000")  # one per phase
_SIZE = (11.0, 8.0)  # inches


def figure(record: Mapping[str, Any]) -> Any:
    """A matplotlib figure of a record of `specdec race`, in three panels."""
    from matplotlib.figure import Figure

    rows = {(row["method"], row["task"]): Row(**row) for row in record["rows"]}
    methods = list(dict.fromkeys(method for method, _ in rows))  # the baseline is the first
    tasks = list(dict.fromkeys(task for _, task in rows))  # ALL is the last
    with style.used():
        drawn = Figure(figsize=_SIZE)
        panels = drawn.subplot_mosaic(
            [["speed", "speed"], ["calls", "split"]], height_ratios=[1.2, 1], width_ratios=[1.5, 1]
        )
        _speedup(panels["speed"], rows, methods, tasks)
        _calls(panels["calls"], rows, methods, tasks)
        _split(panels["split"], rows, methods)
        drawn.suptitle(title(record), fontsize=13, fontweight="bold")
        drawn.supxlabel(caption(record), fontsize=7.5, color="#404040", x=0.01, ha="left")
    return drawn


def images(record: Mapping[str, Any]) -> dict[str, bytes]:
    """The figure as files, by suffix: an SVG whose text stays text, and a PNG at 150 dots per inch."""
    about = {"Title": title(record), "Description": caption(record)}
    options = {"svg": {"metadata": {**about, "Date": None}}, "png": {"metadata": about, "dpi": 150}}
    files, drawn = {}, figure(record)
    with style.used():
        for suffix, how in options.items():
            buffer = BytesIO()
            drawn.savefig(buffer, format=suffix, **how)
            files[suffix] = buffer.getvalue()
    return files


def title(record: Mapping[str, Any]) -> str:
    """Model, dtype, device and threads: without them a speedup means nothing."""
    model, threads = record["model"], record["model"]["threads"]
    words = f"{model['label']}, {model['dtype']} on {model['device']}, {threads} thread{'s' * (threads != 1)}"
    if record["complete"]:
        return words
    return words + (" (out of time: incomplete)" if record.get("late") else " (interrupted: incomplete)")


def caption(record: Mapping[str, Any]) -> str:
    """What it ran on and when, and how to read the figures, in two lines."""
    settings, commit = record["settings"], record["commit"]
    source = f", commit {commit['hash'][:10]}{' with changes' * commit['dirty']}" if commit else ""
    versions, repeats = record["machine"]["versions"], record["rows"][-1]["repeats"]
    asked = len(settings["questions"]["ids"])
    spread = f"median of {repeats} interleaved repeats, thin bars from the lowest to the highest"
    return (
        f"{in_words(record['machine'])}; torch {versions['torch']}, transformers {versions['transformers']}; "
        f"{record['date'][:10]}{source}.\n"
        f"{asked} question{'s' * (asked != 1)}, "
        f"answers of at most {settings['max_new_tokens']} tokens, "
        f"{'greedy' if settings['sampling']['temperature'] == 0 else 'sampled'}, "
        f"{record['model']['numerics']} numerics. Time includes prefill; "
        f"{spread if repeats > 1 else 'one repeat, so no spread'}."
    )


def _speedup(axes: Any, rows: Mapping[tuple[str, str], Row], methods: Sequence[str], tasks: Sequence[str]) -> None:
    from matplotlib.patheffects import withStroke

    shown = methods[1:]
    width = 0.8 / max(1, len(shown))
    for i, method in enumerate(shown):
        at = [place + (i - (len(shown) - 1) / 2) * width for place in _places(tasks)]
        mine = [rows[method, task] for task in tasks]
        axes.bar(at, [row.speedup for row in mine], width, label=method, **style.bar(i + 1))
        for x, row in zip(at, mine, strict=True):
            middle, low, high = row.speedup, row.speedup_low, row.speedup_high
            if high > low:
                ends = [[middle - low], [high - middle]]
                axes.errorbar(x, middle, ends, color="black", linewidth=0, elinewidth=1.2, capsize=2)
            look = {"ha": "center", "fontsize": 7, "rotation": 90 if len(shown) > 3 else 0, "zorder": 5}
            number = axes.annotate(f"{middle:.2f}", (x, high), (0, 3), textcoords="offset points", **look)
            number.set_path_effects([withStroke(linewidth=2, foreground="white")])
    axes.axhline(1, color="black", linewidth=1.2, linestyle="--", label=methods[0])
    axes.set_ylabel(f"speedup (tokens per second,\n{methods[0]} = 1)")
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.legend(ncols=min(4, len(methods)), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    _name(axes, tasks)


def _calls(axes: Any, rows: Mapping[tuple[str, str], Row], methods: Sequence[str], tasks: Sequence[str]) -> None:
    step = min(0.18, 0.7 / len(methods))  # side by side: methods with the same law give the same number
    for i, method in enumerate(methods):
        at = [place + (i - (len(methods) - 1) / 2) * step for place in _places(tasks)]
        look = {**style.line(i), "linestyle": "none", "markersize": 7, "markeredgecolor": "black"}
        axes.plot(at, [rows[method, task].tokens_per_call for task in tasks], label=method, **look)
    axes.set_ylabel("tokens per target call\n(bonus token included)")
    axes.legend(fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    _name(axes, tasks, rotation=35)


def _split(axes: Any, rows: Mapping[tuple[str, str], Row], methods: Sequence[str]) -> None:
    ours = [method for method in methods if rows[method, ALL].ms]
    for place, method in enumerate(ours):
        split, left = rows[method, ALL].ms, 0.0
        for phase, gray in zip(PHASES, _GRAYS, strict=True):
            look = {"color": gray, "edgecolor": "black", "linewidth": 0.6}
            label = phase if place == 0 else None
            axes.barh(place, split[phase], 0.36, left=left, label=label, **look)
            left += split[phase]
        numbers = ", ".join(f"{phase} {split[phase]:.2f}" for phase in PHASES)
        axes.annotate(f"{method}: {left:.1f} ms", (0, place - 0.24), fontsize=9, fontweight="bold")
        axes.annotate(numbers, (0, place + 0.24), fontsize=7, va="top")
    axes.set_ylim(len(ours) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xlabel("milliseconds per decode step, mean over all tasks (peers cannot be split)", fontsize=8)
    axes.legend(fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def _places(tasks: Sequence[str]) -> list[float]:
    return [i + 0.3 * (task == ALL) for i, task in enumerate(tasks)]  # the mean stands apart


def _name(axes: Any, tasks: Sequence[str], rotation: int = 0) -> None:
    names = ["all (geom. mean)" if task == ALL else task.replace("_", " ") for task in tasks]
    if rotation:
        axes.set_xticks(_places(tasks), names, rotation=rotation, ha="right", rotation_mode="anchor", fontsize=9)
    else:
        axes.set_xticks(_places(tasks), [name.replace(" ", "\n", 1) for name in names], fontsize=9)
    axes.grid(visible=False, axis="x")
