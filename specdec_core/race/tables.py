"""The table of a race, as Markdown and as plain text, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

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
    head, *rows = _padded(table, columns)
    dashes = ["-" * (len(cell) - 1) for cell in head]
    rule = [f":{line}" if words else f"{line}:" for line, words in zip(dashes, _left(columns), strict=True)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def text(table: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> str:
    """The same for a terminal, a blank line between tasks.

    Example:
        >>> print(text([["math", "1.00"]], ["task", "speedup"]))
        task  speedup
        math     1.00
    """
    head, *rows = ["  ".join(line).rstrip() for line in _padded(table, columns)]
    tasks = groupby(zip(table, rows, strict=True), key=lambda pair: pair[0][0])
    return "\n".join([head, "\n\n".join("\n".join(row for _, row in task) for _, task in tasks)])


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


def _padded(table: Sequence[Sequence[str]], columns: Sequence[str]) -> list[list[str]]:
    """The names of the columns and the rows, every cell as wide as its column."""
    padded = []
    for column, words in zip(zip(columns, *table, strict=True), _left(columns), strict=True):
        width = max(3, *map(len, column))
        padded.append([cell.ljust(width) if words else cell.rjust(width) for cell in column])
    return [list(line) for line in zip(*padded, strict=True)]
