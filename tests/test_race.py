"""A race: the order of the runs, what each answer is compared with, and what is left after Ctrl-C."""

import json

import interrupts
import pytest
import tiny_model
import torch

from specdec_core import TableLM, compare
from specdec_core.core.contract import DrafterBase
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import Stop
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import REGISTRY, PromptLookup
from specdec_core.model.lm import CachedLM
from specdec_core.race import Question, bench, peers, record, tables
from specdec_core.race.bench import BenchError

LOOKUP = "prompt_lookup"
PEERS = ["transformers:greedy", "transformers:prompt_lookup"]
QUESTIONS = [
    Question("one", "echo", ("Hello hello",)),
    Question("two", "talk", ("Once upon a time", "there was")),
    Question("three", "echo", ("abcabcabc",)),
]


@pytest.fixture(scope="module")
def loaded():
    return tiny_model.loaded(tiny_model.model())


@pytest.fixture
def run(loaded):
    def run(names=(LOOKUP,), questions=QUESTIONS, **options):
        options = {"max_new_tokens": 24, "repeats": 2, **options}
        return compare(CachedLM(loaded, execution="eager"), questions, list(names), **options)

    return run


# The runs


def test_all_methods_answer_every_turn_in_every_repeat_in_rotating_order(run, loaded):
    race = run(repeats=3, rivals=peers.contestants(loaded))
    names = ["autoregressive", LOOKUP, *PEERS]
    assert race.methods == tuple(names)
    turns = [("one", 0), ("two", 0), ("two", 1), ("three", 0)]
    assert [(r.repeat, r.question, r.turn) for r in race.rounds] == [
        (repeat, *turn) for repeat in range(3) for turn in turns
    ]
    for i, r in enumerate(race.rounds):
        first = (r.repeat + i % 4) % 4
        assert list(r.answers) == names[first:] + names[:first]
    assert race.complete


def test_methods_agree_and_read_the_same_prompts(run, loaded):
    race = run(rivals=peers.contestants(loaded))
    assert race.divergences == []
    for r in race.rounds:
        assert len({answer.tokens for answer in r.answers.values()}) == 1
        assert len(r.answers["autoregressive"].tokens) == r.answers["autoregressive"].calls == 24
    # Random weights repeat themselves now and then: somewhere a draft was accepted, on both sides.
    for name in (LOOKUP, "transformers:prompt_lookup"):
        assert sum(r.answers[name].calls for r in race.rounds) < 24 * len(race.rounds)
    first, second = [r for r in race.rounds if r.question == "two" and r.repeat == 0]
    answered = loaded.decode(first.answers["autoregressive"].tokens).strip()
    conversation = f"user: Once upon a time\nassistant: {answered}\nuser: there was\nassistant: "
    assert loaded.decode(second.prompt_ids) == conversation


def test_the_baseline_is_added_and_methods_are_raced_once(run):
    assert run([LOOKUP, "autoregressive", LOOKUP], QUESTIONS[:1]).methods == ("autoregressive", LOOKUP)


def test_a_new_drafter_needs_only_the_registry_and_is_fresh_in_every_repeat(run, monkeypatch):
    built = []

    class Remembers(DrafterBase):
        name = "remembers"

        @classmethod
        def build(cls, context, size=3):
            built.append((context.lm.vocab_size, context.tokenizer.eos_token, size))
            return cls()

        def reset(self, context):
            self.requests = getattr(self, "requests", 0) + 1

        def propose(self, context, budget, rng):
            return DraftTree.chain(context[-1], [self.requests][: budget.depth])

    monkeypatch.setitem(REGISTRY, "remembers", Remembers)
    race = run(["remembers:size=5"], QUESTIONS[:1], repeats=3)
    assert built == [(300, tiny_model.END, 5)] * 4  # once to warm up
    drafts = [answer.trace.steps[0].tree.tokens[1:].tolist() for answer in race.answers("remembers:size=5")]
    assert drafts == [[1], [1], [1]]
    assert race.divergences == []


def test_stop_tokens_end_ours_and_the_peers_answers_alike(run, loaded):
    free = run(questions=QUESTIONS[:1], repeats=1).rounds[0].answers["autoregressive"].tokens
    stopping = tiny_model.loaded(loaded.model, {free[2]})
    race = compare(
        CachedLM(stopping), QUESTIONS[:1], [LOOKUP], repeats=1, max_new_tokens=24, rivals=peers.contestants(stopping)
    )
    assert {answer.tokens for answer in race.rounds[0].answers.values()} == {free[: free.index(free[2]) + 1]}
    ours = run(questions=QUESTIONS[:1], repeats=1, stop=Stop([free[2]]))
    assert ours.answers(LOOKUP)[0].tokens == free[: free.index(free[2]) + 1]


def test_the_peer_decodes_plainly_whatever_the_model_would_default_to(loaded):
    prompt = list(range(40))
    plain = {name: peer.answer(prompt, 12) for name, peer in peers.contestants(loaded).items()}
    own = loaded.model.generation_config
    try:
        own.repetition_penalty, own.min_length, own.eos_token_id = 3.0, 200, int(plain[PEERS[0]][0][3])
        assert {name: peer.answer(prompt, 12) for name, peer in peers.contestants(loaded).items()} == plain
        assert loaded.model.generation_config is own
    finally:
        own.repetition_penalty = own.min_length = own.eos_token_id = None
    assert all(len(tokens) == 12 for tokens, _ in plain.values())


def test_the_peers_prompt_lookup_gets_our_settings(loaded):
    ours = ["autoregressive", f"{LOOKUP}:num_tokens=4,max_n=2", LOOKUP]
    for names, tokens, longest in ((ours, 4, 2), ((), 10, PromptLookup().max_n)):
        given = peers.contestants(loaded, names)[PEERS[1]].settings
        assert (given["prompt_lookup_num_tokens"], given["max_matching_ngram_size"]) == (tokens, longest)


def test_a_divergence_names_the_place_the_tokens_and_the_gap(run, loaded):
    rivals = peers.contestants(tiny_model.loaded(tiny_model.model(seed=1)))
    race = run(questions=QUESTIONS[:1], repeats=2, rivals=rivals)
    r = race.rounds[0]
    right, wrong = r.answers["autoregressive"].tokens, r.answers[PEERS[0]].tokens
    at = next(i for i in range(24) if right[i] != wrong[i])
    assert [d.method for d in race.divergences] == PEERS  # each once, though it happened in both repeats
    found = race.divergences[0]
    assert (found.question, found.turn, found.position) == ("one", 0, at)
    assert (found.expected, found.got) == (right[at], wrong[at])
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[*r.prompt_ids, *right[:at]]])).logits[0, -1]
    largest, second = logits.topk(2).values.tolist()
    assert found.logit_gap == pytest.approx(largest - second, rel=1e-4)
    assert race.row(LOOKUP).identical is True
    assert race.row(PEERS[0]).identical is False
    assert race.row(PEERS[0]).divergences == (found,)


def test_sampling_has_nothing_to_be_identical_to(run):
    race = run(sampling=Sampling(temperature=1.0), seed=3)
    assert {row.identical for row in race.rows} == {None}
    assert "- (sampled)" in tables.text(tables.cells(race.rows))
    tokens = [r.answers["autoregressive"].tokens for r in race.rounds]
    assert tokens[:4] == tokens[4:]  # one seed: the repeats do the same work
    assert tokens != [
        r.answers["autoregressive"].tokens for r in run(sampling=Sampling(temperature=1.0)).rounds
    ]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"questions": []}, "at least one question"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"repeats": 0}, "repeats is 0"),
        ({"max_new_tokens": 2100}, "may not fit the model's context of 4096 tokens: two"),
    ],
)
def test_race_refuses(run, options, says):
    with pytest.raises(BenchError, match=says):
        run(**options)


def test_the_peer_is_not_asked_to_sample(run, loaded):
    with pytest.raises(BenchError, match="greedy"):
        run(sampling=Sampling(temperature=0.5), rivals=peers.contestants(loaded))


def test_a_record_keeps_every_step(run):
    race = run(questions=QUESTIONS[:1], repeats=1)
    content = made(race)
    kept = next(answer for answer in content["traces"] if answer["method"] == LOOKUP)
    steps = [dict(zip(content["step_fields"], step, strict=True)) for step in kept["trace"]["steps"]]
    assert [token for step in steps for token in step["tokens"]] == kept["tokens"]
    assert len(steps) == kept["calls"]
    for step in steps:
        accepted = [step["drafted"][row - 1] for row in step["accepted"]]
        assert accepted == step["tokens"][: len(accepted)]
        assert step["parents"] is None and len(step["microseconds"]) == 5


# Drafters and prompts of one's own


def test_prompts_are_texts_token_ids_or_questions_and_have_tasks(loaded):
    lm = CachedLM(loaded, execution="eager")
    prompts = {"a": ["Hello hello", list(b"abcabc")], "b": [QUESTIONS[1]]}
    race = compare(lm, prompts, [LOOKUP], max_new_tokens=4, repeats=1)
    assert [(r.task, r.question, r.turn) for r in race.rounds] == [
        ("a", "a-1", 0), ("a", "a-2", 0), ("b", "two", 0), ("b", "two", 1),
    ]  # fmt: skip
    assert race.rounds[0].prompt_ids == tuple(loaded.encode("Hello hello"))
    assert race.rounds[1].prompt_ids == tuple(b"abcabc")
    assert len(race.answers(LOOKUP)) == 4 and len(race.answers(LOOKUP, "a")) == 2
    assert race.pairs()[1] == (list(b"abcabc"), *[list(race.answers(LOOKUP)[1].tokens)] * 2)
    alone = compare(lm, [list(b"abcabc")], [LOOKUP], max_new_tokens=4, repeats=1)
    assert alone.tasks == ["prompts"]


def test_a_function_makes_a_drafter_for_every_repeat_and_a_drafter_stays_itself(loaded):
    made = []

    def make():
        made.append(PromptLookup(num_tokens=2))
        return made[-1]

    mine = PromptLookup(num_tokens=3)
    drafters = {3: mine, "made": make, "named": "prompt_lookup:num_tokens=3"}
    race = compare(CachedLM(loaded), [list(b"abcabc")], drafters, max_new_tokens=4, repeats=2)
    assert race.methods == ("autoregressive", 3, "made", "named")
    assert len(made) == 3  # once to warm up
    assert race.row(3).tokens_per_call == race.row("named").tokens_per_call
    assert all(row.identical for row in race.rows)
    assert race.steps(3).hits == sum(step.tree.size > 0 for a in race.answers(3) for step in a.trace.steps)


@pytest.mark.parametrize(
    "prompts, says", [([1, 2, 3], "a list of token ids or a Question for each prompt; got 1"), (["Hi"], "need a token")]
)
def test_prompts_that_cannot_be_read_are_refused(prompts, says):
    with pytest.raises(BenchError, match=says):
        compare(TableLM.random(4), prompts, [LOOKUP])


# Interrupts


def test_an_interrupt_keeps_whole_rounds_and_compares_whole_repeats(run, monkeypatch):
    interrupts.register(monkeypatch, nth=1 + 4 + 3)  # the third round of the second repeat
    race = run(["interrupts"], repeats=3)
    assert not race.complete
    assert [(r.repeat, r.question) for r in race.rounds[4:]] == [(1, "one"), (1, "two")]
    assert all(set(r.answers) == {"autoregressive", "interrupts"} for r in race.rounds)
    repeats = {row.task: row.repeats for row in race.rows}
    assert repeats == {"echo": 1, "talk": 1, "all": 1}


def test_an_interrupt_before_the_first_round_is_over_goes_on_up(run, monkeypatch):
    interrupts.register(monkeypatch, nth=2)
    with pytest.raises(KeyboardInterrupt):
        run(["interrupts"])


def test_methods_warm_up_on_the_end_of_a_prompt(run, monkeypatch):
    """The baseline reads all of it; the others need not, and a race is not spent on it."""
    read = []

    class Notes(DrafterBase):
        name = "notes"

        def reset(self, context):
            read.append(len(context))

        def propose(self, context, budget, rng):
            return DraftTree.empty(context[-1])

    monkeypatch.setitem(REGISTRY, "notes", Notes)
    monkeypatch.setattr(bench, "WARMUP_PROMPT", 4)
    race = run(["notes"], repeats=1)
    assert read == [4] + [len(r.prompt_ids) for r in race.rounds] and min(read[1:]) > 4


# Time. The clock is asked when the race begins, when a round begins and when it is over.


class Clock:
    """Each round takes as long as the script says; nothing else takes time."""

    def __init__(self, *rounds):
        self.now, self.rounds, self.asked = 100.0, iter(rounds), 0

    def __call__(self):
        self.asked += 1
        if self.asked % 2 and self.asked > 1:  # a round is over
            self.now += next(self.rounds)
        return self.now


@pytest.mark.parametrize(
    "seconds, rounds",
    [(0.0, 1), (19.9, 1), (20.0, 2), (49.9, 3), (50.0, 3), (74.9, 4), (75.0, 5), (1e9, 8)],
)
def test_no_round_begins_that_would_end_late(run, seconds, rounds):
    """Rounds of 10, 10, 25 and 5 s: after 20 s another 10 are expected, and after 45 s another 25."""
    clock = Clock(10, 10, 25, 5, 10, 10, 25, 5)
    race = run(seconds=seconds, clock=clock)
    assert (len(race.rounds), race.complete, race.late) == (rounds, rounds == 8, rounds < 8)
    assert race.rows and race.divergences == []
    text = json.loads(record.to_text(made(race)))
    assert (text["complete"], text["late"]) == (race.complete, race.late)


def made(race):
    return record.body(race, {})


def test_a_conversation_cut_short_keeps_the_turns_that_were_answered(run):
    race = run(seconds=30.0, clock=Clock(10, 10, 20), repeats=1)
    assert [(r.question, r.turn) for r in race.rounds] == [("one", 0), ("two", 0)] + [("two", 1)]
    assert race.late


def test_time_is_no_matter_where_none_is_given(run):
    clock = Clock(*[1e9] * 8)
    race = run(clock=clock)
    assert race.complete and not race.late and len(race.rounds) == 8
