"""Several sequences in one forward: their rows side by side, each attending to a cache of its own.

What a server does with its requests. The matrices are read once for all of them, attention is each sequence's own, so
none needs padding to the length of another, and each gets the tokens that it has alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..base.errors import UnsupportedModel
from ..core.contract import LMOutput
from ..core.tree import DraftTree
from .cache import Flight, KVCache, Limits
from .lm import CachedLM

Flights = Sequence[Flight]


class Batch:
    """Stands where a `KVCache` does, with a list of flights in place of one."""

    def __init__(self, caches: Sequence[KVCache]):
        self.caches = caches

    @property
    def capacity(self) -> int:
        return max(cache.capacity for cache in self.caches)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, flights: Flights, scale: float, limits: Limits
    ) -> Tensor:
        """As `KVCache.attend`; the rows (n1 + n2 + ..., heads, head_dim) belong to the flights in order."""
        sizes = [flight.rows for flight in flights]
        rows = zip(query.split(sizes), key.split(sizes), value.split(sizes), strict=True)
        parts = [
            cache.attend(layer, q, k, v, flight, scale, limits)
            for cache, flight, (q, k, v) in zip(self.caches, flights, rows, strict=True)
        ]
        return torch.cat(parts)  # (n1 + n2 + ..., heads, head_dim)


def forward_together(lms: Sequence[CachedLM], trees: Sequence[DraftTree], needs_hidden: bool = False) -> list[LMOutput]:
    """Score every row of several trees in one forward, each tree after a sequence of its own.

    Args:
        lms: one for each tree: one model, `CachedLM.with_own_cache` of it, and so on.
        trees: as many; tree i, of N_i nodes, is rooted at the token after the committed ones of ``lms[i]``.
        needs_hidden: also return the last hidden states.

    Returns:
        for each tree what `CachedLM.forward` says of it: logits (N_i + 1, V), and hidden states (N_i + 1, D) or None.

    Raises:
        UnsupportedModel: if the execution takes one sequence at a time, or numerics are invariant.
        ValueError: if two of the ``lms`` share a cache, or do not share a model.
    """
    execution, facts = lms[0].execution, lms[0].execution.facts
    if len({id(lm.kv) for lm in lms}) < len(lms) or any(lm.execution is not execution for lm in lms):
        raise ValueError("sequences in one forward share a model, not a cache; make each with lm.with_own_cache()")
    if any(lm.numerics != "fast" for lm in lms):
        raise UnsupportedModel("numerics='invariant' runs one sequence at a time; batches need numerics='fast'")
    flights, places = [], []
    for lm, tree in zip(lms, trees, strict=True):
        lm.kv.reserve(lm.length + len(tree.tokens))
        places.append(lm.length + tree.depths)
        flights.append(Flight(lm.length, 0, tree.ancestors, places[-1], facts.dtype, facts.device))
    ids = torch.from_numpy(np.concatenate([tree.tokens for tree in trees])).to(facts.device)  # (N_1 + 1 + ...,)
    at = torch.from_numpy(np.concatenate(places)).to(facts.device)  # (N_1 + 1 + ...,)
    keep = torch.arange(len(ids), device=facts.device)
    logits, hidden = execution.run(ids, at, Batch([lm.kv for lm in lms]), flights, keep, needs_hidden)
    sizes = [flight.rows for flight in flights]
    states = [None] * len(sizes) if hidden is None else hidden.split(sizes)
    return [LMOutput(*rows) for rows in zip(logits.split(sizes), states, strict=True)]
