"""The JSON record of a race: all that was measured, and all that is needed to measure it again.

It is meant to be published, so it names no host and no user: the home folder is written "~".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ..core.trace import Trace
from .results import DEFINITIONS, details, rows
from .rounds import Race

FORMAT = 1
STEP = ("context_length", "tokens", "drafted", "parents", "scratch", "accepted", "tested", "microseconds")


def compact(trace: Trace) -> dict[str, Any]:
    """`Trace.to_json` in a fraction of the room: each step a list of the fields named by `STEP`.

    ``tokens`` are the ones emitted, ``drafted`` those of the tree without its root, ``parents`` row numbers
    (null for a chain), ``tested`` pairs of row and acceptance probability, ``microseconds`` by phase.

    Example:
        >>> compact(Trace("autoregressive", 5))
        {'drafter': 'autoregressive', 'prompt_length': 5, 'prefill_seconds': 0.0, 'steps': []}
    """
    record = trace.to_json()
    return {**record, "steps": [_step(step) for step in record["steps"]]}


def _step(step: dict[str, Any]) -> list[Any]:
    tokens, parents = step["tree"]["tokens"], step["tree"]["parents"]
    is_chain = parents == list(range(-1, len(parents) - 1))
    return [
        step["context_length"],
        step["tokens"],
        tokens[1:],
        None if is_chain else parents,
        step["scratch"],
        step["accepted"],
        [[row, round(probability, 6)] for row, probability in step["tested"]],
        [round(1e6 * seconds) for seconds in step["seconds"].values()],
    ]


def make(
    race: Race,
    *,
    machine: dict[str, Any],
    model: dict[str, Any],
    settings: dict[str, Any],
    argv: Sequence[str],
    commit: dict[str, Any] | None,
    date: datetime,
) -> dict[str, Any]:
    """The record as plain types.

    Args:
        race: at least one round.
        machine: see `machine.describe`.
        model, settings: what was run; the caller knows.
        argv: the command line.
        commit: see `machine.commit`.
        date: when the race began.

    Returns:
        `rows` and `details` are described by `definitions`; `traces` holds every answer in the order in which
        they ran, with the fields of a step named by `step_fields`.
    """
    return {
        "format": FORMAT,
        "date": date.astimezone().isoformat(timespec="seconds"),
        "argv": list(argv),
        "commit": commit,
        "complete": race.complete,
        "late": race.late,
        "machine": machine,
        "model": model,
        "settings": settings,
        "definitions": {**DEFINITIONS, "peak_memory_bytes": race.memory},
        "rows": rows(race),
        "details": details(race),
        "step_fields": list(STEP),
        "traces": [_answer(r, name) for r in race.rounds for name in r.answers],
    }


def _answer(r, name: str) -> dict[str, Any]:
    answer = r.answers[name]
    return {
        "question": r.question,
        "task": r.task,
        "turn": r.turn,
        "repeat": r.repeat,
        "method": name,
        "prompt_tokens": len(r.prompt_ids),
        "tokens": list(answer.tokens),
        "seconds": round(answer.seconds, 6),
        "calls": answer.calls,
        "peak_memory_bytes": answer.peak_memory_bytes,
        "trace": json.loads(answer.trace) if answer.trace else None,
    }


def to_text(record: dict[str, Any]) -> str:
    """The record as JSON: indented, but one line an answer.

    Example:
        >>> print(to_text({"format": 1, "traces": [{"turn": 0}, {"turn": 1}]}))
        {
          "format": 1,
          "traces": [
            {"turn":0},
            {"turn":1}
          ]
        }
    """
    head = json.dumps({**record, "traces": []}, indent=2, allow_nan=False)
    lines = [json.dumps(trace, separators=(",", ":"), allow_nan=False) for trace in record["traces"]]
    body = ",\n    ".join(lines)
    return head.removesuffix("[]\n}") + f"[\n    {body}\n  ]\n}}"


def home_hidden(text: str) -> str:
    """`text` with the path of the home folder replaced by "~".

    Example:
        >>> home_hidden(str(Path.home() / "questions.jsonl")) == str(Path("~") / "questions.jsonl")
        True
    """
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text
