"""The formulas of rounding against torch's own formats, against enumeration, and against a run with known shifts."""

import numpy as np
import pytest
import torch

from specdec_core.core.engine import generate
from specdec_core.core.toy import TableLM
from specdec_core.measure.divergence import reread
from specdec_core.theory import (
    BITS,
    flip_rate,
    identical_probability,
    law_shift_bound,
    near_tie_density,
    rounded,
    spacing,
)

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("format", BITS)
def test_rounding_is_that_of_torch(format):
    x = np.random.default_rng(0).normal(scale=30, size=2000)
    x = np.concatenate([x, [1.0, 256.0, 257.0, 259.0, -257.0, 0.0]])
    assert rounded(x, BITS[format]).tolist() == torch.tensor(x).to(DTYPES[format]).double().tolist()


@pytest.mark.parametrize("format", BITS)
@pytest.mark.parametrize("x", [1.0, 1.99, 20.0, 0.3])
def test_spacing_is_the_step_to_the_next_number(x, format):
    x = torch.tensor(x, dtype=DTYPES[format])
    step = torch.nextafter(x, torch.full_like(x, 100.0)) - x
    assert spacing(float(x), BITS[format]) == float(step)


def test_the_flip_rate_is_how_often_a_small_shift_turns_the_sign():
    rng = np.random.default_rng(0)
    gaps = rng.exponential(2.0, size=400_000)
    d = rng.normal(scale=0.05, size=gaps.size)
    expected = flip_rate(near_tie_density(gaps, within=0.2), np.abs(d).mean())
    assert (gaps + d < 0).mean() == pytest.approx(expected, rel=0.1)


def test_the_bound_on_the_law_is_reached_and_never_passed():
    rng = np.random.default_rng(0)
    for delta in (0.01, 0.5, 3.0):
        a = 1 / (1 + np.exp(delta))
        p = np.array([a, 1 - a])
        worst = p * np.exp([delta, -delta])
        assert np.abs(worst / worst.sum() - p).sum() / 2 == pytest.approx(law_shift_bound(delta))
        for _ in range(200):
            p = rng.dirichlet(np.ones(5))
            other = p * np.exp(rng.uniform(-delta, delta, size=5))
            assert np.abs(other / other.sum() - p).sum() / 2 <= law_shift_bound(delta) + 1e-12


def test_numbers_outside_their_range_are_named():
    with pytest.raises(ValueError, match="bits must be one integer >= 1"):
        spacing(1.0, 0)
    with pytest.raises(ValueError, match="the size of x must be"):
        spacing(0.0, 8)
    with pytest.raises(ValueError, match="gaps must be a vector of at least one"):
        near_tie_density([], 0.5)
    with pytest.raises(ValueError, match="rate must be a probability"):
        identical_probability(1.5, 10)
    assert flip_rate(100.0, 1.0) == 1.0  # a rate, though the formula no longer holds


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7])
def test_rows_read_again_are_those_that_chose_the_answer(width):
    lm = TableLM.random(6, order=2, seed=3)
    answer = generate(lm, [1, 4], max_new_tokens=7).tokens
    rows = reread(lm, [1, 4], answer, width)
    assert rows.argmax(1).tolist() == list(answer) and lm.length == 8
    assert torch.equal(rows, reread(lm, [1, 4], answer, 1))


def test_nothing_to_read_again():
    lm = TableLM.random(6)
    assert reread(lm, [1], [], 4).shape == (0, 6)
    with pytest.raises(ValueError, match="got 0 and 1 tokens"):
        reread(lm, [1], [2], 0)
    with pytest.raises(ValueError, match="got 1 and 0 tokens"):
        reread(lm, [], [2], 1)
