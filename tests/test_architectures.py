"""`CachedLM` on the architectures of transformers: every row of a tree as a plain forward has it, or a refusal."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from drafters_for_tests import KINDS, Adversary
from tiny_models import LLAMA, MODELS, VOCAB, WINDOW, plain_logits, randomized, tiny

from specdec_core.base.errors import UnsupportedModel
from specdec_core.core.engine import generate
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.model.invariance import Shape
from specdec_core.model.lm import CachedLM

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import architectures

# transformers rounds the attention weights of Gemma 2 to float32 on the way; the others stay in float64.
TOLERANCE = {name: 1e-4 if name == "gemma2" else 1e-10 for name in MODELS}
NUMERICS = {
    "fast": dict(numerics="fast"),
    "invariant": dict(numerics="invariant", shape=Shape(32, 512)),
    "invariant, narrow": dict(numerics="invariant", shape=Shape(4, 8)),  # a tree takes several forwards
}


def small(config, **options):
    return lambda: randomized(hf.AutoModelForCausalLM.from_config(config(**options)))


def random_tree(rng, root, nodes=11):
    """Bushy below, deep on one side, and past the window of the sliding layers."""
    parents = [-1, *range(WINDOW + 2), *(int(rng.integers(i)) for i in range(WINDOW + 3, nodes + 1))]
    return DraftTree(np.array([root, *rng.integers(VOCAB, size=nodes)]), np.array(parents))


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", MODELS)
def test_every_row_of_a_tree_is_a_plain_forward_of_its_path(name, numerics):
    """Three trees in a row, a random path of each committed, from a prompt longer than the window."""
    model, rng = tiny(name), np.random.default_rng(1)
    lm = CachedLM(model, prefill_chunk=4, **NUMERICS[numerics])
    context = rng.integers(VOCAB, size=2 * WINDOW).tolist()
    lm.prefill(context[:-1])
    for _ in range(3):
        tree = random_tree(rng, context[-1])
        logits = lm.forward(tree).logits
        assert logits.shape == (len(tree.tokens), VOCAB)
        for i in range(len(tree.tokens)):
            expected = plain_logits(model, context[:-1] + tree.tokens[tree.path_to(i)].tolist())
            assert (logits[i] - expected).abs().max() <= TOLERANCE[name], f"row {i} of {tree}"
        path = tree.path_to(int(rng.integers(len(tree.tokens))))
        lm.commit(path)
        context += [*tree.tokens[path[1:]].tolist(), int(rng.integers(VOCAB))]
        assert lm.length == len(context) - 1


def test_a_mixture_of_experts_reads_a_tree_row_by_row():
    """In float32: torch's grouped products have no float64."""
    options = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW}
    model = small(hf.MixtralConfig, **options)().float()
    lm, context = CachedLM(model), list(range(3, 3 + 2 * WINDOW))
    lm.prefill(context[:-1])
    tree = random_tree(np.random.default_rng(4), context[-1])
    for i, row in enumerate(lm.forward(tree).logits):
        path = tree.tokens[tree.path_to(i)].tolist()
        torch.testing.assert_close(row, plain_logits(model, context[:-1] + path), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_forward_that_is_not_committed_leaves_nothing_behind(name):
    lm, rng = CachedLM(tiny(name)), np.random.default_rng(2)
    lm.prefill([3, 4, 5, 6])
    tree, other = random_tree(rng, 7), random_tree(rng, 8)
    first = lm.forward(tree).logits
    lm.forward(other)
    assert torch.equal(lm.forward(tree).logits, first)


@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_are_what_the_vocabulary_projection_reads(name):
    model = tiny(name)
    lm = CachedLM(model)
    lm.prefill([3, 4, 5, 6])
    out = lm.forward(random_tree(np.random.default_rng(3), 7), needs_hidden=True)
    logits = model.get_output_embeddings()(out.hidden)
    if softcap := getattr(model.config, "final_logit_softcapping", None):
        logits = softcap * torch.tanh(logits / softcap)
    torch.testing.assert_close(logits, out.logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_the_model_still_serves_its_own_generate_and_agrees(name):
    """Before, between and after: same greedy tokens as ours, past the window, and an untouched configuration."""
    model, prompt = tiny(name), [9, 8, 7, 6, 5, 4, 3]
    options = dict(max_new_tokens=3 * WINDOW, do_sample=False, eos_token_id=None, pad_token_id=0)
    config, implementation = model.config.to_dict(), model.config._attn_implementation

    def own():
        return model.generate(torch.tensor([prompt]), **options)[0, len(prompt) :].tolist()

    before = own()
    ours = generate(CachedLM(model), prompt, max_new_tokens=3 * WINDOW)
    assert list(ours.tokens) == before == own()
    assert model.config.to_dict() == config and model.config._attn_implementation == implementation


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", MODELS)
def test_no_greedy_output_changes_past_the_window(name, numerics):
    """Adversaries of every kind, against the model's own forwards over the whole text."""
    model, prompt = tiny(name), [9, 8, 7, 6]
    text = list(prompt)
    for _ in range(3 * WINDOW):
        text.append(int(plain_logits(model, text).argmax()))
    lm = CachedLM(model, prefill_chunk=4, **NUMERICS[numerics])
    for kind in KINDS:
        drafter = Adversary(kind, text, VOCAB, seed=3)
        assert generate(lm, prompt, drafter, max_new_tokens=3 * WINDOW, seed=3).tokens == tuple(text[4:]), kind


def test_one_object_decodes_one_prompt_after_another_and_grows():
    """A prompt longer than the room set aside for the last one, then a short one again."""
    lm = CachedLM(tiny("llama"))
    short = generate(lm, [5, 6], max_new_tokens=4).tokens
    assert generate(lm, list(range(1, 61)), max_new_tokens=30).tokens[-1] < VOCAB
    assert generate(lm, [5, 6], max_new_tokens=4).tokens == short


TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
REFUSED = {
    "MambaForCausalLM": (
        small(hf.MambaConfig, vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, **TOKENS),
        "cannot be rewound when a draft token is rejected",
    ),
    "RwkvForCausalLM": (
        small(hf.RwkvConfig, vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, **TOKENS),
        "cannot be rewound when a draft token is rejected",
    ),
    "Qwen3NextForCausalLM": (
        small(hf.Qwen3NextConfig, **{**LLAMA, "num_experts": 2, "head_dim": 8, "num_hidden_layers": 4,
              "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
              "linear_value_head_dim": 8, "moe_intermediate_size": 16}),
        "cannot be rewound when a draft token is rejected",
    ),
    "JambaForCausalLM": (
        small(hf.JambaConfig, **{**LLAMA, "num_experts": 2, "use_mamba_kernels": False, "num_hidden_layers": 8}),
        "cannot be rewound when a draft token is rejected",
    ),
    "Llama4ForCausalLM": (
        small(hf.Llama4TextConfig, **{**LLAMA, "num_local_experts": 2, "head_dim": 8, "intermediate_size_mlp": 16}),
        "cannot be rewound when a draft token is rejected",
    ),
    "T5ForConditionalGeneration": (
        lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(vocab_size=VOCAB, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=4)
        ).eval(),
        "a decoder-only causal language model is needed",
    ),
    "BloomForCausalLM": (
        small(hf.BloomConfig, vocab_size=VOCAB, hidden_size=16, n_layer=2, n_head=2, **TOKENS),
        "does not let its attention function be replaced",
    ),
    "LlamaModel": (
        lambda: hf.LlamaModel(hf.LlamaConfig(**LLAMA)).eval(),
        "load it with AutoModelForCausalLM",
    ),
    "LlamaForCausalLM": (
        lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)).train(),
        r"call model.eval\(\)",
    ),
    # A window in the mask that the layers do not tell; attention in both directions; positions counted from 2.
    "PhimoeForCausalLM": (
        lambda: small(hf.PhimoeConfig, **{**LLAMA, "num_local_experts": 2, "sliding_window": WINDOW})().float(),
        "should attend within windows of",
    ),
    "BertLMHeadModel": (
        small(hf.BertConfig, vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
              intermediate_size=16, **TOKENS),
        "decoder-only causal language model",
    ),
    "RobertaForCausalLM": (
        small(hf.RobertaConfig, vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
              intermediate_size=16, is_decoder=True, **TOKENS),
        "positions counted otherwise",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_case_06_a_model_that_cannot_be_rewound_or_read_is_refused_by_name(name):
    build, reason = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=f"^{name}.*{reason}"):
        CachedLM(build())


# Of the model types that benchmarks/architectures.py goes through, those that taught something.
JUDGED = {
    "llama": ("right", "packed|eager"), "persimmon": ("right", "eager"), "starcoder2": ("right", "eager"),
    "cohere2": ("right", "eager"), "exaone4": ("right", "eager"), "opt": ("right", "eager"),
    "olmoe": ("right", "eager"), "granite": ("right", "eager"), "modernbert-decoder": ("right", "eager"),
    "gemma3n_text": ("right", "eager"), "nanochat": ("right", "eager"), "got_ocr2": ("right", "eager"),
    "doge": ("refused", "adds a mask of its own"), "gpt_oss": ("refused", "s_aux"),
    "diffllama": ("refused", "should once|AttentionInterface"), "xmod": ("refused", "differ by|AttentionInterface"),
    "nemotron": ("refused", "hand keyword arguments on|AttentionInterface"),
    "stablelm": ("refused", "AttentionInterface"), "deepseek_v4": ("refused", "cannot be rewound"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", JUDGED)
def test_a_class_with_large_random_weights_gives_its_own_text_or_is_refused(name):
    if name not in architectures.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        pytest.skip(f"{hf.__version__} of transformers has no {name}")
    verdict, reason = JUDGED[name]
    found, said = architectures.judge(name)
    assert found == verdict and re.search(reason, said), said


def test_a_wrong_text_would_be_called_wrong(monkeypatch):
    """And so would be a crash: with a mask that hides nothing, and with attention that raises."""
    monkeypatch.setattr(architectures, "CachedLM", lambda model: TableLM.random(VOCAB, seed=1))
    monkeypatch.setattr(TableLM, "execution", architectures.argparse.Namespace(name="table"), raising=False)
    assert architectures.judge("llama")[0] == "WRONG"
    monkeypatch.setattr(architectures, "CachedLM", lambda model: model.nothing)
    assert architectures.judge("llama")[0] == "CRASHED"


BASE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=16, num_key_value_heads=4, n_routed_experts=4)
LATENT = dict(kv_lora_rank=8, q_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, n_group=1, topk_group=1)


@pytest.mark.parametrize("width", [6, 12, 16])
@pytest.mark.parametrize("config", [hf.DeepseekV2Config, hf.DeepseekV3Config])
def test_values_have_a_width_of_their_own(config, width):
    """Narrower than keys, as wide, and wider; in float32, since experts are not computed in float64."""
    options = dict(first_k_dense_replace=1, n_shared_experts=1, max_position_embeddings=96, v_head_dim=width)
    model = small(config, **BASE, **EXPERTS, **LATENT, **options)().float()
    lm, text = CachedLM(model), [9, 8, 7, 6]
    for _ in range(8):
        text.append(int(plain_logits(model, text).argmax()))
    right = text[4:8]
    draft = [[*right[:2], 3], [5, 5], right]
    lm.prefill(text[:3])
    tree = DraftTree.from_paths(text[3], draft)
    logits = lm.forward(tree).logits
    for row in range(len(tree.tokens)):
        path = text[:3] + tree.tokens[tree.path_to(row)].tolist()
        torch.testing.assert_close(logits[row], plain_logits(model, path), rtol=1e-4, atol=1e-4)
