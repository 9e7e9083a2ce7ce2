"""The JSON record of a race: all that was measured, and all that is needed to measure it again.

It is meant to be published, so it names no host and no user: the home folder is written "~".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from ..core.trace import FIELDS
from .results import DEFINITIONS, Race
from .rounds import Answer, Round

FORMAT = 2


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
        `rows` are described by `definitions`; `traces` holds every answer in the order in which they ran, with the
        fields of a step named by `step_fields`.
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
        "rows": [asdict(row) for row in race.rows],
        "step_fields": list(FIELDS),
        "traces": [_answer(r, name, answer) for r in race.rounds for name, answer in r.answers.items()],
    }


def _answer(r: Round, name: str, answer: Answer) -> dict[str, Any]:
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
        "trace": answer.trace.to_json() if answer.trace else None,
    }


def to_text(record: dict[str, Any]) -> str:
    """The record as JSON: indented, but one line per answer.

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
