"""`Eager`: transformers' own modules, with their attention replaced by `cache.attend`.

transformers lets attention be chosen by name. Ours is registered once, writes keys and values into our buffers
and reads the tree's mask, so no version of transformers' own cache or mask code takes part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...base.errors import UnsupportedModel
from ...core.tree import DraftTree
from ..cache import Flight, KVCache, Limits
from .protocol import Cache, Facts, Rows, Scores, matrix, read

NAME = "specdec"
# What models pass to an attention function that ours reads or may safely ignore; more could change the result.
_READ = {"scaling", "softcap", "sliding_window"}
_OUTPUTS = {"output_attentions", "output_hidden_states", "output_router_logits", "return_dict"}
_PLACES = {"position_ids", "cache_position", "position_embeddings", "is_causal"}
_CACHES = {"use_cache", "past_key_values", "cache", "layer_past"}
_KNOWN = _READ | _OUTPUTS | _PLACES | _CACHES | {"dropout"}


class _Call:
    """One forward in progress: its attention, which layers that served, with which windows."""

    def __init__(self, attend: Callable[..., Tensor]):
        self.attend = attend
        self.layers: list[int] = []
        self.windows: list[int | None] = []


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    specdec_call: _Call | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if specdec_call is None:
        raise UnsupportedModel(f"{type(module).__name__} does not hand keyword arguments on to its attention function")
    unknown = sorted(name for name, value in kwargs.items() if name not in _KNOWN and value is not None)
    if unknown:
        raise UnsupportedModel(f"{type(module).__name__} passes {unknown} to attention, which is not understood")
    call, layer, window = specdec_call, module.layer_idx, kwargs.get("sliding_window")
    call.layers.append(layer)
    call.windows.append(window)
    query, key, value = (heads[0].transpose(0, 1).contiguous() for heads in (query, key, value))  # (n, heads, width)
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    out = call.attend(layer, query, key, value, scale, Limits(kwargs.get("softcap"), window))
    return out[None], None  # (1, n, heads, head_dim)


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)


class Eager:
    """Runs any causal language model of transformers whose attention can be replaced.

    Raises:
        UnsupportedModel: in the constructor, naming the model and the reason.
    """

    name = "eager"

    def __init__(self, model: PreTrainedModel):
        refuse_unfit(model)
        self.model, self.facts = model, Facts.of(model)
        self._windows = _windows(self.facts.config)
        refuse_unlike(self)

    def slots(self, rows: int) -> int:
        """Cache slots that a forward of this many rows writes."""
        return rows

    @torch.no_grad()
    def run(
        self, ids: Tensor, positions: Tensor, kv: Cache[Rows], flight: Rows, keep: Tensor, hidden: bool = False
    ) -> Scores:
        """See `Execution.run`."""
        call = _Call(lambda layer, q, k, v, *rest: kv.attend(layer, q, k, v, flight, *rest))
        with _our_attention(self.model):
            out = self.model(
                input_ids=ids[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=keep,
                output_hidden_states=hidden,
                specdec_call=call,
            )
        if sorted(call.layers) != list(range(self.facts.layers)):
            raise UnsupportedModel(
                f"{type(self.model).__name__}: layers {call.layers} used the attention function, where each of "
                f"0 ... {self.facts.layers - 1} should once; what another one remembers cannot be rewound"
            )
        if self._windows and call.windows != self._windows:
            raise UnsupportedModel(
                f"{type(self.model).__name__}: its layers should attend within windows of {self._windows} tokens, "
                f"but their attention function was told {call.windows}"
            )
        return out.logits[0], out.hidden_states[-1][0] if hidden else None

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        return self.model.get_input_embeddings()(ids.to(self.facts.device))  # (n, D)

    @torch.no_grad()
    def head_rows(self, ids: Tensor) -> Tensor:
        return matrix(self.model.get_output_embeddings())[ids.to(self.facts.device)]  # (n, D)


def _windows(config: PretrainedConfig) -> list[int | None] | None:
    """The window that each layer has by the configuration; None if no window is shorter than the context."""
    window, limit = getattr(config, "sliding_window", None), getattr(config, "max_position_embeddings", None)
    if not window or (limit and window >= limit):
        return None
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else None for kind in kinds]


@contextlib.contextmanager
def _our_attention(model: PreTrainedModel) -> Iterator[None]:
    # Set only while we run, so that the same model object still serves transformers' own generate().
    config = model.config
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def refuse_unfit(model: PreTrainedModel) -> None:
    """Refuse models whose memory of the past cannot be rewound to an accepted prefix.

    Raises:
        UnsupportedModel: for encoder-decoder, recurrent, hybrid or chunked-attention models, for models that do
            not let their attention function be replaced, without a vocabulary projection, or in training mode.
    """
    name, config = type(model).__name__, model.config.get_text_config()
    if model.get_output_embeddings() is None:
        raise UnsupportedModel(f"{name} has no vocabulary projection; load it with AutoModelForCausalLM")
    if config.is_encoder_decoder:
        raise UnsupportedModel(f"{name} is an encoder-decoder model; a decoder-only causal language model is needed")
    kinds = getattr(config, "layer_types", None) or []
    recurrent = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if getattr(model, "_is_stateful", False) or recurrent:
        what = f"layers of type {recurrent}" if recurrent else "a recurrent state"
        raise UnsupportedModel(
            f"{name} has {what}, whose memory cannot be rewound when a draft token is rejected; "
            f"choose a model whose layers are all attention"
        )
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModel(
            f"{name} does not let its attention function be replaced (transformers' AttentionInterface), "
            f"which the preallocated cache needs"
        )
    if model.training:
        raise UnsupportedModel(f"{name} is in training mode, where dropout makes it random; call model.eval()")


@torch.no_grad()
def refuse_unlike(execution: Eager) -> None:
    """Refuse a model whose own forward over eight tokens disagrees with ours, made as in a decode step.

    The attributes of a model tell much about it, not all. This finds the rest: attention in both directions,
    positions that are not counted from 0, state beside attention.

    Raises:
        UnsupportedModel: naming the model.
    """
    facts, kv = execution.facts, KVCache()
    kv.reserve(9)
    ids = np.arange(1, 9) * facts.vocab_size // 10

    def score(tree: DraftTree) -> Tensor:
        flight = Flight(kv.length, 0, tree.ancestors, kv.length + tree.depths, facts.dtype, facts.device)
        return read(execution, kv, tree.tokens, flight, len(tree.tokens))[0]

    # Four tokens in the cache, then the other four as a tree with a rejected sibling among them.
    cached = score(DraftTree.chain(ids[0], ids[1:4].tolist()))
    kv.length = 4
    in_flight = score(DraftTree(ids[[4, 0, 5, 6, 7]], np.array([-1, 0, 0, 2, 3])))
    ours = torch.cat([cached, in_flight[[0, 2, 3, 4]]])  # (8, V)
    theirs = execution.model(input_ids=torch.from_numpy(ids)[None].to(facts.device), use_cache=False).logits[0]
    # The median, because in a mixture of experts rounding can send a row to another expert.
    error = ((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).median().item()
    if not error <= 0.1:
        raise UnsupportedModel(
            f"{type(execution.model).__name__}: its own forward and ours differ by {error:.0%} on one text "
            f"(attention in both directions, or positions counted otherwise, would do that); "
            f"choose a decoder-only causal language model"
        )
