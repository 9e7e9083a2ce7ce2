"""The key-value cache: preallocated rows, a tree's rows written behind them, accepted rows gathered on commit.

One cache holds one sequence. Its first ``length`` slots are committed, slot s holding position s; the rows of
the tree being checked (the rows *in flight*) follow in tree order, and `commit` keeps an accepted path of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F


class Flight:
    """The rows in flight during one forward call, as attention sees them.

    Args:
        base: committed slots in front of the rows in flight.
        first: index among the rows in flight of the first row of this call (earlier rows came in earlier calls).
        visible: (n, first + n) bool; which rows in flight each of the n rows of this call may see.
        positions: (first + n,) position of every row in flight.
        paths: None to attend in one call; else root-to-leaf lists of row indices, see `attend`.
        block: the number of keys attended to is rounded up to a multiple of this; the excess is masked. The
            kernels' sums over keys then fall into the same lanes for every count within a block.
    """

    def __init__(self, base: int, first: int, visible: np.ndarray, positions: np.ndarray, dtype, device,
                 paths: list[list[int]] | None = None, block: int = 1):  # fmt: skip
        self.base, self.first, self.paths, self.block = base, first, paths, block
        self.rows = len(visible)
        self._visible, self._positions, self._dtype, self._device = visible, positions, dtype, device
        self._bias: dict = {}

    def bias(self, groups: int, window: int | None) -> torch.Tensor:
        """(1, 1, groups * n, keys) additive mask, 0 or -inf; made once, used by every layer."""
        key = (None, groups, window)
        if key not in self._bias:
            end = self.base + self._visible.shape[1]
            seen = np.zeros((self.rows, self._rounded(end)), bool)
            seen[:, : self.base] = True
            seen[:, self.base : end] = self._visible
            if window is not None:
                slots = np.concatenate([np.arange(self.base), self._positions])
                seen[:, :end] &= self._positions[self.first :, None] - slots < window
            self._bias[key] = self._additive(seen, groups)
        return self._bias[key]

    def path_bias(self, index: int, groups: int, window: int | None) -> torch.Tensor:
        """The same for one path laid out behind the prefix; rows that are not on it see slot 0."""
        key = (index, groups, window)
        if key not in self._bias:
            # A chain of this depth would have run at this many rows, padding included.
            end = self.base + -(-len(self.paths[index]) // self.rows) * self.rows
            seen = np.zeros((self.rows, self._rounded(end)), bool)
            seen[:, 0] = True
            for offset, row in enumerate(self.paths[index]):
                if row >= self.first:
                    end = self.base + offset + 1
                    start = max(0, end - window) if window else 0
                    seen[row - self.first, 0] = start == 0
                    seen[row - self.first, start:end] = True
            self._bias[key] = self._additive(seen, groups)
        return self._bias[key]

    def _rounded(self, keys: int) -> int:
        return -(-keys // self.block) * self.block

    def _additive(self, seen: np.ndarray, groups: int) -> torch.Tensor:
        bias = torch.zeros(seen.shape, dtype=self._dtype).masked_fill_(~torch.from_numpy(seen), -math.inf)
        return bias.repeat(groups, 1)[None, None].to(self._device)


class KVCache:
    """Keys and values of one sequence: per layer (capacity, kv_heads, head_dim), allocated at the first write."""

    def __init__(self, layers: int):
        self.keys: list[torch.Tensor | None] = [None] * layers
        self.values: list[torch.Tensor | None] = [None] * layers
        self.length = 0
        self.capacity = 0

    def reserve(self, capacity: int) -> None:
        """Make room for ``capacity`` slots in all; grows at least by half, so steps do not copy the cache."""
        if capacity <= self.capacity:
            return
        self.capacity = -(-max(capacity, self.capacity * 3 // 2) // 64) * 64
        for buffers in (self.keys, self.values):
            for layer, old in enumerate(buffers):
                if old is not None:
                    buffers[layer] = old.new_zeros(self.capacity, *old.shape[1:])
                    buffers[layer][: len(old)] = old

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, start: int) -> None:
        """Store rows (n, kv_heads, head_dim) at slots start ... start + n - 1."""
        if self.keys[layer] is None:
            self.keys[layer] = keys.new_zeros(self.capacity, *keys.shape[1:])
            self.values[layer] = values.new_zeros(self.capacity, *values.shape[1:])
        end = start + len(keys)
        self.keys[layer][start:end] = keys
        self.values[layer][start:end] = values

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows in flight (increasing), in order. Rows already in place are not touched."""
        moved = next((i for i, row in enumerate(rows) if row != i), len(rows))
        if moved < len(rows):
            source = torch.tensor(rows[moved:], device=self.keys[0].device) + self.length
            target = slice(self.length + moved, self.length + len(rows))
            for buffer in (*self.keys, *self.values):
                buffer[target] = buffer[source]
        self.length += len(rows)

    def copy(self) -> KVCache:
        """A cache of its own with the same contents and capacity."""
        other = KVCache(len(self.keys))
        other.length, other.capacity = self.length, self.capacity
        other.keys = [None if buffer is None else buffer.clone() for buffer in self.keys]
        other.values = [None if buffer is None else buffer.clone() for buffer in self.values]
        return other

    def attend(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, flight: Flight,
               scale: float, softcap: float | None = None, window: int | None = None) -> torch.Tensor:  # fmt: skip
        """Store the keys and values of the rows of this call and let the queries attend; see `attend`."""
        self.write(layer, key, value, flight.base + flight.first)
        return attend(query, self.keys[layer], self.values[layer], flight, scale, softcap, window)

    def bytes(self) -> int:
        """Memory held by the buffers."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values) if t is not None)


class Batch:
    """Several sequences in one forward: their rows side by side, each attending to its own cache.

    Stands where a `KVCache` does, with a list of flights. Sequences need no padding to one length.
    """

    def __init__(self, caches: Sequence[KVCache]):
        self.caches = list(caches)

    @property
    def capacity(self) -> int:
        return max(cache.capacity for cache in self.caches)

    def attend(self, layer, query, key, value, flights: Sequence[Flight], scale, softcap=None, window=None):
        """As `KVCache.attend`; rows (n1 + n2 + ..., heads, head_dim) belong to the flights in order."""
        sizes = [flight.rows for flight in flights]
        rows = zip(query.split(sizes), key.split(sizes), value.split(sizes), strict=True)
        parts = [
            cache.attend(layer, q, k, v, flight, scale, softcap, window)
            for cache, flight, (q, k, v) in zip(self.caches, flights, rows, strict=True)
        ]
        return torch.cat(parts)


def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, flight: Flight, scale: float,
           softcap: float | None = None, window: int | None = None) -> torch.Tensor:  # fmt: skip
    """Attention of the rows of this call over the cache, under the tree's mask.

    With ``flight.paths`` each root-to-leaf path is laid out behind the prefix as a chain of its own before its
    rows attend. Sums over keys then run in the order a chain would have had, whatever the shape of the tree:
    this is what keeps the bits equal when `numerics="invariant"` asks for it.

    Args:
        query: (n, heads, head_dim); heads is a multiple of kv_heads (grouped-query attention).
        keys, values: (capacity, kv_heads, head_dim), the rows of this call already written.
        scale: multiplies the scores.
        softcap: scores become softcap * tanh(scores / softcap) (Gemma 2).
        window: a row sees only positions closer than this (sliding-window layers).

    Returns:
        (n, heads, head_dim).
    """
    groups = query.shape[1] // keys.shape[1]
    if flight.paths is None:
        return _attend(query, keys, values, flight.bias(groups, window), scale, softcap)
    base, total = flight.base, flight.first + flight.rows
    in_flight = [buffer[base : base + total].clone() for buffer in (keys, values)]
    # Padding rows lie on no path; zeros keep their keys and values finite.
    out, done = torch.zeros_like(query), set(range(flight.first))
    for index, path in enumerate(flight.paths):
        fresh = [row for row in path if row not in done]
        if not fresh:
            continue
        done.update(fresh)
        for buffer, rows in zip((keys, values), in_flight, strict=True):
            buffer[base : base + len(path)] = rows[path]
        result = _attend(query, keys, values, flight.path_bias(index, groups, window), scale, softcap)
        fresh = [row - flight.first for row in fresh]
        out[fresh] = result[fresh]
    for buffer, rows in zip((keys, values), in_flight, strict=True):
        buffer[base : base + total] = rows
    return out


def _attend(query, keys, values, bias, scale, softcap):
    (n, heads, width), kv_heads, end = query.shape, keys.shape[1], bias.shape[-1]
    groups = heads // kv_heads
    # Query heads that share a key head become extra rows of it: keys and values are never repeated in memory.
    query = query.view(n, kv_heads, groups, width).permute(1, 2, 0, 3).reshape(1, kv_heads, groups * n, width)
    keys, values = keys[:end].transpose(0, 1)[None], values[:end].transpose(0, 1)[None]
    if softcap is None:
        out = F.scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=scale)
    else:
        scores = torch.matmul(query, keys.transpose(-1, -2)) * scale
        scores = softcap * torch.tanh(scores / softcap) + bias
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        out = torch.matmul(weights.to(values.dtype), values)
    return out.reshape(kv_heads, groups, n, -1).permute(2, 0, 1, 3).reshape(n, heads, -1)
