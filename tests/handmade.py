"""Steps, rounds and races with times written by hand, for tests of what is made of them."""

from dataclasses import replace

import numpy as np

from specdec_core.core.rng import Rng
from specdec_core.core.rules import Greedy, verify
from specdec_core.core.trace import PHASES, Step, Trace
from specdec_core.core.tree import DraftTree
from specdec_core.drafters.methods import BASELINE
from specdec_core.measure.costs import Costs
from specdec_core.race.halving import Pass
from specdec_core.race.recommendation import Advice, judged, verdict
from specdec_core.race.results import Race
from specdec_core.race.rounds import Answer, Round

# Forwards of up to 128 rows all take a millisecond.
FLAT = Costs(0, 1, (1, 128), (0.001, 0.001), (0.001, 0.001), (0.001, 0.001))
OTHER = {"draft": 1e-6, "verify": 2e-6, "commit": 3e-6, "observe": 4e-6}  # seconds of a step beside the forward


def timed(seconds):
    """A step of so many seconds, 10 microseconds of them outside the forward."""
    return {phase: OTHER.get(phase, seconds - 10e-6) for phase in PHASES}


def step(drafted=(), accepted=(), parents=None, scratch=(), seconds=20e-6):
    """A step that drafts these tokens and accepts these rows, one under the other."""
    rows = len(drafted) + 1
    candidate = np.array([row not in scratch for row in range(rows)])
    tree = DraftTree([0, *drafted], np.arange(-1, rows - 1) if parents is None else parents, candidate=candidate)
    target = np.zeros(rows, int)
    target[tree.parents[list(accepted)]] = tree.tokens[list(accepted)]
    made = verify(Greedy(target), tree, Rng(0))
    assert made.path == (0, *accepted)
    return Step(1, tree, made, made, timed(seconds))


def answer(seconds, steps):
    """An answer of some steps that took so many seconds, none of them for prefill."""
    steps = [replace(it, seconds=timed(seconds / len(steps))) for it in steps]
    trace = Trace("m", 1, 0.0, steps)
    return Answer((7,) * trace.emitted, seconds, len(steps), 1000, trace)


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
                    answers[name] = answer(factor * seconds[repeat], drafting)
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
