"""What `CachedLM` asks of an execution, and the facts about a model that all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from ...base.errors import UnsupportedModel
from ..cache import Flight, Limits

Rows = TypeVar("Rows", contravariant=True)
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
Scores = tuple[Tensor, Tensor | None]  # logits (k, V), and hidden states (n, D) where asked for


def matrix(module: Any) -> Tensor:
    """(V, D) the matrix of an embedding, or of a vocabulary projection.

    Raises:
        UnsupportedModel: if it has none that can be read.

    Example:
        >>> matrix(torch.nn.Embedding(3, 2)).shape
        torch.Size([3, 2])
    """
    weight: Any = getattr(module, "weight", None)
    if type(weight) not in (Tensor, torch.nn.Parameter) or weight.ndim != 2 or weight.is_meta:
        found = "no weight"
        if isinstance(weight, Tensor):
            found = f"a {type(weight).__name__} {tuple(weight.shape)} on {weight.device}"
        raise UnsupportedModel(
            f"expected an embedding and a vocabulary projection that hold a matrix each; a {type(module).__name__} "
            f"holds {found}. Quantised, low-rank and offloaded layers hold none, and release=True frees it: load the "
            f"model whole, in float32 or bfloat16"
        )
    if weight.dtype not in FLOATS:
        raise UnsupportedModel(f"expected weights of one of {FLOATS}; a {type(module).__name__} has {weight.dtype}")
    return weight


@dataclass(frozen=True)
class Facts:
    """What is true of a model however it is executed.

    Attributes:
        config: transformers' configuration of the text model.
        layers: number of its decoder layers.
        vocab_size: V, rows of the vocabulary projection.
        dtype: of the weights, and so of states, keys and values.
        device: where they are.
    """

    config: PretrainedConfig
    layers: int
    vocab_size: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: PreTrainedModel) -> Facts:
        config, embedding = model.config.get_text_config(), matrix(model.get_input_embeddings())
        vocab_size = len(matrix(model.get_output_embeddings()))
        return cls(config, config.num_hidden_layers, vocab_size, embedding.dtype, embedding.device)


class Cache(Protocol[Rows]):
    """Where attention reads and writes: a `KVCache` with one `Flight`, or several caches with a flight each."""

    @property
    def capacity(self) -> int: ...

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, flight: Rows, scale: float, limits: Limits, /
    ) -> Tensor: ...


class Execution(Protocol):
    """A way to run a model's forward.

    Attributes:
        name: one of `execution.CHOICES`.
        facts: about the model.
    """

    name: str
    facts: Facts

    def slots(self, rows: int) -> int:
        """Cache slots that a forward of this many rows writes."""

    def run(
        self, ids: Tensor, positions: Tensor, kv: Cache[Rows], flight: Rows, keep: Tensor, hidden: bool = False
    ) -> Scores:
        """One forward.

        Args:
            ids, positions: (n,) int64.
            kv, flight: the cache and the rows in flight.
            keep: (k,) int64 rows whose logits are wanted.
            hidden: also return the last hidden states (after the final norm) of all rows.

        Returns:
            logits (k, V), and hidden (n, D) or None.
        """

    def embed(self, ids: Tensor) -> Tensor:
        """(n, D) what the model reads for the tokens ``ids`` (n,) int64."""

    def head_rows(self, ids: Tensor) -> Tensor:
        """(n, D) rows of the vocabulary projection: the logits of the tokens ``ids`` are their products with a state.

        Raises:
            UnsupportedModel: if the model's own matrix was freed and is not in the file that it was loaded from.
        """


def read(
    execution: Execution, kv: Cache[Flight], tokens: np.ndarray, flight: Flight, keep: int, hidden: bool = False
) -> Scores:
    """One forward of the rows ``tokens`` (n,) in ``flight``; logits of the first ``keep`` of them."""
    device = execution.facts.device
    ids = torch.from_numpy(tokens).to(device)
    positions = torch.from_numpy(flight.positions[flight.first :]).to(device)  # (n,)
    return execution.run(ids, positions, kv, flight, torch.arange(keep, device=device), hidden)
