"""`Compiled`: the Llama-style stack through torch.compile, at a few fixed shapes.

Differs from `Packed` in that a compiler writes the kernels. It wants static shapes, so rows are padded to the next
width of `WIDTHS` and attention runs over the whole capacity of the cache under the mask. On a GPU the forward is
captured as a CUDA graph: one launch in place of several hundred.
"""

from __future__ import annotations

import torch
import torch._dynamo.config
import torch.nn.functional as F
from transformers import PreTrainedModel

from ...base.errors import UnsupportedModel
from ..cache import Flight, KVCache
from . import llama
from .eager import Eager

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_COMPILATIONS = 256


class Compiled:
    """Runs a Llama-style model through torch.compile; `llama.unfit` says which models those are.

    Args:
        model: stays usable; its matrices are shared where none had to be joined.
        backend: torch.compile's; "inductor" writes kernels, "eager" only traces (for tests).

    Raises:
        UnsupportedModel: naming the reason, for another architecture.
    """

    name = "compiled"

    def __init__(self, model: PreTrainedModel, backend: str = "inductor"):
        if reason := llama.unfit(model):
            raise UnsupportedModel(f"{type(model).__name__} cannot be compiled: {reason}; use execution='eager'")
        eager = Eager(model)
        self.config, self.layers, self.vocab_size = eager.config, eager.layers, eager.vocab_size
        self.dtype, self.device = eager.dtype, eager.device
        self.stack = llama.Stack(model, llama.Linear)
        # CUDA graphs need inputs at fixed addresses; the cache and the weights have them.
        options = {"mode": "reduce-overhead"} if self.device.type == "cuda" and backend == "inductor" else {}
        self._forward = torch.compile(self._step, backend=backend, dynamic=False, fullgraph=True, **options)

    def slots(self, rows: int) -> int:
        """Cache slots that a forward of this many rows writes, padding included."""
        return next((width for width in WIDTHS if width >= rows), -(-rows // WIDTHS[-1]) * WIDTHS[-1])

    @torch.no_grad()
    def run(self, ids: torch.Tensor, positions: torch.Tensor, kv: KVCache, flight: Flight, keep: torch.Tensor,
            hidden: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
        """One forward; see `Eager.run`.

        Raises:
            UnsupportedModel: for position-ordered attention, which this execution does not have.
        """
        if not isinstance(kv, KVCache):
            raise UnsupportedModel("execution='compiled' runs one sequence at a time; use 'packed' or 'eager'")
        if flight.paths is not None:
            raise UnsupportedModel("execution='compiled' does not keep numerics='invariant'; use 'packed' or 'eager'")
        rows, width, start = len(ids), self.slots(len(ids)), flight.base + flight.first
        self.stack.prepare(kv.capacity)
        for index, layer in enumerate(self.stack.layers):
            if kv.keys[index] is None:
                empty = torch.zeros(0, layer.kv_heads, layer.head_dim, dtype=self.dtype, device=self.device)
                kv.write(index, empty, empty, 0)
        visible = flight.bias(1, None)[0, 0]
        bias = torch.full((width, kv.capacity), -torch.inf, dtype=self.dtype, device=self.device)
        bias[:rows, : visible.shape[1]] = visible
        bias[rows:, 0] = 0  # padding rows must see something, or their softmax is 0/0
        slots = torch.arange(start, start + width, device=self.device)
        pad = (0, width - rows)
        # A prefill wants the logits of one row, a tree those of all: two shapes for each width, and each with states.
        wanted = keep[-1:] if len(keep) == 1 else None
        # One compilation a width, each with and without `wanted`, for every model of the process.
        with torch._dynamo.config.patch(cache_size_limit=_COMPILATIONS):
            logits, states = self._forward(
                F.pad(ids, pad), F.pad(positions, pad), slots, bias, wanted, kv.keys, kv.values, hidden
            )
        # Graphs own their outputs and overwrite them at the next replay.
        return logits[: len(keep)].clone(), states[:rows].clone() if hidden else None

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, D) rows of the input embedding."""
        return self.stack.embed(ids)

    def head_rows(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, D) rows of the vocabulary projection."""
        return self.stack.head_rows(ids)

    def _step(self, ids, positions, slots, bias, keep, keys, values, hidden):
        def attend(index, query, key, value, scale):
            keys[index].index_copy_(0, slots, key)
            values[index].index_copy_(0, slots, value)
            query, key, value = (t.transpose(0, 1)[None] for t in (query, keys[index], values[index]))
            out = F.scaled_dot_product_attention(
                query, key, value, attn_mask=bias[None, None], scale=scale, enable_gqa=query.shape[1] != key.shape[1]
            )
            return out[0].transpose(0, 1)

        return self.stack(ids, positions, keep, attend, hidden)
