"""The key-value cache: preallocated rows, a tree's rows written behind them, accepted rows gathered on commit.

One cache holds one sequence. Its first ``length`` slots are committed, slot s holding position s; the rows of
the tree being checked (the rows *in flight*) follow in tree order, and `commit` keeps an accepted path of them.
"""

from __future__ import annotations

import math
from typing import Sequence

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
        block: with ``paths``, key counts are rounded up to ``base`` plus a multiple of this.
    """

    def __init__(self, base: int, first: int, visible: np.ndarray, positions: np.ndarray, dtype, device,
                 paths: list[list[int]] | None = None, block: int = 1):  # fmt: skip
        self.base, self.first, self.paths, self.block = base, first, paths, block
        self.rows = len(visible)
        self._visible, self._positions, self._dtype, self._device = visible, positions, dtype, device
        self._bias: dict = {}

    def bias(self, window: int | None) -> torch.Tensor:
        """(n, base + first + n) additive mask, 0 or -inf; one tensor serves all layers with one window."""
        if window not in self._bias:
            seen = np.concatenate([np.ones((self.rows, self.base), bool), self._visible], axis=1)
            if window is not None:
                slots = np.concatenate([np.arange(self.base), self._positions])
                seen &= self._positions[self.first :, None] - slots < window
            self._bias[window] = self._additive(seen)
        return self._bias[window]

    def path_bias(self, index: int, window: int | None) -> torch.Tensor:
        """The mask for one path laid out behind the prefix: (n, key count); rows off the path see slot 0."""
        key = (index, window)
        if key not in self._bias:
            path = self.paths[index]
            keys = self.base + -(-len(path) // self.block) * self.block
            seen = np.zeros((self.rows, keys), bool)
            seen[:, 0] = True
            for offset, row in enumerate(path):
                if row >= self.first:
                    end = self.base + offset + 1
                    seen[row - self.first, max(0, end - window) if window else 0 : end] = True
                    seen[row - self.first, 0] = window is None or end <= window
            self._bias[key] = self._additive(seen)
        return self._bias[key]

    def _additive(self, seen: np.ndarray) -> torch.Tensor:
        bias = torch.zeros(seen.shape, dtype=self._dtype)
        bias.masked_fill_(~torch.from_numpy(seen), -math.inf)
        return bias.to(self._device)


class KVCache:
    """Keys and values of one sequence: per layer (kv_heads, capacity, head_dim), allocated at the first write."""

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
                    buffers[layer] = old.new_zeros(old.shape[0], self.capacity, old.shape[2])
                    buffers[layer][:, : old.shape[1]] = old

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, start: int) -> None:
        """Store rows (kv_heads, n, head_dim) at slots start ... start + n - 1."""
        if self.keys[layer] is None:
            self.keys[layer] = keys.new_zeros(keys.shape[0], self.capacity, keys.shape[2])
            self.values[layer] = values.new_zeros(values.shape[0], self.capacity, values.shape[2])
        end = start + keys.shape[1]
        self.keys[layer][:, start:end] = keys
        self.values[layer][:, start:end] = values

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows in flight (increasing), in order. Rows already in place are not touched."""
        moved = next((i for i, row in enumerate(rows) if row != i), len(rows))
        if moved < len(rows):
            source = torch.tensor(rows[moved:], device=self.keys[0].device) + self.length
            target = slice(self.length + moved, self.length + len(rows))
            for buffer in (*self.keys, *self.values):
                buffer[:, target] = buffer[:, source]
        self.length += len(rows)

    def bytes(self) -> int:
        """Memory held by the buffers."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values) if t is not None)


def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, flight: Flight, scale: float,
           softcap: float | None = None, window: int | None = None) -> torch.Tensor:  # fmt: skip
    """Attention of the rows of this call over the cache, under the tree's mask.

    With ``flight.paths`` each root-to-leaf path is laid out behind the prefix as a chain of its own before its
    rows attend. Sums over keys then run in the order a chain would have had, whatever the shape of the tree:
    this is what keeps the bits equal when `numerics="invariant"` asks for it.

    Args:
        query: (heads, n, head_dim); heads is a multiple of kv_heads (grouped-query attention).
        keys, values: (kv_heads, capacity, head_dim), the rows of this call already written.
        scale: multiplies the scores.
        softcap: scores become softcap * tanh(scores / softcap) (Gemma 2).
        window: a row sees only positions closer than this (sliding-window layers).

    Returns:
        (heads, n, head_dim).
    """
    if flight.paths is None:
        end = flight.base + flight.first + flight.rows
        return _attend(query, keys[:, :end], values[:, :end], flight.bias(window), scale, softcap)
    base, total = flight.base, flight.first + flight.rows
    in_flight = [buffer[:, base : base + total].clone() for buffer in (keys, values)]
    # Padding rows lie on no path; zeros keep their keys and values finite.
    out, done = torch.zeros_like(query), set(range(flight.first))
    for index, path in enumerate(flight.paths):
        fresh = [row for row in path if row not in done]
        if not fresh:
            continue
        done.update(fresh)
        for buffer, rows in zip((keys, values), in_flight):
            buffer[:, base : base + len(path)] = rows[:, path]
        bias = flight.path_bias(index, window)
        end = bias.shape[1]
        result = _attend(query, keys[:, :end], values[:, :end], bias, scale, softcap)
        fresh = [row - flight.first for row in fresh]
        out[:, fresh] = result[:, fresh]
    for buffer, rows in zip((keys, values), in_flight):
        buffer[:, base : base + total] = rows
    return out


def _attend(query, keys, values, bias, scale, softcap):
    heads, n, width = query.shape
    groups = heads // keys.shape[0]
    # Query heads that share a key head become extra rows of it: keys and values are never repeated in memory.
    query = query.reshape(1, keys.shape[0], groups * n, width)
    if groups > 1:
        bias = bias.repeat(groups, 1)
    if softcap is None:
        out = F.scaled_dot_product_attention(query, keys[None], values[None], attn_mask=bias[None, None], scale=scale)
    else:
        scores = torch.matmul(query, keys[None].transpose(-1, -2)) * scale
        scores = softcap * torch.tanh(scores / softcap) + bias
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        out = torch.matmul(weights.to(values.dtype), values[None])
    return out.reshape(heads, n, -1)
