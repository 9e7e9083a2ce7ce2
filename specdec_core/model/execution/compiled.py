"""`Compiled`: the Llama-style stack through torch.compile, at a few fixed shapes.

Differs from `Packed` in that a compiler writes the kernels. It wants static shapes, so rows are padded to the next
width of `WIDTHS` and attention runs over the whole capacity of the cache under the mask. On a GPU the forward is
captured as a CUDA graph: one launch in place of several hundred.
"""

from __future__ import annotations

import torch
import torch._dynamo.config
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from ...base.errors import UnsupportedModel
from ..cache import Flight, KVCache, rounded_up
from . import llama
from .protocol import Cache, Rows, Scores

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_COMPILATIONS = 256


class Compiled(llama.Runner):
    """Runs a Llama-style model through torch.compile; `llama.unfit` says which models those are.

    Args:
        model: stays usable; its matrices are shared where none had to be joined.
        backend: torch.compile's; "inductor" writes kernels, "eager" only traces (for tests).

    Raises:
        UnsupportedModel: naming the reason, for another architecture.
    """

    name = "compiled"

    def __init__(self, model: PreTrainedModel, backend: str = "inductor"):
        # CUDA graphs need inputs at fixed addresses; the cache and the weights have them.
        graphs = model.device.type == "cuda" and backend == "inductor"
        mode = "reduce-overhead" if graphs else None
        self._forward = torch.compile(self._step, backend=backend, mode=mode, dynamic=False, fullgraph=True)
        super().__init__(model, llama.unfit(model), llama.Linear, llama.Norm)

    def slots(self, rows: int) -> int:
        return next((width for width in WIDTHS if width >= rows), rounded_up(rows, WIDTHS[-1]))

    @torch.no_grad()
    def run(
        self, ids: Tensor, positions: Tensor, kv: Cache[Rows], flight: Rows, keep: Tensor, hidden: bool = False
    ) -> Scores:
        """See `Execution.run`.

        Raises:
            UnsupportedModel: for several sequences, or for attention along paths.
        """
        if not (isinstance(kv, KVCache) and isinstance(flight, Flight)):
            raise UnsupportedModel("execution='compiled' runs one sequence at a time; use 'packed' or 'eager'")
        if flight.paths is not None:
            raise UnsupportedModel("execution='compiled' does not keep numerics='invariant'; use 'packed' or 'eager'")
        rows, width, start, facts = len(ids), self.slots(len(ids)), flight.base + flight.first, self.facts
        self.stack.prepare(kv.capacity)
        for index, layer in enumerate(self.stack.layers):
            like = torch.empty(0, layer.kv_heads, layer.head_dim, dtype=facts.dtype, device=facts.device)
            kv.allocate(index, like, like)
        visible = flight.bias(1, None)[0, 0]  # (n, keys)
        bias = torch.full((width, kv.capacity), -torch.inf, dtype=facts.dtype, device=facts.device)
        bias[:rows, : visible.shape[1]] = visible
        bias[rows:, 0] = 0  # padding rows must see something, or their softmax is 0/0
        slots = torch.arange(start, start + width, device=facts.device)
        ids, positions = (F.pad(each, (0, width - rows)) for each in (ids, positions))  # (width,) each
        # A prefill wants the logits of one row, a tree those of all: two shapes for each width, and each with states.
        wanted = keep[-1:] if len(keep) == 1 else None
        # One compilation a width, each with and without `wanted`, for every model of the process.
        with torch._dynamo.config.patch(cache_size_limit=_COMPILATIONS):
            logits, states = self._forward(ids, positions, slots, bias, wanted, kv, hidden)
        # Graphs own their outputs and overwrite them at the next replay.
        return logits[: len(keep)].clone(), states[:rows].clone() if hidden else None

    def _step(
        self,
        ids: Tensor,
        positions: Tensor,
        slots: Tensor,
        bias: Tensor,
        keep: Tensor | None,
        kv: KVCache,
        hidden: bool,
    ) -> tuple[Tensor, Tensor]:
        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            return kv.attend_whole(layer, query, key, value, slots, bias, scale)

        return self.stack(ids, positions, keep, attend, hidden)
