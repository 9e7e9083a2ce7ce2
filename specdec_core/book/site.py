"""The executed book as static pages: `python -m specdec_core.book.site [FOLDER]`.

Pages need no kernel, no script and no network: formulas become MathML, which browsers typeset themselves, images
are part of their page, and where a chapter has a widget the page shows what `viz.fallback` put beside it. A folder
is written only after every link, image and formula of its pages was found sound.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from . import links as booklinks
from .contents import BookError, chapters
from .page import STYLE, body

INDEX = "index.html"
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<nav aria-label="Chapters">
{menu}
</nav>
<main>
{body}
</main>
</body>
</html>
"""


def build(root: Path, folder: Path) -> int:
    """Write the site.

    Args:
        root: the folder that holds ``chapters``, with their built notebooks.
        folder: where the site goes. What is there is replaced if it is a site, and else left alone.

    Returns:
        the number of pages.

    Raises:
        BookError: if a chapter is not built, something on a page leads nowhere, or ``folder`` holds other files.
    """
    import nbformat

    if folder.exists() and any(folder.iterdir()) and not (folder / INDEX).is_file():
        raise BookError(f"{folder} holds other files than a site; name another folder, or empty it.")
    sources = chapters(root)
    if missing := [source.stem for source in sources if not source.with_suffix(".ipynb").is_file()]:
        raise BookError(f"not built yet: {', '.join(missing)}; run `make book` first.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        staged = Path(name) / folder.name
        staged.mkdir()
        (staged / "style.css").write_text(STYLE, encoding="utf-8")
        start = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(booklinks.contents(sources))])
        _write(staged / INDEX, "Contents", body(start), sources)
        for source in sources:
            notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
            booklinks.add(notebook, booklinks.navigation(source, sources))
            _write(staged / f"{source.stem}.html", booklinks.title(source), body(notebook), sources)
        if found := problems(staged):
            raise BookError("the site was not written:\n" + "\n".join(found))
        shutil.rmtree(folder, ignore_errors=True)
        staged.rename(folder)
    return len(sources) + 1


def _write(path: Path, title: str, content: str, sources: Sequence[Path]) -> None:
    here = ' aria-current="page"'
    pages = [(INDEX, "Contents"), *((f"{source.stem}.html", booklinks.title(source)) for source in sources)]
    menu = "\n".join(f'<a href="{page}"{here if page == path.name else ""}>{escape(name)}</a>' for page, name in pages)
    path.write_text(_PAGE.format(title=escape(title), menu=menu, body=content), encoding="utf-8")


def problems(folder: Path) -> list[str]:
    """What a reader of the pages would miss, one line each: dead links and images, images without words."""
    from bs4 import BeautifulSoup

    pages = {path.name: BeautifulSoup(path.read_text("utf-8"), "html.parser") for path in folder.glob("*.html")}
    ids = {name: {tag["id"] for tag in page.find_all(id=True)} for name, page in pages.items()}
    found = []
    for name, page in sorted(pages.items()):
        for link in page.find_all(["a", "link"], href=True):
            if fault := _link(link["href"], name, ids, folder):
                found.append(f"{name}: the link {link['href']!r} {fault}")
        for image in page.find_all("img"):
            if fault := _image(image, folder):
                found.append(f"{name}: the image {str(image)[:80]!r} {fault}")
        for element in page.find_all(["script", "iframe"]):
            found.append(f"{name}: <{element.name}> would need more than the page")
    return found


def _link(address: str, page: str, ids: dict[str, set[str]], folder: Path) -> str:
    parts = urlsplit(address)
    if parts.scheme in ("http", "https", "mailto"):
        return "" if parts.netloc or parts.path else "names no place"
    if parts.scheme or parts.netloc:
        return f"has a scheme that no page understands, {parts.scheme!r}"
    target = unquote(parts.path) or page
    if not (folder / target).is_file():
        return "leads to no file of the site"
    if parts.fragment and unquote(parts.fragment) not in ids.get(target, set()):
        return "leads to no place on its page"
    return ""


def _image(image: Any, folder: Path) -> str:
    if not image.get("alt", "").strip() or re.fullmatch(r"(?i)no description.*", image["alt"].strip()):
        return "has no alt text"
    head, _, data = image.get("src", "").partition(",")
    if not head.startswith("data:"):
        return "" if (folder / unquote(head)).is_file() else "is not a file of the site"
    try:
        content = base64.b64decode(data, validate=False) if head.endswith(";base64") else unquote(data).encode()
    except binascii.Error:
        content = b""
    kinds = {"data:image/png": b"\x89PNG", "data:image/svg+xml": b"<"}
    start = kinds.get(head.split(";")[0])
    return "" if start and content.startswith(start) else "is neither a PNG nor an SVG"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m specdec_core.book.site", description="The book as static pages.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("site"), help="where to (default: site)")
    arguments = parser.parse_args(argv)
    try:
        count = build(Path.cwd(), arguments.folder)
    except BookError as error:
        print(f"booksite: {error}", file=sys.stderr)
        return 2
    print(f"{count} pages; open {arguments.folder / INDEX}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
