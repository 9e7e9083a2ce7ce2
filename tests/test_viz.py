"""Figures and widgets: what they say, what they write, and that a control changes what is shown."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from handmade import step

from specdec_core.core.engine import generate
from specdec_core.core.rules import clip
from specdec_core.core.toy import TableLM
from specdec_core.drafters import PromptLookup
from specdec_core.measure.costs import Costs
from specdec_core.viz import fallback, figures, forward_cost, style
from specdec_core.viz.replay import kinds, pieces, replay, replay_html

CYCLE = TableLM(np.roll(np.eye(5), 1, axis=1))  # token i is followed by i + 1
COSTS = Costs(256, 3, (1, 2, 8), (0.010, 0.010, 0.020), (0.009, 0.009, 0.018), (0.011, 0.011, 0.022))


class Words:
    def decode(self, ids, skip_special_tokens=False):
        return "".join(("a", "<b>", "\n", "\n    ", " e")[i] for i in ids)


def drawn():
    from matplotlib.figure import Figure

    with style.used():
        fig = Figure()
        fig.add_subplot().plot([1, 2], **style.line(1))
    return fig


def test_a_figure_is_written_only_while_the_book_is_built(tmp_path, monkeypatch):
    monkeypatch.delenv(figures.FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    figures.save(drawn(), "00-try", alt="a line that rises")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(figures.FOLDER, str(tmp_path))
    figures.save(drawn(), "00-try", alt="a line that rises & rises", quoted=["0.425 (arXiv:2402.02057)"])
    text = (tmp_path / "00-try.svg").read_text(encoding="utf-8")
    assert "<title>a line that rises &amp; rises</title>" in text
    assert "Quoted, not measured here: 0.425 (arXiv:2402.02057)." in text
    entry = json.loads((tmp_path / "00-try.json").read_text(encoding="utf-8"))
    assert entry["chapter"] == "00" and entry["model"] is None and entry["quoted"] == ["0.425 (arXiv:2402.02057)"]


def test_the_same_figure_gives_the_same_bytes():
    assert figures.svg(drawn(), "a line") == figures.svg(drawn(), "a line")


def test_a_figure_needs_a_chapter_and_words():
    with pytest.raises(ValueError, match="chapter-subject"):
        figures.save(drawn(), "try", alt="a line that rises")
    with pytest.raises(ValueError, match="what 00-try shows"):
        figures.save(drawn(), "00-try", alt="line")


def test_no_two_series_look_the_same_without_color():
    looks = {(str(look["linestyle"]), look["marker"]) for look in map(style.line, range(len(style.METHODS)))}
    assert len(looks) == len(style.METHODS)
    hatches = [style.bar(i)["hatch"] for i in range(len(style.HATCHES))]
    assert len(set(hatches)) == len(hatches)


@pytest.mark.parametrize(
    ("accepted", "tokens", "expected"),
    [
        ([], [4], ["correction"]),
        ([1], [1, 4], ["accepted", "correction"]),
        ([1, 2], [1, 2, 3], ["accepted", "accepted", "bonus"]),
        ([1, 2], [1], ["accepted"]),  # clipped by a stop
    ],
)
def test_kinds_of_a_chain(accepted, tokens, expected):
    made = step((1, 2), accepted)
    assert kinds(replace(made, emitted=clip(made.verdict, len(tokens)))) == expected


def test_scratch_rows_are_no_draft():
    assert kinds(step((1,), scratch=(1,))) == ["plain"]


def test_replayed_text_is_the_text_and_its_marks_stand_without_style():
    trace = generate(CYCLE, [0, 1, 2, 3, 4, 0], PromptLookup(num_tokens=2), max_new_tokens=9).trace
    tokens = [token for step in trace.steps for token in step.tokens]
    page = replay_html(trace, Words())
    answer = re.search(r"<pre[^>]*>(.*)</pre>", page, re.DOTALL)[1]
    plain = re.sub(r"<[^>]+>", "", answer).replace("↵", "").replace("&lt;", "<").replace("&gt;", ">")
    assert plain == Words().decode(tokens) == "".join(pieces(tokens, Words()))
    assert re.sub(r' (style|title)="[^"]*"', "", answer).startswith("<u>&lt;b&gt;\n</u><em>↵\n    </em>")
    with pytest.raises(ValueError, match="steps 1 ... 3; got 4"):
        replay_html(trace, Words(), step=4)


def shown(monkeypatch, act):
    """The widget that `act` displays, and its static page."""
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: seen.append(bundle))
    built = []
    monkeypatch.setattr("ipywidgets.VBox", lambda children: built.append(children) or fake_box(children))
    act()
    return built[0], seen[0]["text/html"]


def fake_box(children):
    from ipywidgets import Box

    return Box(children)


def test_a_step_of_the_replay_changes_the_page(monkeypatch):
    trace = generate(CYCLE, [0, 1, 2, 3, 4, 0], PromptLookup(num_tokens=2), max_new_tokens=9).trace
    (controls, page), static = shown(monkeypatch, lambda: replay(trace, Words()))
    before, slider = page.value, controls.children[1]
    slider.value = 3
    assert page.value != before and page.value == replay_html(trace, Words(), 3)
    assert static == replay_html(trace, Words())


def test_tokens_accepted_beyond_the_end_are_told_from_those_written():
    """Two steps draft two tokens each, all accepted; of the second draft only one is within the limit of four."""
    trace = generate(CYCLE, [0, 1, 2, 3, 4, 0], PromptLookup(num_tokens=2), max_new_tokens=4).trace
    assert "4 tokens, 3 of them drafted (1 more accepted beyond the end of the answer);" in replay_html(trace, Words())
    assert "2 of 2 accepted, 1 of them beyond the end of the answer:" in replay_html(trace, Words(), 2)
    assert "2 of 2 accepted:" in replay_html(trace, Words(), 1)


def test_a_move_along_t_of_q_changes_the_page(monkeypatch):
    (slider, page), static = shown(monkeypatch, lambda: forward_cost.slider(COSTS))
    assert page.value.startswith("<p><b>t(8) = 20.0 ms. All 7 drafts accepted: 2.5 ms per token.")
    slider.value = 2
    assert "It takes no longer than one row, so it cannot lose." in page.value
    assert "<td>2.00</td>" in static and static.count("<tr>") == 4


def test_a_draft_that_costs_more_than_it_can_yield_is_called_so():
    dear = Costs(0, 1, (1, 2), (0.010, 0.030), (0.0, 0.0), (0.0, 0.0))
    assert forward_cost.reading(dear, 2).endswith("Even so it loses: one by one, a token takes 10.0 ms.")
    assert "impossible" in forward_cost.table(dear)


def test_a_widget_is_shown_with_its_static_page(monkeypatch):
    import ipywidgets

    seen = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: seen.append(bundle))
    fallback.show(ipywidgets.IntSlider(), "<p>static</p>", "a slider")
    assert seen[0]["text/html"] == "<p>static</p>" and seen[0][fallback.VIEW]["model_id"]
