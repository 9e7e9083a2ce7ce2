"""A method and its settings, written in the switches of serving engines.

What was learned on one machine moves to an engine as one line. The names and types of the fields were read
from the sources and pages named in `WHERE`, at the versions named there; engines rename them, so the versions
are part of the answer. Where an engine lacks a method, its nearest one is given, and said to be only that.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..drafters.methods import BASELINE, MethodError
from ..drafters.methods import settings as all_settings

VLLM, SGLANG, TENSORRT, TRANSFORMERS = ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "transformers")

# engine -> (version read, the files of that release and the pages that were read)
WHERE = {
    VLLM: ("0.33.0", "vllm/config/speculative.py; "
           "https://docs.vllm.ai/en/stable/features/speculative_decoding/"),
    SGLANG: ("0.5.23", "sglang/srt/arg_groups/fields/spec.py, sglang/srt/speculative/ngram_worker.py; "
             "https://docs.sglang.io/docs/advanced_features/speculative_decoding"),
    TENSORRT: ("1.4.0rc4", "https://nvidia.github.io/TensorRT-LLM/1.4.0rc4/llm-api/reference.html and "
               "https://nvidia.github.io/TensorRT-LLM/1.4.0rc4/features/speculative-decoding.html"),
    TRANSFORMERS: ("5.24.0", "generation/configuration_utils.py, generation/candidate_generator.py; "
                   "https://huggingface.co/docs/transformers/main/en/assisted_decoding"),
}  # fmt: skip
# The TensorRT backend, which alone ran lookahead and Medusa, was removed after 1.2
# (tensorrt-backend-removal.md).
_ENGINE_BACKEND = (
    "1.2.0rc0",
    "https://nvidia.github.io/TensorRT-LLM/1.2.0rc0/index.html, tensorrt_llm/llmapi/llm_args.py; "
    "https://nvidia.github.io/TensorRT-LLM/examples/llm_lookahead_decoding.html",
)
_ONLY_BEFORE = "only in releases up to 1.2, whose TensorRT backend later ones removed"

# Methods that need files of their own: the names written out for them.
TRAINED = {"draft_model": "DRAFT_MODEL", "mtp": None, "eagle": "EAGLE_HEAD", "medusa": "MEDUSA_HEADS"}
_HEADS = 4  # of the Medusa that comes with this package


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


def switches(method: str, settings: Mapping[str, Any] | None = None) -> dict[str, Switches]:
    """The switches of every engine in `ENGINES` for a method.

    Args:
        method: a drafter's name without settings, or one of `TRAINED`.
        settings: as its drafter takes them; defaults where left out.

    Raises:
        MethodError: for a method that is not known here, or a setting that it does not take.

    >>> lines = switches("prompt_lookup", {"num_tokens": 5})
    >>> lines["transformers"].line
    'model.generate(**inputs, prompt_lookup_num_tokens=5, max_matching_ngram_size=3)'
    >>> lines["vLLM"].line.split(" --speculative-config ")[1]
    '\\'{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 1}\\''
    """
    s = _complete(method, dict(settings or {}))
    if method == "cascade":
        note = f"one method at a time: this is {s['first']} alone, without {s['second']} on a miss"
        return _inner(s["first"], note, {
            TENSORRT: "sa_config of Eagle3DecodingConfig puts a suffix automaton before a trained drafter",
        })  # fmt: skip
    if method == "adaptive":
        note = f"no choice by measured gain: this is {s['method']} alone"
        return _inner(s["method"], note, {
            VLLM: "num_speculative_tokens_per_batch_size sets the length by batch size",
            SGLANG: "--speculative-adaptive exists for EAGLE with --speculative-eagle-topk 1",
            TENSORRT: "acceptance_rate_window_size and acceptance_rate_threshold stop drafting for good",
        })  # fmt: skip
    made = (_vllm(method, s), _sglang(method, s), _tensorrt(method, s), _transformers(method, s))
    return dict(zip(ENGINES, made, strict=True))


def _complete(method: str, given: dict[str, Any]) -> dict[str, Any]:
    known = set(_LOOKUPS) | set(TRAINED) | {BASELINE, "cascade", "adaptive"}
    if method not in known:
        raise MethodError(f"no switches are known for {method!r}; known are: {', '.join(sorted(known))}.")
    defaults = all_settings(method)
    if unknown := [key for key in given if key not in defaults]:
        raise MethodError(
            f"{method} has no setting {', '.join(map(repr, unknown))}; it takes: {', '.join(defaults)}."
        )
    s = {**defaults, **given}
    if method == "lookahead" and s["G"] is None:
        s["G"] = s["W"]
    return _trained(method, s) if method in TRAINED else s


def _trained(method: str, s: dict[str, Any]) -> dict[str, Any]:
    """The settings of a trained drafter in the engines' terms: model, gamma, topk, nodes."""
    model = s.get("model") or TRAINED[method]  # ours are no weights for an engine
    gamma = {"eagle": s.get("depth"), "medusa": _HEADS}.get(method, s.get("num_tokens"))
    chain = s.get("tree", "chain") == "chain"
    nodes = (gamma if chain else s["total"]) + 1  # with the last token of the text
    return {**s, "model": model, "gamma": gamma, "topk": 1 if chain else s["top_k"], "nodes": nodes}


def _inner(method: str, note: str, more: dict[str, str]) -> dict[str, Switches]:
    return {
        engine: Switches(said.line, False, "; ".join(filter(None, (note, more.get(engine), said.note))),
                         said.version, said.source)
        for engine, said in switches(method).items()
    }  # fmt: skip


# How long a draft of each model-free method is, in tokens.
_LOOKUPS = {
    "prompt_lookup": lambda s: s["num_tokens"],
    "ngram": lambda s: s["num_tokens"],
    "suffix_decoding": lambda s: s["nodes"],
    "rest": lambda s: s["depth"],
    "lookahead": lambda s: s["N"] - 1,
    "jacobi": lambda s: s["m"],
}


def _vllm(method: str, s: dict[str, Any]) -> Switches:
    arctic = "needs pip install arctic-inference==0.1.1"
    config, same, note = {}, True, ""
    if method == "prompt_lookup":
        config = _vllm_ngram(s["num_tokens"], s["max_n"], s["min_n"])
        note = _differs(s, least=True)
    elif method == "suffix_decoding":
        config = _vllm_suffix(s["nodes"], s["depth"], s["max_requests"], s["factor"], s["min_prob"])
        note = f"{arctic}; drafts one path, not a tree"
    elif method == "ngram":
        config, same = _vllm_suffix(s["num_tokens"], s["num_tokens"] + s["max_n"], 0, 1.0, 0.1), False
        note = f"suffix decoding over this request alone counts continuations as well; {arctic}"
    elif method == "rest":
        config, same = _vllm_suffix(s["depth"], s["depth"] + s["max_n"], 10_000, 1.0, 0.1), False
        note = f"no datastore; suffix decoding remembers past answers, which fill in time; {arctic}"
    elif method in ("lookahead", "jacobi"):
        config, same = _vllm_ngram(_LOOKUPS[method](s), 3, 1), False
        note = f"no {method}; prompt lookup needs no files either"
    elif method == "medusa":
        config, same = _named("eagle", _complete("eagle", {})), False
        note = "Medusa was removed before this release; EAGLE is the trained head it has"
    elif method != BASELINE:
        config = _named(method, s)
    words = ["vllm", "serve", "MODEL"]
    words += ["--speculative-config", json.dumps(config)] if config else []
    return Switches(shlex.join(words), same, note, *WHERE[VLLM])


def _differs(s: dict[str, Any], least: bool, first: bool = True) -> str:
    """How an engine's prompt lookup differs from one with settings ``s``.

    Args:
        least: the engine can be told the least length of a match.
        first: of several matches it takes the first.
    """
    said = [] if least or s["min_n"] == 1 else [f"matches of fewer than {s['min_n']} tokens count as well"]
    if first != (s["match"] == "first"):
        said.append(f"of several matches the {'first' if first else 'last'} wins")
    return "; ".join(said)


def _vllm_ngram(tokens: int, longest: int, shortest: int) -> dict[str, Any]:
    # Both lengths, always: left alone, the other one would be set equal to it.
    lengths = {"prompt_lookup_max": longest, "prompt_lookup_min": shortest}
    return {"method": "ngram", "num_speculative_tokens": tokens} | lengths


def _vllm_suffix(tokens: int, depth: int, requests: int, factor: float, least: float) -> dict[str, Any]:
    return {
        "method": "suffix",
        "num_speculative_tokens": tokens,
        "suffix_decoding_max_tree_depth": depth,
        "suffix_decoding_max_cached_requests": requests,
        "suffix_decoding_max_spec_factor": float(factor),
        "suffix_decoding_min_token_prob": float(least),
    }


def _named(method: str, s: dict[str, Any]) -> dict[str, Any]:
    model = {"model": s["model"]} if s["model"] else {}
    return {"method": method, **model, "num_speculative_tokens": s["gamma"]}


def _sglang(method: str, s: dict[str, Any]) -> Switches:
    # The drafted tokens are counted with the last token of the context, which rides in the same forward.
    flags: dict[str, Any] = {}
    same, note = True, ""
    shared = (
        "its n-grams are shared by all requests, and learned at each step from the last max-trie-depth "
        "tokens, so that of a long prompt little enters"
    )
    if method in _LOOKUPS:
        tokens = _LOOKUPS[method](s)
        depth = s.get("max_n", 3) + tokens
        flags = {"algorithm": "NGRAM", "num-draft-tokens": tokens + 1, "ngram-max-trie-depth": depth}
        flags |= {"ngram-max-bfs-breadth": 1, "ngram-match-type": "BFS"}
        same, note = False, shared
    if method == "ngram":
        flags |= {"ngram-max-bfs-breadth": s["branches"], "ngram-match-type": "PROB"}
        flags |= {"ngram-capacity": s["max_keys"]}
        same = True
    elif method == "suffix_decoding":
        flags |= {"ngram-max-trie-depth": s["depth"], "ngram-max-bfs-breadth": 4, "ngram-match-type": "PROB"}
    elif method == "rest":
        flags |= {"num-draft-tokens": s["nodes"] + 1, "ngram-external-sam-budget": s["nodes"]}
        flags |= {"ngram-external-corpus-path": "CORPUS.jsonl"}
        same = True
        note = (
            "CORPUS.jsonl holds one JSON string a line, 10,000,000 tokens at most unless "
            "--speculative-ngram-external-corpus-max-tokens says more; a suffix automaton, not a suffix array"
        )
    elif method in ("lookahead", "jacobi"):
        note = f"no {method}; {shared}"
    elif method == "draft_model":
        flags = _sglang_model("STANDALONE", s["model"], s["gamma"], 1, s["nodes"])
    elif method == "mtp":
        flags = _sglang_model("NEXTN", None, s["gamma"], 1, s["nodes"])
        note = "for models that come with such a module"
    elif method in ("eagle", "medusa"):
        eagle = s if method == "eagle" else _complete("eagle", {})
        flags = _sglang_model("EAGLE", eagle["model"], eagle["gamma"], eagle["topk"], eagle["nodes"])
        same = method == "eagle"
        note = "EAGLE3 in place of EAGLE for a head of EAGLE-3"
        if not same:
            note = "no Medusa; EAGLE is the trained head it has"
    if flags.get("ngram-max-bfs-breadth", 1) > 1:
        note += "; a breadth above 1 with pages above 1 needs --attention-backend flashinfer"
    words = ["python3", "-m", "sglang.launch_server", "--model-path", "MODEL"]
    words += [word for key, value in flags.items() for word in (f"--speculative-{key}", str(value))]
    return Switches(shlex.join(words), same, note, *WHERE[SGLANG])


def _sglang_model(algorithm: str, model: str | None, steps: int, topk: int, tokens: int) -> dict[str, Any]:
    flags = {"algorithm": algorithm} | ({"draft-model-path": model} if model else {})
    return flags | {"num-steps": steps, "eagle-topk": topk, "num-draft-tokens": tokens}


def _tensorrt(method: str, s: dict[str, Any]) -> Switches:
    config, fields, same, note, where = "", {}, True, "", WHERE[TENSORRT]
    if method in ("prompt_lookup", "ngram"):
        config = "NGramDecodingConfig"
        oldest = s.get("match") == "first"
        fields = {"max_draft_len": s["num_tokens"], "max_matching_ngram_size": s["max_n"]}
        fields |= {"is_keep_all": True, "is_use_oldest": oldest, "is_public_pool": False}
        same = method == "prompt_lookup"
        note = _differs(s, least=False, first=oldest) if same else "one continuation, the newest; no counts"
    elif method in ("suffix_decoding", "rest"):
        config, same = "SADecodingConfig", False
        fields = {"max_draft_len": _LOOKUPS[method](s), "enable_global_pool": s.get("max_requests", 1) > 0}
        note = "a suffix automaton over this request and recent ones: longest match, one path, no counts"
        note += "; no datastore" if method == "rest" else ""
    elif method in ("lookahead", "jacobi"):
        w, n, g = (s["W"], s["N"], s["G"]) if method == "lookahead" else (s["m"], 2, 1)
        config, same, where = "LookaheadDecodingConfig", method == "lookahead", _ENGINE_BACKEND
        fields = {"max_window_size": w, "max_ngram_size": n, "max_verification_set_size": g}
        note = f"{_ONLY_BEFORE}; give it to SamplingParams(lookahead_config=...) as well"
        note += "" if same else "; with 2-grams its window is one Jacobi guess"
    elif method == "draft_model":
        config = "DraftTargetDecodingConfig"
        fields = {"max_draft_len": s["gamma"], "speculative_model": s["model"]}
    elif method == "mtp":
        config, fields = "MTPDecodingConfig", {"max_draft_len": s["gamma"]}
        note = "for models that come with such a module"
    elif method == "eagle":
        config = "Eagle3DecodingConfig"
        fields = {"max_draft_len": s["gamma"], "speculative_model": s["model"]}
        same, note = False, "runs heads of EAGLE-3 only, not of EAGLE or EAGLE-2"
    elif method == "medusa":
        config, where, note = "MedusaDecodingConfig", _ENGINE_BACKEND, _ONLY_BEFORE
        fields = {"max_draft_len": s["gamma"], "num_medusa_heads": s["gamma"]}
        fields |= {"speculative_model_dir": s["model"]}
    words = ", ".join(f"{key}={value!r}" for key, value in fields.items())
    line = f'LLM("MODEL", speculative_config={config}({words}))' if config else 'LLM("MODEL")'
    if config in ("NGramDecodingConfig", "DraftTargetDecodingConfig"):
        line = line[:-1] + ", disable_overlap_scheduler=True)"
    return Switches(line, same, note, *where)


def _transformers(method: str, s: dict[str, Any]) -> Switches:
    before, words, same, note = "", {}, True, ""
    if method in _LOOKUPS:
        words = {"prompt_lookup_num_tokens": _LOOKUPS[method](s)}
        words |= {"max_matching_ngram_size": s.get("max_n", 3)}
        same = method == "prompt_lookup"
        note = _differs(s, least=False) if same else f"no {method}; prompt lookup needs no files either"
    elif method == "mtp":
        words, note = {"use_mtp": True}, "for models that come with such a module"
    elif method != BASELINE:
        model = s if method == "draft_model" else _complete("draft_model", {})
        # Read from the assistant's own configuration; as arguments of generate() they would be ignored.
        schedule = 'num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0'
        before = f"draft.generation_config.update(num_assistant_tokens={model['num_tokens']}, {schedule}); "
        same, note = method == "draft_model", f"`draft` is the model loaded from {model['model']}"
        note += "" if same else f"; no {method}, a draft model is the nearest"
    more = ", assistant_model=draft" if before else ""
    more += "".join(f", {key}={value!r}" for key, value in words.items())
    return Switches(f"{before}model.generate(**inputs{more})", same, note, *WHERE[TRANSFORMERS])
