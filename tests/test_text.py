"""Text that is not Unicode is refused where it comes in, by one line; sampling options are read alike."""

import argparse
import importlib
import json

import pytest
from model_free import Letters

from specdec_core import Sampling, Stop
from specdec_core.base.arguments import text
from specdec_core.base.errors import SpecdecError
from specdec_core.commands.cli import main
from specdec_core.commands.options import sampling_of
from specdec_core.model.chat import encode
from specdec_core.race.questions import parse_questions
from specdec_core.stores.texts import read_texts

HALVES = ["\ud83d", "\udc00", "caf\udce9", "both \ude00\ud83d", "\ud83d alone"]


class Chat(Letters):
    chat_template = None

    def __call__(self, written):
        return {"input_ids": [ord(character) for character in written]}


@pytest.mark.parametrize("half", HALVES, ids=ascii)
def test_half_a_surrogate_pair_is_refused_where_it_comes_in(half, tmp_path):
    place = next(i for i, character in enumerate(half, 1) if "\ud800" <= character <= "\udfff")
    document, question = tmp_path / "a.jsonl", {"id": "a", "task": "qa", "turns": ["Why?"]}
    document.write_text(f'"fine"\n{json.dumps({"text": half})}\n')
    for where, read in (
        ("x", lambda: text("x", half)),
        ("message 0 .user.", lambda: encode(half, Chat())),
        ("message 0 .system.", lambda: encode("Hi", Chat(), system=half)),
        ("message 1 .assistant.", lambda: encode(["Hi", "Why?"], Chat(), answers=[half])),
        ("a stop string", lambda: Stop(strings=["end", half], tokenizer=Letters())),
        (r".*a.jsonl, line 2", lambda: list(read_texts([document]))),
        (r"q, line 1: turn 1", lambda: parse_questions(json.dumps(question | {"turns": [half]}).encode(), "q")),
    ):
        with pytest.raises(SpecdecError, match=rf"^{where}: character {place} is '.*', which is no text; .*UTF-8$"):
            read()
    for field in ("id", "task"):
        with pytest.raises(SpecdecError, match="^q, line 1: the id or the task: character"):
            parse_questions(json.dumps(question | {field: half}).encode(), "q")


def test_a_whole_pair_is_text():
    assert text("x", json.loads('"\\ud83d\\ude00"')) == "\U0001f600"
    assert Stop(strings="\U0001f600", tokenizer=Letters()).strings == ("\U0001f600",)
    for value in (b"bytes", 3, None):
        with pytest.raises(ValueError, match="^x: expected text, got "):
            text("x", value)


@pytest.mark.parametrize("argv", [["generate", "caf\udce9"], ["datastore", "build", "\udcff"], ["--debug", "\ud800"],
                                  ["generate", "x", "--stop", "\udce9"], ["\udce9"]], ids=ascii)  # fmt: skip
def test_bytes_on_the_command_line_that_are_no_text_are_one_line(argv, capsys):
    assert main(argv) == 2
    place = next(i for i, word in enumerate(argv, 1) if not word.isascii())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"specdec: argument {place}: character ")


@pytest.mark.parametrize("command", ["generate", "race", "recommend"])
def test_every_command_that_samples_takes_every_setting_of_sampling(command):
    parser = argparse.ArgumentParser()
    importlib.import_module(f"specdec_core.commands.{command}").add_arguments(parser)
    assert sampling_of(parser.parse_args([])) == Sampling()
    given = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.3}
    given["presence_penalty"] = -0.5
    assert given.keys() == vars(Sampling()).keys() - {"processors"}, "a new setting needs an option"
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert sampling_of(parser.parse_args(words)) == Sampling(**given)
    wrong = {"temperature": "-1", "top_k": "2.5", "top_p": "0", "min_p": "1.5", "repetition_penalty": "0",
             "presence_penalty": "nan"}  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(SystemExit):
            parser.parse_args([f"--{name.replace('_', '-')}", value])


def test_a_peer_knows_no_penalties(capsys):
    for option in ("--temperature", "--presence-penalty"):
        assert main(["race", "--peer", "transformers", option, "1"]) == 2
        assert "leave --temperature at 0 and penalties off" in capsys.readouterr().err
