"""The key-value cache: preallocated rows, a tree's rows written behind them, accepted rows gathered on commit.

One cache holds one sequence. Its first ``length`` slots are committed, slot s holding position s; the rows of
the tree being checked (the rows *in flight*) follow in tree order, and `commit` keeps an accepted path of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.contract import Memory


class Limits(NamedTuple):
    """What a layer limits when it attends.

    Attributes:
        softcap: scores become softcap * tanh(scores / softcap) (Gemma 2).
        window: a row sees only positions closer than this (sliding-window layers).
    """

    softcap: float | None = None
    window: int | None = None


FREE = Limits()


@dataclass(frozen=True, eq=False)
class Path:
    """A root-to-leaf path of the rows in flight, and those of its rows that attend with it.

    Attributes:
        rows: (depth + 1,) the path, root first, as indices among all rows in flight.
        offsets: (tiles * tile,) how deep on the path each row lies that attends.
        fresh: (tiles * tile,) the same rows as indices among the rows of this call.
    """

    rows: Tensor
    offsets: np.ndarray
    fresh: Tensor


class Flight:
    """The rows in flight during one forward call, as attention sees them.

    Args:
        base: committed slots in front of the rows in flight.
        first: index among the rows in flight of the first row of this call (earlier rows came in earlier calls).
        visible: (n, first + n) bool; which rows in flight each of the n rows of this call may see.
        positions: (first + n,) position of every row in flight.
        paths: None to attend in one call; else root-to-leaf lists of row indices, see `attend`.
        block: on a path, the number of keys attended to is rounded up to a multiple of this; the excess is masked.
            The kernels' sums over keys then fall into the same lanes for every count within a block.
        tile: rows of a path that attend together, see `attend`.
    """

    def __init__(
        self,
        base: int,
        first: int,
        visible: np.ndarray,
        positions: np.ndarray,
        dtype: torch.dtype,
        device: torch.device,
        paths: list[list[int]] | None = None,
        block: int = 1,
        tile: int = 1,
    ):
        self.base, self.first, self.block, self.tile = base, first, block, tile
        self.rows, self.positions = len(visible), positions
        self._visible, self._dtype, self._device = visible, dtype, device
        self._bias: dict[tuple[Path | None, int, int | None], Tensor] = {}
        self.is_chain = paths is not None and len(paths) == 1
        self.paths = None if paths is None else self._shared_out(paths)

    def bias(self, groups: int, window: int | None) -> Tensor:
        """(1, 1, groups * n, keys) additive mask, 0 or -inf; made once, used by every layer."""
        key = (None, groups, window)
        if key not in self._bias:
            slots = np.concatenate([np.arange(self.base), self.positions])  # (keys,)
            seen = np.ones((self.rows, len(slots)), bool)  # (n, keys)
            seen[:, self.base :] = self._visible
            if window is not None:
                seen &= self.positions[self.first :, None] - slots < window
            self._bias[key] = self._additive(seen[None], groups)
        return self._bias[key]

    def path_bias(self, path: Path, groups: int, window: int | None) -> Tensor:
        """(tiles, 1, groups * tile, keys): the same for the tiles of one path that is laid out behind the prefix."""
        key = (path, groups, window)
        if key not in self._bias:
            # A chain of this depth would have run at this many rows, padding included.
            keys = self.base + rounded_up(len(path.rows), self.rows)
            slots = np.arange(rounded_up(keys, self.block))  # (keys,)
            distance = self.base + path.offsets[:, None] - slots  # (tiles * tile, keys)
            seen = (distance >= 0) & (distance < (window or math.inf))
            seen = seen.reshape(-1, self.tile, len(slots))  # (tiles, tile, keys)
            self._bias[key] = self._additive(seen, groups)
        return self._bias[key]

    def _shared_out(self, paths: list[list[int]]) -> list[Path]:
        """Each row of this call to the first path that it lies on; paths that get none are left out."""
        done, shared = set(range(self.first)), []
        for path in paths:
            fresh = [(offset, row) for offset, row in enumerate(path) if row not in done]
            done.update(path)
            if fresh:
                fresh += fresh[:1] * (-len(fresh) % self.tile)  # the last tile is filled with what is at hand
                offsets, rows = np.array(fresh).T  # (tiles * tile,) each
                at = torch.tensor(path, device=self._device)
                shared.append(Path(at, offsets, torch.from_numpy(rows - self.first).to(self._device)))
        return shared

    def _additive(self, seen: np.ndarray, groups: int) -> Tensor:
        """0 where ``seen`` (tiles, n, keys) and -inf elsewhere, repeated for each query head of a key head."""
        bias = torch.zeros(seen.shape, dtype=self._dtype).masked_fill_(~torch.from_numpy(seen), -math.inf)
        bias = bias.repeat(1, groups, 1)[:, None]  # (tiles, 1, groups * n, keys)
        return bias.to(self._device)


class KVCache:
    """Keys and values of one sequence: (capacity, kv_heads, head_dim) by layer, allocated at the first write."""

    def __init__(self) -> None:
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.length = 0
        self.capacity = 0
        self.memory = Memory()

    def reserve(self, capacity: int) -> None:
        """Make room for ``capacity`` slots in all; grows at least by half, so steps do not copy the cache."""
        if capacity <= self.capacity:
            return
        capacity = rounded_up(max(capacity, self.capacity * 3 // 2), 64)
        for buffers in (self.keys, self.values):
            for layer, old in buffers.items():
                if len(old) < capacity:  # some may have grown before Ctrl-C came
                    buffer = old.new_zeros(capacity, *old.shape[1:])  # (capacity, kv_heads, head_dim)
                    buffer[: len(old)] = old
                    buffers[layer] = buffer
        self.capacity = capacity

    def allocate(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Make the buffers of a layer for rows like these (n, kv_heads, head_dim), unless it has some."""
        for buffers, rows in ((self.keys, keys), (self.values, values)):
            if layer not in buffers:
                buffers[layer] = rows.new_zeros(self.capacity, *rows.shape[1:])  # (capacity, kv_heads, head_dim)

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows in flight (increasing), in order. Rows already in place are not touched."""
        moved = next((i for i, row in enumerate(rows) if row != i), len(rows))
        if moved < len(rows):
            source = torch.tensor(rows[moved:], device=self.keys[0].device) + self.length
            target = slice(self.length + moved, self.length + len(rows))
            for buffer in (*self.keys.values(), *self.values.values()):
                buffer[target] = buffer[source]
        self.length += len(rows)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, flight: Flight, scale: float, limits: Limits = FREE
    ) -> Tensor:
        """Store the keys and values of the rows of this call and let the queries attend; see `attend`."""
        self.allocate(layer, key, value)
        start, keys, values = flight.base + flight.first, self.keys[layer], self.values[layer]
        keys[start : start + len(key)] = key
        values[start : start + len(value)] = value
        return attend(query, keys, values, flight, scale, limits)

    def attend_whole(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, slots: Tensor, bias: Tensor, scale: float
    ) -> Tensor:
        """The same over the whole capacity, for a compiler: no shape depends on how much is committed.

        Args:
            slots: (n,) int64, where the keys and values of the rows of this call are stored.
            bias: (n, capacity) additive mask.
        """
        keys = self.keys[layer].index_copy_(0, slots, key)
        values = self.values[layer].index_copy_(0, slots, value)
        query, keys, values = (rows.transpose(0, 1)[None] for rows in (query, keys, values))  # (1, heads, rows, width)
        grouped = query.shape[1] != keys.shape[1]
        out = F.scaled_dot_product_attention(query, keys, values, bias[None, None], scale=scale, enable_gqa=grouped)
        return out[0].transpose(0, 1)  # (n, heads, head_dim)

    def bytes(self) -> int:
        """Memory held by the buffers."""
        return sum(t.numel() * t.element_size() for t in (*self.keys.values(), *self.values.values()))


def attend(query: Tensor, keys: Tensor, values: Tensor, flight: Flight, scale: float, limits: Limits = FREE) -> Tensor:
    """Attention of the rows of this call over the cache, under the tree's mask.

    With ``flight.paths`` each root-to-leaf path is laid out behind the prefix as a chain of its own before its
    rows attend, ``flight.tile`` of them to a product of matrices, whatever their number. Sums over keys then run in
    the order a chain would have had, whatever the shape of the tree: this is what keeps the bits equal when
    `numerics="invariant"` asks for it. Rows on no path (padding) get zeros, which keep their keys and values finite.

    Args:
        query: (n, heads, head_dim); heads is a multiple of kv_heads (grouped-query attention).
        keys: (capacity, kv_heads, head_dim), the rows of this call already written.
        values: (capacity, kv_heads, width), which may be narrower or wider than keys.
        scale: multiplies the scores.

    Returns:
        (n, heads, width), contiguous.
    """
    groups, (softcap, window) = query.shape[1] // keys.shape[1], limits
    if flight.paths is None:
        query = query[None]  # (1, n, heads, head_dim)
        return _attend(query, keys, values, flight.bias(groups, window), scale, softcap)
    in_flight = slice(flight.base, flight.base + flight.first + flight.rows)
    out = query.new_zeros(*query.shape[:2], values.shape[-1])
    buffers = () if flight.is_chain else (keys, values)  # a chain lies in its place already
    stored = [buffer[in_flight].clone() for buffer in buffers]  # (first + n, kv_heads, head_dim) each
    for path in flight.paths:
        for buffer, rows in zip(buffers, stored, strict=True):
            buffer[flight.base : flight.base + len(path.rows)] = rows[path.rows]
        tiles = query[path.fresh].unflatten(0, (-1, flight.tile))  # (tiles, tile, heads, head_dim)
        out[path.fresh] = _attend(tiles, keys, values, flight.path_bias(path, groups, window), scale, softcap)
    for buffer, rows in zip(buffers, stored, strict=True):
        buffer[in_flight] = rows
    return out


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float, softcap: float | None) -> Tensor:
    """(tiles * n, heads, width of values) for queries (tiles, n, heads, head_dim) under a bias for each tile."""
    (tiles, n, heads, _), kv_heads, end = query.shape, keys.shape[1], bias.shape[-1]
    # Query heads that share a key head become extra rows of it: keys and values are never repeated in memory.
    query = query.unflatten(2, (kv_heads, -1))  # (tiles, n, kv_heads, groups, head_dim)
    query = query.permute(0, 2, 3, 1, 4).flatten(2, 3)  # (tiles, kv_heads, groups * n, head_dim)
    keys = keys[:end].transpose(0, 1).expand(tiles, -1, -1, -1)  # (tiles, kv_heads, keys, head_dim)
    values = values[:end].transpose(0, 1).expand(tiles, -1, -1, -1)  # (tiles, kv_heads, keys, width)
    if softcap is None:
        out = F.scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=scale)
    else:
        scores = torch.matmul(query, keys.transpose(-1, -2)) * scale  # (tiles, kv_heads, groups * n, keys)
        scores = softcap * torch.tanh(scores / softcap) + bias
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        out = torch.matmul(weights.to(values.dtype), values)  # (tiles, kv_heads, groups * n, head_dim)
    out = out.unflatten(2, (-1, n)).permute(0, 3, 1, 2, 4)  # (tiles, n, kv_heads, groups, head_dim)
    return out.reshape(tiles * n, heads, -1).contiguous()


def rounded_up(count: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not below ``count``.

    >>> rounded_up(65, 64), rounded_up(64, 64)
    (128, 64)
    """
    return -(-count // multiple) * multiple
