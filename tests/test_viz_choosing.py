"""Choosing: predicted speedups are tokens over time, batches use rows up, the page follows its controls."""

import math
import re

import pytest

from specdec_core.core.trace import Steps
from specdec_core.measure.costs import Costs
from specdec_core.viz import choosing, figures

TIMES = (1.0, 1.4)
PLAIN = Costs(0, 1, (1, 5), TIMES, TIMES, TIMES)
BATCHED = Costs(0, 1, (1, 5), TIMES, TIMES, TIMES, larger=(
    Costs(0, 1, (1, 5), (1.2, 3.0), (1.2, 3.0), (1.2, 3.0), batch=4),))  # fmt: skip
DRAFT = {"draft": 0.1}  # seconds
METHODS = {"chain": Steps({5: 10}, {}, 25, seconds=DRAFT, has_model=True), "lookup": Steps({5: 5}, {1: 5}, 15)}


def test_no_draft_is_no_gain_at_any_batch():
    nothing = Steps({}, {1: 7}, 7)
    assert [choosing.speedup(nothing, BATCHED, B) for B in (1, 4)] == pytest.approx([1, 1])


def test_tokens_over_time_by_hand():
    assert choosing.speedup(METHODS["chain"], PLAIN) == pytest.approx(2.5 / 1.5)
    assert choosing.speedup(METHODS["lookup"], PLAIN) == pytest.approx(1.5 / 1.2)
    assert choosing.speedup(METHODS["chain"], BATCHED, 4) == pytest.approx(2.5 / (3.0 / 1.2 + 0.1))


def test_a_search_is_made_for_one_sequence_after_the_other():
    search = Steps({5: 1}, {}, 2, seconds=DRAFT)
    assert choosing.speedup(search, BATCHED, 4) == pytest.approx(2 / (2.5 + 4 * 0.1 / 1.2))


def test_rows_of_different_sequences_share_a_forward():
    """On a straight line only the mean width counts, so the drawn batches come near it."""
    gain = choosing.speedup(METHODS["lookup"], BATCHED, 4)
    assert gain == pytest.approx(1.5 / ((1.2 + 3.0) / 2 / 1.2), rel=0.05)
    assert gain == choosing.speedup(METHODS["lookup"], BATCHED, 4)


def test_the_break_even_batch_of_a_roofline():
    """τ = 3 in 6 rows, ridge at 40: no loss up to B = τ R / q = 20."""
    costs = choosing.roofline(40, batches=(1, 4, 20, 21, 64))
    gains = [choosing.speedup(Steps({6: 1}, {}, 3), costs, B) for B in (1, 4, 20, 21, 64)]
    assert gains == pytest.approx([3, 3, 1, 20 / 21, 0.5])


def test_a_draft_keeps_its_price_on_a_roofline_in_the_seconds_of_another_machine():
    search = Steps({6: 1}, {}, 3, seconds={"draft": 0.5})
    assert choosing.speedup(search, choosing.roofline(40, t_1=2.0)) == pytest.approx(3 / 1.25)


def test_what_was_not_measured_is_left_out_and_said():
    assert math.isnan(choosing.speedup(Steps({9: 1}, {}, 3), PLAIN))
    methods = {**METHODS, "wide": Steps({9: 1}, {}, 3)}
    assert [name for name, _ in choosing.ranking(methods, PLAIN, 1)] == ["chain", "lookup"]
    assert "Of 1 the forward was not measured so wide." in choosing.reading("math", methods, PLAIN, 1)


def test_where_nothing_gains_it_says_so():
    words = choosing.reading("write", METHODS, BATCHED, 4)
    assert words == "write, B = 4: no method gains: decode without a draft. 0 of 2 methods gain."


def test_bars_are_ordered_and_losses_hatched():
    (axes,) = choosing.draw("edit_code", METHODS | {"bad": Steps({5: 1}, {}, 1)}, PLAIN, 1).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["chain", "lookup", "bad"]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, False, True]


def test_a_bar_that_neither_gains_nor_loses_looks_like_neither():
    methods = {"up": Steps({}, {1: 1}, 2), "even": Steps({}, {1: 1}, 1), "down": Steps({5: 1}, {}, 1)}
    (axes,) = choosing.draw("math", methods, PLAIN, 1).axes
    up, even, down = axes.patches
    assert [bool(bar.get_hatch()) for bar in (up, even, down)] == [False, False, True]
    assert up.get_facecolor() != even.get_facecolor()


def test_the_legend_of_the_table_stays_off_its_fields_and_the_caption():
    fig = choosing.table({("a", "x"): 1.5, ("b", "x"): 0.8})
    fig.text(0.01, -0.01, "small print", va="top")
    found = figures.svg(fig)
    words = ("a loss", "x", "1.50", "0.80", "small print")
    places = [float(re.search(rf' y="([\d.]+)"[^>]*>{word}<', found)[1]) for word in words]
    assert places == sorted(places) and places[1] - places[0] > 8


def test_the_table_has_each_number_and_frames_the_best():
    gains = {("a", "x"): 1.5, ("a", "y"): 0.8, ("b", "x"): 1.2, ("b", "y"): 0.9}
    (axes,) = choosing.table(gains).axes
    assert sorted(text.get_text() for text in axes.texts) == ["0.80", "0.90", "1.20", "1.50"]
    frames = [patch for patch in axes.patches if patch.get_linewidth() == 2]
    assert [frame.get_xy() for frame in frames] == [(0.03, 0.05)]  # of column y nothing gains
    assert sum(patch.get_hatch() is not None for patch in axes.patches) == 2


def test_each_control_changes_the_page(monkeypatch):
    from ipywidgets import Box

    seen, built = [], []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: seen.append(bundle["text/html"]))
    monkeypatch.setattr("ipywidgets.VBox", lambda children: built.append(children) or Box(children))
    recorded = {"math": METHODS, "edit_code": {"chain": METHODS["lookup"], "lookup": METHODS["chain"]}}
    machines = {"here": BATCHED, "roofline": choosing.roofline(40)}
    choosing.chooser(recorded, machines)
    (pair, machine, shown), (static,) = built[0], seen
    task, batch = pair.children
    assert static == choosing.page("math", METHODS, BATCHED, 1) + choosing.page("math", METHODS, BATCHED, 4)
    for control, value in ((batch, 4), (task, "edit_code"), (machine, "roofline")):
        before = shown.value
        control.value = value
        assert shown.value != before
    assert batch.value == 4 and max(size for size in batch.options) == 64
    assert shown.value == choosing.page("edit_code", recorded["edit_code"], machines["roofline"], 4)
