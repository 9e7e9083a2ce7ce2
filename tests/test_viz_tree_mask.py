"""The tree viewer: what it says of a row is what the package's mask says, and every row can be chosen."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.core.tree import DraftTree
from specdec_core.viz import style, tree_mask

TREE = DraftTree.from_paths(7, [[1, 2], [1, 3], [4, 2]])
NAMES = ["The", " cat", " sat", " <ran>", " dog", " sat"]


def images(html):
    return [base64.b64decode(data).decode() for data in re.findall(r"base64,([^\"]+)", html)]


@st.composite
def trees(draw):
    count = draw(st.integers(0, 12))
    parents = [-1] + [draw(st.integers(0, i)) for i in range(count)]
    return DraftTree(np.arange(count + 1), np.array(parents))


@given(tree=trees(), data=st.data(), committed=st.integers(0, 500))
def test_the_words_are_the_mask_and_the_position(tree, data, committed):
    row = data.draw(st.integers(0, tree.size))
    said = tree_mask.words(tree, [str(token) for token in tree.tokens], row, committed)
    seen = re.search(r"committed tokens and rows? ([\d, ]+?)(?:, not|\.)", said)[1]
    assert [int(i) for i in seen.split(", ")] == np.flatnonzero(tree.ancestors[row]).tolist()
    unseen = re.search(r"not rows? ([\d, ]+)\.", said)
    hidden = [int(i) for i in unseen[1].split(", ")] if unseen else []
    assert hidden == np.flatnonzero(~tree.ancestors[row]).tolist()
    assert said.endswith(f"= {committed + tree.depths[row]}.")


@given(tree=trees())
def test_no_two_rows_share_a_place_and_children_stand_right_of_parents(tree):
    places = tree_mask.layout(tree)
    assert len({tuple(place) for place in places.tolist()}) == len(places)
    assert all(places[i, 0] == places[tree.parents[i], 0] + 1 for i in range(1, len(places)))


def test_the_page_marks_path_and_mask_row():
    html = tree_mask.page(TREE, NAMES, 3, committed=9)
    tree, mask = images(html)
    assert "Its position is 9 + 2 = 11." in html and "&lt;ran&gt;" in tree and "<ran>" not in tree + html
    assert tree.count(f'fill="{tree_mask._PATH}"') == 3  # The, cat, ran
    filled = mask.count(f'fill="{tree_mask._PATH}"') + mask.count(f'fill="{tree_mask._CHOSEN}"')
    assert filled == 3 and mask.count("<rect") == 1 + int(TREE.ancestors.sum()) + 2
    with pytest.raises(ValueError, match="rows 0 ... 5; got 6"):
        tree_mask.page(TREE, NAMES, 6, committed=9)


def test_the_figure_fills_the_cells_that_are_seen():
    with style.used():
        fig = tree_mask.draw(TREE, NAMES)
    (axes,) = fig.axes
    cells = {(int(patch.get_y()), int(patch.get_x())) for patch in axes.patches}
    assert cells == set(map(tuple, np.argwhere(TREE.ancestors).tolist()))
    assert [text.get_text() for text in axes.get_yticklabels()][2] == "sat  2"


def test_a_move_of_the_slider_changes_the_page(monkeypatch):
    seen = []
    monkeypatch.setattr(tree_mask, "show", lambda widget, static, description: seen.append((widget, static)))
    tree_mask.viewer(TREE, lambda token: f"<{token}>", 9, static=[2, 5])
    [(widget, static)] = seen
    slider, out = widget.children
    assert (slider.min, slider.max, slider.value) == (0, 5, 2)
    before = out.value
    slider.value = 4
    assert out.value != before and "Row 4" in out.value
    assert "Row 2" in static and "Row 5" in static and "Row 4 " not in static
