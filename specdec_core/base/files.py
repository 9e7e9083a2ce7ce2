"""Files and folders that are whole or absent, and words for what the operating system refuses."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import SpecdecError


def write(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all."""
    with whole(path) as unfinished:
        unfinished.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Another name to write a file under; it is flushed and renamed to ``path`` in the end, or removed if it fails."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        yield unfinished
        flush(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Have the disk hold a file's bytes."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def filling(
    folder: Path,
    doing: str,
    error: type[SpecdecError],
    sweep: Callable[[], None],
    done: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda message: print(message, file=sys.stderr, flush=True),
) -> Iterator[Path | None]:
    """A new folder inside ``folder``, one process at a time; what is left of it in the end is removed.

    Args:
        folder: made if it is not there.
        doing: for messages, such as "building the datastore".
        error: what a refusal of the operating system becomes.
        sweep: removes what an interrupted process left; called under the lock.
        done: whether there is nothing to do, another process having done it perhaps; then None is yielded.
        say: called if another process has to be waited for.

    Raises:
        SpecdecError: of the kind ``error``; see `explained`.
    """
    from filelock import FileLock, Timeout

    with explained(f"{doing} in {folder}", error):
        if done():
            yield None
            return
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            say(f"Another process is {doing} in {folder}; waiting for it")
            held = lock.acquire()
        with held:
            sweep()
            if done():
                yield None
                return
            work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)


def check_room(folder: Path, needed: int, what: str, error: type[SpecdecError]) -> None:
    """Refuse what the disk of ``folder`` has no room for, ``needed`` bytes, before any of it is made."""
    if needed > (free := shutil.disk_usage(folder).free):
        raise error(
            f"{what} needs {needed / 1e6:,.0f} MB under {folder}; {free / 1e6:,.0f} MB are free. "
            "Make room, or set SPECDEC_HOME to a folder on another disk."
        )


@contextmanager
def explained(
    doing: str,
    error: type[SpecdecError] = SpecdecError,
    instead: str = "set SPECDEC_HOME to a folder on another disk",
) -> Iterator[None]:
    """Turn what the operating system refuses into a message that says why, and what to do ``instead``."""
    try:
        yield
    except Exception as refused:
        if (code := _code(refused)) is None:
            raise
        words, advice = _WORDS.get(code, _OTHER)
        advice = f"{advice}, or {instead}. What was there before is as it was."
        raise error(f"{words} while {doing} ({refused}). {advice}") from refused


_OTHER = "The operating system refused", "Check its permissions and close programs that use it"
_WORDS = {
    errno.ENOSPC: ("The disk is full", "Make room there"),
    getattr(errno, "EDQUOT", errno.ENOSPC): ("The disk is full for this user", "Make room there"),
    errno.EROFS: ("The file system is read-only", "Make it writable"),
}


def _code(error: Exception) -> int | None:
    """The system's number of an error that is its own, else None. safetensors has it in its text."""
    if isinstance(error, OSError):
        return None if isinstance(error, BrokenPipeError) else error.errno or errno.EIO  # a reader may leave early
    found = re.search(r"os error (\d+)", str(error)) if type(error).__name__ == "SafetensorError" else None
    return int(found[1]) if found else None
