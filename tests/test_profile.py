"""Profiles of a tiny model: the parts add up to the whole, and each has the least work that it can have."""

import pytest
import torch
from test_execution import float32

from specdec_core.core.contract import NullDrafter
from specdec_core.core.engine import generate
from specdec_core.core.trace import PHASES
from specdec_core.drafters import Jacobi
from specdec_core.measure import profiling
from specdec_core.measure.limits import Limits
from specdec_core.model.lm import CachedLM

PROMPT = [5, 6, 7, 8] * 5
EXECUTIONS = ["eager"] + ["packed"] * torch.backends.mkldnn.is_available()


@pytest.fixture(scope="module", params=EXECUTIONS)
def profiled(request):
    lm = CachedLM(float32("llama"), request.param)
    before = generate(lm, PROMPT, max_new_tokens=8).tokens
    found = profiling.profile(lm, PROMPT, NullDrafter(), drafted=False, max_new_tokens=8)
    assert generate(lm, PROMPT, max_new_tokens=8).tokens == before
    return found


def test_the_parts_of_a_forward_add_up_to_it(profiled):
    assert profiled.rows == 1 and profiled.steps == 7  # the first is not counted
    assert set(profiled.phases) == {*PHASES, profiling.LOOP}
    assert set(profiled.parts) == set(profiling.PARTS)
    assert sum(profiled.parts.values()) == pytest.approx(profiled.phases["forward"])
    assert profiled.outside == pytest.approx(1 - profiled.phases["forward"] / profiled.seconds)


def test_each_weight_is_read_once_a_forward(profiled):
    """Three layers of width 32: queries 32, keys and values 16 each, output 32, three matrices to 48; head 61."""
    layer = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 48
    assert profiled.work[profiling.PRODUCTS].bytes == 4 * 3 * layer
    assert profiled.work[profiling.PRODUCTS].flops == 2 * 3 * layer
    assert profiled.work[profiling.HEAD].bytes == 4 * 61 * 32
    limits = Limits(bandwidth=1e9, flops=1e30)
    assert profiled.limit(limits) > (4 * 3 * layer + 4 * 61 * 32) / 1e9


def test_a_run_that_never_drafts_has_no_drafted_step():
    lm = CachedLM(float32("llama"), "eager")
    with pytest.raises(profiling.SpecdecError):
        profiling.profile(lm, PROMPT, NullDrafter(), drafted=True, max_new_tokens=4)
    assert profiling.profile(lm, PROMPT, Jacobi(m=4), drafted=True, max_new_tokens=8).rows == 5
