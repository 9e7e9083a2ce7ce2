"""What the loop needs of a language model: `CachedLM` (lm.py) and `TableLM` (toy.py) both have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from .tree import DraftTree


@dataclass(frozen=True)
class LMOutput:
    """What one forward says about each row of a tree.

    Attributes:
        logits: (N+1, V) next-token logits after each row.
        hidden: (N+1, D) last hidden states, after the final norm, or None where not asked for.
    """

    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class LanguageModel(Protocol):
    """A target, or a draft model, as one operation: checking a draft tree.

    Attributes:
        vocab_size: V, rows of the vocabulary projection.
        max_length: context limit in tokens.
        bos_id: the beginning-of-sequence token, or None if the model has none.
        length: committed tokens.
    """

    vocab_size: int
    max_length: int
    bos_id: int | None

    @property
    def length(self) -> int: ...

    def prefill(self, ids: Sequence[int], reserve: int = 0, needs_hidden: bool = False) -> torch.Tensor | None:
        """Forget the last sequence and read ``ids``; set room for ``reserve`` more tokens aside.

        Returns:
            (L, D) final hidden states after each of the L ids if asked for, else None.
        """

    def forward(self, tree: DraftTree, needs_hidden: bool = False) -> LMOutput:
        """Score every row of ``tree``, whose root is the token after the committed ones."""

    def commit(self, path: Sequence[int]) -> None:
        """Remember the rows on ``path``, root first, of the last tree; forget its other rows."""

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` committed tokens."""
