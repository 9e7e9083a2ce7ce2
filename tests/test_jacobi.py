"""Jacobi decoding: the trajectory is Algorithm 1's, at most m rounds long; its right prefix only grows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_free import (
    SMALL_RUNS,
    FullContextLM,
    assert_edges,
    assert_exact_law,
    assert_greedy_identity,
    assert_stops_alike,
    assert_within_budget,
    tiny_llama,
    tokens_read,
)

from specdec_core.core.contract import Budget
from specdec_core.core.engine import generate
from specdec_core.core.rng import Rng
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.drafters import Jacobi


def algorithm_1(lm, prompt, y):
    """Jacobi iteration as the paper writes it: y_i becomes argmax p(. | prompt, last round's y_<i).

    Returns all rounds, the first guess included, up to the first that changes nothing.
    """
    rounds = [list(y)]
    while True:
        y = rounds[-1]
        rounds.append([int(np.argmax(lm.row([*prompt, *y[:i]]))) for i in range(len(y))])
        if rounds[-1] == y:
            return rounds[:-1]


def states(run, drafter, prompt, m):
    """What the drafter's trajectory says y_1 ... y_m was in every round: committed tokens, then the guess."""
    committed = [run.tokens[: done.context_length - len(prompt)] for done in drafter.trajectory]
    return [[*tokens, *done.guess][:m] for tokens, done in zip(committed, drafter.trajectory, strict=True)]


def right_prefix(y, answer):
    return next((i for i, (a, b) in enumerate(zip(y, answer, strict=True)) if a != b), len(answer))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), full=st.booleans(), m=st.integers(1, 9), data=st.data())
def test_trajectory_is_algorithm_1(seed, full, m, data):
    lm = FullContextLM(3, seed) if full else TableLM.random(4, order=1, seed=seed)
    token = st.integers(0, lm.vocab_size - 1)
    prompt = data.draw(st.lists(token, min_size=1, max_size=3))
    guess = data.draw(st.lists(token, min_size=m, max_size=m))
    drafter = Jacobi(m, init=guess)
    run = generate(lm, prompt, drafter, max_new_tokens=m)

    assert run.tokens == generate(lm, prompt, max_new_tokens=m).tokens
    assert run.trace.target_calls <= m
    expected = algorithm_1(lm, prompt, guess)
    assert expected[-1] == list(run.tokens)
    mine = states(run, drafter, prompt, m)
    assert mine == expected[: len(mine)]
    # A forward also emits the token after what it accepts, so the last round of Algorithm 1 may be left out.
    assert len(expected) - len(mine) in (0, 1)
    grown = [right_prefix(y, run.tokens) for y in expected]
    assert all(a < b for a, b in zip(grown, grown[1:], strict=False))


@pytest.mark.parametrize("init", ["random", "repeat", [3, 1, 4]])
def test_at_most_m_rounds_on_a_llama(init):
    longest = []
    for seed in range(3):
        lm = tiny_llama(seed=seed)
        for m in (1, 4, 16):
            drafter = Jacobi(m, init)
            run = generate(lm, [1, 2, 3], drafter, max_new_tokens=m)
            assert run.tokens == generate(lm, [1, 2, 3], max_new_tokens=m).tokens
            assert len(drafter.trajectory) == run.trace.target_calls <= m
            grown = [right_prefix(y, run.tokens) for y in states(run, drafter, [1, 2, 3], m)]
            assert all(a < b for a, b in zip(grown, grown[1:], strict=False))
        longest.append(run.trace.target_calls)
    assert min(longest) < 16  # some right tokens came early; on one of these models none does


def test_the_two_gram_between_rounds():
    """y^0 = (on, a, rug) after "sat"; one round gives (on, the, mat).

    The pairs (y_{i-1} of round 0, y_i of round 1) are (sat, on), (on, the), (a, mat), (rug, on). The pair
    (the, mat) is not among them: both its tokens are of round 1, and "mat" was chosen after "a".
    """
    sat, on, the, mat, a, rug = range(6)
    table = np.zeros((6, 6))
    for before, after in [(sat, on), (on, the), (a, mat), (rug, on), (the, rug), (mat, on)]:
        table[before, after] = 1.0
    drafter = Jacobi(3, init=[on, a, rug])
    generate(TableLM(table), [sat], drafter, max_new_tokens=1)
    (first,) = drafter.trajectory
    assert first == (1, (on, a, rug), (on, the, mat, on))
    pairs = list(zip([sat, *first.guess], first.argmax, strict=True))
    assert pairs == [(sat, on), (on, the), (a, mat), (rug, on)]
    assert (the, mat) not in pairs


def test_a_long_guess_is_checked_whole():
    run = generate(TableLM.random(4), [0], Jacobi(100), max_new_tokens=1)
    assert run.trace.steps[0].tree.size == 100


def test_first_guesses():
    def guess(context, **options):
        drafter = Jacobi(**options)
        drafter.reset(context)
        return drafter.propose(context, Budget(64, 64), Rng(0)).tokens[1:].tolist()

    assert guess([5, 6], m=3, init="repeat") == [6, 6, 6]
    assert guess([5, 6], m=5, init=[1, 2]) == [1, 2, 1, 2, 1]
    drawn = guess([5, 6, 7], m=200, init="random")[:64]
    assert set(drawn) == {5, 6, 7}
    assert guess([5, 6, 7], m=200, init="random")[:64] == drawn


def test_given_tokens_stay_at_their_positions():
    """Fresh places at the right go on with the given tokens where they stopped, not from the first again.

    The target counts 0 1 2 ... It takes the 1 of (1, 5) and corrects the 5 to 2; behind the 5 it said 6.
    The 6 stands at the third new position then, and the fresh fourth one gets the fourth token given.
    """
    counting = TableLM(np.eye(10)[[*range(1, 10), 0]])
    drafter = Jacobi(2, init=[1, 5, 3, 8, 4])
    generate(counting, [0], drafter, max_new_tokens=3)
    assert drafter.trajectory == [(1, (1, 5), (1, 2, 6)), (3, (6, 8), (3, 7, 9))]

    lm = TableLM(np.eye(3)[[1, 2, 0]])  # 0 1 2 0 1 2 ...
    drafter = Jacobi(2, init=[1, 2, 0, 1, 2, 0])  # the right continuation of 0
    run = generate(lm, [0], drafter, max_new_tokens=6)
    assert [done.guess for done in drafter.trajectory] == [(1, 2), (1, 2)]
    assert run.trace.target_calls == 2


def test_reset_forgets_the_trajectory():
    drafter, lm = Jacobi(3), TableLM.random(4, seed=1)
    first = generate(lm, [1, 2], drafter, max_new_tokens=9)
    rounds = list(drafter.trajectory)
    assert len(rounds) == first.trace.target_calls
    assert generate(lm, [1, 2], drafter, max_new_tokens=9).tokens == first.tokens
    assert drafter.trajectory == rounds


def test_sampled_runs_keep_guessing_by_argmax():
    lm, drafter = FullContextLM(4, seed=2), Jacobi(4)
    prompt = [1, 2]
    run = generate(lm, prompt, drafter, max_new_tokens=12, sampling=Sampling(temperature=1.0), seed=3)
    tokens = prompt + list(run.tokens)
    for done in drafter.trajectory:
        before = tokens[: done.context_length]
        assert done.argmax == tuple(
            int(lm.row([*before, *done.guess[:d]]).argmax()) for d in range(len(done.guess) + 1)
        )


def test_refuses_impossible_settings():
    for options in ({"m": 0}, {"init": "ones"}, {"init": []}):
        with pytest.raises(ValueError, match="got"):
            Jacobi(**options)


def test_reading_does_not_grow_with_the_history():
    read = [tokens_read(Jacobi(8, "repeat"), [i % 7 for i in range(length)]) for length in (1_000, 10_000)]
    assert read[0] == read[1] < 20


@settings(max_examples=40, deadline=None)
@given(**SMALL_RUNS, m=st.integers(1, 9), init=st.sampled_from(["random", "repeat", (1, 0)]))
def test_greedy_identity(m, init, **run):
    assert_greedy_identity(Jacobi(m, init), **run)


def test_law_is_the_targets():
    for init in ("random", "repeat", [0, 1, 2]):
        assert_exact_law(lambda init=init: Jacobi(3, init), [[0], [1, 2, 0]])


def test_stops_edges_and_budgets():
    def make():
        return Jacobi(5)

    lm = TableLM.random(5, order=1, seed=3)
    assert_stops_alike(make, lm, [0, 1, 2])
    assert_edges(make)
    assert_within_budget(make, lm, [0, 1, 0, 1])
