"""The n-gram dictionary: counts as counted by hand, bounded, and lossless in the loop."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_free import (
    SMALL_RUNS,
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
from specdec_core.core.toy import TableLM
from specdec_core.drafters import NGramDictionary

WIDE = Budget(64, 64)


def propose(text, budget=WIDE, **options):
    drafter = NGramDictionary(**options)
    drafter.reset(text)
    tree = drafter.propose(text, budget, Rng(0))
    return drafter, [tree.tokens[tree.path_to(i)[1:]].tolist() for i in range(1, len(tree.tokens))]


def test_by_hand():
    """After ``7 8`` came 1, 2, 2, 3: so 2 (a half), then 3 and 1 (a quarter each, 3 seen last).

    Behind the 2 lies 7 both times, behind that 8: the chain 2 7 8 keeps the score 1/2 and is drawn first.
    Then 3 and 1 at 1/4 come before the second 2, which has half of 1/2 but was found later.
    """
    text = [7, 8, 1, 7, 8, 2, 7, 8, 2, 7, 8, 3, 7, 8]
    _, paths = propose(text, max_n=2, min_n=2, num_tokens=6)
    assert paths == [[2], [2, 7], [2, 7, 8], [3], [1], [2, 7, 8, 2]]


def test_backs_off_to_shorter_ngrams_only_where_the_longer_is_unknown():
    text = [5, 6, 1, 9, 6, 2, 4, 6]  # (4, 6) is new; 6 was followed by 1, then by 2
    assert propose(text, max_n=2, min_n=1, num_tokens=2)[1][:2] == [[2], [1]]
    assert propose(text, max_n=2, min_n=2)[1] == []
    # (1, 6) was followed by 2 only, though 6 alone was followed by 3 more often.
    drafter, _ = propose([1, 6, 2, 6, 3, 6, 3, 1, 6], max_n=2, min_n=1)
    assert drafter.continuations([1, 6]) == [(2, 1.0)]


@given(text=st.lists(st.integers(0, 3), max_size=60), max_n=st.integers(1, 4))
def test_counts_equal_a_rescan(text, max_n):
    drafter = NGramDictionary(max_n=max_n, min_n=1, branches=100)
    for end in range(1, len(text) + 1):  # grown token by token, as in a run
        drafter.propose(text[:end], WIDE, Rng(0))
    for n in range(max_n, 0, -1):
        gram = text[len(text) - n :]
        followers = Counter(text[i + n] for i in range(len(text) - n) if text[i : i + n] == gram)
        if followers and len(gram) == n:
            total = sum(followers.values())
            last = {token: max(i for i in range(len(text) - n) if text[i : i + n + 1] == [*gram, token])
                    for token in followers}  # fmt: skip
            expected = sorted(followers, key=lambda token: (-followers[token], -last[token]))
            assert drafter.continuations(text) == [(token, followers[token] / total) for token in expected]
            return
    assert drafter.continuations(text) == []


def test_bounded_in_keys_and_in_branches():
    drafter = NGramDictionary(max_n=1, min_n=1, max_keys=10, branches=3)
    drafter.propose([*range(100), 99, 3], WIDE, Rng(0))
    assert drafter.keys == 10
    assert drafter.continuations([50]) == []  # not seen for long
    assert drafter.continuations([98]) == [(99, 1.0)]

    drafter.reset([])
    drafter.propose([50, *(token for other in range(30) for token in (60 + other, 50))], WIDE, Rng(0))
    assert drafter.keys == 10
    assert drafter.continuations([50])[0] == (89, 1 / 3)  # old, but used all the time; 3 branches of 1 each

    # 0 was followed by 1 twice, then by 2, 3, 4, 5 once each: the 1 stays, the oldest others go.
    drafter.reset([])
    drafter.propose([0, 1, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0], WIDE, Rng(0))
    assert [token for token, _ in drafter.continuations([0])] == [1, 5, 4]


def test_a_thousand_requests_leave_nothing_behind():
    drafter = NGramDictionary(max_n=2, max_keys=50)
    for request in range(1000):
        drafter.reset([])
        drafter.propose([request, request + 1, request, request + 1], WIDE, Rng(0))
    assert drafter.keys == 4


def test_a_hundred_equal_continuations_under_64_nodes():
    text = [token for follower in range(1, 101) for token in (0, follower)] + [0]
    drafter, paths = propose(text, budget=Budget(64, 1), num_tokens=1000, branches=100, max_n=1)
    assert paths == [[follower] for follower in range(100, 36, -1)]
    assert {share for _, share in drafter.continuations([0])} == {0.01}


def test_no_repeated_ngram_no_draft():
    assert propose([1, 2, 3, 4])[1] == []
    assert propose([1])[1] == []


def test_reading_does_not_grow_with_the_history():
    histories = [[i % 7 + i % 3 for i in range(length)] for length in (1_000, 10_000)]
    read = [tokens_read(NGramDictionary(), history) for history in histories]
    assert read[0] == read[1] < 100


def test_refuses_impossible_settings():
    for name, value in [("num_tokens", 0), ("min_n", 0), ("branches", 0), ("max_keys", 0), ("min_n", 4)]:
        with pytest.raises(ValueError, match=f"{name} must be .*; got {value}"):
            NGramDictionary(**{name: value})


@settings(max_examples=40, deadline=None)
@given(**SMALL_RUNS)
def test_greedy_identity(**run):
    assert_greedy_identity(NGramDictionary(), **run)


def test_greedy_identity_on_a_llama():
    lm = tiny_llama()
    run = generate(lm, [1, 2, 3], NGramDictionary(), max_new_tokens=60)
    assert run.tokens == generate(lm, [1, 2, 3], max_new_tokens=60).tokens
    assert run.trace.accepted > 0


def test_law_is_the_targets():
    assert_exact_law(lambda: NGramDictionary(num_tokens=5, max_n=2), [[0, 1, 0, 2, 0], [1, 2, 1, 2]])


def test_stops_edges_and_budgets():
    def make():
        return NGramDictionary(num_tokens=6)

    lm = TableLM.random(5, order=2, seed=3)
    assert_stops_alike(make, lm, [0, 1, 2])
    assert_edges(make)
    assert_within_budget(make, lm, [0, 1, 0, 1])
