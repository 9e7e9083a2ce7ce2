"""The widgets of chapters 08 and 09: what they show is what store and drafters do, and controls change the page."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.core.contract import Budget
from specdec_core.core.rng import Rng
from specdec_core.drafters import REST, SuffixDecoding
from specdec_core.stores import SuffixStore
from specdec_core.stores.suffix_memory import GrowingText, PastTexts
from specdec_core.stores.suffix_tree import as_text
from specdec_core.viz import suffix_array, suffix_tree
from specdec_core.viz.matcher import splitters

WORDS = ["the", "cat", "sat", ".", "the", "cat", "ran", ".", "the", "dog", "sat"]
IDS = [sorted(set(WORDS)).index(word) for word in WORDS]
WIDE = Budget(64, 64)

texts = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@given(texts, texts, st.integers(1, 6))
def test_the_array_and_the_search_are_the_store_s(corpus, query, max_n):
    store = SuffixStore.in_memory([corpus], vocab_size=4)
    sa = suffix_array.order(corpus)
    assert [*sa, len(corpus)] == store.sa.tolist()  # the store also sorts the suffix that is a separator alone
    found = suffix_array.search(corpus, sa, query, max_n=max_n)
    assert (found.lo, found.hi, found.length) == store.find(query, max_n=max_n, min_n=1)
    assert found.failed == tuple(range(min(max_n, len(query)), found.length, -1))


@given(texts, texts, st.integers(1, 5), st.integers(1, 8))
@settings(max_examples=60)
def test_the_tree_is_the_drafter_s(corpus, query, depth, nodes):
    sa = suffix_array.order(corpus)
    drawn = suffix_array.tree(corpus, sa, suffix_array.search(corpus, sa, query), depth, nodes)
    drafter = REST(SuffixStore.in_memory([corpus], vocab_size=4), min_n=1, nodes=nodes, depth=depth)
    tree = drafter.propose(query, WIDE, Rng(0))
    assert [node[:2] for node in drawn] == list(zip(tree.tokens[1:].tolist(), tree.parents[1:].tolist(), strict=True))


def test_a_search_by_hand():
    """Sorted, "the cat ran" and "the cat sat" stand at ranks 8 and 9, behind the suffixes with . cat dog ran sat."""
    sa = suffix_array.order(WORDS)
    assert sa == [3, 7, 5, 1, 9, 6, 2, 10, 4, 0, 8]
    found = suffix_array.search(WORDS, sa, ["a", "the", "cat"])
    assert (found.lo, found.hi, found.length, found.failed) == (8, 10, 2, (3,))
    lower = [(probe.low, probe.high, probe.middle, probe.goes_up) for probe in found.probes[:3]]
    assert lower == [(0, 11, 5, True), (6, 11, 8, False), (6, 8, 7, True)]
    assert (found.probes[3].low, found.probes[3].high) == (0, 11)  # the upper border is sought from the beginning
    assert suffix_array.tree(WORDS, sa, found, depth=2, nodes=9) == [
        ("ran", 0, 1), ("sat", 0, 1), (".", 1, 1), (".", 2, 1),
    ]  # fmt: skip


def test_lengths_out_of_range_are_refused():
    with pytest.raises(ValueError, match="are needed; got min_n=2, max_n=1"):
        suffix_array.search(WORDS, suffix_array.order(WORDS), WORDS, max_n=1, min_n=2)


@pytest.mark.parametrize("corpus", ["", "a", "aaaa", "x y\nz", "<b>&</b> <b>", "one. " * 30])
@pytest.mark.parametrize("query", ["", "a", "<b>", "one."])
@pytest.mark.parametrize("unit", ["words", "characters"])
def test_any_datastore_can_be_shown(corpus, query, unit):
    split = splitters()[unit]
    html = suffix_array.page(split(corpus), split(query))
    assert "<b>&</b>" not in html
    assert ("No match" in html) == (suffix_array.search(split(corpus)[0], suffix_array.order(split(corpus)[0]),
                                                        split(query)[0]).length == 0)  # fmt: skip


def test_the_page_numbers_its_comparisons_up_to_a_step():
    split = splitters()["words"]
    pages = [suffix_array.page(split(suffix_array.EXAMPLE), split("for line in"), step=step) for step in (0, 2, None)]
    marked = [len(re.findall(r'<tr style="background:#F2F2F2">', page)) for page in pages]
    assert marked[0] == 0 < marked[1] == 2 < marked[2]
    assert all('title="winner"' in page and 'title="draft"' in page for page in pages)


@given(st.text("abc", min_size=1, max_size=40), st.integers(2, 6))
@settings(max_examples=60)
def test_the_branches_hold_all_that_follows(text, depth):
    """Spelled out, the lines of the tree are the strings of up to depth tokens that begin with the first one."""
    memory = GrowingText(depth)
    for char in text:
        memory.append(char)
    spelled, open_labels = Counter(), []
    for level, label, count in suffix_tree.branches(memory, text[0]):
        above = text[0] + "".join(open_labels[:level])
        spelled |= Counter({above + label[:size]: count for size in range(1, len(label) + 1)})
        open_labels[level:] = [label]
    found = (text[i : i + size] for i in range(len(text)) for size in range(2, depth + 1) if i + size <= len(text))
    assert spelled == Counter(string for string in found if string[0] == text[0])


@given(st.lists(st.text("abc", min_size=1, max_size=15), max_size=3), st.text("abc", min_size=1, max_size=20))
@settings(max_examples=60)
def test_the_scores_add_up(past, now):
    drafter, draft = suffix_tree.read(past, now, nodes=8, depth=10, factor=2.0)
    assert sum(node.probability for node in draft) == pytest.approx(drafter.score)
    assert bool(draft) == (drafter.match_len > 0) == (drafter.source != "none")
    memory = PastTexts(10)
    for text in past:
        memory.add(text)
    assert drafter.past.nodes == memory.nodes


def test_source_and_score_by_hand():
    """In this request 1 2 was followed by 3; in the past 1 2 by 4 5. Equal scores: this request first."""
    drafter = SuffixDecoding(nodes=4, depth=6)
    drafter.past.add(as_text([1, 2, 4, 5]))
    drafter.reset([1, 2, 3, 0, 1, 2])
    drafter.propose([1, 2, 3, 0, 1, 2], WIDE, Rng(0))
    assert (drafter.source, drafter.match_len, drafter.score) == ("this request", 2, 2.0)  # 3 0, or 4 5 in the past
    drafter.propose([1, 2, 3, 0, 1, 2, 4], WIDE, Rng(0))
    assert (drafter.source, drafter.match_len, drafter.score) == ("past requests", 3, 1.0)
    drafter.propose([1, 2, 3, 0, 1, 2, 4, 9], WIDE, Rng(0))
    assert (drafter.source, drafter.match_len, drafter.score) == ("none", 0, 0.0)


@pytest.mark.parametrize("now", ["", "a", "ab", "<b>&</b> <b>", suffix_tree.NOW])
def test_any_request_can_be_shown(now):
    split = splitters()["words"]
    past = [split(line) for line in ["", *suffix_tree.PAST.splitlines()]]
    html = suffix_tree.page(past, split(now))
    assert "<b>&</b>" not in html and ("Nothing was read" in html) == (not now)


def test_the_past_answers_first_and_this_request_later():
    split = splitters()["words"]
    past = [split(line) for line in suffix_tree.PAST.splitlines()]
    early, late = (suffix_tree.page(past, split(suffix_tree.NOW), tokens=tokens) for tokens in (5, None))
    assert "in past requests: 2 nodes, score 2.00." in early and "in this request: 3 nodes, score 3.00." in late


def shown_by(monkeypatch, module, act):
    shown = []
    monkeypatch.setattr(module, "show", lambda widget, static, description: shown.append((widget, static)))
    act()
    [(widget, static)] = shown
    return widget, static


def test_the_controls_of_the_array_change_the_page(monkeypatch):
    widget, static = shown_by(monkeypatch, suffix_array, suffix_array.viewer)
    text, asked, first, second, out = widget.children
    (unit, n), (nodes, step) = first.children, second.children
    before = out.value
    assert before in static  # all comparisons are shown at first
    changes = ((step, 3), (nodes, 2), (n, 2), (asked, "print"), (text, "print it"), (unit, "characters"))
    for control, value in changes:
        control.value = value
        assert out.value != before
        before = out.value


def test_the_controls_of_the_tree_change_the_page(monkeypatch):
    widget, static = shown_by(monkeypatch, suffix_tree, suffix_tree.viewer)
    old, text, first, second, out = widget.children
    (unit, tokens), (nodes, factor) = first.children, second.children
    before = out.value
    assert before in static and "Early in the request" in static
    changes = ((tokens, 9), (factor, 0.5), (nodes, 2), (old, "x y"), (text, "a b a b a"), (unit, "characters"))
    for control, value in changes:
        control.value = value
        assert out.value != before, control.description
        before = out.value
    assert tokens.max == len("a b a b a")
