"""specdec_core.race.replay: on a recorded answer a drafter takes the steps of a live run, and learns what it would."""

from __future__ import annotations

import pytest

from specdec_core.core.engine import generate
from specdec_core.core.null import NullDrafter
from specdec_core.core.toy import TableLM
from specdec_core.drafters import REST, Adaptive, Cascade, NGramDictionary, PromptLookup, SuffixDecoding
from specdec_core.race.replay import replay
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


@pytest.mark.parametrize("name", MAKERS)
def test_replayed_steps_are_the_live_steps(name):
    """Two answers by one drafter: trees that branch and are wrong now and then, and what was learned from the first."""
    live_lm, live, again, wrote = TableLM.random(6, order=2, seed=4), MAKERS[name](), MAKERS[name](), []
    for prompt in ([0, 1, 2, 0, 1], [3, 0, 1, 2]):
        run = generate(live_lm, prompt, live, max_new_tokens=50)
        steps = list(replay(prompt, run.tokens, again))
        assert steps == [(len(step.tree.tokens), len(step.tokens)) for step in run.trace.steps]
        wrote += [step.emitted for step in steps]
    assert name == "none" or max(wrote) > 1


def test_a_step_is_seen_with_the_facts_of_its_proposal():
    """After 1 2 3 1 a match of one token; after 1 2 3 1 2 3 4 none."""
    drafter = PromptLookup(min_n=1)
    lengths = [drafter.match_len for _ in replay([1, 2, 3, 1], [2, 3, 4, 9], drafter)]
    assert lengths == [1, 0]


def test_no_answer_has_no_steps():
    assert list(replay([1, 2], [], PromptLookup())) == []
