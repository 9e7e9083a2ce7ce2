"""The Llama-style decoder stack, once, for the executions that run it themselves.

`Packed` and `Compiled` differ in how a linear map is held and in how attention reaches the cache; the layer is the
same. Every formula is transformers' own, with query/key/value projections as one matrix.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules import module as everywhere
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from ...base.errors import UnsupportedModel
from ..hardware import give_back
from . import stored
from .likeness import Reference
from .protocol import Execution

# Architectures whose decoder layer is exactly the one below; others are left to `Eager`.
ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
CAPTURING = "transformers.utils.output_capturing"  # whose hooks read and change nothing
_PLAIN = (torch.nn.Linear, torch.nn.Embedding, torch.nn.ModuleList, torch.nn.SiLU, type(ACT2FN["silu"]))


def unfit(model: PreTrainedModel) -> str | None:
    """Why this model is not the stack below, or None if it is."""
    name, config = type(model).__name__, model.config
    if name not in ARCHITECTURES:
        return f"{name} is not one of {', '.join(ARCHITECTURES)}"
    family = name.removesuffix("ForCausalLM").lower()
    home = f"transformers.models.{family}.modeling_{family}"
    if type(model).__module__ != home:
        return f"it is the {name} of {type(model).__module__}, not that of transformers"
    for place, module in model.named_modules():
        if not place.startswith("model.embed_tokens") and (reason := unusual(module, home)):
            return f"{place or 'the model'} {reason}"
    layers: Any = model.model.layers
    if len({id(part) for layer in layers for part in layer.modules()}) < sum(len([*x.modules()]) for x in layers):
        return "it has layers that share modules"
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


def unusual(module: torch.nn.Module, home: str = "") -> str | None:
    """What lets a module do other things than its class says, or None: only then may its weights be read alone.

    Adapters put modules of their own in the place of a linear map, or a hook, or another ``forward`` on one; so do
    quantisation, offloading and parametrization.

    Args:
        home: name of the Python module whose classes are usual beside torch's plain ones.
    """
    kind = type(module)
    if kind not in _PLAIN and (kind.__module__ != home or vars(sys.modules[home]).get(kind.__name__) is not kind):
        return f"is a {kind.__name__} of {kind.__module__}"
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    hooks += [*everywhere._global_forward_hooks.values(), *everywhere._global_forward_pre_hooks.values()]
    if any(getattr(hook, "__module__", None) != CAPTURING for hook in hooks):
        return "has a hook on its forward"
    owner: Any = next(one for one in kind.__mro__ if "forward" in vars(one))
    if "forward" in vars(module) or inspect.unwrap(owner.forward).__module__ != owner.__module__:
        return "has another forward than its class was written with"
    if other := [type(part).__name__ for part in module.parameters(recurse=False) if type(part) is not Parameter]:
        return f"holds a {other[0]}, which is not a plain matrix"
    return None


class Linear:
    """One or several linear maps of the same input, side by side, as one matrix."""

    def __init__(self, *layers: torch.nn.Linear):
        weights = [layer.weight.detach() for layer in layers]
        self.weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        pairs = [(layer.bias, weight.new_zeros(len(weight))) for layer, weight in zip(layers, weights, strict=True)]
        biases = [zeros if bias is None else bias.detach() for bias, zeros in pairs]
        self.bias = None if all(bias is None for bias, _ in pairs) else torch.cat(biases)

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        """The product; ``activation`` is "none" or "swish"."""
        y = F.linear(x, self.weight, self.bias)
        return F.silu(y) if activation == "swish" else y

    def combined(self, x: Tensor, other: Tensor, operation: str) -> Tensor:
        """``operation`` ("add" or "mul") of the product and ``other``."""
        y = F.linear(x, self.weight, self.bias)
        return y + other if operation == "add" else y * other


MakeLinear = Callable[..., Linear]  # one, or several, of `torch.nn.Linear` to a `Linear`


class Norm:
    """Root-mean-square normalization over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, weight: Tensor, eps: float):
        self.weight, self.eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]


class Layer:
    """One decoder layer: normalize, attend, add; normalize, gated feed-forward, add."""

    def __init__(self, layer: Any, eps: float, linear: MakeLinear, norm: type[Norm]):
        attention, mlp = layer.self_attn, layer.mlp
        self.scale, self.head_dim = attention.scaling, attention.head_dim
        self.norm_in = norm(layer.input_layernorm.weight, eps)
        self.norm_out = norm(layer.post_attention_layernorm.weight, eps)
        self.heads = attention.q_proj.out_features // self.head_dim
        self.kv_heads = attention.k_proj.out_features // self.head_dim
        # Qwen 3 normalizes each head of the queries and of the keys before rotating them.
        self.norm_q = norm(attention.q_norm.weight, eps) if hasattr(attention, "q_norm") else None
        self.norm_k = norm(attention.k_norm.weight, eps) if hasattr(attention, "k_norm") else None
        self.qkv = linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out, self.gate = linear(attention.o_proj), linear(mlp.gate_proj)
        self.up, self.down = linear(mlp.up_proj), linear(mlp.down_proj)

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x (n, D) through the layer; ``attend(query, key, value, scale)`` on (n, heads, head_dim) owns the cache."""
        rows = len(x)
        qkv = self.qkv(self.norm_in(x)).view(rows, -1, self.head_dim)  # (n, heads + 2 kv_heads, head_dim)
        turned = self.heads + self.kv_heads
        qk, value = qkv[:, :turned], qkv[:, turned:]  # (n, heads + kv_heads, head_dim), (n, kv_heads, head_dim)
        if self.norm_q is not None and self.norm_k is not None:
            qk = torch.cat([self.norm_q(qk[:, : self.heads]), self.norm_k(qk[:, self.heads :])], 1)
        # Rotary position: x cos + rotate_half(x) sin; the sign of the half is in the table of sines.
        qk = torch.addcmul(qk * cos, qk.roll(self.head_dim // 2, -1), sin)
        mixed = attend(qk[:, : self.heads], qk[:, self.heads :], value, self.scale)  # (n, heads, head_dim)
        mixed = mixed.reshape(rows, -1)  # (n, heads * head_dim)
        x = self.out.combined(mixed, x, "add")
        normed = self.norm_out(x)
        return self.down.combined(self.up.combined(normed, self.gate(normed, "swish"), "mul"), x, "add")


MatrixRows = Callable[[Tensor], Tensor]  # (n,) ids to (n, D)


class Stack:
    """Embedding, layers, final norm and vocabulary projection of a model, with its tables of rotary positions."""

    def __init__(
        self, model: PreTrainedModel, linear: MakeLinear = Linear, norm: type[Norm] = Norm, release: bool = False
    ):
        stack: Any = model.model
        eps, embedding = model.config.rms_norm_eps, stack.embed_tokens.weight
        # The matrix, which outlives a release by another `Stack`; a distilled draft model has no matrix of its own.
        own = unusual(stack.embed_tokens) is None and stack.embed_tokens.max_norm is None
        self.embed: MatrixRows = partial(F.embedding, weight=embedding) if own else stack.embed_tokens
        self.norm = norm(stack.norm.weight, eps)
        self.layers = []
        for layer in stack.layers:
            self.layers.append(Layer(layer, eps, linear, norm))
            if release:
                _empty(layer)
        self.head = linear(model.lm_head)
        self._tied = model.lm_head.weight is embedding
        self._head_rows: MatrixRows | None = None if self._tied else partial(F.embedding, weight=model.lm_head.weight)
        if release and not self._tied:
            self._head_rows = stored.find(model, model.lm_head.weight)
            _empty(model.lm_head)
        elif release and own and (rows := stored.find(model, embedding)):
            self.embed = rows
            _empty(model.lm_head)
            _empty(stack.embed_tokens)
        self._rotary, self._like = stack.rotary_emb, stack.norm.weight  # which has the dtype and device of all
        self.cos = self.sin = torch.empty(0)

    def head_rows(self, ids: Tensor) -> Tensor:
        """(n, D) rows of the vocabulary projection.

        Raises:
            UnsupportedModel: if its matrix was freed, and is not in the file that the model was loaded from.
        """
        if self._tied:
            return self.embed(ids)
        if self._head_rows is None:
            raise UnsupportedModel(
                "the vocabulary projection was packed and its matrix freed, and the model's own file does not hold "
                "it; wrap the model with release=False"
            )
        return self._head_rows(ids)

    def prepare(self, length: int) -> None:
        """Make the rotary tables (length, 1, head_dim) reach at least this far."""
        if len(self.sin) >= length:  # the one that is assigned last, if Ctrl-C comes between
            return
        self.cos, self.sin = rotary_tables(self._rotary, self._like, length)

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        keep: Tensor | None,
        attend: Callable[..., Tensor],
        hidden: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Logits (k, V) of the rows ``keep``, of all n if it is None; and final hidden states, of these or of all.

        Args:
            attend: ``attend(index, query, key, value, scale)`` is given the index of the layer.
            hidden: return the states (n, D) of all rows, whatever is kept; else they are (k, D).
        """
        cos, sin = self.cos[positions], self.sin[positions]  # (n, 1, head_dim) each
        x = self.embed(ids)  # (n, D)
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, lambda *args, index=index: attend(index, *args))
        if keep is None or not hidden:
            x = self.norm(x if keep is None else x[keep])
            return self.head(x), x
        x = self.norm(x)
        return self.head(x[keep]), x


class Runner(Execution):
    """What the executions that run a `Stack` share: the facts about its model, its embedding and its projection.

    Args:
        reason: why the model cannot be run so, or None if it can.
        linear, norm, release: as for `Stack`.

    Raises:
        UnsupportedModel: with the reason; for a model that `Eager` refuses, or that runs otherwise so.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        reason: str | None,
        linear: MakeLinear,
        norm: type[Norm],
        release: bool = False,
    ):
        if reason:
            raise UnsupportedModel(f"{type(model).__name__} cannot be {self.name}: {reason}; use execution='eager'")
        reference = Reference(model)  # before the stack may free the model's matrices
        self.facts, self.stack = reference.facts, Stack(model, linear, norm, release)
        reference.hold(self)

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        return self.stack.embed(ids.to(self.facts.device))  # (n, D)

    @torch.no_grad()
    def head_rows(self, ids: Tensor) -> Tensor:
        return self.stack.head_rows(ids.to(self.facts.device))  # (n, D)


def rotary_tables(rotary: torch.nn.Module, like: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (length, 1, head_dim) of the positions 0 ... length - 1, as `Layer` takes them.

    Args:
        rotary: transformers' module.
        like: has the dtype and device of the tables.
    """
    cos, sin = rotary(like, torch.arange(length, device=like.device)[None])  # (1, length, head_dim) each
    half = sin.shape[-1] // 2
    sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)  # (length, head_dim)
    return cos[0].unsqueeze(1), sin.unsqueeze(1)


def _empty(module: torch.nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, torch.nn.Linear | torch.nn.Embedding):
            part.weight = torch.nn.Parameter(torch.empty(0, dtype=part.weight.dtype), requires_grad=False)
    give_back()
