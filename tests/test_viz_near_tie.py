"""The near tie: what it says is what torch's formats store, and each control changes the page."""

import pytest
import torch

from specdec_core.theory import BITS
from specdec_core.viz import near_tie

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("format", BITS)
@pytest.mark.parametrize("shift", [-0.2, 0.0, 0.1])
@pytest.mark.parametrize("best", [4.0, 15.97, 20.3])
def test_stored_numbers_are_those_of_torch(best, shift, format):
    exact = torch.tensor([best, best - 0.04, best - 0.04 + shift], dtype=torch.float64)
    assert near_tie.stored(best, 0.04, shift, format) == tuple(exact.to(DTYPES[format]).tolist())


@pytest.mark.parametrize(("gap", "shift", "format", "words"), [
    (0.04, 0.06, "bfloat16", "an exact tie, and A wins by its lower id"),
    (0.04, 0.06, "bfloat16", "The token turns."),
    (0.04, 0.02, "bfloat16", "The token stays."),  # both round to the same number
    (0.04, 0.06, "float32", "The token turns."),  # a shift of this size turns a token in any format
    (0.04, 0.00001, "float32", "The token stays."),
    (0.04, -0.06, "bfloat16", "0.06 lower"),
])  # fmt: skip
def test_the_words_name_the_winner(gap, shift, format, words):
    assert words in near_tie.reading(20.3, gap, shift, format)


def test_the_figure_draws_the_numbers_of_a_coarse_format_and_counts_those_of_a_fine_one():
    coarse, fine = (near_tie.draw(20.3, 0.04, 0.06, format).axes[0] for format in ("bfloat16", "float32"))
    lines = [line.get_xdata()[0] for line in coarse.lines if line.get_color() == "#AAAAAA"]
    assert {20.25, 20.375} <= set(lines) and all(line * 8 == round(line * 8) for line in lines)
    assert not [line for line in fine.lines if line.get_color() == "#AAAAAA"] and "numbers" in fine.get_title("left")


def test_each_control_changes_the_page(monkeypatch):
    from ipywidgets import Box

    seen, built = [], []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: seen.append(bundle["text/html"]))
    monkeypatch.setattr("ipywidgets.VBox", lambda children: built.append(children) or Box(children))
    near_tie.slider(20.3, 0.04, 0.06)
    (first, second, shown), (static,) = built[0], seen
    assert static == "".join(near_tie.page(20.3, 0.04, 0.06, format) for format in ("bfloat16", "float32"))
    for control, value in ((first.children[0], 30.0), (first.children[1], 0.2),
                           (second.children[0], 0.1), (second.children[1], "float16")):  # fmt: skip
        before = shown.value
        control.value = value
        assert shown.value != before
    assert shown.value == near_tie.page(30.0, 0.2, 0.1, "float16")
