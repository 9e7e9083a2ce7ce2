"""The words of a recommendation, worked by hand; and `specdec recommend` from the command line."""

import json
from dataclasses import replace

import interrupts
import pytest
import tiny_model
import torch
from handmade import advised, done

from specdec_core.commands.cli import main
from specdec_core.core.contract import DrafterBase
from specdec_core.drafters import REGISTRY, methods
from specdec_core.drafters.methods import BASELINE
from specdec_core.measure.costs import Costs
from specdec_core.race import recommendation
from specdec_core.race.advice import paragraph
from specdec_core.race.recommendation import Advice

# Its words


def test_the_paragraph_says_what_how_sure_and_when_to_stop():
    last = done({"prompt_lookup:num_tokens=2": [0.5, 0.4, 0.5]}, tasks={"a": 1.0, "b": 0.5})
    words = paragraph(advised(last))
    assert words.startswith(
        "Use prompt_lookup:num_tokens=2. It gave 2.83 times the tokens per second of autoregressive"
    )
    assert "(2.83-3.54 over 3 repeats; prefill included), and 2.83 in decoding alone" in words
    assert "a draft in 100% of its steps; 1.00 tokens of a draft were accepted" in words
    assert "By task it went from 2.00 (a) to 4.00 (b)." in words
    # t(3) = t(1), and 10 us of other work in every step of both: a draft costs nothing.
    assert "predict 2.00" in words and words.endswith(
        "A draft costs next to nothing here: keep it on."
    )
    some = Costs(0, 1, (1, 3), (0.001, 0.0015), (0.001, 0.0015), (0.001, 0.0015))
    words = paragraph(advised(last, costs=some))
    # A step of 1.51 ms against 1.01 ms must give half a token more; with two drafted ones a + a^2 = 0.495.
    assert "hit rate" not in words and "Switch it off when fewer than 0.50 tokens" in words
    assert "a mean acceptance length of 1.50 in vLLM's count, 36% of the tokens tested" in words


@pytest.mark.parametrize(
    "least, says",
    [
        (
            0.0,
            "A step without a draft costs it nothing, so its hit rate may be any. Switch it off when fewer",
        ),
        (0.25, "Switch it off when the hit rate falls below 25.0% or fewer than 0.30 tokens of a draft"),
        (
            float("inf"),
            "Switch it off when fewer than 0.30 tokens of a draft are accepted on average (a mean",
        ),
    ],
)
def test_the_hit_rate_at_which_to_stop_is_named_where_there_is_one(least, says):
    entry = advised(done({"prompt_lookup": [0.5, 0.4, 0.5]})).best
    prediction = replace(entry.prediction, least_hit_rate=least, least_accepted=0.3, least_alpha=0.2)
    entry = replace(entry, steps=replace(entry.steps, miss_rows={1: 7}), prediction=prediction)
    assert paragraph(Advice(entry.method, [entry], {}, [], "", 1.0)).count(says) == 1


def test_the_paragraph_says_from_where_on_it_would_pay():
    dear = Costs(0, 1, (1, 3), (0.001, 0.003), (0.001, 0.003), (0.001, 0.003))
    words = paragraph(advised(done({"prompt_lookup": [1.5, 1.5, 1.5]}), costs=dear))
    assert words.startswith("Stay autoregressive. The fastest method, prompt_lookup, gave 0.67 times")
    assert "which is no gain; it gave 0.67 in decoding alone" in words
    # A step of 3.01 ms against 1.01 ms must give 1.98 tokens more.
    assert "It would pay here if more than 1.98 tokens of a draft are accepted on average" in words
    assert "a mean acceptance length of 2.98 in vLLM's count" in words and "it was 1.00" in words
    cheap = paragraph(advised(done({"prompt_lookup": [1.5, 1.5, 1.5]})))
    assert "it should pay; to see whether it does, give more --minutes." in cheap


def test_an_answer_measured_once_says_so():
    words = paragraph(advised(done({"prompt_lookup": [0.5]}), stopped="it was interrupted"))
    assert "(measured once, so its spread is not known; prefill included)" in words
    assert words.endswith("This rests on less than was planned: it was interrupted.")


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def specdec(folder, tmp_path, monkeypatch, capsys):
    """Runs `specdec recommend` on the tiny model in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    threads = torch.get_num_threads()
    (tmp_path / "questions.jsonl").write_text("\n".join(
        json.dumps({"question_id": i, "category": "qa", "turns": [text]})
        for i, text in enumerate(("Who?", "aabbaabb"))
    ))  # fmt: skip

    def specdec(*arguments, questions="questions.jsonl"):
        words = ["--model", str(folder), "--dtype", "float32", "--device", "cpu", "--threads", "1",
                 "--max-new-tokens", "8", "--minutes", "1e6", "--questions", questions]  # fmt: skip
        status = main(["recommend", *words, *arguments])
        return (status, *capsys.readouterr())

    yield specdec
    torch.set_num_threads(threads)


def test_the_command_answers_in_words_table_lines_and_files(specdec, tmp_path):
    status, out, err = specdec(
        "--methods", "prompt_lookup,suffix_decoding", "--json", "deep/a.json", "--out", "a.md"
    )
    assert status == 0, err
    assert "measuring t(q)" in err and "pass 3 of 3" in err
    made = json.loads((tmp_path / "deep" / "a.json").read_text())
    assert set(made) == {
        "format", "date", "argv", "commit", "machine", "model", "questions", "costs", "method", "settings", "sampling",
        "paragraph", "stopped", "seconds", "left_out", "passes", "entries", "switches",
    }  # fmt: skip
    assert made["settings"] == methods.settings(made["method"])
    assert made["questions"]["source"] == "questions.jsonl" and len(made["questions"]["sha256"]) == 64
    assert made["passes"][2]["repeats"] == 9 and made["passes"][2]["questions"] == ["0", "1"]
    assert list(made["switches"]) == ["vLLM", "SGLang", "TensorRT-LLM", "transformers"]
    document = (tmp_path / "a.md").read_text()
    for text in (out, document):
        assert made["paragraph"] in text
        assert f"specdec generate --method {made['method']} PROMPT" in text
        assert "speedup" in text and "hit rate" in text and "9 times" in text
        for entry in made["entries"]:
            assert entry["row"]["method"] in text
        shown = [said for said in made["switches"].values() if said["line"] in text]
        assert len(shown) == (0 if made["method"] == BASELINE else 4)

    _, _, err = specdec("--methods", "prompt_lookup")
    assert "measuring t(q)" not in err  # it was kept
    _, _, err = specdec("--methods", "prompt_lookup", "--execution", "eager")
    assert "measuring t(q)" in err  # the kept one was of another execution


def test_the_switches_of_the_chosen_method_are_shown(monkeypatch, specdec, tmp_path):
    chosen = advised(done({"prompt_lookup:num_tokens=3": [0.5, 0.4, 0.5]}))
    monkeypatch.setattr(recommendation, "recommend", lambda *_, **__: chosen)
    status, out, err = specdec("--out", "a.md")
    assert status == 0, err
    for text in (out, (tmp_path / "a.md").read_text()):
        assert '"num_speculative_tokens": 3' in text and "prompt_lookup_num_tokens=3" in text
        assert "SGLang 0.5.23, the nearest it has" in text and "vLLM 0.33.0\n" in text.replace("**", "")
    assert "Source: https://nvidia.github.io" in text


def test_a_drafter_of_ones_own_is_recommended_without_switches(monkeypatch, specdec, tmp_path):
    class Mine(DrafterBase):
        name = "mine"

    monkeypatch.setitem(REGISTRY, "mine", Mine)
    chosen = advised(done({"mine": [0.5, 0.4, 0.5]}))
    monkeypatch.setattr(recommendation, "recommend", lambda *_, **__: chosen)
    status, out, err = specdec("--json", "a.json")
    assert status == 0, err
    assert out.startswith("Use mine.") and "serving engines" not in out
    assert json.loads((tmp_path / "a.json").read_text())["switches"] == {}


def test_ctrl_c_leaves_an_answer_and_says_so(specdec, monkeypatch):
    interrupts.register(monkeypatch, nth=1 + 1 + 2 + 1 + 1)
    status, out, err = specdec("--methods", "interrupts")
    assert status == 130
    assert out.startswith("Stay autoregressive.") and "It never had a draft." in out
    assert "less than was planned: it was interrupted." in out


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--methods", "lookup"], "no method 'lookup'; choose from: autoregressive, prompt_lookup"),
        (["--questions", "empty.jsonl"], "empty.jsonl holds no question"),
        (["--questions", "missing.jsonl"], "missing.jsonl cannot be read"),
        (["--methods", "prompt_lookup", "--minutes", "1e-9"], "are too short"),
        (["--methods", "prompt_lookup", "--out", "."], "choose another place"),
    ],
)
def test_the_command_explains_what_it_cannot_do(specdec, tmp_path, arguments, says):
    (tmp_path / "empty.jsonl").write_text("\n")
    status, _, err = specdec(*arguments)
    assert status == 2 and says in err


@pytest.mark.parametrize("option", [["--minutes", "0"], ["--minutes", "nan"], ["--max-new-tokens", "0"]])
def test_the_command_refuses_numbers_out_of_range(specdec, option, capsys):
    with pytest.raises(SystemExit) as refused:
        specdec(*option)
    assert refused.value.code == 2
    assert "expected a" in capsys.readouterr().err
