"""The executions against transformers' own forward: trees on tiny models, precision on the real one."""

import numpy as np
import pytest
import torch
import transformers as hf
from test_architectures import random_tree
from tiny_models import LLAMA, MODELS, VOCAB, plain_logits, randomized, tiny

from specdec_core.base.errors import UnsupportedModel
from specdec_core.core.engine import generate
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import PromptLookup
from specdec_core.model.batch import forward_together
from specdec_core.model.execution import Compiled, choose, packed
from specdec_core.model.hardware import native_bfloat16
from specdec_core.model.lm import CachedLM

STACKS = ("llama", "qwen2", "qwen3")
CPU_PACKS = torch.backends.mkldnn.is_available()
needs_onednn = pytest.mark.skipif(not CPU_PACKS, reason="this build of torch has no oneDNN")
needs_bfloat16 = pytest.mark.skipif(not native_bfloat16(), reason="this CPU does not compute bfloat16")


def float32(name, **changes):
    config, options = MODELS[name]
    return randomized(hf.AutoModelForCausalLM.from_config(config(**{**options, **changes}))).float()


def wrapped(model, execution, *settings, **options):
    """As `CachedLM`; what is compiled is only traced, because the kernels a compiler writes are torch's own matter."""
    if execution != "compiled":
        return CachedLM(model, execution, *settings, **options)
    lm = CachedLM(model, "eager", *settings, **options)
    lm.execution = Compiled(model, backend="eager")
    return lm


def largest_error(model, lm):
    """Over two trees, the first one committed along its longest path, from a prompt read in chunks."""
    rng = np.random.default_rng(1)
    context, worst = rng.integers(VOCAB, size=11).tolist(), 0.0
    lm.prefill(context[:-1])
    for _ in range(2):
        tree = random_tree(rng, context[-1])
        logits = lm.forward(tree).logits
        for i in range(len(tree.tokens)):
            expected = plain_logits(model, context[:-1] + tree.tokens[tree.path_to(i)].tolist())
            worst = max(worst, float((logits[i] - expected).abs().max() / expected.abs().max()))
        path = tree.path_to(int(tree.depths.argmax()))
        lm.commit(path)
        context += [*tree.tokens[path[1:]].tolist(), 5]
    return worst


@needs_onednn
@pytest.mark.parametrize("name", STACKS)
def test_packed_rows_are_plain_forwards(name):
    model = float32(name)
    assert largest_error(model, CachedLM(model, "packed", prefill_chunk=4)) < 1e-5


@pytest.mark.parametrize("name", STACKS)
def test_compiled_rows_are_plain_forwards(name):
    """Traced at padded widths."""
    model = float32(name)
    assert largest_error(model, wrapped(model, "compiled", prefill_chunk=4)) < 1e-5


RUNS = [("eager", "fast"), ("eager", "invariant"), ("compiled", "fast")]
RUNS += [pytest.param("packed", numerics, marks=needs_onednn) for numerics in ("fast", "invariant")]


@pytest.mark.parametrize("execution, numerics", RUNS)
def test_hidden_states_of_a_prompt_are_those_of_every_row(execution, numerics):
    """Read in chunks of four; then those of a tree. Asking for them leaves the logits as they are."""
    model = float32("llama")
    lm = wrapped(model, execution, numerics, prefill_chunk=4)
    ids, tree = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14], DraftTree.from_paths(7, [[1, 2], [1, 3], [4]])
    assert lm.prefill(ids) is None
    alone = lm.forward(tree)
    assert alone.hidden is None
    hidden = lm.prefill(ids, needs_hidden=True)
    with torch.no_grad():
        theirs = model.model(torch.tensor([ids])).last_hidden_state[0]
    assert hidden.shape == (10, LLAMA["hidden_size"])
    torch.testing.assert_close(hidden, theirs, rtol=1e-4, atol=1e-4)
    out = lm.forward(tree, needs_hidden=True)
    torch.testing.assert_close(out.logits, alone.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.lm_head(out.hidden), out.logits, rtol=1e-4, atol=1e-4)
    assert lm.prefill([], needs_hidden=True).shape == (0, LLAMA["hidden_size"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; none is here")
@pytest.mark.parametrize("execution", ("eager", "compiled"))
def test_on_a_gpu_rows_are_plain_forwards(execution):
    model = float32("llama").cuda()
    lm = CachedLM(model, execution, prefill_chunk=4)
    rng = np.random.default_rng(1)
    context = rng.integers(VOCAB, size=11).tolist()
    lm.prefill(context[:-1])
    tree = random_tree(rng, context[-1])
    logits = lm.forward(tree).logits.cpu()
    for i in range(len(tree.tokens)):
        ids = torch.tensor([context[:-1] + tree.tokens[tree.path_to(i)].tolist()], device="cuda")
        assert (logits[i] - model(ids).logits[0, -1].cpu()).abs().max() < 1e-3
    prompt = [5, 6, 7, 8] * 4
    assert generate(lm, prompt, PromptLookup()).tokens == generate(lm, prompt).tokens


@pytest.mark.parametrize("execution", ("eager", pytest.param("packed", marks=needs_onednn)))
def test_sequences_in_one_forward_are_forwards_of_their_own(execution):
    lm = CachedLM(float32("llama"), execution)
    lms, rng = [lm, lm.with_own_cache(), lm.with_own_cache()], np.random.default_rng(2)
    trees = [DraftTree.from_paths(7, [[1, 2], [1, 3], [4]]), DraftTree.empty(5), random_tree(rng, 9)]
    prompts = [[5, 6, 7, 8, 9], [9, 8], rng.integers(VOCAB, size=70).tolist()]
    for one, prompt in zip(lms, prompts, strict=True):
        one.prefill(prompt)
    for _ in range(2):  # the second time the cached rows are those of a batch
        alone = [one.forward(tree, needs_hidden=True) for one, tree in zip(lms, trees, strict=True)]
        for mine, shared in zip(alone, forward_together(lms, trees, needs_hidden=True), strict=True):
            torch.testing.assert_close(shared.logits, mine.logits, rtol=1e-5, atol=1e-4)
            torch.testing.assert_close(shared.hidden, mine.hidden, rtol=1e-5, atol=1e-4)
        for one in lms:
            one.commit([0])
    assert [one.length for one in lms] == [7, 4, 72]
    with pytest.raises(ValueError, match="share a model, not a cache"):
        forward_together([lm, lm], trees[:2])


def test_with_its_own_cache_a_model_leaves_the_first_one_alone():
    lm, tree = CachedLM(float32("llama")), DraftTree.chain(7, [1, 2])
    lm.prefill([5, 6, 7, 8, 9])
    before = lm.forward(tree).logits
    other = lm.with_own_cache()
    assert other.length == 0
    other.prefill([9, 8])
    other.forward(tree)
    other.commit([0, 1])
    assert (lm.length, other.length) == (5, 4)
    torch.testing.assert_close(lm.forward(tree).logits, before, rtol=0, atol=0)


def test_what_cannot_be_packed_is_run_eagerly_and_says_so():
    model = tiny("gpt2")
    execution, why = choose(model.float(), "auto")
    model.double()
    assert execution.name == "eager" and "GPT2LMHeadModel is not one of" in why
    with pytest.raises(UnsupportedModel, match="float64"):
        choose(tiny("llama"), "packed")
    with pytest.raises(ValueError, match="got 'fastest'"):
        choose(tiny("llama"), "fastest")
    windowed = randomized(hf.AutoModelForCausalLM.from_config(hf.MistralConfig(**LLAMA, sliding_window=5))).float()
    assert "sliding-window" in packed.unfit(windowed)


def test_compiled_does_not_claim_invariant_bits():
    with pytest.raises(UnsupportedModel, match="use 'packed' or 'eager'"):
        CachedLM(tiny("llama"), "compiled", numerics="invariant")


@needs_onednn
def test_releasing_frees_the_matrices_and_changes_no_token():
    model = float32("llama")
    kept = CachedLM(model, "packed")
    expected = generate(kept, [5, 6, 7], max_new_tokens=20).tokens
    before = sum(parameter.numel() for parameter in model.parameters())
    lm = CachedLM(model, "packed", release=True)
    assert generate(lm, [5, 6, 7], max_new_tokens=20).tokens == expected
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    left = sum(parameter.numel() for parameter in model.parameters())
    norms = sum(parameter.numel() for parameter in model.parameters() if parameter.ndim == 1)
    assert left == norms + VOCAB * LLAMA["hidden_size"] < before and (tied or model.lm_head.weight.numel() == 0)


@needs_onednn
@pytest.mark.parametrize("tied", [True, False])
def test_what_a_drafter_shares_outlives_the_matrices(tied, tmp_path):
    """Rows of the embedding and of the projection, held or read from the file; refused where they are nowhere."""
    config = hf.LlamaConfig(**LLAMA, tie_word_embeddings=tied)
    randomized(hf.LlamaForCausalLM(config)).float().save_pretrained(tmp_path)
    model, ids = hf.LlamaForCausalLM.from_pretrained(tmp_path), torch.tensor([0, VOCAB - 1, 7])
    rows, head = model.model.embed_tokens.weight[ids].clone(), model.lm_head.weight[ids].clone()
    for execution, release in (("eager", False), ("packed", False), ("compiled", False), ("packed", True)):
        lm = wrapped(model, execution, release=release)
        assert torch.equal(lm.execution.embed(ids), rows) and torch.equal(lm.execution.head_rows(ids), head)
        assert torch.equal(rows, head) == tied
    alone = randomized(hf.LlamaForCausalLM(config)).float()  # loaded from nowhere
    lm = CachedLM(alone, "packed", release=True)
    assert torch.equal(lm.execution.embed(ids), rows)
    if tied:
        assert torch.equal(lm.execution.head_rows(ids), head)
    else:
        with pytest.raises(UnsupportedModel, match="wrap the model with release=False"):
            lm.execution.head_rows(ids)


@needs_onednn
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bfloat16)])
def test_a_released_embedding_is_read_from_the_file(dtype, tmp_path):
    """Tied to the vocabulary projection it would be held twice; rounded, the rows are those of the loaded model."""
    randomized(hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, tie_word_embeddings=True))).float().save_pretrained(tmp_path)
    model = hf.LlamaForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    kept, expected = CachedLM(model, "packed"), model.model.embed_tokens.weight.clone()
    lm = CachedLM(model, "packed", release=True)
    rows = torch.tensor([0, VOCAB - 1, 7, 7])
    assert torch.equal(lm.execution.stack.embed(rows), expected[rows])
    assert all(parameter.numel() <= LLAMA["hidden_size"] for parameter in model.parameters())
    answers = [generate(one, [5, 6, 7], PromptLookup(), max_new_tokens=20).tokens for one in (kept, lm)]
    assert answers[0] == answers[1]


@needs_onednn
def test_a_file_that_is_not_the_model_is_left_alone(tmp_path):
    """Trained on since it was loaded, or resized: what the file holds is another matrix."""
    randomized(hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, tie_word_embeddings=True))).float().save_pretrained(tmp_path)
    model = hf.LlamaForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        model.model.embed_tokens.weight[VOCAB - 1, 0] += 1
    expected = generate(CachedLM(model, "packed"), [5, 6, 7], max_new_tokens=20).tokens
    lm = CachedLM(model, "packed", release=True)
    assert model.model.embed_tokens.weight.numel() == VOCAB * LLAMA["hidden_size"]
    assert generate(lm, [5, 6, 7], max_new_tokens=20).tokens == expected


@pytest.fixture(scope="module")
def texts(default_model):
    from specdec_core.race.workloads import encode, own

    return [encode(question.turns[0], default_model.tokenizer)[:160] for question in own(limit=1)]


@torch.no_grad()
def test_float32_logits_of_the_real_model(default_model, texts):
    """Within 1e-3 of transformers' eager attention, argmax equal wherever the two best are further apart than that."""
    model = default_model.model
    lm = CachedLM(model)
    for ids in texts[:4]:
        lm.prefill(ids[:-8])
        ours = lm.forward(DraftTree.chain(ids[-8], ids[-7:])).logits
        before, model.config._attn_implementation = model.config._attn_implementation, "eager"
        theirs = model(torch.tensor([ids])).logits[0, -8:]
        model.config._attn_implementation = before
        error = (ours - theirs).abs().max(-1).values
        assert error.max() <= 1e-3
        best = theirs.topk(2).values
        clear = best[:, 0] - best[:, 1] > 2 * error
        assert clear.any() and (ours.argmax(-1) == theirs.argmax(-1))[clear].all()


@needs_bfloat16
@torch.no_grad()
def test_bfloat16_logits_are_no_further_from_float32_than_those_of_transformers(default_model, texts):
    from specdec_core.model import loading as models

    model = models.load("default", dtype="bfloat16", device="cpu").model
    lm = CachedLM(model)
    ours, theirs = [], []
    for ids in texts:
        reference = default_model.model(torch.tensor([ids])).logits[0, -16:]
        theirs.append(model(torch.tensor([ids])).logits[0, -16:].float() - reference)
        lm.prefill(ids[:-16])
        ours.append(lm.forward(DraftTree.chain(ids[-16], ids[-15:])).logits.float() - reference)
    assert torch.cat(ours).square().mean() <= 1.02 * torch.cat(theirs).square().mean()
