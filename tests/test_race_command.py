"""`specdec race` from the command line: the files it leaves, its messages and its exit status."""

import json
import signal
import xml.etree.ElementTree as ElementTree
from dataclasses import fields
from pathlib import Path

import interrupts
import pytest
import tiny_model
import torch

from specdec_core.commands.cli import main
from specdec_core.race.results import Row

LOOKUP = "prompt_lookup"
PEERS = ["transformers:greedy", "transformers:prompt_lookup"]
PHASES = {"draft", "forward", "verify", "commit", "observe"}
ROW = {field.name for field in fields(Row)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def specdec(folder, tmp_path, monkeypatch, capsys):
    """Runs `specdec race` on the tiny model in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()

    def specdec(*arguments, model=folder):
        status = main(["race", "--model", str(model), "--dtype", "float32", "--device", "cpu", *arguments])
        return (status, *capsys.readouterr())

    yield specdec
    torch.set_num_threads(threads)


@pytest.fixture
def questions_file(tmp_path):
    path = tmp_path / "questions.jsonl"
    lines = [
        {"question_id": 81, "category": "writing", "turns": ["Hello", "Again"], "reference": []},
        {"question_id": 82, "category": "qa", "turns": ["Who?"]},
        {"question_id": 83, "category": "qa", "turns": ["Why?"]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def test_the_command_leaves_table_figure_and_record(specdec, questions_file, tmp_path):
    status, out, err = specdec(
        "--questions", questions_file, "--peer", "transformers", "--repeats", "2", "--max-new-tokens", "12",
        "--threads", "1", "--out", "results",
    )  # fmt: skip
    assert status == 0, err
    assert "float32 (as asked)" in err and "packed" in err and "100%" in err  # what was chosen, and progress
    files = {path.name: path for path in (tmp_path / "results").iterdir()}
    assert sorted(files) == ["race.json", "race.md", "race.png", "race.svg"]

    made = json.loads(files["race.json"].read_text())
    assert set(made) == {
        "format", "date", "argv", "commit", "complete", "late", "machine", "model", "settings", "definitions", "rows",
        "step_fields", "traces",
    }  # fmt: skip
    assert made["complete"] is True
    assert made["argv"][:2] == ["specdec", "race"] and made["argv"][-1] == "results"
    assert all(set(row) == ROW for row in made["rows"])
    places = [(row["task"], row["method"]) for row in made["rows"]]
    names = ["autoregressive", LOOKUP, *PEERS]
    assert places == [(task, name) for task in ("multi-turn conversation", "qa", "all") for name in names]
    assert all(row["identical"] is True and row["peak_memory_bytes"] > 1 << 20 for row in made["rows"])
    assert {name: bool(row["ms"]) for name, row in zip(names, made["rows"], strict=False)} == {
        "autoregressive": True, LOOKUP: True, PEERS[0]: False, PEERS[1]: False,
    }  # fmt: skip
    assert set(made["rows"][0]["ms"]) == PHASES
    assert len(made["traces"]) == 4 * 2 * 4
    settings = made["settings"]
    assert settings["questions"]["source"] == "questions.jsonl" and settings["questions"]["ids"] == [
        "81",
        "82",
        "83",
    ]
    assert len(settings["questions"]["sha256"]) == 64
    assert made["model"]["threads"] == 1 and settings["repeats"] == 2 and settings["seed"] == 0
    assert settings["methods"][LOOKUP] == {"num_tokens": 10, "max_n": 3, "min_n": 1, "match": "last"}
    assert settings["peers"][PEERS[1]]["max_matching_ngram_size"] == 3
    assert len(made["model"]["weights_hash"]) == 64 and made["model"]["dtype"] == "float32"
    assert set(made["machine"]["versions"]) == {"python", "torch", "transformers", "numpy", "specdec"}

    assert files["race.png"].read_bytes().startswith(b"\x89PNG")
    drawn = "".join(ElementTree.parse(files["race.svg"]).getroot().itertext())
    for said in ("float32 on cpu, 1 thread", "autoregressive", LOOKUP, *PEERS, "qa"):
        assert said in drawn
    table = files["race.md"].read_text().splitlines()
    assert "float32 on cpu, 1 thread" in table[0]
    assert len([line for line in table if line.startswith("|")]) == 2 + 12
    for word in ("tokens/call", "speedup", "identical", "transformers:prompt_lookup", "race.svg"):
        assert word in out


def test_the_record_goes_where_it_is_asked_to_and_hides_home(specdec, questions_file, tmp_path, monkeypatch):
    home = tmp_path / "home" / "somebody"
    home.mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: home)
    place = home / "deep" / "record.json"
    status, _, err = specdec(
        "--questions", questions_file, "--tasks", "qa", "--limit", "1", "--repeats", "1",
        "--max-new-tokens", "4", "--json", str(place),
        "--methods", f"{LOOKUP}:num_tokens=4,max_n=2,autoregressive",
    )  # fmt: skip
    assert status == 0, err
    text = place.read_text()
    assert "somebody" not in text
    made = json.loads(text)
    assert made["argv"][made["argv"].index("--json") + 1] == str(Path("~/deep/record.json"))
    assert made["settings"]["questions"]["ids"] == ["82"]
    assert [row["method"] for row in made["rows"]] == ["autoregressive", f"{LOOKUP}:num_tokens=4,max_n=2"] * 2
    (out,) = [path for path in tmp_path.iterdir() if path.name.startswith("race-")]
    assert sorted(path.name for path in out.iterdir()) == ["race.md", "race.png", "race.svg"]


def test_quick_is_one_question_a_task_of_the_own_prompts(specdec, tmp_path):
    status, _, err = specdec("--quick", "--tasks", "write,math", "--repeats", "1", "--out", "quick")
    assert status == 0, err
    made = json.loads((tmp_path / "quick" / "race.json").read_text())
    assert made["settings"]["questions"] == {"source": "own", "ids": ["write-01", "math-01"]}
    assert made["settings"]["max_new_tokens"] == 48
    assert {row["task"] for row in made["rows"]} == {"write", "math", "all"}


def test_minutes_end_a_race_between_rounds(specdec, questions_file, tmp_path):
    """No time at all: the one round that there must be. Not an error, but said."""
    status, out, err = specdec("--questions", questions_file, "--minutes", "1e-9", "--json", "a.json", "--repeats", "2")
    assert status == 0 and "specdec: the time was over" in err and "(out of time: incomplete)" in out
    made = json.loads((tmp_path / "a.json").read_text())
    assert (made["complete"], made["late"], made["settings"]["minutes"]) == (False, True, 1e-9)
    assert {(trace["repeat"], trace["turn"]) for trace in made["traces"]} == {(0, 0)}


@pytest.mark.parametrize("press", [interrupts.ctrl_c, interrupts.sigterm])
def test_an_interrupt_leaves_what_was_measured(specdec, questions_file, tmp_path, monkeypatch, press):
    before = signal.getsignal(signal.SIGTERM)
    interrupts.register(monkeypatch, nth=1 + 3, press=press)
    status, out, err = specdec(
        "--questions", questions_file, "--methods", "interrupts", "--max-new-tokens", "4", "--out", "part"
    )
    assert status == 130
    assert "interrupted" in err and "incomplete" in out
    made = json.loads((tmp_path / "part" / "race.json").read_text())
    assert made["complete"] is False
    assert len(made["traces"]) == 2 * 2
    assert sorted(path.name for path in (tmp_path / "part").iterdir()) == [
        "race.json", "race.md", "race.png", "race.svg",
    ]  # fmt: skip
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_before_anything_was_measured_leaves_nothing(specdec, questions_file, tmp_path, monkeypatch):
    interrupts.register(monkeypatch, nth=2)
    status, _, err = specdec("--questions", questions_file, "--methods", "interrupts", "--out", "none")
    assert status == 130 and "interrupted" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--methods", "lookup"], "no method 'lookup'; choose from: autoregressive, prompt_lookup"),
        (["--tasks", "sums"], "no task 'sums'; choose from: summarize, edit_code"),
        (
            ["--questions", "FILE", "--tasks", "math"],
            "has no task 'math'; choose from: multi-turn conversation, qa.",
        ),
        (["--questions", "missing.jsonl"], "missing.jsonl cannot be read"),
        (["--peer", "transformers", "--temperature", "0.5"], "--peer races greedy decoding"),
        (["--quick", "--max-new-tokens", "5000"], "may not fit the model's context of 4096 tokens"),
        (["--quick", "--json", "."], "choose others with --out and --json"),
    ],
)
def test_the_command_explains_what_it_cannot_do(specdec, questions_file, tmp_path, arguments, says):
    status, out, err = specdec(*(questions_file if word == "FILE" else word for word in arguments))
    assert status == 2
    assert says in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


@pytest.mark.parametrize(
    "option", [["--repeats", "0"], ["--temperature", "-1"], ["--threads", "two"], ["--seed", "x"]]
)
def test_the_command_refuses_numbers_out_of_range(specdec, option, capsys):
    with pytest.raises(SystemExit) as refused:
        specdec(*option)
    assert refused.value.code == 2
    assert "expected a" in capsys.readouterr().err
