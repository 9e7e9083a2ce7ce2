"""The same bits whatever shares the forward: which shapes of a forward achieve it on this device.

Rounding depends on the shape of a computation: a matrix product may sum in another order for another number of
rows, and attention for another number of keys. If every forward has one width, and key counts move in blocks, the
order is fixed. Which width and block do it depends on the kernels of this device, so they are found by trying.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..base.errors import SpecdecError
from ..core.tree import DraftTree


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


def find(lm, candidates: tuple[Shape, ...] = CANDIDATES) -> Shape:
    """The first shape under which chains and trees give the bits of one-token forwards, by trying on ``lm``.

    Raises:
        NotInvariant: if none of the candidates does.
    """
    for shape in candidates:
        lm.shape = shape
        if mismatches(lm) == 0:
            return shape
    raise NotInvariant(
        f"no forward shape gave bit-identical logits on this device; tried {', '.join(map(str, candidates))}; "
        f"use numerics='fast'"
    )


def mismatches(lm, seed: int = 0) -> int:
    """Rows whose logits differ, in any bit, between one-token forwards and the same tokens in a chain or a tree.

    Counts up to and including the first boundary where some do; 0 means that none differed anywhere.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, min(lm.vocab_size, 1000), max(_BOUNDARIES)).tolist()
    prefixes = [boundary - lm.shape.width - _LENGTH // 2 for boundary in _BOUNDARIES]
    prefixes = [prefix for prefix in prefixes if 0 < prefix < lm.max_length - 2 * lm.shape.width] or [1]
    lm.prefill(ids[: prefixes[0]])
    for prefix in prefixes:  # longest first: a shorter prefix is still in the cache
        wrong = _mismatches_after(lm, prefix, ids[prefix : prefix + _LENGTH], rng)
        if wrong:
            return wrong
    return 0


def _mismatches_after(lm, prefix: int, text: list[int], rng) -> int:
    detours = [text[1:cut] + rng.integers(0, min(lm.vocab_size, 100), 2).tolist() for cut in (2, 5, 9)]
    wrong, alone = 0, []
    lm.rewind(prefix)
    for token in text:
        alone.append(lm.forward(DraftTree.empty(token)).logits[0].clone())
        lm.commit([0])
    for tree in (DraftTree.chain(text[0], text[1:]), DraftTree.from_paths(text[0], [*detours, text[1:]])):
        lm.rewind(prefix)
        logits = lm.forward(tree).logits
        wrong += sum(not torch.equal(logits[row], one) for row, one in zip(_find(tree, text), alone, strict=True))
    return wrong


def _find(tree: DraftTree, text: list[int]) -> list[int]:
    path = [0]
    for token in text[1:]:
        path.append(next(child for child in tree.children(path[-1]) if tree.tokens[child] == token))
    return path
