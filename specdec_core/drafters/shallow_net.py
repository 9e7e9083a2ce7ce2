"""A draft model cut out of its target: few of its layers, its embedding, some rows of its vocabulary projection.

A draft model from elsewhere has to share the target's tokenizer, and few families have a member small enough: the
default target is the smallest of its own. So a model of two layers is made from the target itself. It begins with two
of the target's layers and learns the target's distributions, the distillation of Hinton et al. (arXiv:1503.02531) at
temperature 1, on the target's own text. (DistillSpec, arXiv:2310.08461, has the draft model write it, which costs
a new text in the course of training.)

Embedding and projection stay the target's and are not trained, so only the layers need storing. The projection is cut
to the K most frequent tokens (FR-Spec, arXiv:2502.14856): in so shallow a model it would take most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, PretrainedConfig

from .feature_net import Frozen

LAYERS = (0, -1)


class ShallowDraft(nn.Module):
    """Some layers of a Llama, with the final norm of its own; what it shares with its target is not trained.

    Its state dict holds the trained part alone, under the names that `LlamaForCausalLM` has for it.

    Args:
        frozen: the target's embedding and head.
        target: the target; what is taken from it is copied.
        layers: indices of the target's layers to begin with, in their order here; negative from the end.

    Raises:
        ValueError: for a target that is not a Llama, or layers that it does not have.
    """

    def __init__(self, frozen: Frozen, target: LlamaForCausalLM, layers: Sequence[int] = LAYERS):
        super().__init__()
        if not isinstance(target, LlamaForCausalLM):
            raise ValueError(f"layers are taken from a LlamaForCausalLM; got {type(target).__name__}")
        known = len(target.model.layers)
        if not layers or not all(-known <= index < known for index in layers):
            raise ValueError(f"layers must be indices from {-known} to {known - 1}, at least one; got {list(layers)}")
        self.frozen, self.layers = frozen, tuple(layers)
        self.model = LlamaModel(shallow_config(frozen.config, len(layers)))
        del self.model.embed_tokens  # the target's serves
        dtype = torch.promote_types(target.dtype, torch.float32)  # half precision would lose small updates
        for layer, index in zip(self.model.layers, layers, strict=True):
            layer.load_state_dict(target.model.layers[index].state_dict())
        self.model.norm.load_state_dict(target.model.norm.state_dict())
        self.to(device=frozen.embedding.device, dtype=dtype).requires_grad_(True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, L, K) logits after each of the tokens (B, L), over the tokens that can be drafted."""
        embedded = F.embedding(tokens, self.frozen.embedding).to(self.model.norm.weight.dtype)  # (B, L, D)
        states = self.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
        return F.linear(states, self.frozen.head.to(states.dtype))


def shallow_config(config: PretrainedConfig, layers: int) -> LlamaConfig:
    """The target's configuration with this many layers, and room for one token: the caller puts the embedding and a
    head in place.
    """
    special = dict.fromkeys(["bos_token_id", "eos_token_id", "pad_token_id"])
    changed = {"num_hidden_layers": layers, "vocab_size": 1, "tie_word_embeddings": False}
    shallow = LlamaConfig(**{**config.to_dict(), **special, **changed})
    shallow._attn_implementation = "sdpa"
    return shallow
