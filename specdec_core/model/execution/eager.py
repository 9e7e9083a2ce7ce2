"""`Eager`: transformers' own modules, with their attention replaced by `cache.attend`.

transformers lets attention be chosen by name. Ours is registered once, writes keys and values into our buffers
and reads the tree's mask, so no version of transformers' own cache or mask code takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...base.errors import UnsupportedModel
from ..cache import Limits
from .likeness import Reference
from .protocol import Cache, Rows, Scores, matrix

NAME = "specdec"
_OURS = RLock()  # held while a model has our attention
# What models pass to an attention function that ours reads or may safely ignore; more could change the result.
_READ = {"scaling", "softcap", "sliding_window"}
_OUTPUTS = {"output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "logits_to_keep"}
_PLACES = {"position_ids", "cache_position", "position_embeddings"}
_CACHES = {"use_cache", "past_key_values", "cache", "layer_past"}
_KNOWN = _READ | _OUTPUTS | _PLACES | _CACHES


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
    attention_mask: Tensor | None,
    specdec_call: _Call | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    name = type(module).__name__
    if specdec_call is None:
        raise UnsupportedModel(f"{name} does not hand keyword arguments on to its attention function")
    unknown = sorted(key for key, value in kwargs.items() if key not in _KNOWN and value is not None)
    if unknown:
        raise UnsupportedModel(f"{name} passes {unknown} to attention, which is not understood")
    # With our attention chosen, transformers makes no mask: what comes is the model's own.
    if attention_mask is not None:
        raise UnsupportedModel(f"{name} adds a mask of its own to the scores, which a draft tree's cannot be joined to")
    if dropout or (is_causal is False and query.shape[2] > 1):
        what = "drops attention weights at random" if dropout else "attends in both directions"
        raise UnsupportedModel(f"{name} {what}; a draft tree is checked by causal attention without chance")
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
        reference = Reference(model)
        self.model, self.facts = model, reference.facts
        self._windows = _windows(self.facts.config)
        reference.hold(self)

    def slots(self, rows: int) -> int:
        """Cache slots that a forward of this many rows writes."""
        return rows

    @torch.no_grad()
    def run(
        self, ids: Tensor, positions: Tensor, kv: Cache[Rows], flight: Rows, keep: Tensor, hidden: bool = False
    ) -> Scores:
        """See `Execution.run`."""
        call = _Call(lambda layer, q, k, v, *rest: kv.attend(layer, q, k, v, flight, *rest))
        # The model is ours only while it runs: it still serves transformers' own generate(). Threads with other caches
        # wait. Put back twice, since Ctrl-C may come in the first.
        with _OURS:
            config, chosen = self.model.config, self.model.config._attn_implementation
            try:
                try:
                    config._attn_implementation = NAME
                    out = self.model(
                        input_ids=ids[None],
                        position_ids=positions[None],
                        use_cache=False,
                        logits_to_keep=keep,
                        output_hidden_states=hidden,
                        specdec_call=call,
                    )
                finally:
                    config._attn_implementation = chosen
            finally:
                config._attn_implementation = chosen
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
        logits = out.logits[0]  # of all rows, if the model does not know `logits_to_keep`
        logits = logits if len(logits) == len(keep) else logits[keep]
        return logits, out.hidden_states[-1][0] if hidden else None

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
