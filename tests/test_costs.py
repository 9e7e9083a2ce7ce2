"""t(q) on a model whose forwards take the time that a script gives them."""

import json
from types import SimpleNamespace

import pytest
import tiny_model
import torch
from tiny_models import tiny

from specdec_core.base.errors import ContextLimitError, SpecdecError, UnsupportedModel
from specdec_core.commands.cli import main
from specdec_core.commands.costs import batch_table
from specdec_core.core.contract import LMOutput
from specdec_core.core.toy import TableLM
from specdec_core.measure import costs, kept_costs
from specdec_core.measure.costs import Costs
from specdec_core.model import batch
from specdec_core.model.invariance import Shape
from specdec_core.model.lm import CachedLM
from specdec_core.theory import alpha_for


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


class ScriptedBatches(Scripted, CachedLM):
    """A forward of B sequences of q rows takes ``seconds[q]`` and 10 s more for each further sequence."""

    length = 0

    def with_own_cache(self):
        return self

    @staticmethod
    def forward_together(lms, trees):
        lm, rows = lms[0], len(trees[0].tokens)
        lm.now += lm.seconds[rows] + 10.0 * (len(lms) - 1)
        lm.calls.append((rows, len(lms)))
        return [LMOutput(torch.zeros(rows, lm.vocab_size)) for _ in lms]


@pytest.fixture
def scripted_batches(monkeypatch):
    monkeypatch.setattr(batch, "forward_together", ScriptedBatches.forward_together)
    return ScriptedBatches


def test_widths_take_turns_after_a_warm_up_and_the_median_is_kept():
    lm = Scripted({1: 1.0, 4: 2.0, 8: 3.0})
    measured = costs.measure_costs(lm, widths=(8, 1, 4, 1), context=20, repeats=3, clock=lm.clock)
    assert lm.calls == [1, 1, 4, 4, 8, 8] + [1, 4, 8] * 3
    assert lm.length == 20
    assert measured == Costs(20, 3, (1, 4, 8), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0), (1.0, 2.0, 3.0))


def test_spread_is_the_quartiles():
    """Two widths in turns, each call 1 s slower than the one before: 4 warm-up calls, then calls 4 ... 13."""
    lm = Scripted({1: 0.0, 2: 0.0}, drift=1.0)
    measured = costs.measure_costs(lm, widths=(1, 2), context=4, repeats=5, clock=lm.clock)
    assert (measured.low[0], measured.median[0], measured.high[0]) == (6.0, 8.0, 10.0)
    assert (measured.low[1], measured.median[1], measured.high[1]) == (7.0, 9.0, 11.0)


def test_between_widths_time_is_linear_and_outside_unknown():
    measured = Costs(0, 1, (1, 8), (0.010, 0.017), (0.0, 0.0), (0.0, 0.0))
    assert measured.t(4) == pytest.approx(0.013)
    assert measured.break_even(8) == pytest.approx(1.7)
    for q in (0, 9):
        with pytest.raises(ValueError, match="measured for q = 1 ... 8"):
            measured.t(q)


def test_a_disturbed_forward_takes_no_longer_than_a_wider_one():
    """t(2) was disturbed, and its quartiles more so; the model knows better, the record keeps what was measured."""
    measured = Costs(0, 3, (1, 2, 4), (0.010, 0.030, 0.014), (0.009, 0.012, 0.013), (0.018, 0.040, 0.016))
    levels = {"median": [0.010, 0.014, 0.014], "low": [0.009, 0.012, 0.013], "high": [0.016, 0.016, 0.016]}
    for level, seconds in levels.items():
        assert [measured.t(q, level=level) for q in (1, 2, 4)] == seconds
    assert measured.t(1.5) == pytest.approx(0.012) and measured.median[1] == 0.030
    assert measured.extended(2) == 0.014 and measured.extended(8) == pytest.approx(0.028)
    with pytest.raises(ValueError, match="measured for q = 1"):
        measured.extended(0)


def test_batches_take_turns_with_single_sequences(scripted_batches):
    lm = scripted_batches({1: 1.0, 4: 2.0, 128: 3.0})
    measured = costs.measure_costs(lm, (1, 4, 128), context=20, repeats=2, clock=lm.clock, batches=(4, 2))
    turn = [1, 4, 128, (1, 2), (4, 2), (128, 2), (1, 4), (4, 4)]
    assert lm.calls[0] == (1, 2), "a model that does not take a batch is found out first"
    assert lm.calls[1:] == [call for call in turn for _ in range(2)] + turn * 2
    assert [part.batch for part in measured.by_batch] == [1, 2, 4]
    assert measured.widths == (1, 4, 128) == measured.larger[0].widths
    assert measured.larger[1].widths == (1, 4), "4 sequences of 128 rows are more than are timed"
    assert measured.larger[1].median == measured.larger[1].low == (31.0, 32.0)
    assert (measured.t(4), measured.t(4, B=1), measured.t(4, B=2), measured.t(1, B=3)) == (2.0, 2.0, 12.0, 21.0)
    assert measured.break_even(4, B=4) == pytest.approx(32 / 31)


def test_a_batch_of_the_first_width_is_always_timed(scripted_batches):
    lm = scripted_batches({1: 1.0, 200: 1.0})
    assert costs.measure_costs(lm, (200,), 20, 1, lm.clock, batches=(2,)).larger[0].widths == (200,)


def test_between_batches_time_is_linear_and_outside_unknown():
    pair = Costs(0, 1, (1, 8), (0.020, 0.054), (0.0, 0.0), (0.0, 0.0), batch=2)
    four = Costs(0, 1, (1,), (0.060,), (0.0,), (0.0,), batch=4)
    measured = Costs(0, 1, (1, 8, 16), (0.010, 0.017, 0.025), (0.0,) * 3, (0.0,) * 3, larger=(pair, four))
    assert measured.t(16) == 0.025 and measured.t(8, B=1.5) == pytest.approx(0.0355)
    assert measured.t(1, B=3) == pytest.approx(0.040)
    for q, B in ((8, 3), (2, 4), (9, 2), (16, 1.5)):
        with pytest.raises(ValueError, match=r"measured for q = 1 \.\.\. . at B = "):
            measured.t(q, B)
    for B in (0, 5):
        with pytest.raises(ValueError, match="measured for B = 1, 2, 4; got B = "):
            measured.t(1, B)
    assert measured.break_even(8) == pytest.approx(1.7) and measured.break_even(8, B=2) == pytest.approx(2.7)
    assert Costs.from_json(measured.to_json()) == measured
    lines = batch_table(measured).splitlines()
    assert lines[1].split() == ["q", "B", "=", "1", "B", "=", "2", "B", "=", "4"]
    assert lines[3].split() == ["8", "17.0", "(1.70)", "54.0", "(2.70)", "-"]
    record = measured.to_json()
    for broken in (record["larger"][::-1], [{**pair.to_json(), "widths": [1, 7]}], [{**pair.to_json(), "batch": 1}], 3):
        with pytest.raises(ValueError):
            Costs.from_json({**record, "larger": broken})


def test_a_record_from_before_batches_is_one_sequence():
    old = {"context": 8, "repeats": 1, "widths": [1], "median": [0.1], "low": [0.1], "high": [0.1]}
    assert Costs.from_json(old).by_batch == (Costs(8, 1, (1,), (0.1,), (0.1,), (0.1,)),)


def test_batches_of_a_real_stack_and_of_what_cannot_batch():
    model = tiny("llama")
    measured = costs.measure_costs(CachedLM(model), (1, 3), context=5, repeats=1, batches=(1, 2))
    assert [part.widths for part in measured.by_batch] == [(1, 3), (1, 3)]
    assert all(seconds > 0 for part in measured.by_batch for seconds in part.median)
    alone = {
        "TableLM runs one sequence at a time": TableLM.random(4),
        "numerics='invariant' runs one sequence at a time": CachedLM(model, numerics="invariant", shape=Shape(16, 512)),
        "execution='compiled' runs one sequence at a time": CachedLM(model, execution="compiled"),
    }
    for words, lm in alone.items():
        with pytest.raises(UnsupportedModel, match=words):
            costs.measure_costs(lm, (1, 2), context=5, repeats=1, batches=(1, 2))


def test_what_cannot_be_measured_is_refused():
    lm = Scripted({1: 1.0})
    wrong = {"widths": (1,), "repeats": 0}, {"widths": (1,), "batches": (0, 1)}
    for options in ({"widths": ()}, {"widths": (0, 1)}, {"context": -1}, *wrong):
        with pytest.raises(ValueError, match="needed"):
            costs.measure_costs(lm, clock=lm.clock, **options)
    with pytest.raises(ContextLimitError, match="do not fit the model's context of 400"):
        costs.measure_costs(lm, widths=(128,), context=300, clock=lm.clock)


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

    def lm(execution="packed", numerics="fast"):
        return SimpleNamespace(loaded=Loaded, execution=SimpleNamespace(name=execution), numerics=numerics)

    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path))
    with pytest.raises(SpecdecError, match="run `specdec costs`"):
        kept_costs.kept(lm())
    pair = Costs(256, 7, (1, 2), (0.2, 0.3), (0.2, 0.3), (0.2, 0.3), batch=2)
    measured = Costs(256, 7, (1, 2), (0.1, 0.2), (0.1, 0.2), (0.1, 0.2), larger=(pair,))
    path = kept_costs.keep(measured, lm())
    assert path.is_relative_to(tmp_path)
    assert kept_costs.kept(lm()) == measured == kept_costs.kept_or_none(lm())
    for other in (lm(numerics="invariant"), lm("eager")):
        assert kept_costs.kept_or_none(other) is None
        with pytest.raises(SpecdecError, match="run `specdec costs`"):
            kept_costs.kept(other)
    path.write_text("{")
    with pytest.raises(SpecdecError, match="cannot be read"):
        kept_costs.kept(lm())
    assert kept_costs.kept_or_none(lm()) is None
    with pytest.raises(SpecdecError, match="hash of the weights"):
        kept_costs.kept(CachedLM(tiny("llama")))


def test_alpha_for_inverts_the_expectation():
    for alpha in (0.0, 0.3, 0.8, 1.0):
        tokens = sum(alpha**k for k in range(5))
        assert alpha_for(tokens, gamma=4) == pytest.approx(alpha, abs=1e-9)
    with pytest.raises(ValueError, match=r"yield 1 \.\.\. 5 tokens"):
        alpha_for(5.1, gamma=4)


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def specdec(folder, tmp_path, monkeypatch, capsys):
    """Runs `specdec costs` on the tiny model: (status, stdout, stderr)."""
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path))
    threads = torch.get_num_threads()

    def specdec(*arguments):
        words = ["--model", str(folder), "--dtype", "float32", "--device", "cpu", "--threads", "1",
                 "--context", "16", "--repeats", "1", "--widths", "1,3"]  # fmt: skip
        return (main(["costs", *words, *arguments]), *capsys.readouterr())

    yield specdec
    torch.set_num_threads(threads)


def stored_costs(tmp_path):
    (path,) = (tmp_path / "costs").iterdir()
    return Costs.from_json(json.loads(path.read_text())["costs"])


def test_the_command_prints_and_keeps_batches(specdec, tmp_path):
    status, out, err = specdec()
    assert status == 0, err
    kept = stored_costs(tmp_path)
    assert [part.batch for part in kept.by_batch] == list(costs.BATCHES)
    assert all(part.widths == (1, 3) for part in kept.by_batch)
    assert batch_table(kept) in out
    assert specdec("--batches", "1")[0] == 0
    assert stored_costs(tmp_path).larger == ()
    status, out, _ = specdec("--batches", "3")
    assert status == 0 and [part.batch for part in stored_costs(tmp_path).by_batch] == [1, 3] and "B = 3" in out


def test_the_command_leaves_batches_out_where_there_are_none_but_not_when_asked(specdec, tmp_path):
    status, out, err = specdec("--numerics", "invariant")
    assert status == 0 and "t(q, B) is left out: numerics='invariant' runs one sequence at a time" in err
    assert "t(q, B)" not in out and stored_costs(tmp_path).larger == ()
    status, _, err = specdec("--numerics", "invariant", "--batches", "2")
    assert status == 2 and "runs one sequence at a time" in err
