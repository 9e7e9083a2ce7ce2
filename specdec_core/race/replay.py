"""A drafter led through an answer that is known, without a model: which steps would the run have had?

A greedy answer does not depend on the drafter. So it is recorded once, and every drafter that reads tokens alone can
be compared on the record: each draft is checked against the tokens that are known to come, as the target would.
What the target would have said behind a wrong token is not in the record, so a drafter that reads that (`Jacobi`,
`Lookahead`), or the target's states, cannot be replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core.contract import Budget, Drafter
from ..core.rng import Rng
from ..core.rules import Verdict


class Replayed(NamedTuple):
    """One step: rows of its forward, and tokens that it wrote."""

    rows: int
    emitted: int


def replay(
    prompt: Sequence[int], answer: Sequence[int], drafter: Drafter, budget: Budget | None = None
) -> Iterator[Replayed]:
    """The steps, one after another, of the greedy run that writes ``answer`` after ``prompt``.

    While a step is looked at, the drafter is as it was when it proposed, so that its ``match_len``, say, belongs to
    that step. It is reset at the beginning, and what it learns of the answer it keeps.

    Args:
        prompt: at least one token.
        answer: what ordinary decoding wrote.
        drafter: one that reads tokens alone.
        budget: of each draft; as a live run has it if None.

    >>> from ..drafters import PromptLookup
    >>> list(replay([1, 2, 3, 1], [2, 3, 1, 2, 9, 9], PromptLookup()))  # 2 3 1 is drafted, and right; then 3 1 2 is not
    [Replayed(rows=4, emitted=4), Replayed(rows=4, emitted=1), Replayed(rows=1, emitted=1)]
    """
    budget = budget or Budget(drafter.max_nodes, drafter.max_nodes)
    text, at = [*prompt, *answer], len(prompt)
    drafter.reset(text[:at])
    while at < len(text):
        tree = drafter.propose(text[:at], budget, Rng(0))
        path, end = [0], at
        while end < len(text):  # a token is written at each node of the path; if it is no child, the path ends
            said, end = text[end], end + 1
            child = next((i for i in tree.children(path[-1]) if tree.tokens[i] == said), None)
            if child is None:
                break
            path.append(child)
        yield Replayed(len(tree.tokens), end - at)
        verdict = Verdict(tuple(path), text[end - 1], (), tuple(text[at:end]))
        at = end
        drafter.observe(text[:at], tree, verdict, None)
