"""The one loop. Every method of the book is a drafter handed to `generate`.

    propose a tree -> one target forward -> verify -> clip at a stop or the limit -> commit -> observe

`Run.propose` is the step up to the forward and `Run.accept` what follows it, so that several runs can share a forward
(`together`). A single one is a batch of one.

Invariant, checked at every step: the text that the model remembers is the one this run read into it, and ``lm.length
== len(context) - 1``. The root of every tree is the last committed token, so prefill reads ``context[:-1]`` and the
first token needs no special case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter

from ..base.arguments import flag, whole
from ..base.errors import SharedCacheError
from .checks import check_tree, checked_prompt
from .contract import Budget, Drafter, LanguageModel, LMOutput, Memory, NullDrafter, memory_of
from .rng import Rng, spawn
from .rules import Lossless, Rule, clip
from .sampling import Sampling, log_probabilities
from .stopping import HeldBack, Stop
from .trace import PHASES, Step, Trace
from .tree import DraftTree

# Scores one tree per language model, each after its own sequence; the flag asks for hidden states.
Forward = Callable[[Sequence[LanguageModel], Sequence[DraftTree], bool], Sequence[LMOutput]]


@dataclass(frozen=True)
class Generation:
    """The result of one run.

    Attributes:
        tokens: new token ids; a stop token is included, a stop string's tokens are not.
        text: the decoded tokens, if a tokenizer was given with the stop.
        finish_reason: "stop_token", "stop_string", "length" (max_new_tokens) or "context" (the model's limit).
        trace: every step.
        logprobs: log p of each token in nats, by the target's own logits, whatever sampling made of them; None if not
            asked for.
    """

    tokens: tuple[int, ...]
    text: str | None
    finish_reason: str
    trace: Trace
    logprobs: tuple[float, ...] | None = None


def generate(
    lm: LanguageModel,
    prompt: Sequence[int],
    drafter: Drafter | None = None,
    *,
    max_new_tokens: int = 128,
    sampling: Sampling | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    max_nodes: int | None = None,
    rule: Rule | None = None,
    rngs: tuple[Rng, Rng] | None = None,
    min_new_tokens: int = 0,
    logprobs: bool = False,
) -> Generation:
    """Decode to the end.

    Args:
        lm: the target.
        prompt: token ids; an empty prompt stands for the model's beginning-of-sequence token.
        drafter: the method; autoregressive decoding by default.
        max_new_tokens: most tokens to emit, >= 0.
        sampling: greedy by default.
        stop: what else ends the run; nothing by default.
        seed: drafting and verifying draw from two streams of it.
        max_nodes: most rows besides the root in one forward; what the drafter asks for by default.
        rule: how trees are verified; `rules.Lossless` by default. `typical.Typical` is not lossless.
        rngs: the two streams themselves, (drafting, verifying), in place of a seed; `rng.enumerate_law` enters here.
        min_new_tokens: stop tokens are impossible until as many are out; stop strings, even those that are one special
            token, and the end of the context still end the run.
        logprobs: whether to give the log-probability of each token, from the rows that verified it.

    Raises:
        ContextLimitError: if the prompt leaves no room for a new token.
        DraftError: if the drafter breaks its contract.
        SharedCacheError: if another text is read into the cache of ``lm`` meanwhile.
        ValueError: for an empty prompt without a beginning-of-sequence token, ids outside the vocabulary,
            a negative limit, or anything that is no whole number where one is expected.

    Example:
        >>> import numpy as np
        >>> from specdec_core import TableLM
        >>> lm = TableLM(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
        >>> generate(lm, [0], max_new_tokens=4).tokens
        (1, 2, 0, 1)
    """
    settings = (max_new_tokens, sampling, stop, seed, max_nodes, rule, rngs, min_new_tokens, logprobs)
    run = Run(lm, prompt, drafter, *settings)
    for _ in run:
        pass
    return run.result()


class Run:
    """One generation in progress; takes what `generate` takes.

    Iterating decodes step by step and yields each `Step`; ``result()`` afterwards gives the `Generation`.

    Example:
        >>> import numpy as np
        >>> from specdec_core import TableLM
        >>> lm = TableLM(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
        >>> [step.tokens for step in stream(lm, [0], max_new_tokens=3)]
        [(1,), (2,), (0,)]
    """

    def __init__(
        self,
        lm: LanguageModel,
        prompt: Sequence[int],
        drafter: Drafter | None = None,
        max_new_tokens: int = 128,
        sampling: Sampling | None = None,
        stop: Stop | None = None,
        seed: int = 0,
        max_nodes: int | None = None,
        rule: Rule | None = None,
        rngs: tuple[Rng, Rng] | None = None,
        min_new_tokens: int = 0,
        logprobs: bool = False,
    ):
        self.lm, self.drafter = lm, NullDrafter() if drafter is None else drafter
        self.sampling, self.rule = sampling or Sampling(), rule or Lossless()
        self.context, self._alone = checked_prompt(prompt, lm), Memory()
        self.prompt_length = len(self.context)
        self.max_new_tokens = whole("max_new_tokens", max_new_tokens, 0)
        self.max_nodes = whole("max_nodes", self.drafter.max_nodes if max_nodes is None else max_nodes, 0)
        name, label = self.drafter.name, self.rule.label
        self.trace = Trace(f"{name} ({label})" if label else name, self.prompt_length)
        self.watch = (stop or Stop()).watch()
        if self.max_new_tokens == 0:
            self.watch.reason = "length"
        self.logprobs: list[float] | None = [] if flag("logprobs", logprobs) else None
        least = whole("min_new_tokens", min_new_tokens, 0)
        if least > self.max_new_tokens:
            raise ValueError(f"min_new_tokens must be at most max_new_tokens, {self.max_new_tokens}; got {least}")
        self._free = self.prompt_length + least  # tokens of the shortest context after which the run may end
        self._held = self.sampling  # until then
        if least and self.watch.ends:
            held = HeldBack(self.watch.ends, self._free)
            self._held = replace(self.sampling, processors=(held, *self.sampling.processors))
        self._draft_rng, self._verify_rng = rngs or spawn(seed)

    def __iter__(self) -> Iterator[Step]:
        if self.trace.steps:
            raise RuntimeError("a run can be iterated once; start another with stream()")
        self.begin()
        while not self.done:
            yield from together([self], one_by_one)

    @property
    def done(self) -> bool:
        return self.watch.reason is not None

    def result(self) -> Generation:
        """What has been generated so far."""
        tokens, text = self.watch.finish()
        logprobs = None if self.logprobs is None else tuple(self.logprobs[: len(tokens)])
        return Generation(tuple(tokens), text, self.watch.reason or "unfinished", self.trace, logprobs)

    @property
    def memory(self) -> Memory:
        """The model's; a model that has none is taken for this run's alone."""
        return memory_of(self.lm, self._alone)

    def begin(self) -> None:
        """Read the prompt, all but its last token; comes before the first step."""
        if self.done:
            return
        start, needs_hidden = perf_counter(), self.drafter.needs_hidden
        room = min(self.max_new_tokens, self.lm.max_length - len(self.context)) + self.max_nodes + 1
        with self.memory.lock:
            hidden = self.lm.prefill(self.context[:-1], reserve=room, needs_hidden=needs_hidden)
            self._hold()
        self.drafter.reset(self.context)
        if hidden is not None:
            self.drafter.read_prompt(hidden)
        self.trace.prefill_seconds = perf_counter() - start

    def _hold(self) -> None:
        """What the model remembers is this run's text."""
        self._text, self.memory.busy = self.memory.text, True

    def check(self) -> None:
        """
        Raises:
            SharedCacheError: if the model remembers another text by now than this run's.
        """
        self.memory.check(self._text)

    def propose(self) -> DraftTree:
        """The step up to the forward: the draft."""
        start, room = perf_counter(), self.lm.max_length - len(self.context)
        budget = Budget(self.max_nodes, room - 1)
        self._tree = self.drafter.propose(self.context, budget, self._draft_rng)
        check_tree(self._tree, self.context[-1], budget, self.lm.vocab_size, self.drafter.name)
        self._drafting = perf_counter() - start
        return self._tree

    def accept(self, out: LMOutput, seconds: float) -> Step:
        """The step after the forward, which took ``seconds``: what of the draft is kept, and the token after it."""
        lm, context, tree, clock = self.lm, self.context, self._tree, [perf_counter()]
        before = len(context)
        remaining = self.prompt_length + self.max_new_tokens - before
        room = lm.max_length - before  # tokens that the context can still take

        sampling = self._held if before < self._free else self.sampling
        laws = sampling.laws(out.logits, tree, context, self.prompt_length, self.watch.ends)
        verdict = self.rule(laws, tree, self._verify_rng)
        emitted = clip(verdict, self.watch.keep(verdict.tokens, min(remaining, room)))
        if self.logprobs is not None:
            self.logprobs += log_probabilities(out.logits, emitted.path, emitted.tokens)
        clock.append(perf_counter())

        with self.memory.lock:
            self.check()
            lm.commit(emitted.path)
            context.extend(emitted.tokens)
            self.memory.busy = not self.done
            if lm.length != len(context) - 1:
                raise SharedCacheError(
                    f"the model remembers {lm.length} tokens after a step, where this run has {len(context) - 1}: "
                    f"others commit to its cache; give each run a cache of its own: lm.with_own_cache()"
                )
        clock.append(perf_counter())

        self.drafter.observe(context, tree, verdict, out)
        clock.append(perf_counter())

        if self.watch.reason == "length" and room < remaining:
            self.watch.reason = "context"
        spans = [self._drafting, seconds, *(end - start for start, end in pairwise(clock))]
        step = Step(before, tree.without_q(), verdict, emitted, dict(zip(PHASES, spans, strict=True)))
        self.trace.steps.append(step)
        return step


stream = Run  # for step in stream(lm, prompt): ...


def together(runs: Sequence[Run], forward: Forward) -> list[Step]:
    """One step of each run, with one forward for all of them.

    Args:
        runs: begun and not done, each with a sequence, and so a language model, of its own.
        forward: such as `model.batch.forward_together`. Its time stands in the trace of every run.

    Example:
        >>> from specdec_core import TableLM
        >>> runs = [Run(TableLM.random(4), prompt, max_new_tokens=2) for prompt in ([0], [1, 2, 3])]
        >>> for run in runs:
        ...     run.begin()
        >>> [step.context_length for step in together(runs, one_by_one)]
        [1, 3]
    """
    trees = [run.propose() for run in runs]
    start = perf_counter()
    with ExitStack() as locks:
        for run in sorted(runs, key=lambda run: id(run.memory)):  # so that no two threads wait in a ring
            locks.enter_context(run.memory.lock)
            run.check()
        outs = forward([run.lm for run in runs], trees, any(run.drafter.needs_hidden for run in runs))
    seconds = perf_counter() - start
    return [run.accept(out, seconds) for run, out in zip(runs, outs, strict=True)]


def one_by_one(lms: Sequence[LanguageModel], trees: Sequence[DraftTree], needs_hidden: bool) -> list[LMOutput]:
    """A `Forward` of any language models: each scores its own tree."""
    return [lm.forward(tree, needs_hidden) for lm, tree in zip(lms, trees, strict=True)]
