"""Rounds and races with times written by hand, for tests of what is made of them."""

import json

from specdec_core.drafters.methods import BASELINE
from specdec_core.measure.costs import Costs
from specdec_core.race.halving import Pass
from specdec_core.race.recommend import Advice, judged, verdict
from specdec_core.race.record import STEP
from specdec_core.race.rounds import Answer, Race, Round

# Forwards of up to 128 rows all take a millisecond.
FLAT = Costs(0, 1, (1, 128), (0.001, 0.001), (0.001, 0.001), (0.001, 0.001))
PHASES = ("draft", "forward", "verify", "commit", "observe")


def step(drafted=(), accepted=(), parents=None, scratch=(), microseconds=(1, 10, 2, 3, 4)):
    """A step as a record keeps it: ``drafted`` tokens, ``accepted`` rows."""
    tokens = [drafted[row - 1] for row in accepted] + [0]
    tested = [[row, 1.0] for row in accepted]
    values = {"context_length": 1, "tokens": tokens, "drafted": list(drafted), "parents": parents,
              "scratch": list(scratch), "accepted": list(accepted), "tested": tested,
              "microseconds": list(microseconds)}  # fmt: skip
    return [values[name] for name in STEP]


def answer(seconds, steps, depths=()):
    """An answer of some steps that took so many seconds, none of them for prefill."""
    tokens = sum(len(dict(zip(STEP, it, strict=True))["tokens"]) for it in steps)
    phases = dict.fromkeys(PHASES, seconds / len(PHASES))
    text = json.dumps({"steps": steps})
    return Answer((7,) * tokens, seconds, len(steps), 1000, 0.0, phases, depths, text)


def race(times, tasks=("t",), questions=1, greedy=True, complete=True, plain=1.0):
    """Every method answers 4 tokens a question; ``times`` has a method's seconds by repeat.

    ``tasks`` may have a factor of these seconds for each. The baseline takes ``plain`` seconds. A method has
    a draft of two tokens in each of its two steps, and one of them is accepted.
    """
    factors = tasks if isinstance(tasks, dict) else dict.fromkeys(tasks, 1.0)
    drafting = [step((5, 6), (1,))] * 2
    rounds = []
    for repeat in range(len(next(iter(times.values())))):
        for task, factor in factors.items():
            for q in range(questions):
                answers = {BASELINE: answer(plain, [step()] * 4)}
                for name, seconds in times.items():
                    answers[name] = answer(factor * seconds[repeat], drafting, ((2, 2), (0, 2)))
                rounds.append(Round(f"{task}-{q}", task, 0, repeat, (1, 2), answers))
    return Race((BASELINE, *times), rounds, greedy=greedy, complete=complete)


def done(*args, stage=1, **options):
    """The same as a pass."""
    made = race(*args, **options)
    return Pass(stage, made, questions=len({r.question for r in made.rounds}), tokens=4, repeats=1)


def advised(*passes, costs=FLAT, **options):
    """The advice that passes lead to."""
    entries = judged(passes, costs)
    made = {"left_out": {}, "passes": list(passes), "stopped": "", "seconds": 1.0, **options}
    return Advice(verdict(entries), entries, **made)
