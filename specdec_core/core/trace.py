"""What a run leaves behind. The engine records it once; plots, widgets, tables and JSON are functions of it.

Conventions, each metric defined where it is computed: tokens per target call includes the bonus or correction
token (vLLM's mean acceptance length); the acceptance rate is accepted / tested, not accepted / drafted, because
nodes behind a rejection were never tested.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .rules import Verdict
from .tree import DraftTree

PHASES = ("draft", "forward", "verify", "commit", "observe")


@dataclass(frozen=True, eq=False)
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
        counts: list[list[int]] = []
        for step in self.steps:
            depths = step.tree.depths
            reached = {int(depths[trial.node]) for trial in step.verdict.trials}
            for depth in reached:
                while len(counts) < depth:
                    counts.append([0, 0])
                counts[depth - 1][1] += 1
                counts[depth - 1][0] += depth <= step.verdict.accepted
        return [(accepted, tested) for accepted, tested in counts]

    @property
    def seconds(self) -> dict[str, float]:
        """Decode wall time by phase, prefill not included."""
        return {phase: sum(step.seconds[phase] for step in self.steps) for phase in PHASES}

    @property
    def decode_seconds(self) -> float:
        return sum(self.seconds.values())

    def to_json(self) -> dict:
        """A record of plain types: one entry a step, enough to replay the run token by token."""
        return {
            "drafter": self.drafter,
            "prompt_length": self.prompt_length,
            "prefill_seconds": self.prefill_seconds,
            "steps": [
                {
                    "context_length": step.context_length,
                    "tree": {"tokens": step.tree.tokens.tolist(), "parents": step.tree.parents.tolist()},
                    "draw": step.tree.draw,
                    "scratch": np.flatnonzero(~step.tree.candidate).tolist(),
                    "accepted": list(step.verdict.path[1:]),
                    "tested": [[trial.node, trial.accept_prob] for trial in step.verdict.trials],
                    "tokens": list(step.tokens),
                    "seconds": step.seconds,
                }
                for step in self.steps
            ],
        }
