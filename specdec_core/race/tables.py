"""The table of a race, as Markdown and as plain text, from its rows."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.trace import PHASES
from .results import Row

COLUMNS = (
    "task",
    "method",
    "tokens/call",
    "accepted at depth 1, 2, 3, 4",
    "ms/step",
    *PHASES,
    "tokens/s",
    "speedup",
    "low-high",
    "peak MiB",
    "identical",
)
SHOWN_DEPTHS = 4


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The table's cells, row by row, in the order of `COLUMNS`; "-" stands for what cannot be measured."""
    return [_cells(row) for row in rows]


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
    rule = [":" + "-" * (w - 1) if text else "-" * (w - 1) + ":" for w, text in zip(widths, left, strict=True)]
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


def _cells(row: Row) -> list[str]:
    phases = [f"{row.ms[phase]:.2f}" for phase in PHASES] if row.ms else ["-"] * len(PHASES)
    shares = [f"{accepted / tested:.2f}" for accepted, tested in (row.acceptance_by_depth or ())[:SHOWN_DEPTHS]]
    return [
        row.task,
        row.method,
        f"{row.tokens_per_call:.2f}",
        " ".join(shares) or "-",
        f"{sum(row.ms.values()):.1f}" if row.ms else "-",
        *phases,
        f"{row.tokens_per_second:.1f}",
        f"{row.speedup:.2f}",
        f"{row.speedup_low:.2f}-{row.speedup_high:.2f}",
        f"{row.peak_memory_bytes / 2**20:.0f}",
        _identical(row),
    ]


def _identical(row: Row) -> str:
    if row.identical is None:
        return "- (sampled)"
    if row.identical:
        return "yes"
    first, widest = row.divergences[0], max(d.logit_gap for d in row.divergences)
    differing = len({(d.question, d.turn) for d in row.divergences})
    words = f"{differing} of {row.answers} differ, first {first.question} "
    words += f"at token {first.position + 1}, logit gap {first.logit_gap:.3g}"
    return words if widest == first.logit_gap else f"{words} (widest {widest:.3g})"


def _left(columns: Sequence[str]) -> list[bool]:
    """The first column and those of words; numbers stand to the right."""
    words = ("task", "method", "accepted at depth 1, 2, 3, 4", "identical")
    return [place == 0 or column in words for place, column in enumerate(columns)]


def _widths(table: Sequence[Sequence[str]], columns: Sequence[str]) -> list[int]:
    return [max(3, *(len(cell) for cell in column)) for column in zip(columns, *table, strict=True)]


def _aligned(row: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> list[str]:
    return [cell.ljust(w) if to_left else cell.rjust(w) for cell, w, to_left in zip(row, widths, left, strict=True)]
