"""The module that MTP and EAGLE train: one decoder layer that continues the target's hidden states.

After the target has read tokens t_0 ... t_i, its state f_i gives the distribution of t_{i+1}. Once t_{i+1} is known,
the module turns (f_i, t_{i+1}) into a guess of f_{i+1}; the target's own vocabulary projection makes of that a
distribution of t_{i+2} to draft from. The output stands in for the next state, so the module can go on as far as one
likes.

Two papers differ in how the pair is joined. DeepSeek-V3's multi-token prediction (arXiv:2412.19437, section 2.2)
normalizes state and embedding, concatenates and projects them, and normalizes the output before the shared head;
EAGLE (arXiv:2401.15077, section 3) concatenates and projects them as they are, and its output is the state itself, to
be near f_{i+1} in value too. EAGLE is trained on its own outputs as well (`Recipe.steps` > 1), as HASS
(arXiv:2408.15766) and EAGLE-3 (arXiv:2503.01840) do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding


@dataclass(frozen=True)
class Frozen:
    """What a drafter shares with its target, and no training changes.

    Attributes:
        embedding: (V, D).
        head: (K, D), the rows of the vocabulary projection that the drafter may draft.
        ids: (K,) int64, the tokens that these rows stand for.
        config: the target's configuration.
    """

    embedding: torch.Tensor
    head: torch.Tensor
    ids: torch.Tensor
    config: PretrainedConfig


class FeatureDraft(nn.Module):
    """One decoder layer over joined states and embeddings.

    Args:
        frozen: the target's embedding and head.
        normed: join and end as MTP does; otherwise as EAGLE.
        token: feed the embedding of the next token; without it the module cannot know which token was sampled.
        feature: feed the state; without it the module reads tokens alone.
    """

    def __init__(self, frozen: Frozen, normed: bool, token: bool = True, feature: bool = True):
        super().__init__()
        if not (token or feature):
            raise ValueError("the module needs tokens or features to read")
        config = LlamaConfig(**{**frozen.config.to_dict(), "num_hidden_layers": 1})
        config._attn_implementation = "sdpa"
        self.frozen, self.normed, self.token, self.feature = frozen, normed, token, feature
        dim, eps = config.hidden_size, config.rms_norm_eps
        self.join = nn.Linear(dim * (token + feature), dim, bias=False)
        self.layer = LlamaDecoderLayer(config, 0)
        self.norm_token = LlamaRMSNorm(dim, eps) if normed and token else None
        self.norm_feature = LlamaRMSNorm(dim, eps) if normed and feature else None
        self.norm_out = LlamaRMSNorm(dim, eps) if normed else None
        self.rotary = LlamaRotaryEmbedding(config)
        # Embeddings are small beside states; EAGLE's join would not hear them at first.
        self.scale = 1.0 if normed else 1 / frozen.embedding.detach().float().std().item()
        with torch.no_grad():
            std = dim**-0.5 / 2
            self.join.weight.normal_(std=std)
            if feature:
                self.join.weight[:, -dim:] += torch.eye(dim)

    def joined(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """(..., D) input of the layer, from tokens (...) and states (..., D)."""
        parts = []
        if self.token:
            part = F.embedding(tokens, self.frozen.embedding).to(states.dtype) * self.scale  # (..., D)
            parts.append(part if self.norm_token is None else self.norm_token(part))
        if self.feature:
            parts.append(states if self.norm_feature is None else self.norm_feature(states))
        return self.join(torch.cat(parts, -1))  # (..., D or 2 D) to (..., D)

    def forward(self, tokens: torch.Tensor, states: torch.Tensor, steps: int) -> list[torch.Tensor]:
        """The states drafted from every place of a text, ``steps`` deep.

        Place i starts from f_i. Step k reads token t_{i+1+k} and its own state of step k - 1 (f_i for k = 0), and
        sees what a drafter would see: the pairs of places 0 ... i that hold true states, and its own steps.

        Args:
            tokens: (B, L); states: (B, L, D).

        Returns:
            for each step (B, L, D); rows whose token lies beyond the text mean nothing.
        """
        outputs: list[torch.Tensor] = []
        past: list[tuple[torch.Tensor, torch.Tensor]] = []  # keys and values of each step, (B, heads, L, width)
        for step in range(steps):
            ahead = tokens.roll(-1 - step, 1)  # (B, L)
            states = self._through_layer(self.joined(ahead, states), past, step)
            outputs.append(states)
        return outputs

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """(..., K) logits of the drafted states (..., D)."""
        states = states if self.norm_out is None else self.norm_out(states)
        return F.linear(states, self.frozen.head.to(states.dtype))

    def _through_layer(self, x: torch.Tensor, past: list[tuple[torch.Tensor, torch.Tensor]], step: int) -> torch.Tensor:
        layer, attention = self.layer, self.layer.self_attn
        (batch, length, _), width = x.shape, attention.head_dim
        places = torch.arange(step, length + step, device=x.device)[None]  # (1, L)
        cos, sin = self.rotary(x, places)
        normed = layer.input_layernorm(x)
        query, key, value = (
            projection(normed).view(batch, length, -1, width).transpose(1, 2)  # (B, heads, L, width)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = (_turn(heads, cos, sin) for heads in (query, key))
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)  # as many heads as query
        past.append((key, value))
        if step == 0:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=attention.scaling)
        else:
            mixed = _attend_steps(query, past, attention.scaling)
        x = x + attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))  # (B, L, D)
        return x + layer.mlp(layer.post_attention_layernorm(x))


def _attend_steps(query: torch.Tensor, past: list[tuple[torch.Tensor, torch.Tensor]], scale: float) -> torch.Tensor:
    """Attention (B, heads, L, width) of place i at a later step: step 0's keys up to place i, and its own since."""
    (key, value), length = past[0], query.shape[2]
    future = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    scores = (query @ key.transpose(-1, -2) * scale).masked_fill(future, -torch.inf)  # (B, heads, L, L)
    own = [(query * key).sum(-1, keepdim=True) * scale for key, _ in past[1:]]  # (B, heads, L, 1) each
    weights = torch.cat([scores, *own], -1).softmax(-1, dtype=torch.float32).to(query.dtype)
    mixed = weights[..., :length] @ value
    for index, (_, value) in enumerate(past[1:]):
        mixed = mixed + weights[..., length + index, None] * value
    return mixed


def _turn(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions of heads (B, heads, L, width), from tables (1, L, width)."""
    cos, sin = cos[:, None].to(heads.dtype), sin[:, None].to(heads.dtype)  # (1, 1, L, width)
    first, second = heads.chunk(2, -1)  # (B, heads, L, width / 2) each
    return heads * cos + torch.cat([-second, first], -1) * sin
