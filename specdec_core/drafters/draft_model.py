"""A smaller language model drafts a chain of tokens (Leviathan et al. 2023, arXiv:2211.17192, algorithm 1).

Greedy, each drafted token is the draft model's best. With sampling it is drawn from q, the draft model's law after
the same processing as the target's, and q goes with the tree: verification needs the law that was drawn from.

A draft model may project to some of the target's tokens only; see `reduced.Reduced`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..base.arguments import one_of, whole
from ..base.errors import SpecdecError
from ..core.contract import Budget, DrafterBase, LanguageModel, Memory, memory_of
from ..core.rng import Rng
from ..core.sampling import Sampling
from ..core.tree import DraftTree
from ..model.chat import Tokenizer
from .methods import Context
from .reduced import Reduced


class DraftModel(DrafterBase):
    """Proposes ``num_tokens`` tokens of a draft model, which keeps a cache of its own.

    The draft model is brought up to date when it is next asked: rejected tokens are taken back, and what the
    target emitted since is read, in one forward. It never reads the last drafted token, so each step takes
    ``num_tokens`` forwards.

    Args:
        lm: the draft model, which may be the target. Where its cache is another's, the drafter makes one of its own.
        num_tokens: gamma, at least 1; fewer near the end of either model's context.
        vocab_size: V of the target; the draft model's own if not given. Ids that only the draft model has are
            never drafted, ids that only the target has get q = 0.
        sampling: as the target is sampled; greedy by default.
        ids: (K,) the target's tokens that the rows of the draft model's projection stand for, each once; what it
            reads are the target's tokens all the same. By default row i is token i.

    Raises:
        ValueError: for ``num_tokens`` below 1, or ``ids`` that do not name a token of the target for each row.

    Example:
        >>> from specdec_core.core.toy import TableLM
        >>> circle = TableLM(np.roll(np.eye(4), 1, axis=1))
        >>> drafter = DraftModel(circle, num_tokens=3)
        >>> drafter.reset([0])
        >>> drafter.propose([0], Budget(8, 8), Rng(0)).tokens.tolist()
        [0, 1, 2, 3]
    """

    name = "draft_model"
    has_model = True

    def __init__(
        self, lm: LanguageModel, num_tokens: int = 5, vocab_size: int | None = None, sampling: Sampling | None = None,
        ids: np.ndarray | None = None,
    ):
        vocab_size = lm.vocab_size if vocab_size is None else whole("vocab_size", vocab_size, 1)
        if ids is None:
            ids = np.arange(min(lm.vocab_size, vocab_size))
        elif len(ids) != (rows := lm.vocab_size):
            raise ValueError(f"ids must name a token for each of the draft model's {rows} rows; got {len(ids)}")
        self.num_tokens = self.max_nodes = whole("num_tokens", num_tokens, 1)
        self.lm, self.reduced = lm, Reduced(ids, vocab_size, sampling)
        self.draft_ids = self.reduced.ids
        self._alone, self._prompt_length = Memory(), 0
        self._text = self.memory.text
        self._known: list[int] = []  # the tokens in the draft model's cache,
        self._sure = 0  # of which so many are known to be the context's

    @classmethod
    def build(
        cls, context: Context, model: str = "", num_tokens: int = 2, weights: str = "draft_model",
        vocabulary: str = "reduced",
    ) -> DraftModel:
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

        one_of("vocabulary", vocabulary, ("reduced", "full"))
        target = context.cached()
        if not model:
            lm, ids = distilled.draft_lm(target, context.weights_hash, weights, vocabulary == "full")
            return cls(lm, num_tokens, target.vocab_size, context.sampling, ids)
        facts = target.execution.facts
        loaded = load(model, dtype=facts.dtype, device=facts.device)
        refuse_other_tokenizer(loaded.tokenizer, context.tokenizer)
        return cls(CachedLM(loaded.model, release=True), num_tokens, target.vocab_size, context.sampling)

    @property
    def memory(self) -> Memory:
        """Of the draft model."""
        return memory_of(self.lm, self._alone)

    def reset(self, context: Sequence[int]) -> None:
        self._prompt_length = len(context)
        self._known, self._sure = list(context[:-1]), len(context) - 1
        if self.memory.busy:
            self.lm = self.lm.with_own_cache()
        if len(context) < self.lm.max_length:
            self._begin()

    def _begin(self) -> None:
        """Read what is known into the cache."""
        with self.memory.lock:
            self.lm.prefill(self._known)
            self._text = self.memory.text

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        gamma = min(self.num_tokens, budget.nodes, budget.depth, self.lm.max_length - len(context))
        if gamma < 1 or self._prompt_length >= self.lm.max_length:
            return DraftTree.empty(context[-1])
        with self.memory.lock:
            if self.memory.text is self._text:
                return self._drafted(context, gamma, rng)
        # Another text was read into the cache.
        self.lm, self._known, self._sure = self.lm.with_own_cache(), list(context[:-1]), len(context) - 1
        self._begin()
        return self._drafted(context, gamma, rng)

    def _drafted(self, context: Sequence[int], gamma: int, rng: Rng) -> DraftTree:
        logits = self._catch_up(context)
        drafted: list[int] = []
        laws: list[np.ndarray] = []
        while True:
            token, law = self._draw(logits, [*context, *drafted], rng)
            drafted.append(token)
            if law is not None:
                laws.append(law)
            if len(drafted) == gamma:
                break
            logits = self._read([token])
        return DraftTree.chain(context[-1], drafted, np.array(laws) if laws else None, "iid" if laws else "point")

    def _catch_up(self, context: Sequence[int]) -> torch.Tensor:
        """Logits (V of the draft model,) after the context; the cache then holds all of it."""
        agreed, end = self._sure, min(len(self._known), len(context) - 1)
        while agreed < end and self._known[agreed] == context[agreed]:
            agreed += 1
        if agreed < len(self._known):
            self.lm.rewind(agreed)
            self._text = self.memory.text
            del self._known[agreed:]
        self._sure = len(context)
        return self._read(context[agreed:])

    def _read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits (V of the draft model,) after ``tokens``, which the cache then holds too."""
        out = self.lm.forward(DraftTree.chain(tokens[0], tokens[1:]))
        self.lm.commit(range(len(tokens)))
        self._known += tokens
        # A model that gives nothing but its best tokens says in `double` what to do.
        return (out.logits if isinstance(out.logits, torch.Tensor) else out.logits.double())[-1]

    def _draw(self, logits: torch.Tensor, context: Sequence[int], rng: Rng) -> tuple[int, np.ndarray | None]:
        """The token drafted after ``context``, and q (V,) that it was drawn from; None if greedy."""
        logits = logits[: len(self.reduced.ids)]  # (K,); a draft model may have tokens that its target lacks
        if self.reduced.sampling.greedy:
            return self.reduced.best(logits, context, self._prompt_length), None
        law = self.reduced.whole_law(logits, context, self._prompt_length)  # (V,)
        return rng.pick(law), law


def refuse_other_tokenizer(draft: Tokenizer, target: Tokenizer | None) -> None:
    """Token ids mean nothing to a model with another vocabulary.

    Raises:
        SpecdecError: naming both, with the first token that differs; or if the target's is not known.
    """
    if target is None:
        raise SpecdecError(
            "a draft model needs its target's tokenizer, which is not known here; make the target of a loaded model, "
            "CachedLM(load(...)), or give methods.Context a tokenizer"
        )
    drafts, targets = draft.get_vocab(), target.get_vocab()
    if drafts == targets:
        return
    token, number = min(drafts.items() ^ targets.items(), key=lambda pair: (pair[1], pair[0]))
    raise SpecdecError(
        f"the draft model's tokenizer ({draft.name_or_path}, {len(drafts)} tokens) is not the target's "
        f"({target.name_or_path}, {len(targets)} tokens): {token!r} is token {number} in only one of them; "
        f"choose a draft model of the target's family"
    )
