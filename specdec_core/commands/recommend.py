"""`specdec recommend`: which method for these prompts on this machine, in words, a table and ready lines."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .options import add_model_arguments, add_sampling_arguments, minutes, natural, open_model, positive, sampling_of

if TYPE_CHECKING:
    from ..measure.costs import Costs
    from ..model.lm import CachedLM
    from ..race.recommendation import Advice
    from ..race.serving import Switches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "JSON Lines, in Spec-Bench's format or ours (default: the project's own prompts)"
    parser.add_argument("--questions", type=Path, metavar="FILE", help=text)
    parser.add_argument("--minutes", type=minutes, default=5.0, metavar="N", help="to spend (default: 5)")
    parser.add_argument(
        "--methods",
        metavar="LIST",
        help="to try, separated by commas (default: all that need no further files)",
    )
    parser.add_argument(
        "--max-new-tokens", type=positive, default=64, metavar="N", help="of an answer, at most (default: 64)"
    )
    parser.add_argument("--seed", type=natural, default=0, help="default: 0")
    add_sampling_arguments(parser)
    add_model_arguments(parser)
    where = parser.add_argument_group("results")
    where.add_argument("--out", type=Path, metavar="FILE", help="the answer as Markdown")
    where.add_argument("--json", type=Path, metavar="FILE", help="all that was measured")


def run(arguments: argparse.Namespace) -> int:
    from ..drafters.methods import check, split
    from ..race import own, read_questions
    from ..race.advice import ran
    from ..race.recommendation import INTERRUPTED, recommend
    from ..race.record import head

    date, begun = datetime.now(), perf_counter()
    for path in (arguments.out, arguments.json):
        if path is not None:
            _check_place(path)  # before minutes of measuring
    names = split(arguments.methods) if arguments.methods is not None else None
    check(names or ())
    questions = own() if arguments.questions is None else read_questions(arguments.questions)
    loaded, lm = open_model(arguments, release=True)
    costs = _costs(lm)
    advice = recommend(
        lm,
        questions,
        costs,
        seconds=max(0.0, 60 * arguments.minutes - (perf_counter() - begun)),
        names=names,
        max_new_tokens=arguments.max_new_tokens,
        sampling=(sampling := sampling_of(arguments)),
        seed=arguments.seed,
    )
    record = {**head(lm, arguments.argv, date), **_record(arguments.questions, advice), "costs": costs.to_json()}
    record["sampling"] = asdict(sampling)
    threads = record["model"]["threads"]
    place = f"{loaded.label}, {lm.execution.name}, {threads} thread{'s' * (threads > 1)}"
    _leave(arguments, advice, f"{place}; {ran(advice)}", record)
    return 130 if advice.stopped == INTERRUPTED else 0


def _costs(lm: CachedLM) -> Costs:
    """t(q): kept from before, or measured now."""
    from ..measure import costs, kept_costs

    if found := kept_costs.kept_or_none(lm):
        return found
    print("measuring t(q), the time of a forward over q tokens", file=sys.stderr)
    context = min(256, lm.max_length // 2)
    found = costs.measure_costs(lm, [q for q in costs.WIDTHS if context + q <= lm.max_length], context)
    kept_costs.keep(found, lm)
    return found


def engines(method: str) -> dict[str, Switches]:
    """The switches of serving engines for a method by name; none for one that they do not know of."""
    from ..drafters.methods import MethodError, parse, settings
    from ..race import switches

    try:
        return switches(parse(method)[0], settings(method))
    except MethodError:
        return {}


def _leave(arguments: argparse.Namespace, advice: Advice, caption: str, record: dict[str, Any]) -> None:
    """Print the answer, and write it to the files that were asked for."""
    from ..base.errors import SpecdecError
    from ..base.files import write
    from ..drafters.methods import BASELINE
    from ..race import ADVICE_COLUMNS, advice_rows, paragraph, tables
    from ..race.advice import LEGEND
    from ..race.record import home_hidden

    words, table = paragraph(advice), advice_rows(advice)
    ready = f"specdec generate --method {shlex.quote(advice.method)} PROMPT"
    found = engines(advice.method) if advice.method != BASELINE else {}
    shown = [words, f"  {ready}", tables.text(table, ADVICE_COLUMNS)]
    document = ["# Recommendation", words, f"```\n{ready}\n```", tables.markdown(table, ADVICE_COLUMNS)]
    if found:
        shown.append("In the switches of serving engines:")
        document.append("## Serving engines")
    for engine, it in found.items():
        title = f"{engine} {it.version}" + ("" if it.same else ", the nearest it has")
        note = [f"{it.note[0].upper()}{it.note[1:]}."] if it.note else []
        shown.append("\n  ".join([title, it.line, *note]))
        document += [f"**{title}**", f"```\n{it.line}\n```", " ".join([*note, f"Source: {it.source}."])]
    left_out = [home_hidden(f"left out: {name} ({why})") for name, why in advice.left_out.items()]
    print("\n\n".join([*shown, "\n".join([*left_out, LEGEND, caption])]))
    document += [*left_out, LEGEND, caption]
    files = {arguments.json: json.dumps(record, indent=2, allow_nan=False), arguments.out: "\n\n".join(document)}
    for path, content in files.items():
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, content + "\n")
        except OSError as error:
            raise SpecdecError(f"{path} could not be written ({error}); choose another place.") from error
        print(f"wrote {path}")


def _record(source: Path | None, advice: Advice) -> dict[str, Any]:
    from ..base.records import file_hash
    from ..drafters.methods import settings
    from ..race import paragraph
    from ..race.record import home_hidden

    def plain(value: Any) -> Any:
        """JSON has no infinity."""
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {
        "questions": {"source": source.name, "sha256": file_hash(source)} if source else {"source": "own"},
        "method": advice.method,
        "settings": settings(advice.method),
        "paragraph": paragraph(advice),
        "stopped": advice.stopped,
        "seconds": advice.seconds,
        "left_out": {name: home_hidden(why) for name, why in advice.left_out.items()},
        "passes": [
            {
                "methods": list(done.race.methods),
                "questions": list(dict.fromkeys(r.question for r in done.race.rounds)),
                "tokens": done.tokens,
                "repeats": done.repeats,
                "complete": done.race.complete,
            }
            for done in advice.passes
        ],
        "entries": [plain(asdict(entry)) for entry in advice.entries],
        "switches": {engine: asdict(it) for engine, it in engines(advice.method).items()},
    }


def _check_place(path: Path) -> None:
    """Refuse a place where no file can be written."""
    from ..base.errors import SpecdecError

    there = next(folder for folder in path.absolute().parents if folder.exists())
    if path.is_dir() or not there.is_dir() or not os.access(there, os.W_OK):
        raise SpecdecError(f"no file can be written at {path}; choose another place.")
