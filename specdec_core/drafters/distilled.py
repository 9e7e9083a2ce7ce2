"""The draft model distilled from a target, put together: layers from a file, embedding and head from the target.

The file holds the layers alone (see `shallow_net`). The embedding is looked up where the target has it; only the
rows of the head that are drafted exist a second time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from transformers import LlamaForCausalLM, PretrainedConfig

from ..base.errors import ModelError
from ..model.lm import CachedLM
from . import weights
from .shallow_net import shallow_config

_SHARED = {"model.embed_tokens.weight", "lm_head.weight"}


def draft_lm(
    target: CachedLM, weights_hash: Callable[[], str] | None, name: str = "draft_model", full: bool = False
) -> tuple[CachedLM, np.ndarray]:
    """The draft model, and the tokens (K,) that the rows of its projection stand for.

    Args:
        target: whose embedding and head it uses.
        name, weights_hash: see `weights.load`.
        full: project to all tokens of the target, whatever the weights were trained for.
    """
    ids, tensors, _ = weights.load(name, target.vocab_size, weights_hash, "distilled draft model", "draft_model")
    if full:
        ids = torch.arange(target.vocab_size)
    model = assemble(target.execution.facts.config, tensors, _TargetRows(target), target.execution.head_rows(ids))
    return CachedLM(model, release=True), ids.numpy()


def assemble(
    config: PretrainedConfig, tensors: dict[str, torch.Tensor], embedding: nn.Module, head: torch.Tensor
) -> LlamaForCausalLM:
    """An ordinary `LlamaForCausalLM`, in the head's type and on its device.

    Args:
        config: the target's.
        tensors: of a `shallow_net.ShallowDraft`, by its names.
        embedding: used as it is.
        head: (K, D), used as it is.

    Raises:
        ModelError: if the tensors are not those of such a model.
    """
    layers = len({name.split(".")[2] for name in tensors if name.startswith("model.layers.")})
    model = LlamaForCausalLM(shallow_config(config, layers)).eval()
    model.to(head.device)  # type: ignore[arg-type]  # transformers wraps `to`
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or set(missing) != _SHARED:
        raise ModelError(
            f"the weights of a distilled draft model hold its layers and its norm; these lack "
            f"{sorted(set(missing) - _SHARED)} and hold {unexpected} besides"
        )
    for weight in model.parameters():  # `to` would round the frequencies of the rotary positions too
        weight.data = weight.data.to(head.dtype)
    model.model.embed_tokens = embedding
    model.lm_head = nn.Linear(head.shape[1], len(head), bias=False, device="meta")
    model.lm_head.weight = nn.Parameter(head, requires_grad=False)
    model.config.vocab_size = len(head)
    return model.requires_grad_(False)


class _TargetRows(nn.Module):
    """The target's embedding in a model's place for one: its rows come from the target, its own weight is empty."""

    def __init__(self, target: CachedLM):
        super().__init__()
        facts = target.execution.facts
        empty = torch.empty(0, facts.config.hidden_size, dtype=facts.dtype, device=facts.device)
        self.weight, self._embed = nn.Parameter(empty, requires_grad=False), target.execution.embed

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self._embed(ids.flatten()).view(*ids.shape, -1)  # ids (...) to (..., D)
