"""From a `Race` to rows: one a method and task, one a method over all tasks. Every figure is defined here.

A *repeat* is one pass over all rounds. Figures that compare methods are taken within a repeat, then the
median over the repeats is given, with the smallest and the largest as its spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from statistics import median
from typing import Any

from ..core.trace import PHASES
from ..drafters.methods import BASELINE
from .rounds import Answer, Race, Round

ALL = "all"

DEFINITIONS = {
    "tokens": "new tokens of one repeat, summed over the answers",
    "seconds": "wall time of one repeat, summed over the answers, prefill included; median over the repeats",
    "tokens_per_second": "tokens / seconds; over all tasks the geometric mean of the tasks'",
    "tokens_per_call": "tokens / target forwards that gave tokens, so the bonus token counts; over all tasks "
    "the geometric mean of the tasks'",
    "speedup": "tokens a second over those of autoregressive decoding in the same repeat, prefill included "
    "on both sides; median over the repeats. Over all tasks: in each repeat the geometric mean of the tasks'",
    "speedup_low, speedup_high": "smallest and largest over the repeats",
    "identical": "every answer of every repeat has the baseline's tokens; null when sampling",
    "divergences": "the answers that differ: where first, the two tokens there, the target's largest logit "
    "minus its second",
    "ms": "mean milliseconds of a decode step by phase, over all repeats, prefill excluded; null for a peer",
    "decode_seconds, decode_tokens_per_second, decode_speedup": "as above without prefill; null for a peer",
    "acceptance_by_depth": "[accepted, tested] at depth 1, 2, ... of the draft, over all repeats; a depth is "
    "tested only where every shallower one was accepted",
    "repeats": "how many repeats the figures come from",
}


def rows(race: Race) -> list[dict[str, Any]]:
    """One row a method and task, then one a method over all tasks (``task: "all"``); see `DEFINITIONS`.

    Raises:
        ValueError: the race has no round.
    """
    return [_row(race, method, part) for part in _parts(race) for method in race.methods]


def details(race: Race) -> list[dict[str, Any]]:
    """What a row has no column for, in the order of `rows`."""
    return [_detail(race, method, part) for part in _parts(race) for method in race.methods]


def geometric_mean(values: Iterable[float]) -> float:
    """The n-th root of the product of n positive values; one value is itself, to the last bit.

    Example:
        >>> geometric_mean([1.0, 4.0])
        2.0
    """
    values = list(values)
    return prod(values) ** (1 / len(values))


class _Part:
    """The rounds of one task, or of all, by repeat; repeats that an interrupt cut short are left out."""

    def __init__(self, name: str, rounds: Sequence[Round]):
        self.name = name
        by_repeat: dict[int, list[Round]] = {}
        for r in rounds:
            by_repeat.setdefault(r.repeat, []).append(r)
        whole = len(by_repeat[0]) if 0 in by_repeat else 0
        self.repeats = [part for part in by_repeat.values() if len(part) == whole]
        self.tasks = list(dict.fromkeys(r.task for r in rounds))

    def answers(self, method: str) -> list[Answer]:
        return [r.answers[method] for part in self.repeats for r in part]

    def by_task(self, repeat: Sequence[Round]) -> list[list[Round]]:
        return [[r for r in repeat if r.task == task] for task in self.tasks]


def _parts(race: Race) -> list[_Part]:
    if not race.rounds:
        raise ValueError("the race has no round: nothing was measured")
    tasks = [_Part(task, [r for r in race.rounds if r.task == task]) for task in race.tasks]
    return [*tasks, _Part(ALL, race.rounds)]


def _row(race: Race, method: str, part: _Part) -> dict[str, Any]:
    first = part.repeats[0]
    tokens = sum(len(r.answers[method].tokens) for r in first)
    speedups = _speedups(part, method, _seconds)
    found = [d for d in race.divergences if d.method == method and part.name in (d.task, ALL)]
    return {
        "method": method,
        "task": part.name,
        "tokens": tokens,
        "seconds": _median_seconds(part, method, _seconds),
        "tokens_per_second": _rate(part, method, _seconds),
        "tokens_per_call": geometric_mean(
            _ratio(task, method, lambda answer: answer.calls) for task in part.by_task(first)
        ),
        "speedup": median(speedups),
        "speedup_low": min(speedups),
        "speedup_high": max(speedups),
        "identical": not found if race.greedy else None,
        "divergences": [
            {key: value for key, value in vars(d).items() if key not in ("method", "task")} for d in found
        ],
        "peak_memory_bytes": max(answer.peak_memory_bytes for answer in part.answers(method)),
        "ms": _split(part.answers(method)),
    }


def _detail(race: Race, method: str, part: _Part) -> dict[str, Any]:
    answers = part.answers(method)
    ours = answers[0].prefill_seconds is not None
    speedups = _speedups(part, method, _decode_seconds) if ours else []
    depths: list[list[int]] = []
    for answer in answers:
        for depth, (accepted, tested) in enumerate(answer.depths):
            if depth == len(depths):
                depths.append([0, 0])
            depths[depth][0] += accepted
            depths[depth][1] += tested
    return {
        "method": method,
        "task": part.name,
        "answers": len(part.repeats[0]),
        "repeats": len(part.repeats),
        "target_calls": sum(r.answers[method].calls for r in part.repeats[0]),
        "decode_seconds": _median_seconds(part, method, _decode_seconds) if ours else None,
        "decode_tokens_per_second": _rate(part, method, _decode_seconds) if ours else None,
        "decode_speedup": median(speedups) if ours else None,
        "decode_speedup_low": min(speedups, default=None),
        "decode_speedup_high": max(speedups, default=None),
        "speedup_by_repeat": _speedups(part, method, _seconds),
        "acceptance_by_depth": depths,
    }


def _seconds(answer: Answer) -> float:
    return answer.seconds


def _decode_seconds(answer: Answer) -> float:
    return sum(answer.phases.values())


def _ratio(rounds: Sequence[Round], method: str, of) -> float:
    """Tokens over the sum of ``of(answer)``."""
    answers = [r.answers[method] for r in rounds]
    return sum(len(answer.tokens) for answer in answers) / sum(map(of, answers))


def _speedups(part: _Part, method: str, seconds) -> list[float]:
    # A ratio of rates, not of times: an answer that diverges and ends early is no faster for it.
    return [
        geometric_mean(
            _ratio(task, method, seconds) / _ratio(task, BASELINE, seconds) for task in part.by_task(repeat)
        )
        for repeat in part.repeats
    ]


def _median_seconds(part: _Part, method: str, seconds) -> float:
    return median(sum(seconds(r.answers[method]) for r in repeat) for repeat in part.repeats)


def _rate(part: _Part, method: str, seconds) -> float:
    """Tokens a second: of a task from its median time, over all tasks the geometric mean of theirs."""
    rates = []
    for task in zip(
        *(part.by_task(repeat) for repeat in part.repeats), strict=True
    ):  # one task, every repeat
        tokens = sum(len(r.answers[method].tokens) for r in task[0])
        rates.append(tokens / median(sum(seconds(r.answers[method]) for r in repeat) for repeat in task))
    return geometric_mean(rates)


def _split(answers: Sequence[Answer]) -> dict[str, float] | None:
    if answers[0].prefill_seconds is None:
        return None
    calls = sum(answer.calls for answer in answers)
    return {phase: 1000 * sum(answer.phases[phase] for answer in answers) / calls for phase in PHASES}
