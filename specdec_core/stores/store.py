"""A suffix array over a corpus of token ids: the datastore of REST (He et al. 2023, arXiv:2311.08252).

The array lists all suffixes of the corpus in lexicographic order. So the places where a string occurs are one interval
of it, found by bisection in O(L log M) for a string of L tokens in a corpus of M. All of it is memory-mapped, and
nothing but a header is read at opening.

Tokens are stored as big-endian unsigned integers of 2 bytes (4 for a vocabulary above 65,535), which makes
the order of bytes the order of tokens: two strings of tokens first differ in the first token that differs, at
the same byte of it, and the first byte in which two big-endian numbers differ decides between them. So
bisection compares plain `bytes`, and the build sorts bytes (see `build`).

Each comparison of a bisection reads a token page that may have to come from the disk. So the first 8 bytes of
every 64th suffix stand in a small array of their own, bisected first; what is left is mostly a block of 64.

Every document ends with a separator, the largest number of the type, which no token has. A query never
holds it, so a match lies within one document; a continuation stops at it.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..model.chat import Tokenizer
from . import files
from .files import EVERY, HEAD, HEADS, SUFFIXES, TOKENS, DatastoreError, Ids, token_dtype


class Match(NamedTuple):
    """The suffixes ``lo ... hi - 1`` of the array begin with the last ``length`` tokens of the query.

    ``hi - lo`` is how often they occur. Without a match all three are 0.
    """

    lo: int
    hi: int
    length: int


class SuffixStore:
    """A corpus and its suffix array; see `open`, `in_memory` and `build.build`.

    Attributes:
        tokens: (M,) big-endian token ids, separators included.
        sa: (M,) start of each suffix, in lexicographic order of the suffixes.
        heads: (ceil(M/64),) uint64, the first 8 bytes of every 64th suffix as a big-endian number.
        vocab_size: V; ids are in 0 ... V-1.
        separator: the id that ends each document; no token has it.
        header: the record the store was opened from, {} for a store in memory.

    Example:
        >>> store = SuffixStore.in_memory([[1, 2, 3, 1, 2, 4], [9, 1, 2, 3]], vocab_size=10)
        >>> lo, hi, length = store.find([7, 1, 2])  # 7 1 2 does not occur, 1 2 does: three times
        >>> hi - lo, length
        (3, 2)
        >>> ids, lengths = store.continuations(lo, hi, length, depth=2, k=8)
        >>> [row[:n].tolist() for row, n in zip(ids, lengths)]
        [[3, 1], [3], [4]]
    """

    def __init__(
        self,
        tokens: np.ndarray,
        sa: np.ndarray,
        heads: np.ndarray,
        vocab_size: int,
        header: dict[str, Any] | None = None,
    ):
        if tokens.dtype != token_dtype(vocab_size):
            expected = token_dtype(vocab_size).str
            raise ValueError(f"tokens of a vocabulary of {vocab_size} must be {expected}; got {tokens.dtype.str}")
        self.tokens, self.sa, self.heads, self.vocab_size = tokens, sa, heads, vocab_size
        self.header = header or {}
        self.separator = int(np.iinfo(tokens.dtype).max)
        self._width = tokens.dtype.itemsize
        # Plain views: indexing a memoryview is several times faster than indexing a numpy array.
        self._bytes, self._order, self._heads = tokens.view(np.uint8).data, sa.data, heads.data

    def __len__(self) -> int:
        """M, tokens of the corpus with one separator per document."""
        return len(self.tokens)

    @classmethod
    def in_memory(cls, documents: Iterable[Ids], vocab_size: int) -> SuffixStore:
        """A store without files, for small corpora.

        Raises:
            DatastoreError: for no documents, or an id outside 0 ... vocab_size - 1.
        """
        from .sorting import heads_of, joined, sorted_suffixes

        dtype = token_dtype(vocab_size)
        parts = list(joined(documents, vocab_size))
        # Concatenation alone would return the machine's own byte order.
        tokens = np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)
        if not len(tokens):
            raise DatastoreError("a datastore needs at least one document with a token in it; got none")
        sa = np.concatenate(list(sorted_suffixes(tokens)))
        return cls(tokens, sa, heads_of(tokens, sa), vocab_size)

    @classmethod
    def open(cls, name: str | Path, tokenizer: Tokenizer | None = None, verify: bool = False) -> SuffixStore:
        """The store of that name under ``SPECDEC_HOME/datastores``, or in that folder, memory-mapped.

        File sizes are compared at every opening. Hashes are compared too if the store is small, if
        ``verify``, or if a file has been written since they last agreed: to read a large store whole at each
        opening would undo what mapping it saves.

        Args:
            name: a name without a slash, or a path.
            tokenizer: the tokenizer of the model to be served; a store built with another is refused.
            verify: compare every hash now.

        Raises:
            DatastoreError: missing, cut short, altered, of another format version or tokenizer.
        """
        folder = files.place(name)
        while True:
            header = files.read_header(folder)
            try:
                files.check_tokenizer(folder, header, tokenizer)
                files.check_files(folder, header, verify)
                data, size = folder / header["data"], header["tokens"]
                tokens = _mapped(data / TOKENS, header["token_dtype"], size)
                sa = _mapped(data / SUFFIXES, header["index_dtype"], size)
                heads = _mapped(data / HEADS, "<u8", files.heads(size))
                return cls(tokens, sa, heads, header["vocab_size"], header)
            except (DatastoreError, OSError, ValueError) as error:
                if files.read_header(folder) != header:
                    continue  # a new store took the place of this one meanwhile
                if isinstance(error, DatastoreError):
                    raise
                raise DatastoreError(f"{folder} cannot be opened ({error}). {files.again(folder)}") from error

    def find(self, suffix: Sequence[int], max_n: int = 16, min_n: int = 1) -> Match:
        """Where the longest end of ``suffix`` that occurs in the corpus occurs.

        An end of n tokens occurs only if the one of n - 1 tokens does, so the longest n is itself found by
        bisection: about log2(max_n) searches instead of max_n.

        Args:
            suffix: token ids, the latest last; an id that the store's vocabulary lacks matches nothing.
            max_n, min_n: longest and shortest end that counts as a match, in tokens.

        Returns:
            the `Match`; ``length`` is 0 if no end of at least ``min_n`` tokens occurs.
        """
        tail = [int(i) for i in suffix[max(0, len(suffix) - max_n) :]]
        known = next((n for n, i in enumerate(reversed(tail)) if not 0 <= i < self.vocab_size), len(tail))
        pattern = np.asarray(tail[len(tail) - known :], self.tokens.dtype).tobytes()
        best, low, high = Match(0, 0, 0), max(min_n, 1), known
        while low <= high:
            n = (low + high + 1) // 2
            match = self._search(pattern[len(pattern) - n * self._width :], n)
            if match.length:
                best, low = match, n + 1
            else:
                high = n - 1
        return best

    def continuations(self, lo: int, hi: int, length: int, depth: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """What follows the first ``length`` tokens of the suffixes ``lo ... hi - 1``, which are `find`'s answer.

        Of more than ``k`` matches, k at equal distances are read. The matches are sorted by what follows, so
        this is a stratified sample: the share of the sample that begins with any given string differs from
        the true share by less than 1/k, and the same k are read every time.

        Args:
            depth: most tokens of a continuation.
            k: most matches to read.

        Returns:
            ids (R, depth) int64, R = min(k, hi - lo), in lexicographic order; and lengths (R,) int64: row i
            holds ``lengths[i]`` tokens, fewer than ``depth`` where its document ends. What stands behind them
            is not part of the answer.
        """
        count = hi - lo
        rows = np.arange(lo, hi) if count <= k else lo + np.arange(k) * count // k  # (R,)
        places = (np.asarray(self.sa)[rows].astype(np.int64) + length)[:, None] + np.arange(depth)  # (R, depth)
        # The corpus ends with a separator: it may be read again in place of what lies behind it.
        ids = np.asarray(self.tokens)[np.minimum(places, len(self) - 1)].astype(np.int64)  # (R, depth)
        ended = np.concatenate([ids == self.separator, np.ones((len(ids), 1), bool)], axis=1)  # (R, depth + 1)
        return ids, ended.argmax(axis=1)

    def _search(self, pattern: bytes, length: int) -> Match:
        """The suffixes that begin with ``pattern``, which is ``length`` tokens long."""
        head = pattern[:HEAD]
        least, most = (int.from_bytes(head.ljust(HEAD, fill), "big") for fill in (b"\0", b"\xff"))
        # The first suffix with such a head lies behind the last sample below it, the last before the first above.
        lo = max(bisect_left(self._heads, least) - 1, 0) * EVERY
        hi = min(bisect_right(self._heads, most) * EVERY, len(self))
        data, width, size = self._bytes, self._width, len(pattern)

        def beginning(start: int) -> bytes:
            return data[start * width : start * width + size].tobytes()

        lo = bisect_left(self._order, pattern, lo, hi, key=beginning)
        if lo == hi or beginning(self._order[lo]) != pattern:
            return Match(0, 0, 0)
        return Match(lo, bisect_right(self._order, pattern, lo, hi, key=beginning), length)


def _mapped(path: Path, dtype: str, size: int) -> np.memmap:
    array = np.memmap(path, dtype, "r", shape=(size,))
    if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        # Bisection jumps about: what the system would read ahead at each jump is never used.
        array.base.madvise(mmap.MADV_RANDOM)
    return array
