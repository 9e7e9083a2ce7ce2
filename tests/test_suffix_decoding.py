"""Suffix decoding: counts equal a rescan, also after forgetting; bounded; lossless in the loop."""

from __future__ import annotations

import random

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
from specdec_core.drafters import SuffixDecoding
from specdec_core.drafters.suffix_decoding import Speculation
from specdec_core.stores.suffix_memory import GrowingText, PastTexts
from specdec_core.stores.suffix_tree import SuffixTree, as_text

WIDE = Budget(64, 64)
TEXT = st.text("abc", max_size=40)


def naive_count(texts, string, depth):
    """How often ``string`` begins a substring of at most ``depth`` characters, by looking everywhere."""
    return sum(text[at : at + depth].startswith(string) for text in texts for at in range(len(text)))


def substrings(texts, depth):
    return {text[at : at + n] for text in texts for at in range(len(text)) for n in range(1, depth + 1)}


def assert_counts(memory, texts, depth):
    for string in substrings(texts, depth):
        assert memory.count(string) == naive_count(texts, string, depth), (string, texts)
        if len(string) < depth:
            followers = {c: n for c in "abc" if (n := naive_count(texts, string + c, depth))}
            place = memory.find(string)
            assert memory.followers(place) == followers, (string, texts)
            assert memory.goes_on(place) == bool(followers)
            for char in followers:
                further = memory.find(string + char)
                assert memory.followers(memory.step(place, char)) == memory.followers(further)
    assert memory.count("d") == 0 and memory.find("ad") is None


def shape(tree, node=0):
    """A tree without the numbers of its nodes."""
    children = sorted(shape(tree, child) for child in tree._children[node].values())
    return tree._label[node], tree._count[node], children


@given(TEXT, st.integers(2, 6))
@settings(max_examples=80)
def test_a_growing_text_counts_as_a_rescan_does(text, depth):
    memory = GrowingText(depth)
    for char in text:
        memory.append(char)
    assert_counts(memory, [text], depth)


@given(TEXT, st.integers(2, 5), st.integers(1, 20))
@settings(max_examples=80)
def test_a_bounded_growing_text_counts_its_end(text, depth, bound):
    """With room for n strings of D tokens: those, and the D - 1 that are not full yet."""
    memory = GrowingText(depth, bound)
    for char in text:
        memory.append(char)
        assert memory.nodes <= 2 * bound
    assert_counts(memory, [text[-(bound + depth - 1) :]], depth)


@given(st.lists(TEXT, max_size=8), st.integers(2, 5), st.integers(1, 4), st.integers(1, 60))
@settings(max_examples=100)
def test_past_texts_count_the_last_ones_also_after_evictions(texts, depth, max_texts, max_tokens):
    memory, kept = PastTexts(depth, max_texts, max_tokens), []
    for text in texts:
        memory.add(text)
        if text := text[-max_tokens:]:
            kept.append(text)
        while len(kept) > max_texts or sum(map(len, kept)) > max_tokens:
            kept.pop(0)
    assert (len(memory), memory.tokens) == (len(kept), sum(map(len, kept)))
    assert_counts(memory, kept, depth)
    fresh = SuffixTree()
    for text in kept:
        for at in range(len(text)):
            fresh.add(text[at : at + depth])
    assert shape(memory._tree) == shape(fresh), "forgetting leaves no trace"
    assert memory.nodes == fresh.nodes <= 2 * memory.tokens


def test_memory_stays_bounded_over_10_000_short_requests():
    """As in a session: half of each answer is new, half has been said before."""
    draw, drafter = random.Random(0), SuffixDecoding(max_requests=10, max_tokens=500)
    held = []
    for request in range(10_000):
        context = [draw.randrange(100_000) for _ in range(3)]
        drafter.reset(context)
        context += [1, 2, 3, 4] + [draw.randrange(100_000) for _ in range(4)]
        drafter.propose(context, WIDE, Rng(0))
        if request >= 20:
            held.append((len(drafter.past), drafter.past.tokens))
            assert drafter.past.nodes <= 160 and drafter.local.nodes <= 1000
    assert set(held) == {(10, 80)}
    assert len(drafter.past._tree._label) <= 1000, "removed nodes are used again"


def test_the_cost_of_a_token_does_not_grow_with_the_text():
    """Nodes visited by an addition, counted: at most D, among the first 1,000 tokens as among 50,000."""

    class Counting(SuffixTree):
        visited = 0

        def add(self, text):
            place, at, steps = 0, 0, 0
            while at < len(text) and (child := self._children[place].get(text[at])) is not None:
                place, at, steps = child, at + len(self._label[child]), steps + 1
            self.visited = max(self.visited, steps)
            super().add(text)

    draw, depth = random.Random(0), 8
    worst = []
    for kind in (lambda i: chr(draw.randrange(50)), lambda i: "a", lambda i: "abcab"[i % 5]):
        memory = GrowingText(depth, max_tokens=10_000)
        memory._tree = Counting()
        for i in range(50_000):
            memory.append(kind(i))
            if i == 999:
                early, memory._tree.visited = memory._tree.visited, 0
        worst.append((early, memory._tree.visited))
        assert len(memory._text) < 10_000 + depth + (1 << 16)
    assert all(max(pair) <= depth for pair in worst)


def propose(text, past=(), **options):
    """A drafter that answered ``past`` and now sees ``text``, and the paths of its draft."""
    drafter = SuffixDecoding(**options)
    for answer in past:
        drafter.reset([99])
        drafter.observe([99, *answer], None, None, None)
    drafter.reset(text)
    tree = drafter.propose(text, WIDE, Rng(0))
    return drafter, [tree.tokens[tree.path_to(row)[1:]].tolist() for row in range(1, len(tree.tokens))]


def test_draft_length_follows_match_length():
    """A match of n tokens earns at most factor x n + offset nodes."""
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 1, 2, 3]
    assert propose(text)[1][-1] == [4, 5, 6]
    assert propose(text, factor=2.0)[1][-1] == [4, 5, 6, 7, 8, 9]
    assert propose(text, factor=0.5, offset=1.0)[1][-1] == [4, 5]
    assert propose(text, nodes=2)[1][-1] == [4, 5]
    assert propose(text, depth=5)[1][-1] == [4, 5], "match and draft together fit the depth"
    assert propose(text, factor=0.0)[1] == []


def test_branches_by_count_ratio_down_to_the_least_probability():
    """After 1 came 2 six times, 3 three times, 4 once: 0.6, 0.3, 0.1; then something new each time."""
    followers = [2] * 6 + [3] * 3 + [4]
    text = [token for i, follower in enumerate(followers) for token in (1, follower, 100 + i)] + [8, 1]
    drafter, paths = propose(text, factor=8.0)
    assert drafter.match_len == 1
    assert paths[:3] == [[2], [3], [4]]
    assert [4] not in propose(text, factor=8.0, min_prob=0.11)[1]
    assert propose(text, factor=8.0, min_prob=0.9)[1] == []


def test_the_match_length_with_the_largest_score_wins_and_ties_go_to_the_longer():
    """4 2 was followed by 5; 2 alone by 6 6 6 too. The longer match is sure of its three tokens."""
    text = [4, 2, 5, 5, 2, 6, 6, 6, 2, 6, 6, 7, 4, 2]
    drafter, paths = propose(text, offset=2.0, factor=0.0)
    assert (drafter.match_len, paths) == (2, [[5], [5, 5]])
    # Of two certain drafts of one node each, by matches of 1 and of 2, the longer match's is taken.
    assert propose([1, 2, 3, 9, 1, 2], factor=0.0, offset=1.0)[0].match_len == 2


def naive_best(texts, suffix, nodes, depth, factor, min_prob=0.1):
    """Every match length tried, every count by looking everywhere: the definition."""
    best = (0.0, 0, ())
    for n in range(1, min(len(suffix), depth - 1) + 1):
        matched, open_paths, made, score = suffix[len(suffix) - n :], [], [], 0.0
        frontier = [("", 1.0)]
        while frontier or open_paths:
            for path, probability in frontier:
                if n + len(path) < depth:
                    counts = {c: naive_count(texts, matched + path + c, depth) for c in "abc"}
                    total = sum(counts.values())
                    open_paths += [
                        (path + c, probability * count / total) for c, count in sorted(counts.items())
                        if count and probability * count / total >= min_prob
                    ]  # fmt: skip
            if not open_paths or len(made) == min(nodes, int(factor * n)):
                break
            chosen = max(open_paths, key=lambda item: item[1])  # the first of the best, as pushed
            open_paths.remove(chosen)
            made.append(chosen[0])
            score += chosen[1]
            frontier = [chosen]
        if score > 0 and (round(score, 9), n) > (round(best[0], 9), best[1]):
            best = (score, n, tuple(made))
    return best


@given(TEXT.filter(bool), st.integers(2, 6), st.integers(1, 6), st.sampled_from([0.5, 1.0, 2.0]))
@settings(max_examples=100)
def test_the_draft_is_the_one_of_the_definition(text, depth, nodes, factor):
    """Trying match lengths in the order of what they can score at most finds what trying all of them finds."""
    score, n, made = naive_best([text], text[-(depth - 1) :], nodes, depth, factor)
    drafter = SuffixDecoding(nodes=nodes, depth=depth, factor=factor)
    drafter.reset([ord(c) for c in text])
    draft = drafter._speculate(drafter.local, text[-(depth - 1) :], WIDE, 0.0)
    assert draft.score == pytest.approx(score)
    if draft.match_len != n:  # two lengths whose scores differ by rounding alone
        limit = min(nodes, int(factor * n))
        other = drafter._grow(drafter.local, text[len(text) - n :], limit, depth - n)
        assert other.score == pytest.approx(draft.score)
    else:
        paths = [""]
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            paths.append(paths[parent] + chr(token))
        assert sorted(paths[1:]) == sorted(made)


def test_past_answers_are_remembered_and_this_request_comes_first():
    """Answers only: a prompt is not what a model will say."""
    _, paths = propose([5, 1, 2], past=[[1, 2, 3, 4]])
    assert paths == [[3], [3, 4]]
    _, paths = propose([5, 1, 2, 6, 7, 1, 2], past=[[1, 2, 3, 4]])
    assert paths == [[6], [6, 7]], "equal scores: this request before the past"
    _, paths = propose([1, 2, 6, 1, 2, 7, 1, 2], past=[[1, 2, 3, 4]])
    assert paths == [[3], [3, 4]], "certain, so it scores more than 6 or 7"
    drafter = SuffixDecoding()
    drafter.reset([1, 2, 3])
    drafter.reset([1, 2])
    assert (len(drafter.past), drafter.propose([1, 2], WIDE, Rng(0)).size) == (0, 0)


def test_nothing_is_remembered_with_room_for_no_request():
    drafter, paths = propose([5, 1, 2], past=[[1, 2, 3, 4]], max_requests=0)
    assert (paths, drafter.match_len, len(drafter.past)) == ([], 0, 0)


def test_one_drafter_for_two_requests_in_a_row_answers_alike_and_drafts_more():
    """Case 3: the memory changes the drafts, never the tokens."""
    lm, drafter = tiny_llama(seed=1), SuffixDecoding()
    runs = [generate(lm, [1, 2, 3], drafter, max_new_tokens=40) for _ in range(2)]
    assert runs[0].tokens == runs[1].tokens == generate(lm, [1, 2, 3], max_new_tokens=40).tokens
    assert runs[1].trace.target_calls < runs[0].trace.target_calls


@given(**SMALL_RUNS)
def test_greedy_identity(seed, vocab, order, length, prompt, max_nodes):
    drafter = SuffixDecoding(nodes=40, factor=2.0, offset=1.0)
    for _ in range(2):
        assert_greedy_identity(drafter, seed, vocab, order, length, prompt, max_nodes)


def test_greedy_identity_on_a_llama():
    lm, prompt = tiny_llama(), [1, 2, 3, 1, 2, 3]
    plain = generate(lm, prompt, max_new_tokens=60).tokens
    for nodes in (1, 16, 63):
        run = generate(lm, prompt, SuffixDecoding(nodes=nodes, factor=2.0), max_new_tokens=60)
        assert run.tokens == plain
        assert run.trace.accepted > 0


def test_exact_law():
    """Trees with shared prefixes, from this request and from past ones."""

    def make():
        drafter = SuffixDecoding(nodes=7, factor=3.0, min_prob=0.05)
        drafter.past.add(as_text([0, 1, 2, 0, 1, 1, 0, 2, 1, 0, 0]))
        return drafter

    prompts = [[0], [0, 1, 2, 0, 1, 0, 0, 1], [1, 1]]
    for prompt in prompts[:2]:
        drafter = make()
        drafter.reset(prompt)
        tree = drafter.propose(prompt, WIDE, Rng(0))
        assert any(len(tree.children(row)) > 1 for row in range(len(tree.tokens)))
    assert_exact_law(make, prompts)


def test_stops_and_limits():
    lm = TableLM.random(5, order=1, seed=3)
    assert_stops_alike(lambda: SuffixDecoding(factor=2.0), lm, [0, 1, 2, 3])


def test_edges():
    assert_edges(lambda: SuffixDecoding(max_requests=0))  # with a past it drafts otherwise the second time


def test_within_budget():
    lm = TableLM.random(3, order=2)
    assert_within_budget(lambda: SuffixDecoding(nodes=63, factor=9.0), lm, [0, 1, 2, 0, 1])


def test_a_lookup_reads_the_end_of_the_history_only():
    short, long = (tokens_read(SuffixDecoding(), [0, 1, 2, 3] * (size // 4)) for size in (100, 10_000))
    assert short == long <= 2 * 24


def test_the_largest_ids():
    text = [151_935, 0, 65_536, 151_935, 0]
    assert propose(text)[1] == [[65_536], [65_536, 151_935]]
    with pytest.raises(ValueError, match="1,114,111"):
        propose([1_114_112])


@pytest.mark.parametrize(
    "wrong",
    [{"nodes": 0}, {"depth": 1}, {"min_prob": 0.0}, {"min_n": 0}, {"max_tokens": 0}, {"max_requests": -1},
     {"factor": -1.0}],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        SuffixDecoding(**wrong)


def test_no_match_is_an_empty_speculation():
    drafter, paths = propose([1, 2, 3])
    assert (paths, drafter._speculate(drafter.past, "x", WIDE, 0.0)) == ([], Speculation())
