"""The one loop. Every method of the book is a drafter handed to `generate`.

    propose a tree -> one target forward -> verify -> clip at a stop or the limit -> commit -> observe

Invariant, checked at every step: ``lm.length == len(context) - 1``. The root of every tree is the last committed
token, so prefill reads ``context[:-1]`` and the first token needs no special case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from ..base.errors import ContextLimitError, DraftError
from .contract import Budget, Drafter, LanguageModel
from .null import NullDrafter
from .rng import Rng, spawn
from .rules import Rule, clip, verify
from .sampling import Sampling
from .stopping import Stop
from .trace import PHASES, Step, Trace
from .tree import DraftTree


@dataclass(frozen=True)
class Generation:
    """The result of one run.

    Attributes:
        tokens: new token ids; a stop token is included, a stop string's tokens are not.
        text: the decoded tokens, if a tokenizer was given with the stop.
        finish_reason: "stop_token", "stop_string", "length" (max_new_tokens) or "context" (the model's limit).
        trace: every step.
    """

    tokens: tuple[int, ...]
    text: str | None
    finish_reason: str
    trace: Trace


def generate(lm: LanguageModel, prompt: Sequence[int], drafter: Drafter | None = None, **options) -> Generation:
    """Decode to the end. Takes the options of `stream`.

    >>> import numpy as np
    >>> from specdec_core.core.toy import TableLM
    >>> lm = TableLM(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
    >>> generate(lm, [0], max_new_tokens=4).tokens
    (1, 2, 0, 1)
    """
    run = Run(lm, prompt, drafter, **options)
    for _ in run:
        pass
    return run.result()


def stream(lm: LanguageModel, prompt: Sequence[int], drafter: Drafter | None = None, **options) -> Run:
    """Decode step by step: iterating yields each `Step`; ``result()`` afterwards gives the `Generation`.

    Args:
        lm: the target.
        prompt: token ids; an empty prompt stands for the model's beginning-of-sequence token.
        drafter: the method; autoregressive decoding by default.
        max_new_tokens: most tokens to emit, >= 0.
        sampling: greedy by default.
        stop: what else ends the run; nothing by default.
        seed: drafting and verifying draw from two streams of it.
        max_nodes: most rows besides the root in one forward; what the drafter asks for by default.
        rule: how trees are verified; `verify`, which is lossless, by default. `typical.Typical` is not.
        rngs: the two streams themselves, (drafting, verifying), in place of a seed; `rng.enumerate_law` enters here.

    Raises:
        ContextLimitError: if the prompt leaves no room for a new token.
        DraftError: if the drafter breaks its contract.
        ValueError: for an empty prompt without a beginning-of-sequence token, ids outside the vocabulary,
            or a negative limit.
    """
    return Run(lm, prompt, drafter, **options)


class Run:
    """One generation in progress; see `stream`."""

    def __init__(self, lm: LanguageModel, prompt: Sequence[int], drafter: Drafter | None = None, *,
                 max_new_tokens: int = 128, sampling: Sampling | None = None, stop: Stop | None = None,
                 seed: int = 0, max_nodes: int | None = None, rule: Rule = verify,
                 rngs: tuple[Rng, Rng] | None = None):  # fmt: skip
        self.lm, self.drafter = lm, NullDrafter() if drafter is None else drafter
        max_nodes = self.drafter.max_nodes if max_nodes is None else max_nodes
        if max_new_tokens < 0 or max_nodes < 0:
            raise ValueError(f"limits must be >= 0; got max_new_tokens={max_new_tokens}, max_nodes={max_nodes}")
        self.sampling = sampling or Sampling()
        self.context = _checked(prompt, lm)
        self.prompt_length = len(self.context)
        self.max_new_tokens, self.max_nodes = max_new_tokens, max_nodes
        self.rule, label = rule, getattr(rule, "label", "")  # a rule that is not lossless has one, and is named by it
        self.trace = Trace(f"{self.drafter.name} ({label})" if label else self.drafter.name, self.prompt_length)
        self.watch = (stop or Stop()).watch()
        self._draft_rng, self._verify_rng = rngs or spawn(seed)

    def __iter__(self) -> Iterator[Step]:
        if self.trace.steps:
            raise RuntimeError("a run can be iterated once; start another with stream()")
        if self.max_new_tokens == 0:
            self.watch.reason = "length"
            return
        start = perf_counter()
        needs, room = self.drafter.needs_hidden, self.max_new_tokens + self.max_nodes + 1
        hidden = self.lm.prefill(self.context[:-1], reserve=room, needs_hidden=needs)
        self.drafter.reset(self.context)
        if needs:
            self.drafter.read_prompt(hidden)
        self.trace.prefill_seconds = perf_counter() - start
        while self.watch.reason is None:
            yield self._step()

    def result(self) -> Generation:
        """What has been generated so far."""
        tokens, text = self.watch.finish()
        return Generation(tuple(tokens), text, self.watch.reason or "unfinished", self.trace)

    def _step(self) -> Step:
        lm, context, clock = self.lm, self.context, [perf_counter()]
        before = len(context)
        remaining = self.max_new_tokens - (before - self.prompt_length)
        room = lm.max_length - before  # tokens that the context can still take

        budget = Budget(self.max_nodes, room - 1)
        tree = self.drafter.propose(context, budget, self._draft_rng)
        _check_tree(tree, context[-1], budget, lm.vocab_size, self.drafter.name)
        clock.append(perf_counter())

        out = lm.forward(tree, self.drafter.needs_hidden)
        clock.append(perf_counter())

        laws = self.sampling.laws(out.logits, tree, context, self.prompt_length)
        verdict = self.rule(laws, tree, self._verify_rng)
        emitted = clip(verdict, self.watch.keep(verdict.tokens, min(remaining, room)))
        clock.append(perf_counter())

        lm.commit(emitted.path)
        context.extend(emitted.tokens)
        assert lm.length == len(context) - 1, (lm.length, len(context))
        clock.append(perf_counter())

        self.drafter.observe(context, tree, verdict, out)
        clock.append(perf_counter())

        if self.watch.reason == "length" and room < remaining:
            self.watch.reason = "context"
        spans = [after - before for before, after in pairwise(clock)]
        seconds = dict(zip(PHASES, spans, strict=True))
        step = Step(before, tree.without_q(), verdict, emitted, seconds)
        self.trace.steps.append(step)
        return step


def _checked(prompt: Sequence[int], lm: LanguageModel) -> list[int]:
    ids = [int(i) for i in prompt]
    if not ids:
        if lm.bos_id is None:
            raise ValueError("an empty prompt needs a beginning-of-sequence token, and this model has none; "
                             "pass at least one token id")  # fmt: skip
        ids = [lm.bos_id]
    bad = [i for i in ids if not 0 <= i < lm.vocab_size]
    if bad:
        raise ValueError(f"token ids must be in 0 ... {lm.vocab_size - 1}; the prompt has {bad[:5]}")
    if len(ids) >= lm.max_length:
        raise ContextLimitError(f"the prompt has {len(ids)} tokens and the model's context holds {lm.max_length}; "
                                f"shorten the prompt to at most {lm.max_length - 1} tokens")  # fmt: skip
    return ids


def _check_tree(tree: DraftTree, root: int, budget: Budget, vocab_size: int, name: str) -> None:
    problem = None
    if tree.tokens[0] != root:
        problem = f"is rooted at token {tree.tokens[0]}, not at the last token {root}"
    elif tree.size > budget.nodes or (tree.size and tree.depths.max() > budget.depth):
        problem = f"has {tree.size} nodes and depth {tree.depths.max()}; {budget} allows fewer"
    elif tree.size and not (tree.tokens.min() >= 0 and tree.tokens.max() < vocab_size):
        problem = f"holds token ids outside 0 ... {vocab_size - 1}"
    elif tree.q is not None and tree.size and tree.q.shape[1] != vocab_size:
        problem = f"has laws q over {tree.q.shape[1]} tokens; the target has {vocab_size}"
    if problem:
        raise DraftError(f"the tree proposed by {name!r} {problem}")
