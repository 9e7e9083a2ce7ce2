"""Many sequences in step: one token each a forward, over one preallocated cache.

Generating text to train on is a matter of throughput, and the shape of the work is chosen for it. All sequences of
a wave stand at the same position, so a forward is one matrix product for all of them, attention needs no mask, and
the keys written are one slice. Sequences are kept together by what they hold: a conversation that ends an answer
goes on with its next turn until the wave is full.
"""

from __future__ import annotations

from functools import partial

import torch
from transformers import PreTrainedModel

from ..base.errors import UnsupportedModel
from ..model.execution import llama, packed

_BLOCK = 64


class Wave:
    """The cache of B sequences of one length, and the model that runs them.

    Args:
        model: a Llama-style causal language model; see `execution.llama`.
        rows: B, the number of sequences.
        length: tokens that each can hold.

    Raises:
        UnsupportedModel: if the model is of another architecture.
    """

    def __init__(self, model: PreTrainedModel, rows: int, length: int):
        if reason := llama.unfit(model):
            raise UnsupportedModel(f"{type(model).__name__} cannot be run in waves: {reason}")
        if packed.unfit(model):
            self.stack = llama.Stack(model)
        else:
            self.stack = llama.Stack(model, partial(packed.PackedLinear, rows=rows), packed.PackedNorm)
        weight = model.get_input_embeddings().weight
        self.rows, self.length, self.device = rows, length, weight.device
        self.dim, self.dtype = weight.shape[1], weight.dtype
        layer = self.stack.layers[0]
        self._groups, self._shape = layer.heads // layer.kv_heads, (rows * layer.kv_heads, layer.head_dim)
        self.stack.prepare(length)
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._room = 0

    @torch.no_grad()
    def step(self, ids: torch.Tensor, position: int, logits: bool = True) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Read one token of each sequence.

        Args:
            ids: (B,) int64.
            position: where they stand; all positions before it have been read.
            logits: also project to the vocabulary.

        Returns:
            (B, V) logits, or None, and (B, D) hidden states after the final norm.
        """
        places = torch.full((self.rows,), position, device=self.device)
        stack, x = self.stack, self.stack.embed(ids)
        cos, sin = stack.cos[places], stack.sin[places]
        if position >= self._room or position == 0:
            self._make_room(position)
        self._future[: position + 1] = 0
        for index, layer in enumerate(stack.layers):
            x = layer(x, cos, sin, partial(self._attend, index, position))
        x = stack.norm(x)
        return (stack.head(x) if logits else None), x

    def _make_room(self, position: int) -> None:
        """Buffers for the next block of positions, holding those before. Products copy what is not dense, so the
        buffers are as long as what has been read, rounded up."""
        self._room = room = (position // _BLOCK + 1) * _BLOCK
        (rows, width), like = self._shape, {"dtype": self.dtype, "device": self.device}
        self._future = torch.full((room,), -torch.inf, **like)
        for index in range(len(self.stack.layers)):
            # Keys lie transposed, so that scores and mixing are plain products.
            keys, values = torch.zeros(rows, width, room, **like), torch.zeros(rows, room, width, **like)
            if position:
                keys[:, :, :position] = self._keys[index][:, :, :position]
                values[:, :position] = self._values[index][:, :position]
                self._keys[index], self._values[index] = keys, values
            else:
                self._keys[index:], self._values[index:] = [keys], [values]

    def _attend(self, index: int, position: int, query, key, value, scale: float) -> torch.Tensor:
        keys, values = self._keys[index], self._values[index]
        keys[:, :, position] = key.reshape(self._shape)
        values[:, position] = value.reshape(self._shape)
        # Query heads that share a key head are rows of one product.
        query = query.reshape(len(keys), self._groups, -1) * scale
        weights = torch.bmm(query, keys).add_(self._future).softmax(-1)
        return torch.bmm(weights, values).view(self.rows, -1, query.shape[-1])
