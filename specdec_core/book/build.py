"""Build the book: `python -m specdec_core.book.build [CHAPTER ...] [--check | --links]`.

Each ``chapters/NN_name.py`` (jupytext, percent format) is executed from top to bottom by this interpreter and
becomes ``NN_name.ipynb`` beside it, its figures become files of ``figures/`` with a line in the manifest. A
chapter is written only when all of its cells ran: whatever interrupts or fails leaves the last whole one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..base import files
from ..viz.fallback import VIEW
from ..viz.figures import FOLDER
from . import links as booklinks
from .check import problems
from .contents import LANGUAGE, BookError, chapters, manifest, number, read, texts
from .memory import PeakOf


def build(source: Path, root: Path, timeout: float = 600) -> None:
    """Execute one chapter and write it, its figures and their records.

    Args:
        source: the chapter.
        root: the folder that holds ``chapters`` and ``figures``.
        timeout: seconds that one cell may take.

    Raises:
        BookError: if a cell fails, takes too long, or shows a widget that no static page stands in for.
        KeyboardInterrupt: passed on, after saying where.
    """
    start, notebook = perf_counter(), read(source)
    with tempfile.TemporaryDirectory() as staged:
        warned, drawn, peak = _execute(notebook, source, Path(staged), timeout)
        _tidy(notebook, source, root)
        figures = _figures(drawn, source)
        _publish(notebook, source, root, figures, Path(staged))
    for place, text in warned:
        print(f"chapter {number(source)}: cell {place} wrote to stderr (not on the page):\n{text}", file=sys.stderr)
    seconds, most = perf_counter() - start, f"{peak / 1e9:.2f} GB of memory at most"
    print(f"chapter {number(source)}: done in {seconds:.0f} s, {len(figures)} figures, {most}", flush=True)


def _execute(
    notebook: Any, source: Path, staged: Path, timeout: float
) -> tuple[list[tuple[int, str]], dict[Path, tuple[int, str]], int]:
    """Run all cells in place.

    Returns:
        what went to stderr, by cell, which is taken off the page; for each figure's record that appeared in
        ``staged``, the number and the id of the cell that had just run; and the bytes that the kernel held at most.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    name, code = number(source), [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    how = {"store_widget_state": False, "shutdown_kernel": "immediate", **how_to_run(source)}
    client = NotebookClient(notebook, timeout=timeout, **how)
    place, warned, drawn = 0, [], {}
    try:
        with client.setup_kernel(env={**os.environ, FOLDER: str(staged)}):
            peak = PeakOf(client.km.provisioner.pid)
            for place, (index, cell) in enumerate(code, start=1):
                _progress(f"chapter {name}: cell {place} of {len(code)}", last=place == len(code))
                client.execute_cell(cell, index)
                drawn |= {path: (place, cell.id) for path in staged.glob("*.json") if path not in drawn}
                warned += [(place, out.text) for out in cell.outputs if out.get("name") == "stderr"]
                cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
            return warned, drawn, peak.end()
    except CellTimeoutError as error:
        raise BookError(f"chapter {name}: cell {place} of {len(code)} took more than {timeout:.0f} s.") from error
    except DeadKernelError as error:
        raise BookError(f"chapter {name}: the kernel died in cell {place} of {len(code)}; memory?") from error
    except CellExecutionError as error:
        traceback = re.sub(r"\x1b\[[0-9;]*m", "", str(error.traceback)).strip()
        raise BookError(
            f"chapter {name}: cell {place} of {len(code)} failed, and the chapter was left as it was.\n{traceback}"
        ) from error
    except KeyboardInterrupt:
        # The cell that was running is a task of asyncio, which would complain about its end.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        print(f"\nchapter {name}: interrupted in cell {place} of {len(code)}; left as it was.", file=sys.stderr)
        raise


def how_to_run(source: Path) -> dict[str, Any]:
    """Options of nbclient that chapters and exercises share: where and by what a notebook is run, and no noise."""
    place = {"resources": {"metadata": {"path": str(source.parent)}}, "kernel_manager_class": this_python()}
    quiet = {"record_timing": False, "coalesce_streams": True, "extra_arguments": ["--log-level=ERROR"]}
    return {"kernel_name": "python3", **place, **quiet}


def this_python() -> type:
    """A kernel manager that starts this interpreter, whatever kernels the user has registered."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class ThisPython(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            return KernelSpec(argv=argv, display_name="Python 3", language="python")

    return ThisPython


def _progress(text: str, last: bool) -> None:
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="\n" if last else "", flush=True)
    else:
        print(text, flush=True)


def _tidy(notebook: Any, source: Path, root: Path) -> None:
    """Take off the page what would mean nothing to its reader: dead widgets, and this machine's paths."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = LANGUAGE
    places = {str(root.resolve()): "…", sys.prefix: "…", tempfile.gettempdir(): "…", str(Path.home()): "~"}
    for place, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.metadata.pop("execution", None)
        for output in cell.outputs:
            data = output.get("data", {})
            if data.pop(VIEW, None) and "text/html" not in data:
                raise BookError(
                    f"chapter {number(source)}: cell {place} shows a widget that a page without a kernel cannot; "
                    f"display it with viz.fallback.show, which takes a static page as well."
                )
            for holder, key in texts(output):
                for path, short in places.items():
                    if len(path) > 1:
                        holder[key] = holder[key].replace(path, short)


def _figures(drawn: dict[Path, tuple[int, str]], source: Path) -> dict[str, dict[str, Any]]:
    """The records of the figures that a chapter left, by file name, with the cell that drew each."""
    found = {}
    for path, (place, cell) in sorted(drawn.items()):
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry["chapter"] != number(source):
            raise BookError(f"chapter {number(source)} names a figure {path.stem}; begin its name with its own number.")
        found[f"{path.stem}.svg"] = {**entry, "cell": cell, "code_cell": place}
    return found


def _publish(notebook: Any, source: Path, root: Path, figures: dict[str, dict[str, Any]], staged: Path) -> None:
    """Write the figures, the manifest and, last of all, the notebook, each of them whole."""
    import nbformat

    folder = root / "figures"
    folder.mkdir(exist_ok=True)
    old = manifest(root)
    gone = {name for name, entry in old.items() if entry["chapter"] == number(source)} - set(figures)
    for name in figures:
        files.write(folder / name, (staged / name).read_bytes())
    kept = {name: entry for name, entry in old.items() if entry["chapter"] != number(source)}
    text = json.dumps(dict(sorted({**kept, **figures}.items())), indent=2, ensure_ascii=False) + "\n"
    files.write(folder / "manifest.json", text)
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    booklinks.add(notebook, booklinks.navigation(source, chapters(root)))
    nbformat.validate(notebook)
    files.write(source.with_suffix(".ipynb"), nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m specdec_core.book.build", description="Execute the chapters.")
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help="numbers or names (default: all)")
    parser.add_argument("--check", action="store_true", help="compare notebooks with their sources")
    parser.add_argument("--links", action="store_true", help="renew contents and links; nothing is executed")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds for a cell (default: 600)")
    arguments = parser.parse_args(argv)
    root = Path.cwd()
    try:
        sources = chapters(root, arguments.chapters)
        if arguments.check:
            found = [line for source in sources for line in problems(source, root)] + booklinks.problems(root)
            print("\n".join(found) or f"{len(sources)} chapters match their sources.")
            return 1 if found else 0
        start = perf_counter()
        for source in sources if not arguments.links else ():
            build(source, root, arguments.timeout)
        booklinks.link(root)
        if not arguments.links:
            print(f"the book: {len(sources)} chapters in {perf_counter() - start:.0f} s")
        return 0
    except BookError as error:
        print(f"bookbuild: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
