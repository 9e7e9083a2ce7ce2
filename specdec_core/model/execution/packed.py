"""`Packed`: the Llama-style stack with weights laid out once for oneDNN, on a CPU.

Differs from `Eager` in running the stack of `llama` itself: each weight is reordered once into the blocked layout
of the matrix kernels, and activations and residual additions ride in the kernels that produce them. An unpacked
float32 matrix costs twice as much at two rows as at one; a packed one does not, which is what makes checking a
draft nearly free.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from ..cache import FREE
from ..hardware import native_bfloat16
from . import llama
from .protocol import Cache, Rows, Scores, matrix

# oneDNN chooses a layout for the row count it is told; this one is good from 1 to 64 rows.
_ROWS = 16


def unfit(model: PreTrainedModel) -> str | None:
    """Why this model cannot be packed here, or None if it can."""
    return no_kernels(matrix(model.get_input_embeddings())) or llama.unfit(model)


def no_kernels(weight: Tensor) -> str | None:
    """Why a matrix of this type cannot be packed on this machine, or None if it can."""
    if weight.device.type != "cpu":
        return f"packing is for CPUs; the model is on {weight.device}"
    if not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN"
    if weight.dtype not in (torch.float32, torch.bfloat16):
        return f"oneDNN packs float32 and bfloat16; the model is {weight.dtype}"
    if weight.dtype == torch.bfloat16 and not native_bfloat16():
        return "this CPU does not compute bfloat16"
    return None


class PackedLinear(llama.Linear):
    """A linear map whose weight has been reordered; the original can be freed."""

    def __init__(self, *layers: torch.nn.Linear, rows: int = _ROWS):
        super().__init__(*layers)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), rows)

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, activation, [], "")

    def combined(self, x: Tensor, other: Tensor, operation: str) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, operation)


class PackedNorm(llama.Norm):
    """Root-mean-square normalization by torch's layer normalization, which is one kernel on a CPU, not eight.

    The numbers x and -x together have mean 0 and variance mean(x^2). As exact: computed in float32, rounded once.
    """

    def __init__(self, weight: Tensor, eps: float):
        super().__init__(weight, eps)
        self._twice = torch.stack([weight, weight])  # (2, D)
        self._signs = weight.new_tensor([[1.0], [-1.0]])

    def __call__(self, x: Tensor) -> Tensor:
        both = x.unsqueeze(-2) * self._signs
        return F.layer_norm(both, self._twice.shape, self._twice, None, self.eps).select(-2, 0)


class Packed(llama.Runner):
    """Runs a Llama-style model from packed weights; `unfit` says which models those are.

    Args:
        model: the model; unless ``release``, it stays usable and its weights exist twice.
        release: free each of the model's matrices as soon as it is packed. The model cannot run afterwards.

    Raises:
        UnsupportedModel: naming the reason, for a model that cannot be packed.
    """

    name = "packed"

    def __init__(self, model: PreTrainedModel, release: bool = False):
        super().__init__(model, unfit(model), PackedLinear, PackedNorm, release)

    def slots(self, rows: int) -> int:
        return rows

    @torch.no_grad()
    def run(
        self, ids: Tensor, positions: Tensor, kv: Cache[Rows], flight: Rows, keep: Tensor, hidden: bool = False
    ) -> Scores:
        """See `Execution.run`."""

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            return kv.attend(layer, query, key, value, flight, scale, FREE)

        self.stack.prepare(kv.capacity)
        logits, states = self.stack(ids, positions, keep if len(keep) < len(ids) else None, attend, hidden)
        return logits, states if hidden else None
