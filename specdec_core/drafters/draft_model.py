"""A smaller language model drafts a chain of tokens (Leviathan et al. 2023, arXiv:2211.17192, algorithm 1).

Greedy, each drafted token is the draft model's best. With sampling it is drawn from q, the draft model's law after
the same processing as the target's, and q goes with the tree: verification needs the law that was drawn from.

A draft model may project to some of the target's tokens only (FR-Spec, arXiv:2502.14856); q is 0 at all others, which
verification allows of any law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.errors import SpecdecError
from ..core.contract import Budget, DrafterBase, LanguageModel
from ..core.rng import Rng
from ..core.sampling import Sampling
from ..core.tree import DraftTree


class DraftModel(DrafterBase):
    """Proposes ``num_tokens`` tokens of a draft model, which keeps a cache of its own.

    The draft model is brought up to date when it is next asked: rejected tokens are taken back, and what the
    target emitted since is read, in one forward. The last drafted token is never read by it, so a step takes
    ``num_tokens`` forwards.

    Args:
        lm: the draft model. It is this drafter's alone while a run lasts.
        num_tokens: gamma, at least 1; fewer near the end of either model's context.
        vocab_size: V of the target; the draft model's own if not given. Ids that only the draft model has are
            never drafted, ids that only the target has get q = 0.
        sampling: as the target is sampled; greedy by default.
        ids: (K,) the target's tokens that the rows of the draft model's projection stand for, each once; what it
            reads are the target's tokens all the same. By default row i is token i.

    Raises:
        ValueError: for ``num_tokens`` below 1, or ``ids`` that do not name a token of the target for each row.

    >>> from specdec_core.core.toy import TableLM
    >>> circle = TableLM(np.roll(np.eye(4), 1, axis=1))
    >>> drafter = DraftModel(circle, num_tokens=3)
    >>> drafter.reset([0])
    >>> drafter.propose([0], Budget(8, 8), Rng(0)).tokens.tolist()
    [0, 1, 2, 3]
    """

    name = "draft_model"
    has_model = True

    def __init__(self, lm: LanguageModel, num_tokens: int = 5, vocab_size: int | None = None,
                 sampling: Sampling | None = None, ids: np.ndarray | None = None):  # fmt: skip
        if num_tokens < 1:
            raise ValueError(f"num_tokens must be at least 1; got {num_tokens}")
        self.lm, self.num_tokens, self.sampling = lm, num_tokens, sampling or Sampling()
        self.vocab_size = vocab_size or lm.vocab_size
        self.ids = np.arange(min(lm.vocab_size, self.vocab_size)) if ids is None else np.asarray(ids)
        if ids is not None:
            _refuse_bad(self.ids, lm.vocab_size, self.vocab_size)
        self._prompt_length = 0
        self._known: list[int] = []  # the tokens in the draft model's cache,
        self._sure = 0  # of which so many are known to be the context's

    @classmethod
    def build(cls, context: Any, model: str = "", num_tokens: int = 2, weights: str = "draft_model",
              vocabulary: str = "reduced") -> DraftModel:  # fmt: skip
        """From the name of a model, a folder or a hub name; without one, the draft model distilled from the target.

        Args:
            num_tokens: gamma. The distilled model's acceptance is worth no more than two; a better one's is.
            weights: of the distilled model: the name of a file that comes with the package, or a path.
            vocabulary: what the distilled model projects to: "reduced", the tokens of its weights, or "full", all of
                the target's.

        Raises:
            SpecdecError: a model whose tokenizer is not the target's, or weights of another target.
            ValueError: for a vocabulary of another name.
        """
        from ..model.lm import CachedLM
        from ..model.loading import load
        from . import distilled

        if vocabulary not in ("reduced", "full"):
            raise ValueError(f"vocabulary must be 'reduced' or 'full'; got {vocabulary!r}")
        if not model:
            lm, ids = distilled.draft_lm(context.lm, context.weights_hash, weights, vocabulary == "full")
            return cls(lm, num_tokens, context.lm.vocab_size, context.sampling, ids)
        loaded = load(model, dtype=context.lm.execution.dtype, device=context.lm.execution.device)
        refuse_other_tokenizer(loaded.tokenizer, context.tokenizer)
        return cls(CachedLM(loaded.model, release=True), num_tokens, context.lm.vocab_size, context.sampling)

    def reset(self, context: Sequence[int]) -> None:
        self._prompt_length = len(context)
        self._known, self._sure = list(context[:-1]), len(context) - 1
        if self._fits(len(context)):
            self.lm.prefill(self._known)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        gamma = min(self.num_tokens, budget.nodes, budget.depth, self.lm.max_length - len(context))
        if gamma < 1 or not self._fits(self._prompt_length):
            return DraftTree.empty(context[-1])
        logits, drafted, laws = self._catch_up(context), [], []
        while True:
            token, law = self._draw(logits, [*context, *drafted], rng)
            drafted.append(token)
            laws.append(law)
            if len(drafted) == gamma:
                break
            logits = self._read(drafted[-1:])
        if self.sampling.greedy:
            return DraftTree.chain(context[-1], drafted)
        return DraftTree.chain(context[-1], drafted, np.array(laws), "iid")

    def _fits(self, length: int) -> bool:
        return length < self.lm.max_length

    def _catch_up(self, context: Sequence[int]) -> np.ndarray:
        """Logits (V of the draft model,) after the context; the cache then holds all of it."""
        agreed, end = self._sure, min(len(self._known), len(context) - 1)
        while agreed < end and self._known[agreed] == context[agreed]:
            agreed += 1
        if agreed < len(self._known):
            self.lm.rewind(agreed)
            del self._known[agreed:]
        self._sure = len(context)
        return self._read(context[agreed:])

    def _read(self, tokens: Sequence[int]) -> np.ndarray:
        out = self.lm.forward(DraftTree.chain(tokens[0], tokens[1:]))
        self.lm.commit(range(len(tokens)))
        self._known += tokens
        return out.logits[-1].double().cpu().numpy()

    def _draw(self, logits: np.ndarray, context: Sequence[int], rng: Rng) -> tuple[int, np.ndarray | None]:
        """The token drafted after ``context``, and q (V,), processed as the target's law is; None if greedy."""
        logits = logits[: len(self.ids)]
        if self.sampling.greedy and not self.sampling.penalizes:
            return int(self.ids[logits.argmax()]), None
        scores = np.full(self.vocab_size, -np.inf)
        scores[self.ids] = logits
        if self.sampling.penalizes:
            scores = self.sampling.penalize(scores, context, context[self._prompt_length :])
        if self.sampling.greedy:
            return int(scores.argmax()), None
        law = self.sampling.law(scores)
        return rng.pick(law), law


def _refuse_bad(ids: np.ndarray, rows: int, vocab_size: int) -> None:
    if len(ids) != rows:
        raise ValueError(f"ids must name a token for each of the draft model's {rows} rows; got {len(ids)}")
    if len(np.unique(ids)) < rows or ids.min() < 0 or ids.max() >= vocab_size:
        raise ValueError(f"ids must be tokens 0 ... {vocab_size - 1} of the target, each once")


def refuse_other_tokenizer(draft: Any, target: Any) -> None:
    """Token ids mean nothing to a model with another vocabulary.

    Raises:
        SpecdecError: naming both, with the first token that differs.
    """
    drafts, targets = draft.get_vocab(), target.get_vocab()
    if drafts == targets:
        return
    differing = sorted(drafts.items() ^ targets.items(), key=lambda pair: (pair[1], pair[0]))
    token, number = differing[0]
    raise SpecdecError(
        f"the draft model's tokenizer ({draft.name_or_path}, {len(drafts)} tokens) is not the target's "
        f"({target.name_or_path}, {len(targets)} tokens): {token!r} is token {number} of one only; "
        f"choose a draft model of the target's family"
    )
