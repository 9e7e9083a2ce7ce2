"""From what a race measured to rows: one per method and task, one per method over all tasks.

A *repeat* is one pass over all rounds. Figures that compare methods are taken within a repeat, then the
median over the repeats is given, with the smallest and the largest as its spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from operator import attrgetter
from statistics import median

from ..core.trace import Steps
from ..drafters.methods import BASELINE
from .rounds import Answer, Divergence, Round

ALL = "all"

DEFINITIONS = {
    "answers, repeats": "how many answers a repeat has, and how many repeats the figures come from",
    "tokens": "new tokens of one repeat, summed over the answers",
    "target_calls": "target forwards of one repeat that gave tokens",
    "tokens_per_call": "tokens / target forwards that gave tokens, so the bonus token counts; over all tasks "
    "the geometric mean of the tasks'",
    "seconds": "wall time of one repeat, summed over the answers, prefill included; median over the repeats",
    "tokens_per_second": "tokens / seconds; over all tasks the geometric mean of the tasks'",
    "speedup": "tokens per second over those of autoregressive decoding in the same repeat, prefill included "
    "on both sides; median over the repeats. Over all tasks: in each repeat the geometric mean of the tasks'",
    "speedup_low, speedup_high": "smallest and largest over the repeats",
    "identical": "every answer of every repeat has the baseline's tokens; null when sampling",
    "divergences": "the answers that differ: where first, the two tokens there, the target's largest logit "
    "minus its second",
    "decode_seconds, decode_tokens_per_second, decode_speedup": "as above without prefill; null for a peer",
    "ms": "mean milliseconds of a decode step by phase, over all repeats, prefill excluded; null for a peer",
    "hit_rate": "steps with a draft to test / steps, over all repeats; null for a peer",
    "accepted_per_hit": "draft tokens accepted / steps with a draft to test; null for a peer",
    "acceptance_by_depth": "[accepted, tested] at depth 1, 2, ... of the draft, over all repeats; a depth is "
    "tested only where every shallower one was accepted",
}


@dataclass(frozen=True)
class Row:
    """The figures of one method on one task, or over all of them (``task == "all"``); see `DEFINITIONS`.

    Those without prefill, and those that are read from a trace, are None for another engine.
    """

    method: str
    task: str
    answers: int
    repeats: int
    tokens: int
    target_calls: int
    tokens_per_call: float
    seconds: float
    tokens_per_second: float
    speedup: float
    speedup_low: float
    speedup_high: float
    speedup_by_repeat: tuple[float, ...]
    identical: bool | None
    divergences: tuple[Divergence, ...]
    peak_memory_bytes: int
    decode_seconds: float | None = None
    decode_tokens_per_second: float | None = None
    decode_speedup: float | None = None
    decode_speedup_low: float | None = None
    decode_speedup_high: float | None = None
    ms: dict[str, float] | None = None
    hit_rate: float | None = None
    accepted_per_hit: float | None = None
    acceptance_by_depth: tuple[tuple[int, int], ...] | None = None


@dataclass(eq=False)
class Race:
    """What was measured; ``complete`` is False if the race was interrupted, or, then ``late``, out of time.

    Attributes:
        methods: the names of all contestants, the baseline first.
        rounds: as they ran.
        divergences: of a greedy race, from the autoregressive answers.
        memory: what ``peak_memory_bytes`` means.
    """

    methods: tuple[str, ...]
    rounds: list[Round] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    greedy: bool = True
    complete: bool = False
    late: bool = False
    memory: str = ""

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(r.task for r in self.rounds))

    @property
    def rows(self) -> list[Row]:
        """One row per method and task, then one per method over all tasks.

        Raises:
            ValueError: the race has no round.
        """
        return [self.row(method, task) for task in (*self.tasks, ALL) for method in self.methods]

    def row(self, method: str, task: str = ALL) -> Row:
        """The figures of one method on one task.

        Raises:
            ValueError: the race has no round of this kind.
        """
        repeats = self._whole_repeats(method, task)
        first, speedups = repeats[0], _speedups(repeats, method, _seconds)
        found = tuple(d for d in self.divergences if d.method == method and task in (d.task, ALL))
        row = Row(
            method=method,
            task=task,
            answers=len(first),
            repeats=len(repeats),
            tokens=sum(len(r.answers[method].tokens) for r in first),
            target_calls=sum(r.answers[method].calls for r in first),
            tokens_per_call=geometric_mean(_ratio(rounds, method, _calls) for rounds in _by_task(first)),
            seconds=_median_seconds(repeats, method, _seconds),
            tokens_per_second=_rate(repeats, method, _seconds),
            speedup=median(speedups),
            speedup_low=min(speedups),
            speedup_high=max(speedups),
            speedup_by_repeat=tuple(speedups),
            identical=not found if self.greedy else None,
            divergences=found,
            peak_memory_bytes=max(answer.peak_memory_bytes for answer in self.answers(method, task)),
        )
        if first[0].answers[method].trace is None:
            return row
        steps, speedups = self.steps(method, task), _speedups(repeats, method, _decode_seconds)
        return replace(
            row,
            decode_seconds=_median_seconds(repeats, method, _decode_seconds),
            decode_tokens_per_second=_rate(repeats, method, _decode_seconds),
            decode_speedup=median(speedups),
            decode_speedup_low=min(speedups),
            decode_speedup_high=max(speedups),
            ms={phase: 1000 * seconds for phase, seconds in steps.seconds.items()},
            hit_rate=steps.hit_rate,
            accepted_per_hit=steps.accepted_per_hit,
            acceptance_by_depth=steps.by_depth,
        )

    def answers(self, method: str, task: str = ALL) -> list[Answer]:
        """The answers of one method, prompt by prompt, repeat after repeat; each with its ``trace``."""
        return [r.answers[method] for repeat in self._whole_repeats(method, task) for r in repeat]

    def steps(self, method: str, task: str = ALL) -> Steps:
        """The steps of one method of ours, counted.

        Raises:
            ValueError: it took none.
        """
        return Steps.of(answer.trace for answer in self.answers(method, task) if answer.trace)

    def pairs(self, method: str | None = None) -> list[tuple[Sequence[int], Sequence[int], Sequence[int]]]:
        """(prompt, autoregressive answer, answer of a method) of every round, for `measure.divergence.agreement`.

        Args:
            method: None for all methods but the baseline.
        """
        names = self.methods[1:] if method is None else [method]
        return [
            (list(r.prompt_ids), list(r.answers[BASELINE].tokens), list(r.answers[name].tokens))
            for r in self.rounds
            for name in names
        ]

    def _whole_repeats(self, method: str, task: str) -> list[list[Round]]:
        """The rounds of a task by repeat; repeats that an interrupt cut short are left out."""
        if method not in self.methods:
            known = ", ".join(map(str, self.methods))
            raise ValueError(f"expected a method of this race, one of {known}; got {method!r}")
        if not self.rounds:
            raise ValueError("the race has no round: nothing was measured")
        if task not in (*self.tasks, ALL):
            raise ValueError(f"expected a task of this race, one of {', '.join(self.tasks)}, or {ALL!r}; got {task!r}")
        by_repeat: dict[int, list[Round]] = {}
        for r in self.rounds:
            if task in (r.task, ALL):
                by_repeat.setdefault(r.repeat, []).append(r)
        return [rounds for rounds in by_repeat.values() if len(rounds) == len(by_repeat[0])]


def geometric_mean(values: Iterable[float]) -> float:
    """The n-th root of the product of n positive values; one value is itself, to the last bit.

    Example:
        >>> geometric_mean([1.0, 4.0])
        2.0
    """
    values = list(values)
    return prod(values) ** (1 / len(values))


_seconds, _decode_seconds, _calls = map(attrgetter, ("seconds", "decode_seconds", "calls"))  # of an `Answer`


def _ratio(rounds: Sequence[Round], method: str, of: Callable[[Answer], float]) -> float:
    """Tokens over the sum of ``of(answer)``."""
    answers = [r.answers[method] for r in rounds]
    return sum(len(answer.tokens) for answer in answers) / sum(map(of, answers))


def _by_task(rounds: Sequence[Round]) -> list[list[Round]]:
    return [[r for r in rounds if r.task == task] for task in dict.fromkeys(r.task for r in rounds)]


def _speedups(repeats: Sequence[Sequence[Round]], method: str, seconds: Callable[[Answer], float]) -> list[float]:
    # A ratio of rates, not of times: an answer that diverges and ends early is no faster for it.
    return [
        geometric_mean(_ratio(task, method, seconds) / _ratio(task, BASELINE, seconds) for task in _by_task(repeat))
        for repeat in repeats
    ]


def _median_seconds(repeats: Sequence[Sequence[Round]], method: str, seconds: Callable[[Answer], float]) -> float:
    return median(sum(seconds(r.answers[method]) for r in repeat) for repeat in repeats)


def _rate(repeats: Sequence[Sequence[Round]], method: str, seconds: Callable[[Answer], float]) -> float:
    """Tokens per second: of a task from its median time, over all tasks the geometric mean of theirs."""
    return geometric_mean(
        sum(len(r.answers[method].tokens) for r in task[0]) / _median_seconds(task, method, seconds)
        for task in zip(*map(_by_task, repeats), strict=True)  # one task, every repeat
    )
