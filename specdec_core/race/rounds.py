"""What a race leaves behind: answers, rounds, the whole. Tables, figures and records are functions of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Answer:
    """One method's answer in one round.

    Attributes:
        tokens: the new tokens.
        seconds: wall time of the whole answer, prefill included.
        calls: target forwards that gave tokens.
        peak_memory_bytes: as `PeakMemory` measured it.
        prefill_seconds: within ``seconds``; None for a peer, which cannot be split.
        phases: decode seconds by phase (`trace.PHASES`); empty for a peer.
        depths: (accepted, tested) by depth, see `Trace.acceptance_by_depth`; empty for a peer.
        trace: every step as JSON text, see `record.compact`; "" for a peer.
    """

    tokens: tuple[int, ...]
    seconds: float
    calls: int
    peak_memory_bytes: int
    prefill_seconds: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    depths: tuple[tuple[int, int], ...] = ()
    trace: str = ""


@dataclass(frozen=True, eq=False)
class Round:
    """One user turn of a question, answered by every method; ``answers`` is in their running order."""

    question: str
    task: str
    turn: int
    repeat: int
    prompt_ids: tuple[int, ...]
    answers: dict[str, Answer]


@dataclass(frozen=True)
class Divergence:
    """Where an answer first differs from the autoregressive one.

    Attributes:
        position: index of the first token that differs.
        expected, got: the two tokens there; None where an answer had already ended.
        logit_gap: the target's largest logit minus its second, after the common tokens; from one prefill of
            them. Where it is of the size of the dtype's rounding, two correct programs may differ.
    """

    method: str
    question: str
    task: str
    turn: int
    position: int
    expected: int | None
    got: int | None
    logit_gap: float


@dataclass(eq=False)
class Race:
    """What was measured; ``complete`` is False if the race was interrupted, or, then ``late``, out of time."""

    methods: tuple[str, ...]
    rounds: list[Round] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    greedy: bool = True
    complete: bool = False
    late: bool = False
    memory: str = ""  # what peak_memory_bytes means

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(r.task for r in self.rounds))
