"""Every causal language model of transformers: do we give its own greedy text, or refuse it in words?

    python benchmarks/architectures.py
    python benchmarks/architectures.py --only doge,gpt_oss --seconds 120

Each class is built from a tiny configuration, with windows shorter than the text, and gets random weights so large that
masks, biases and learned sinks change the text. Its own `generate` writes the text; ours writes it with trees that
hold the right tokens among wrong siblings. One line a class, then the counts: right, refused (with the reason), not
built (transformers has no tiny model of it), WRONG, CRASHED. The last two must be 0; the exit status is 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import re
import sys
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specdec_core.base.errors import UnsupportedModel
from specdec_core.core.contract import DrafterBase
from specdec_core.core.engine import generate
from specdec_core.core.tree import DraftTree
from specdec_core.model.execution import packed
from specdec_core.model.lm import CachedLM

VOCAB, WINDOW, NEW = 61, 5, 24
VERDICTS = ("right", "refused", "not built", "WRONG", "CRASHED")
LARGEST = 20_000_000  # weights; a configuration that is not tiny for all the shrinking is not built
PROMPT = [9, 8, 7, 6, 5, 9, 8]
# What a field of a configuration becomes, by its name: the first pattern that is found in it.
SIZES: list[tuple[str, Any]] = [
    (r"vocab_size|^n_words$", VOCAB), (r"codebook_size", 64), (r"^(bos|decoder_start|forced_bos)_token_id$", 1),
    (r"^eos_token_id$", 2), (r"^pad_token_id$", 0), (r"^is_decoder$|^use_sliding_window$", True),
    (r"^(sliding|attention|local)_window(_size)?$|^window_size$", WINDOW),
    (r"max_.*position|^n_positions$|^n_ctx$|max_seq|context_length|^seq_length$", 128),
    (r"shared_layers$", 1), (r"max_window_layers", 2), (r"(layers|layer|blocks|depth)$", 4),
    (r"per_tok|^moe_topk?$|^moe_top_k$|^moe_k$|^top_k_experts$", 2), (r"group", 1),
    (r"shared_experts?$|dense_replace|num_dense", 1), (r"experts$", 4), (r"linear_num_", 2),
    (r"(kv|key_value|value)_heads$", 2), (r"^d_head$", 8), (r"heads?$", 4), (r"rope_head_dim|rotary_dim", 4),
    (r"head_(dim|size)|head_dim$|d_kv$|kv_channels", 8), (r"_rank$", 8),
    (r"hidden_size|^d_model$|^n_embd$|emb(ed)?_dim$|embedding_size|^(hidden_)?dim$|width$|^dim_model$|proj_dim$", 32),
    (r"intermediate|ffn|^d_ff$|^n_inner$|^d_inner$|^dim_ff$|mlp_dim|feed_forward", 48),
]
# Also where nothing is written by default.
FILLED = r"token_id$|^head_dim$|^num_key_value_heads$|^sliding_window$|experts$|per_tok$"
# Where keys and values come of a latent vector (kv_lora_rank).
LATENT = {"head_dim": None, "qk_head_dim": 12, "num_key_value_heads": 4}
# What is not a matter of size, by model type.
ROPE = {"rope_type": "default", "rope_theta": 1e4}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16}
MORE: dict[str, dict[str, Any]] = {
    "bamba": {**MAMBA, "attn_layer_indices": [1]}, "falcon_h1": {**MAMBA, "mamba_d_ssm": 64},
    "granitemoehybrid": {**MAMBA, "layer_types": ["mamba", "attention"] * 2}, "blenderbot": {"decoder_layers": 2},
    "mamba2": {"num_heads": 4, "head_dim": 16}, "jamba": {"num_hidden_layers": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]}, "xmod": {"default_language": "en_XX"},
    "cohere_compass_text": {"rope_parameters": {kind: ROPE for kind in ("full_attention", "sliding_attention")}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "dory": {"n_input_layers": 1, "n_recurrent_layers": 2, "n_output_layers": 1},
}


class Bushy(DrafterBase):
    """The right continuation, three deep, among wrong siblings: most trees are accepted in part."""

    name = "bushy"

    def __init__(self, text: list[int]):
        self.text = text

    def propose(self, context, budget, rng):
        made, parents, at = [context[-1]], [-1], 0
        for step, token in enumerate(self.text[len(context) : len(context) + min(3, budget.depth)]):
            wrong = [(token + 1) % VOCAB, (token + 7) % VOCAB]
            tokens = [wrong[0], token, wrong[1]] if (len(context) + step) % 4 else wrong
            parents += [at] * len(tokens)
            at = len(made) + 1
            made += tokens
        return DraftTree(made, parents)


def tiny_config(kind: type[PretrainedConfig], layers: int = 4) -> PretrainedConfig:
    """A configuration of this class whose sizes are tiny, those within it too."""
    default, options = kind(), {}
    written = default.to_dict()
    for name, value in written.items():
        if isinstance(value, dict) and isinstance(getattr(default, name, None), PretrainedConfig):
            options[name] = tiny_config(type(getattr(default, name)), layers)
            continue
        size = next((size for pattern, size in SIZES if re.search(pattern, name)), None)
        larger = isinstance(value, int) and size is not None and value > size
        if isinstance(value, bool) == isinstance(size, bool) and (larger or size is True or re.search(FILLED, name)):
            options[name] = layers if size == 4 and name.endswith(("layers", "layer")) else size
    if "kv_lora_rank" in written:
        options |= {name: LATENT[name] for name in LATENT if name in options}
    options = {name: value for name, value in options.items() if value is not None}
    return kind(**(options | MORE.get(kind.model_type, {})))


def tiny_model(name: str) -> PreTrainedModel:
    """The causal language model of a model type, with random weights.

    Raises:
        Exception: of whatever kind, where transformers cannot make one.
    """
    try:
        return _built(tiny_config(CONFIG_MAPPING[name]))
    except Exception:  # some have no layer of each kind among four
        return _built(tiny_config(CONFIG_MAPPING[name], layers=6))


def _built(config: PretrainedConfig) -> PreTrainedModel:
    with torch.device("meta"), contextlib.suppress(TypeError):  # some are not made there
        weights = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
        if weights > LARGEST:
            raise ValueError(f"{weights:,} weights")
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for scale in (1.0, 0.3, 0.1):
        enlarge(model, scale)
        if model(torch.tensor([PROMPT])).logits.isfinite().all():
            break
    return model


@torch.no_grad()
def enlarge(model: PreTrainedModel, scale: float = 1.0) -> None:
    """Random weights: matrices that a token feels each earlier one through, and no bias or mask of zeros."""
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            weight.normal_(0.0, 0.3 * scale, generator=generator)
        elif "norm" in name and name.endswith("weight"):
            weight.add_(torch.empty_like(weight).normal_(0.0, 0.1 * scale, generator=generator))
        else:
            weight.normal_(0.0, 0.5 * scale, generator=generator)


@torch.no_grad()
def own_text(model: PreTrainedModel) -> tuple[list[int], list[int] | None]:
    """The greedy continuation by whole forwards, and by transformers' `generate` where the class has one that runs."""
    text = list(PROMPT)
    for _ in range(NEW):
        text.append(int(model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    try:
        ids, options = torch.tensor([PROMPT]), dict(max_new_tokens=NEW, do_sample=False, eos_token_id=None)
        made = model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options)[0].tolist()
    except Exception:
        return text, None
    return text, made[len(PROMPT) :] if made[: len(PROMPT)] == PROMPT else made


def judge(name: str) -> tuple[str, str]:
    """One of `VERDICTS` on a model type, and what is to be said about it."""
    try:
        model = tiny_model(name)
        try:
            text, made = own_text(model.double())
        except RuntimeError:  # some products of a mixture of experts have no float64
            text, made = own_text(model.float())
    except Exception as error:
        return "not built", f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    verdict = compared(model, text, made)
    if verdict[0] == "right" and packed.unfit(model.float()) is None:
        verdict = compared(model, *own_text(model))
    return verdict


def compared(model: PreTrainedModel, text: list[int], made: list[int] | None) -> tuple[str, str]:
    try:
        lm = CachedLM(model)
        answer = generate(lm, PROMPT, Bushy(text), max_new_tokens=NEW)
    except UnsupportedModel as error:
        return "refused", str(error)
    except Exception as error:
        return "CRASHED", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    ours, said = list(answer.tokens), f"{lm.execution.name}, {answer.trace.tokens_per_call:.1f} tokens a call"
    if ours in (text[len(PROMPT) :], made):
        return "right", said + ("" if ours == made else f"; its own generate {'differs' if made else 'fails'}")
    at = next(i for i, (a, b) in enumerate(zip(ours, text[len(PROMPT) :], strict=True)) if a != b)
    return "WRONG", f"{said}; token {at} is {ours[at]}, not {text[len(PROMPT) + at]}"


def limited(name: str, seconds: float) -> tuple[str, str]:
    """`judge` in a process of its own, so that a crash or a hang ends only that one."""

    def work(pipe: Connection) -> None:
        pipe.send(judge(name))

    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=work, args=(theirs,))
    process.start()
    theirs.close()
    try:
        verdict = ours.recv() if ours.poll(seconds) else ("CRASHED", f"no answer within {seconds:g} seconds")
    except EOFError:
        verdict = ("CRASHED", "the process died")
    process.kill()
    process.join()
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="model types, by commas (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for one class (default: 60)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    names = arguments.only.split(",") if arguments.only else sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    counts: Counter[str] = Counter()
    for name in names:
        verdict, said = limited(name, arguments.seconds)
        counts[verdict] += 1
        print(f"{verdict:9}  {name} ({MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name]}): {said}", flush=True)
    print(f"transformers {transformers.__version__}: " + ", ".join(f"{counts[key]} {key}" for key in VERDICTS))
    return int(bool(counts["WRONG"] or counts["CRASHED"]))


if __name__ == "__main__":
    sys.exit(main())
