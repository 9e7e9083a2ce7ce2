"""`specdec race`: methods x tasks, measured; leaves a table, a figure and a record."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import datetime
from errno import EISDIR
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import add_model_arguments, add_sampling_arguments, minutes, natural, open_model, positive, sampling_of

if TYPE_CHECKING:
    from ..model.loaded import LoadedModel
    from ..race import Contestant, Question, Row

QUICK = {"limit": 1, "max_new_tokens": 48}
USUAL = {"limit": None, "max_new_tokens": 128}
TRANSFORMERS, LLAMA_CPP = PEERS = ("transformers", "llama.cpp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--methods",
        default="autoregressive,prompt_lookup",
        metavar="LIST",
        help="separated by commas, with settings such as prompt_lookup:num_tokens=5,max_n=2 "
        "(default: autoregressive,prompt_lookup)",
    )
    parser.add_argument(
        "--peer",
        type=_peers,
        default=(),
        metavar="LIST",
        help="transformers: its own greedy and prompt-lookup generation, and its assisted one if draft_model is raced; "
        "llama.cpp (`pip install xllamacpp`): greedy, and its n-gram lookup if prompt_lookup is raced, by quantisation "
        "of the weights; or both, separated by a comma",
    )
    text = "the model for llama.cpp (default: the default model's own file, and the same weights in the race's dtype)"
    parser.add_argument("--gguf", type=Path, metavar="FILE", help=text)
    what = parser.add_argument_group("questions")
    text = "separated by commas; session and write_code, for methods that remember, run only if named "
    what.add_argument("--tasks", metavar="LIST", help=f"{text}(default: all others)")
    what.add_argument("--limit", type=positive, help="at most this many questions a task (default: all)")
    what.add_argument("--questions", type=Path, metavar="FILE", help="JSON Lines, in Spec-Bench's format or ours")
    what.add_argument("--quick", action="store_true", help="1 question a task, answers of 48 tokens")
    how = parser.add_argument_group("run")
    how.add_argument("--max-new-tokens", type=positive, metavar="N", help="of an answer (default: 128)")
    how.add_argument("--repeats", type=positive, default=3, metavar="N", help="of everything (default: 3)")
    how.add_argument(
        "--minutes",
        type=minutes,
        metavar="N",
        help="to spend at most; the questions then take turns "
        "by task, and what does not fit is left out (default: as long as it takes)",
    )
    how.add_argument("--seed", type=natural, default=0, help="default: 0")
    add_sampling_arguments(parser)
    add_model_arguments(parser)
    where = parser.add_argument_group("results")
    where.add_argument("--out", type=Path, metavar="FOLDER", help="default: race-DATE-TIME here")
    where.add_argument("--json", type=Path, metavar="FILE", help="the record's place (default: race.json in FOLDER)")


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not set(names) <= set(PEERS):
        raise argparse.ArgumentTypeError(f"{text!r}; expected {', '.join(PEERS)}, or both")
    return names


def run(arguments: argparse.Namespace) -> int:
    from ..base.extras import needs
    from ..measure.kept_costs import kept_or_none
    from ..race import compare, record
    from ..race.halving import in_turns

    needs("race", "ipywidgets", "matplotlib")  # now, rather than when the race is over
    date = datetime.now()
    for name, value in (QUICK if arguments.quick else USUAL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    methods, questions, source = _methods(arguments), *_questions(arguments)
    folder = arguments.out or Path(f"race-{date:%Y%m%d-%H%M%S}")
    made = _make_room(folder, arguments.json)
    try:
        loaded, lm = open_model(arguments, release=TRANSFORMERS not in arguments.peer)
        rivals = _rivals(arguments, methods, questions, loaded)
        sampling, costs = sampling_of(arguments), kept_or_none(lm)
        race = compare(
            lm,
            in_turns(questions) if arguments.minutes else questions,
            methods,
            max_new_tokens=arguments.max_new_tokens,
            repeats=arguments.repeats,
            sampling=sampling,
            seed=arguments.seed,
            rivals=rivals,
            costs=costs,
            seconds=60 * arguments.minutes if arguments.minutes else None,
            progress=True,
        )
        settings = {"questions": source, **_settings(arguments, methods, rivals)}
        settings |= {"sampling": asdict(sampling), "costs": costs.to_json() if costs else None}
        content = {**record.head(lm, arguments.argv, date), **record.body(race, settings)}
        return _leave(content, race.rows, folder, arguments.json)
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()


def _methods(arguments: argparse.Namespace) -> list[str]:
    from ..drafters.methods import check, split
    from ..race.bench import BenchError

    if LLAMA_CPP in arguments.peer:
        from ..race.peers_llama_cpp import module

        module()  # raises here and now if it is not installed
    elif arguments.gguf:
        raise BenchError("--gguf is for llama.cpp; add --peer llama.cpp.")
    sampling = sampling_of(arguments)
    if arguments.peer and (not sampling.greedy or sampling.penalizes):
        raise BenchError("--peer races greedy decoding; leave --temperature at 0 and penalties off.")
    return check(split(arguments.methods))


def _questions(arguments: argparse.Namespace) -> tuple[list[Question], dict[str, Any]]:
    """The questions, and where they come from."""
    from ..base.records import file_hash
    from ..race.questions import WorkloadError, read_questions
    from ..race.workloads import own

    tasks = None
    if arguments.tasks is not None:
        tasks = [task.strip() for task in arguments.tasks.split(",") if task.strip()]
    if arguments.questions is None:
        found = own(tasks, arguments.limit)
        return found, {"source": "own", "ids": [question.id for question in found]}
    everything = read_questions(arguments.questions)
    known = list(dict.fromkeys(question.task for question in everything))
    if unknown := [task for task in tasks or [] if task not in known]:
        names = ", ".join(map(repr, unknown))
        raise WorkloadError(f"{arguments.questions} has no task {names}; choose from: {', '.join(known)}.")
    found = []
    for task in known if tasks is None else tasks:
        found += [question for question in everything if question.task == task][: arguments.limit]
    source = {"source": arguments.questions.name, "sha256": file_hash(arguments.questions)}
    return found, {**source, "ids": [question.id for question in found]}


def _rivals(
    arguments: argparse.Namespace, methods: list[str], questions: list[Question], loaded: LoadedModel
) -> dict[str, Contestant]:
    """Contestants of transformers and of llama.cpp."""
    from ..race import peers, peers_llama_cpp
    from ..race.bench import BenchError, room

    rivals = peers.contestants(loaded, methods) if TRANSFORMERS in arguments.peer else {}
    if LLAMA_CPP not in arguments.peer:
        return rivals
    if loaded.device.type != "cpu":
        raise BenchError(f"llama.cpp is raced on the CPU, and the model is on {loaded.device}; add --device cpu.")
    files = peers_llama_cpp.files(arguments.model, str(loaded.dtype).removeprefix("torch."), arguments.gguf)
    context = max(room(question, loaded.tokenizer, arguments.max_new_tokens) for question in questions)
    return rivals | peers_llama_cpp.contestants(files, context, methods)


def _settings(arguments: argparse.Namespace, methods: list[str], rivals: dict[str, Contestant]) -> dict[str, Any]:
    from ..drafters.methods import settings
    from ..race.bench import WARMUP_TOKENS

    return {
        "methods": {name: settings(name) for name in methods},
        "peers": {name: rival.settings for name, rival in rivals.items()},
        "max_new_tokens": arguments.max_new_tokens,
        "repeats": arguments.repeats,
        "minutes": arguments.minutes,
        "seed": arguments.seed,
        "warmup_tokens": WARMUP_TOKENS,
    }


def _make_room(folder: Path, json_file: Path | None) -> bool:
    """Make the places of the results before an hour of measuring; True if `folder` is new."""
    from ..race.bench import BenchError

    try:
        if json_file is not None:
            if json_file.is_dir():
                raise IsADirectoryError(EISDIR, "it is a folder", str(json_file))
            json_file.parent.mkdir(parents=True, exist_ok=True)
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"no results can be left there ({error}); choose others with --out and --json.") from error
    return new


def _leave(content: dict[str, Any], rows: list[Row], folder: Path, json_file: Path | None) -> int:
    """Write the results, print the table, and return the exit status."""
    from ..base.files import write
    from ..race import peers_llama_cpp, record, tables
    from ..race.bench import BenchError
    from ..viz.race import caption, images, title

    table = tables.cells(rows)
    below, theirs = caption(content), content["settings"]["peers"]
    if engines := {name: about for name, about in theirs.items() if name.startswith(peers_llama_cpp.PREFIX)}:
        below = f"{below}\n{peers_llama_cpp.note(engines)}"
    document = f"# {title(content)}\n\n{tables.markdown(table)}\n\n{below}\n"
    files: dict[Path, str | bytes] = {json_file or folder / "race.json": record.to_text(content) + "\n"}
    try:
        # The record first: should anything below fail, the measurements are safe.
        write(*next(iter(files.items())))
        files |= {folder / "race.md": document}
        files |= {folder / f"race.{suffix}": image for suffix, image in images(content).items()}
        for path, data in files.items():
            write(path, data)
    except OSError as error:
        raise BenchError(f"the results could not be written ({error}). Make room, or choose --out.") from error
    print(f"{title(content)}\n\n{tables.text(table)}\n\n{below}\n")
    print("\n".join(f"wrote {path}" for path in files))
    if content["late"]:
        print("specdec: the time was over; these are the rounds that were complete", file=sys.stderr)
    elif not content["complete"]:
        print("specdec: interrupted; these are the rounds that were complete", file=sys.stderr)
        return 130
    return 0
