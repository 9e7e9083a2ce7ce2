"""Logits that are not numbers, and laws q that are no laws, are errors where they would become text, and only there."""

import copy

import numpy as np
import pytest
import torch
from drafters_for_tests import Oracle
from tiny_models import tiny

from specdec_core import CachedLM, Sampling, TableLM, generate
from specdec_core.base.errors import BrokenLogits, DraftError
from specdec_core.core.contract import DrafterBase
from specdec_core.core.sampling import largest
from specdec_core.core.tree import DraftTree
from specdec_core.core.typical import Typical
from specdec_core.drafters import DraftModel, Medusa
from specdec_core.drafters.reduced import Reduced

GREEDY, WARM = Sampling(), Sampling(temperature=1.0)
ALL = [GREEDY, WARM, Sampling(repetition_penalty=1.2), Sampling(temperature=0.7, top_k=2, top_p=0.9, min_p=0.1)]
NOT_NUMBERS = [float("nan"), float("inf"), -float("inf")]


def circle(row=None, value=None):
    """Token n is followed by n + 1, mod 6; the logits after token ``row`` are all ``value``."""
    table = np.roll(np.eye(6), 1, axis=1) * 90
    if row is not None:
        table[row] = value
    return TableLM(table)


@pytest.mark.parametrize("sampling", ALL, ids=str)
@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_broken_logits_are_an_error_that_names_the_position(value, sampling):
    with pytest.raises(BrokenLogits, match=rf"after position 3 \(token 3\) is {value}; expected a finite .*float16"):
        generate(circle(3, value), [0, 1], max_new_tokens=5, sampling=sampling)


@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("value", NOT_NUMBERS[:2])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
def test_one_number_among_six_is_enough(sampling, value, place):
    lm = circle()
    lm.table[3, place] = value
    with pytest.raises(BrokenLogits, match="after position 3"):
        generate(lm, [0, 1], max_new_tokens=5, sampling=sampling)


@pytest.mark.parametrize("rule", [None, Typical()], ids=["lossless", "typical"])
@pytest.mark.parametrize("sampling", ALL, ids=str)
def test_only_rows_that_would_become_text_count(sampling, rule):
    """A draft that goes wrong into broken rows is rejected as any other; one that is right comes upon them."""
    lm = circle(5, np.nan)
    wrong = Oracle([0, 5, 5, 5, 5, 5, 5], 3)
    assert generate(lm, [0], wrong, max_new_tokens=4, sampling=sampling, rule=rule).tokens == (1, 2, 3, 4)
    with pytest.raises(BrokenLogits, match=r"after position 5 \(token 5\) is nan"):
        generate(lm, [0], Oracle([0, 1, 2, 3, 4, 5, 0], 6), max_new_tokens=6, sampling=sampling, rule=rule)


def test_minus_infinity_rules_tokens_out():
    lm = circle()
    lm.table[lm.table == 0] = -np.inf
    assert generate(lm, [0], max_new_tokens=3, sampling=WARM).tokens == (1, 2, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_largest_is_nan_where_there_is_one(dtype):
    logits = torch.tensor([[1.0, 3.0, 2.0], [1.0, float("nan"), 2.0], [float("inf"), 1.0, float("nan")]], dtype=dtype)
    ids, tops = largest(logits)
    assert ids[0] == 1 and tops[0] == 3 and np.isnan(tops[1:]).all()


@pytest.mark.parametrize("execution", ["eager", "packed"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
def test_a_model_with_one_damaged_row(execution, sampling):
    damaged = copy.deepcopy(tiny("llama")).float()
    with torch.no_grad():
        damaged.get_input_embeddings().weight[9] = float("nan")
    with pytest.raises(BrokenLogits, match=r"after position 2 \(token 4\) is nan"):
        generate(CachedLM(damaged, execution), [3, 9, 4], max_new_tokens=3, sampling=sampling)


@pytest.mark.parametrize("sampling", [GREEDY, WARM, Sampling(presence_penalty=0.5)], ids=["greedy", "warm", "penalty"])
def test_a_draft_model_that_is_broken(sampling):
    drafter = DraftModel(circle(2, np.nan), 4, sampling=sampling)
    with pytest.raises(BrokenLogits, match=r"of the draft model after position 2 \(token 2\) is nan"):
        generate(circle(), [0], drafter, max_new_tokens=5, sampling=sampling)
    broken = lambda state: torch.full((2, 6), float("nan"))  # noqa: E731
    heads = Medusa(broken, np.arange(6), np.ones((2, 2)) / 3, 6, sampling=sampling)
    heads.reset([0, 1])
    heads.read_prompt(torch.zeros(1, 6))
    with pytest.raises(BrokenLogits, match="of the draft model after position 1"):
        generate(circle(), [0, 1], heads, max_new_tokens=5, sampling=sampling)
    with pytest.raises(BrokenLogits, match="after position 0"):
        Reduced(np.arange(2), 6, sampling).best(torch.tensor([1.0, float("inf")]), [3], 1)


class Proposes(DrafterBase):
    """One tree of tokens 1 and 2, and a scratch row where asked, from laws of your own."""

    name = "proposes"

    def __init__(self, draw, q, tokens=(1, 2), parents=(0, 0), scratch=()):
        self.draw, self.q, self.tokens, self.parents, self.scratch = draw, q, tokens, parents, scratch

    def propose(self, context, budget, rng):
        rows = len(self.tokens) + 1
        candidate = np.isin(np.arange(rows), self.scratch, invert=True)
        q = np.zeros((rows, 6)) if self.draw != "point" else None
        for row, law in ({} if q is None else self.q).items():
            q[row] = law
        return DraftTree([context[-1], *self.tokens], [-1, *self.parents], self.draw, q, candidate)


FAIR = [0.25, 0.25, 0.25, 0.25, 0, 0]
WRONG_LAWS = [
    ([0.125, 0.125, 0.125, 0.125, 0, 0], "sums to 0.5"),
    ([0.5, 0.5, 0.5, 0.5, 0, 0], "sums to 2.0"),
    ([0.75, 0.5, 0.25, -0.5, 0, 0], "its least -0.5"),
    ([np.nan, 0.5, 0.5, 0, 0, 0], "sums to nan"),
    ([np.inf, 0.5, 0.5, 0, 0, 0], "sums to inf"),
    ([0.25, 0.25, 0.25, 0.25 + 2e-6, 0, 0], "expected 1 within 1e-6"),
    ([0.5, 0.5, 0, 0, 0, 0], "token 2 in row 2, where its q is 0"),
]


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
@pytest.mark.parametrize("q, says", WRONG_LAWS)
def test_a_law_that_is_none_is_refused_with_the_tree(q, says, draw, sampling):
    with pytest.raises(DraftError, match=f"'proposes' has .*{says}"):
        generate(circle(), [0], Proposes(draw, {0: q}), max_new_tokens=2, sampling=sampling)
    deep = Proposes(draw, {0: FAIR, 1: q}, (1, 1, 2), (0, 1, 1))
    with pytest.raises(DraftError, match="row [13]"):
        generate(circle(), [0], deep, max_new_tokens=2, sampling=sampling)


def test_trees_that_no_drawing_without_replacement_makes():
    for drafter, says in (
        (Proposes("without_replacement", {0: FAIR}, (1, 1)), "a child twice"),
        (Proposes("without_replacement", {0: FAIR}, scratch=[1]), "scratch rows among children"),
        (Proposes("without_replacement", {0: FAIR, 1: FAIR}, (1, 2, 3), (0, 1, 1), [2]), "scratch rows among children"),
    ):
        with pytest.raises(DraftError, match=says):
            generate(circle(), [0], drafter, max_new_tokens=2, sampling=WARM)


def test_laws_without_children_are_never_read():
    for drafter in (
        Proposes("iid", {0: FAIR, 1: [np.nan] * 6, 2: [9.0] * 6}),
        Proposes("iid", {0: FAIR, 1: [np.nan] * 6}, (1, 2), (0, 1), [2]),
        Proposes("without_replacement", {0: FAIR, 2: [-1.0] * 6}, (1, 2, 3), (0, 0, 2), [3]),
        Proposes("iid", {0: FAIR}, (1, 1)),
        Proposes("point", {}),
    ):
        assert generate(circle(), [0], drafter, max_new_tokens=2, sampling=WARM).tokens == (1, 2)
