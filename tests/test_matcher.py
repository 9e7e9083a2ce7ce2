"""The matcher widget: what it finds is what prompt lookup drafts, and its controls change the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.core.contract import Budget
from specdec_core.core.rng import Rng
from specdec_core.drafters import PromptLookup
from specdec_core.viz import matcher

WORDS = ["the", "cat", "sat", "and", "the", "cat", "ran", ".", "the", "cat"]


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    max_n=st.integers(1, 5),
    num_tokens=st.integers(1, 6),
    match=st.sampled_from(["first", "last"]),
)
def test_it_finds_what_the_drafter_drafts(tokens, max_n, num_tokens, match):
    drafter = PromptLookup(num_tokens=num_tokens, max_n=max_n, match=match)
    drafter.reset(tokens)
    drafted = drafter.propose(tokens, Budget(100, 100), Rng(0)).tokens.tolist()[1:]
    assert list(matcher.lookup(tokens, max_n, 1, num_tokens, match).draft) == drafted


def test_first_and_last_by_hand():
    """The pair (the, cat) stands at 0 and 4; no triple ends in it, since (., the, cat) occurs once."""
    first, last = (matcher.lookup(WORDS, 3, 1, 3, match) for match in ("first", "last"))
    assert first == matcher.Lookup(2, (0, 4), 0, ("sat", "and", "the"), (3,))
    assert last == matcher.Lookup(2, (0, 4), 4, ("ran", ".", "the"), (3,))


@pytest.mark.parametrize("wrong", [{"min_n": 0}, {"max_n": 1, "min_n": 2}, {"num_tokens": 0}, {"match": "best"}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="are needed; got"):
        matcher.lookup(WORDS, **wrong)


@pytest.mark.parametrize("text", ["", "a", "abab", "two words, two words\n", "  lead", "héllo — hé", "<b>&</b> <b>"])
@pytest.mark.parametrize("unit", ["words", "characters"])
def test_any_text_can_be_shown(text, unit):
    keys, shown = matcher.splitters()[unit](text)
    assert len(keys) == len(shown) and "".join(shown) == text
    assert "<b>&</b>" not in matcher.page(keys, shown)  # escaped


def test_the_page_marks_suffix_matches_winner_and_draft():
    html = matcher.page(WORDS, [f" {word}" for word in WORDS], max_n=2, num_tokens=2, match="first")
    assert 'title="suffix"' in html and 'title="match"' in html
    assert html.index('title="winner"') < html.index('title="match"')  # the first occurrence wins
    assert "The last 2 tokens occur 2 times earlier; the first occurrence wins." in html


def test_the_controls_change_the_page(monkeypatch):
    shown = []
    monkeypatch.setattr(matcher, "show", lambda widget, static, description: shown.append((widget, static)))
    matcher.viewer(text="a b c a d a", max_n=1, num_tokens=2)
    [(widget, static)] = shown
    box, first_row, second_row, out = widget.children
    (unit, which), (n, count) = first_row.children, second_row.children
    before = out.value
    assert before in static  # the static page shows what the widget begins with
    for control, value in ((which, "first"), (count, 1), (unit, "characters"), (n, 3), (box, "x y x")):
        control.value = value
        assert out.value != before
        before = out.value
