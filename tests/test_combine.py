"""Drafters made of drafters: who is asked, what is cut, and that the tokens stay the target's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from model_free import (
    SMALL_RUNS,
    assert_edges,
    assert_exact_law,
    assert_greedy_identity,
    assert_stops_alike,
    assert_within_budget,
    exact_law,
    tiny_llama,
    tokens_read,
)

from specdec_core.base.errors import SpecdecError
from specdec_core.core.engine import Run, generate
from specdec_core.core.rng import Rng, enumerate_law, total_variation
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import (
    Adaptive,
    Budget,
    Cascade,
    DrafterBase,
    Lookahead,
    NGramDictionary,
    NullDrafter,
    PromptLookup,
    SuffixDecoding,
    methods,
)
from specdec_core.drafters.adaptive import _Proposal, _Rows
from specdec_core.measure import context_for
from specdec_core.measure.costs import Costs

WIDE = Budget(64, 64)
CYCLE = TableLM(np.eye(4)[[1, 2, 3, 0]] * 3.0)  # 0 1 2 3 0 1 2 3 ...


def flat(q):
    return 1.0


def linear(q):
    return float(q)


def gentle(q):
    return 1.0 + 0.1 * q


class Scripted(DrafterBase):
    """Drafts a chain that is right in its first ``right`` tokens, for `CYCLE`; counts what it is asked."""

    name = "scripted"

    def __init__(self, right, size=8):
        self.right, self.size, self.asked = right, size, []

    def propose(self, context, budget, rng):
        self.asked.append(budget.nodes)
        size = min(self.size, budget.nodes, budget.depth)
        chain = [(context[-1] + 1 + i + (i >= self.right)) % 4 for i in range(size)]
        return DraftTree.chain(context[-1], chain)


class Drawn(DrafterBase):
    """A chain of one token drawn from a law q, as a draft model makes it."""

    name = "drawn"
    q = np.array([0.5, 0.3, 0.2])

    def propose(self, context, budget, rng):
        if not (budget.nodes and budget.depth):
            return DraftTree.empty(context[-1])
        return DraftTree.chain(context[-1], [rng.pick(self.q)], self.q[None], "iid")


class Recorder(NullDrafter):
    """Has nothing to propose and notes what it is told."""

    def __init__(self, needs_hidden=False):
        self.needs_hidden, self.seen = needs_hidden, []

    def reset(self, context):
        self.seen.append(("reset", len(context)))

    def observe(self, context, tree, verdict, out):
        self.seen.append(("observe", len(context)))
        assert (out.hidden is not None) or not self.needs_hidden


def sizes(run):
    return [step.tree.size for step in run.trace.steps]


def assert_exact_law_of_drawn(make, prompt):
    """As `assert_exact_law`, over the draws of the draft too."""
    lm, sampling = TableLM.random(3, order=2), Sampling(temperature=1.0)

    def run(rng):
        options = {"max_new_tokens": 3, "sampling": sampling}
        steps = Run(lm, prompt, make(), rngs=(rng, rng), **options)
        assert any([step.tree.size for step in steps])
        return steps.result().tokens

    assert total_variation(enumerate_law(run), exact_law(lm, prompt, 3, sampling)) <= 1e-12


# Cascade


def test_the_second_is_asked_only_where_the_first_has_nothing():
    second = Scripted(right=2, size=2)
    drafter = Cascade(PromptLookup(num_tokens=5, min_n=3), second)
    run = generate(CYCLE, [3, 2, 1, 0], drafter, max_new_tokens=20)
    assert run.tokens == generate(CYCLE, [0], max_new_tokens=20).tokens
    assert sizes(run)[:3] == [2, 2, 4]  # 1 2 3 and 0 1 2 are made; then 0 1 2 has been seen, and 3 0 1 2 after it
    assert len(second.asked) == sum(size == 2 for size in sizes(run))
    assert 0 < len(second.asked) < len(run.trace.steps)


def test_both_observe_every_step_and_hidden_states_are_had_if_either_needs_them():
    first, second = Recorder(), Recorder(needs_hidden=True)
    drafter = Cascade(first, Cascade(PromptLookup(min_n=2), second))
    run = generate(CYCLE, [0, 1], drafter, max_new_tokens=12)
    lengths = np.cumsum([2] + [len(step.tokens) for step in run.trace.steps]).tolist()
    told = [("reset", 2)] + [("observe", length) for length in lengths[1:]]
    assert first.seen == second.seen == told
    assert drafter.needs_hidden and not Cascade(first, PromptLookup()).needs_hidden
    assert run.trace.accepted > 0


def test_match_length_is_the_firsts():
    drafter = Cascade(SuffixDecoding(min_n=2), PromptLookup(min_n=1))
    drafter.reset([1, 2, 3, 1, 2])
    assert (drafter.propose([1, 2, 3, 1, 2], WIDE, Rng(0)).size, drafter.match_len) == (2, 2)
    assert (drafter.propose([1, 2, 3, 1, 2, 2], WIDE, Rng(0)).size > 0, drafter.match_len) == (True, 0)


def cascade():
    return Cascade(PromptLookup(num_tokens=3, min_n=2), NGramDictionary(num_tokens=5))


def test_cascade_is_lossless():
    assert_exact_law(cascade, [[0, 1, 0], [1, 1, 1]])
    assert_exact_law_of_drawn(lambda: Cascade(PromptLookup(num_tokens=2, min_n=2), Drawn()), [0, 1, 0])


# Adaptive


@pytest.mark.parametrize("t", [flat, gentle, linear, lambda q: 1.0 if q == 1 else 10.0])
@pytest.mark.parametrize("right", [0, 1, 3, 8])
def test_it_finds_the_size_that_pays(right, t):
    """With ``right`` tokens always accepted, the best m is found by trying all of them."""
    drafter = Adaptive(Scripted(right), t, memory=1000)
    run = generate(CYCLE, [0], drafter, max_new_tokens=800)
    assert run.tokens == generate(CYCLE, [0], max_new_tokens=800).tokens
    rates = [(1 + min(m, right)) / t(m + 1) for m in range(9)]
    late = sizes(run)[-60:-8]
    seconds, tokens = sum(t(size + 1) for size in late), sum(1 + min(size, right) for size in late)
    assert tokens / seconds >= 0.97 * max(rates), (late, rates)
    if max(rates) == rates[0] and t is not flat:
        assert max(set(late), key=late.count) == 0


@pytest.mark.parametrize("t", [gentle, linear, lambda q: q**0.5])
def test_a_useless_drafter_costs_less_than_three_percent(t):
    """Learning included: 300 tokens that autoregressive decoding makes in 300 t(1)."""
    run = generate(CYCLE, [0], Adaptive(Scripted(right=0), t), max_new_tokens=300)
    assert 300 * t(1) / sum(t(size + 1) for size in sizes(run)) >= 0.97


def test_a_change_is_noticed_without_a_trial():
    """A lookup's drafts are judged by the tokens that come, also those that were never checked."""
    scripted = Scripted(right=0)
    drafter = Adaptive(scripted, gentle, explore=0.0)
    assert set(sizes(generate(CYCLE, [0], drafter, max_new_tokens=300))[100:]) == {0}
    scripted.right = 8
    good = sizes(generate(CYCLE, [0], drafter, max_new_tokens=300))
    assert good[0] == 0 and set(good[40:-2]) == {8} and len(good) < 80
    assert sizes(generate(CYCLE, [0], drafter, max_new_tokens=90))[:5] == [8] * 5, "kept from request to request"
    scripted.right = 0
    assert set(sizes(generate(CYCLE, [0], drafter, max_new_tokens=300))[150:]) == {0}


def costly(m):
    return 0.01 * m


def test_trials_of_a_costly_drafter_cost_their_share_and_let_it_come_back():
    scripted = Scripted(right=0)
    drafter = Adaptive(scripted, gentle, costly, explore=0.02)
    bad = sizes(generate(CYCLE, [0], drafter, max_new_tokens=600))[100:]
    spent = sum(gentle(size + 1) + costly(size) - gentle(1) for size in bad)
    assert 0 < spent <= 0.02 * len(bad) * gentle(1) + gentle(9) + costly(8)
    scripted.right = 8
    good = generate(CYCLE, [0], drafter, max_new_tokens=900).trace
    assert good.emitted / good.target_calls > 4


def test_without_trials_a_costly_drafter_never_comes_back():
    scripted = Scripted(right=0)
    drafter = Adaptive(scripted, gentle, costly, explore=0.0)
    generate(CYCLE, [0], drafter, max_new_tokens=200)
    scripted.right = 8
    assert set(sizes(generate(CYCLE, [0], drafter, max_new_tokens=100))) == {0}


def test_a_draft_is_judged_by_hand():
    """Of 0 -> {1 -> 2 -> 3, 4}, when 1, 2 and 9 come: rows 1 and 2 were right, which the third token settles."""
    rows, tree = _Rows(), DraftTree([0, 1, 2, 3, 4], [-1, 0, 1, 2, 0])
    rows.grow(tree.size)
    proposal = _Proposal(tree, rows, length=5)
    for come in ([], [1], [1, 2]):
        assert not proposal.judged([7] * 4 + [0, *come], decay=1.0)
    assert rows._tried.tolist() == [0, 0, 0, 0]
    assert proposal.judged([7] * 4 + [0, 1, 2, 9], decay=1.0)
    assert (rows._tried.tolist(), rows._accepted.tolist()) == ([1, 1, 1, 1], [1, 1, 0, 0])
    assert _Proposal(tree, rows, 1).judged([0, 4], decay=1.0), "a leaf settles it at once"
    assert rows._accepted.tolist() == [1, 1, 0, 1]
    assert _Proposal(tree, rows, 1).judged([0, 1, 2, 3, 3, 3], decay=1.0)
    assert rows._accepted.tolist() == [2, 2, 1, 1]


def test_what_a_request_did_not_settle_is_forgotten_and_little_is_open_at_once():
    drafter = Adaptive(Scripted(right=8), linear)
    generate(CYCLE, [0], drafter, max_new_tokens=60)
    assert 0 < len(drafter._unjudged) <= 8, "a draft is settled when as many tokens as it is deep have come"
    drafter.reset([0])
    assert drafter._unjudged == []


def test_match_lengths_are_learned_apart():
    """Drafts after long matches are right, after short ones wrong: only the former are made."""

    class Matching(Scripted):
        def propose(self, context, budget, rng):
            self.match_len, self.right = (9, 8) if len(self.asked) % 2 else (1, 0)
            return super().propose(context, budget, rng)

    late = sizes(generate(CYCLE, [0], Adaptive(Matching(0), gentle), max_new_tokens=900))[100:-2]
    assert np.mean(np.array(late[1::2]) == 8) > 0.9
    assert set(late[0::2]) == {0}


def test_a_dear_drafter_is_asked_for_what_pays_and_not_at_all_otherwise():
    scripted = Scripted(right=3)
    drafter = Adaptive(scripted, gentle, draft_seconds=lambda m: 0.1 * m)
    generate(CYCLE, [0], drafter, max_new_tokens=400)
    assert set(scripted.asked[-40:-8]) <= {3, 6}, "3 nodes, and now and then a trial of twice as many"
    useless = Scripted(right=0)
    run = generate(CYCLE, [0], Adaptive(useless, gentle, draft_seconds=lambda m: 0.5), max_new_tokens=300)
    assert len(useless.asked) < 0.1 * len(run.trace.steps)


def test_scratch_rows_are_kept_whole_or_dropped():
    drafter = Adaptive(Lookahead(W=3, N=3, G=2), gentle)
    whole = Lookahead(W=3, N=3, G=2)
    run = generate(TableLM.random(5, seed=1), [0, 1], drafter, max_new_tokens=150, max_nodes=whole.max_nodes)
    scratch = [step.tree for step in run.trace.steps if step.tree.size]
    assert scratch
    assert all(not tree.candidate.all() for tree in scratch)
    assert run.tokens == generate(TableLM.random(5, seed=1), [0, 1], max_new_tokens=150).tokens


def test_the_same_run_makes_the_same_choices():
    def run():
        drafter = Adaptive(SuffixDecoding(factor=2.0), gentle)
        lm, sampling = TableLM.random(4, order=2), Sampling(temperature=0.5)
        done = generate(lm, [0, 1], drafter, max_new_tokens=120, sampling=sampling, seed=3)
        return done.tokens, sizes(done)

    assert run() == run()


def adaptive():
    return Adaptive(SuffixDecoding(factor=3.0, offset=1.0, max_requests=0), gentle)


def test_adaptive_is_lossless():
    """Also over a drafter that samples: it is asked for less, and never cut."""
    assert_exact_law(adaptive, [[0, 1, 0, 1, 1], [1, 1, 1]])
    for t in (flat, gentle, linear):
        assert_exact_law_of_drawn(lambda t=t: Adaptive(Drawn(), t), [0])
    assert_exact_law_of_drawn(lambda: Adaptive(Drawn(), flat, draft_seconds=lambda m: 0.01), [1, 1])


def test_what_was_drawn_is_never_cut():
    drafter = Adaptive(Drawn(), t=lambda q: 1.0 if q == 1 else 100.0)
    run = generate(TableLM.random(3), [0], drafter, max_new_tokens=50, sampling=Sampling(temperature=1.0))
    assert sizes(run) == [1] + [0] * (len(sizes(run)) - 1), "the first is drawn before it is known to be"


@given(**SMALL_RUNS)
def test_greedy_identity(seed, vocab, order, length, prompt, max_nodes):
    for drafter in (cascade(), adaptive(), Adaptive(cascade(), linear), Cascade(adaptive(), adaptive())):
        assert_greedy_identity(drafter, seed, vocab, order, length, prompt, max_nodes)


@pytest.mark.parametrize("make", [cascade, adaptive])
def test_in_the_loop(make):
    lm, prompt = tiny_llama(), [1, 2, 3, 1, 2, 3]
    run = generate(lm, prompt, make(), max_new_tokens=60)
    assert run.tokens == generate(lm, prompt, max_new_tokens=60).tokens
    assert run.trace.accepted > 0
    assert_stops_alike(make, TableLM.random(5, order=1, seed=3), [0, 1, 2, 3])
    assert_within_budget(make, TableLM.random(3, order=2), [0, 1, 2, 0, 1])
    short, long = (tokens_read(make(), [0, 1, 2, 3] * (size // 4)) for size in (100, 10_000))
    assert short == long


def test_edges():
    assert_edges(cascade)

    class Forgetful(Adaptive):  # what Adaptive has learned changes its drafts the second time
        def reset(self, context):
            self.__init__(self.drafter, self.t)
            super().reset(context)

    assert_edges(lambda: Forgetful(PromptLookup(), gentle))


def test_row_means_by_hand():
    """Row 1 accepted in 2 of 3 drafts, row 2 tried once and rejected; hope 0.5, no decay."""
    rows = _Rows()
    rows.grow(2)
    rows.learn([1], 1, decay=1.0)
    rows.learn([1], 2, decay=1.0)
    rows.learn([], 1, decay=1.0)
    first = (2 + 0.5) / 4
    assert rows.means(2, hope=0.5) == [first, (0 + 0.5 * first) / 2]
    rows.grow(3)
    assert rows.means(3, hope=0.5)[2] == 0.5 * rows.means(3, hope=0.5)[1]
    rows.learn([1, 2, 3], 3, decay=0.5)
    assert rows._tried.tolist() == [2.5, 1.5, 1.0] and rows._accepted.tolist() == [2.0, 1.0, 1.0]


def test_by_name():
    context = context_for(TableLM.random(4))
    drafter = methods.build("cascade:first=ngram,second=jacobi", context)
    assert (drafter.name, type(drafter.first)) == ("ngram>jacobi", NGramDictionary)
    drafter = methods.build("adaptive:method=prompt_lookup,explore=0.05", context)
    assert (drafter.name, drafter.explore) == ("adaptive(prompt_lookup)", 0.05)
    assert drafter.t(1) > 0 and drafter.t(128) == pytest.approx(2 * drafter.t(64))
    drafter = methods.build("adaptive", context)
    assert (drafter.drafter.offset, SuffixDecoding().offset) == (4.0, 0.0), "longer drafts, for it to cut"
    drafter = methods.build("adaptive:method=suffix_decoding:offset=4.0>ngram", context)
    assert drafter.name == "adaptive(suffix_decoding>ngram)" and drafter.drafter.first.offset == 4.0
    with pytest.raises(SpecdecError, match="no method 'nothing'"):
        methods.build("adaptive:method=ngram>nothing", context)
    with pytest.raises(SpecdecError, match="no method 'nothing'; choose from: autoregressive"):
        methods.build("cascade:first=nothing", context)


def test_kept_costs_are_used_and_a_disturbed_time_is_smoothed():
    """t(2) cannot be more than t(4); beyond t(8), twice the rows take twice the time."""
    times = (0.010, 0.015, 0.012, 0.020)
    kept = Costs(256, 3, (1, 2, 4, 8), times, times, times)
    t = methods.build("adaptive", context_for(TableLM.random(4), costs=kept)).t
    assert [t(q) for q in (1, 2, 3, 4, 6, 8, 16)] == pytest.approx([0.010, 0.012, 0.012, 0.012, 0.016, 0.020, 0.040])


def test_room_is_asked_for_whoever_is_inside():
    whole = Lookahead(W=15, N=5, G=15)
    assert whole.max_nodes == Adaptive(whole, flat).max_nodes == Cascade(PromptLookup(), whole).max_nodes > 64


@pytest.mark.parametrize(
    "wrong", [{"t": lambda q: 0.0}, {"explore": 2.0}, {"memory": 0.5}, {"hope": -0.1}, {"hope": 1.1}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}.* must be"):
        Adaptive(PromptLookup(), **{"t": gentle, **wrong})
