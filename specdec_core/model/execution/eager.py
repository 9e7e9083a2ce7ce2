"""`Eager`: transformers' own modules, with their attention replaced by `cache.attend`.

transformers lets attention be chosen by name. Ours is registered once, writes keys and values into our buffers
and reads the tree's mask, so no version of transformers' own cache or mask code takes part.
"""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...base.errors import UnsupportedModel
from ...core.tree import DraftTree
from ..cache import Flight, KVCache

NAME = "specdec"
# What models pass to an attention function that ours reads or may safely ignore; more could change the result.
_KNOWN = {
    "dropout", "scaling", "softcap", "sliding_window", "is_causal", "specdec_call", "position_ids", "cache_position",
    "use_cache", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict",
    "past_key_values", "cache", "layer_past", "position_embeddings",
}  # fmt: skip


class _Call:
    """One forward in progress: where attention writes, what it sees, which layers it served, with which windows."""

    def __init__(self, kv: KVCache, flight: Flight):
        self.kv, self.flight, self.layers, self.windows = kv, flight, [], []


def _attention(module, query, key, value, attention_mask, specdec_call: _Call | None = None, **kwargs):
    if specdec_call is None:
        raise UnsupportedModel(f"{type(module).__name__} does not hand keyword arguments on to its attention function")
    unknown = sorted(name for name, value in kwargs.items() if name not in _KNOWN and value is not None)
    if unknown:
        raise UnsupportedModel(f"{type(module).__name__} passes {unknown} to attention, which is not understood")
    call, layer, window = specdec_call, module.layer_idx, kwargs.get("sliding_window")
    call.layers.append(layer)
    call.windows.append(window)
    query, key, value = (heads[0].transpose(0, 1).contiguous() for heads in (query, key, value))
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    out = call.kv.attend(layer, query, key, value, call.flight, scale, kwargs.get("softcap"), window)
    return out[None], None


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)


class Eager:
    """Runs any causal language model of transformers whose attention can be replaced.

    Raises:
        UnsupportedModel: in the constructor, naming the model and the reason.
    """

    name = "eager"

    def __init__(self, model: PreTrainedModel):
        refuse_unfit(model)
        self.model = model
        self.config = model.config.get_text_config()
        self.layers = self.config.num_hidden_layers
        self.vocab_size = model.get_output_embeddings().weight.shape[0]
        weight = model.get_input_embeddings().weight
        self.dtype, self.device = weight.dtype, weight.device
        self._windows = _windows(self.config)
        refuse_unlike(self)

    def slots(self, rows: int) -> int:
        """Cache slots that a forward of this many rows writes."""
        return rows

    @torch.no_grad()
    def run(self, ids: torch.Tensor, positions: torch.Tensor, kv: KVCache, flight: Flight, keep: torch.Tensor,
            hidden: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
        """One forward.

        Args:
            ids, positions: (n,) int64.
            kv, flight: the cache and the rows in flight; or a `Batch` of caches and a list of flights.
            keep: (k,) int64 rows whose logits are wanted.
            hidden: also return the last hidden states (after the final norm) of all rows.

        Returns:
            logits (k, V) and hidden (n, D) or None.
        """
        call = _Call(kv, flight)
        with _our_attention(self.model):
            out = self.model(
                input_ids=ids[None], position_ids=positions[None], use_cache=False,
                logits_to_keep=keep, output_hidden_states=hidden, specdec_call=call,
            )  # fmt: skip
        if sorted(call.layers) != list(range(self.layers)):
            raise UnsupportedModel(
                f"{type(self.model).__name__}: layers {call.layers} used the attention function, where each of "
                f"0 ... {self.layers - 1} should once; what another one remembers cannot be rewound"
            )
        if self._windows and call.windows != self._windows:
            raise UnsupportedModel(
                f"{type(self.model).__name__}: its layers should attend within windows of {self._windows} tokens, "
                f"but their attention function was told {call.windows}"
            )
        return out.logits[0], out.hidden_states[-1][0] if hidden else None

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, D) rows of the input embedding."""
        return self.model.get_input_embeddings()(ids)

    def head_rows(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, D) rows of the vocabulary projection."""
        return self.model.get_output_embeddings().weight[ids]


def _windows(config) -> list[int | None] | None:
    """The window that each layer has by the configuration; None if no window is shorter than the context."""
    window, limit = getattr(config, "sliding_window", None), getattr(config, "max_position_embeddings", None)
    if not window or (limit and window >= limit):
        return None
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else None for kind in kinds]


@contextlib.contextmanager
def _our_attention(model: PreTrainedModel):
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
    device = execution.device
    ids = torch.arange(1, 9, device=device) * execution.vocab_size // 10
    kv = KVCache(execution.layers)
    kv.reserve(9)

    def run(ids: torch.Tensor, tree: DraftTree) -> torch.Tensor:
        places = kv.length + tree.depths
        flight = Flight(kv.length, 0, tree.ancestors, places, execution.dtype, device)
        rows = torch.arange(len(ids), device=device)
        return execution.run(ids, torch.from_numpy(places).to(device), kv, flight, rows)[0]

    # Four tokens in the cache, then the other four as a tree with a rejected sibling among them.
    cached = run(ids[:4], DraftTree.chain(0, [0, 0, 0]))
    kv.length = 4
    in_flight = run(ids[[4, 0, 5, 6, 7]], DraftTree(np.zeros(5, np.int64), np.array([-1, 0, 0, 2, 3])))
    ours = torch.cat([cached, in_flight[[0, 2, 3, 4]]])
    theirs = execution.model(input_ids=ids[None], use_cache=False).logits[0]
    # The median, because in a mixture of experts rounding can send a row to another expert.
    error = ((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).median().item()
    if not error <= 0.1:
        raise UnsupportedModel(
            f"{type(execution.model).__name__}: its own forward and ours differ by {error:.0%} on one text "
            f"(attention in both directions, or positions counted otherwise, would do that); "
            f"choose a decoder-only causal language model"
        )
