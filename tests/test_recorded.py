"""`Recorded`: on a recorded answer a drafter takes the steps of a live run, and learns what it would."""

from __future__ import annotations

import pytest

from specdec_core import TableLM, generate, stream
from specdec_core.base.errors import SpecdecError
from specdec_core.core.contract import NullDrafter
from specdec_core.core.recorded import Recorded
from specdec_core.drafters import (
    REST,
    Adaptive,
    Cascade,
    Jacobi,
    Lookahead,
    NGramDictionary,
    PromptLookup,
    SuffixDecoding,
)
from specdec_core.stores import SuffixStore

STORE = SuffixStore.in_memory([[0, 1, 2, 3, 4, 5, 0, 1, 3, 2, 1, 0, 4, 4, 2, 0, 1, 2, 5]], vocab_size=6)
MAKERS = {
    "none": NullDrafter,
    "prompt lookup": PromptLookup,
    "n-gram dictionary": NGramDictionary,
    "suffix decoding": lambda: SuffixDecoding(offset=3.0),
    "rest": lambda: REST(STORE, nodes=6, min_n=1),
    "cascade": lambda: Cascade(PromptLookup(min_n=2), SuffixDecoding(offset=1.0)),
    "adaptive": lambda: Adaptive(SuffixDecoding(offset=3.0), lambda q: 1.0 + 0.02 * (q - 1), lambda nodes: 0.0),
}


def shape(trace):
    return [(step.tree.tokens.tolist(), step.tree.parents.tolist(), step.tokens) for step in trace.steps]


@pytest.mark.parametrize("name", MAKERS)
def test_replayed_steps_are_the_live_steps(name):
    """Two answers by one drafter: trees that branch and are wrong now and then, and what was learned from the first."""
    live_lm, live, again, wrote = TableLM.random(6, order=2, seed=4), MAKERS[name](), MAKERS[name](), []
    for prompt in ([0, 1, 2, 0, 1], [3, 0, 1, 2]):
        run = generate(live_lm, prompt, live, max_new_tokens=50)
        trace = Recorded(prompt, run.tokens).replay(again)
        assert shape(trace) == shape(run.trace)
        wrote += [len(step.tokens) for step in trace.steps]
    assert name == "none" or max(wrote) > 1


def test_a_drafter_that_reads_states_gets_the_recorded_ones():
    class Reads(PromptLookup):
        needs_hidden = True

        def __init__(self):
            super().__init__()
            self.read = []

        def read_prompt(self, hidden):
            self.read.append(hidden.tolist())

        def observe(self, context, tree, verdict, out):
            self.read.append(out.hidden[list(verdict.path)].tolist())

    lm, prompt, live, again = TableLM.random(6, order=2, seed=4), [0, 1, 2, 0, 1], Reads(), Reads()
    run = generate(lm, prompt, live, max_new_tokens=30)
    states = lm.prefill([*prompt, *run.tokens], needs_hidden=True)
    assert shape(Recorded(prompt, run.tokens, states).replay(again)) == shape(run.trace)
    assert run.trace.accepted > 0
    assert again.read[:-1] == live.read[:-1]  # the last step may have accepted tokens behind the end of the record
    with pytest.raises(SpecdecError, match="hidden states, and none are recorded"):
        Recorded(prompt, run.tokens).replay(Reads())


@pytest.mark.parametrize("make", [lambda: Jacobi(4), lambda: Lookahead(W=3, N=3, G=3)])
def test_what_reads_behind_a_wrong_token_is_refused(make):
    lm = TableLM.random(6, order=2, seed=4)
    run = generate(lm, [0, 1, 2], max_new_tokens=30)
    with pytest.raises(SpecdecError, match="jacobi and lookahead have to run live"):
        Recorded([0, 1, 2], run.tokens).replay(make())


def test_a_step_is_seen_with_the_facts_of_its_proposal():
    """After 1 2 3 1 a match of one token; after 1 2 3 1 2 3 4 none."""
    drafter = PromptLookup(min_n=1)
    run = stream(Recorded([1, 2, 3, 1], [2, 3, 4, 9]), [1, 2, 3, 1], drafter, max_new_tokens=4)
    assert [drafter.match_len for _ in run] == [1, 0]


def test_no_answer_has_no_steps():
    assert Recorded([1, 2], []).replay(PromptLookup()).steps == []


def test_another_prompt_and_a_longer_answer_are_refused():
    with pytest.raises(SpecdecError, match="expected the recorded prompt"):
        generate(Recorded([1, 2], [3]), [2, 2, 2], max_new_tokens=1)
    for most in (2, 5):
        with pytest.raises(SpecdecError, match="at most 1, the tokens that are recorded"):
            generate(Recorded([1, 2], [3]), [1, 2], max_new_tokens=most)
