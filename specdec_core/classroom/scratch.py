"""Scratch folders: one for each submission, gone afterwards whatever was made in it, and whatever ended the grader."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "specdec-grade-"
_HELD = ".held"  # locked as long as the grader that made the folder is there


@contextmanager
def workplace() -> Iterator[Path]:
    """A new folder for our own files, gone in the end; what graders that were killed have left goes with it."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with open(folder / _HELD, "w") as held:
            _lock(held)
            yield folder
    finally:
        clear(folder)


def _lock(file) -> None:
    """Hold a file until it is closed, or its process is gone.

    Raises:
        OSError: if another one holds it.
    """
    with suppress(ImportError):  # Windows, where nothing is graded
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sweep(temporary: Path) -> None:
    with suppress(OSError):
        for folder in temporary.glob(f"{PREFIX}*"):
            with suppress(OSError):
                mine = folder.stat().st_uid == os.getuid() and not folder.is_symlink()
                if mine and not (folder / _HELD).exists() and time.time() - folder.stat().st_mtime > 60:
                    clear(folder)
                elif mine:
                    with open(folder / _HELD) as held:
                        _lock(held)
                        clear(folder)


def clear(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep; what cannot be removed stays, and nothing is raised.

    Folders within folders are moved up first, so that no path becomes longer than the system can take.
    """
    numbers = itertools.count()
    with suppress(OSError):
        os.chmod(folder, 0o700)
        while True:
            inner = [entry for entry in os.scandir(folder) if not _unlinked(entry)]
            if not inner:
                break
            for entry in inner:
                os.chmod(entry.path, 0o700)  # an answer may have made it unreadable
                for deep in os.scandir(entry.path):
                    if not _unlinked(deep):
                        os.rename(deep.path, folder / f".up{next(numbers)}")
                os.rmdir(entry.path)
        os.rmdir(folder)


def _unlinked(entry: os.DirEntry) -> bool:
    """Remove what is no folder; whether it was removed."""
    if entry.is_dir(follow_symlinks=False):
        return False
    os.unlink(entry.path)
    return True


def used(folder: Path, most_entries: int = 20_000) -> int:
    """Bytes on disk of the files in a folder; a number above every limit if there are too many of them to count."""
    total, seen, folders = 0, 0, [str(folder)]
    while folders:
        with suppress(OSError):
            for entry in os.scandir(folders.pop()):
                seen += 1
                if seen > most_entries:
                    return 1 << 62
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total
