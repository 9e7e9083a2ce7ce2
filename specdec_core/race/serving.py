"""A method and its settings, written in the switches of serving engines.

What was learned on one machine moves to an engine as one line. The names and types of the fields were read
from the sources and pages named in `WHERE`, at the versions named there; engines rename them, so the versions
are part of the answer. Where an engine lacks a method, its nearest one is given, and said to be only that.
What each engine has for each method stands in ``serving.jsonl``, see `Cell`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from ..drafters.methods import BASELINE, MethodError, parse
from ..drafters.methods import settings as all_settings

VLLM, SGLANG, TENSORRT, TRANSFORMERS = ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "transformers")

# engine -> (version read, the files of that release and the pages that were read)
WHERE = {
    VLLM: (
        "0.33.0",
        "vllm/config/speculative.py; https://docs.vllm.ai/en/stable/features/speculative_decoding/",
    ),
    SGLANG: (
        "0.5.23",
        "sglang/srt/arg_groups/fields/spec.py, sglang/srt/speculative/ngram_worker.py; "
        "https://docs.sglang.io/docs/advanced_features/speculative_decoding",
    ),
    TENSORRT: (
        "1.4.0rc4",
        "https://nvidia.github.io/TensorRT-LLM/1.4.0rc4/llm-api/reference.html and "
        "https://nvidia.github.io/TensorRT-LLM/1.4.0rc4/features/speculative-decoding.html",
    ),
    TRANSFORMERS: (
        "5.24.0",
        "generation/configuration_utils.py, generation/candidate_generator.py; "
        "https://huggingface.co/docs/transformers/main/en/assisted_decoding",
    ),
}
# The TensorRT backend, which alone ran lookahead and Medusa, was removed after 1.2 (tensorrt-backend-removal.md).
_OLD_BACKEND = (
    "1.2.0rc0",
    "https://nvidia.github.io/TensorRT-LLM/1.2.0rc0/index.html, tensorrt_llm/llmapi/llm_args.py; "
    "https://nvidia.github.io/TensorRT-LLM/examples/llm_lookahead_decoding.html",
)

# Methods that need files of their own: the names written out for them.
TRAINED = {"draft_model": "DRAFT_MODEL", "mtp": None, "eagle": "EAGLE_HEAD", "medusa": "MEDUSA_HEADS"}
_HEADS = 4  # of the Medusa that comes with this package
# How long a draft of each model-free method is, in tokens.
_LOOKUPS = {
    "prompt_lookup": lambda s: s["num_tokens"],
    "ngram": lambda s: s["num_tokens"],
    "suffix_decoding": lambda s: s["nodes"],
    "rest": lambda s: s["depth"],
    "lookahead": lambda s: s["N"] - 1,
    "jacobi": lambda s: s["m"],
}


@dataclass(frozen=True)
class Switches:
    """One engine's way to say it.

    Attributes:
        line: ready but for the names in capitals: a shell command for vLLM and SGLang, Python for the others.
        same: whether the engine has this method; if not, the line is its nearest one.
        note: in what it differs, and what it needs; may be empty.
        version, source: of the engine, and what its fields were read from.
    """

    line: str
    same: bool
    note: str
    version: str
    source: str


@dataclass(frozen=True)
class Cell:
    """A line of ``serving.jsonl``: what one engine has for some methods.

    Attributes:
        same: whether it is this method.
        config: the class of TensorRT-LLM's configuration; "draft" where transformers is given a draft model.
        fields: field of the engine -> value; a text that names a setting (see `_complete`) stands for its value, and a
            field whose value is None is left out.
        defaults_of: take the default settings of that method, which the line is for, in place of the given ones.
        note: {names} of settings stand for their values; parts are separated by "; ", and empty ones left out.
    """

    engine: str
    methods: list[str]
    same: bool
    fields: dict[str, Any]
    config: str = ""
    defaults_of: str = ""
    note: str = ""


@cache
def _cells() -> dict[tuple[str, str], Cell]:
    lines = (files(__package__) / "serving.jsonl").read_text(encoding="utf-8").splitlines()
    cells = [Cell(**json.loads(line)) for line in lines]
    plain = {(engine, BASELINE): Cell(engine, [BASELINE], True, {}) for engine in ENGINES}
    return plain | {(cell.engine, method): cell for cell in cells for method in cell.methods}


def switches(method: str, settings: Mapping[str, Any] | None = None) -> dict[str, Switches]:
    """The switches of every engine in `ENGINES` for a method.

    Args:
        method: a drafter's name without settings, or one of `TRAINED`.
        settings: as its drafter takes them; defaults where left out.

    Raises:
        MethodError: for a method that is not known here, or a setting that it does not take.

    Example:
        >>> lines = switches("prompt_lookup", {"num_tokens": 5})
        >>> lines["transformers"].line
        'model.generate(**inputs, prompt_lookup_num_tokens=5, max_matching_ngram_size=3)'
        >>> lines["vLLM"].line.split(" --speculative-config ")[1]
        '\\'{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 1}\\''
    """
    s = _complete(method, dict(settings or {}))
    if method == "cascade":
        note = f"one method at a time: this is {s['first']} alone, without {s['second']} on a miss"
        automaton = "sa_config of Eagle3DecodingConfig puts a suffix automaton before a trained drafter"
        return _inner(s["first"], note, {TENSORRT: automaton})
    if method == "adaptive":
        more = {
            VLLM: "num_speculative_tokens_per_batch_size sets the length by batch size",
            SGLANG: "--speculative-adaptive exists for EAGLE with --speculative-eagle-topk 1",
            TENSORRT: "acceptance_rate_window_size and acceptance_rate_threshold stop drafting for good",
        }
        return _inner(s["method"], f"no choice by measured gain: this is {s['method']} alone", more)
    return {engine: _switches(engine, method, s) for engine in ENGINES}


def _inner(method: str, note: str, more: dict[str, str]) -> dict[str, Switches]:
    """The switches of one part of a combination, said to be only that."""
    return {
        engine: replace(it, same=False, note="; ".join(filter(None, (note, more.get(engine), it.note))))
        for engine, it in switches(*parse(method)).items()
    }


def _switches(engine: str, method: str, s: dict[str, Any]) -> Switches:
    cell = _cells()[engine, method]
    if cell.defaults_of:
        s = _complete(cell.defaults_of, {}) | {"name": method}
    fields = {key: s.get(value, value) if isinstance(value, str) else value for key, value in cell.fields.items()}
    fields = {key: value for key, value in fields.items() if value is not None}
    note = "; ".join(filter(None, cell.note.format_map(s).split("; ")))
    old = cell.config in ("LookaheadDecodingConfig", "MedusaDecodingConfig")
    line = _LINES[engine](cell, fields)
    return Switches(line, cell.same, note, *(_OLD_BACKEND if old else WHERE[engine]))


def _complete(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a method, and what follows from them in the engines' terms."""
    known = set(_LOOKUPS) | set(TRAINED) | {BASELINE, "cascade", "adaptive"}
    if method not in known:
        raise MethodError(f"no switches are known for {method!r}; known are: {', '.join(sorted(known))}.")
    defaults = all_settings(method)
    if unknown := [key for key in given if key not in defaults]:
        raise MethodError(f"{method} has no setting {', '.join(map(repr, unknown))}; it takes: {', '.join(defaults)}.")
    s = {"name": method, "max_n": 3, "min_n": 1, **defaults, **given}
    if method in _LOOKUPS:
        tokens = _LOOKUPS[method](s)
        s |= {"tokens": tokens, "rows": tokens + 1, "window": s["max_n"] + tokens}
    if method == "lookahead" and s["G"] is None:
        s["G"] = s["W"]
    if method == "prompt_lookup":
        few = f"matches of fewer than {s['min_n']} tokens count as well" if s["min_n"] > 1 else ""
        s |= {"oldest": s["match"] == "first", "short_count": few}
        s["first_wins"] = "" if s["oldest"] else "of several matches the first wins"
    elif method == "ngram":
        pages = "a breadth above 1 with pages above 1 needs --attention-backend flashinfer"
        s["pages"] = pages if s["branches"] > 1 else ""
    elif method == "suffix_decoding":
        s |= {"remembers": s["max_requests"] > 0, "factor": float(s["factor"]), "min_prob": float(s["min_prob"])}
    elif method == "rest":
        s["all_rows"] = s["nodes"] + 1
    elif method in TRAINED:
        gamma = {"eagle": s.get("depth"), "medusa": _HEADS}.get(method, s.get("num_tokens"))
        chain = s.get("tree", "chain") == "chain"
        s |= {"gamma": gamma, "topk": 1 if chain else s["top_k"], "rows": (gamma if chain else s["total"]) + 1}
        s["model"] = s.get("model") or TRAINED[method]  # ours are no weights for an engine
    return s


def _vllm(cell: Cell, fields: dict[str, Any]) -> str:
    return shlex.join(["vllm", "serve", "MODEL", *(["--speculative-config", json.dumps(fields)] if fields else [])])


def _sglang(cell: Cell, fields: dict[str, Any]) -> str:
    words = ["python3", "-m", "sglang.launch_server", "--model-path", "MODEL"]
    return shlex.join([*words, *(word for key, it in fields.items() for word in (f"--speculative-{key}", str(it)))])


def _tensorrt(cell: Cell, fields: dict[str, Any]) -> str:
    words = ", ".join(f"{key}={value!r}" for key, value in fields.items())
    plain = ", disable_overlap_scheduler=True" * (cell.config in ("NGramDecodingConfig", "DraftTargetDecodingConfig"))
    return f'LLM("MODEL", speculative_config={cell.config}({words}){plain})' if cell.config else 'LLM("MODEL")'


def _transformers(cell: Cell, fields: dict[str, Any]) -> str:
    words = "".join(f", {key}={value!r}" for key, value in fields.items())
    if not cell.config:
        return f"model.generate(**inputs{words})"
    # Read from the assistant's own configuration; as arguments of generate() they would be ignored.
    words = f'{words[2:]}, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0'
    return f"draft.generation_config.update({words}); model.generate(**inputs, assistant_model=draft)"


_LINES = {VLLM: _vllm, SGLANG: _sglang, TENSORRT: _tensorrt, TRANSFORMERS: _transformers}
