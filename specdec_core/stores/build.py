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

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..base.files import check_room, filling, write
from ..base.records import sealed, sizes
from . import files
from .files import HEADER, HEADS, SUFFIXES, TOKENS, DatastoreError, Ids, TokenizerId, token_dtype
from .sorting import heads_of, joined, sorted_suffixes
from .store import SuffixStore

_WORK, _DATA = ".new-", "data-"  # how the names of folders of data begin, before they are whole and afterwards


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
        DatastoreError: no tokens, an id out of range, no room. Of two builds at once the second waits for the first.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = build_store(f"{folder}/mine", [[1, 2, 3], [1, 2, 4]], vocab_size=5)
        >>> len(store), store.header["documents"]  # with a separator after each document
        (8, 2)
    """
    folder = files.place(name)
    with filling(folder, "building the datastore", DatastoreError, partial(_sweep, folder), say=say) as work:
        assert work is not None  # there is always something to do
        header = _fill(work, documents, vocab_size, limit, say)
        header |= {"tokenizer": tokenizer._asdict() if tokenizer else None, "sources": list(sources)}
        header["data"] = work.name.replace(_WORK, _DATA)
        os.replace(work, folder / header["data"])
        write(folder / HEADER, sealed(header))
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
            file.write(part)  # `tofile` would not say that a disk is full
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
            file.write(piece)
    clock.append(perf_counter())
    say("Recording sizes and hashes")
    order = np.memmap(data / SUFFIXES, index_dtype, "r", shape=(size,))
    (data / HEADS).write_bytes(heads_of(tokens, order).tobytes())
    made = sizes(data / name for name in (TOKENS, SUFFIXES, HEADS))
    files.note_checked(data)
    clock.append(perf_counter())
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    header = {"format": files.FORMAT, "version": files.VERSION, "created": created, "tokens": size, "documents": count}
    header |= {"vocab_size": vocab_size, "token_dtype": dtype.str, "index_dtype": index_dtype.str}
    header["seconds"] = dict(zip(("read", "sort", "hash"), np.diff(clock).tolist(), strict=True))
    return {**header, "files": made}


def _sweep(folder: Path) -> None:
    """Remove what interrupted builds left, and data that the header no longer names."""
    header = folder / HEADER
    try:
        keep = files.read_header(folder)["data"] if header.exists() else None
    except DatastoreError:
        return  # a damaged header: nothing is deleted until a new one says what the store is
    for data in (*folder.glob(_DATA + "*"), *folder.glob(_WORK + "*")):
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
    check_room(data.parent, size * (4 if size < 2**32 else 8), "The suffix array", DatastoreError)
