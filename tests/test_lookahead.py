"""Lookahead decoding: the figure's mask, a slow reference of the window, the pool, and losslessness."""

from __future__ import annotations

import warnings

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
from specdec_core.core.engine import generate, stream
from specdec_core.core.rng import Rng
from specdec_core.core.rules import Greedy, verify
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import Lookahead
from specdec_core.model.invariance import Shape

# Figure 2(b) of arXiv:2402.02057 for W = 5, N = 4, G = 2. Rows see columns. The tokens in the figure's order:
# blue 0, orange 1-4 | green 1-5 | red 2-6 | first candidate 1-3 | second candidate 1-3.
# Each row is written from the definition: a token sees exactly the sequence that it continues, and itself.
# Orange i continues 0 1 ... i-1. Green i was made by the round after orange, so it continues 0 and orange
# 1 ... i-1; red i continues what green i-1 continued, and green i-1. A candidate continues 0.
FIGURE_2B = """
    1.... ..... ..... ... ...
    11... ..... ..... ... ...
    111.. ..... ..... ... ...
    1111. ..... ..... ... ...
    11111 ..... ..... ... ...
    1.... 1.... ..... ... ...
    11... .1... ..... ... ...
    111.. ..1.. ..... ... ...
    1111. ...1. ..... ... ...
    11111 ....1 ..... ... ...
    1.... 1.... 1.... ... ...
    11... .1... .1... ... ...
    111.. ..1.. ..1.. ... ...
    1111. ...1. ...1. ... ...
    11111 ....1 ....1 ... ...
    1.... ..... ..... 1.. ...
    1.... ..... ..... 11. ...
    1.... ..... ..... 111 ...
    1.... ..... ..... ... 1..
    1.... ..... ..... ... 11.
    1.... ..... ..... ... 111
"""
POSITIONS_2B = [0, 1, 2, 3, 4, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 1, 2, 3, 1, 2, 3]


def full_step(W, N, G, vocab_size=200):
    """The tree of a step whose window is full and whose pool holds G candidates with nothing in common."""
    drafter, lm = Lookahead(W, N, G), FullContextLM(vocab_size)
    run = iter(stream(lm, [1, 2, 3], drafter, max_nodes=drafter.max_nodes))
    for _ in range(N):
        next(run)
    context = [1, 2, 3, 4]
    drafter.pool = {4: {tuple(range(10 * g, 10 * g + N - 1)): None for g in range(G)}}
    return drafter.propose(context, Budget(drafter.max_nodes, 99), Rng(0))


def test_mask_is_figure_2b():
    rows = FIGURE_2B.strip().splitlines()
    expected = np.array([[mark == "1" for mark in row if mark != " "] for row in rows])
    tree = full_step(W=5, N=4, G=2)
    assert expected.shape == (21, 21)
    assert tree.ancestors.tolist() == expected.tolist()
    assert tree.depths.tolist() == POSITIONS_2B
    assert tree.candidate.tolist() == [True] + [False] * 14 + [True] * 6


def test_the_notes_wording_of_the_mask_is_not_the_figure():
    """ "Sees every token with a larger number" is backwards, and turned round it is still too much."""
    mask, position = full_step(W=5, N=4, G=2).ancestors, np.array(POSITIONS_2B)
    window = np.arange(21) < 15
    red_6 = 14
    seen = [(int(position[j]), j // 5) for j in np.flatnonzero(mask[red_6]) if j != red_6]
    assert seen == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 1)]  # blue 0, orange 1-4, green 5
    assert not (mask & (position[None] > position[:, None])).any()
    smaller = window & (position < 6)
    assert smaller.sum() == 14 and len(seen) == 6  # green 4, for one, has a smaller number and is not seen


@pytest.mark.parametrize("W, N, rows", [(15, 5, 120), (10, 5, 80), (7, 5, 56), (1, 10, 18), (3, 2, 6)])
def test_rows_of_a_full_step(W, N, rows):
    tree = full_step(W, N, W)
    assert len(tree.tokens) == (W + W) * (N - 1) == rows
    assert (~tree.candidate).sum() == W * (N - 1) - 1  # the root is a row of the window


class SlowWindow:
    """The window by definition: for every round that is kept, the token at each relative position.

    ``rounds[j][r]`` is the token of the j-th oldest round at position r after the current input token; a full
    round holds positions j ... j + W - 1. The model is asked for one token after another, each time with the
    whole text that precedes it.
    """

    def __init__(self, W, N, lm, slide):
        self.W, self.N, self.lm, self.slide = W, N, lm, slide
        self.rounds = [{}]

    def check(self, context, tree):
        """Compare with the proposed tree; places that are free to be random are taken over from it."""
        width = self.W + self.N - 1 - len(self.rounds)
        scratch = [int(token) for token in tree.tokens[: 1 + int((~tree.candidate).sum())]]
        assert len(scratch) == width * len(self.rounds)
        for j, known in enumerate(self.rounds):
            for i in range(width):
                token = scratch[j * width + i]
                if (j, i) == (0, 0):
                    assert token == context[-1]
                elif i + j in known:
                    assert token == known[i + j]
                else:
                    known[i + j] = token
        self.width, self.context = width, list(context)

    def advance(self, accepted):
        """One Jacobi round; returns the n-grams it completes, oldest round first."""
        made, grams = {}, []
        for i in range(self.width):
            level_0 = [self.context[-1]] + [self.rounds[0][r] for r in range(1, i + 1)]
            column = [self.rounds[j][i + j] for j in range(1, len(self.rounds))]
            text = self.context[:-1] + level_0 + column
            made[i + len(self.rounds)] = int(np.argmax(self.lm.row(text)))
            grams.append((level_0[-1], *column, made[i + len(self.rounds)]))
        full = len(self.rounds) == self.N - 1
        self.rounds = [*self.rounds[full:], made]
        # Positions count from the input token, which moves on; a token left of its round's reach is lost.
        shift = 1 + (accepted if self.slide == "accepted" else 0)
        self.rounds = [
            {r - shift: token for r, token in known.items() if r - shift >= max(j, 1)}
            for j, known in enumerate(self.rounds)
        ]
        return grams if full else []


def lru(grams, size):
    """first token -> its continuations, oldest first, after ``grams`` in order."""
    pool = {}
    for gram in grams:
        kept = [rest for rest in pool.get(gram[0], []) if rest != gram[1:]] + [gram[1:]]
        pool[gram[0]] = kept[-size:]
    return pool


def compare_with_reference(lm, prompt, drafter, steps=12, **options):
    """Every step's window, n-grams and pool against `SlowWindow`; returns how many n-grams were compared."""
    slow, grams = SlowWindow(drafter.W, drafter.N, lm, drafter.slide), []
    run = stream(lm, prompt, drafter, max_nodes=drafter.max_nodes + 100, **options)
    context, known = list(prompt), 0
    for step, _ in zip(run, range(steps), strict=False):
        if drafter.prompt_ngrams:
            ends = range(max(known + 1, drafter.N), len(context) + 1)
            grams += [tuple(context[end - drafter.N : end]) for end in ends]
            known = len(context)
        slow.check(context, step.tree)
        expected_paths = [rest for rest in reversed(lru(grams, drafter.pool_size).get(context[-1], []))]
        trie = DraftTree.from_paths(context[-1], expected_paths[: drafter.G])
        assert step.tree.tokens[step.tree.candidate].tolist() == trie.tokens.tolist()
        grams += slow.advance(step.verdict.accepted)
        pool = {first: list(kept) for first, kept in drafter.pool.items()}
        assert pool == lru(grams, drafter.pool_size)
        context += step.tokens
    return len(grams)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), W=st.integers(1, 6), N=st.integers(2, 5), G=st.integers(1, 4),
       pool_size=st.integers(1, 4), prompt_ngrams=st.booleans(), slide=st.sampled_from(["one", "accepted"]),
       temperature=st.sampled_from([0.0, 1.0]), prompt=st.lists(st.integers(0, 2), min_size=1, max_size=8),
       full=st.booleans())  # fmt: skip
def test_window_equals_the_slow_reference(
    seed, W, N, G, pool_size, prompt_ngrams, slide, temperature, prompt, full
):
    lm = FullContextLM(3, seed) if full else TableLM.random(4, order=2, seed=seed)
    drafter = Lookahead(W, N, max(G, N), prompt_ngrams, pool_size, slide)
    sampling = Sampling(temperature=temperature)
    compared = compare_with_reference(lm, prompt, drafter, sampling=sampling, seed=seed)
    assert compared >= W * (12 - (N - 2))


class SlowLlama:
    """A Llama asked for one row at a time, its cache built anew for every text."""

    def __init__(self, lm):
        self.lm = lm

    def row(self, text):
        self.lm.prefill(text[:-1])
        return self.lm.forward(DraftTree.empty(text[-1])).logits[0].numpy()


@pytest.mark.parametrize("slide", ["one", "accepted"])
def test_window_equals_the_slow_reference_on_a_llama(slide):
    lm, again = tiny_llama(), tiny_llama()
    slow, drafter = SlowLlama(again), Lookahead(4, 4, 3, slide=slide)
    lm.row = slow.row
    assert compare_with_reference(lm, [1, 2, 3], drafter, max_new_tokens=60) >= 40


def test_pool_from_the_prompt_is_every_ngram_of_it():
    drafter = Lookahead(3, 3, 2, prompt_ngrams=True, pool_size=2)
    text = [1, 2, 3, 1, 2, 4, 1, 5, 6, 1, 2, 4]
    drafter.reset(text)
    drafter.propose(text, Budget(20, 20), Rng(0))
    # 1 was followed by (2,3), (2,4), (5,6), (2,4): the two seen last stay, the repeated one behind the other.
    assert {first: list(kept) for first, kept in drafter.pool.items()} == {
        1: [(5, 6), (2, 4)],
        2: [(3, 1), (4, 1)],
        3: [(1, 2)],
        4: [(1, 5)],
        5: [(6, 1)],
        6: [(1, 2)],
    }
    drafter.reset([9, 9])
    assert drafter.pool == {}
    assert Lookahead(3, 3, 2).propose(text, Budget(20, 20), Rng(0)).candidate.sum() == 1


def test_pool_stays_bounded():
    lm, drafter = TableLM.random(6, order=2, seed=1), Lookahead(4, 3, 2, prompt_ngrams=True, pool_size=3)
    for seed in range(30):
        generate(lm, [seed % 6, 1], drafter, max_new_tokens=40, sampling=Sampling(temperature=1.0), seed=seed)
        assert len(drafter.pool) <= 6
        assert max(len(kept) for kept in drafter.pool.values()) == 3


def test_shared_prefixes_are_merged_and_the_longest_match_wins():
    """Pool of 4: (1, 2, 3) and, more recent, (1, 5, 6). The target says 1 2 3: the older is accepted whole.

    Side by side, as two children 1 of the root, the walk would enter the first and end after one token.
    """
    drafter = Lookahead(1, 4, 2)
    drafter.pool = {4: {(1, 2, 3): None, (1, 5, 6): None}}
    tree = drafter.propose([0, 4], Budget(64, 64), Rng(0))
    paths = [tree.tokens[tree.path_to(i)].tolist() for i in np.flatnonzero(tree.candidate)]
    assert paths == [[4], [4, 1], [4, 1, 5], [4, 1, 5, 6], [4, 1, 2], [4, 1, 2, 3]]
    says = {(4,): 1, (4, 1): 2, (4, 1, 2): 3, (4, 1, 2, 3): 9}
    target = np.array([says.get(tuple(tree.tokens[tree.path_to(i)]), 0) for i in range(len(tree.tokens))])
    assert verify(Greedy(target), tree, Rng(0)).tokens == (1, 2, 3, 9)


def test_window_rows_are_never_emitted():
    """The target says exactly what a window row holds, and still accepts nothing of it."""
    drafter = Lookahead(3, 2, 1)
    tree = drafter.propose([7], Budget(64, 64), Rng(0))
    assert tree.tokens.tolist() == [7, 7, 7]
    assert verify(Greedy([7, 7, 7]), tree, Rng(0)).tokens == (7,)


def test_a_small_row_budget_is_shared_and_said_so():
    drafter = Lookahead(15, 5, 15)
    with pytest.warns(UserWarning, match="need max_nodes=119; the budget of 64 leaves fewer"):
        run = stream(FullContextLM(4), [1, 2], drafter, max_new_tokens=40, max_nodes=64)
        trees = [step.tree for step in run]
    assert all(tree.size <= 64 for tree in trees)
    # 65 rows are 16 strips of N - 1: 8 columns, and 8 candidates' worth of rows besides.
    assert len(drafter.levels[-1]) == 8
    assert {int((~tree.candidate).sum()) for tree in trees[5:]} == {8 * 4 - 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(FullContextLM(4), [1, 2], Lookahead(15, 5, 15), max_new_tokens=8)  # by default, enough


def test_near_the_context_limit_columns_go_first_and_the_run_ends_cleanly():
    lm = TableLM(TableLM.random(4, order=1, seed=2).table, max_length=30)
    run = generate(lm, [1, 2], Lookahead(5, 4, 3, prompt_ngrams=True), max_new_tokens=100)
    assert run.finish_reason == "context"
    assert run.tokens == generate(lm, [1, 2], max_new_tokens=100).tokens
    assert len(run.tokens) == 28


def test_compresses_steps():
    """The wider the window, the fewer the steps; the prompt's own n-grams, if anything, save a few more."""
    calls = []
    for seed in range(3):
        lm = tiny_llama(seed=seed)
        plain = generate(lm, [1, 2, 3], max_new_tokens=90)
        for W, prompt_ngrams in [(1, False), (10, False), (10, True)]:
            run = generate(lm, [1, 2, 3], Lookahead(W, 4, W, prompt_ngrams), max_new_tokens=90)
            assert run.tokens == plain.tokens
            calls.append(run.trace.target_calls)
    narrow, wide, wide_prompt = calls[0::3], calls[1::3], calls[2::3]
    assert all(b < 0.7 * a < 0.7 * 90 for a, b in zip(narrow, wide, strict=True))
    assert sum(wide_prompt) < sum(wide)


def test_reading_does_not_grow_with_the_history():
    for prompt_ngrams in (False, True):
        histories = [[i % 7 for i in range(length)] for length in (1_000, 10_000)]
        read = [tokens_read(Lookahead(3, 3, 3, prompt_ngrams), history) for history in histories]
        assert read[0] == read[1] < 40


def test_refuses_impossible_settings():
    for options in ({"W": 0}, {"N": 1}, {"G": 0}, {"pool_size": 0}, {"slide": "all"}):
        with pytest.raises(ValueError, match="got"):
            Lookahead(**options)


@pytest.mark.filterwarnings("ignore:W=")
@settings(max_examples=60, deadline=None)
@given(**SMALL_RUNS, W=st.integers(1, 6), N=st.integers(2, 6), G=st.integers(1, 6),
       prompt_ngrams=st.booleans(), slide=st.sampled_from(["one", "accepted"]))  # fmt: skip
def test_greedy_identity(W, N, G, prompt_ngrams, slide, **run):
    assert_greedy_identity(Lookahead(W, N, G, prompt_ngrams, slide=slide), **run)


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
def test_greedy_identity_on_a_llama(numerics):
    for seed in range(2):
        lm = tiny_llama(seed=seed)
        lm.shape = Shape(16, 512) if numerics == "invariant" else None
        plain = generate(lm, [1, 2, 3], max_new_tokens=40)
        for W, N, G in [(1, 10, 3), (5, 4, 2), (7, 5, 7)]:
            run = generate(lm, [1, 2, 3], Lookahead(W, N, G, True), max_new_tokens=40)
            assert run.tokens == plain.tokens
            assert run.trace.accepted > 0


@pytest.mark.parametrize("slide", ["one", "accepted"])
@pytest.mark.parametrize("prompt_ngrams", [False, True])
def test_law_is_the_targets(prompt_ngrams, slide):
    prompts = [[0, 1, 2, 0, 1], [1, 1]] if prompt_ngrams else [[0, 1]]
    assert_exact_law(lambda: Lookahead(2, 3, 3, prompt_ngrams, slide=slide), prompts, length=5)


def test_law_with_shared_prefixes():
    """(0, 1), (0, 2), (1, 0) behind the prompt's last token: two candidates share their first node."""
    prompt = [2, 0, 1, 2, 0, 2, 1, 0, 2]
    drafter = Lookahead(1, 3, 4, prompt_ngrams=True)
    drafter.reset(prompt)
    tree = drafter.propose(prompt, Budget(64, 64), Rng(0))
    assert len(tree.children(0)) == 2 and max(len(tree.children(i)) for i in tree.children(0)) == 2
    assert_exact_law(lambda: Lookahead(1, 3, 4, prompt_ngrams=True), [prompt])


@pytest.mark.filterwarnings("ignore:W=")
def test_stops_edges_and_budgets():
    def make():
        return Lookahead(4, 3, 4, prompt_ngrams=True)

    lm = TableLM.random(5, order=2, seed=3)
    assert_stops_alike(make, lm, [0, 1, 2])
    assert_edges(make)
    assert_within_budget(make, lm, [0, 1, 0, 1])
