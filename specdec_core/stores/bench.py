"""How long a query takes, against the size of the datastore, cold and warm.

Contexts are positions of this package's own source, which `texts.code_files` leaves out: real code,
that the store has not seen. A query is what REST does per step: find the longest match, read its continuations.
Warm: the pages that queries touch are in memory. Cold: the system has dropped the store's pages before each
query; a disk's or a hypervisor's own cache may still hold them.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil

from .build import build_store
from .files import HEADS, SUFFIXES, TOKENS
from .store import SuffixStore

_COLD_QUERIES = 50


def contexts_of_own_source(tokenizer: Any, count: int, length: int = 16) -> list[list[int]]:
    """``count`` contexts of ``length`` tokens each, at random places of this package's source."""
    draw = random.Random(0)
    files = sorted(Path(__file__).parent.parent.rglob("*.py"))
    texts = [tokenizer.encode(path.read_text(encoding="utf-8"), add_special_tokens=False) for path in files]
    places = [(text, end) for text in texts for end in range(length, len(text))]
    return [text[end - length : end] for text, end in draw.choices(places, k=count)]


def measure(
    store: SuffixStore,
    sizes: Sequence[int],
    contexts: Sequence[Sequence[int]],
    say: Callable[[str], None] = lambda message: None,
) -> list[dict[str, Any]]:
    """Time queries on the first tokens of ``store`` at each size, and on all of it.

    Args:
        store: one in memory is written to files for the while.
        sizes: in tokens.
        contexts: what is looked up.
        say: called with a line of progress now and then.

    Returns:
        one row per size: tokens, bytes, median and 99th percentile in milliseconds of `find` and of the whole
        query, warm, and of the whole query cold (None where pages cannot be dropped); the growth of resident
        memory during the warm queries, in bytes; the mean match length.
    """
    rows = []
    gc.freeze()  # between cold queries garbage is collected; it need not search what was there before, such as a model
    try:
        with tempfile.TemporaryDirectory() as folder:
            for size in [*sorted(size for size in sizes if size < len(store)), len(store)]:
                place = Path(folder) / str(size)
                if size < len(store) or not store.header:
                    say(f"building a store of {size:,} tokens")
                    build_store(place, _documents(store, size), store.vocab_size)
                else:
                    place = _data(store).parent
                say(f"querying {size:,} tokens")
                rows.append(_row(place, contexts))
    finally:
        gc.unfreeze()
    return rows


def _data(store: SuffixStore) -> Path:
    """The folder of a store's arrays."""
    assert isinstance(store.tokens, np.memmap) and store.tokens.filename, "a store in memory has no files"
    return Path(store.tokens.filename).parent


def _documents(store: SuffixStore, size: int) -> list[np.ndarray]:
    tokens = np.asarray(store.tokens[:size])
    ends = np.flatnonzero(tokens == store.separator)
    return [part[part != store.separator] for part in np.split(tokens, ends)]


def _row(place: Path, contexts: Sequence[Sequence[int]]) -> dict[str, Any]:
    cold = _cold(place, contexts[:_COLD_QUERIES])
    store = SuffixStore.open(place)
    before = psutil.Process().memory_info().rss
    for context in contexts:  # the pages come in
        _query(store, context)
    resident = psutil.Process().memory_info().rss - before
    timed = [_query(store, context) for context in contexts]
    finds, wholes, lengths = (np.array(column) for column in zip(*timed, strict=True))
    row = {"tokens": len(store), "bytes": sum(file["bytes"] for file in store.header["files"].values())}
    for name, values in (("find", finds), ("query", wholes), ("cold", cold)):
        row |= {f"{name}_ms": _percentile(values, 50), f"{name}_p99_ms": _percentile(values, 99)}
    return row | {"resident_bytes": resident, "match_length": float(lengths.mean())}


def _query(store: SuffixStore, context: Sequence[int]) -> tuple[float, float, int]:
    """Milliseconds of `find`, milliseconds of all of it, and the match length."""
    start = perf_counter()
    lo, hi, length = store.find(context, max_n=16, min_n=2)
    found = perf_counter()
    if length:
        store.continuations(lo, hi, length, depth=10, k=128)
    return 1e3 * (found - start), 1e3 * (perf_counter() - start), length


def _cold(place: Path, contexts: Sequence[Sequence[int]]) -> np.ndarray | None:
    """Milliseconds of each query with the store's pages dropped before it, or None where that cannot be done."""
    if not hasattr(os, "posix_fadvise"):
        return None
    times = []
    for context in contexts:
        store = SuffixStore.open(place)
        for name in (TOKENS, SUFFIXES, HEADS):
            with open(_data(store) / name, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        times.append(_query(store, context)[1])
        del store
        gc.collect()  # unmap: mapped pages are not dropped
    return np.array(times)


def _percentile(values: np.ndarray | None, q: float) -> float | None:
    return None if values is None else round(float(np.percentile(values, q)), 4)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text; times in milliseconds, median and 99th percentile."""
    times = "".join(f" {title:>15}" for title in ("find", "query, warm", "query, cold"))
    lines = [f"{'tokens':>14} {'MB':>8}{times} {'resident MB':>12} {'match':>6}"]
    for row in rows:
        pairs = [_pair(row[f"{name}_ms"], row[f"{name}_p99_ms"]) for name in ("find", "query", "cold")]
        times = "".join(f" {pair:>15}" for pair in pairs)
        rest = f"{row['resident_bytes'] / 1e6:>12.1f} {row['match_length']:>6.2f}"
        lines.append(f"{row['tokens']:>14,} {row['bytes'] / 1e6:>8.1f}{times} {rest}")
    return "\n".join(lines)


def _pair(median: float | None, high: float | None) -> str:
    return "not measured" if median is None else f"{median:.3f} {high:.3f}"
