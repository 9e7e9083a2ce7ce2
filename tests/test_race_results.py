"""The figures of a race worked by hand, the table, and what a record rests on."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from handmade import step

from specdec_core import TableLM
from specdec_core.base import files
from specdec_core.core.trace import PHASES, Trace
from specdec_core.drafters import methods
from specdec_core.measure import machine
from specdec_core.race import tables
from specdec_core.race.results import Race
from specdec_core.race.rounds import Answer, Divergence, Round

# The figures, by hand


def made(tokens, seconds, calls=None, decode=None, memory=1000, peer=False, accepted=()):
    """``accepted``: the rows accepted of a draft of two tokens, in the first steps."""
    calls = calls or tokens
    each = dict.fromkeys(PHASES, (seconds if decode is None else decode) / 5 / calls)
    steps = [step((5, 6), rows) for rows in accepted] + [step()] * (calls - len(accepted))
    trace = Trace("m", 1, 0.0, [replace(it, seconds=each) for it in steps])
    return Answer((7,) * tokens, seconds, calls, memory, None if peer else trace)


def made_race(*rounds):
    """Rounds as (task, repeat, baseline's answer, other's answer)."""
    found = [
        Round(f"{task}-1", task, 0, repeat, (1, 2), {"autoregressive": one, "m": other})
        for task, repeat, one, other in rounds
    ]
    return Race(("autoregressive", "m"), found, complete=True)


def test_speedup_is_the_median_of_ratios_within_a_repeat_and_low_high_their_ends():
    # 12 tokens each. Ratios by repeat: 6/2 = 3, 4/4 = 1, 12/6 = 2; a ratio of medians would give 6/4.
    race = made_race(
        *(
            ("t", r, made(12, one), made(12, other, calls=4))
            for r, (one, other) in enumerate([(6, 2), (4, 4), (12, 6)])
        )
    )
    row = race.row("m", "t")
    assert (row.speedup, row.speedup_low, row.speedup_high) == pytest.approx((2, 1, 3))
    assert (row.tokens, row.seconds, row.tokens_per_second, row.tokens_per_call) == (12, 4, 3, 3)
    baseline = race.row("autoregressive", "t")
    assert (baseline.speedup, baseline.speedup_low, baseline.speedup_high) == (1, 1, 1)
    assert race.row("m", "t").speedup_by_repeat == pytest.approx([3, 1, 2])


def test_all_tasks_have_the_geometric_mean_in_each_repeat():
    race = made_race(
        ("a", 0, made(10, 8), made(10, 1, calls=5)),  # 8
        ("b", 0, made(10, 4), made(10, 2, calls=2)),  # 2; together sqrt(16) = 4
        ("a", 1, made(10, 2), made(10, 2, calls=5)),  # 1
        ("b", 1, made(10, 8), made(10, 2, calls=2)),  # 4; together 2
    )
    row = race.row("m", "all")
    assert (row.speedup, row.speedup_low, row.speedup_high) == pytest.approx((3, 2, 4))
    assert row.tokens == 20
    assert row.seconds == 3.5  # the median of 3 and 4
    assert row.tokens_per_call == pytest.approx(np.sqrt(2 * 5))
    assert row.tokens_per_second == pytest.approx(np.sqrt(10 / 1.5 * 10 / 2))


def test_an_answer_that_ends_early_is_not_faster_for_it():
    race = made_race(("t", 0, made(20, 10), made(4, 2)))
    assert race.row("m", "t").speedup == pytest.approx(1)


def test_decode_figures_leave_prefill_out_and_a_peer_has_none():
    race = made_race(("t", 0, made(10, 8, decode=6), made(10, 5, calls=5, decode=2, accepted=((1, 2), (1,), ()))))
    row = race.row("m", "t")
    assert row.speedup == pytest.approx(8 / 5)
    assert row.decode_speedup == pytest.approx(3)
    assert row.decode_seconds == pytest.approx(2)
    assert row.ms == pytest.approx(dict.fromkeys(PHASES, 1000 * 2 / 5 / 5))
    assert row.acceptance_by_depth == ((2, 3), (1, 2))
    assert (row.hit_rate, row.accepted_per_hit) == (3 / 5, 1)
    peer = made_race(("t", 0, made(10, 8), made(10, 5, peer=True))).row("m", "t")
    assert (peer.ms, peer.decode_speedup, peer.hit_rate) == (None, None, None)


def test_memory_is_the_largest_and_depths_add_up():
    race = made_race(
        ("t", 0, made(4, 1), made(4, 1, memory=3000, accepted=((),))),
        ("u", 0, made(4, 1), made(4, 1, memory=2000, accepted=((1, 2), (1,)))),
    )
    assert race.row("m", "all").peak_memory_bytes == 3000
    assert race.row("m", "u").peak_memory_bytes == 2000
    assert race.row("m").acceptance_by_depth == ((2, 3), (1, 2))


def test_what_is_not_in_a_race_is_named():
    race = made_race(("t", 0, made(4, 1), made(4, 1)))
    with pytest.raises(ValueError, match="a method of this race, one of autoregressive, m; got 'other'"):
        race.row("other")
    with pytest.raises(ValueError, match="a task of this race, one of t, or 'all'; got 'math'"):
        race.answers("m", "math")


def test_a_race_without_a_round_has_no_rows():
    with pytest.raises(ValueError, match="nothing was measured"):
        Race(("autoregressive",)).row("autoregressive")


def test_the_table_says_what_differs_and_where_first():
    race = made_race(("t", 0, made(10, 8), made(10, 5)), ("u", 0, made(10, 8), made(10, 5)))
    race.divergences = [
        Divergence("m", "t-1", "t", 0, 4, 7, 9, 0.125),
        Divergence("m", "u-1", "u", 0, 2, 7, None, 0.5),
    ]
    table = tables.cells(race.rows)
    by_place = {(cells[0], cells[1]): dict(zip(tables.COLUMNS, cells, strict=True)) for cells in table}
    assert by_place["t", "m"]["identical"] == "1 of 1 differ, first t-1 at token 5, logit gap 0.125"
    assert by_place["all", "m"]["identical"].startswith("2 of 2 differ, first t-1 at token 5")
    assert by_place["all", "m"]["identical"].endswith("(widest 0.5)")
    assert by_place["t", "autoregressive"]["identical"] == "yes"
    assert by_place["t", "m"]["speedup"] == "1.60"


# The record


def test_write_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "race.json"
    files.write(path, "old")

    def full(self, data):
        Path(self).open("wb").close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError):
        files.write(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["race.json"]
    assert path.read_text() == "old"


def test_peak_memory_sees_what_was_held_and_given_back():
    memory = machine.PeakMemory("cpu")
    memory.reset()
    before = memory.bytes()
    held = np.ones(16 << 20)  # 128 MiB, every page written
    del held
    assert memory.bytes() >= before
    if "during" in memory.meaning:
        assert memory.bytes() > before + (100 << 20)
        memory.reset()
        assert memory.bytes() < before + (100 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no later peak")
def test_peak_memory_is_not_hidden_in_what_was_freed_before():
    """Blocks of up to 32 MiB are malloc's own to keep: freed below one that lives, they stay resident."""
    np.ones(31 << 17)  # 31 MiB, freed: the next ones come from the heap
    blocks = [np.ones(20 << 17) for _ in range(20)]  # 400 MiB
    kept = [bytearray(1000) for _ in range(1000)]
    del blocks
    memory = machine.PeakMemory("cpu")
    memory.reset()
    before = memory.bytes()
    held = np.ones(16 << 20)  # 128 MiB
    del held
    assert memory.bytes() > before + (100 << 20) and kept


def test_commit_is_of_this_repository_or_none():
    commit = machine.commit()
    assert commit is None or (len(commit["hash"]) == 40 and commit["dirty"] in (True, False))


# Names of methods


@pytest.mark.parametrize(
    "name, says",
    [
        ("lookup", r"no method 'lookup'; choose from: autoregressive, prompt_lookup"),
        ("prompt_lookup:n=3", r"no setting 'n'; it takes: num_tokens, max_n, min_n, match"),
        ("autoregressive:n=3", r"it takes none"),
        ("prompt_lookup:max_n", r"expected key=value, such as num_tokens=5; got 'max_n'"),
    ],
)
def test_check_refuses(name, says):
    with pytest.raises(methods.MethodError, match=says):
        methods.check([name])


def test_build_explains_a_refused_value():
    with pytest.raises(methods.MethodError, match="'prompt_lookup:max_n=0'.*at least 1; got 0"):
        methods.build("prompt_lookup:max_n=0", methods.Context(TableLM.random(4)))
