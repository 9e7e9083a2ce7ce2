"""What a race measures: who answers, the answers, and rounds of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core.trace import Trace


class Contestant:
    """Whatever answers a prompt.

    Attributes:
        settings: what the record of a race says of it.
        trace: every step of the last answer; None for another engine, which cannot be looked into.
    """

    settings: dict[str, Any]
    trace: Trace | None = None

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[list[int], int]:
        """The new tokens (a stop token included), and the target's forwards that gave them."""
        raise NotImplementedError

    def memory_bytes(self) -> int | None:
        """What another process holds after an answer; None for a contestant in this one."""
        return None


@dataclass(frozen=True, eq=False)
class Answer:
    """One method's answer in one round.

    Attributes:
        tokens: the new tokens.
        seconds: wall time of the whole answer, prefill included.
        calls: target forwards that gave tokens.
        peak_memory_bytes: as `PeakMemory` measured it.
        trace: every step; None for another engine, which cannot be looked into.
    """

    tokens: tuple[int, ...]
    seconds: float
    calls: int
    peak_memory_bytes: int
    trace: Trace | None = None

    @cached_property
    def decode_seconds(self) -> float:
        """Wall time of the steps, prefill left out; 0 for another engine."""
        return self.trace.decode_seconds if self.trace else 0.0


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
