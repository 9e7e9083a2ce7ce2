"""`compare`: let drafters answer the same prompts, and measure what each of them gains.

    from specdec_core import CachedLM, compare, load

    lm = CachedLM(load("default"))
    prompts = {"quote": ["Copy the first sentence of ..."], "write": ["Write about ..."]}  # texts, or token ids
    race = compare(lm, prompts, ["prompt_lookup", "suffix_decoding:factor=2.0"], max_new_tokens=48, repeats=1)

    row = race.row("prompt_lookup", "quote")  # or race.row("prompt_lookup"), over all tasks
    row.tokens_per_call, row.decode_speedup, row.speedup, row.speedup_low, row.speedup_high, row.identical
    race.rows  # one `Row` per task and method; "autoregressive" is in every race, the first one

    race.answers("prompt_lookup", "quote")[0].trace  # every step of an answer
    race.steps("prompt_lookup").tokens_per_call  # tau of all prompts together, hit rate, rows, time by phase

Drafters of one's own go by labels, each a name, a function that makes a fresh drafter, or a drafter:

    race = compare(lm, prompts, {"m = 4": "jacobi:m=4", "mine": lambda: Cascade(PromptLookup(), SuffixDecoding())})

Whether the answers are those of ordinary decoding, in words: ``agreement(lm, race.pairs())`` of the room measure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from ..core.contract import Drafter, LanguageModel, NullDrafter
from ..core.sampling import Sampling
from ..core.stopping import Stop
from ..drafters.methods import BASELINE, Context, build, check
from ..measure.context import context_for
from ..measure.costs import Costs
from ..model.lm import CachedLM
from .bench import Bench, BenchError, Ours, check_room, divergences
from .questions import Question
from .results import Race
from .rounds import Contestant

Asked = str | Sequence[int] | Question
Method = str | Drafter | Callable[[], Drafter]


def compare(
    lm: LanguageModel,
    prompts: Sequence[Asked] | Mapping[str, Sequence[Asked]],
    drafters: Sequence[str] | Mapping[Hashable, Method],
    *,
    max_new_tokens: int = 64,
    repeats: int = 3,
    sampling: Sampling | None = None,
    seed: int = 0,
    stop: Stop | None = None,
    rivals: Mapping[str, Contestant] | None = None,
    costs: Costs | None = None,
    seconds: float | None = None,
    clock: Callable[[], float] = perf_counter,
    progress: bool = False,
) -> Race:
    """Race drafters on prompts, in interleaved rounds; how the rounds are run is in `bench`.

    Ctrl-C ends the race and keeps every whole round. So does the end of its time.

    Args:
        lm: the target.
        prompts: texts, lists of token ids, or `Question`s (conversations); or a mapping from tasks to such. Texts need
            the tokenizer of a loaded model.
        drafters: names such as "prompt_lookup:num_tokens=5", or a mapping from labels to names, functions without
            arguments that make a drafter, or drafters. The baseline, "autoregressive", is always in the race, first.
            Drafters are made anew for every repeat, and answer all its prompts in turn; a drafter that is given
            itself stays the same, so that one that remembers earlier requests remembers them.
        max_new_tokens: of each answer, at least 1.
        repeats: how often every round is run, at least 1.
        sampling: greedy by default.
        seed: of every answer.
        stop: what else ends an answer; by default what ends one of the loaded model, nothing for another ``lm``.
        rivals: contestants of other engines, by name, see `peers`; greedy only.
        costs: t(q) of ``lm`` here, for methods that choose by it; measured where one needs it and none is given.
        seconds: time for warming up and for the rounds; None for as long as it takes.
        clock: seconds, for that time only; tests give one of their own.
        progress: show a bar on stderr.

    Raises:
        BenchError: nothing to do, a rival asked to sample, or a prompt that may not fit the context.
        MethodError: an unknown method or setting.
        KeyboardInterrupt: before the first round was over.

    Example:
        >>> import numpy as np
        >>> from specdec_core import TableLM, compare
        >>> lm = TableLM(np.eye(3)[[1, 2, 0]])  # 0 1 2 0 1 2 ...
        >>> race = compare(lm, [[0, 1, 2, 0]], ["prompt_lookup:num_tokens=2"], max_new_tokens=6, repeats=1)
        >>> [(row.method, row.target_calls, row.identical) for row in race.rows if row.task == "all"]
        [('autoregressive', 6, True), ('prompt_lookup:num_tokens=2', 2, True)]
    """
    sampling, rivals = sampling or Sampling(), rivals or {}
    makers = _makers(drafters, context_for(lm, sampling, costs))
    questions = _questions(prompts)
    check_room(questions, lm, max_new_tokens)
    if max_new_tokens < 1 or repeats < 1:
        raise BenchError(f"max_new_tokens is {max_new_tokens} and repeats is {repeats}; expected at least 1 of each.")
    if rivals and (not sampling.greedy or sampling.penalizes):
        raise BenchError(
            f"other engines are raced in greedy decoding only; got {sampling}, expected T = 0, no penalties."
        )
    if stop is None:
        stop = Stop(lm.loaded.stop_ids if isinstance(lm, CachedLM) and lm.loaded else ())
    options = {"sampling": sampling, "seed": seed, "stop": stop}

    def ours() -> dict[str, Contestant]:
        return {name: Ours(lm, make(), options) for name, make in makers.items()}

    bench = Bench(lm, ours, rivals, max_new_tokens, seconds, clock)
    race = bench.run(questions, repeats, sampling.greedy, progress)
    if race.greedy:
        race.divergences = divergences(race, lm)
    return race


def _makers(
    drafters: Sequence[str] | Mapping[Hashable, Method], context: Context
) -> dict[Hashable, Callable[[], Drafter]]:
    """Label -> what makes a drafter, the baseline first."""
    named = drafters if isinstance(drafters, Mapping) else {name: name for name in drafters}
    check(method for method in named.values() if isinstance(method, str))
    makers = {label: _maker(method, context) for label, method in named.items() if label != BASELINE}
    return {BASELINE: NullDrafter, **makers}


def _maker(method: Method, context: Context) -> Callable[[], Drafter]:
    if isinstance(method, str):
        return partial(build, method, context)
    return method if callable(method) else lambda: method


def _questions(prompts: Sequence[Asked] | Mapping[str, Sequence[Asked]]) -> list[Question]:
    by_task = prompts if isinstance(prompts, Mapping) else {None: prompts}
    return [
        _question(prompt, task, number) for task, some in by_task.items() for number, prompt in enumerate(some, start=1)
    ]


def _question(prompt: Asked, task: str | None, number: int) -> Question:
    if isinstance(prompt, Question):
        return prompt if task is None else replace(prompt, task=task)
    task = "prompts" if task is None else task
    if isinstance(prompt, str):
        return Question(f"{task}-{number}", task, (prompt,))
    if isinstance(prompt, Sequence):
        return Question(f"{task}-{number}", task, ("",), tuple(prompt))
    raise BenchError(f"expected a text, a list of token ids or a Question for each prompt; got {prompt!r}.")
