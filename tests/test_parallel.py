"""Lookahead parallelism: shares of a tree, and the same tokens from 1, 2 and 3 ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st
from model_free import FullContextLM, tiny_llama

from specdec_core.base.errors import DraftError, SpecdecError, UnsupportedModel
from specdec_core.core.contract import Budget
from specdec_core.core.engine import generate
from specdec_core.core.rng import Rng
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import Jacobi, Lookahead, NGramDictionary
from specdec_core.model.parallel import ShardedLM, shares

PROMPT = [1, 2, 3, 1, 2]
WARM = Sampling(temperature=1.0)


@st.composite
def trees(draw):
    parents = [-1] + [draw(st.integers(0, i)) for i in range(draw(st.integers(0, 25)))]
    return DraftTree(np.arange(len(parents)), parents)


@given(tree=trees(), ranks=st.integers(1, 6))
def test_shares_cover_the_tree_and_are_trees(tree, ranks):
    split = shares(tree, ranks)
    assert len(split) == ranks
    assert set(np.concatenate(split)) == set(range(len(tree.tokens)))
    for rows in split:
        assert rows[0] == 0 and (np.diff(rows) > 0).all()
        assert set(tree.parents[rows[1:]]) <= set(rows)
    # Only ancestors are shared: a leaf has one owner.
    leaves = set(range(1, len(tree.tokens))) - set(tree.parents)
    assert all(sum(leaf in rows for rows in split) == 1 for leaf in leaves)


def test_window_and_candidates_on_four_ranks():
    """W = 5, N = 4, G = 2, the paper's Figure 3: only the input token and level 0 are computed twice."""
    drafter = Lookahead(5, 4, 2)
    drafter.levels = [[0] * 5, [1] * 5, [2] * 5]
    drafter.pool = {9: {(10, 11, 12): None, (20, 21, 22): None}}
    tree = drafter.propose([9], Budget(64, 64), Rng(0))
    split = shares(tree, 4)
    # Rows: 0 root, 1-4 level 0, 5-9 level 1, 10-14 level 2, 15-17 and 18-20 candidates.
    assert [rows.tolist() for rows in split] == [
        [0, 1, 5, 6, 10, 11],
        [0, 1, 2, 7, 12],
        [0, 1, 2, 3, 4, 8, 9, 13, 14],
        [0, 15, 16, 17, 18, 19, 20],
    ]


def methods():
    return {
        "lookahead": lambda: Lookahead(5, 4, 5, prompt_ngrams=True),
        "lookahead accepted": lambda: Lookahead(4, 3, 4, slide="accepted"),
        "jacobi": lambda: Jacobi(4),
        "ngram": NGramDictionary,
    }


def models():
    table = TableLM.random(5, order=2, seed=4)
    return {"table": table, "full context": FullContextLM(4, seed=1), "llama": tiny_llama()}


def runs(wrap):
    """Everything that must not depend on the number of ranks."""
    results = {}
    for model, lm in models().items():
        for method, make in methods().items():
            for exchange, sampling in [("argmax", Sampling()), ("logits", Sampling()), ("logits", WARM)]:
                options = {"max_new_tokens": 20, "sampling": sampling, "seed": 7}
                run = generate(wrap(lm, exchange), PROMPT, make(), **options)
                steps = [(step.tree.tokens.tolist(), step.verdict.path) for step in run.trace.steps]
                results[model, method, exchange, sampling.temperature] = (run.tokens, steps)
    return results


class Counted:
    """A model that notes the width of its forwards."""

    def __init__(self, lm):
        self._lm, self.widths = lm, []

    def __getattr__(self, name):
        return getattr(self._lm, name)

    def forward(self, tree, needs_hidden=False):
        self.widths.append(len(tree.tokens))
        return self._lm.forward(tree, needs_hidden)


def everything(group):
    """What this rank sees: all runs, the widths of its forwards, and the refusals."""
    results = runs(lambda lm, exchange: ShardedLM(lm, group, exchange))

    counted = Counted(TableLM.random(5, order=2, seed=4))
    one = generate(ShardedLM(counted, group), PROMPT, Lookahead(5, 4, 5), max_new_tokens=24)
    results["widths"] = counted.widths, [len(step.tree.tokens) for step in one.trace.steps]

    def refusal(exchange, prompt, sampling):
        lm = ShardedLM(TableLM.random(5, seed=4), group, exchange)
        try:
            generate(lm, prompt, max_new_tokens=8, sampling=sampling)
        except SpecdecError as error:
            return type(error), str(error)

    odd = dist.get_rank(group) % 2
    results["other prompt"] = refusal("logits", [1, 2 + odd, 3], Sampling())
    results["sampling"] = refusal("argmax", PROMPT, WARM)

    def other(lm):
        try:
            generate(ShardedLM(lm, group, "argmax"), [1, 2], max_new_tokens=2)
        except SpecdecError as error:
            return type(error), str(error)

    last = dist.get_rank(group) == dist.get_world_size(group) - 1
    results["other weights"] = other(TableLM.random(5, seed=4 + last))
    results["other vocabulary"] = other(TableLM.random(5 + last, seed=4))
    results["other dtype"] = other(tiny_llama() if last else TableLM(np.zeros((11, 11), "float16")))
    results["a little off"] = other(TableLM(TableLM.random(5, seed=4).table * (1.01 if last else 1.0)))
    results["rounding"] = other(TableLM(TableLM.random(5, seed=4).table * (1 + 1e-9 * last)))
    return results


def on_a_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=3)
    two = dist.new_group([0, 1])
    torch.save({3: everything(None), 2: everything(two) if rank < 2 else None}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def spawned(tmp_path_factory):
    """Three processes, which first work together; then two of them work while the third is done."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(on_a_rank, (str(folder),), nprocs=3)
    saved = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(3)]
    return {ranks: [results[ranks] for results in saved[:ranks]] for ranks in (2, 3)}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    store = tmp_path_factory.mktemp("rank") / "meet"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield [everything(None)]
    dist.destroy_process_group()


@pytest.fixture(params=[1, 2, 3])
def gathered(request):
    if request.param == 1:
        return request.getfixturevalue("single")
    return request.getfixturevalue("spawned")[request.param]


@pytest.fixture(scope="module")
def alone():
    return runs(lambda lm, exchange: lm)


def test_every_rank_has_the_tokens_of_one(gathered, alone):
    for results in gathered:
        for key, expected in alone.items():
            assert results[key] == expected, key
    # Paths that another rank computed, and only in part, were among those accepted.
    assert max(len(path) for _, steps in alone.values() for _, path in steps) >= 3


def test_forwards_are_narrower(gathered):
    ranks = len(gathered)
    widths = np.array([results["widths"][0] for results in gathered])  # (ranks, steps)
    whole = np.array(gathered[0]["widths"][1])
    assert (widths.sum(0) >= whole).all()
    if ranks == 1:
        assert (widths == whole).all()
    else:
        assert widths.max(0).mean() < whole.mean()


def test_refusals(gathered):
    for results in gathered:
        kind, text = results["sampling"]
        assert kind is SpecdecError and 'exchange="logits"' in text
        if len(gathered) == 1:
            assert results["other prompt"] is None
        else:
            kind, text = results["other prompt"]
            assert kind is DraftError and "same prompt, seed, drafter" in text


@pytest.mark.parametrize("name", ["other weights", "other vocabulary", "other dtype", "a little off", "rounding"])
def test_ranks_that_hold_other_models_are_all_told_so(gathered, name):
    for results in gathered:
        if len(gathered) == 1 or name == "rounding":
            assert results[name] is None
        else:
            kind, text = results[name]
            assert kind is UnsupportedModel and "ranks compute different logits after the same text" in text


def test_refuses_another_exchange(single):
    with pytest.raises(ValueError, match="'logits' or 'argmax'; got 'kv'"):
        ShardedLM(TableLM.random(3), exchange="kv")
    with pytest.raises(DraftError, match="hidden states are not exchanged"):
        ShardedLM(TableLM.random(3)).forward(DraftTree.empty(0), needs_hidden=True)
