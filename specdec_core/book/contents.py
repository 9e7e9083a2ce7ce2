"""The book's files: chapters as sources, what a notebook of one looks like, and the manifest of the figures."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import SpecdecError

LANGUAGE = {"codemirror_mode": {"name": "ipython", "version": 3}, "file_extension": ".py", "mimetype": "text/x-python"}
LANGUAGE |= {"name": "python", "nbconvert_exporter": "python", "pygments_lexer": "ipython3"}


class BookError(SpecdecError):
    """A chapter that could not be built, or differs from its source."""


def chapters(root: Path, wanted: Sequence[str] = ()) -> list[Path]:
    """The sources of the chapters, in order; all of them, or those whose number or name is wanted.

    Raises:
        BookError: there are no chapters under ``root``, or none of a wanted name.
    """
    sources = sorted((root / "chapters").glob("[0-9a-z]*.py"))
    if not sources:
        raise BookError(f"there is no chapter in {root / 'chapters'}; run this in the folder of the book.")
    known = {name: source for source in sources for name in (source.stem, number(source))}
    if unknown := [name for name in wanted if name not in known]:
        raise BookError(f"no chapter {', '.join(unknown)}; choose from: {', '.join(map(number, sources))}.")
    return sorted({known[name] for name in wanted}) if wanted else sources


def number(source: Path) -> str:
    """What a chapter is called.

    Example:
        >>> number(Path("chapters/00_start_here.py"))
        '00'
    """
    return source.stem.partition("_")[0]


def read(source: Path) -> Any:
    """The notebook of a source, not executed, with cell ids that depend on the cells alone.

    An id is made of a cell's text, so that it stays while other cells come and go.

    Raises:
        BookError: for a code cell with nothing in it, which has no place in the count.
    """
    import jupytext

    notebook = jupytext.read(source, fmt="py:percent")
    seen: Counter[str] = Counter()
    for place, cell in enumerate(notebook.cells, start=1):
        if not cell.source.strip():
            raise BookError(f"{source.name}: cell {place} is empty; remove it.")
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        cell.id = f"{digest}-{seen[digest]}" if seen[digest] else digest
        seen[digest] += 1
    notebook.metadata["language_info"] = LANGUAGE
    notebook.nbformat, notebook.nbformat_minor = 4, 5  # the first with cell ids
    return notebook


def texts(output: Any) -> Iterator[tuple[Any, str]]:
    """Where an output keeps text, as (container, key); images are left out."""
    if "text" in output:
        yield output, "text"
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/") and isinstance(value, str):
            yield output["data"], kind


def manifest(root: Path) -> dict[str, dict[str, Any]]:
    """The records of all figures, by file name; empty before the first build.

    Raises:
        BookError: if the file cannot be read.
    """
    path = root / "figures" / "manifest.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BookError(f"{path} cannot be read ({error}); restore it, or remove it and build the book.") from error
