"""Which method for these prompts, on this machine: a race by successive halving, and the verdict.

What runs is decided in `halving`, what was gained in `gains`. The gain is that of the last pass alone:
numbers that made a choice look too good for having been chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from ..base.errors import SpecdecError
from ..core.engine import generate
from ..core.sampling import Sampling
from ..core.stopping import Stop
from ..core.trace import Steps, Trace
from ..drafters import REGISTRY, methods
from ..drafters.methods import BASELINE
from ..measure.context import context_for
from ..measure.costs import Costs
from ..model.lm import CachedLM
from . import gains
from .bench import check_room, room
from .comparison import compare
from .halving import SHARES, SHORTEST, Pace, Pass, Search, described, in_turns
from .questions import Question
from .results import Row

INTERRUPTED = "it was interrupted"


class RecommendError(SpecdecError):
    """No recommendation can be made: nothing that runs, or no time."""


@dataclass(frozen=True)
class Entry:
    """One method with its settings, by the pass that has most answers of it.

    Attributes:
        stage: the pass, from 1.
        row: its figures over all tasks.
        gain: measured, over all tasks.
        by_task: task -> gain; one question's spread where it was asked once.
        steps: counted.
        prediction: from these counts and t(q); None if the method never drafted, or a step had more rows than
            t(q) was measured for.
    """

    stage: int
    row: Row
    gain: gains.Gain
    by_task: dict[str, gains.Gain]
    steps: Steps
    prediction: gains.Prediction | None

    @property
    def method(self) -> str:
        """Its name, settings included."""
        return self.row.method


@dataclass(frozen=True)
class Advice:
    """The answer.

    Attributes:
        method: what to use, with its settings; the baseline where nothing gains beyond its spread.
        entries: all that was raced, those of the last pass first, then the fastest.
        left_out: method -> why it could not run here.
        passes: what was run.
        stopped: why it ended early; empty if it did not.
        seconds: how long it took.
    """

    method: str
    entries: list[Entry]
    left_out: dict[str, str]
    passes: list[Pass]
    stopped: str
    seconds: float

    @property
    def best(self) -> Entry:
        """The entry of ``method``; where that is the baseline, the fastest one of the last pass."""
        return next((entry for entry in self.entries if entry.method == self.method), self.entries[0])


def recommend(
    lm: CachedLM,
    questions: Sequence[Question],
    costs: Costs,
    *,
    seconds: float = 300.0,
    names: Sequence[str] | None = None,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    seed: int = 0,
    progress: bool = True,
    clock: Callable[[], float] = perf_counter,
) -> Advice:
    """Race methods on these questions for some time, and say which one to use.

    Ctrl-C ends the race; the answer then rests on what was measured until then. So it does where the machine turns
    out slower than it was: a pass may take twice its share of the time, the last one all that is left.

    Args:
        lm: the target, made of a loaded model, whose stop tokens end the answers.
        questions: see `workloads`.
        costs: t(q) of the target here.
        seconds: to spend. A pass is sized by the time that earlier answers took; one round of answers may run over,
            and the search for divergences comes on top.
        names: methods to try; by default all that can be built without further files.
        max_new_tokens: of an answer; fewer where time allows fewer questions than there are tasks.
        sampling, seed: as for `compare`.
        progress: say on stderr what runs.
        clock: seconds.

    Raises:
        BenchError: no question, or one that does not fit the context.
        RecommendError: no method that runs, or too little time.
        MethodError: for names that are not known.
        KeyboardInterrupt: before anything was measured.
    """
    begun = clock()
    sampling = sampling or Sampling()
    options = {"sampling": sampling, "seed": seed, "stop": Stop(lm.loaded.stop_ids)}
    check_room(questions, lm, max_new_tokens)
    sizes = {q.id: (room(q, lm.loaded.tokenizer, 0), len(q.turns)) for q in questions}
    prompt = lm.loaded.encode(questions[0].turns[0])
    usable, left_out = _runnable(names, context_for(lm, sampling, costs), prompt, options)
    runs = [generate(lm, prompt, max_new_tokens=n, **options).trace for n in (1, SHORTEST)]
    search, stopped = Search(in_turns(questions), sizes, max_new_tokens, costs, _pace(runs)), ""
    try:
        for stage in range(1, len(SHARES) + 1):
            contestants = search.contestants(stage, usable)
            left = seconds - (clock() - begun)
            plan = search.plan(stage, contestants, left)
            if plan is None and stage == 1:
                raise RecommendError(
                    f"{seconds:.0f} s are too short: one question alone, by {len(usable)} methods, takes "
                    f"about {search.least(usable):.0f} s here. Give more --minutes, or fewer --methods."
                )
            if plan is None:
                stopped = f"the time was over before pass {stage} of {len(SHARES)}"
                continue
            chosen, tokens, repeats = plan
            if progress:
                words = described(len(contestants), len(chosen), tokens, repeats)
                print(f"pass {stage} of {len(SHARES)}: {words}", file=sys.stderr)
            race = compare(
                lm,
                chosen,
                contestants,
                max_new_tokens=tokens,
                repeats=repeats,
                costs=costs,
                seconds=min(1.0, 2 * SHARES[stage - 1]) * left,
                clock=clock,
                progress=progress,
                **options,
            )
            search.keep(Pass(stage, race, len(chosen), tokens, repeats))
            if race.late:
                stopped = f"the time was over in pass {stage} of {len(SHARES)}"
            elif not race.complete:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not search.passes:
            raise
        stopped = INTERRUPTED
    entries = judged(search.passes, costs)
    return Advice(verdict(entries), entries, left_out, search.passes, stopped, clock() - begun)


def judged(passes: Sequence[Pass], costs: Costs) -> list[Entry]:
    """Every method by the pass that has most answers of it, of equals the later; the last passes first."""
    best: dict[str, Pass] = {}
    for done in passes:
        for name in done.race.methods[1:]:
            if name not in best or len(done.race.rounds) >= len(best[name].race.rounds):
                best[name] = done
    entries = [_entry(done, name, costs) for name, done in best.items()]
    return sorted(entries, key=lambda entry: (-entry.stage, -entry.gain.speedup))


def verdict(entries: Sequence[Entry]) -> str:
    """The fastest method of the last pass that gains beyond its spread; the baseline if none does.

    A method of which no token was accepted did the baseline's work and more: it was lucky, whatever the clock
    says.
    """
    last = [entry for entry in entries if entry.stage == max(other.stage for other in entries)]
    certain = [entry for entry in last if entry.gain.certain and entry.steps.accepted]
    return max(certain, key=lambda entry: entry.gain.speedup).method if certain else BASELINE


def _entry(done: Pass, name: str, costs: Costs) -> Entry:
    race, steps = done.race, done.race.steps(name)
    known = steps.hits and max(*steps.hit_rows, *steps.miss_rows, 0) <= costs.widths[-1]
    return Entry(
        stage=done.stage,
        row=race.row(name),
        gain=gains.measure(race, name),
        by_task={task: gains.measure(race, name, task) for task in race.tasks},
        steps=steps,
        prediction=gains.predict(steps, race.steps(BASELINE), costs.t) if known else None,
    )


def _runnable(
    names: Sequence[str] | None, context: methods.Context, prompt: list[int], options: dict[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """The methods that give a few tokens here, and why the others do not."""
    good, bad = [], {}
    for name in methods.check(REGISTRY if names is None else names)[1:]:
        try:
            generate(context.lm, prompt, methods.build(name, context), max_new_tokens=4, **options)
            good.append(name)
        except Exception as error:  # whatever is wrong with one method, the others can still be raced
            bad[name] = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if not good:
        reasons = "; ".join(f"{name}: {why}" for name, why in bad.items()) or "none but the baseline was given"
        raise RecommendError(f"no method can be raced here ({reasons}); choose others with --methods.")
    return good, bad


def _pace(runs: Sequence[Trace]) -> Pace:
    """From autoregressive answers to one prompt; a moment that the machine was away is not to count."""
    prefill = min(trace.prefill_seconds / trace.prompt_length for trace in runs)
    return Pace(prefill, median(sum(step.seconds.values()) for trace in runs for step in trace.steps))
