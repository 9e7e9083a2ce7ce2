"""`CachedLM`: a causal language model seen as one operation, checking a draft tree.

``prefill`` reads a prompt, ``forward`` scores every row of a tree in one pass, ``commit`` keeps one path of it.
Only `commit` and `prefill` change what is remembered; the rows of a forward that is not committed are forgotten.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from ..base.errors import ContextLimitError
from ..core.contract import LMOutput
from ..core.tree import DraftTree
from . import invariance
from .cache import Flight, KVCache
from .execution import choose
from .invariance import Shape
from .loaded import LoadedModel


class CachedLM:
    """Wraps a transformers causal language model; used for the target and for a draft model.

    Args:
        model: any decoder-only model of transformers whose layers are all attention, or what `load` gave.
        execution: how forwards are run: ``"eager"``, ``"packed"`` or ``"auto"``; see `execution.choose`.
        numerics: ``"fast"`` runs each forward at its own width; ``"invariant"`` runs every forward at one width and
            orders each row's keys as a chain would, so that a token's logits are the same bits whatever else
            was drafted.
        shape: the width and key block of invariant forwards; found by a self-test of this model on this
            device if not given (`invariance.find`).
        max_length: context limit in tokens; by default the model's own. Where the model turns all positions
            otherwise once a text is long (rotary embeddings of type "longrope" or "dynamic"), rows in the
            cache would be wrong from there on, and that length is the limit.
        prefill_chunk: rows of a prefill forward.
        release: a packed execution may free the model's own matrices; the model cannot run afterwards.

    Raises:
        UnsupportedModel: if the model's cache cannot be rewound, or its attention cannot be replaced.
        ValueError: for a ``max_length`` beyond the model's limit, or numerics of another name.
    """

    def __init__(self, model: PreTrainedModel | LoadedModel, execution: str = "auto", numerics: str = "fast",
                 shape: Shape | None = None, max_length: int | None = None, prefill_chunk: int = 256, release: bool = False):  # fmt: skip
        if numerics not in ("fast", "invariant"):
            raise ValueError(f"numerics must be 'fast' or 'invariant'; got {numerics!r}")
        self.loaded = model if isinstance(model, LoadedModel) else None
        model = model.model if isinstance(model, LoadedModel) else model
        self.execution, self.why = choose(model, execution, release)
        self.numerics, self.prefill_chunk = numerics, prefill_chunk
        config = self.execution.config
        self.vocab_size = self.execution.vocab_size
        limit = _context_limit(config)
        if max_length and limit and max_length > limit:
            raise ValueError(f"max_length is {max_length}, but {type(model).__name__} is exact up to {limit} tokens")
        self.max_length = max_length or limit or 1 << 20
        self.bos_id: int | None = getattr(config, "bos_token_id", None)
        self.kv = KVCache(self.execution.layers)
        self.shape = shape
        if numerics == "invariant" and shape is None:
            self.shape = invariance.find(self)

    def with_own_cache(self) -> CachedLM:
        """The same model with an empty cache of its own, so that two texts can be decoded in turns."""
        other = copy.copy(self)
        other.kv = KVCache(self.execution.layers)
        return other

    @property
    def length(self) -> int:
        """Committed tokens, one less than the context: the root of each tree is not in the cache yet."""
        return self.kv.length

    def cache_bytes(self) -> int:
        return self.kv.bytes()

    def prefill(self, ids: Sequence[int], reserve: int = 0, needs_hidden: bool = False) -> torch.Tensor | None:
        """Forget the last sequence and read ``ids``; room for ``reserve`` more tokens is set aside.

        Returns:
            (L, D) final hidden states after each of the L ids, or None where not asked for.

        Raises:
            ContextLimitError: if ``ids`` leaves no room for a single new token.
        """
        if len(ids) + 1 >= self.max_length:
            raise ContextLimitError(
                f"the prompt has {len(ids) + 1} tokens and the model's context holds {self.max_length}; "
                f"shorten the prompt to at most {self.max_length - 1} tokens"
            )
        self.kv.length = 0
        self.kv.reserve(len(ids) + reserve + 1)
        parts = []
        for start in range(0, len(ids), self.prefill_chunk):
            chunk = np.asarray(ids[start : start + self.prefill_chunk], np.int64)
            rows = len(chunk)
            self.kv.reserve(self.length + self.execution.slots(rows))
            states = self._run(chunk, np.tri(rows, dtype=bool), self.length + np.arange(rows), 0, 1, needs_hidden)[1]
            self.kv.length += rows
            parts.append(states)
        if not needs_hidden:
            return None
        nothing = torch.empty(0, self.execution.config.hidden_size, dtype=self.execution.dtype)
        return torch.cat(parts) if parts else nothing.to(self.execution.device)

    def forward(self, tree: DraftTree, needs_hidden: bool = False) -> LMOutput:
        """Score every row of ``tree`` in one pass (several, if invariant and larger than its width)."""
        rows = len(tree.tokens)
        positions = self.length + tree.depths
        if self.numerics == "fast":
            self.kv.reserve(self.length + self.execution.slots(rows))
            return LMOutput(*self._run(tree.tokens, tree.ancestors, positions, 0, rows, needs_hidden))
        return self._forward_invariant(tree, positions, needs_hidden)

    def commit(self, path: Sequence[int]) -> None:
        """Remember the rows on ``path``, root first, of the last tree; forget its other rows."""
        self.kv.commit(list(path))

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` committed tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"can rewind to 0 ... {self.length} tokens; got {length}")
        self.kv.length = length

    @torch.no_grad()
    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, D) what the model reads for the tokens ``ids`` (n,) int64."""
        return self.execution.embed(ids.to(self.execution.device))

    @torch.no_grad()
    def head_rows(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, D) rows of the vocabulary projection: the logits of the tokens ``ids`` are their products with a state.

        Raises:
            UnsupportedModel: if the model's own matrix was freed and is not in the file that it was loaded from.
        """
        return self.execution.head_rows(ids.to(self.execution.device))

    def _forward_invariant(self, tree: DraftTree, positions: np.ndarray, needs_hidden: bool) -> LMOutput:
        rows, width = len(tree.tokens), self.shape.width
        padded = -(-rows // width) * width
        self.kv.reserve(self.length + padded + self.shape.block)
        # Padding rows hold token 0 and see nothing but themselves.
        tokens, places = np.zeros(padded, np.int64), np.full(padded, self.length)
        visible = np.eye(padded, dtype=bool)
        tokens[:rows], places[:rows], visible[:rows, :rows] = tree.tokens, positions, tree.ancestors
        leaves = sorted(set(range(rows)) - set(tree.parents.tolist()))
        parts = []
        for first in range(0, padded, width):
            end = first + width
            paths = [[row for row in tree.path_to(leaf) if row < end] for leaf in leaves]
            # All rows are projected, padding too: the vocabulary projection has a width of its own to keep.
            parts.append(
                self._run(tokens[first:end], visible[first:end, :end], places[:end], first, width, needs_hidden, paths)
            )
        logits, hidden = zip(*parts, strict=True)
        return LMOutput(torch.cat(logits)[:rows], torch.cat(hidden)[:rows] if needs_hidden else None)

    def _run(self, tokens, visible, positions, first, keep, needs_hidden=False, paths=None):
        execution, device = self.execution, self.execution.device
        grid = (self.shape.block, self.shape.tile) if paths else ()
        flight = Flight(self.length, first, visible, positions, execution.dtype, device, paths, *grid)
        ids = torch.from_numpy(tokens).to(device)
        at = torch.from_numpy(positions[first:]).to(device)
        rows = torch.arange(keep, device=device)
        return execution.run(ids, at, self.kv, flight, rows, needs_hidden)


def _context_limit(config) -> int | None:
    """Tokens up to which a row depends on the rows before it alone; None if the configuration names no limit."""
    limit = getattr(config, "max_position_embeddings", None)
    parameters = getattr(config, "rope_parameters", None) or {}
    for rope in (parameters, *(part for part in parameters.values() if isinstance(part, dict))):
        if rope.get("rope_type") in ("longrope", "dynamic"):
            limit = rope.get("original_max_position_embeddings") or limit
    return limit
