"""Check the book as it is committed: that each notebook is its source, executed, and fit for another machine.

`python -m specdec_core.book.build --check` prints what this finds; nothing is executed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ..viz.fallback import VIEW
from . import links as booklinks
from .contents import manifest, number, read, texts

# An absolute path that some machine has and the reader's does not.
_PATH = re.compile(
    r"(?<![\w.:/])/(?:home|root|Users|tmp|usr|opt|var|mnt|private|content)/\w[^\s'\"<>]*|\b[A-Z]:\\\\?\w\S*"
)
_DATA_URI = re.compile(r"data:[\w/+-]+;base64,[A-Za-z0-9+/=]+")


def problems(source: Path, root: Path) -> list[str]:
    """What is wrong with a built chapter, one line each: other cells than its source, errors, paths, counts."""
    import nbformat

    path = source.with_suffix(".ipynb")
    if not path.is_file():
        return [f"{path.name} is missing; build the chapter"]
    built, wanted = nbformat.read(path, as_version=nbformat.NO_CONVERT), read(source)
    found = []
    cells = [(cell.cell_type, cell.get("id"), cell.source) for cell in built.cells if cell.get("id") != booklinks.ID]
    if cells != [(cell.cell_type, cell.id, cell.source) for cell in wanted.cells]:
        found.append("its cells are not those of the source; build it again")
    if "widgets" in built.metadata:
        found.append("it holds the state of widgets (metadata.widgets)")
    code = [cell for cell in built.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append(f"its execution counts are {[cell.execution_count for cell in code]}, not 1 ... {len(code)}")
    for place, cell in enumerate(code, start=1):
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"code cell {place} holds an error: {output.ename}: {output.evalue}")
            if output.get("name") == "stderr":
                found.append(f"code cell {place} holds output of stderr")
            if VIEW in output.get("data", {}):
                found.append(f"code cell {place} refers to a widget that is gone")
            for holder, key in texts(output):
                if paths := local_paths(holder[key], root):
                    found.append(f"code cell {place} shows a path of some machine: {paths[0]}")
    ids = {cell.get("id") for cell in code}
    for name, entry in manifest(root).items():
        if entry["chapter"] == number(source):
            if entry["cell"] not in ids:
                found.append(f"{name} was drawn by a cell that no longer exists")
            if not (root / "figures" / name).is_file():
                found.append(f"figures/{name} is missing")
    return [f"{path.name}: {line}" for line in found]


def local_paths(text: str, root: Path) -> list[str]:
    """Absolute paths in a text, images in it not counted.

    Example:
        >>> local_paths("see figures/00-race.svg, https://example.org/usr/x", Path("."))
        []
        >>> local_paths("File /home/ada/x.py, line 3", Path("."))
        ['/home/ada/x.py,']
    """
    text = _DATA_URI.sub("", text)
    found = _PATH.findall(text)
    return found + [place for place in (str(root.resolve()), sys.prefix) if len(place) > 1 and place in text]
