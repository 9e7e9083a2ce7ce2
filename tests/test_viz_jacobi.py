"""The Jacobi player: each token is called what it is, and its control changes the page."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.core.engine import generate
from specdec_core.core.toy import TableLM
from specdec_core.drafters import Jacobi
from specdec_core.viz import jacobi, style

# "." the cat sat on a; dog ran. Chapter 06's trajectory, worked by hand there.
ANSWER = [1, 2, 3, 4, 5]
ROUNDS = [[6, 2, 6, 4, 6], [1, 7, 3, 7, 5], [1, 2, 0, 4, 0], [1, 2, 3, 1, 5], [1, 2, 3, 4, 2], [1, 2, 3, 4, 5]]


def shown(token):
    return (".", " the", " cat", " sat", " on", " a", " <dog>", "\n")[token]


def test_kinds_by_hand():
    """Places 2 and 4 are right in round 0 and wrong in 1; "the", "cat" of round 4 follow each other nowhere there."""
    assert jacobi.kinds(ROUNDS, ANSWER) == [
        ["wrong", "lost", "wrong", "lost", "wrong"],
        ["settled", "wrong", "lost", "wrong", "lost"],
        ["settled", "settled", "wrong", "lost", "wrong"],
        ["settled", "settled", "settled", "wrong", "lost"],
        ["settled", "settled", "settled", "settled", "wrong"],
        ["settled"] * 5,
    ]


def test_a_piece_of_the_answer_one_place_off_is_misplaced():
    assert jacobi.kinds([[2, 3, 4, 5, 9]], ANSWER) == [["misplaced"] * 4 + ["wrong"]]
    assert jacobi.kinds([[9, 9, 2, 9, 9]], ANSWER) == [["wrong"] * 5]  # a single token is no piece


@given(seed=st.integers(0, 10**6), m=st.integers(1, 8), data=st.data())
def test_what_is_settled_stays_and_is_what_the_drafter_committed(seed, m, data):
    lm = TableLM.random(5, order=2, seed=seed)
    drafter = Jacobi(m, init=data.draw(st.lists(st.integers(0, 4), min_size=m, max_size=m)))
    answer = generate(lm, [0, 1], drafter, max_new_tokens=m).tokens
    rounds = [[*answer[: done.context_length - 2], *done.guess][:m] for done in drafter.trajectory]
    for t, row in enumerate(jacobi.kinds([*rounds, list(answer)], answer)):
        count = row.count("settled")
        assert row[:count] == ["settled"] * count
        assert count >= min(t, m)
        if t < len(rounds):
            emitted = drafter.trajectory[t + 1].context_length if t + 1 < len(rounds) else 2 + m
            assert min(count + 1, m) == min(emitted - 2, m)  # the forward adds the token after what it confirms


def test_rounds_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"as many tokens as the answer, 3; got lengths \[2\]"):
        jacobi.kinds([[1, 2]], [1, 2, 3])
    with pytest.raises(ValueError, match=r"rounds 0 ... 5; got 6"):
        jacobi.page(ROUNDS, ANSWER, shown, 6)


def test_the_page_names_every_cell_and_escapes_it():
    html = jacobi.page(ROUNDS, ANSWER, shown, 1)
    titles = re.findall(r'<td title="(\w+)"', html)
    assert titles == [kind for row in jacobi.kinds(ROUNDS, ANSWER)[:2] for kind in row]
    assert "&lt;dog&gt;" in html and "<dog>" not in html and "↵" in html
    assert "Round 1: 1 of 5 tokens settled, 2 more right ahead of their turn, of which 2 will be lost" in html


def test_the_figure_has_a_cell_for_every_token():
    with style.used():
        fig = jacobi.draw(ROUNDS, ANSWER, shown)
    (axes,) = fig.axes
    assert len(axes.patches) == 30
    assert [text.get_text() for text in axes.texts[:5]] == ["<dog>", "cat−", "<dog>", "on−", "<dog>"]


def test_a_move_of_the_slider_changes_the_page(monkeypatch):
    seen = []
    monkeypatch.setattr(jacobi, "show", lambda widget, static, description: seen.append((widget, static)))
    jacobi.player(ROUNDS, ANSWER, shown)
    [(widget, static)] = seen
    controls, out = widget.children
    before, slider = out.value, controls.children[1]
    slider.value = 4
    assert out.value != before and out.value == jacobi.page(ROUNDS, ANSWER, shown, 4)
    assert static == jacobi.page(ROUNDS, ANSWER, shown)
    assert np.all([word in static for word in ("Round 5: 5 of 5 tokens settled.", 'title="lost"')])
