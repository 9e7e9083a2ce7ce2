"""Successive halving in a given time: how much a pass may run, and who goes on to the next.

Successive halving (Jamieson and Talwalkar 2016, arXiv:1502.07943): all contestants run on few questions, the better
half on more, the best on the rest. Three passes share the time: every method as it is given; the better half
with other settings, among them the draft length that its acceptance and t(q) ask for; the best two, repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import ceil

from ..core.trace import Steps
from ..drafters import methods
from ..drafters.methods import BASELINE
from ..measure.costs import Costs
from . import gains
from .bench import WARMUP_PROMPT, WARMUP_TOKENS
from .questions import Question
from .results import Race

SHARES = (0.25, 0.4, 0.95)  # of the time that is left when a pass begins
MOST = 8  # methods in the second pass, besides the baseline
REPEATS, MOST_REPEATS = 3, 9  # of the last pass, the second where every question fits; the others run once
SHORTEST = 16  # tokens of an answer; below this, time is saved on questions
UNKNOWN = 1.5  # time of an answer over the baseline's, guessed for a method that has not run yet

# The setting that is the length of a draft, and other settings worth a try.
_LENGTH = {
    "prompt_lookup": "num_tokens",
    "ngram": "num_tokens",
    "mtp": "num_tokens",
    "jacobi": "m",
    "suffix_decoding": "nodes",
    "rest": "nodes",
}
_OTHERS = {
    "prompt_lookup": ("min_n=2",),
    "ngram": ("min_n=2",),
    "suffix_decoding": ("offset=4.0", "factor=2.0", "min_n=2"),
    "rest": ("min_n=1", "min_n=4"),
    "lookahead": ("W=4,N=3", "W=4,N=3,prompt_ngrams=True", "W=1,N=5,G=3,prompt_ngrams=True"),
    "medusa": ("nodes=8", "nodes=24"),
    "eagle": ("tree=chain,depth=3", "depth=3,total=8"),
    "cascade": ("second=ngram",),
    "adaptive": ("method=prompt_lookup", "method=ngram"),
}


@dataclass(frozen=True)
class Pass:
    """What one pass ran.

    Attributes:
        stage: its number, from 1.
        race: its measurements.
        questions, tokens, repeats: as planned; an interrupted race has less.
    """

    stage: int
    race: Race
    questions: int
    tokens: int
    repeats: int

    def __str__(self) -> str:
        return described(len(self.race.methods) - 1, self.questions, self.tokens, self.repeats)


def described(methods: int, questions: int, tokens: int, repeats: int) -> str:
    """A pass in words.

    Example:
        >>> described(8, 1, 32, 3)
        '8 methods, 1 question, answers of 32 tokens, 3 times'
    """
    return (
        f"{methods} method{'s' * (methods > 1)}, {questions} question{'s' * (questions > 1)}, "
        f"answers of {tokens} tokens, {repeats} time{'s' * (repeats > 1)}"
    )


def in_turns(questions: Sequence[Question]) -> list[Question]:
    """One question of each task, then the second of each, and so on: any first n of them are mixed.

    Example:
        >>> in_turns([Question("1", "a", ("",)), Question("2", "a", ("",)), Question("3", "b", ("",))])[1].id
        '3'
    """
    tasks = dict.fromkeys(question.task for question in questions)
    columns = zip_longest(*([q for q in questions if q.task == task] for task in tasks))
    return [question for column in columns for question in column if question is not None]


def fit(
    count: int, want: int, longest: int, budget: float, cost: Callable[[int, int], float]
) -> tuple[int, int] | None:
    """How many questions of how long answers fit into a time; None if not even one of the shortest does.

    Answers are halved from ``longest`` down to `SHORTEST` until at least ``want`` questions fit; if they
    never do, as many as fit.

    Args:
        count: questions there are; the first n are taken.
        budget: seconds.
        cost: seconds of question i with answers of n tokens.

    Example:
        >>> fit(10, 4, 64, budget=100.0, cost=lambda i, tokens: tokens / 2)  # 3 questions of 64 tokens; 6 of 32
        (6, 32)
    """
    best, tokens = None, longest
    while True:
        total, n = 0.0, 0
        while n < count and (total := total + cost(n, tokens)) <= budget:
            n += 1
        if n and (best is None or n > best[0]):
            best = n, tokens
        if n >= min(want, count) or tokens // 2 < SHORTEST:
            return best
        tokens //= 2


def variants(name: str, counted: Steps, costs: Costs) -> list[str]:
    """Other settings worth a try for a method that ran with its defaults; none for one that was given some.

    Example:
        >>> costs = Costs(0, 1, (1, 9), (1.0, 1.8), (1.0, 1.8), (1.0, 1.8))
        >>> counted = Steps({4: 9}, {}, tokens=22, by_depth=((8, 9), (4, 8), (1, 4)))
        >>> variants("prompt_lookup", counted, costs)
        ['prompt_lookup:num_tokens=2', 'prompt_lookup:num_tokens=4', 'prompt_lookup:min_n=2']
    """
    base, given = methods.parse(name)
    if given:
        return []
    settings = list(_OTHERS.get(base, ()))
    if length := _LENGTH.get(base):
        best = max(1, gains.best_length(counted, costs))
        default = methods.settings(base)[length]
        settings = [f"{length}={n}" for n in (best, 2 * best) if n != default] + settings
    return [f"{base}:{setting}" for setting in settings]


@dataclass
class Pace:
    """How long answers take.

    Attributes:
        prefill, token: seconds per token of the prompt, and of an autoregressive answer.
        slowness: decode time of a method's answer over the baseline's, where known.
        slack: time that passes take over the time that this model gives.
    """

    prefill: float
    token: float
    slowness: dict[str, float] = field(default_factory=dict)
    slack: float = 1.1

    def seconds(self, length: int, turns: int, tokens: int, names: Sequence[str]) -> float:
        """Seconds of one question of ``turns`` turns, ``length`` tokens long, answered by the baseline and ``names``.

        Example:
            >>> pace = Pace(0.01, 0.1, {"m": 0.5}, slack=1.0)
            >>> pace.seconds(100, 1, 10, ["m"])  # two prefills of 1 s, 1 s and 0.5 s of decoding
            3.5
        """
        slow = 1.0 + sum(self.slowness.get(name, UNKNOWN) for name in names)
        once = (1 + len(names)) * length * self.prefill + tokens * self.token * slow
        return self.slack * turns * once


@dataclass
class Search:
    """The state of one search: what has run, and how long things take.

    Attributes:
        questions: in the order in which passes take them.
        sizes: id -> (tokens of all its turns, number of turns).
        longest: tokens of the longest answers.
        costs: t(q).
        pace, passes: learned as passes are kept.
    """

    questions: list[Question]
    sizes: Mapping[str, tuple[int, int]]
    longest: int
    costs: Costs
    pace: Pace
    passes: list[Pass] = field(default_factory=list)

    def contestants(self, stage: int, given: Sequence[str]) -> list[str]:
        """Who runs in a pass: all given; the better half of them and variants; the best two."""
        if not self.passes:
            return list(given)
        race = self.passes[-1].race
        names = sorted(race.methods[1:], key=lambda name: -gains.measure(race, name).speedup)
        if stage == len(SHARES):
            return names[:2]
        half = names[: ceil(len(names) / 2)]
        more = [variants(name, race.steps(name), self.costs) for name in half]
        in_order = [name for column in zip_longest(*more) for name in column if name]
        return (half + in_order)[:MOST]

    def plan(self, stage: int, names: Sequence[str], left: float) -> tuple[list[Question], int, int] | None:
        """Questions, tokens of an answer, and repeats of a pass; None if no question fits."""
        budget = SHARES[stage - 1] * left - self._warmup(names)
        last = stage == len(SHARES)
        repeats = REPEATS if last else 1
        if found := self._fit(names, budget / repeats):
            n, tokens = found
            once = sum(self._cost(i, tokens, names) for i in range(n))
            more = min(MOST_REPEATS, int(budget / once)) if last else 1
            return self.questions[:n], tokens, max(repeats, more)
        if stage == 1 and self.least(names) <= left:  # more than its share, or there is no answer at all
            return self.questions[:1], min(self.longest, SHORTEST), 1
        return None

    def least(self, names: Sequence[str]) -> float:
        """Seconds of the smallest pass: the warm-up and one question, with the shortest answers."""
        return self._warmup(names) + self._cost(0, min(self.longest, SHORTEST), names)

    def keep(self, done: Pass) -> None:
        """Keep a pass, and what it says about the time of the next one."""
        self.passes.append(done)
        race = done.race
        self.pace.slowness |= {name: 1 / race.row(name).decode_speedup for name in race.methods}
        took = sum(answer.seconds for r in race.rounds for answer in r.answers.values())
        planned = sum(
            self.pace.seconds(len(r.prompt_ids), 1, len(r.answers[BASELINE].tokens), race.methods[1:])
            for r in race.rounds
        )
        self.pace.slack *= 1.1 * took / planned

    def _fit(self, names: Sequence[str], budget: float) -> tuple[int, int] | None:
        want = len({question.task for question in self.questions})
        return fit(len(self.questions), want, self.longest, budget, lambda i, n: self._cost(i, n, names))

    def _warmup(self, names: Sequence[str]) -> float:
        """Seconds before the first round: the baseline reads a prompt, the others the end of it."""
        length, turns = self.sizes[self.questions[0].id]
        others = self.pace.seconds(min(WARMUP_PROMPT, length // turns), 1, WARMUP_TOKENS, names)
        return others + self.pace.seconds(length // turns, 1, 0, ())

    def _cost(self, i: int, tokens: int, names: Sequence[str]) -> float:
        return self.pace.seconds(*self.sizes[self.questions[i].id], tokens, names)
