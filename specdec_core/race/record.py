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

import torch

from ..core.trace import FIELDS
from ..measure import machine
from ..model.lm import CachedLM
from .results import DEFINITIONS, Race
from .rounds import Answer, Round

FORMAT = 2


def head(lm: CachedLM, argv: Sequence[str], date: datetime) -> dict[str, Any]:
    """The first fields of every record: when and where it was made, by which command, with which model.

    Args:
        lm: made of a loaded model.
        argv: the command line, without the program's name.
        date: when it began.
    """
    loaded = lm.loaded
    return {
        "format": FORMAT,
        "date": date.astimezone().isoformat(timespec="seconds"),
        "argv": ["specdec", *map(home_hidden, argv)],
        "commit": machine.commit(),
        "machine": machine.describe(loaded.device),
        "model": {
            "name": home_hidden(loaded.name),
            "label": loaded.label,
            "architecture": type(loaded.model).__name__,
            "parameters": loaded.parameters,
            "weights_hash": loaded.weights_hash,
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "device": str(loaded.device),
            "why": loaded.why,
            "numerics": lm.numerics,
            "invariant_shape": asdict(lm.shape) if lm.shape else None,
            "execution": lm.why,
            "threads": torch.get_num_threads(),
            "stop_ids": sorted(loaded.stop_ids),
        },
    }


def body(race: Race, settings: dict[str, Any]) -> dict[str, Any]:
    """The other fields of a race's record, as plain types.

    Args:
        race: at least one round.
        settings: what was run; the caller knows.

    Returns:
        `rows` are described by `definitions`; `traces` holds every answer in the order in which they ran, with the
        fields of a step named by `step_fields`.
    """
    return {
        "complete": race.complete,
        "late": race.late,
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
