"""Metrics of a `Trace`, worked by hand."""

import json

import numpy as np
import pytest
from drafters_for_tests import Oracle

from specdec_core.core.contract import NullDrafter
from specdec_core.core.engine import generate
from specdec_core.core.rng import Rng
from specdec_core.core.rules import Greedy, clip, verify
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.core.trace import FIELDS, PHASES, Step, Trace
from specdec_core.core.tree import DraftTree

SECONDS = dict(zip(PHASES, (0.5, 2.0, 0.25, 0.125, 0.0625), strict=True))


def step(tree, target, keep=None, before=10):
    verdict = verify(Greedy(target), tree, Rng(0))
    return Step(before, tree, verdict, clip(verdict, keep or len(verdict.tokens)), SECONDS)


@pytest.fixture
def trace():
    """Four steps of one run:

    1. chain 1 2 3, target says 1 2 9: tests 1 ok, 2 ok, 3 no; emits 1 2 9.
    2. tree {1, 2 -> 4}, target says 2 then 4 then 5: tests 1 no, 2 ok, 4 ok; emits 2 4 5, cut to 2 4.
    3. no draft: emits 7.
    4. chain 5 6 and a scratch row, target says 8: tests 5 no; emits 8. Row 6 was never tested.
    """
    scratch = DraftTree(
        np.array([0, 5, 6, 3]), np.array([-1, 0, 1, 0]), candidate=np.array([True, True, True, False])
    )
    return Trace("by hand", 10, 0.5, [
        step(DraftTree.chain(0, [1, 2, 3]), [1, 2, 9, 9]),
        step(DraftTree.from_paths(0, [[1], [2, 4]]), [2, 9, 4, 5], keep=2),
        step(DraftTree.empty(0), [7]),
        step(scratch, [8, 8, 8, 8]),
    ])  # fmt: skip


def test_metrics_by_hand(trace):
    """Emitted 3 + 2 + 1 + 1 = 7 in 4 calls. Drafted 3 + 3 + 0 + 2 = 8. Tested 3 + 3 + 0 + 1 = 7, accepted 2 + 2."""
    assert (trace.target_calls, trace.emitted, trace.drafted) == (4, 7, 8)
    assert (trace.tested, trace.accepted) == (7, 4)
    assert trace.tokens_per_call == 7 / 4
    assert trace.acceptance_rate == 4 / 7
    assert trace.hit_rate == 3 / 4


def test_acceptance_by_depth_by_hand(trace):
    """Depth 1 was tested in steps 1, 2, 4 and accepted in 1, 2; two siblings of one depth are one test of it.
    Depth 2 was tested and accepted in steps 1 and 2. Depth 3 was tested in step 1, and failed."""
    assert trace.acceptance_by_depth() == [(2, 3), (2, 2), (0, 1)]


def test_seconds_by_hand(trace):
    """Four equal steps, prefill apart."""
    assert trace.seconds == {phase: 4 * seconds for phase, seconds in SECONDS.items()}
    assert trace.decode_seconds == 4 * 2.9375


def test_record_is_plain_and_replays_the_run(trace):
    record = json.loads(json.dumps(trace.to_json()))
    assert record["drafter"] == "by hand" and record["prompt_length"] == 10 and record["prefill_seconds"] == 0.5
    steps = [dict(zip(FIELDS, step, strict=True)) for step in record["steps"]]
    assert steps[1] == {
        "context_length": 10,
        "tokens": [2, 4],
        "drafted": [1, 2, 4],
        "parents": [-1, 0, 0, 2],
        "draw": "point",
        "scratch": [],
        "accepted": [2, 3],
        "tested": [[1, 0.0], [2, 1.0], [3, 1.0]],
        "microseconds": [round(1e6 * seconds) for seconds in SECONDS.values()],
    }
    assert steps[0]["parents"] is None and steps[3]["scratch"] == [3]
    assert [token for step in steps for token in step["tokens"]] == [1, 2, 9, 2, 4, 7, 8]


def test_trace_of_a_run_adds_up():
    """An oracle drafting 3 of 12 tokens at a time: 4 a call; autoregressive decoding: 1 a call."""
    lm = TableLM.random(5, order=2, seed=3)
    answer = generate(lm, [1, 2], max_new_tokens=12)
    assert answer.trace.tokens_per_call == 1.0 and answer.trace.drafted == 0
    trace = generate(lm, [1, 2], Oracle([1, 2, *answer.tokens], gamma=3), max_new_tokens=12).trace
    assert trace.tokens_per_call == 4.0 and trace.acceptance_rate == 1.0
    assert trace.acceptance_by_depth() == [(3, 3)] * 3
    assert [step.context_length for step in trace.steps] == [2, 6, 10]


@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
def test_a_step_says_how_its_tree_was_drawn(draw):
    class Drawn(NullDrafter):
        def propose(self, context, budget, rng):
            q = np.full(4, 0.25)
            tokens, laws = [context[-1], rng.pick(q)], np.stack([q, q])
            return DraftTree(tokens, [-1, 0], draw, laws) if budget.nodes and budget.depth else super().propose(
                context, budget, rng)  # fmt: skip

    sampling = Sampling(temperature=1.0)
    trace = generate(TableLM.random(4), [0], Drawn(), max_new_tokens=5, max_nodes=2, sampling=sampling).trace
    assert {step.tree.draw for step in trace.steps} == {draw} and all(step.tree.q is None for step in trace.steps)
    assert {step[FIELDS.index("draw")] for step in trace.to_json()["steps"]} == {draw}


def test_a_drafter_that_never_drafts_is_still_a_trace():
    trace = generate(TableLM.random(4), [0], NullDrafter(), max_new_tokens=3).trace
    assert (trace.hit_rate, trace.acceptance_rate, trace.tokens_per_call) == (0.0, 0.0, 1.0)
    assert trace.acceptance_by_depth() == []
