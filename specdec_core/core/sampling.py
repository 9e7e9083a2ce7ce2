"""From logits to p, the distribution that is actually sampled from: its *law*, for short.

Losslessness is a statement about this law: temperature, penalties and truncation come first, then p and q
are compared. T = 0 is greedy decoding, the limit in which every row is one-hot.

The order is the one of transformers: repetition and presence penalties, processors, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..base.arguments import real, whole
from ..base.errors import BrokenLogits, SpecdecError
from .contract import Choices
from .rules import Greedy, Laws
from .tree import DraftTree

# (text (1, L) int64, scores (1, V) float64) -> scores (1, V), as the `LogitsProcessor` of transformers; on the CPU.
Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn from a row of logits.

    Attributes:
        temperature: T >= 0; 0 is greedy, 1 the model's own law.
        top_k: keep the k largest logits; 0 keeps all. Ties with the k-th are kept.
        top_p: keep the smallest set of tokens with mass >= top_p, in (0, 1].
        min_p: drop tokens with less than min_p times the largest probability, in [0, 1].
        repetition_penalty: r > 0; logits of tokens that occur in the context (prompt included) are divided
            by r where positive and multiplied by r where negative (CTRL, arXiv:1909.05858). 1 is off.
        presence_penalty: subtracted from the logits of tokens that were generated (prompt excluded). 0 is off.
        processors: change the target's scores, one after another, given the text before the token, prompt included;
            -inf forbids a token. Any `LogitsProcessor` of transformers that is a pure function of these ids will do:
            each position of a draft is asked for after its own path, in any order, and more than once. They are asked
            about no text that goes on after a stop token. Drafters do not apply them; what they forbid is rejected.

    Raises:
        ValueError: on a value of another kind, or outside its range.

    Example:
        >>> Sampling(temperature=1.0, top_k=2).law(np.array([0.0, 1.0, 1.0])).tolist()
        [0.0, 0.5, 0.5]
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    processors: Sequence[Processor] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.processors, (list, tuple)) or not all(map(callable, self.processors)):
            raise ValueError(f"processors: expected a tuple of callables, got {self.processors!r}")
        vars(self).update(
            temperature=real("temperature", self.temperature, 0),
            top_k=whole("top_k", self.top_k, 0),
            top_p=real("top_p", self.top_p, above=0, most=1),
            min_p=real("min_p", self.min_p, 0, 1),
            repetition_penalty=real("repetition_penalty", self.repetition_penalty, above=0),
            presence_penalty=real("presence_penalty", self.presence_penalty),
            processors=tuple(self.processors),
        )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalizes(self) -> bool:
        """True if a drafter's law, too, depends on the tokens before it through more than the logits."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0

    def penalize(self, logits: np.ndarray, context: Sequence[int], generated: Sequence[int]) -> np.ndarray:
        """Logits (V,) after the penalties; ``generated`` is the part of ``context`` after the prompt.

        Example:
            >>> Sampling(repetition_penalty=2.0).penalize(np.array([4.0, -4.0, 1.0]), [0, 1], []).tolist()
            [2.0, -8.0, 1.0]
        """
        logits = np.array(logits, np.float64)
        if self.repetition_penalty != 1:
            seen = np.unique(np.asarray(context, np.int64))
            scores = logits[seen]
            logits[seen] = np.where(scores > 0, scores / self.repetition_penalty, scores * self.repetition_penalty)
        if self.presence_penalty != 0 and len(generated):
            logits[np.unique(np.asarray(generated, np.int64))] -= self.presence_penalty
        return logits

    def process(self, scores: np.ndarray, context: Sequence[int]) -> np.ndarray:
        """Scores (V,) after the processors, given the tokens before.

        Raises:
            SpecdecError: for a processor that gives another shape, NaN or +inf, or leaves no token possible.

        Example:
            >>> add = Sampling(processors=[lambda ids, scores: scores + ids.shape[1]])
            >>> add.process(np.array([0.0, 1.0]), [7, 7]).tolist()
            [2.0, 3.0]
        """
        if not self.processors:
            return scores
        ids, row = torch.tensor([list(context)]), torch.tensor(scores)[None]  # (1, L), (1, V): copies
        for processor in self.processors:
            row = _checked(processor, processor(ids, row), len(scores))
        return row[0].numpy()

    def law(self, logits: np.ndarray, where: str = "given") -> np.ndarray:
        """The law (V,) float64 of the next token, from (already penalized and processed) logits (V,).

        Raises:
            BrokenLogits: if the largest is not finite; it says ``where`` they stand.

        Example:
            >>> Sampling().law(np.array([1.0, 3.0, 2.0])).tolist()
            [0.0, 1.0, 0.0]
        """
        logits = np.asarray(logits, np.float64)
        refuse_broken(top := logits.max(), where)
        if self.greedy:
            p = np.zeros(len(logits))
            p[logits.argmax()] = 1.0
            return p
        with np.errstate(over="ignore"):
            # From the largest down: at a temperature near 0 the quotients of the logits themselves overflow.
            scores = (logits - top) / self.temperature
        if 0 < self.top_k < len(scores):
            kth = np.partition(scores, -self.top_k)[-self.top_k]
            scores = np.where(scores >= kth, scores, -np.inf)
        p = softmax(scores)
        if self.top_p < 1:
            p = _keep_top_p(p, self.top_p)
        if self.min_p > 0:
            p = np.where(p >= self.min_p * p.max(), p, 0.0)
            p /= p.sum()
        return p

    def laws(
        self,
        logits: torch.Tensor | Choices,
        tree: DraftTree,
        context: Sequence[int],
        prompt_length: int,
        ends: Container[int] = (),
    ) -> Laws | Greedy:
        """The target's law after each row of a tree, in the form that `verify` takes.

        Args:
            logits: (N+1, V), one row per row of the tree.
            tree: the draft; penalties and processors see ``context`` followed by the drafted path to each row.
            context: committed tokens, the root last.
            prompt_length: how many tokens of ``context`` are the prompt.
            ends: stop tokens; what is drafted behind one is never emitted, and processors are not asked about it.

        Returns:
            `Greedy` at T = 0, else a lazy sequence of (V,) laws, each computed when the walk reaches its row.
        """
        if self.greedy and not self.penalizes and not self.processors:
            ids, tops = largest(logits)
            broken = np.flatnonzero(~np.isfinite(tops)).tolist()
            return Greedy(ids, {i: _broken(tops[i], _place(tree, context, i)) for i in broken})
        rows = _Rows(self, logits.cpu().double().numpy(), tree, context, prompt_length, ends)
        return Greedy(_Best(rows)) if self.greedy else rows


class _Rows:
    """Laws by row, computed on first use."""

    def __init__(
        self,
        sampling: Sampling,
        logits: np.ndarray,
        tree: DraftTree,
        context: Sequence[int],
        prompt_length: int,
        ends: Container[int],
    ):
        self._sampling, self._logits, self._tree = sampling, logits, tree
        self._context, self._prompt_length, self._ends = list(context), prompt_length, ends
        self._laws: dict[int, np.ndarray] = {}

    def scores(self, i: int) -> np.ndarray:
        sampling, scores = self._sampling, self._logits[i]
        if not (sampling.penalizes or sampling.processors):
            return scores
        refuse_broken(scores.max(), _place(self._tree, self._context, i))  # the model's own, not what follows from them
        drafted = self._tree.tokens[self._tree.path_to(i)[1:]].tolist()
        context = self._context + drafted
        if sampling.penalizes:
            scores = sampling.penalize(scores, context, context[self._prompt_length :])
        ended = any(token in self._ends for token in drafted)
        return scores if ended else sampling.process(scores, context)

    def __getitem__(self, i: int) -> np.ndarray:
        if i not in self._laws:
            self._laws[i] = self._sampling.law(self.scores(i), _place(self._tree, self._context, i))
        return self._laws[i]


class _Best:
    """The tokens of largest score by row, each found when the walk reaches its row."""

    def __init__(self, rows: _Rows):
        self._rows = rows

    def __getitem__(self, i: int) -> int:
        return int(self._rows[i].argmax())


def _checked(processor: Processor, scores: torch.Tensor, size: int) -> torch.Tensor:
    """(1, V) float64: what a processor gave, if a law can be made of it."""
    if not isinstance(scores, torch.Tensor) or scores.shape != (1, size):
        came = f"shape {tuple(scores.shape)}" if isinstance(scores, torch.Tensor) else repr(scores)
        raise SpecdecError(f"processor {processor!r}: expected a tensor of scores of shape (1, {size}), got {came}")
    scores = scores.detach().cpu().double()
    if len(bad := (~(scores[0] < np.inf)).nonzero()):
        raise SpecdecError(
            f"processor {processor!r}: expected finite scores, or -inf for a token that is forbidden; "
            f"got {scores[0, bad[0]].item()} for token {bad[0].item()}"
        )
    if scores.max() == -np.inf:
        raise SpecdecError(f"processor {processor!r} forbids every token; expected it to leave at least one possible")
    return scores


def argmax(logits: torch.Tensor | Choices) -> np.ndarray:
    """(N,) int64 ids of the largest logit of each row of (N, V); the first of equal ones.

    Example:
        >>> argmax(torch.tensor([[1.0, 3.0, 3.0]], dtype=torch.bfloat16)).tolist()
        [1]
    """
    return largest(logits)[0]


def largest(logits: torch.Tensor | Choices) -> tuple[np.ndarray, np.ndarray]:
    """`argmax` (N,), and these logits (N,); NaN where a row has one, and 0 where only the tokens are known.

    Example:
        >>> [part.tolist() for part in largest(torch.tensor([[1.0, 3.0]]))]
        [[1], [3.0]]
    """
    if isinstance(logits, Choices):
        ids = logits.argmax(-1).cpu().numpy()
        return ids, np.zeros(len(ids))
    if logits.device.type == "cpu" and logits.element_size() == 2:
        # torch's argmax takes 16-bit numbers one at a time on a CPU: 1.1 ms for 11 rows of 49152, against 0.4 ms.
        tops = logits.amax(-1, keepdim=True)  # (N, 1)
        return (logits == tops).numpy().argmax(-1), tops[:, 0].double().numpy()
    best = logits.argmax(-1, keepdim=True)  # (N, 1), of NaN if there is any
    # One copy for both: tokens up to 2^24 are exact in float32. Not every device has float64.
    kind = torch.promote_types(logits.dtype, torch.float32)
    both = torch.cat([best.to(kind), logits.gather(-1, best).to(kind)], 1).cpu().double().numpy()  # (N, 2)
    return both[:, 0].astype(np.int64), both[:, 1]


def refuse_broken(top: float, where: str) -> None:
    """An error if ``top``, the largest of the logits that stand ``where``, is not finite.

    Example:
        >>> refuse_broken(float("nan"), "after position 7")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        specdec_core.base.errors.BrokenLogits: the largest of the logits after position 7 is nan; expected ...
    """
    if not np.isfinite(top):
        raise BrokenLogits(_broken(top, where))


def _broken(top: float, where: str) -> str:
    return (
        f"the largest of the logits {where} is {top}; expected a finite number. Most likely the weights hold NaN or "
        f"infinity, or the model overflows in float16 (an extreme penalty does so too): load it in float32 or "
        f"bfloat16, or download it again"
    )


def _place(tree: DraftTree, context: Sequence[int], row: int) -> str:
    """Where the logits of a row stand, in words; positions count from 0 at the beginning of the text."""
    return f"after position {len(context) - 1 + tree.depths[row]} (token {tree.tokens[row]})"


def log_probabilities(logits: torch.Tensor | Choices, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """(n,) log softmax of logits (N+1, V), in nats, at ``tokens[j]`` of row ``rows[j]``; no other row is computed.

    Example:
        >>> log_probabilities(torch.tensor([[0.0, 9.0], [0.0, 0.0]]), [1], [0])
        [-0.6931471805599453]
    """
    chosen = logits[list(rows)].cpu().double().log_softmax(-1)  # (n, V)
    return chosen[torch.arange(len(tokens)), torch.tensor(tokens)].tolist()


def softmax(scores: np.ndarray) -> np.ndarray:
    """exp(x - max x), normalized over the last axis.

    Example:
        >>> softmax(np.array([0.0, 0.0])).tolist()
        [0.5, 0.5]
    """
    scores = np.asarray(scores, np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _keep_top_p(p: np.ndarray, top_p: float) -> np.ndarray:
    order = np.argsort(-p, kind="stable")
    mass_before = np.cumsum(p[order]) - p[order]
    kept = np.zeros_like(p)
    chosen = order[mass_before < top_p]  # the token that crosses top_p is kept, so one always is
    kept[chosen] = p[chosen]
    return kept / kept.sum()
