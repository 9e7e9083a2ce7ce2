"""What a drafted token costs where a model of the drafter's own drafts it, split into layers and vocabulary projection.

A draft model has few layers but projects to as many tokens as its target, so that the projection may be most of its
work; FR-Spec (arXiv:2502.14856) drafts the frequent tokens only. `drafting` measures both shares, and what leaving
tokens out costs in accepted drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch

from ..base.errors import SpecdecError
from ..core.contract import Budget, Drafter, DrafterBase, LanguageModel, LMOutput
from ..core.engine import generate, stream
from ..core.rng import Rng
from ..core.rules import Verdict
from ..core.trace import Trace
from ..core.tree import DraftTree
from ..model.lm import CachedLM
from .profiling import HEAD, PARTS, Calls, Work, by_part, split


@dataclass(frozen=True)
class Drafting:
    """The mean drafted token of one run.

    Attributes:
        drafter: its name.
        vocabulary: K, the tokens that it can draft.
        drafted: tokens drafted in the run.
        parts: seconds a drafted token by part, `profiling.PARTS`; they add up to `seconds`.
        work: what the parts have to do at least for it.
        tokens_per_call: S of the run.
        accepted: share of the drafts at depth 1 that were.
    """

    drafter: str
    vocabulary: int
    drafted: int
    parts: dict[str, float]
    work: dict[str, Work]
    tokens_per_call: float
    accepted: float

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def projection(self) -> float:
        """The vocabulary projection's share of the time."""
        return self.parts[HEAD] / self.seconds

    @property
    def read(self) -> float:
        """The vocabulary projection's share of the bytes that have to be read: the same on every machine."""
        return self.work[HEAD].bytes / sum(work.bytes for work in self.work.values())


def drafting(
    lm: CachedLM,
    prompt: Sequence[int],
    drafter: Drafter,
    max_new_tokens: int = 64,
    repeats: int = 3,
    clock: Callable[[], float] = perf_counter,
    **options: Any,
) -> Drafting:
    """Decode ``prompt`` and take the drafter's own forwards apart. The median of the repeats counts.

    As in `profiling.profile`, runs that are left alone take turns with runs in which every call of torch is timed;
    what remains of the former's time is Python's. Reading the prompt is not counted.

    Args:
        lm: the target.
        drafter: one with a vocabulary projection of its own (``draft_ids``).
        max_new_tokens, repeats: of each run, at least 1.
        clock: seconds; tests give one of their own.
        options: more for `engine.stream`.

    Raises:
        SpecdecError: for a drafter without a model, or a run without a draft.
    """
    ids = drafter.draft_ids
    if ids is None:
        raise SpecdecError(f"{drafter.name} has no vocabulary projection of its own to be measured")
    options = {**options, "max_new_tokens": max_new_tokens}
    plain, timed = [], []
    for turn in range(repeats + 1):
        trace = _run(lm, prompt, drafter, options)
        calls = Calls(len(ids), lm.execution.facts.device, clock)
        _run(lm, prompt, _Watched(drafter, calls), options)
        if turn:  # the first turn allocates memory and chooses kernels
            plain.append(sum(step.seconds["draft"] + step.seconds["observe"] for step in trace.steps))
            timed.append(by_part(calls.spent))
    if not trace.drafted:
        raise SpecdecError(f"{drafter.name} drafted nothing in this run; ask for more tokens")
    spent = {part: float(np.median([seconds[part] for seconds in timed])) for part in PARTS[:-1]}
    parts = {part: seconds / trace.drafted for part, seconds in split(float(np.median(plain)), spent).items()}
    work = {part: Work(calls.bytes[part] / trace.drafted, calls.flops[part] / trace.drafted) for part in PARTS[:-1]}
    right, tested = trace.acceptance_by_depth()[0]
    return Drafting(drafter.name, len(ids), trace.drafted, parts, work, trace.tokens_per_call, right / tested)


def draft_seconds(lm: LanguageModel, drafter: Drafter, steps: int = 12, **options: Any) -> Callable[[int], float]:
    """d(m), the seconds that a draft of m nodes takes: a line through the medians of its smallest and largest drafts.

    Args:
        lm: the target; it forgets the sequence it was reading.
        drafter: it forgets its request.
        steps: of each of two runs on a text of no meaning, at least 2; the first of a run is not counted.
        options: more for `engine.stream`.
    """
    prompt, points = [i % lm.vocab_size for i in range(32)], {}
    for limit in (1, drafter.max_nodes):
        run, timed = stream(lm, prompt, drafter, max_new_tokens=steps * (limit + 1), max_nodes=limit, **options), []
        for step in run:
            timed.append((step.tree.size, step.seconds["draft"] + step.seconds["observe"]))
            if len(timed) == steps:
                break
        nodes, seconds = np.median(timed[1:], axis=0)
        points[float(nodes)] = float(seconds)
    (few, least), (many, most) = min(points.items()), max(points.items())
    slope = max(0.0, most - least) / max(1.0, many - few)
    return lambda nodes: least + slope * max(0.0, nodes - few)


def _run(lm: LanguageModel, prompt: Sequence[int], drafter: Drafter, options: dict[str, Any]) -> Trace:
    return generate(lm, prompt, drafter, **options).trace


class _Watched(DrafterBase):
    """A drafter whose calls of torch are timed while it drafts and while it observes."""

    def __init__(self, drafter: Drafter, calls: Calls):
        self._drafter, self._calls = drafter, calls
        self.name, self.needs_hidden, self.max_nodes = drafter.name, drafter.needs_hidden, drafter.max_nodes

    def reset(self, context: Sequence[int]) -> None:
        self._drafter.reset(context)

    def read_prompt(self, hidden: torch.Tensor) -> None:
        self._drafter.read_prompt(hidden)

    def propose(self, context: Sequence[int], budget: Budget, rng: Rng) -> DraftTree:
        with self._calls:
            return self._drafter.propose(context, budget, rng)

    def observe(self, context: Sequence[int], tree: DraftTree, verdict: Verdict, out: LMOutput) -> None:
        with self._calls:
            self._drafter.observe(context, tree, verdict, out)
