"""The door for arguments: every public number is checked for kind and range where it comes in."""

import inspect
from fractions import Fraction

import numpy as np
import pytest
import torch

from specdec_core import Sampling, Stop, TableLM, enumerate_law, generate, stream
from specdec_core.base.arguments import ids, real, whole
from specdec_core.core.contract import Budget
from specdec_core.core.recorded import Recorded
from specdec_core.core.rng import Rng, spawn
from specdec_core.core.tree import DraftTree
from specdec_core.core.typical import Typical
from specdec_core.drafters import REST, Adaptive, Cascade, DraftModel, Medusa, PromptLookup, drafter_class
from specdec_core.drafters.methods import REGISTRY, Context, MethodError, build, parse, settings
from specdec_core.stores.store import SuffixStore

CIRCLE = TableLM(np.roll(np.eye(6), 1, axis=1) * 5)
LONG = TableLM(np.roll(np.eye(128), 1, axis=1) * 5)
NO_WHOLE = [2.5, 3.0, True, "3", None, [3], np.float64(3), np.array([3]), np.bool_(True), torch.tensor([3]),
            torch.tensor([[3]]), torch.tensor(3.0), torch.tensor(True), 3j, float("nan"), b"3"]  # fmt: skip
WHOLE = [3, np.int8(3), np.uint64(3), np.array(3), torch.tensor(3)]
NO_REAL = [True, "0.5", None, [0.5], np.array([0.5]), torch.tensor([0.5]), 1j, float("nan"), float("inf"), b"1",
           10**400]  # fmt: skip


@pytest.mark.parametrize("value", NO_WHOLE, ids=repr)
def test_what_is_no_whole_number_is_refused_in_words(value):
    with pytest.raises(ValueError, match="^n: expected a whole number, got "):
        whole("n", value)


@pytest.mark.parametrize("value", WHOLE, ids=repr)
def test_whole_numbers_of_every_kind_are_ints(value):
    assert type(whole("n", value, 3, 3)) is int and whole("n", value) == real("n", value) == 3


@pytest.mark.parametrize("value", NO_REAL, ids=lambda value: repr(value)[:20])
def test_what_is_no_finite_number_is_refused_in_words(value):
    with pytest.raises(ValueError, match="^x(: expected a number, got | must be finite; got )"):
        real("x", value)


@pytest.mark.parametrize(
    "prompt, says",
    [
        ("123", "got the text '123'; encode it"),
        (b"ab", "encode it with the tokenizer"),
        ([1.9, 2.7], r"prompt\[0\]: expected a whole number, got 1.9"),
        ([1, True], r"prompt\[1\]: expected a whole number, got True"),
        (torch.tensor([[1], [4]]), r"vector of token ids, got shape \(2, 1\); pass one row"),
        (np.array([[1, 2]]), r"got shape \(1, 2\)"),
        (torch.tensor([1.0, 2.0]), r"prompt\[0\]: expected a whole number"),
        ([[1, 2]], r"prompt\[0\]: expected a whole number, got \[1, 2\]"),
        ({"input_ids": [1, 2]}, "got 'input_ids'"),
        (3, "a sequence of token ids, got 3"),
        ([-1], r"prompt\[0\] must be at least 0; got -1"),
        ([1, 6], r"0 ... 5; the prompt has \[6\]"),
    ],
)
def test_a_prompt_is_one_list_of_ids(prompt, says):
    with pytest.raises(ValueError, match=says):
        generate(CIRCLE, prompt, max_new_tokens=3)


IDS = [(1, 2), range(1, 3), np.array([1, 2], np.uint8), torch.tensor([1, 2]), [np.int64(1), torch.tensor(2)]]
IDS.append(iter([1, 2]))


@pytest.mark.parametrize("prompt", IDS, ids=lambda prompt: type(prompt).__name__)
def test_ids_of_every_kind_are_one_prompt(prompt):
    assert generate(CIRCLE, prompt, max_new_tokens=2).tokens == (3, 4)
    assert ids("prompt", np.empty(0)) == []


LIMITS = {
    "max_new_tokens": lambda value: stream(CIRCLE, [1], max_new_tokens=value),
    "max_nodes": lambda value: stream(CIRCLE, [1], max_nodes=value),
    "seed": lambda value: generate(CIRCLE, [1], max_new_tokens=1, seed=value),
    "nodes": lambda value: Budget(value, 1),
    "depth": lambda value: Budget(1, value),
    "top_k": lambda value: Sampling(temperature=1.0, top_k=value),
    "limit": lambda value: enumerate_law(lambda rng: 0, value),
    "max_length": lambda value: TableLM(CIRCLE.table, value),
    "vocab_size": TableLM.random,
    "order": lambda value: TableLM.random(2, value),
    "tokens": lambda value: Stop([value]),
    "answer": lambda value: Recorded([1], [value]),
    "path": lambda value: DraftTree.from_paths(0, [[value]]),
}
# None means "not given" to one of them, and stands for what the drafter asks for.
REFUSED = [(name, value) for name in LIMITS for value in (2.5, True, "3", np.array([3]), torch.tensor([[3]]), -1, None)
           if (name, value) != ("max_nodes", None)]  # fmt: skip


@pytest.mark.parametrize("name, value", REFUSED, ids=repr)
def test_limits_ids_and_seeds_are_whole_numbers(name, value):
    with pytest.raises(ValueError, match=rf"^{name}(\[0\])?(: expected a whole number| must be at least)"):
        LIMITS[name](value)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_ids_and_seeds_of_other_kinds_of_whole_number(name):
    for value in (np.int64(3), torch.tensor(3)):
        LIMITS[name](value)


def test_seeds_are_the_same_stream_whatever_their_kind():
    assert Rng(np.int64(5)).uniform() == Rng(5).uniform() == Rng(torch.tensor(5)).uniform()
    for make in (Rng, spawn):
        with pytest.raises(ValueError, match="seed: expected a whole number, got None"):
            make(None)


REALS = [(name, Sampling) for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty")]
REALS += [("epsilon", Typical), ("delta", Typical)]


@pytest.mark.parametrize("name, make", REALS)
def test_settings_that_are_real_numbers(name, make):
    for value in NO_REAL:
        with pytest.raises(ValueError, match=f"^{name}(: expected a number| must be)"):
            make(**{name: value})
    for value in (np.float32(0.5), np.array(0.5), torch.tensor(0.5), Fraction(1, 2)):
        assert vars(make(**{name: value}))[name] == 0.5


@pytest.mark.parametrize(
    "fields, says",
    [
        (dict(tokens=[1, 2.7], parents=[-1, 0]), r"tokens: expected whole numbers, got \[1, 2.7\]"),
        (dict(tokens=[1, 2], parents=[-1, 0.4]), "parents: expected whole numbers"),
        (dict(tokens=np.array([True, False]), parents=[-1, 0]), "tokens: expected whole numbers"),
        (dict(tokens=["1", "2"], parents=[-1, 0]), "tokens: expected whole numbers"),
        (dict(tokens=[1, 2], parents=[-1, 0], candidate=[1.0, 0.3]), "candidate: expected True or False for each row"),
        (dict(tokens=7, parents=-1), r"got shapes \(\), \(\), \(\)"),
    ],
)
def test_tokens_and_parents_of_a_tree_are_whole_numbers(fields, says):
    with pytest.raises(ValueError, match=says):
        DraftTree(**fields)
    with pytest.raises(ValueError, match=r"tokens: expected whole numbers, got \[1.5\]"):
        DraftTree.chain(0, [1.5])
    with pytest.raises(ValueError, match="tokens: expected whole numbers"):
        DraftTree.empty(1.5)
    assert DraftTree.chain(torch.tensor(1), torch.tensor([2, 3])).tokens.tolist() == [1, 2, 3]


MAKERS = {name: drafter_class(name) for name in REGISTRY if "build" not in vars(drafter_class(name))}
MAKERS |= {
    "rest": lambda **options: REST(SuffixStore.in_memory([[1, 2, 3]], 6), **options),
    "draft_model": lambda **options: DraftModel(CIRCLE, **options),
    "medusa": lambda **options: Medusa(lambda state: state, np.arange(4), np.ones((1, 2)) / 2, 6, **options),
    "adaptive": lambda **options: Adaptive(PromptLookup(), lambda q: 1.0, **options),
}
SETTINGS = [
    (method, name, type(parameter.default))
    for method in MAKERS
    for name, parameter in inspect.signature(drafter_class(method)).parameters.items()
    if type(parameter.default) in (int, float, bool)
]


@pytest.mark.parametrize("method, name, kind", SETTINGS)
def test_every_setting_of_every_drafter_is_checked_for_its_kind(method, name, kind):
    """Whatever a setting's default is, the values are: another drafter is held to it by being in the registry."""
    wrong = {int: (2.5, 3.0, True, "3", [3], np.array([3])), float: ("0.5", True, [0.5], float("nan")),
             bool: ("false", 1)}  # fmt: skip
    for value in wrong[kind]:
        with pytest.raises(ValueError, match=f"^{name}(: expected| must be)"):
            MAKERS[method](**{name: value})
        if isinstance(value, (str, float, bool)) and "build" not in vars(drafter_class(method)):
            with pytest.raises(MethodError, match=f"^.{method}:{name}=.*: {name}(: expected| must be)"):
                build(f"{method}:{name}={value!r}", Context(CIRCLE))
    default = inspect.signature(drafter_class(method)).parameters[name].default
    MAKERS[method](**{name: {int: np.int64, float: np.float64, bool: np.bool_}[kind](default)})


def test_a_setting_given_twice_is_refused_and_a_name_stays_a_name():
    with pytest.raises(MethodError, match="num_tokens is set twice, to 5 and to 7"):
        parse("prompt_lookup:num_tokens=5,num_tokens=7")
    assert parse("rest:store=2024,nodes=8") == ("rest", {"store": "2024", "nodes": 8})


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize(
    "method", ["prompt_lookup:num_tokens", "ngram:num_tokens", "jacobi:m", "suffix_decoding:nodes"]
)
def test_a_draft_as_long_as_was_asked_for(method, size):
    """No default budget stands above a setting: on a text that has all come before, the draft has that many nodes."""
    name = f"{method}={size}" + ",depth=128,factor=99.0" * method.startswith("suffix")
    drafter = build(name, Context(CIRCLE))
    assert drafter.max_nodes == size
    trace = generate(LONG, [*range(128), 0, 1, 2], drafter, max_new_tokens=20).trace
    assert trace.steps[0].tree.size == size


def test_a_combination_gives_each_drafter_the_room_it_asks_for():
    for drafter in (Cascade(PromptLookup(100), PromptLookup(3)), Adaptive(PromptLookup(100), lambda q: 1.0)):
        assert generate(LONG, [*range(128), 0], drafter, max_new_tokens=5).trace.steps[0].tree.size == 100
    store = SuffixStore.in_memory([[*range(6)] * 40], 6)
    assert generate(CIRCLE, [0, 1, 2], REST(store, nodes=90, depth=90), max_new_tokens=2).trace.drafted == 90
    assert generate(CIRCLE, [0], DraftModel(TableLM(CIRCLE.table), 70), max_new_tokens=2).trace.drafted == 70


def test_a_record_says_what_ran():
    """Adaptive drafting asks suffix decoding for longer drafts by default, and for what is asked where it is asked."""
    context = Context(CIRCLE, t=lambda q: 1.0)
    for name, offset in (("adaptive", 4.0), ("adaptive:method=suffix_decoding", 0.0)):
        drafter = build(name, context)
        assert drafter.drafter.offset == offset
        inner = build(settings(name)["method"], context)
        assert inner.offset == offset


@pytest.mark.parametrize("text", ["draw=point", "draw='point'"])
def test_text_in_a_methods_name_may_stand_in_quotes(text):
    assert parse(f"medusa:nodes=14,{text}") == ("medusa", {"nodes": 14, "draw": "point"})
