"""benchmarks/replay.py: a method decoding against recorded answers takes the steps of a live run."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from specdec_core.core.contract import NullDrafter
from specdec_core.core.engine import generate
from specdec_core.core.toy import TableLM
from specdec_core.core.trace import Steps
from specdec_core.drafters import NGramDictionary, PromptLookup, SuffixDecoding

FILE = Path(__file__).parent.parent / "benchmarks" / "replay.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("replay_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("make", [NullDrafter, PromptLookup, NGramDictionary, lambda: SuffixDecoding(offset=3.0)])
def test_replayed_steps_are_the_live_steps(bench, make):
    """Two answers by one drafter, whose trees branch and are wrong now and then."""
    live, answers, traces, drafter = TableLM.random(6, order=2, seed=4), [], [], make()
    for i, prompt in enumerate(([0, 1, 2, 0, 1], [3, 0, 1, 2])):
        run = generate(live, prompt, drafter, max_new_tokens=50)
        traces.append(run.trace)
        answers.append({"id": str(i), "task": "t", "prompt": prompt, "tokens": list(run.tokens)})
    found, live = bench.by_task(answers, make())["t"], Steps.of(traces)
    assert (found.hit_rows, found.miss_rows, found.tokens) == (live.hit_rows, live.miss_rows, live.tokens)
    assert make is NullDrafter or found.tokens_per_call > 1


def test_the_table_by_hand(bench, tmp_path, monkeypatch, capsys):
    """After 1 2 3 1 comes 2 3 1 2: one draft of 2 3 1, all right, and one more token. 4 rows take 1 + 3 s."""
    answer = {"id": "x", "task": "t", "turn": 0, "prompt": [1, 2, 3, 1], "tokens": [2, 3, 1, 2]}
    (tmp_path / "a.json").write_text(json.dumps({"vocab_size": 5, "answers": [answer]}))
    words = ["--answers", str(tmp_path / "a.json"), "--tasks", "t", "--methods", "prompt_lookup,adaptive"]
    monkeypatch.setattr(sys, "argv", ["replay.py", *words, "--slopes", "0,1"])
    assert bench.main() == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("prompt", "adaptive"))]
    assert [row[0] for row in rows] == ["prompt_lookup", "adaptive"] * 2
    assert rows[0][1:] == ["4.00", "4.00"] and rows[2][1:] == ["1.00", "1.00"]
    assert float(rows[3][1]) >= 1.0, "where every row costs a step, it does not draft"


@pytest.mark.parametrize(
    "words, says",
    [(["--methods", "lookahead"], "which are not recorded"), (["--tasks", "math"], "has no answers to math")],
)
def test_what_cannot_be_replayed_is_refused(bench, tmp_path, monkeypatch, capsys, words, says):
    (tmp_path / "a.json").write_text(json.dumps({"vocab_size": 5, "answers": []}))
    monkeypatch.setattr(sys, "argv", ["replay.py", "--answers", str(tmp_path / "a.json"), *words])
    with pytest.raises(SystemExit):
        bench.main()
    assert says in capsys.readouterr().err
