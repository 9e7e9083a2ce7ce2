"""A model that is changed after it was wrapped is refused at the next prefill, with the name of what was changed."""

import copy

import pytest
import torch
from tiny_models import tiny

from specdec_core.base.errors import UnsupportedModel
from specdec_core.core import generate, stream
from specdec_core.model.lm import CachedLM

PROMPT = [3, 4, 5, 6, 3, 4, 5]


@torch.no_grad()
def head_scaled(model):
    model.lm_head.weight.mul_(-1.0)


def merged(model):  # as an adapter is merged: past the counter of changes
    model.model.layers[1].mlp.up_proj.weight.data += 0.5


def module_put_in_place(model):
    model.model.layers[0].self_attn.q_proj = torch.nn.Sequential(model.model.layers[0].self_attn.q_proj)


def forward_replaced(model):
    norm = model.model.norm
    norm.forward = lambda x: 2 * x


def frequencies_edited(model):
    model.model.rotary_emb.inv_freq.mul_(0.5)


def assigned(model):
    model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()}, assign=True)


CHANGES = {
    "training mode": (lambda model: model.train(), "the model has other training mode"),
    "one layer in training mode": (lambda model: model.model.layers[2].train(), "layers.2.* other training mode"),
    "weights in place": (head_scaled, "lm_head.weight has other numbers and count of changes"),
    "weights past the counter": (merged, "layers.1.mlp.up_proj.weight has other numbers"),
    "weights replaced": (assigned, "weight has other identity"),
    "a hook": (lambda model: model.model.norm.register_forward_hook(lambda *_: None), "model.norm has other hooks"),
    "a module": (module_put_in_place, "q_proj"),
    "a forward": (forward_replaced, "model.norm has other forward"),
    "a buffer": (frequencies_edited, "rotary_emb.inv_freq has other numbers"),
    "dtype": (lambda model: model.bfloat16(), "dtype"),
}


@pytest.mark.parametrize("execution", ["eager", "packed"])
@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_a_change_is_refused_by_name_and_wrapping_again_follows_it(change, words, execution):
    model = copy.deepcopy(tiny("llama")).float()
    lm = CachedLM(model, execution)
    before = generate(lm, PROMPT, max_new_tokens=6).tokens
    other = lm.with_own_cache()
    assert generate(other, PROMPT, max_new_tokens=6).tokens == before
    change(model)
    for one in (lm, other):
        with pytest.raises(UnsupportedModel, match=f"changed after it was wrapped: .*{words}.*wrap it again"):
            generate(one, PROMPT, max_new_tokens=6)
    model.eval()
    again = CachedLM(model)
    text = list(PROMPT)
    for _ in range(6):
        text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    assert generate(again, PROMPT, max_new_tokens=6).tokens == tuple(text[len(PROMPT) :])


def test_what_does_not_change_a_model_is_allowed():
    model = copy.deepcopy(tiny("llama")).float()
    lm = CachedLM(model)
    right = generate(lm, PROMPT, max_new_tokens=6).tokens
    hook = model.model.norm.register_forward_hook(lambda *_: None)
    hook.remove()
    model.train()
    model.eval()
    model.requires_grad_(False)
    model.generate(torch.tensor([PROMPT]), max_new_tokens=2, output_hidden_states=True, return_dict_in_generate=True)
    assert generate(lm, PROMPT, max_new_tokens=6).tokens == right
    released = CachedLM(copy.deepcopy(model), "packed", release=True)
    for _ in range(2):
        assert generate(released, PROMPT, max_new_tokens=6).tokens == right
    with torch.inference_mode():
        inferred = CachedLM(copy.deepcopy(model), "eager")
        assert generate(inferred, PROMPT, max_new_tokens=6).tokens == right
    alone = CachedLM(copy.deepcopy(model), "packed")  # whose model nobody holds
    assert generate(alone, PROMPT, max_new_tokens=6).tokens == right


def test_matrices_freed_by_another_are_missed_by_an_execution_without_its_own():
    model = copy.deepcopy(tiny("llama")).float()
    eager, packed = CachedLM(model, "eager"), CachedLM(model, "packed")
    right = generate(packed, PROMPT, max_new_tokens=6).tokens
    CachedLM(model, "packed", release=True)
    assert generate(packed, PROMPT, max_new_tokens=6).tokens == right
    with pytest.raises(UnsupportedModel, match="changed after it was wrapped: .* other size"):
        generate(eager, PROMPT, max_new_tokens=6)
    model.train()
    with pytest.raises(UnsupportedModel, match="other training mode"):
        generate(packed, PROMPT, max_new_tokens=6)


@pytest.mark.parametrize("execution", ["eager", "packed"])
@pytest.mark.parametrize("limit", [10**5, 10**9])
def test_memory_follows_the_text_and_not_the_limit(execution, limit):
    config = copy.deepcopy(tiny("llama").config)
    config.max_position_embeddings = 1 << 20
    model = type(tiny("llama"))(config).float().eval()
    lm = CachedLM(model, execution)
    steps = iter(run := stream(lm, PROMPT, max_new_tokens=limit))
    for _ in range(3):
        next(steps)
    assert lm.kv.capacity < 1024
    grown, lengths = {lm.kv.capacity}, len(run.context)
    while len(run.context) < lengths + 900:
        next(steps)
        grown.add(lm.kv.capacity)
    assert len(grown) <= 4 and max(grown) < 2 * len(run.context)
