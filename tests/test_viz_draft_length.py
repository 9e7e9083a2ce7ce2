"""Tokens and speedup over the draft length: the curves are the theory's, the best length is marked, controls work."""

import pytest

from specdec_core.theory import best_gamma, expected_accepted, expected_tokens, speedup
from specdec_core.viz import draft_length


def drawn(alpha, gamma, c):
    left, right = draft_length.draw(alpha, gamma, c).axes
    return ({line.get_label(): line for line in axes.lines} for axes in (left, right))


def test_the_curves_are_the_formulas():
    left, right = drawn(0.7, 3, 0.2)
    assert left["output tokens"].get_ydata().tolist() == [expected_tokens(0.7, g) for g in range(17)]
    assert left["accepted drafts"].get_ydata().tolist() == [expected_accepted(0.7, g) for g in range(17)]
    assert set(left["ceiling 1/(1 − α)"].get_ydata()) == {1 / (1 - 0.7)}
    assert right["speedup"].get_ydata().tolist() == [speedup(0.7, g, 0.2) for g in range(17)]


@pytest.mark.parametrize(("alpha", "c"), [(0.8, 0.1), (0.5, 0.1), (0.1, 0.4), (1.0, 0.3)])
def test_star_and_ring_stand_where_they_should(alpha, c):
    _, right = drawn(alpha, 5, c)
    best = best_gamma(alpha, c, draft_length.LONGEST)
    assert right[f"best: γ = {best}"].get_xydata().tolist() == [[best, speedup(alpha, best, c)]]
    assert right["chosen: γ = 5"].get_xydata().tolist() == [[5, speedup(alpha, 5, c)]]


def test_a_draft_that_is_always_right_has_no_ceiling_and_no_longest():
    left, _ = drawn(1.0, 4, 0.1)
    assert not any("ceiling" in label for label in left)
    assert "γ = 16 or more" in draft_length.reading(1.0, 4, 0.1)


def test_each_control_changes_the_page(monkeypatch):
    from ipywidgets import Box

    seen, built = [], []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: seen.append(bundle["text/html"]))
    monkeypatch.setattr("ipywidgets.VBox", lambda children: built.append(children) or Box(children))
    draft_length.sliders(0.8, 4, 0.1)
    (rates, count, shown), (static,) = built[0], seen
    assert static == draft_length.page(0.8, 4, 0.1) + draft_length.page(0.8, 4, 0.8)
    for control, value in ((rates.children[0], 0.6), (rates.children[1], 0.25), (count, 7)):
        before = shown.value
        control.value = value
        assert shown.value != before
    assert shown.value == draft_length.page(0.6, 7, 0.25)
