"""`TableLM`: a language model that is a small table of logits.

Same interface as `CachedLM`, no files, V = 3 ... 8. The exact tests enumerate it and the toy figures run on it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch

from ..base.arguments import ids as checked
from ..base.arguments import real, whole
from .contract import LMOutput, Memory
from .sampling import softmax
from .tree import DraftTree


class TableLM:
    """Next-token logits looked up by the last ``order`` tokens.

    Args:
        logits: (V,) * order + (V,) array; ``logits[a, b]`` are the logits after ... a, b for order 2. Contexts
            shorter than ``order`` are padded on the left with token 0.
        max_length: context limit in tokens.

    Raises:
        ValueError: if the axes of ``logits`` are not all of one length, or there are fewer than two.

    Example:
        >>> lm = TableLM(np.log([[0.5, 0.5], [0.9, 0.1]]))
        >>> lm.law([0, 1]).round(3).tolist()
        [0.9, 0.1]
    """

    bos_id: int | None = None

    def __init__(self, logits: np.ndarray, max_length: int = 1 << 20):
        logits = np.asarray(logits, np.float64)
        if logits.ndim < 2 or len(set(logits.shape)) != 1:
            raise ValueError(f"a table needs at least two axes, all of length V; got shape {logits.shape}")
        self.table, self.order = logits, logits.ndim - 1
        self.vocab_size, self.max_length = logits.shape[-1], whole("max_length", max_length, 1)
        self._tokens: list[int] = []
        self.memory = Memory()

    def with_own_cache(self) -> TableLM:
        """The same table, after a text of its own."""
        other = copy.copy(self)
        other._tokens, other.memory = [], Memory()
        return other

    @classmethod
    def random(cls, vocab_size: int, order: int = 1, seed: int = 0, scale: float = 1.5) -> TableLM:
        """A table of normal logits with standard deviation ``scale``."""
        rng = np.random.default_rng(whole("seed", seed, 0))
        shape = (whole("vocab_size", vocab_size, 1),) * (whole("order", order, 1) + 1)
        return cls(rng.normal(scale=real("scale", scale, 0), size=shape))

    @property
    def length(self) -> int:
        return len(self._tokens)

    def row(self, context: Sequence[int]) -> np.ndarray:
        """Logits (V,) after ``context``."""
        last = ([0] * self.order + list(context))[-self.order :]
        return self.table[tuple(last)]

    def law(self, context: Sequence[int]) -> np.ndarray:
        """softmax of `row`: the law at T = 1."""
        return softmax(self.row(context))

    def state(self, context: Sequence[int]) -> np.ndarray:
        """(V**order,) what stands for a hidden state after ``context``: 1 at its last ``order`` tokens, else 0."""
        last = ([0] * self.order + list(context))[-self.order :]
        state = np.zeros(self.vocab_size**self.order)
        state[np.ravel_multi_index(last, self.table.shape[:-1])] = 1.0
        return state

    def prefill(self, ids: Sequence[int], reserve: int = 0, needs_hidden: bool = False) -> torch.Tensor | None:
        self.memory.begin()
        self._tokens = checked("ids", ids)
        return self._states([ids[: i + 1] for i in range(len(ids))]) if needs_hidden else None

    def forward(self, tree: DraftTree, needs_hidden: bool = False) -> LMOutput:
        contexts = [self._tokens + tree.tokens[tree.path_to(i)].tolist() for i in range(len(tree.tokens))]
        logits = torch.from_numpy(np.stack([self.row(context) for context in contexts]))
        self._tree = tree
        return LMOutput(logits, self._states(contexts) if needs_hidden else None)

    def _states(self, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        states = np.array([self.state(context) for context in contexts])
        return torch.from_numpy(states.reshape(len(contexts), self.vocab_size**self.order))

    def commit(self, path: Sequence[int]) -> None:
        self._tokens += self._tree.tokens[list(path)].tolist()

    def rewind(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"can rewind to 0 ... {self.length} tokens; got {length}")
        self.memory.begin()
        del self._tokens[length:]
