"""The table of a race, as Markdown and as plain text, from the rows of its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.trace import PHASES

COLUMNS = (
    "task", "method", "tokens/call", "accepted at depth 1, 2, 3, 4", "ms/step", *PHASES,
    "tokens/s", "speedup", "low-high", "peak MiB", "identical",
)  # fmt: skip
SHOWN_DEPTHS = 4


def cells(rows: Sequence[dict[str, Any]], details: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The table's cells, row by row, in the order of `COLUMNS`; "-" stands for what cannot be measured."""
    return [_cells(row, detail) for row, detail in zip(rows, details, strict=True)]


def markdown(table: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> str:
    """A Markdown table; words to the left, numbers to the right.

    Example:
        >>> print(markdown([["math", "1.00"]], ["task", "speedup"]))
        | task | speedup |
        | :--- | ------: |
        | math |    1.00 |
    """
    widths = _widths(table, columns)
    left = _left(columns)
    rule = [
        ":" + "-" * (w - 1) if text else "-" * (w - 1) + ":" for w, text in zip(widths, left, strict=True)
    ]
    lines = [_aligned(columns, widths, left), rule, *(_aligned(row, widths, left) for row in table)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text(table: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> str:
    """The same for a terminal, a blank line between tasks.

    Example:
        >>> print(text([["math", "1.00"]], ["task", "speedup"]))
        task  speedup
        math     1.00
    """
    widths = [max(len(cell) for cell in column) for column in zip(columns, *table, strict=True)]
    left = _left(columns)
    lines, before = [_aligned(columns, widths, left)], None
    for row in table:
        if before not in (None, row[0]):
            lines.append([])
        lines.append(_aligned(row, widths, left))
        before = row[0]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _cells(row: dict[str, Any], detail: dict[str, Any]) -> list[str]:
    split = row["ms"]
    phases = [f"{split[phase]:.2f}" for phase in PHASES] if split else ["-"] * len(PHASES)
    return [
        row["task"],
        row["method"],
        f"{row['tokens_per_call']:.2f}",
        _depths(detail["acceptance_by_depth"]),
        f"{sum(split.values()):.1f}" if split else "-",
        *phases,
        f"{row['tokens_per_second']:.1f}",
        f"{row['speedup']:.2f}",
        f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}",
        f"{row['peak_memory_bytes'] / 2**20:.0f}",
        _identical(row, detail),
    ]


def _depths(counts: Sequence[Sequence[int]]) -> str:
    shares = [f"{accepted / tested:.2f}" for accepted, tested in counts[:SHOWN_DEPTHS]]
    return " ".join(shares) or "-"


def _identical(row: dict[str, Any], detail: dict[str, Any]) -> str:
    if row["identical"] is None:
        return "- (sampled)"
    if row["identical"]:
        return "yes"
    found = row["divergences"]
    differing = len({(d["question"], d["turn"]) for d in found})
    first, widest = found[0], max(d["logit_gap"] for d in found)
    said = f"{differing} of {detail['answers']} differ, first {first['question']} "
    said += f"at token {first['position'] + 1}, logit gap {first['logit_gap']:.3g}"
    return said if widest == first["logit_gap"] else f"{said} (widest {widest:.3g})"


def _left(columns: Sequence[str]) -> list[bool]:
    """The first column and those of words; numbers stand to the right."""
    words = ("task", "method", "accepted at depth 1, 2, 3, 4", "identical")
    return [place == 0 or column in words for place, column in enumerate(columns)]


def _widths(table: Sequence[Sequence[str]], columns: Sequence[str]) -> list[int]:
    return [max(3, *(len(cell) for cell in column)) for column in zip(columns, *table, strict=True)]


def _aligned(row: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> list[str]:
    return [
        cell.ljust(w) if to_left else cell.rjust(w)
        for cell, w, to_left in zip(row, widths, left, strict=True)
    ]
