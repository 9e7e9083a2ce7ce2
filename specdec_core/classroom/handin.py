"""What was handed in: every file of a folder is a paper to grade, or named with the reason why it is none.

Links are not followed. Archives are opened by a process with bounds, into files numbered by us: no path that an
archive names is ever one of ours.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .apart import answering, apart

DEEPEST = 40  # folders within folders, and
NESTED = 2  # archives within archives, that are looked into
MOST_MEMBERS, MOST_BYTES, MOST_ALL_BYTES, MOST_RATIO = 2_000, 60 << 20, 256 << 20, 200
_NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)  # browsers add the second ending
_LITTER = re.compile(r"\._.*|\.DS_Store|Thumbs\.db|desktop\.ini|__MACOSX|\.ipynb_checkpoints|\.git", re.IGNORECASE)
NOT_NOTEBOOK, LINK, EMPTY = "not a notebook", "a link: hand in the file itself", "an empty folder"


@dataclass
class Paper:
    """One thing that was handed in.

    Attributes:
        key: its path below the root, "/" between its parts, archives like folders; no two papers have the same.
        path: where it lies now.
        refused: why it cannot be graded; empty if it can.
        moment: when it was changed last, in seconds since 1970.
        within: how many archives it was in.
    """

    key: str
    path: Path
    refused: str = ""
    moment: float = 0.0
    within: int = 0


@dataclass
class HandIn:
    """All of a folder: papers in order of their keys, and litter of systems and editors, with what it is."""

    root: Path
    papers: list[Paper] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)


def collect(path: Path, scratch: Path, mine: Collection[Path] = ()) -> HandIn:
    """Everything at a path: a notebook, an archive, or a folder of them.

    Args:
        path: where to look.
        scratch: a folder for what is in archives.
        mine: files that are no hand-ins though they may lie in the folder: the teacher's roster, earlier results.
    """
    found = HandIn(path if path.is_dir() else path.parent)
    ours = {file.resolve() for file in mine}
    todo = list(_walk(path)) if path.is_dir() else [Paper(path.name, path, "", path.stat().st_mtime)]
    keys: set[str] = set()
    while todo:
        paper = todo.pop(0)
        if _is_litter(paper.key):
            found.litter.append(paper.key)
        elif not paper.refused and paper.path.resolve() in ours:
            continue
        elif not paper.refused and paper.key.lower().endswith(".zip"):
            todo += _opened(paper, scratch)
        else:
            if not paper.refused and not _NOTEBOOK.search(paper.key):
                paper.refused = NOT_NOTEBOOK
            while paper.key in keys:  # an archive may have two members of one name
                paper.key += "'"
            keys.add(paper.key)
            found.papers.append(paper)
    found.papers.sort(key=lambda paper: paper.key)
    return found


def _walk(root: Path) -> Iterator[Paper]:
    """All files below a folder, and the folders and links that hide some."""
    folders = [(str(root), "", 0)]
    while folders:
        folder, prefix, depth = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            yield Paper(prefix.rstrip("/") or ".", Path(folder), f"not readable: {error.strerror}")
            continue
        if not entries:
            yield Paper(prefix.rstrip("/") or ".", Path(folder), EMPTY)
        for entry in entries:
            key, path = prefix + entry.name, Path(entry.path)
            if entry.is_symlink():
                yield Paper(key, path, LINK)
            elif entry.is_dir() and depth == DEEPEST:
                yield Paper(key, path, f"below {DEEPEST} folders, and not looked into")
            elif entry.is_dir():
                if _LITTER.fullmatch(entry.name):
                    yield Paper(key, path)
                else:
                    folders.append((entry.path, key + "/", depth + 1))
            elif entry.is_file():
                yield Paper(key, path, "", entry.stat().st_mtime)
            else:
                yield Paper(key, path, "not a file")


def _opened(paper: Paper, scratch: Path) -> list[Paper]:
    """The members of an archive; or the archive, with the reason why it stays closed."""

    def closed(why: str) -> list[Paper]:
        return [Paper(paper.key, paper.path, why, paper.moment)]

    if paper.within == NESTED:
        return closed("an archive within an archive within an archive")
    to = scratch / f"archive-{sum(1 for _ in scratch.iterdir())}"
    to.mkdir()
    said = apart("handin", str(paper.path), str(to))
    if isinstance(said, str) or "refused" in said:
        return closed(f"not opened: {said if isinstance(said, str) else said['refused']}")
    members = [
        Paper(f"{paper.key}/{name}", to / file, *rest, paper.within + 1) for name, file, *rest in said["members"]
    ]
    worth = [name for name, *_ in said["members"] if _NOTEBOOK.search(name) or name.lower().endswith(".zip")]
    if all(_is_litter(name) for name in worth):
        members += closed("an archive with no notebook in it")
    return members


def _is_litter(key: str) -> bool:
    return any(_LITTER.fullmatch(part) for part in key.split("/"))


def unpack(archive: Path, to: Path) -> dict:
    """The members of a zip file, written to numbered files.

    Returns:
        ``{"members": [[name, file, why it was left, moment], ...]}``, or ``{"refused": why}`` for all of it.

    Example:
        >>> unpack(Path("nothing.zip"), Path("."))
        {'refused': 'No such file or directory'}
    """
    members: list[list] = []
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = [info for info in opened.infolist() if not info.is_dir()]
            if len(infos) > MOST_MEMBERS:
                return {"refused": f"{len(infos):,} files; at most {MOST_MEMBERS:,}"}
            if not infos:
                return {"refused": "there is nothing in it"}
            left = MOST_ALL_BYTES
            for number, info in enumerate(infos):
                name, why = info.filename.replace("\\", "/"), _unsafe(info)
                if not why:
                    why, size = _written(opened, info, to / str(number), min(left, MOST_BYTES))
                    left -= size
                moment = time.mktime((*info.date_time, 0, 0, -1)) if info.date_time[1] else 0.0
                members.append([name, str(number), why, moment])
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, OverflowError) as error:
        return {"refused": getattr(error, "strerror", None) or str(error) or type(error).__name__}
    return {"members": members}


def _unsafe(info: zipfile.ZipInfo) -> str:
    name = info.filename.replace("\\", "/")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in name.split("/"):
        return "its path leads out of the archive"
    if kind not in (0, stat.S_IFREG):
        return LINK if kind == stat.S_IFLNK else "not a file"
    return "encrypted" if info.flag_bits & 1 else ""


def _written(opened: zipfile.ZipFile, info: zipfile.ZipInfo, to: Path, most: int) -> tuple[str, int]:
    """Write a member; why it was given up, and how many bytes it has taken."""
    size = 0
    try:
        with opened.open(info) as source, open(to, "wb") as out:
            while block := source.read(1 << 16):
                size += len(block)
                if size > most or (size > 1 << 20 and size > MOST_RATIO * info.compress_size):
                    out.truncate(0)
                    return "it expands to more than an archive may", size
                out.write(block)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, zlib.error) as error:
        return f"damaged: {error}", size
    return "", size


if __name__ == "__main__":
    with answering() as answer:
        answer(unpack(Path(sys.argv[1]), Path(sys.argv[2])))
