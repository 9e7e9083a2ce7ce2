"""The table of contents, and the links from chapter to chapter: made from the order of the files, written nowhere
else. They are no part of a source: a built notebook has them in a last cell of their own.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base import files
from .contents import BookError, chapters

ID = "navigation"  # of the cell
CONTENTS = "README.md"  # in the folder of the chapters
_TITLE = re.compile(r"^# # (.+)$", re.MULTILINE)
_QUESTION = re.compile(r"^# > \*\*The question of this chapter\.\*\*((?:.*\n# >)*.*)$", re.MULTILINE)
_SECTION = re.compile(r"^# ## (.+)$", re.MULTILINE)
_IN_EVERY_CHAPTER = {"Set up", "Pitfalls", "Summary", "Further reading"}
_ABOUT = """\
An executable textbook on speculative decoding, and on its package `specdec_core`:
several tokens are guessed cheaply, and one forward of the large model checks them all.
Numbers and figures come from runs made in their chapter; those that come from a paper are labelled as quoted.

Begin with 00 and 01.
The trained drafters (02 to 04) and the model-free ones (05 to 10) can be read in either order.
11 compares all methods, and 12 asks what *lossless* means on a computer that rounds."""
_WIDTH = 110  # characters of a line, some of them of two bytes


def title(source: Path) -> str:
    """The heading of a chapter, as written.

    Raises:
        BookError: it has none.
    """
    if not (found := _TITLE.search(source.read_text(encoding="utf-8"))):
        raise BookError(f"{source.name}: a chapter begins with a heading, `# # Title`, in a markdown cell.")
    return found[1].strip()


def navigation(source: Path, sources: Sequence[Path]) -> str:
    """The text of the last cell: the chapter before, the one after, and the contents."""
    place = sources.index(source)
    near = [("Previous", sources[place - 1 : place]), ("Next", sources[place + 1 : place + 2])]
    links = [f"**{word}:** [{title(found[0])}]({found[0].stem}.ipynb)" for word, found in near if found]
    return "---\n" + " · ".join([*links, f"[Contents]({CONTENTS})"])


def contents(sources: Sequence[Path]) -> str:
    """The table of contents, in Markdown: what the book is, and of each chapter its question and its sections."""
    lines = ["# Contents", "", _ABOUT, ""]
    for source in sources:
        text = source.read_text(encoding="utf-8")
        lines.append(f"- **[{title(source)}]({source.stem}.ipynb)**")
        if asked := _QUESTION.search(text):
            lines += [f"  {line.strip()}" for line in asked[1].split("\n# >") if line.strip()]
        if sections := [name.strip() for name in _SECTION.findall(text) if name.strip() not in _IN_EVERY_CHAPTER]:
            listed = f"<br><sub>{' · '.join(sections)}</sub>"
            lines += textwrap.wrap(listed, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
    return "\n".join([*lines, "", "*Made from the chapters by* `make book`."]) + "\n"


def add(notebook: Any, text: str) -> None:
    """Give a notebook the cell with the links, in place of the one it may have."""
    import nbformat

    notebook.cells = [cell for cell in notebook.cells if cell.get("id") != ID]
    notebook.cells.append(nbformat.v4.new_markdown_cell(text, id=ID))


def link(root: Path) -> None:
    """Write the table of contents, and bring the links of every built notebook up to date; nothing is executed."""
    import nbformat

    sources = chapters(root)
    files.write(root / "chapters" / CONTENTS, contents(sources))
    for source in sources:
        path = source.with_suffix(".ipynb")
        if not path.is_file():
            continue
        before = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(before, as_version=nbformat.NO_CONVERT)
        add(notebook, navigation(source, sources))
        after = nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"
        if after != before:
            files.write(path, after)


def problems(root: Path) -> list[str]:
    """What is out of date in the table of contents and the links, one line each."""
    import nbformat

    sources, found = chapters(root), []
    advice = "run `python -m specdec_core.book.build --links`"
    path = root / "chapters" / CONTENTS
    if not path.is_file() or path.read_text(encoding="utf-8") != contents(sources):
        found.append(f"chapters/{CONTENTS} is not the table of contents of the chapters; {advice}")
    for source in sources:
        path = source.with_suffix(".ipynb")
        if path.is_file():
            cells = nbformat.read(path, as_version=nbformat.NO_CONVERT).cells
            if not cells or (cells[-1].get("id"), cells[-1].source) != (ID, navigation(source, sources)):
                found.append(f"{path.name} does not end with the links to its neighbors; {advice}")
    return found
