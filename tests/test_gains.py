"""What is expected and what was measured, worked by hand; and how time is divided among passes."""

import numpy as np
import pytest
from handmade import answer, done, race, step
from hypothesis import given
from hypothesis import strategies as st
from shipped import SHIPPED

from specdec_core import theory
from specdec_core.core.engine import generate
from specdec_core.core.toy import TableLM
from specdec_core.core.trace import Steps, Trace
from specdec_core.drafters import PromptLookup, methods
from specdec_core.drafters.methods import BASELINE
from specdec_core.measure.costs import Costs
from specdec_core.race import Question, gains, halving
from specdec_core.race.gains import Gain
from specdec_core.race.halving import Pace, Search, fit, variants
from specdec_core.race.results import Race
from specdec_core.race.rounds import Answer, Round

FLAT = Costs(0, 1, (1, 128), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
STEEP = Costs(0, 1, (1, 128), (1.0, 128.0), (1.0, 128.0), (1.0, 128.0))


# Counting steps


def test_steps_by_hand():
    chain = step((5, 6, 7), accepted=(1, 2))
    # Rows 1 and 2 are scratch; 3 and 4 hang from the root, 5 from 4: two deep.
    tree = step((5, 6, 7, 8, 9), parents=[-1, 0, 1, 0, 0, 4], scratch=(1, 2), accepted=(4,))
    window = step((5, 6), parents=[-1, 0, 1], scratch=(1, 2))  # no candidate: a miss, though it has three rows
    found = Steps.of([Trace("m", 1, 0.0, [chain, tree]), Trace("m", 1, 0.0, [window, step()])])
    assert (found.hits, found.misses, found.accepted, found.tokens) == (2, 2, 3, 7)
    assert (found.hit_rows, found.miss_rows) == ({4: 1, 6: 1}, {1: 1, 3: 1})
    assert (found.hit_rate, found.accepted_per_hit, found.depth) == (0.5, 1.5, 2.5)
    assert found.seconds["forward"] == pytest.approx(10e-6) and found.other_seconds == pytest.approx(10e-6)
    assert found.draft_seconds == pytest.approx(5e-6)
    assert found.by_depth == ((2, 2), (1, 2), (0, 1)) and found.alphas == [1.0, 0.5, 0.0]


def test_depths_of_several_runs_are_added():
    short, long = (Trace("m", 1, 0.0, [step((5, 6), accepted)]) for accepted in ((), (1, 2)))
    assert Steps.of([short, long, short]).by_depth == ((1, 3), (1, 1))


def test_steps_are_those_of_the_trace():
    lm = TableLM(np.eye(6)[[1, 2, 0, 4, 5, 3]])  # 0 1 2 0 1 2 ...
    trace = generate(lm, [0, 1, 2, 0], PromptLookup(num_tokens=3, min_n=2), max_new_tokens=11).trace
    found = Steps.of([trace])
    assert found.hit_rate == trace.hit_rate > 0
    assert found.accepted == trace.accepted > 0
    assert found.hits + found.misses == trace.target_calls
    assert found.tokens_per_call == trace.tokens_per_call


def test_a_peer_has_no_steps():
    with pytest.raises(ValueError, match="no step to count"):
        Race(("m",), [Round("q", "t", 0, 0, (1,), {"m": Answer((1,), 1.0, 1, 0)})]).steps("m")


# What is expected

PLAIN = Steps({}, {1: 100}, 100, seconds={"verify": 0.02, "forward": 1.0})


@given(
    st.integers(1, 100),
    st.integers(0, 100),
    st.floats(0, 3),
    st.integers(2, 8),
    st.floats(1, 3),
    st.floats(0, 0.5),
)
def test_break_even_figures_are_where_the_expected_speedup_is_one(hits, misses, per_hit, rows, t_hit, other):
    accepted = round(per_hit * hits)
    method = Steps(
        {rows: hits},
        {1: misses} if misses else {},
        hits + misses + accepted,
        accepted,
        depth=rows - 1.0,
        seconds={"draft": other, "forward": 1.0},
    )
    found = gains.predict(method, PLAIN, {1: 1.0, rows: t_hit}.__getitem__)
    times = (found.t_hit, found.t_miss, found.t_1, found.t_draft)
    coverage, accepted = method.hit_rate, method.accepted_per_hit
    assert found.speedup == theory.hit_rate_speedup(coverage, accepted, *times)
    assert found.t_1 == 1.02
    assert theory.hit_rate_speedup(coverage, found.least_accepted, *times) >= 1 - 1e-9
    if found.least_accepted > 0:
        assert theory.hit_rate_speedup(coverage, found.least_accepted, *times) == pytest.approx(1)
    if 0 < found.least_hit_rate <= 1:
        assert theory.hit_rate_speedup(found.least_hit_rate, accepted, *times) == pytest.approx(1)
    if found.least_accepted <= rows - 1:
        assert theory.expected_accepted(found.least_alpha, rows - 1) == pytest.approx(
            found.least_accepted, abs=1e-6
        )
    else:
        assert found.least_alpha == float("inf")


def test_a_method_that_always_drafts_is_the_measured_speedup_formula():
    method = Steps({9: 50}, {}, 110, 60, depth=8.0, seconds={"draft": 0.1, "forward": 1.0})
    found = gains.predict(method, PLAIN, {1: 1.0, 9: 1.7}.__getitem__)
    assert found.speedup == pytest.approx(theory.speedup_measured(2.2, 1.7, 0.1, 1.02))


def test_nothing_is_expected_where_nothing_is_known():
    with pytest.raises(ValueError, match="measured for q = 1 ... 128"):
        gains.predict(Steps({200: 1}, {}, 2, 1), PLAIN, FLAT.t)
    with pytest.raises(ValueError, match="never drafted"):
        gains.predict(PLAIN, PLAIN, FLAT.t)


def test_the_best_length_leaves_out_depths_that_were_hardly_tested():
    counted = Steps({4: 9}, {}, 18, by_depth=((9, 9), (8, 8), (4, 4)))
    assert gains.best_length(counted, FLAT) == 2
    assert gains.best_length(Steps({4: 9}, {}, 10, by_depth=((1, 9),)), STEEP) == 0


# What was measured


def test_the_spread_is_over_repeats_or_else_over_questions():
    assert gains.measure(race({"m": [0.5, 0.4, 0.8]}), "m") == Gain(2.0, 1.25, 2.5, 3, "repeats")
    once = gains.measure(race({"m": [0.5]}, questions=3), "m")
    assert once == Gain(2.0, 2.0, 2.0, 3, "questions")


def test_a_question_is_one_value_however_many_turns_it_has():
    made = race({"m": [0.5]}, questions=2)
    turn = made.rounds[0]
    slow = {BASELINE: turn.answers[BASELINE], "m": answer(1.5, [step((5,), (1,))] * 2)}
    made.rounds.append(Round(turn.question, "t", 1, 0, (1,), slow))
    assert gains.by_question(made, "m") == [1.0, 2.0]


@pytest.mark.parametrize(
    "gain, certain",
    [
        (Gain(1.3, 1.25, 1.38, 3), True),
        (Gain(1.3, 1.12, 1.38, 3), False),  # 1.12 is less than half the width of 0.26 above 1
        (Gain(1.02, 1.01, 1.06, 9), False),
        (Gain(0.9, 0.89, 0.91, 9), False),
        (Gain(2.0, 1.9, 2.1, 2), False),  # too few to have a spread
        (Gain(2.0, 1.01, 4.0, 5, "questions"), True),
        (Gain(2.0, 0.99, 4.0, 9, "questions"), False),
        (Gain(1.8, 1.7, 1.9, 3, "questions"), True),
        (Gain(2.0, 1.4, 2.5, 4, "questions"), False),  # too few to go by their signs
    ],
)
def test_a_gain_is_certain_only_beyond_its_spread(gain, certain):
    assert gain.certain is certain


# Dividing the time


@given(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=12),
    st.integers(1, 8),
    st.integers(1, 300),
    st.floats(0, 500),
)
def test_what_fits_is_within_the_time_and_nothing_longer_would_have_done(each, want, longest, budget):
    def total(n, tokens):
        return sum(each[i] * tokens for i in range(n))

    found = fit(len(each), want, longest, budget, lambda i, tokens: each[i] * tokens)
    shortest = longest
    while shortest // 2 >= halving.SHORTEST:
        shortest //= 2
    if found is None:
        assert total(1, shortest) > budget
        return
    n, tokens = found
    assert total(n, tokens) <= budget * (1 + 1e-9)
    assert n == len(each) or total(n + 1, tokens) > budget * (1 - 1e-9)
    if n < min(want, len(each)):  # then not even the shortest answers left room for more questions
        assert total(n + 1, shortest) > budget * (1 - 1e-9)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in (BASELINE, "draft_model")])
def test_variants_can_be_made_and_are_no_defaults(name):
    counted = Steps({4: 9}, {}, 18, by_depth=((8, 9), (6, 8), (4, 6)))
    made = variants(name, counted, FLAT)
    assert methods.check(made) == [BASELINE, *made] and made
    assert all(methods.settings(variant) != methods.settings(name) for variant in made)
    assert variants(made[0], counted, FLAT) == []  # settings that somebody gave stay as they are


def search(questions=4, passes=(), longest=64, costs=FLAT):
    asked = [Question(str(i), "ab"[i % 2], ("Hi",)) for i in range(questions)]
    pace = Pace(prefill=0.0, token=1.0, slack=1.0)
    return Search(asked, {q.id: (10, 1) for q in asked}, longest, costs, pace, list(passes))


def test_the_better_half_goes_on_with_variants_and_then_the_best_two():
    first = done({"prompt_lookup": [0.5], "ngram": [0.6], "jacobi": [0.9]})
    names = search(passes=[first]).contestants(2, ["a"])
    assert names[:2] == ["prompt_lookup", "ngram"]
    # Variants take turns, the better method's first. Depth 1 was always accepted, depth 2 never, but twice
    # only.
    assert names[2:4] == ["prompt_lookup:num_tokens=1", "ngram:num_tokens=1"]
    assert not [name for name in names if name.startswith("jacobi")] and len(names) <= halving.MOST
    second = done({name: [1.0 + i] for i, name in enumerate(reversed(names))})
    assert search(passes=[first, second]).contestants(3, ["a"]) == names[:-3:-1]
    assert search().contestants(1, ["a", "b"]) == ["a", "b"]


def test_a_pass_is_planned_by_what_is_left():
    made = search()
    # A token takes 1 s by the baseline and 1.5 s by an unknown method: 20 s to warm up with 8 tokens, 160 s
    # for an answer of 64. A quarter of 1360 s has room for two of these, and there are two tasks.
    questions, tokens, repeats = made.plan(1, ["m"], 1360.0)
    assert ([q.id for q in questions], tokens, repeats) == (["0", "1"], 64, 1)
    assert made.least(["m"]) == 20 + 40
    assert made.plan(1, ["m"], 61.0) == (
        made.questions[:1],
        16,
        1,
    )  # more than its share, but there must be one
    assert made.plan(1, ["m"], 59.0) is None and made.plan(2, ["m"], 61.0) is None
    questions, tokens, repeats = made.plan(3, ["m"], 1e9)
    assert (len(questions), tokens, repeats) == (4, 64, 9)
    assert made.plan(3, ["m"], (20 + 3 * 2 * 40) / 0.95 + 1)[1:] == (16, 3)
    assert made.plan(3, ["m"], (20 + 2 * 40) / 0.95 + 1) is None  # less than three repeats have no spread


def test_the_pace_is_learned():
    made = search()
    made.keep(done({"m": [8.0]}, plain=16.0))  # 4 tokens in 16 s: four times slower than thought
    assert made.pace.slowness["m"] == 0.5
    assert made.pace.slack == pytest.approx(1.1 * 24 / 6)
