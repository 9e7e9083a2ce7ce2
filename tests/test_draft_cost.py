"""What a drafted token costs: the parts add up, and the projection is as large as the tokens it projects to."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_model
import torch

from specdec_core.base.errors import SpecdecError
from specdec_core.core import engine
from specdec_core.core.contract import DrafterBase
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import MTP, REGISTRY, Adaptive, Cascade, DraftModel, PromptLookup
from specdec_core.drafters.feature import FeatureModel
from specdec_core.drafters.feature_net import FeatureDraft, Frozen
from specdec_core.measure import context_for, profiling
from specdec_core.measure.costs import Costs
from specdec_core.measure.draft_cost import draft_seconds, drafting
from specdec_core.model.lm import CachedLM

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

PROMPT = [5, 6, 7, 8]
LAYER = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 64  # queries, keys, values, output; three matrices to 64


@pytest.mark.parametrize("execution", ["eager"] + ["packed"] * torch.backends.mkldnn.is_available())
def test_the_parts_are_the_drafters_own_model_and_add_up(execution):
    target = tiny_model.model()
    lm, drafter = CachedLM(target), DraftModel(CachedLM(tiny_model.model(seed=1), execution), 3)
    one = drafting(lm, PROMPT, drafter, max_new_tokens=8, repeats=1)
    assert (one.drafter, one.vocabulary) == ("draft_model", 300)
    assert set(one.parts) == set(profiling.PARTS) and sum(one.parts.values()) == pytest.approx(one.seconds)
    assert one.seconds > 0 and 0 < one.projection < 1
    # One forward a drafted token: two layers, and 300 rows of the projection, each of them read once.
    assert one.work[profiling.PRODUCTS].bytes == pytest.approx(4 * 2 * LAYER)
    assert one.work[profiling.HEAD].bytes == pytest.approx(4 * 300 * 32)
    assert 0 <= one.accepted <= 1 <= one.tokens_per_call
    whole = sum(work.bytes for work in one.work.values())
    assert one.read == pytest.approx(4 * 300 * 32 / whole)


def test_the_table_has_a_row_a_method():
    from draft_cost import HEADER, row

    lm = CachedLM(tiny_model.model())
    one = drafting(lm, PROMPT, DraftModel(CachedLM(tiny_model.model()), 2), max_new_tokens=9, repeats=1)
    line = row("draft_model", one)
    assert len(line) == len(HEADER) and line.split()[:2] == ["draft_model", "300"]
    assert line.split()[-2:] == ["1.000", "3.00"]
    numbers = np.array(line.split()[2:7], float)
    assert numbers[0] == pytest.approx(numbers[1:].sum(), abs=3e-3)


def test_a_feature_module_is_measured_with_some_tokens_and_with_all():
    from draft_cost import widen

    target, ids = tiny_model.model(), torch.arange(50)
    lm, head = CachedLM(target), target.lm_head.weight.detach()
    torch.manual_seed(0)
    module = FeatureDraft(Frozen(head, head[ids], ids, target.config), normed=True).eval().requires_grad_(False)
    drafter = MTP(FeatureModel(module, lm.execution.embed), 300, 3)
    some = drafting(lm, PROMPT, drafter, max_new_tokens=6, repeats=1)
    widen(drafter, lm)
    all_of_them = drafting(lm, PROMPT, drafter, max_new_tokens=6, repeats=1)
    assert (some.vocabulary, all_of_them.vocabulary) == (50, 300)
    assert some.work[profiling.HEAD].bytes == pytest.approx(4 * 50 * 32)
    assert all_of_them.work[profiling.HEAD].bytes == pytest.approx(4 * 300 * 32)
    layer = LAYER + 32 * 64  # and the join
    assert some.work[profiling.PRODUCTS].bytes == all_of_them.work[profiling.PRODUCTS].bytes == pytest.approx(4 * layer)


def test_a_drafter_without_a_model_is_refused():
    lm = CachedLM(tiny_model.model())
    with pytest.raises(SpecdecError, match="prompt_lookup has no vocabulary projection of its own"):
        drafting(lm, PROMPT, PromptLookup())
    alone = DraftModel(CachedLM(tiny_model.model(context=4)), 2)
    with pytest.raises(SpecdecError, match="drafted nothing in this run"):
        drafting(lm, PROMPT, alone, max_new_tokens=3, repeats=1)


class Ticking(DrafterBase):
    """Drafts as many nodes as it may, up to six; its draft of m takes 2 + m ticks of the engine's clock."""

    has_model = True

    def __init__(self, clock):
        self.clock = clock

    def propose(self, context, budget, rng):
        nodes = min(6, budget.nodes, budget.depth)
        self.clock.now += 2 + nodes
        return DraftTree.chain(context[-1], [0] * nodes)


def test_the_time_of_a_draft_is_a_line_through_two(monkeypatch):
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(engine, "perf_counter", clock)
    d = draft_seconds(TableLM.random(5), Ticking(clock))
    assert [d(m) for m in (1, 2, 6, 8)] == pytest.approx([3, 4, 8, 10])


def test_adaptive_measures_what_a_models_drafts_cost(monkeypatch):
    context = context_for(CachedLM(tiny_model.model()), costs=Costs(8, 1, (1, 8), *[(1.0, 2.0)] * 3))
    cheap = Adaptive.build(context, method="prompt_lookup")
    assert cheap.draft_seconds(8) == 0
    pair = Cascade(PromptLookup(), DraftModel(CachedLM(tiny_model.model(seed=1)), 3))
    assert pair.has_model and not Cascade(PromptLookup(), PromptLookup()).has_model
    class Given(DraftModel):
        @classmethod
        def build(cls, context):
            return cls(CachedLM(tiny_model.model(seed=1)), 3)

    monkeypatch.setitem(REGISTRY, "given", Given)
    dear = Adaptive.build(context, method="given")
    assert 0 < dear.draft_seconds(1) <= dear.draft_seconds(3)
