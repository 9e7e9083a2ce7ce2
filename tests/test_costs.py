"""t(q) on a model whose forwards take the time that a script gives them."""

import pytest
import torch

from specdec_core import costs
from specdec_core.costs import Costs
from specdec_core.errors import ContextLimitError, SpecdecError
from specdec_core.interface import LMOutput


class Scripted:
    """A forward of q rows takes ``seconds[q]``, and ``drift`` more from call to call."""

    vocab_size, max_length = 50, 400

    def __init__(self, seconds, drift=0.0):
        self.seconds, self.drift, self.now, self.calls = seconds, drift, 0.0, []

    def prefill(self, ids, reserve=0):
        self.length = len(ids)

    def forward(self, tree, needs_hidden=False):
        rows = len(tree.tokens)
        assert tree.is_chain
        self.now += self.seconds[rows] + self.drift * len(self.calls)
        self.calls.append(rows)
        return LMOutput(torch.zeros(rows, self.vocab_size))

    def clock(self):
        return self.now


def test_widths_take_turns_after_a_warm_up_and_the_median_is_kept():
    lm = Scripted({1: 1.0, 4: 2.0, 8: 3.0})
    measured = costs.measure(lm, widths=(8, 1, 4, 1), context=20, repeats=3, clock=lm.clock)
    assert lm.calls == [1, 1, 4, 4, 8, 8] + [1, 4, 8] * 3
    assert lm.length == 20
    assert measured == Costs(20, 3, (1, 4, 8), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0))


def test_spread_is_the_quartiles():
    """Two widths in turns, each call 1 s slower than the one before: 4 warm-up calls, then calls 4 ... 13."""
    lm = Scripted({1: 0.0, 2: 0.0}, drift=1.0)
    measured = costs.measure(lm, widths=(1, 2), context=4, repeats=5, clock=lm.clock)
    assert (measured.low[0], measured.median[0], measured.high[0]) == (6.0, 8.0, 10.0)
    assert (measured.low[1], measured.median[1], measured.high[1]) == (7.0, 9.0, 11.0)


def test_between_widths_time_is_linear_and_outside_unknown():
    measured = Costs(0, 1, (1, 8), (0.010, 0.017), (0.0, 0.0), (0.0, 0.0))
    assert measured.t(4) == pytest.approx(0.013)
    assert measured.break_even(8) == pytest.approx(1.7)
    for q in (0, 9):
        with pytest.raises(ValueError, match="measured for q = 1 ... 8"):
            measured.t(q)


def test_what_cannot_be_measured_is_refused():
    lm = Scripted({1: 1.0})
    for options in ({"widths": ()}, {"widths": (0, 1)}, {"context": -1}, {"widths": (1,), "repeats": 0}):
        with pytest.raises(ValueError, match="needed"):
            costs.measure(lm, clock=lm.clock, **options)
    with pytest.raises(ContextLimitError, match="do not fit the model's context of 400"):
        costs.measure(lm, widths=(128,), context=300, clock=lm.clock)


def test_json_round_trip_and_what_is_no_record():
    measured = Costs(256, 7, (1, 2), (0.1, 0.2), (0.1, 0.2), (0.1, 0.2))
    record = measured.to_json()
    assert Costs.from_json(record) == measured
    for broken in ({"context": 1}, {**record, "median": [0.1]}, {**record, "widths": [2, 1]}):
        with pytest.raises(ValueError):
            Costs.from_json(broken)


def test_costs_are_kept_for_one_model_and_place(tmp_path, monkeypatch):
    class Loaded:
        weights_hash, dtype, device, why = "ab" * 32, torch.float32, torch.device("cpu"), "because"

    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path))
    with pytest.raises(SpecdecError, match="run `specdec costs`"):
        costs.kept(Loaded)
    measured = Costs(256, 7, (1, 2), (0.1, 0.2), (0.1, 0.2), (0.1, 0.2))
    path = costs.keep(measured, Loaded)
    assert path.is_relative_to(tmp_path) and costs.kept(Loaded) == measured
    with pytest.raises(SpecdecError, match="run `specdec costs`"):
        costs.kept(Loaded, "invariant")
    path.write_text("{")
    with pytest.raises(SpecdecError, match="cannot be read"):
        costs.kept(Loaded)


def test_alpha_for_inverts_the_expectation():
    for alpha in (0.0, 0.3, 0.8, 1.0):
        tokens = sum(alpha**k for k in range(5))
        assert costs.alpha_for(tokens, gamma=4) == pytest.approx(alpha, abs=1e-9)
    with pytest.raises(ValueError, match=r"yield 1 \.\.\. 5 tokens"):
        costs.alpha_for(5.1, gamma=4)
