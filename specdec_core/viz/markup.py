"""Pieces of the pages that widgets show: fonts, labels of tokens, SVG, tables, and a tree written in lines."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape

PAPER = "color:#1A1A1A;background:#FFFFFF"
SMALL = f"{PAPER};font-family:sans-serif;font-size:13px;line-height:1.7"
MONO = "font-family:ui-monospace,'DejaVu Sans Mono',monospace"
CODE = f"{MONO};font-size:12px"
BOX = f"{CODE};line-height:1.7;{PAPER};border:1px solid #CCCCCC;border-radius:4px;padding:6px 10px;max-width:760px"
RULE = '<hr style="border:0;border-top:1px solid #CCCCCC">'


def label(text: str, width: int = 10) -> str:
    r"""A token's text for a cell: spaces around it dropped, white space alone made visible, a long one cut.

    Example:
        >>> [label(text) for text in (" cat", "\n\n", "  ", "respectively", "-" * 40)]
        ['cat', '↵↵', '␣␣', 'respectiv…', '---------…']
    """
    text = visible(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def visible(text: str) -> str:
    """A token's text without the spaces around it; white space alone is spelled."""
    return text.strip() or text.replace("\n", "↵").replace(" ", "␣") or "∅"


def table(titles: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], cell: str) -> str:
    """An HTML table. A row is the color of its ground and its cells, which are HTML; ``cell`` is the style of each."""
    head = "".join(f'<th style="{cell};font-weight:bold">{title}</th>' for title in titles)
    lines = [f'<tr style="background:#FFFFFF">{head}</tr>']
    for ground, cells in rows:
        line = "".join(f'<td style="{cell}">{text}</td>' for text in cells)
        lines.append(f'<tr style="background:{ground}">{line}</tr>')
    return f'<table style="{CODE};border-collapse:collapse;{PAPER};margin:4px 0">{"".join(lines)}</table>'


def in_lines(parents: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(node, depth) of a tree's nodes in the order in which they are written, each below its parent.

    Args:
        parents: of the nodes 1, 2, ...; 0 is the root, whose children have depth 0.

    Example:
        >>> list(in_lines([0, 0, 1]))
        [(1, 0), (3, 1), (2, 0)]
    """

    def below(node: int, depth: int) -> Iterator[tuple[int, int]]:
        for child, parent in enumerate(parents, start=1):
            if parent == node:
                yield child, depth
                yield from below(child, depth + 1)

    return below(0, 0)


def svg(width: float, height: float, parts: Iterable[str]) -> str:
    """A drawing on white."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans, Verdana, sans-serif">'
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>{"".join(parts)}</svg>'
    )


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    edge: str = "#404040",
    thick: float = 0.6,
    more: str = "",
) -> str:
    """A rectangle of a drawing; ``more`` are further attributes."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{edge}" '
        f'stroke-width="{thick}" {more}/>'
    )


def words(x: float, y: float, text: str, size: float, anchor: str = "start", fill: str = "#000000") -> str:
    """A line of text of a drawing."""
    look = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'


def image(drawing: str, alt: str) -> str:
    """A drawing as an ``<img>`` element that needs no file."""
    data = base64.b64encode(drawing.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(alt)}">'
