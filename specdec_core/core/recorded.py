"""`Recorded`: a language model that answers from a list, so that the real loop replays a run without a model.

A greedy answer does not depend on the drafter. So it is recorded once, and every drafter can then be compared on it:
the steps are those of a live run, and a step takes milliseconds. What the target would have said behind a wrong token
is not in the record, so a drafter that reads that (Jacobi decoding, lookahead decoding) cannot be replayed; nor can
one that reads the target's states, unless they are recorded as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..base.arguments import ids
from ..base.errors import SpecdecError
from .contract import Choices, Drafter, LMOutput, Memory
from .engine import generate
from .trace import Trace
from .tree import DraftTree

UNKNOWN = (1 << 31) - 1  # stands for the token after what was not recorded; no vocabulary goes so far


class Recorded:
    """A target that says again what it said.

    Args:
        prompt: L token ids, at least one.
        answer: the n tokens that greedy decoding wrote after it.
        states: (L + n, D) the target's final hidden states after each of these tokens, for drafters that read them;
            ``lm.prefill([*prompt, *answer], needs_hidden=True)`` gives them.

    Example:
        >>> from specdec_core.drafters import PromptLookup
        >>> trace = Recorded([1, 2, 3, 1], [2, 3, 1, 2, 9, 9]).replay(PromptLookup())
        >>> [(len(step.tree.tokens), step.tokens) for step in trace.steps]  # 2 3 1 is right, 3 1 2 is not, then a miss
        [(4, (2, 3, 1, 2)), (4, (9,)), (1, (9,))]
    """

    vocab_size, max_length = UNKNOWN + 1, 1 << 20
    bos_id: int | None = None

    def __init__(self, prompt: Sequence[int], answer: Sequence[int], states: torch.Tensor | None = None):
        self.prompt, self.answer, self.states = ids("prompt", prompt), ids("answer", answer), states
        self.text, self.length, self.memory = [*self.prompt, *self.answer], 0, Memory()

    def with_own_cache(self) -> Recorded:
        return Recorded(self.prompt, self.answer, self.states)

    def replay(self, drafter: Drafter) -> Trace:
        """The trace of a greedy run that writes the whole answer. The drafter keeps what it learns of it."""
        return generate(self, self.prompt, drafter, max_new_tokens=len(self.answer)).trace

    def prefill(self, ids: Sequence[int], reserve: int = 0, needs_hidden: bool = False) -> torch.Tensor | None:
        """As every language model; the ids must be those of the record."""
        if list(ids) != self.text[: len(ids)]:
            raise SpecdecError("expected the recorded prompt; got another one. Make a `Recorded` for each prompt.")
        self.memory.begin()
        self.length = len(ids)
        if not needs_hidden:
            return None
        if self.states is None:
            raise SpecdecError("the drafter reads hidden states, and none are recorded; give `Recorded` its states.")
        return self.states[: len(ids)]

    def forward(self, tree: DraftTree, needs_hidden: bool = False) -> LMOutput:
        """The token after each row that repeats the record, and `UNKNOWN` after the others."""
        tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
        if UNKNOWN in tokens:
            raise SpecdecError(
                "the drafter drafts from what the target says behind a wrong token, which is not recorded; "
                "methods such as jacobi and lookahead have to run live."
            )
        places = self.length + tree.depths  # (N+1,) where each row's token stands in the text
        right = [True]
        for row in range(1, len(tokens)):
            right.append(right[parents[row]] and tokens[row] == self._at(places[row]))
        best = [self._at(place + 1) if good else UNKNOWN for place, good in zip(places, right, strict=True)]
        hidden = None
        if needs_hidden and self.states is not None:
            hidden = self.states[torch.from_numpy(places.clip(max=len(self.text) - 1))]  # (N+1, D)
        return LMOutput(Choices(torch.tensor(best)), hidden)

    def commit(self, path: Sequence[int]) -> None:
        self.length += len(path)
        if self.length >= len(self.text):
            raise SpecdecError(
                f"expected max_new_tokens to be at most {len(self.answer)}, the tokens that are recorded; got more."
            )

    def rewind(self, length: int) -> None:
        self.memory.begin()
        self.length = length

    def _at(self, place: int) -> int:
        return self.text[place] if place < len(self.text) else UNKNOWN
