"""What a run leaves behind. The engine records it once; plots, widgets, tables and JSON are functions of it.

Conventions, each metric defined where it is computed: tokens per target call includes the bonus or correction
token (vLLM's mean acceptance length); the acceptance rate is accepted / tested, not accepted / drafted, because
nodes behind a rejection were never tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from .rules import Verdict
from .tree import DraftTree

PHASES = ("draft", "forward", "verify", "commit", "observe")
FIELDS = ("context_length", "tokens", "drafted", "parents", "draw", "scratch", "accepted", "tested", "microseconds")


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One decode step.

    Attributes:
        context_length: tokens in the context before the step.
        tree: the draft, without its laws q; ``tree.draw`` says how it was drawn.
        verdict: as tested.
        emitted: as clipped by the stop tokens and the length limit; ``emitted.tokens`` were appended.
        seconds: wall time by phase, keys `PHASES`.
    """

    context_length: int
    tree: DraftTree
    verdict: Verdict
    emitted: Verdict
    seconds: dict[str, float]

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.emitted.tokens


@dataclass
class Trace:
    """The steps of one generation, in order.

    Example:
        >>> Trace().tokens_per_call, Trace().acceptance_rate
        (0.0, 0.0)
    """

    drafter: str = ""
    prompt_length: int = 0
    prefill_seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)

    @property
    def target_calls(self) -> int:
        """Decode forwards of the target; prefill is not counted."""
        return len(self.steps)

    @property
    def emitted(self) -> int:
        return sum(len(step.tokens) for step in self.steps)

    @property
    def drafted(self) -> int:
        """Candidate nodes proposed, scratch rows not counted."""
        return sum(int(step.tree.candidate.sum()) - 1 for step in self.steps)

    @property
    def tested(self) -> int:
        return sum(len(step.verdict.trials) for step in self.steps)

    @property
    def accepted(self) -> int:
        """Draft tokens kept by verification, before any clipping."""
        return sum(step.verdict.accepted for step in self.steps)

    @property
    def tokens_per_call(self) -> float:
        """tau: emitted tokens per target call, the bonus or correction token included; 0 for an empty trace."""
        return self.emitted / self.target_calls if self.steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """accepted / tested; 0 if nothing was tested."""
        return self.accepted / self.tested if self.tested else 0.0

    @property
    def hit_rate(self) -> float:
        """Steps that had a candidate to test / all steps; 0 for an empty trace."""
        return sum(step.tree.candidate.sum() > 1 for step in self.steps) / len(self.steps) if self.steps else 0.0

    def acceptance_by_depth(self) -> list[tuple[int, int]]:
        """For depth 1, 2, ...: (steps that accepted a token there, steps that tested one there).

        A depth is reached only if every shallower one was accepted, so the ratio is the conditional rate.
        """
        accepted, tested = Counter[int](), Counter[int]()
        for step in self.steps:
            reached = {int(step.tree.depths[trial.node]) for trial in step.verdict.trials}
            tested.update(reached)
            accepted.update(depth for depth in reached if depth <= step.verdict.accepted)
        return [(accepted[depth], tested[depth]) for depth in range(1, max(tested, default=0) + 1)]

    @property
    def seconds(self) -> dict[str, float]:
        """Decode wall time by phase, prefill not included."""
        return {phase: sum(step.seconds[phase] for step in self.steps) for phase in PHASES}

    @property
    def decode_seconds(self) -> float:
        return sum(self.seconds.values())

    def to_json(self) -> dict:
        """Plain types for a file; each step is a list of the fields named by `FIELDS`.

        ``tokens`` are the ones emitted, ``drafted`` those of the tree without its root, ``parents`` row numbers
        (null for a chain), ``scratch`` and ``accepted`` row numbers, ``tested`` pairs of row and acceptance
        probability, ``microseconds`` by phase.

        Example:
            >>> Trace("autoregressive", 5).to_json()
            {'drafter': 'autoregressive', 'prompt_length': 5, 'prefill_seconds': 0.0, 'steps': []}
        """
        steps = [
            [
                step.context_length,
                list(step.tokens),
                step.tree.tokens[1:].tolist(),
                None if step.tree.is_chain else step.tree.parents.tolist(),
                step.tree.draw,
                np.flatnonzero(~step.tree.candidate).tolist(),
                list(step.verdict.path[1:]),
                [[trial.node, round(trial.accept_prob, 6)] for trial in step.verdict.trials],
                [round(1e6 * step.seconds[phase]) for phase in PHASES],
            ]
            for step in self.steps
        ]
        return {**vars(self), "steps": steps}


@dataclass(frozen=True)
class Steps:
    """The decode steps of some runs, counted: all that the models of a gain ask of a method.

    A *hit* is a step with a candidate to test, a *miss* one without; a miss may have more than one row (a window).

    Attributes:
        hit_rows, miss_rows: rows of the target's forward -> steps that had as many.
        tokens: emitted by all steps.
        accepted: draft tokens accepted, before any clipping.
        depth: mean depth of the drafts, over hits; 0 without any.
        seconds: mean time of a step by phase, keys `PHASES`; what is left out took no time.
        by_depth: (accepted, tested) at depth 1, 2, ...; see `Trace.acceptance_by_depth`.
        has_model: whether drafts are made by forwards of a model.

    Example:
        >>> found = Steps(hit_rows={5: 1}, miss_rows={1: 3}, tokens=6, accepted=2)
        >>> found.hit_rate, found.accepted_per_hit, found.tokens_per_call
        (0.25, 2.0, 1.5)
    """

    hit_rows: dict[int, int]
    miss_rows: dict[int, int]
    tokens: int
    accepted: int = 0
    depth: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    by_depth: tuple[tuple[int, int], ...] = ()
    has_model: bool = False

    @classmethod
    def of(cls, traces: Iterable[Trace], has_model: bool = False) -> Steps:
        """Count the steps of some runs.

        Raises:
            ValueError: if there is none.
        """
        traces = list(traces)
        steps = [step for trace in traces for step in trace.steps]
        if not steps:
            raise ValueError("there is no step to count: these runs have none")
        hits = [step.tree for step in steps if step.tree.candidate.sum() > 1]
        hit_rows = Counter(len(tree.tokens) for tree in hits)
        deepest = [int(tree.depths[tree.candidate].max()) for tree in hits]
        by_depth = zip_longest(*(trace.acceptance_by_depth() for trace in traces), fillvalue=(0, 0))
        return cls(
            hit_rows=dict(sorted(hit_rows.items())),
            miss_rows=dict(sorted((Counter(len(step.tree.tokens) for step in steps) - hit_rows).items())),
            tokens=sum(trace.emitted for trace in traces),
            accepted=sum(trace.accepted for trace in traces),
            depth=sum(deepest) / len(hits) if hits else 0.0,
            seconds={phase: sum(step.seconds[phase] for step in steps) / len(steps) for phase in PHASES},
            by_depth=tuple((sum(a for a, _ in depth), sum(t for _, t in depth)) for depth in by_depth),
            has_model=has_model,
        )

    @property
    def hits(self) -> int:
        return sum(self.hit_rows.values())

    @property
    def misses(self) -> int:
        return sum(self.miss_rows.values())

    @property
    def hit_rate(self) -> float:
        """Coverage: hits / steps."""
        return self.hits / (self.hits + self.misses)

    @property
    def accepted_per_hit(self) -> float:
        """A of the hit-rate model; 0 without a hit."""
        return self.accepted / self.hits if self.hits else 0.0

    @property
    def tokens_per_call(self) -> float:
        """tau: tokens per step, the bonus or correction token included."""
        return self.tokens / (self.hits + self.misses)

    def mean(self, t: Callable[[int], float]) -> float:
        """The mean over the steps of what ``t`` gives for the rows of a step, such as `Costs.t`."""
        rows = [*self.hit_rows.items(), *self.miss_rows.items()]
        return sum(count * t(q) for q, count in rows) / (self.hits + self.misses)

    @property
    def alphas(self) -> list[float]:
        """Acceptance by depth, given that a token was tested there."""
        return [accepted / tested for accepted, tested in self.by_depth]

    @property
    def draft_seconds(self) -> float:
        """Mean time of the drafter in a step: `propose` and `observe`."""
        return self.seconds.get("draft", 0.0) + self.seconds.get("observe", 0.0)

    @property
    def other_seconds(self) -> float:
        """Mean time of a step outside the target's forward."""
        return sum(self.seconds.values()) - self.seconds.get("forward", 0.0)
