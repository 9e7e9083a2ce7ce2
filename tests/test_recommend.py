"""The search and its verdict, on a tiny model and on races written by hand."""

from dataclasses import replace
from itertools import chain, repeat

import interrupts
import pytest
import tiny_model
from handmade import FLAT, advised, done

from specdec_core.base.errors import SpecdecError
from specdec_core.core.contract import DrafterBase
from specdec_core.core.sampling import Sampling
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import REGISTRY, methods
from specdec_core.drafters.methods import BASELINE
from specdec_core.measure.costs import Costs
from specdec_core.model.lm import CachedLM
from specdec_core.race import Question, recommendation
from specdec_core.race import advice as words
from specdec_core.race.halving import SHARES

QUESTIONS = [
    Question("one", "echo", ("Hello hello",)),
    Question("two", "talk", ("Once upon a time", "there was")),
    Question("three", "echo", ("abcabcabc",)),
]
FOREVER = 1e9  # seconds: everything fits


@pytest.fixture(scope="module")
def lm():
    return CachedLM(tiny_model.loaded(tiny_model.model()), execution="eager")


@pytest.fixture
def run(lm):
    def run(names=("prompt_lookup", "ngram"), questions=QUESTIONS, costs=FLAT, **options):
        options = {"seconds": FOREVER, "max_new_tokens": 8, "progress": False, **options}
        return recommendation.recommend(lm, questions, costs, names=list(names), **options)

    return run


# The search


def test_three_passes_from_all_methods_to_two(run):
    advice = run()
    assert [(done.questions, done.tokens, done.repeats) for done in advice.passes] == [
        (3, 8, 1),
        (3, 8, 1),
        (3, 8, 9),
    ]
    first, second, last = (done.race.methods for done in advice.passes)
    assert first == (BASELINE, "prompt_lookup", "ngram")
    assert second[1] in first and all(
        methods.parse(name)[0] == second[1] and ":" in name for name in second[2:]
    )
    assert len(second) > 2 and len(last) == 3 and set(last) <= set(second)
    assert advice.stopped == "" and advice.left_out == {}
    # A method is judged by the pass that has most answers of it.
    stages = {entry.method: entry.stage for entry in advice.entries}
    assert stages == {
        **dict.fromkeys(first[1:], 1),
        **dict.fromkeys(second[1:], 2),
        **dict.fromkeys(last[1:], 3),
    }
    assert [entry.stage for entry in advice.entries] == sorted(stages.values(), reverse=True)
    for entry in advice.entries:
        assert entry.row.identical is True
        assert set(entry.by_task) == {"echo", "talk"}
        assert entry.gain.over == ("repeats" if entry.stage == 3 else "questions")
        assert entry.gain.count == (9 if entry.stage == 3 else 3)
        assert (entry.prediction is not None) == (entry.steps.hits > 0)
    assert advice.method in (BASELINE, *last) and advice.best in advice.entries


def test_questions_take_turns_by_task(run):
    advice = run(names=["prompt_lookup"])
    assert [r.question for r in advice.passes[0].race.rounds] == ["one", "two", "two", "three"]


def test_all_methods_that_run_here_are_raced_and_the_others_say_why(lm, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path))  # no datastore is in there

    class Breaks(DrafterBase):
        name = "breaks"

        def propose(self, context, budget, rng):
            raise RuntimeError("no luck\nat all")

    monkeypatch.setitem(REGISTRY, "breaks", Breaks)
    given = [BASELINE, "prompt_lookup", "breaks", "rest"]
    monkeypatch.setattr(recommendation, "REGISTRY", dict.fromkeys(given))
    options = {"seconds": FOREVER, "max_new_tokens": 4, "progress": False}
    advice = recommendation.recommend(lm, QUESTIONS[:1], FLAT, **options)
    assert advice.passes[0].race.methods == (BASELINE, "prompt_lookup")
    assert advice.left_out["breaks"] == "no luck"
    assert "specdec datastore build" in advice.left_out["rest"]


def test_nothing_is_expected_of_a_method_whose_forwards_were_wider_than_measured(run):
    narrow = Costs(0, 1, (1, 2), (0.001, 0.001), (0.001, 0.001), (0.001, 0.001))
    advice = run(names=["lookahead:W=3,N=3"], costs=narrow)
    assert [entry.prediction for entry in advice.entries] == [None]


def test_sampling_has_nothing_to_be_identical_to(run):
    advice = run(names=["prompt_lookup:num_tokens=2"], sampling=Sampling(temperature=1.0), seed=1)
    assert [entry.row.identical for entry in advice.entries] == [None]


def test_progress_says_what_runs(run, capsys):
    run(names=["prompt_lookup:num_tokens=2"], progress=True)
    said = capsys.readouterr().err
    assert "pass 1 of 3: 1 method, 3 questions, answers of 8 tokens, 1 time\n" in said
    assert "pass 3 of 3: 1 method, 3 questions, answers of 8 tokens, 9 times\n" in said and "100%" in said


@pytest.mark.parametrize(
    "options, says",
    [
        ({"questions": []}, "at least one question"),
        ({"seconds": 1e-9}, "are too short: one question alone, by 2 methods, takes about"),
        ({"max_new_tokens": 2100}, "may not fit the model's context of 4096 tokens: two"),
        ({"names": []}, "no method can be raced here"),
        (
            {"names": ["breaks"]},
            "no method can be raced here .breaks: no luck.; choose others with --methods",
        ),
        ({"names": ["lookup"]}, "no method 'lookup'; choose from"),
    ],
)
def test_recommend_refuses(run, monkeypatch, options, says):
    class Breaks(DrafterBase):
        name = "breaks"

        def propose(self, context, budget, rng):
            raise RuntimeError("no luck")

    monkeypatch.setitem(REGISTRY, "breaks", Breaks)
    with pytest.raises(SpecdecError, match=says):
        run(**options)


def test_when_the_time_is_over_later_passes_are_left_out(run):
    clock = chain([0.0, 0.0], repeat(FOREVER))  # the start, the first pass, then too late
    advice = run(clock=lambda: next(clock))
    assert len(advice.passes) == 1 and advice.stopped == f"the time was over before pass 3 of {len(SHARES)}"
    assert {entry.stage for entry in advice.entries} == {1}
    assert "less than was planned: the time was over" in words.paragraph(advice)


def test_a_machine_that_slows_down_cuts_passes_short(run, monkeypatch):
    """By what is known, all questions fit into 100 s; then every answer of one method takes 30 s."""

    class Slow(DrafterBase):
        name, now = "slow", 0.0

        def reset(self, context):
            Slow.now += 30.0

        def propose(self, context, budget, rng):
            return DraftTree.empty(context[-1])

    monkeypatch.setitem(REGISTRY, "slow", Slow)
    advice = run(names=["slow"], seconds=100.0, clock=lambda: Slow.now)
    # It runs once to see that it does; 70 s are left, of which the first pass may take 35 and the second 8 of 10.
    assert [(len(done.race.rounds), done.race.late) for done in advice.passes] == [(1, True), (1, True)]
    assert Slow.now == 30 + 2 * (30 + 30), "in each pass a warm-up and the one round that there must be"
    assert advice.stopped == "the time was over before pass 3 of 3" and advice.method == BASELINE
    assert "less than was planned: the time was over" in words.paragraph(advice)


def test_time_over_in_the_last_pass_is_said(run, monkeypatch):
    class Slow(DrafterBase):
        name, now, answers = "slow", 0.0, 0

        def reset(self, context):
            Slow.answers += 1
            Slow.now += 40.0 * (Slow.answers > 1 + 2 * (1 + 4))  # to see that it runs; two passes of four turns

        def propose(self, context, budget, rng):
            return DraftTree.empty(context[-1])

    monkeypatch.setitem(REGISTRY, "slow", Slow)
    advice = run(names=["slow"], seconds=100.0, clock=lambda: Slow.now)
    assert [len(done.race.rounds) for done in advice.passes] == [4, 4, 1]
    assert advice.stopped == "the time was over in pass 3 of 3"


# Interrupts. `interrupts` answers once to see that it runs, and once at the beginning of each pass to warm
# up.


def test_an_interrupt_leaves_an_answer_from_what_was_measured(run, monkeypatch):
    interrupts.register(monkeypatch, nth=1 + 1 + 4 + 1 + 2)  # the second answer of the second pass
    advice = run(names=["interrupts"])
    assert advice.stopped == "it was interrupted"
    first, second = advice.passes
    assert first.race.complete and not second.race.complete
    assert len(second.race.rounds) == 1
    assert [(entry.method, entry.stage) for entry in advice.entries] == [("interrupts", 1)]  # most answers
    assert advice.method == BASELINE and advice.best.method == "interrupts"


def test_an_interrupt_between_rounds_of_a_pass_that_has_none_yet_uses_the_passes_before(run, monkeypatch):
    interrupts.register(monkeypatch, nth=1 + 1 + 4 + 1 + 1)  # the first answer of the second pass
    advice = run(names=["interrupts"])
    assert advice.stopped == "it was interrupted" and len(advice.passes) == 1


def test_an_interrupt_before_anything_was_measured_goes_on_up(run, monkeypatch):
    interrupts.register(monkeypatch, nth=1 + 1 + 1)
    with pytest.raises(KeyboardInterrupt):
        run(names=["interrupts"])


# The verdict


def test_the_fastest_of_the_last_pass_wins_if_its_gain_is_certain():
    first = done({"jacobi": [0.1], "prompt_lookup": [0.5], "ngram": [0.5]})
    last = done({"prompt_lookup": [0.5, 0.52, 0.49], "ngram": [0.6, 0.61, 0.6]}, stage=3)
    assert advised(first, last).method == "prompt_lookup"  # not jacobi, faster in a pass that only chose
    shaky = done({"prompt_lookup": [0.4, 1.1, 0.49], "ngram": [0.6, 0.61, 0.6]}, stage=3)
    assert advised(first, shaky).method == "ngram"


def test_nothing_gains_beyond_the_spread():
    advice = advised(done({"prompt_lookup": [0.98, 0.97, 1.01], "ngram": [1.2, 1.2, 1.2]}))
    assert advice.method == BASELINE and advice.best.method == "prompt_lookup"
    assert advised(done({"prompt_lookup": [0.2]})).method == BASELINE  # one value has no spread
    assert advised(done({"prompt_lookup": [0.2]}, questions=3)).method == "prompt_lookup"


def test_a_method_without_an_accepted_token_was_only_lucky():
    made = done({"prompt_lookup": [0.5, 0.5, 0.5]})
    for r in made.race.rounds:
        r.answers["prompt_lookup"] = replace(r.answers[BASELINE], seconds=0.5)
    advice = advised(made)
    assert advice.best.gain.certain and advice.method == BASELINE
