"""Models whose modules are not as their classes made them: every execution follows their own forward, or refuses."""

import pytest
import torch
import transformers as hf
from test_execution import float32, needs_onednn, wrapped
from tiny_models import LLAMA, VOCAB, plain_logits, randomized
from torch.nn.utils import parametrizations
from transformers.models.llama import modeling_llama

from specdec_core.base.errors import UnsupportedModel
from specdec_core.core.engine import generate
from specdec_core.drafters import PromptLookup
from specdec_core.model.execution import packed
from specdec_core.model.execution.likeness import Reference
from specdec_core.model.lm import CachedLM

PROMPT = [3, 4, 5, 6, 3, 4, 5]


class Adapter(torch.nn.Module):
    """What an adapter puts in a linear map's place: it has a weight and a bias, and adds to the product."""

    def __init__(self, base):
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        self.in_features, self.out_features = base.in_features, base.out_features
        self.more = torch.randn(base.out_features, base.in_features, generator=torch.Generator().manual_seed(5))

    def forward(self, x):
        return self.base(x) + x @ self.more.T


class Int8(torch.nn.Linear):
    """A linear map of whole numbers and a scale a row, that still says `weight`."""

    def __init__(self, base):
        super().__init__(base.in_features, base.out_features, bias=False)
        self.scale = base.weight.detach().abs().amax(1, keepdim=True) / 3
        self.weight = torch.nn.Parameter((base.weight.detach() / self.scale).round().to(torch.int8), False)

    def forward(self, x):
        return x @ (self.weight * self.scale).T


class Gated(modeling_llama.LlamaMLP):
    def forward(self, x):
        return super().forward(x) * torch.sigmoid(self.extra(x))


Gated.__name__ = "LlamaMLP"


class Doubled(hf.LlamaForCausalLM):
    def forward(self, *arguments, **options):
        out = super().forward(*arguments, **options)
        out.logits = -2 * out.logits
        return out


Doubled.__name__ = "LlamaForCausalLM"


def each_layer(model, change):
    for layer in model.model.layers:
        change(layer)


def adapters(model, monkeypatch):
    def change(layer):
        layer.self_attn.q_proj, layer.self_attn.v_proj = map(Adapter, (layer.self_attn.q_proj, layer.self_attn.v_proj))

    each_layer(model, change)


def adapter_of_the_head(model, monkeypatch):
    model.lm_head = Adapter(model.lm_head)


def whole_numbers(model, monkeypatch):
    each_layer(model, lambda layer: setattr(layer.mlp, "down_proj", Int8(layer.mlp.down_proj)))


def hooks(model, monkeypatch):
    each_layer(model, lambda layer: layer.mlp.register_forward_hook(lambda module, inputs, out: out * -2))


def hooks_before(model, monkeypatch):
    model.model.norm.register_forward_pre_hook(lambda module, inputs: (inputs[0].flip(-1),))


def hook_on_the_embedding(model, monkeypatch):
    model.model.embed_tokens.register_forward_hook(lambda module, inputs, out: out.flip(-1))


def hooks_everywhere(model, monkeypatch):
    def flip(module, inputs, out):
        return -out if isinstance(module, modeling_llama.LlamaMLP) else None

    hook = torch.nn.modules.module.register_module_forward_hook(flip)
    monkeypatch.callbacks = [hook.remove]


def forward_of_one_module(model, monkeypatch):
    attention = model.model.layers[1].self_attn
    forward = attention.forward
    attention.forward = lambda *arguments, **options: (-forward(*arguments, **options)[0], None)


def forward_of_a_class(model, monkeypatch):
    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", lambda self, x: self.down_proj(torch.relu(self.up_proj(x))))


def function_of_the_module(model, monkeypatch):
    """No class and no instance is changed; the comparison alone can see it."""
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, *arguments, **options: (q, -k))


def number_of_a_norm(model, monkeypatch):
    model.model.norm.variance_epsilon = 5.0


def subclass_of_the_same_name(model, monkeypatch):
    model.__class__ = Doubled


def module_of_the_same_name(model, monkeypatch):
    def change(layer):
        layer.mlp.__class__, layer.mlp.extra = Gated, torch.nn.Linear(32, 32)

    torch.manual_seed(0)
    each_layer(model, change)


def another_activation(model, monkeypatch):
    each_layer(model, lambda layer: setattr(layer.mlp, "act_fn", torch.nn.GELU()))


def spectral_norm(model, monkeypatch):
    each_layer(model, lambda layer: parametrizations.spectral_norm(layer.self_attn.o_proj))
    model.eval()


def a_bias_on_the_values_alone(model, monkeypatch):
    each_layer(model, lambda layer: setattr(layer.self_attn.v_proj, "bias", torch.nn.Parameter(torch.arange(16.0) / 8)))


def one_layer_twice(model, monkeypatch):
    model.model.layers[2] = model.model.layers[0]


def offloaded(model, monkeypatch):
    hooks = pytest.importorskip("accelerate.hooks")
    hooks.attach_align_device_hook(model.model.layers[1].mlp, execution_device="cpu", offload=True)
    assert model.model.layers[1].mlp.up_proj.weight.is_meta


def quantised_layers(model, monkeypatch):
    """torch's own kind, whose rows are rounded by the largest of all rows of a forward: no tree has its own text."""
    change = torch.ao.quantization.quantize_dynamic
    each_layer(model, lambda layer: change(layer, {torch.nn.Linear}, dtype=torch.qint8, inplace=True))


UNUSUAL = [
    adapters, adapter_of_the_head, whole_numbers, hooks, hooks_before, hook_on_the_embedding, hooks_everywhere,
    forward_of_one_module, forward_of_a_class, function_of_the_module, number_of_a_norm, subclass_of_the_same_name,
    module_of_the_same_name, another_activation, spectral_norm, a_bias_on_the_values_alone, one_layer_twice, offloaded,
    quantised_layers,
]


@pytest.mark.parametrize("execution", ["auto", "eager", pytest.param("packed", marks=needs_onednn), "compiled"])
@pytest.mark.parametrize("change", UNUSUAL, ids=lambda change: change.__name__)
def test_the_text_is_the_changed_models_own_or_it_is_refused(change, execution, monkeypatch):
    plain, model = float32("llama"), float32("llama")
    change(model, monkeypatch)
    text = list(PROMPT)
    for _ in range(6):
        text.append(int(plain_logits(model, text).argmax()))
    try:
        answers = [generate(wrapped(model, execution), PROMPT, d, max_new_tokens=6) for d in (None, PromptLookup())]
    except UnsupportedModel:
        assert execution != "eager" and execution != "auto" or change in (one_layer_twice, quantised_layers)
    else:
        assert [list(answer.tokens) for answer in answers] == [text[len(PROMPT) :]] * 2
    finally:
        for undo in getattr(monkeypatch, "callbacks", []):
            undo()
    with torch.no_grad():
        one, other = (each(torch.tensor([text])).logits for each in (plain, model))
    seen = (one - other).norm() / one.norm()
    everywhere = (forward_of_a_class, function_of_the_module, hooks_everywhere)  # they change the plain model too
    assert seen > 1e-3 or change in (*everywhere, offloaded), "the change changes nothing: no test"


@needs_onednn
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_a_plain_model_is_packed_also_after_its_states_were_read(name):
    """transformers leaves hooks of its own behind, which change nothing."""
    model = float32(name)
    model(torch.tensor([PROMPT]), output_hidden_states=True)
    assert packed.unfit(model) is None and CachedLM(model).execution.name == "packed"


@needs_onednn
def test_a_released_model_that_runs_otherwise_is_refused(monkeypatch):
    """Its matrices are gone, so that it cannot run eagerly any more."""
    model = float32("llama")
    model.model.norm.variance_epsilon = 5.0
    with pytest.raises(UnsupportedModel, match="its own forward and the packed one differ by"):
        CachedLM(model, release=True)
    with pytest.raises(UnsupportedModel, match="release=True frees it|its own forward fails"):
        CachedLM(model)


class LowRank(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(32, 4, bias=False), torch.nn.Linear(4, VOCAB, bias=False))


def headed(head):
    model = float32("llama")
    model.lm_head = head(model.lm_head)
    return model


def dynamic(linear):
    """torch's own quantised kind, whose `weight` is a method."""
    both = torch.nn.Sequential(linear)
    return torch.ao.quantization.quantize_dynamic(both, {torch.nn.Linear}, dtype=torch.qint8)[0]


def transposed(linear):
    """GPT-2's own kind of linear map, whose matrix lies the other way."""
    return hf.pytorch_utils.Conv1D(VOCAB, 32)


HEADS = {
    "whole numbers": (Int8, "expected weights of one of"),
    "whole numbers of torch": (dynamic, "a Linear holds no weight"),
    "low rank": (lambda head: LowRank(), "a LowRank holds no weight"),
    "nothing": (lambda head: torch.nn.Identity(), "an? Identity holds no weight"),
    "offloaded": (lambda head: head.to("meta"), "lm_head is on the meta device"),
    "of another shape": (transposed, "gives logits of shapes|lm_head is a Conv1D"),
    "freed": (lambda head: setattr(head, "weight", torch.nn.Parameter(torch.empty(0))) or head, "release=True frees"),
    "eight bits": (lambda head: head.to(torch.float8_e4m3fn), "expected weights of one of"),
}


@pytest.mark.parametrize("execution", ["auto", "eager", "packed", "compiled"])
@pytest.mark.parametrize("name", HEADS)
def test_a_projection_without_a_matrix_is_refused_with_the_reason(name, execution):
    head, reason = HEADS[name]
    with pytest.raises(UnsupportedModel, match=reason):
        CachedLM(headed(head), execution)


@pytest.mark.parametrize("execution", ["auto", "eager", "packed", "compiled"])
def test_what_is_no_model_of_transformers_is_refused(execution):
    for thing in ("gpt2", None, torch.nn.Linear(2, 2), torch.nn.DataParallel(float32("llama"))):
        with pytest.raises(UnsupportedModel, match=f"expected a causal .* got a {type(thing).__name__}"):
            CachedLM(thing, execution)


@pytest.mark.parametrize("execution", ["eager", "packed"])
def test_layers_that_were_never_loaded_are_refused(execution):
    model = float32("llama")
    model.model.layers[1].mlp.to("meta")
    with pytest.raises(UnsupportedModel, match="layers.1.mlp.gate_proj is on the meta device"):
        CachedLM(model, execution)


def passing(**more):
    """A Llama whose attention hands more to its attention function than transformers' own does."""
    model = randomized(hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)))
    for layer in model.model.layers:
        forward = layer.self_attn.forward
        layer.self_attn.forward = lambda *given, _own=forward, **named: _own(*given, **{**named, **more})
    return model


ARGUMENTS = {
    "a learned mask": ({"attention_mask": torch.zeros(1, 4, 1, 1).double()}, "adds a mask of its own"),
    "both directions": ({"is_causal": False}, "attends in both directions"),
    "a bias of positions": ({"position_bias": torch.zeros(1, 4, 1, 1).double()}, r"passes \['position_bias'\]"),
    "sinks": ({"s_aux": torch.zeros(4)}, r"passes \['s_aux'\]"),
    "masked heads": ({"head_mask": torch.ones(4)}, r"passes \['head_mask'\]"),
    "unknown of tomorrow": ({"temperature_of_keys": 0.5}, r"passes \['temperature_of_keys'\]"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_an_attention_function_is_told_is_read_or_refused(name):
    more, reason = ARGUMENTS[name]
    with pytest.raises(UnsupportedModel, match=reason):
        CachedLM(passing(**more))


class Off:
    """An execution whose logits are off: by a share of their length, in the rows that ``where`` names."""

    def __init__(self, model, by, where=lambda positions: positions >= 0):
        from specdec_core.model.execution import Eager

        self._right, self.by, self.where, self.name = Eager(model), by, where, "off"
        self.facts, self.slots = self._right.facts, self._right.slots

    def run(self, ids, positions, kv, flight, keep, hidden=False):
        logits, states = self._right.run(ids, positions, kv, flight, keep, hidden)
        noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).to(logits)
        noise *= self.by * logits.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
        return logits + noise * self.where(positions)[:, None], states


@pytest.mark.parametrize("dtype, by", [(torch.float64, 1e-4), (torch.float32, 1e-4), (torch.bfloat16, 0.25)])
@pytest.mark.parametrize(
    "where",
    [lambda at: at >= 0, lambda at: at == 0, lambda at: at >= 7, lambda at: at >= 20, lambda at: at % 2 == 1],
    ids=["every row", "the first token", "later tokens", "past a window", "every other"],
)
def test_the_comparison_sees_what_rounding_does_not_explain(dtype, by, where):
    model = float32("llama").to(dtype)
    reference = Reference(model)
    reference.hold(Off(model, 0.0))
    reference.hold(Off(model, max(0.1 * torch.finfo(dtype).eps, 1e-7)))
    with pytest.raises(UnsupportedModel, match="its own forward and the off one differ by"):
        reference.hold(Off(model, by, where))


def test_a_model_that_draws_numbers_is_refused():
    model = float32("llama")
    model.model.layers[0].mlp.register_forward_hook(lambda m, i, out: torch.nn.functional.dropout(out, 0.5))
    with pytest.raises(UnsupportedModel, match="draws random numbers"):
        CachedLM(model)
    model = float32("llama", attention_dropout=0.5)
    model.model.layers[1].self_attn.train()
    with pytest.raises(UnsupportedModel, match=r"call model.eval\(\)"):
        CachedLM(model)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(value):
    model = float32("llama")
    model.model.layers[1].mlp.up_proj.weight.data[3, 5] = value
    with pytest.raises(UnsupportedModel, match="no finite numbers: its weights hold some that are not"):
        CachedLM(model)
