"""The two contracts of the loop: what it asks of a language model, and what it asks of a drafter.

`CachedLM` (room model) and `TableLM` (toy) are language models; the room drafters holds the methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from ..base.arguments import whole
from ..base.errors import SharedCacheError, SpecdecError
from .rng import Rng
from .rules import Verdict
from .tree import DraftTree


class Choices:
    """Stands for logits (N+1, V) where only the largest of each row is known, which is enough for greedy decoding.

    Args:
        ids: (N+1,) int64 tokens.

    Example:
        >>> Choices(torch.tensor([4, 7]))[1:].argmax(-1).tolist()
        [7]
    """

    def __init__(self, ids: torch.Tensor):
        self._ids = ids

    def argmax(self, dim: int) -> torch.Tensor:
        return self._ids

    def __getitem__(self, rows: slice | list[int]) -> Choices:
        return Choices(self._ids[rows])

    def cpu(self) -> Choices:
        return self

    def double(self) -> torch.Tensor:
        raise SpecdecError(
            "only the best token of each row is known, enough for plain greedy decoding; sampling, penalties, "
            "processors, min_new_tokens and logprobs need the logits: have the model give them "
            '(ShardedLM: exchange="logits")'
        )


@dataclass(frozen=True)
class LMOutput:
    """What one forward says about each row of a tree.

    Attributes:
        logits: (N+1, V) next-token logits after each row, or the best tokens alone.
        hidden: (N+1, D) last hidden states, after the final norm, or None where not asked for.
    """

    logits: torch.Tensor | Choices
    hidden: torch.Tensor | None = None


class Memory:
    """Whose text a language model remembers: there is one, and who reads another one in takes it over.

    Attributes:
        text: stands for what is remembered; another object after every `LanguageModel.prefill` and ``rewind``.
        busy: a run goes on with it; a drafter with the same model then needs a memory of its own.
        lock: held while it is read or written, so that threads take turns.

    Example:
        >>> memory = Memory()
        >>> first = memory.begin()
        >>> memory.check(first)
        >>> memory.check(memory.begin())  # and from here on `first` is refused
    """

    def __init__(self) -> None:
        self.lock, self.text, self.busy = RLock(), object(), False

    def begin(self) -> object:
        """From now on another text is remembered."""
        self.text, self.busy = object(), False
        return self.text

    def check(self, text: object) -> None:
        """
        Raises:
            SharedCacheError: if another text than this one is remembered by now.
        """
        if self.text is not text:
            raise SharedCacheError(
                "another text was read into this model's cache since this run began, and the next token would follow "
                "that one; give each of several runs, streams or threads a cache of its own: lm.with_own_cache()"
            )


@runtime_checkable
class Remembers(Protocol):
    """Has a `Memory`."""

    @property
    def memory(self) -> Memory: ...


class LanguageModel(Protocol):
    """A target, or a draft model, as one operation: checking a draft tree.

    Attributes:
        vocab_size: V, rows of the vocabulary projection.
        max_length: context limit in tokens.
        bos_id: the beginning-of-sequence token, or None if the model has none.
        length: committed tokens.
        memory: whose they are; without it nobody notices that two runs share a model.
    """

    vocab_size: int
    max_length: int
    bos_id: int | None

    @property
    def length(self) -> int: ...

    @property
    def memory(self) -> Memory: ...

    def with_own_cache(self) -> LanguageModel:
        """The same model with a memory of its own, so that two texts can be decoded in turns."""

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


def memory_of(lm: LanguageModel, alone: Memory) -> Memory:
    """The model's memory; ``alone`` for a model that has none, and is taken for its user's only.

    Example:
        >>> from specdec_core import TableLM
        >>> lm = TableLM.random(4)
        >>> memory_of(lm, Memory()) is lm.memory
        True
    """
    return lm.memory if isinstance(lm, Remembers) else alone


@dataclass(frozen=True)
class Budget:
    """How large a tree may be.

    Attributes:
        nodes: rows besides the root, scratch rows included.
        depth: edges on the longest path; limited by the room left in the model's context.

    Raises:
        ValueError: for anything but whole numbers of at least 0.
    """

    nodes: int
    depth: int

    def __post_init__(self) -> None:
        vars(self).update(nodes=whole("nodes", self.nodes, 0), depth=whole("depth", self.depth, 0))


class Drafter(Protocol):
    """The contract between the loop and a method. Losslessness does not rest on it: verification does that.

    Attributes:
        name: what tables and plots call it.
        needs_hidden: True if `read_prompt` and `observe` need the target's hidden states.
        max_nodes: the budget it is given unless a run sets another.
        has_model: True if drafts are made by forwards of a model, and so cost time that counts.
        match_len: tokens of the context that the last draft was found by; 0 if it was not found by a match.
        draft_ids: (K,) the tokens that a vocabulary projection of its own stands for; None if it has none.
    """

    name: str
    needs_hidden: bool
    max_nodes: int
    has_model: bool

    @property
    def match_len(self) -> int: ...

    @property
    def draft_ids(self) -> np.ndarray | None: ...

    def reset(self, context: Sequence[int]) -> None:
        """Forget the last request; ``context`` is the prompt of the next one."""

    def read_prompt(self, hidden: torch.Tensor) -> None:
        """After `reset`, if ``needs_hidden``: the target's states (L, D) of the prompt, without its last token."""

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        """A tree rooted at ``context[-1]`` within ``budget``; `DraftTree.empty` where there is no draft."""

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        """Learn from a step: ``context`` already ends with ``verdict.tokens``."""


class DrafterBase:
    """Defaults for drafters that keep no state and look their drafts up."""

    name = "drafter"
    needs_hidden = False
    max_nodes = 64
    has_model = False
    match_len = 0
    draft_ids: np.ndarray | None = None

    @classmethod
    def build(cls, *unread: Any, **settings: Any) -> Drafter:
        """From the settings behind a method's name: ``build(context, **settings)``.

        Args:
            unread: one `drafters.methods.Context`; a class that needs it has a ``build`` of its own.
        """
        return cls(**settings)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        raise NotImplementedError(f"{type(self).__name__} has no `propose`, which is what makes it a drafter")

    def reset(self, context: Sequence[int]) -> None:
        pass

    def read_prompt(self, hidden: torch.Tensor) -> None:
        pass

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        pass


class NullDrafter(DrafterBase):
    """No draft at any step: autoregressive decoding, in the same loop as everything it is compared with.

    Example:
        >>> NullDrafter().propose([3, 5], Budget(8, 8), Rng(0)).size
        0
    """

    name = "autoregressive"

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        return DraftTree.empty(context[-1])
