"""The player of a dynamic tree: each stage shows what is drafted by then, and its control changes the page."""

from __future__ import annotations

import base64
import math
import re

import pytest

from specdec_core.drafters import eagle
from specdec_core.viz import dynamic_tree
from specdec_core.viz.dynamic_tree import Growth

WORDS = [".", " the", " a", " <dog>", " cat", " ran", " sat"]
# Two rounds by hand: behind "." the (0.6), a (0.3); behind the: cat (0.5), dog (0.4); behind a: dog (0.9), cat (0.1).
GROWTH = Growth(
    tokens=(0, 1, 2, 4, 3, 3, 4),
    parents=(-1, 0, 0, 1, 1, 2, 2),
    values=(1.0, 0.6, 0.3, 0.3, 0.24, 0.27, 0.03),
    rounds=((0,), (1, 2)),
    kept=(1, 2, 3, 5),
    accepted=(2, 5),
)


def shown(token):
    return WORDS[token]


def drawn(html):
    (data,) = re.findall(r"base64,([^\"]+)", html)
    return base64.b64decode(data).decode()


def test_a_growth_is_read_from_what_the_drafter_records():
    logs = [math.log(value) for value in GROWTH.values]
    recorded = eagle.Growth(GROWTH.tokens, GROWTH.parents, tuple(logs), ((1, 2),), GROWTH.kept)
    made = Growth.of(recorded, path=(0, 2, 4))
    assert made.values == pytest.approx(GROWTH.values)
    assert (made.rounds, tuple(made.accepted)) == (GROWTH.rounds, GROWTH.accepted)
    assert not Growth.of(recorded).accepted


def test_stages_and_kinds_by_hand():
    assert dynamic_tree.stages(GROWTH) == [("draft", 1), ("choose", 1), ("draft", 2), ("rerank", 2), ("verify", 2)]
    found = [dynamic_tree.kinds(GROWTH, stage) for stage in range(5)]
    assert found[0] == ["read", "drafted", "drafted", "", "", "", ""]
    assert found[1] == ["read", "read", "read", "", "", "", ""]
    assert found[2] == ["read", "read", "read", "drafted", "drafted", "drafted", "drafted"]
    assert found[3] == ["kept", "kept", "kept", "kept", "dropped", "kept", "dropped"]
    assert found[4] == ["kept", "kept", "accepted", "kept", "dropped", "accepted", "dropped"]


def test_words_give_the_numbers():
    assert dynamic_tree.words(GROWTH, 0, shown) == "Round 1: 2 tokens are drafted behind the root."
    assert "behind 2 nodes, all in one forward" in dynamic_tree.words(GROWTH, 2, shown)
    assert "the least of them is worth 0.300" in dynamic_tree.words(GROWTH, 1, shown)
    assert "of 6 drafted tokens the 4 most valuable" in dynamic_tree.words(GROWTH, 3, shown)
    assert "= 2.47:" in dynamic_tree.words(GROWTH, 3, shown)  # 1 + 0.6 + 0.3 + 0.3 + 0.27
    assert dynamic_tree.words(GROWTH, 4, shown).startswith("The target accepts 2 of them, ' a <dog>'")


def test_children_stand_together_in_the_order_of_their_parents():
    at = dynamic_tree.places(GROWTH)
    assert [column for column, _ in at] == [0, 1, 1, 2, 2, 2, 2]
    assert [line for _, line in at[3:]] == [0, 1, 2, 3]
    assert at[0][1] == 1.5 and [line for _, line in at[1:3]] == [1, 2]


def test_the_picture_has_a_box_for_every_node_that_is_drafted_and_escapes_it():
    for stage in range(5):
        svg = drawn(dynamic_tree.page(GROWTH, stage, shown))
        seen = sum(bool(kind) for kind in dynamic_tree.kinds(GROWTH, stage))
        assert svg.count("<rect x=") == seen and svg.count("<path") == seen - 1
    assert "&lt;dog&gt; ✓" in svg and "<dog>" not in svg and "0.270" in svg


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": (1.0,)}, "have one length; got 7, 7, 1"),
        ({"values": (1.0, 0.6, 0.3, 0.3, 0.24, 0.27, 0.31)}, r"\[6\] are worth more"),
        ({"parents": (-1, 0, 0, 1, 1, 2, 6)}, "an earlier node each"),
        ({"kept": (1, 5)}, r"\[5\] do not"),
    ],
)
def test_what_is_no_tree_is_refused(change, message):
    parts = {name: getattr(GROWTH, name) for name in ("tokens", "parents", "values", "rounds", "kept")}
    with pytest.raises(ValueError, match=message):
        Growth(**{**parts, **change})


def test_a_stage_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match=r"stages 0 ... 4; got 5"):
        dynamic_tree.page(GROWTH, 5, shown)


def test_a_move_of_the_slider_changes_the_page(monkeypatch):
    seen = []
    monkeypatch.setattr(dynamic_tree, "show", lambda widget, static, description: seen.append((widget, static)))
    dynamic_tree.player(GROWTH, shown)
    [(widget, static)] = seen
    controls, out = widget.children
    before, slider = out.value, controls.children[1]
    slider.value = 4
    assert out.value != before and out.value == dynamic_tree.page(GROWTH, 4, shown)
    assert [f"Stage {i} of 4" in static for i in range(5)] == [False, True, False, True, True]
