"""`Packed`: the same forward with weights laid out once for oneDNN, on a CPU.

Differs from `Eager` in running a Llama-style stack itself: weights are reordered once into the blocked layout of
the matrix kernels, query/key/value projections are one matrix, activation and residual additions ride in the
kernels that produce them. An unpacked float32 matrix costs twice as much at two rows as at one; a packed one does
not, which is what makes checking a draft nearly free.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from ..cache import Flight, KVCache, attend
from ..errors import UnsupportedModel
from .eager import Eager

# Architectures whose decoder layer is exactly the one in `_Layer`; others are left to `Eager`.
ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# oneDNN chooses a layout for the row count it is told; this one is good from 1 to 64 rows.
_ROWS = 16


def unfit(model: PreTrainedModel) -> str | None:
    """Why this model cannot be packed here, or None if it can."""
    name = type(model).__name__
    weight = model.get_input_embeddings().weight
    if weight.device.type != "cpu":
        return f"packing is for CPUs; the model is on {weight.device}"
    if not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN"
    if weight.dtype not in (torch.float32, torch.bfloat16):
        return f"oneDNN packs float32 and bfloat16; the model is {weight.dtype}"
    if weight.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this CPU does not compute bfloat16"
    if name not in ARCHITECTURES:
        return f"{name} is not one of {', '.join(ARCHITECTURES)}"
    config = model.config
    if config.hidden_act != "silu":
        return f"the activation is {config.hidden_act}, not silu"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    sliding = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if kinds != {"full_attention"} or (name == "MistralForCausalLM" and sliding):
        return "it has sliding-window layers"
    rope = getattr(model.model.rotary_emb, "rope_type", "default")
    if rope not in ("default", "linear", "llama3", "yarn"):
        return f"its rotary embedding ({rope}) depends on the length of the sequence"
    return None


class _Linear:
    """A linear map whose weight has been reordered; the original can be freed."""

    def __init__(self, *layers: torch.nn.Linear):
        weight = torch.cat([layer.weight.detach() for layer in layers]) if len(layers) > 1 else layers[0].weight.detach()
        biases = [layer.bias for layer in layers]
        self.bias = None if biases[0] is None else torch.cat([bias.detach() for bias in biases])
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)

    def __call__(self, x: torch.Tensor, activation: str = "none") -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, activation, [], "")

    def combined(self, x: torch.Tensor, other: torch.Tensor, operation: str) -> torch.Tensor:
        """``operation`` ("add" or "mul") of the product and ``other``, rounded once."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, operation)


class _Layer:
    """One decoder layer: normalize, attend, add; normalize, gated feed-forward, add."""

    def __init__(self, layer, eps: float):
        attention, mlp = layer.self_attn, layer.mlp
        self.eps, self.scale, self.head_dim = eps, attention.scaling, attention.head_dim
        self.norm_in, self.norm_out = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        self.qkv = _Linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.heads = attention.q_proj.out_features // self.head_dim
        self.kv_heads = attention.k_proj.out_features // self.head_dim
        # Qwen 3 normalizes each head of the queries and of the keys before rotating them.
        self.norm_q = attention.q_norm.weight if hasattr(attention, "q_norm") else None
        self.norm_k = attention.k_norm.weight if hasattr(attention, "k_norm") else None
        self.out, self.gate = _Linear(attention.o_proj), _Linear(mlp.gate_proj)
        self.up, self.down = _Linear(mlp.up_proj), _Linear(mlp.down_proj)

    def __call__(self, x, cos, sin, index: int, kv: KVCache, flight: Flight) -> torch.Tensor:
        rows, width = x.shape
        qkv = self.qkv(F.rms_norm(x, (width,), self.norm_in, self.eps)).view(rows, -1, self.head_dim)
        turned = self.heads + self.kv_heads
        qk, value = qkv[:, :turned], qkv[:, turned:]
        if self.norm_q is not None:
            shape = (self.head_dim,)
            query = F.rms_norm(qk[:, : self.heads], shape, self.norm_q, self.eps)
            qk = torch.cat([query, F.rms_norm(qk[:, self.heads :], shape, self.norm_k, self.eps)], 1)
        # Rotary position: x cos + rotate_half(x) sin; the sign of the half is in the table of sines.
        qk = torch.addcmul(qk * cos, qk.roll(self.head_dim // 2, -1), sin)
        kv.write(index, qk[:, self.heads :], value, flight.base + flight.first)
        mixed = attend(qk[:, : self.heads], kv.keys[index], kv.values[index], flight, self.scale)
        x = self.out.combined(mixed.reshape(rows, -1), x, "add")
        normed = F.rms_norm(x, (width,), self.norm_out, self.eps)
        return self.down.combined(self.up.combined(normed, self.gate(normed, "swish"), "mul"), x, "add")


class Packed:
    """Runs a Llama-style model from packed weights; `unfit` says which models those are.

    Args:
        model: the model; unless ``release``, it stays usable and its weights exist twice.
        release: free each of the model's matrices as soon as it is packed. The model cannot run afterwards.

    Raises:
        UnsupportedModel: naming the reason, for a model that cannot be packed.
    """

    name = "packed"

    def __init__(self, model: PreTrainedModel, release: bool = False):
        reason = unfit(model)
        if reason:
            raise UnsupportedModel(f"{type(model).__name__} cannot be packed: {reason}; use execution='eager'")
        eager = Eager(model)  # the same refusals, and the facts about the model
        self.config, self.layers, self.vocab_size = eager.config, eager.layers, eager.vocab_size
        self.dtype, self.device = eager.dtype, eager.device
        stack = model.model
        self._eps = model.config.rms_norm_eps
        self._embedding, self._norm, self._rotary = stack.embed_tokens, stack.norm.weight, stack.rotary_emb
        self._stack = []
        for layer in stack.layers:
            self._stack.append(_Layer(layer, self._eps))
            if release:
                _empty(layer)
        self._head = _Linear(model.lm_head)
        if release and model.lm_head.weight is not self._embedding.weight:
            _empty(model.lm_head)
        self._tables(256)

    def _tables(self, length: int) -> None:
        positions = torch.arange(length)[None]
        cos, sin = self._rotary(torch.empty(0, dtype=self.dtype), positions)
        half = sin.shape[-1] // 2
        self._cos = cos.squeeze(0).unsqueeze(1)
        self._sin = torch.cat([-sin[..., :half], sin[..., half:]], -1).squeeze(0).unsqueeze(1)

    @torch.no_grad()
    def run(self, ids: torch.Tensor, positions: torch.Tensor, kv: KVCache, flight: Flight, keep: torch.Tensor,
            hidden: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
        """One forward; see `Eager.run`."""
        if kv.capacity > len(self._cos):
            self._tables(kv.capacity)
        cos, sin = self._cos[positions], self._sin[positions]
        x = F.embedding(ids, self._embedding.weight)
        for index, layer in enumerate(self._stack):
            x = layer(x, cos, sin, index, kv, flight)
        if len(keep) < len(x):
            x = x[keep]
        x = F.rms_norm(x, x.shape[-1:], self._norm, self._eps)
        return self._head(x), x if hidden else None


def _empty(module: torch.nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, torch.nn.Linear):
            part.weight = torch.nn.Parameter(torch.empty(0, dtype=part.weight.dtype), requires_grad=False)
