"""The lookahead player: its mask is Figure 2(b)'s and the package's, its page says what a step did."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_lookahead import FIGURE_2B, POSITIONS_2B

from specdec_core.core.contract import Budget
from specdec_core.core.rng import Rng
from specdec_core.drafters import Lookahead
from specdec_core.viz import lookahead, style
from specdec_core.viz.lookahead import Frame


def figure_2b():
    """W = 5, N = 4, G = 2; tens are the level, or 8 and 9 for the candidates, units the position."""
    levels = tuple(tuple(10 * j + i + j for i in range(5)) for j in range(3))
    candidates = ((81, 82, 83), (91, 92, 93))
    made = (33, 34, 35, 36, 37)
    return Frame(levels, candidates, made, tuple(zip(*levels, made, strict=True)), (91, 92, 7), {0: [(1, 2, 3)]})


def shown(token):
    return f"<{token}>"


def test_mask_and_positions_are_figure_2b():
    rows = FIGURE_2B.strip().splitlines()
    expected = np.array([[mark == "1" for mark in row if mark != " "] for row in rows])
    tree = figure_2b().tree
    assert (tree.ancestors == expected).all()
    assert tree.depths.tolist() == POSITIONS_2B


@given(W=st.integers(1, 6), N=st.integers(2, 5), G=st.integers(1, 4), full=st.booleans())
def test_the_mask_is_the_packages(W, N, G, full):
    """Candidates that share nothing: the drafter's tree has the frame's rows, window full or filling."""
    count = N - 1 if full else 1
    width = W + N - 1 - count
    levels = [[0] + [100 + i for i in range(1, width)]] + [
        [200 + 10 * j + i for i in range(width)] for j in range(1, count)
    ]
    candidates = tuple(tuple(range(1000 * g, 1000 * g + N - 1)) for g in range(1, G + 1))
    drafter = Lookahead(W, N, G)
    drafter.levels, drafter.pool = [list(level) for level in levels], {0: dict.fromkeys(candidates)}
    tree = drafter.propose([0], Budget(drafter.max_nodes, 99), Rng(0))
    window = sum(map(len, levels))
    given = candidates[::-1][: (len(tree.tokens) - window) // (N - 1)]  # while it fills, the rows that are left
    frame = Frame(tuple(map(tuple, levels)), given, (), (), ())
    whole = window + len(given) * (N - 1)
    assert frame.tokens == tree.tokens[:whole].tolist()
    assert frame.parents == tree.parents[:whole].tolist()


def test_who_won():
    frame = figure_2b()
    assert frame.winner == 1
    assert Frame(frame.levels, frame.candidates, (), (), (7,)).winner is None
    assert Frame(frame.levels, (), (), (), (7,)).winner is None
    assert frame.groups == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 3 + [4] * 3


def test_the_page_shows_window_candidates_pool_and_mask():
    frame = figure_2b()
    html = lookahead.page([frame], 1, shown)
    assert "Step 1: 21 rows, 15 of them window; 2 candidates, 2 tokens accepted; 3 written." in html
    assert html.count('title="accepted"') == 2 and html.count('title="not accepted"') == 4
    assert html.count('title="new"') == 5 and html.count('title="input token"') == 1
    assert "&lt;91&gt;" in html and "<91>" not in html
    assert [int(n) for n in re.findall(r"<sub>(\d+)</sub>", html)] == POSITIONS_2B[:15] + [3, 4, 5, 6, 7]
    assert "N-grams in the pool after this step: 1, under 1 first tokens." in html
    data = re.search(r"base64,([^\"]+)", html)[1]
    svg = base64.b64decode(data).decode()
    assert svg.count("<rect") == 1 + int(frame.tree.ancestors.sum())  # and the background


def test_a_step_without_candidates_says_so():
    frame = Frame(((1, 2), (3, 4)), (), (5, 6), (), (7,))
    html = lookahead.page([frame], 1, shown)
    assert "no candidate; 1 written. 1 token in 1 forward so far." in html
    assert "No n-gram of the pool begins with <code>&lt;1&gt;</code>: an ordinary step." in html
    with pytest.raises(ValueError, match="steps 1 ... 1; got 2"):
        lookahead.page([frame], 2, shown)


def test_the_figure_fills_the_cells_that_are_seen():
    frame = figure_2b()
    with style.used():
        fig = lookahead.draw_mask(frame, shown)
    (axes,) = fig.axes
    filled = [patch for patch in axes.patches if patch.get_facecolor()[:3] != (1.0, 1.0, 1.0)]
    assert len(axes.patches) == 441 and len(filled) == frame.tree.ancestors.sum()
    assert axes.get_yticklabels()[15].get_text() == "<81>  1"


def test_a_move_of_the_slider_changes_the_page(monkeypatch):
    seen = []
    monkeypatch.setattr(lookahead, "show", lambda widget, static, description: seen.append((widget, static)))
    first, second = Frame(((1, 2), (3, 4)), (), (5, 6), (), (7,)), figure_2b()
    lookahead.player([first, second, second], shown, static=[1, 3])
    [(widget, static)] = seen
    controls, out = widget.children
    before = out.value
    controls.children[1].value = 2
    assert out.value != before and out.value == lookahead.page([first, second, second], 2, shown)
    assert before in static and "Step 3:" in static and "Step 2:" not in static
    with pytest.raises(ValueError, match="the run has no steps"):
        lookahead.player([], shown)
