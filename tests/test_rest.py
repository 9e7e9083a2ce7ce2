"""REST: the tree is the most frequent prefixes as counted one by one, and lossless in the loop."""

from __future__ import annotations

from collections import Counter

import numpy as np
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
from specdec_core.drafters import REST, methods
from specdec_core.drafters.rest import frequent_prefixes
from specdec_core.stores import DatastoreError, SuffixStore, TokenizerId
from specdec_core.stores.build import build_store

WIDE = Budget(64, 64)


def store_for(vocab_size, size=300, seed=0):
    """Random text: of a small vocabulary it holds every short string, so that every suffix is found."""
    rng = np.random.default_rng(seed)
    return SuffixStore.in_memory([rng.integers(0, vocab_size, size).tolist() for _ in range(3)], vocab_size)


def paths(tree):
    """The prefixes that a tree holds, in the order of its rows."""
    return [tuple(tree.tokens[tree.path_to(row)[1:]].tolist()) for row in range(1, len(tree.tokens))]


def test_by_hand():
    """After 1 2: 3 4 twice, 3 5 once, 6 once, and once the document ends.

    Weights: 3 three times, 3 4 twice, then at weight 1 the shorter first: 6, then 3 5, then 3 4 9.
    """
    documents = [[1, 2, 3, 4, 9], [1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6], [8, 1, 2]]
    drafter = REST(SuffixStore.in_memory(documents, 10))
    tree = drafter.propose([0, 1, 2], WIDE, Rng(0))
    assert paths(tree) == [(3,), (3, 4), (6,), (3, 5), (3, 4, 9)]
    assert drafter.match_len == 2
    assert drafter.propose([0, 0, 5], WIDE, Rng(0)).size == 0, "5 alone is shorter than min_n"
    assert drafter.match_len == 0


def test_the_longest_match_wins_over_a_more_frequent_one():
    drafter = REST(SuffixStore.in_memory([[5, 1, 2, 3], [1, 2, 4], [1, 2, 4]], 10))
    assert paths(drafter.propose([5, 1, 2], WIDE, Rng(0))) == [(3,)]
    assert drafter.match_len == 3
    assert paths(drafter.propose([6, 1, 2], WIDE, Rng(0))) == [(4,), (3,)]


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=20),
    st.integers(1, 5), st.integers(1, 12),
)  # fmt: skip
@settings(max_examples=100)
def test_prefixes_equal_a_count_of_all(rows, depth, nodes):
    rows = sorted((row[:depth] for row in rows), key=lambda row: [*row, 9][:depth])
    ids = np.array([[*row, *[9] * depth][:depth] for row in rows])
    tokens, parents, weights = frequent_prefixes(ids, np.array([len(row) for row in rows]), nodes)

    counts = Counter(tuple(row[:n]) for row in rows for n in range(1, len(row) + 1))
    ranked = sorted(counts, key=lambda prefix: (-counts[prefix], len(prefix), prefix))[:nodes]
    made = [()]
    for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
        assert parent < len(made), "a parent comes before its child"
        made.append((*made[parent], token))
    assert made[1:] == ranked
    assert weights.tolist() == [counts[prefix] for prefix in ranked]


@pytest.mark.parametrize("size", [1, 10])
def test_a_hundred_continuations_of_equal_frequency_under_64_nodes(size):
    """All weigh 1: the first tokens of the first 64 in token order, whatever the continuations' length."""
    documents = [[7, 8, 100 + i, *range(200, 200 + size - 1)] for i in reversed(range(100))]
    drafter = REST(SuffixStore.in_memory(documents, 300), nodes=64)
    trees = [drafter.propose([7, 8], Budget(64, 64), Rng(seed)) for seed in range(3)]
    for tree in trees:
        assert tree.parents.tolist() == [-1] + [0] * 64
        assert tree.tokens.tolist() == [8, *range(100, 164)]
    whole = REST(SuffixStore.in_memory(documents, 300), nodes=10**4).propose([7, 8], Budget(2000, 64), Rng(0))
    assert whole.size == 100 * size


def test_continuations_end_before_an_id_that_the_target_lacks():
    """Either vocabulary may be the larger one: the tokenizer's, or the padded one of the model."""
    store = SuffixStore.in_memory([[1, 1, 2, 5, 1], [1, 1, 7, 2]], vocab_size=8)
    assert paths(REST(store, vocab_size=5).propose([1, 1], WIDE, Rng(0))) == [(2,)]
    assert paths(REST(store, vocab_size=50_000).propose([1, 1], WIDE, Rng(0)))[:2] == [(2,), (7,)]
    lm = TableLM.random(5, order=2)
    drafted = generate(lm, [1, 1], REST(store, vocab_size=5), max_new_tokens=20)
    assert drafted.tokens == generate(lm, [1, 1], max_new_tokens=20).tokens


def test_a_large_vocabulary():
    store = SuffixStore.in_memory([[70_000, 150_000, 65_536, 65_535, 0]], vocab_size=151_936)
    tree = REST(store).propose([70_000, 150_000], WIDE, Rng(0))
    assert tree.tokens.tolist() == [150_000, 65_536, 65_535, 0]


@given(**SMALL_RUNS)
def test_greedy_identity(seed, vocab, order, length, prompt, max_nodes):
    drafter = REST(store_for(vocab), min_n=1, nodes=40)
    assert_greedy_identity(drafter, seed, vocab, order, length, prompt, max_nodes)


def test_greedy_identity_on_a_llama():
    lm, prompt = tiny_llama(), [1, 2, 3, 1, 2, 3]
    plain = generate(lm, prompt, max_new_tokens=60).tokens
    store = SuffixStore.in_memory([prompt + list(plain[:30]), list(plain[20:50])], lm.vocab_size)
    for nodes in (1, 16, 63):
        run = generate(lm, prompt, REST(store, nodes=nodes), max_new_tokens=60)
        assert run.tokens == plain
        assert run.trace.accepted > 0


def test_exact_law():
    """Trees with shared prefixes, several nodes deep, at every step."""
    store = store_for(3, size=40)
    prompts = [[0], [0, 1, 2], [1, 1]]
    trees = [REST(store, min_n=1, nodes=7, depth=3).propose(prompt, WIDE, Rng(0)) for prompt in prompts]
    assert all(len(tree.children(0)) > 1 and tree.depths.max() > 1 for tree in trees)
    assert_exact_law(lambda: REST(store, min_n=1, nodes=7, depth=3), prompts)


def test_stops_and_limits():
    lm = TableLM.random(5, order=1, seed=3)
    text = generate(lm, [0, 1], max_new_tokens=40).tokens
    store = SuffixStore.in_memory([list(text)], 5)
    assert_stops_alike(lambda: REST(store, min_n=1), lm, [0, 1])


def test_edges():
    assert_edges(lambda: REST(store_for(4)))
    assert_edges(lambda: REST(SuffixStore.in_memory([[3, 3]], 4)))  # hardly ever a match


def test_within_budget():
    assert_within_budget(lambda: REST(store_for(3), min_n=1, nodes=63), TableLM.random(3, order=2), [0, 1, 2])


def test_a_lookup_reads_the_end_of_the_history_only():
    store = store_for(4)
    short, long = (tokens_read(REST(store), [0, 1, 2, 3] * (size // 4)) for size in (100, 10_000))
    assert short == long


@pytest.mark.parametrize("wrong", [{"max_n": 1}, {"min_n": 0}, {"nodes": 0}, {"depth": 0}, {"matches": 0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="must be (at least 1|from 1 to 1)"):
        REST(store_for(3), **wrong)


def test_by_name_it_opens_the_store_for_the_models_tokenizer(tmp_path):
    class Tokenizer:
        name_or_path = "somewhere/mine"

        def get_vocab(self):
            return {"a": 0, "b": 1}

    build_store(tmp_path / "s", [[0, 1, 1]], 2, TokenizerId("other", "f" * 64))
    context = methods.Context(TableLM.random(2), tokenizer=Tokenizer())
    with pytest.raises(DatastoreError, match="'other'.*'mine'"):
        methods.build(f"rest:store={tmp_path / 's'}", context)
    build_store(tmp_path / "s", [[0, 1, 1]], 2)
    drafter = methods.build(f"rest:store={tmp_path / 's'},nodes=3", context)
    assert (drafter.nodes, drafter.vocab_size) == (3, 2)
    assert methods.settings("rest:nodes=3")["store"] == "code"
