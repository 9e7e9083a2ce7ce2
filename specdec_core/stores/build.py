"""Build a datastore: token ids to a file, the file's suffixes into order, and all of it into place.

Sorting is libdivsufsort's, through pydivsufsort, which sorts the suffixes of a string of bytes. The tokens
are big-endian numbers of w bytes, so the byte suffixes that start at a multiple of w are in the order of the
token suffixes (`store` says why, and a suffix that is a prefix of another comes first in both); the
others are dropped. That costs w times the entries: for M tokens 5 w M bytes of memory at the peak (w M of
bytes and 4 w M of sorted positions), 10 M at w = 2 and 20 M at w = 4, and above 2**31 bytes of tokens, where
positions take 8 bytes, 9 w M. On disk a store takes (w + 4) M.

An interrupted build leaves the old store as it was. The files of a build lie in a folder of its own inside
the store's folder; the last act is to replace the header, one file, which names that folder. The next build
removes what an interrupted one left, and starts afresh: reading texts takes minutes at most.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..base.files import whole
from ..model.manifest import file_hash
from . import files
from .files import HEADER, HEADS, SUFFIXES, TOKENS, DatastoreError, Ids, TokenizerId, token_dtype
from .sorting import heads_of, joined, sorted_suffixes
from .store import SuffixStore

_DATA = "data-"  # how the names of folders of data begin


def build_store(
    name: str | Path,
    documents: Iterable[Ids],
    vocab_size: int,
    tokenizer: TokenizerId | None = None,
    sources: Sequence[str] = (),
    limit: int | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> SuffixStore:
    """Build the store ``name`` from token ids and open it; an older one of that name is replaced at the end.

    Args:
        name: as in `SuffixStore.open`.
        documents: token ids, one sequence per document; empty ones are left out.
        vocab_size: V; ids must be below it.
        tokenizer: what made the ids, so that a model with another is refused.
        sources: where the documents come from, for `specdec datastore info`.
        limit: stop before the document that would make more than so many tokens.
        say: called with a line of progress now and then.

    Raises:
        DatastoreError: no tokens, an id out of range, no room, another build of this store going on.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = build_store(f"{folder}/mine", [[1, 2, 3], [1, 2, 4]], vocab_size=5)
        >>> len(store), store.header["documents"]  # with a separator after each document
        (8, 2)
    """
    folder = files.place(name)
    with _refusals_explained(folder), _lock(folder):
        _sweep(folder)
        data = Path(tempfile.mkdtemp(prefix=_DATA, dir=folder))
        try:
            header = _fill(data, documents, vocab_size, limit, say)
            header |= {"tokenizer": tokenizer._asdict() if tokenizer else None, "sources": list(sources)}
            _put_header(folder, header)
        except BaseException:
            shutil.rmtree(data, ignore_errors=True)
            raise
        _sweep(folder)
    return SuffixStore.open(folder)


def _fill(
    data: Path, documents: Iterable[Ids], vocab_size: int, limit: int | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Write the files of a store; their record."""
    dtype, size, count = token_dtype(vocab_size), 0, 0
    clock = [perf_counter()]
    with open(data / TOKENS, "wb") as file:
        for part in joined(documents, vocab_size):
            if limit is not None and size + len(part) > limit:
                break
            part.tofile(file)
            size, count = size + len(part), count + 1
    if not size:
        more = f" within the limit of {limit:,} tokens" if limit is not None else ""
        raise DatastoreError(f"a datastore needs at least one document with a token in it{more}; got none")
    _check_room(data, size, dtype.itemsize)
    clock.append(perf_counter())
    say(f"Sorting {size:,} suffixes")
    # Copy-on-write only because the sorter's wrapper takes no read-only array; nothing is written.
    tokens = np.memmap(data / TOKENS, dtype, "c", shape=(size,))
    with open(data / SUFFIXES, "wb") as file:
        for piece in sorted_suffixes(tokens):
            index_dtype = piece.dtype
            piece.tofile(file)
    clock.append(perf_counter())
    say("Recording sizes and hashes")
    heads_of(tokens, np.memmap(data / SUFFIXES, index_dtype, "r", shape=(size,))).tofile(data / HEADS)
    made = {}
    for name in (TOKENS, SUFFIXES, HEADS):
        path = data / name
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
        made[name] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
    files.note_checked(data, {name: (data / name).stat().st_mtime_ns for name in made})
    clock.append(perf_counter())
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    header = {"format": files.FORMAT, "version": files.VERSION, "created": created, "tokens": size, "documents": count}
    header |= {"vocab_size": vocab_size, "token_dtype": dtype.str, "index_dtype": index_dtype.str}
    header["seconds"] = dict(zip(("read", "sort", "hash"), np.diff(clock).tolist(), strict=True))
    return {**header, "data": data.name, "files": made}


def _put_header(folder: Path, header: dict[str, Any]) -> None:
    with whole(folder / HEADER) as new, open(new, "w", encoding="utf-8") as file:
        json.dump({**header, "sha256": files.record_hash(header)}, file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def _sweep(folder: Path) -> None:
    """Remove what interrupted builds left, and data that the header no longer names."""
    try:
        keep = json.loads((folder / HEADER).read_text(encoding="utf-8"))["data"]
    except FileNotFoundError:
        keep = None
    except (OSError, ValueError, KeyError, TypeError):
        return  # a damaged header: nothing is deleted until a new one says what the store is
    for data in folder.glob(_DATA + "*"):
        if data.name != keep:
            shutil.rmtree(data, ignore_errors=True)


def _check_room(data: Path, size: int, width: int) -> None:
    import psutil

    memory, free = size * width * (5 if size * width < 2**31 else 9), psutil.virtual_memory().available
    if memory > free:
        raise DatastoreError(
            f"Sorting {size:,} tokens needs {memory / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are free. "
            "Close other programs, or build from less text (--limit)."
        )
    disk, free = size * (4 if size < 2**32 else 8), shutil.disk_usage(data).free
    if disk > free:
        raise DatastoreError(
            f"The suffix array needs {disk / 1e9:.1f} GB under {data.parent}; {free / 1e9:.1f} GB are free. "
            "Make room, or set SPECDEC_HOME to a folder on another disk."
        )


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout as error:
        raise DatastoreError(f"Another process is building {folder}. Wait for it, or use another --name.") from error
    with lock:
        yield


@contextmanager
def _refusals_explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "The disk is full" if full else "The operating system refused"
        do = "Make room" if full else "Check its permissions"
        raise DatastoreError(
            f"{what} while building {folder} ({error}). {do}, or set SPECDEC_HOME to another folder. "
            "An older store there is as it was."
        ) from error
