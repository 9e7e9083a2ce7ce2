"""The hit-rate map: its numbers are the theory's, its line parts gain from loss, its controls change the page."""

import numpy as np
import pytest

from specdec_core.measure.costs import Costs
from specdec_core.theory import break_even_hit_rate, expected_accepted
from specdec_core.viz import hit_rate

TIMES = (0.010, 0.011, 0.012, 0.024)
COSTS = Costs(256, 3, (1, 2, 5, 17), TIMES, TIMES, TIMES)
FLAT = Costs(256, 3, (1, 17), (0.010, 0.010), (0.010, 0.010), (0.010, 0.010))


def test_a_map_of_numbers_is_a_number_at_each_point():
    x, y = np.meshgrid([0.0, 0.3, 1.0], [0.0, 0.5, 1.0])
    z = hit_rate.gain(COSTS, 4, x, y)
    assert z.shape == (3, 3)
    assert z[1, 1] == pytest.approx(hit_rate.gain(COSTS, 4, 0.3, 0.5))
    assert z[:, 0] == pytest.approx(1.0)  # no hit: ordinary decoding, whatever the regularity
    assert z[2, 2] == pytest.approx(5 / 1.2)
    assert z[0, 2] == pytest.approx(1 / 1.2)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("gamma", [1, 4, 10, 16])
@pytest.mark.parametrize("coverage", [0.2, 0.6, 1.0])
def test_on_the_line_nothing_is_won_or_lost(gamma, coverage, fixed):
    least = hit_rate.least_regularity(COSTS, gamma, coverage, fixed)
    assert 0 < least < 1
    assert hit_rate.gain(COSTS, gamma, coverage, least, fixed) == pytest.approx(1.0)
    assert hit_rate.gain(COSTS, gamma, coverage, least + 0.05, fixed) > 1
    assert hit_rate.gain(COSTS, gamma, coverage, least - 0.05, fixed) < 1


def test_the_line_is_level_unless_misses_cost():
    assert len({hit_rate.least_regularity(COSTS, 4, h) for h in (0.1, 0.5, 0.9)}) == 1
    falling = [hit_rate.least_regularity(COSTS, 4, h, fixed=True) for h in (0.0, 0.04, 0.1, 0.5, 0.9)]
    assert falling[:2] == [float("inf")] * 2  # 0.2 / 0.04 = 5 accepted tokens, of 4
    assert all(left > right for left, right in zip(falling[2:], falling[3:], strict=False))


def test_the_line_agrees_with_the_break_even_coverage():
    least = hit_rate.least_regularity(COSTS, 4, 0.3, fixed=True)
    t_hit = COSTS.t(5)
    assert break_even_hit_rate(expected_accepted(least, 4), t_hit, t_hit, COSTS.t(1)) == pytest.approx(0.3)


def test_a_free_forward_cannot_lose():
    assert hit_rate.least_regularity(FLAT, 16, 0.0, fixed=True) == 0.0
    assert hit_rate.gain(FLAT, 16, 0.5, 0.0) == 1.0
    assert "Break-even at this coverage: any r." in hit_rate.reading(FLAT, 16, 0.5, 0.0)


def test_what_is_out_of_reach_is_said():
    assert "out of reach" in hit_rate.reading(COSTS, 4, 0.01, 0.9, fixed=True)
    assert "100% of the steps at a miss, 1.20 t(1) each" in hit_rate.reading(COSTS, 4, 0.0, 0.9, fixed=True)


def test_the_figure_shows_line_point_and_tasks():
    fig = hit_rate.draw(COSTS, 4, 0.25, 0.75, points={"quote": (0.9, 0.8)})
    (axes,) = fig.axes
    drawn = {line.get_label(): line for line in axes.lines}
    assert drawn["the chosen point"].get_xydata().tolist() == [[0.25, 0.75]]
    assert drawn["quote"].get_xydata().tolist() == [[0.9, 0.8]]
    height = set(drawn["break-even: 1×"].get_ydata())
    assert height == {hit_rate.least_regularity(COSTS, 4, 0.5)}
    assert {text.get_text() for text in axes.get_legend().get_texts()} >= {"quote", "slower than no draft"}


def test_each_control_changes_the_page(monkeypatch):
    from ipywidgets import Box

    seen, built = [], []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: seen.append(bundle["text/html"]))
    monkeypatch.setattr("ipywidgets.VBox", lambda children: built.append(children) or Box(children))
    hit_rate.sliders(COSTS, {"quote": (0.9, 0.8)}, gamma=4, coverage=0.5, regularity=0.5)
    (rates, others, shown), (static,) = built[0], seen
    assert static == "".join(hit_rate.page(COSTS, 4, 0.5, 0.5, fixed, {"quote": (0.9, 0.8)}) for fixed in (False, True))
    for control, value in ((rates.children[0], 0.75), (rates.children[1], 0.25),
                           (others.children[0], 10), (others.children[1], True)):  # fmt: skip
        before = shown.value
        control.value = value
        assert shown.value != before
    assert shown.value == hit_rate.page(COSTS, 10, 0.75, 0.25, True, {"quote": (0.9, 0.8)})
