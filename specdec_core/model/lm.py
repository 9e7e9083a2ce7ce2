"""`CachedLM`: a causal language model seen as one operation, checking a draft tree.

``prefill`` reads a prompt, ``forward`` scores every row of a tree in one pass, ``commit`` keeps one path of it.
Only `commit` and `prefill` change what is remembered; the rows of a forward that is not committed are forgotten.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel

from ..base.errors import ContextLimitError
from ..core.contract import LMOutput, Memory
from ..core.tree import DraftTree
from . import invariance
from .cache import Flight, KVCache
from .execution import choose
from .execution.protocol import Execution, read
from .execution.unchanged import Unchanged
from .invariance import Shape
from .loaded import LoadedModel

_AHEAD = 512  # slots set aside at most; from there on a cache grows with its text, since few reach their limit


class CachedLM:
    """Wraps a transformers causal language model; used for the target and for a draft model.

    Args:
        model: any decoder-only model of transformers whose layers are all attention, or what `load` gave.
        execution: how forwards are run: ``"eager"``, ``"packed"`` or ``"auto"``; see `execution.choose`.
        numerics: ``"fast"`` runs each forward at its own width; ``"invariant"`` runs every forward at one width and
            orders each row's keys as a chain would, so that a token's logits are the same bits whatever else
            was drafted.
        shape: of invariant forwards; found by a self-test of this model on this device if not given
            (`invariance.find`).
        max_length: context limit in tokens; by default the model's own. Where the model turns all positions
            otherwise once a text is long (rotary embeddings of type "longrope" or "dynamic"), rows in the
            cache would be wrong from there on, and that length is the limit.
        prefill_chunk: rows of a prefill forward.
        release: a packed execution may free the model's own matrices; the model cannot run afterwards.

    Raises:
        UnsupportedModel: if the model's cache cannot be rewound, or its attention cannot be replaced.
        ValueError: for a ``max_length`` beyond the model's limit, or numerics of another name.
    """

    def __init__(
        self,
        model: PreTrainedModel | LoadedModel,
        execution: str = "auto",
        numerics: str = "fast",
        shape: Shape | None = None,
        max_length: int | None = None,
        prefill_chunk: int = 256,
        release: bool = False,
    ):
        if numerics not in ("fast", "invariant"):
            raise ValueError(f"numerics must be 'fast' or 'invariant'; got {numerics!r}")
        self.loaded = model if isinstance(model, LoadedModel) else None
        model = model.model if isinstance(model, LoadedModel) else model
        self.execution: Execution
        self.execution, self.why = choose(model, execution, release)
        self._unchanged = Unchanged(model, copied=self.execution.name != "eager")
        self.prefill_chunk = prefill_chunk
        self.vocab_size, config = self.execution.facts.vocab_size, self.execution.facts.config
        limit = _context_limit(config)
        if max_length and limit and max_length > limit:
            raise ValueError(f"max_length is {max_length}, but {type(model).__name__} is exact up to {limit} tokens")
        self.max_length = max_length or limit or 1 << 20
        self.bos_id: int | None = getattr(config, "bos_token_id", None)
        self.kv = KVCache()
        self.shape: Shape | None = None
        if numerics == "invariant":
            self.shape = shape or invariance.find(self.with_own_cache)

    def with_own_cache(self, shape: Shape | None = None) -> CachedLM:
        """The same model with an empty cache of its own, so that two texts can be decoded in turns.

        Args:
            shape: makes its forwards invariant, of this shape; those of this one by default.
        """
        other = copy.copy(self)
        other.kv, other.shape = KVCache(), shape or self.shape
        return other

    @property
    def numerics(self) -> str:
        """ "invariant" if forwards have one `shape`, else "fast"."""
        return "fast" if self.shape is None else "invariant"

    @property
    def length(self) -> int:
        """Committed tokens, one less than the context: the root of each tree is not in the cache yet."""
        return self.kv.length

    @property
    def memory(self) -> Memory:
        """Whose tokens they are; shared by all that share the cache."""
        return self.kv.memory

    def cache_bytes(self) -> int:
        return self.kv.bytes()

    def prefill(self, ids: Sequence[int], reserve: int = 0, needs_hidden: bool = False) -> torch.Tensor | None:
        """Forget the last sequence and read ``ids``; room for ``reserve`` more tokens is set aside, up to some hundred.

        Returns:
            (L, D) final hidden states after each of the L ids, or None where not asked for.

        Raises:
            ContextLimitError: if ``ids`` leaves no room for a single new token.
            UnsupportedModel: if the model was changed since it was wrapped.
        """
        self._unchanged.check()
        if len(ids) + 1 >= self.max_length:
            raise ContextLimitError(
                f"the prompt has {len(ids) + 1} tokens and the model's context holds {self.max_length}; "
                f"shorten the prompt to at most {self.max_length - 1} tokens"
            )
        with self.memory.lock:
            self.memory.begin()
            self.kv.length = 0
            self.kv.reserve(len(ids) + min(reserve, _AHEAD) + 1)
            chunks = (ids[start : start + self.prefill_chunk] for start in range(0, len(ids), self.prefill_chunk))
            states = [self._read_on(chunk, needs_hidden) for chunk in chunks]
        if not needs_hidden:
            return None
        facts = self.execution.facts
        nothing = torch.empty(0, facts.config.hidden_size, dtype=facts.dtype, device=facts.device)
        return torch.cat([nothing, *(some for some in states if some is not None)])  # (L, D)

    def forward(self, tree: DraftTree, needs_hidden: bool = False) -> LMOutput:
        """Score every row of ``tree`` in one pass (several, if invariant and larger than its width)."""
        if self.shape is not None:
            return invariance.forward(self.execution, self.kv, tree, self.shape, needs_hidden)
        positions = self.length + tree.depths  # (N+1,)
        return LMOutput(*self._read(tree.tokens, tree.ancestors, positions, len(tree.tokens), needs_hidden))

    def commit(self, path: Sequence[int]) -> None:
        """Remember the rows on ``path``, root first, of the last tree; forget its other rows."""
        self.kv.commit(list(path))

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` committed tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"can rewind to 0 ... {self.length} tokens; got {length}")
        self.memory.begin()
        self.kv.length = length

    def _read_on(self, ids: Sequence[int], hidden: bool) -> torch.Tensor | None:
        """Read more of a prompt; its states (n, D) where asked for."""
        chunk = np.asarray(ids, np.int64)
        positions = self.length + np.arange(len(chunk))
        _, states = self._read(chunk, np.tri(len(chunk), dtype=bool), positions, 1, hidden)
        self.kv.length += len(chunk)
        return states

    def _read(
        self, tokens: np.ndarray, visible: np.ndarray, positions: np.ndarray, keep: int, hidden: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        facts = self.execution.facts
        self.kv.reserve(self.length + self.execution.slots(len(tokens)))
        flight = Flight(self.length, 0, visible, positions, facts.dtype, facts.device)
        return read(self.execution, self.kv, tokens, flight, keep, hidden)


def _context_limit(config: PretrainedConfig) -> int | None:
    """Tokens up to which a row depends on the rows before it alone; None if the configuration names no limit."""
    limit = getattr(config, "max_position_embeddings", None)
    parameters = getattr(config, "rope_parameters", None) or {}
    for rope in (parameters, *(part for part in parameters.values() if isinstance(part, dict))):
        if rope.get("rope_type") in ("longrope", "dynamic"):
            limit = rope.get("original_max_position_embeddings") or limit
    return limit
