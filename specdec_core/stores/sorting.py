"""From documents to the arrays of a store: the ids end to end, their suffixes in order, the heads of every 64th."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from . import files
from .files import EVERY, HEAD, DatastoreError, Ids, token_dtype

_PIECE = 1 << 24  # entries of a sorted array that are filtered, or counted, at a time


def joined(documents: Iterable[Ids], vocab_size: int) -> Iterator[np.ndarray]:
    """Each document as stored: its ids (n,) and a separator, in one array (n+1,).

    Raises:
        DatastoreError: for an id outside 0 ... vocab_size - 1.

    Example:
        >>> [part.tolist() for part in joined([[1, 2], [], [3]], vocab_size=4)]
        [[1, 2, 65535], [3, 65535]]
    """
    dtype = token_dtype(vocab_size)
    for number, document in enumerate(documents):
        ids = np.asarray(document, np.int64)
        if not len(ids):
            continue
        if ids.min() < 0 or ids.max() >= vocab_size:
            bad = ids[(ids < 0) | (ids >= vocab_size)][0]
            raise DatastoreError(
                f"document {number} holds the id {bad}; expected ids in 0 ... {vocab_size - 1}. "
                "Was it made with another tokenizer?"
            )
        yield np.append(ids, np.iinfo(dtype).max).astype(dtype)


def sorted_suffixes(tokens: np.ndarray) -> Iterator[np.ndarray]:
    """The suffix array of big-endian ``tokens`` (M,), in pieces: uint32, or uint64 for M >= 2**32.

    Example:
        >>> tokens = np.array([2, 1, 2, 0], ">u2")
        >>> np.concatenate(list(sorted_suffixes(tokens))).tolist()  # 0 < 1 2 0 < 2 0 < 2 1 2 0
        [3, 1, 2, 0]
    """
    from pydivsufsort import divsufsort

    width = tokens.dtype.itemsize
    places = divsufsort(tokens.view(np.uint8))  # (w M,) int32, or int64 from 2**31 bytes on
    dtype = np.dtype("<u4" if len(tokens) < 2**32 else "<u8")
    for first in range(0, len(places), _PIECE):
        piece = places[first : first + _PIECE]
        yield (piece[piece % width == 0] // width).astype(dtype)  # the suffixes that begin with a whole token


def heads_of(tokens: np.ndarray, sa: np.ndarray) -> np.ndarray:
    """(ceil(M/64),) uint64: the first 8 bytes of every 64th suffix, zeros behind the corpus.

    Example:
        >>> tokens = np.array([2, 1, 2, 0], ">u2")
        >>> [hex(head) for head in heads_of(tokens, np.array([3, 1, 2, 0], "<u4"))]  # the first suffix is 0
        ['0x0']
    """
    reach = np.arange(HEAD // tokens.dtype.itemsize)  # tokens in a head
    heads = np.empty(files.heads(len(sa)), "<u8")
    for first in range(0, len(heads), _PIECE // EVERY):
        starts = sa[first * EVERY : first * EVERY + _PIECE : EVERY].astype(np.int64)  # (n,)
        places = starts[:, None] + reach  # (n, tokens in a head)
        ids = np.where(places < len(tokens), tokens[np.minimum(places, len(tokens) - 1)], 0)
        heads[first : first + len(starts)] = ids.astype(tokens.dtype).view(">u8")[:, 0]  # (n, 1) to (n,)
    return heads
