"""The switches of serving engines, against small schemas taken from their documentation and sources."""

import ast
import json
import shlex

import pytest
import tiny_model
import torch
from shipped import SHIPPED
from transformers import GenerationConfig

from specdec_core.drafters.methods import BASELINE, MethodError
from specdec_core.drafters.methods import settings as switches_settings
from specdec_core.race import serving
from specdec_core.race.serving import ENGINES, SGLANG, TENSORRT, TRAINED, TRANSFORMERS, VLLM, switches

METHODS = list(dict.fromkeys([*SHIPPED, *TRAINED]))

# vllm 0.33.0, vllm/config/speculative.py: SpeculativeMethod, and fields of SpeculativeConfig with their
# bounds.
VLLM_METHODS = {"ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "ngram_gpu", "dflash", "dspark"}
VLLM_FIELDS = {
    "method": (str, lambda x: x in VLLM_METHODS),
    "model": (str, bool),
    "num_speculative_tokens": (int, lambda x: x > 0),
    "prompt_lookup_max": (int, lambda x: x >= 1),
    "prompt_lookup_min": (int, lambda x: x >= 1),
    "suffix_decoding_max_tree_depth": (int, lambda x: x >= 1),
    "suffix_decoding_max_cached_requests": (int, lambda x: x >= 0),
    "suffix_decoding_max_spec_factor": (float, lambda x: x >= 0),
    "suffix_decoding_min_token_prob": (float, lambda x: 0 <= x <= 1),
}
# sglang 0.5.23, sglang/srt/arg_groups/fields/spec.py (a field x_y is the flag --x-y).
SGLANG_FIELDS = {
    "speculative-algorithm": {
        "EAGLE",
        "EAGLE3",
        "NEXTN",
        "STANDALONE",
        "NGRAM",
        "DFLASH",
        "DSPARK",
        "UNO",
    }.__contains__,
    "speculative-draft-model-path": bool,
    "speculative-num-steps": str.isdecimal,
    "speculative-eagle-topk": str.isdecimal,
    "speculative-num-draft-tokens": str.isdecimal,
    "speculative-ngram-min-bfs-breadth": str.isdecimal,
    "speculative-ngram-max-bfs-breadth": str.isdecimal,
    "speculative-ngram-match-type": {"BFS", "PROB"}.__contains__,
    "speculative-ngram-max-trie-depth": str.isdecimal,
    "speculative-ngram-capacity": str.isdecimal,
    "speculative-ngram-external-corpus-path": bool,
    "speculative-ngram-external-sam-budget": str.isdecimal,
}
# tensorrt-llm, nvidia.github.io/TensorRT-LLM/1.4.0rc4/llm-api/reference/<class>.html; the last two: 1.2.0rc0,
# whose LookaheadDecodingConfig and MedusaDecodingConfig are of the TensorRT backend.
_BASE = {"max_draft_len": int, "speculative_model": str}
_NGRAM = {"max_matching_ngram_size": int}
TENSORRT_FIELDS = {
    "NGramDecodingConfig": _BASE | _NGRAM | {
        "is_keep_all": bool, "is_use_oldest": bool, "is_public_pool": bool,
    },
    "SADecodingConfig": _BASE | _NGRAM | {"enable_global_pool": bool, "global_pool_size": int},
    "DraftTargetDecodingConfig": _BASE,
    "Eagle3DecodingConfig": _BASE | {"use_dynamic_tree": bool, "dynamic_tree_max_topK": int},
    "MTPDecodingConfig": _BASE,
    "LookaheadDecodingConfig": {
        "max_window_size": int, "max_ngram_size": int, "max_verification_set_size": int,
    },
    "MedusaDecodingConfig": {"max_draft_len": int, "speculative_model_dir": str, "num_medusa_heads": int},
}  # fmt: skip
TENSORRT_LLM_ARGUMENTS = {"speculative_config", "disable_overlap_scheduler"}


def vllm_config(line):
    words = shlex.split(line)
    assert words[:3] == ["vllm", "serve", "MODEL"]
    if not words[3:]:
        return {}
    flag, config = words[3:]
    assert flag == "--speculative-config"
    return json.loads(config)


def sglang_flags(line):
    words = shlex.split(line)
    assert words[:5] == ["python3", "-m", "sglang.launch_server", "--model-path", "MODEL"]
    assert all(flag.startswith("--") for flag in words[5::2])
    return {flag[2:]: value for flag, value in zip(words[5::2], words[6::2], strict=True)}


def tensorrt_config(line):
    """(class, its fields, the other arguments of LLM)"""
    call = ast.parse(line, mode="eval").body
    assert call.func.id == "LLM" and [argument.value for argument in call.args] == ["MODEL"]
    words = {word.arg: word.value for word in call.keywords}
    assert set(words) <= TENSORRT_LLM_ARGUMENTS
    config = words.pop("speculative_config", None)
    fields = {word.arg: ast.literal_eval(word.value) for word in config.keywords} if config else {}
    return config and config.func.id, fields, {key: ast.literal_eval(value) for key, value in words.items()}


def generate_words(line):
    """The keywords of generate(), and of the draft's configuration."""
    calls = [statement.value for statement in ast.parse(line).body]
    assert ast.unparse(calls[-1].func) == "model.generate"
    assert [ast.unparse(call.func) for call in calls[:-1]] in ([], ["draft.generation_config.update"])
    both = [{word.arg: word.value for word in call.keywords if word.arg} for call in (calls[-1], calls[0])]
    return both[0], both[1] if len(calls) > 1 else {}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_written_in_fields_that_the_engines_document(method):
    made = switches(method)
    assert list(made) == list(ENGINES)
    for engine, said in made.items():
        assert said.version and said.source.count("/") > 1
        plain = not any(word in said.line for word in ("specul", "prompt_lookup", "assistant", "mtp"))
        assert plain is (method == BASELINE), engine
        if not said.same:
            assert said.note  # what the line is instead

    config = vllm_config(made[VLLM].line)
    for key, value in config.items():
        kind, allowed = VLLM_FIELDS[key]
        assert type(value) is kind and allowed(value), (key, value)
    if config:
        assert {"method", "num_speculative_tokens"} <= set(config)
        assert config.get("prompt_lookup_min", 0) <= config.get("prompt_lookup_max", 0)

    flags = sglang_flags(made[SGLANG].line)
    for key, value in flags.items():
        assert SGLANG_FIELDS[key](value), (key, value)
    # arg_groups/speculative_hook.py, _handle_ngram: the corpus's budget and the node of the context share the
    # draft.
    budget = int(flags.get("speculative-ngram-external-sam-budget", 0))
    assert budget <= int(flags.get("speculative-num-draft-tokens", 1)) - 1
    if flags.get("speculative-algorithm") in ("STANDALONE", "NEXTN"):  # a chain: one step a token
        assert int(flags["speculative-num-draft-tokens"]) == int(flags["speculative-num-steps"]) + 1

    name, fields, _ = tensorrt_config(made[TENSORRT].line)
    for key, value in fields.items():
        assert type(value) is TENSORRT_FIELDS[name][key], (key, value)
        assert value or type(value) is bool

    words, draft = generate_words(made[TRANSFORMERS].line)
    known = GenerationConfig().to_dict()
    assert set(words) - {"assistant_model"} <= set(known) and set(draft) <= set(known)
    values = {
        key: ast.literal_eval(value) for key, value in (words | draft).items() if key != "assistant_model"
    }
    config = GenerationConfig(max_new_tokens=4, **values)
    config.validate(strict=True)


def test_prompt_lookup_by_name_and_value():
    made = switches("prompt_lookup", {"num_tokens": 5, "max_n": 4, "min_n": 2, "match": "first"})
    assert vllm_config(made[VLLM].line) == {
        "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
    }  # fmt: skip
    assert made[VLLM].note == ""
    flags = sglang_flags(made[SGLANG].line)
    assert (flags["speculative-algorithm"], flags["speculative-num-draft-tokens"]) == ("NGRAM", "6")
    assert flags["speculative-ngram-max-bfs-breadth"] == "1" and not made[SGLANG].same
    assert tensorrt_config(made[TENSORRT].line) == (
        "NGramDecodingConfig",
        {"max_draft_len": 5, "max_matching_ngram_size": 4, "is_keep_all": True, "is_use_oldest": True,
         "is_public_pool": False},
        {"disable_overlap_scheduler": True},
    )  # fmt: skip
    assert made[TRANSFORMERS].line.endswith("prompt_lookup_num_tokens=5, max_matching_ngram_size=4)")
    assert "fewer than 2 tokens" in made[TRANSFORMERS].note and "fewer than 2 tokens" in made[TENSORRT].note


def test_which_match_wins_is_said_where_the_engine_takes_another():
    last = switches("prompt_lookup")
    assert "the first wins" in last[VLLM].note and "the first wins" in last[TRANSFORMERS].note
    assert last[TENSORRT].note == "" and "is_use_oldest=False" in last[TENSORRT].line


def test_suffix_decoding_by_name_and_value():
    made = switches(
        "suffix_decoding", {"nodes": 8, "depth": 30, "factor": 2, "min_prob": 0.2, "max_requests": 0}
    )
    assert vllm_config(made[VLLM].line) == {
        "method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_max_tree_depth": 30,
        "suffix_decoding_max_cached_requests": 0, "suffix_decoding_max_spec_factor": 2.0,
        "suffix_decoding_min_token_prob": 0.2,
    }  # fmt: skip
    assert "arctic-inference" in made[VLLM].note
    assert tensorrt_config(made[TENSORRT].line)[:2] == (
        "SADecodingConfig", {"max_draft_len": 8, "enable_global_pool": False},
    )  # fmt: skip


def test_lookahead_keeps_its_three_numbers_where_it_exists_and_no_engine_has_jacobi():
    made = switches("lookahead", {"W": 4, "N": 3})
    fields = {"max_window_size": 4, "max_ngram_size": 3, "max_verification_set_size": 4}  # G is W by default
    assert tensorrt_config(made[TENSORRT].line)[:2] == ("LookaheadDecodingConfig", fields)
    assert made[TENSORRT].version == "1.2.0rc0" and "later ones removed" in made[TENSORRT].note
    assert [said.same for said in made.values()] == [False, False, True, False]
    assert not any(said.same for said in switches("jacobi").values())


def test_rest_finds_a_corpus_in_sglang_only():
    made = switches("rest", {"nodes": 12})
    flags = sglang_flags(made[SGLANG].line)
    assert flags["speculative-ngram-external-corpus-path"] == "CORPUS.jsonl"
    assert flags["speculative-ngram-external-sam-budget"] == "12"
    assert flags["speculative-num-draft-tokens"] == "13"
    assert [said.same for said in made.values()] == [False, True, False, False]


def test_combinations_are_said_to_be_their_first_part():
    cascade, lookup = switches("cascade"), switches("prompt_lookup")
    assert [said.line for said in cascade.values()] == [said.line for said in lookup.values()]
    assert not any(said.same for said in cascade.values())
    assert "without suffix_decoding on a miss" in cascade[VLLM].note
    adaptive = switches("adaptive", {"method": "ngram"})
    assert adaptive[TENSORRT].line == switches("ngram")[TENSORRT].line
    assert "acceptance_rate_threshold" in adaptive[TENSORRT].note


@pytest.mark.parametrize("method", [method for method in METHODS if method != "mtp"])
def test_transformers_runs_its_line_and_gives_the_greedy_tokens(method):
    model, draft = tiny_model.model(), tiny_model.model(seed=1)
    for it in (model, draft):
        it.generation_config.pad_token_id = 0
    inputs = {"input_ids": torch.arange(5).repeat(8)[None], "max_new_tokens": 16, "do_sample": False}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    names = {"model": model, "draft": draft, "inputs": inputs}
    greedy = model.generate(**inputs)
    *first, last = switches(method)[TRANSFORMERS].line.split("; ")
    for statement in first:
        exec(statement, names)
    assert torch.equal(eval(last, names), greedy)
    if first:
        assert draft.generation_config.num_assistant_tokens == switches_settings("draft_model")["num_tokens"]


@pytest.mark.parametrize(
    "method, settings, says",
    [
        ("lookup", {}, "no switches are known for 'lookup'; known are: adaptive"),
        ("prompt_lookup", {"tokens": 5}, "prompt_lookup has no setting 'tokens'; it takes: num_tokens"),
        ("draft_model", {"W": 5}, "draft_model has no setting 'W'; it takes: model, num_tokens"),
    ],
)
def test_unknown_methods_and_settings_are_refused(method, settings, says):
    with pytest.raises(MethodError, match=says):
        switches(method, settings)


def test_the_versions_read_are_named_with_pages():
    assert set(serving.WHERE) == set(ENGINES)
    assert all(version[0].isdigit() and "https://" in source for version, source in serving.WHERE.values())
