"""The same bits whatever shares the forward: which shapes of a forward achieve it on this device.

Rounding depends on the shape of a computation: a matrix product may sum in another order for another number of
rows, and attention for another number of keys. If every forward has one width, and key counts move in blocks, the
order is fixed. Which width and block do it depends on the kernels of this device, so they are found by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from ..base.errors import SpecdecError
from ..core.contract import LanguageModel, LMOutput
from ..core.tree import DraftTree
from .cache import Flight, KVCache, rounded_up
from .execution.protocol import Execution, read


@dataclass(frozen=True)
class Shape:
    """The shape of every invariant forward.

    Attributes:
        width: rows of a forward; smaller trees are padded, larger ones take several forwards.
        block: the number of keys attended to is rounded up to a multiple of this.
        tile: rows that attend together, at most ``width``. With ``width`` itself, padding attends too, and each
            forward or path of a tree is one product of one shape; fewer cost less, and several go side by side.
    """

    width: int
    block: int
    tile: int = 4


_GRIDS = ((16, 512), (32, 512), (64, 512), (128, 1024))
CANDIDATES = tuple(Shape(width, block, tile) for width, block in _GRIDS for tile in (4, width))
# Key counts at which kernels are seen to change their blocking; the test steps across each.
_BOUNDARIES = (576, 512, 256, 64)
_LENGTH = 11


class NotInvariant(SpecdecError):
    """No tried shape gave equal bits on this device."""


class Shaped(LanguageModel, Protocol):
    """A language model whose forwards may all have one shape."""

    @property
    def shape(self) -> Shape | None: ...


def forward(execution: Execution, kv: KVCache, tree: DraftTree, shape: Shape, needs_hidden: bool) -> LMOutput:
    """Score every row of ``tree`` in forwards of one shape: as many as it has times ``shape.width`` rows."""
    rows, width, base, facts = len(tree.tokens), shape.width, kv.length, execution.facts
    padded = rounded_up(rows, width)
    kv.reserve(base + padded + shape.block)
    # Padding rows hold token 0 and see nothing but themselves.
    tokens, positions = np.zeros(padded, np.int64), np.full(padded, base)  # (padded,) each
    visible = np.eye(padded, dtype=bool)  # (padded, padded)
    tokens[:rows], positions[:rows], visible[:rows, :rows] = tree.tokens, base + tree.depths, tree.ancestors
    leaves = sorted(set(range(rows)) - set(tree.parents.tolist()))
    logits, hidden = [], []
    for first in range(0, padded, width):
        end = first + width
        paths = [[row for row in tree.path_to(leaf) if row < end] for leaf in leaves]
        seen, grid = visible[first:end, :end], (shape.block, shape.tile)
        flight = Flight(base, first, seen, positions[:end], facts.dtype, facts.device, paths, *grid)
        # All rows are projected, padding too: the vocabulary projection has a width of its own to keep.
        scores, states = read(execution, kv, tokens[first:end], flight, width, needs_hidden)
        logits.append(scores)  # (width, V)
        if states is not None:
            hidden.append(states)  # (width, D)
    return LMOutput(torch.cat(logits)[:rows], torch.cat(hidden)[:rows] if needs_hidden else None)


def find(shaped: Callable[[Shape], Shaped], candidates: Sequence[Shape] = CANDIDATES) -> Shape:
    """The first shape under which chains and trees give the bits of one-token forwards, by trying.

    Args:
        shaped: gives the model with an empty cache and forwards of a shape, as `CachedLM.with_own_cache` does.

    Raises:
        NotInvariant: if none of the candidates does.
    """
    for shape in candidates:
        if mismatches(shaped(shape)) == 0:
            return shape
    raise NotInvariant(
        f"no forward shape gave bit-identical logits on this device; tried {', '.join(map(str, candidates))}; "
        f"use numerics='fast'"
    )


def mismatches(lm: Shaped, seed: int = 0) -> int:
    """Rows whose logits differ, in any bit, between one-token forwards and the same tokens in a chain or a tree.

    Counts up to and including the first boundary where some do; 0 means that none differed anywhere.
    """
    rng, width = np.random.default_rng(seed), lm.shape.width if lm.shape else 1
    ids = rng.integers(0, min(lm.vocab_size, 1000), max(_BOUNDARIES)).tolist()
    prefixes = [boundary - width - _LENGTH // 2 for boundary in _BOUNDARIES]
    prefixes = [prefix for prefix in prefixes if 0 < prefix < lm.max_length - 2 * width] or [1]
    lm.prefill(ids[: prefixes[0]])
    for prefix in prefixes:  # longest first: a shorter prefix is still in the cache
        wrong = _mismatches_after(lm, prefix, ids[prefix : prefix + _LENGTH], rng)
        if wrong:
            return wrong
    return 0


def _mismatches_after(lm: LanguageModel, prefix: int, text: list[int], rng: np.random.Generator) -> int:
    detours = [text[1:cut] + rng.integers(0, min(lm.vocab_size, 100), 2).tolist() for cut in (2, 5, 9)]
    wrong, alone = 0, []
    lm.rewind(prefix)
    for token in text:
        alone.append(_logits(lm, DraftTree.empty(token))[0].clone())
        lm.commit([0])
    for tree in (DraftTree.chain(text[0], text[1:]), DraftTree.from_paths(text[0], [*detours, text[1:]])):
        lm.rewind(prefix)
        logits = _logits(lm, tree)
        wrong += sum(not torch.equal(logits[row], one) for row, one in zip(_find(tree, text), alone, strict=True))
    return wrong


def _logits(lm: LanguageModel, tree: DraftTree) -> torch.Tensor:
    logits = lm.forward(tree).logits
    assert isinstance(logits, torch.Tensor), "not only the best tokens"
    return logits


def _find(tree: DraftTree, text: list[int]) -> list[int]:
    path = [0]
    for token in text[1:]:
        path.append(next(child for child in tree.children(path[-1]) if tree.tokens[child] == token))
    return path
