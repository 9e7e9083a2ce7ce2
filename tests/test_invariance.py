"""`numerics="invariant"`: the same bits for a token whatever else shares its forward."""

import numpy as np
import pytest
import torch
from drafters_for_tests import Oracle
from tiny_models import VOCAB, tiny

from specdec_core.core.contract import DrafterBase
from specdec_core.core.engine import stream
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import PromptLookup
from specdec_core.model import invariance
from specdec_core.model.hardware import native_bfloat16
from specdec_core.model.invariance import NotInvariant, Shape
from specdec_core.model.lm import CachedLM

BFLOAT16 = bool(native_bfloat16())
DTYPES = [
    "float32",
    pytest.param("bfloat16", marks=pytest.mark.skipif(not BFLOAT16, reason="this CPU does not compute bfloat16")),
]


class Thicket(DrafterBase):
    """The right continuation, hidden among siblings: a tree larger than one forward."""

    name = "thicket"

    def __init__(self, text, seed=0):
        self.text, self.rng = text, np.random.default_rng(seed)

    def propose(self, context, budget, rng):
        right = self.text[len(context) : len(context) + 5]
        wrong = [right[:cut] + self.rng.integers(VOCAB, size=4).tolist() for cut in range(len(right) + 1)]
        return DraftTree.from_paths(context[-1], [*wrong[:3], right, *wrong[3:]], limit=budget.nodes)


@pytest.fixture(scope="module", params=DTYPES)
def invariant(request, default_model):
    """The real model with the shape that its self-test found."""
    from specdec_core.model import loading as models

    model = default_model.model
    if request.param != "float32":
        model = models.load("default", dtype=request.param, device="cpu").model
    return CachedLM(model, numerics="invariant")


def rows_of(lm, prompt, drafter, tokens):
    """The tokens of a greedy run, and the logits of every row that was committed."""
    run, rows, forward = stream(lm, prompt, drafter, max_new_tokens=tokens), [], lm.forward
    outputs = []
    lm.forward = lambda *args: outputs.append(forward(*args)) or outputs[-1]
    try:
        for step in run:
            rows.extend(outputs.pop().logits[list(step.emitted.path)])
    finally:
        del lm.forward
    return list(run.result().tokens), torch.stack(rows)


def test_the_self_test_finds_a_shape(invariant):
    assert invariance.mismatches(invariant, seed=1) == 0


def test_tokens_and_logits_are_the_bits_of_autoregressive_decoding(invariant, default_model):
    """Prompt lookup, right chains and thickets, on one prompt of each kind that is drafted for."""
    from specdec_core.race.workloads import encode, own

    for question in own(tasks=["edit_code", "quote", "write"], limit=1):
        prompt = encode(question.turns[0], default_model.tokenizer)
        tokens, alone = rows_of(invariant, prompt, None, 24)
        for drafter in (PromptLookup(), Oracle(prompt + tokens, gamma=20), Thicket(prompt + tokens)):
            same, rows = rows_of(invariant, prompt, drafter, 24)
            assert same == tokens and torch.equal(rows, alone), (question.id, drafter.name)


def test_prompt_lookup_is_greedy_decoding_in_float32(default_model):
    """Every own prompt, at its own width: float32 rounds too finely to turn a token on any of them."""
    from specdec_core.core.engine import generate
    from specdec_core.race.workloads import encode, own

    lm = CachedLM(default_model.model)
    for question in own():
        prompt = encode(question.turns[0], default_model.tokenizer)
        alone = generate(lm, prompt, max_new_tokens=16).tokens
        assert generate(lm, prompt, PromptLookup(), max_new_tokens=16).tokens == alone, question.id


@pytest.mark.parametrize("vocab", [2, VOCAB])
def test_a_small_vocabulary_is_no_obstacle(vocab):
    """Below 100 tokens; the detours of the self-test are made of tokens that there are."""
    lm = CachedLM(tiny("llama", vocab_size=vocab), numerics="invariant")
    assert lm.shape in invariance.CANDIDATES and invariance.mismatches(lm, seed=1) == 0


class Rounding:
    """Stands for a device on which a row's bits depend on how many rows share its forward."""

    vocab_size, max_length, bos_id, length = 50, 10_000, None, 0

    def __init__(self, shape, needed):
        self.shape, self.needed = shape, needed

    def prefill(self, ids, reserve=0):
        self.length = len(ids)

    def rewind(self, length):
        self.length = length

    def forward(self, tree, needs_hidden=False):
        from specdec_core.core.contract import LMOutput

        noise = 0.0 if self.shape.width >= self.needed else 1e-7 * len(tree.tokens)
        return LMOutput(torch.from_numpy(np.ones((len(tree.tokens), 50)) + noise))

    def commit(self, path):
        self.length += len(path)


def test_shapes_that_change_bits_are_passed_over_or_refused():
    shapes = Shape(16, 1), Shape(32, 1), Shape(64, 1)
    assert invariance.find(lambda shape: Rounding(shape, needed=32), shapes) == Shape(32, 1)
    with pytest.raises(NotInvariant, match="use numerics='fast'"):
        invariance.find(lambda shape: Rounding(shape, needed=128), shapes)
