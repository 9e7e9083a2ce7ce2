"""Kinds of fault that users of speculative decoding have met, numbered; each must come out right for every method.

The methods are the drafters of the registry that need nothing but text. What another file checks with the right
value is not checked twice:

     5  a draft that is always right is accepted whole      test_trace; test_draft_model: test_case_05_...
     6  a cache that cannot be rewound is refused           test_architectures: test_case_06_...
    10  three children drawn without replacement            test_laws: test_block_has_the_target_law, widths (3,)
    21  100 continuations of equal frequency, 64 nodes      test_ngram, test_rest
    22  ids above 65,535; a store wider than the target     test_datastore, test_rest, test_suffix_decoding
    24  a draft model with another tokenizer                test_draft_model: test_case_24_...
    26  many requests through a bounded memory              test_ngram, test_suffix_decoding
    27  a datastore larger than memory                      test_datastore
    29  a damaged store, weight file or download            test_datastore, test_fetch, test_records
    30  modules that are not as their class made them       test_unusual_modules: adapters, hooks, patches, heads
    31  a comparison too lax to see a mask or a row         test_unusual_modules: test_the_comparison_sees_...
    32  a file that is no model, or half of one             test_gguf_file: test_a_file_that_is_no_model_...
    33  an end that one file of a model alone names         test_models: test_stop_ids_are_all_that_...
    34  a changed byte in what a file says of itself        test_records: test_any_changed_byte_is_refused_...
    35  a folder that is read-only, full, or built anew     test_records: test_a_read_only_..., test_a_full_disk_...,
        while it is read                                    test_readers_and_builders_at_once_are_all_right
    36  what is no whole number, or no finite one           test_arguments: every limit, id, seed and setting
    37  a setting that a default budget stands above        test_arguments: test_a_draft_as_long_as_was_asked_for
    38  a processor given another text than the row's       test_planted_mistakes, test_laws, test_processors
    39  a CPU that oneDNN knows less of than the system     test_models: test_loading_packing_and_the_printed_line...
    46  a stop token before min_new_tokens                  test_min_new_tokens: the law, and planted mistakes
    47  a log-probability of another row or law             test_logprobs: a plain forward's, with every drafter
    48  several users of one cache; a target that drafts    test_ownership
    49  a model that is changed after it was wrapped        test_changed_models: test_a_change_is_refused_...
    50  text that is not Unicode                            test_text: test_half_a_surrogate_pair_is_refused_...
    51  numbers that are none become text                   test_broken_numbers: test_broken_logits_are_an_error_...
    52  a q that is no law, or not what was drawn from      test_broken_numbers: test_a_law_that_is_none_...
    53  a limit that is never reached                       test_changed_models: test_memory_follows_the_text_...
    54  Ctrl-C at any instruction                           test_interrupts, and interrupts.py as a command
    55  values narrower or wider than keys                  test_architectures: test_values_have_a_width_of_their_own

and of grading:

    40  a hand-in that vanishes, or merges with another     test_classroom_handin: files, archives, students, names
    41  right at home and wrong at grading, or the reverse  test_classroom_files: test_what_passes_at_home_...
    42  files, secrets, memory, processes out of bounds     test_classroom_attacks: test_an_attack_is_lost_...
    43  what a submission leaves behind changes a mark      test_classroom_attacks: test_clearing_up_...
    44  a false pass, a message that says nothing           classroom_answers: WRONG and RIGHT of each question
"""

import copy
import json
import sys
from functools import cache

import numpy as np
import pytest
import tiny_model
from drafters_for_tests import Drawing, Oracle
from laws import EXACT, PLAIN, Draw, law_error
from model_free import Letters, tokens_read
from pieces import Pieces
from shipped import SHIPPED
from tiny_models import LIMIT, plain_logits, tiny

from specdec_core.base.errors import ContextLimitError
from specdec_core.core.contract import Budget, DrafterBase
from specdec_core.core.engine import generate, stream
from specdec_core.core.rng import Rng, enumerate_law
from specdec_core.core.rules import verify
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import Stop
from specdec_core.core.toy import TableLM
from specdec_core.core.trace import PHASES, Trace
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import REGISTRY, drafter_class
from specdec_core.model.lm import CachedLM

# Lookahead says so when a test gives it fewer rows than its window takes.
pytestmark = pytest.mark.filterwarnings("ignore:W=")

METHODS = [name for name in REGISTRY if "build" not in vars(drafter_class(name))]
LOOKUPS = ("prompt_lookup", "ngram", "suffix_decoding")
every_method = pytest.mark.parametrize("name", METHODS)
every_lookup = pytest.mark.parametrize("name", LOOKUPS)
every_model = pytest.mark.parametrize("kind", ["table", "float64", "float32"])
table_and_model = pytest.mark.parametrize("kind", ["table", "float64"])
# What makes a method draft the next tokens of `counting` at its first step, where its defaults do not.
EAGER = {"jacobi": {"init": [1, 2, 3, 4, 5, 6, 7, 0]}, "lookahead": {"W": 2, "N": 9, "prompt_ngrams": True}}
PERIODS = [*range(8), *range(8), 0]


def eager(name):
    return drafter_class(name)(**EAGER.get(name, {}))


def counting(vocab_size=8):
    """n is followed by n + 1, and the last token by 0."""
    return TableLM(3.0 * np.roll(np.eye(vocab_size), 1, axis=1))


@cache
def llama(dtype):
    return tiny("llama") if dtype == "float64" else copy.deepcopy(tiny("llama")).float()


@cache
def model(kind):
    return TableLM.random(7, order=2, seed=5) if kind == "table" else CachedLM(llama(kind))


@cache
def answer(kind, prompt, length):
    """The greedy continuation, one whole forward of the text a token: no cache, no loop of ours."""
    text = list(prompt)
    for _ in range(length):
        text.append(int((model(kind).row(text) if kind == "table" else plain_logits(llama(kind), text)).argmax()))
    return tuple(text[len(prompt) :])


@every_model
@every_method
def test_case_01_a_one_token_prompt(name, kind):
    run = generate(model(kind), [3], drafter_class(name)(), max_new_tokens=20)
    assert run.tokens == answer(kind, (3,), 20)


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
def test_case_01_a_one_token_prompt_and_a_tiny_draft_model(draw):
    drafter = Drawing(Draw(TableLM.random(7, seed=9), (2, 1), draw))
    run = generate(model("table"), [3], drafter, max_new_tokens=20)
    assert run.tokens == answer("table", (3,), 20) and run.trace.drafted > 0


@every_method
def test_case_02_a_periodic_prompt_in_float32(name):
    prompt = [9, 8, 7, 6, 5] * 6
    run = generate(model("float32"), prompt, drafter_class(name)(), max_new_tokens=40)
    assert run.tokens == answer("float32", tuple(prompt), 40)
    assert run.trace.drafted > 0 or name == "autoregressive"


@table_and_model
@every_method
def test_case_03_the_same_drafter_and_model_again_after_another_prompt(name, kind):
    drafter, lm, prompt = drafter_class(name)(), model(kind), (1, 2, 3, 1, 2)
    for text in (prompt, (4, 4, 4), prompt, prompt):
        assert generate(lm, text, drafter, max_new_tokens=12).tokens == answer(kind, text, 12)


class Bush(DrafterBase):
    """``nodes`` rows: the right continuation, ``depth`` deep, behind as many wrong siblings as fit."""

    name = "bush"

    def __init__(self, text, nodes, depth, vocab_size):
        self.text, self.nodes, self.depth, self.vocab_size = text, nodes, depth, vocab_size

    def propose(self, context, budget, rng):
        tokens, parents, at = [context[-1]], [-1], 0
        right = self.text[len(context) : len(context) + self.depth]
        per_depth = self.nodes // self.depth
        for token in right:
            wrong = [(token + 1 + i % (self.vocab_size - 1)) % self.vocab_size for i in range(per_depth - 1)]
            tokens += [*wrong, token]
            parents += [at] * per_depth
            at = len(tokens) - 1
        return DraftTree(tokens, parents)


@every_model
def test_case_04_a_tree_of_one_node_and_one_of_63(kind):
    prompt, lm = (1, 2, 3), model(kind)
    right = answer(kind, prompt, 22)
    for nodes, depth, a_call in ((1, 1, 2), (7, 7, 8), (63, 7, 8), (63, 1, 2)):
        drafter = Bush([*prompt, *right], nodes, depth, lm.vocab_size)
        run = generate(lm, prompt, drafter, max_new_tokens=16)
        assert run.tokens == right[:16]
        assert {step.tree.size for step in run.trace.steps} == {nodes}
        assert run.trace.tokens_per_call == a_call


@pytest.mark.parametrize("draw, widths", [("iid", (1, 1)), ("iid", (2,)), ("without_replacement", (2,))], ids=str)
def test_case_07_a_draft_of_its_top_2_of_6_tokens_has_the_targets_law(draw, widths):
    """q is the law over 2 tokens that was drawn from; with the law before top-k in its place the test fails."""
    target, draft, top_2 = TableLM.random(6, seed=1), TableLM.random(6, seed=2), Sampling(temperature=1.0, top_k=2)
    assert law_error(verify, Draw(draft, widths, draw, top_2), target) <= EXACT
    if draw == "iid":
        assert law_error(verify, Draw(draft, widths, draw, top_2, reported=PLAIN), target) > 1e-3


def without_token_4():
    """Five tokens, the last of which the target never says."""
    table = np.random.default_rng(0).normal(size=(5, 5))
    table[:, 4] = -np.inf
    return TableLM(table)


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
@pytest.mark.parametrize("how", ["logit of minus infinity", "cut by top-k"])
def test_case_08_draft_mass_where_p_is_zero_is_never_emitted(how, draw):
    target, sampling = without_token_4(), PLAIN
    if how == "cut by top-k":
        target.table[:, 4] = -9.0
        sampling = Sampling(temperature=1.0, top_k=4)
    likes_4 = np.zeros((5, 5))
    likes_4[:, 4] = 2.0
    draft, tested = Draw(TableLM(likes_4), (2,), draw), set()

    def block(rng):
        tree = draft((0, 1), rng)
        target.prefill([0])
        verdict = verify(sampling.laws(target.forward(tree).logits, tree, [0, 1], 2), tree, rng)
        tested.update(trial.accept_prob for trial in verdict.trials if tree.tokens[trial.node] == 4)
        return verdict.tokens

    law = enumerate_law(block)
    assert tested == {0.0}
    assert {token for tokens in law for token in tokens} == {0, 1, 2, 3}
    assert law_error(verify, draft, target, sampling) <= EXACT


@every_method
def test_case_08_a_copied_token_with_p_zero_is_never_emitted(name):
    prompt, drafted, emitted = [0, 4, 1, 4, 2, 4, 3, 4, 0], set(), set()
    for seed in range(10):
        run = generate(without_token_4(), prompt, drafter_class(name)(), max_new_tokens=20, sampling=PLAIN, seed=seed)
        drafted |= {int(token) for step in run.trace.steps for token in step.tree.tokens[1:]}
        emitted |= set(run.tokens)
    assert emitted == {0, 1, 2, 3}
    assert 4 in drafted or name == "autoregressive" or name not in SHIPPED  # these do draft it


class Rejecting:
    """Rejects whatever can be, and even what cannot; keeps the laws it is asked to pick from."""

    def __init__(self):
        self.laws = []

    def uniform(self):
        return 1.0

    def pick(self, law):
        self.laws.append(law)
        return int(np.argmax(law))


@pytest.mark.parametrize("draw, siblings", [("iid", [2, 2, 1]), ("without_replacement", [2]), ("iid", [2])], ids=str)
def test_case_09_p_equal_to_q_follows_p_after_a_forced_rejection(draw, siblings):
    """max(p - q, 0) is zero everywhere: the correction is drawn from p, not from 0/0."""
    p = np.array([0.1, 0.2, 0.3, 0.4])
    tree = DraftTree([7, *siblings], [-1] + [0] * len(siblings), draw, np.tile(p, (len(siblings) + 1, 1)))
    rng = Rejecting()
    verdict = verify(np.tile(p, (len(siblings) + 1, 1)), tree, rng)
    assert verdict.tokens == (3,) and not any(trial.accepted for trial in verdict.trials)
    np.testing.assert_allclose(rng.laws, [p], rtol=1e-15)


@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
def test_case_09_p_equal_to_q_accepts_every_first_child(draw):
    same = TableLM.random(4, seed=3)
    run = generate(same, [1], Drawing(Draw(same, (2, 1, 1), draw)), max_new_tokens=40, sampling=PLAIN)
    assert run.trace.acceptance_rate == 1.0 and run.trace.tokens_per_call == 4.0


@table_and_model
@every_method
def test_case_11_seeds(name, kind):
    prompt, lm = (1, 2, 3, 1, 2), model(kind)

    def tokens(seed, temperature):
        sampling = Sampling(temperature=temperature)
        return generate(lm, prompt, drafter_class(name)(), max_new_tokens=8, sampling=sampling, seed=seed).tokens

    sampled = [tokens(seed, 1.0) for seed in range(10)]
    assert [tokens(seed, 1.0) for seed in (0, 7)] == [sampled[0], sampled[7]]
    assert len(set(sampled)) > 1
    assert {tokens(seed, 0.0) for seed in range(10)} == {answer(kind, prompt, 8)}


class Recording(Rng):
    """Keeps every uniform that it gave."""

    def __init__(self, seed):
        super().__init__(seed)
        self.given = []

    def uniform(self):
        self.given.append(super().uniform())
        return self.given[-1]


@pytest.mark.parametrize("draw", ["iid", "without_replacement"])
def test_case_12_every_uniform_is_drawn_afresh(draw):
    """A draft draws one a node, a verdict one a test and one for its last token: all different, in both streams."""
    rngs = Recording(1), Recording(2)
    drafter = Drawing(Draw(TableLM.random(4, seed=8), (2, 1, 1), draw))
    target = TableLM.random(4, seed=3)
    trace = generate(target, [1], drafter, max_new_tokens=200, sampling=PLAIN, rngs=rngs).trace
    drafting, verifying = (rng.given for rng in rngs)
    assert len(drafting) == sum(step.tree.size for step in trace.steps)
    assert len(verifying) == trace.tested + trace.target_calls
    assert len({*drafting, *verifying}) == len(drafting) + len(verifying)


@pytest.mark.parametrize("position", range(8))
@every_method
def test_case_13_a_stop_token_ends_the_run_at_every_position_of_a_draft(name, position):
    """The answer begins 1 2 3 4 5 6 7 0, all of it in one accepted draft."""
    stop, lm = (position + 1) % 8, counting()
    run = generate(lm, PERIODS, eager(name), max_new_tokens=20, stop=Stop(tokens=[stop]))
    assert run.tokens == (1, 2, 3, 4, 5, 6, 7, 0)[: position + 1] and run.finish_reason == "stop_token"
    assert name == "autoregressive" or run.trace.steps[0].verdict.accepted >= 8
    assert lm.length == len(PERIODS) + position  # the stop token is emitted, and nothing behind it is kept


@every_model
@every_method
def test_case_13_the_third_token_declared_a_stop_token(name, kind):
    prompt = (1, 2, 3)
    plain = answer(kind, prompt, 20)
    right = plain[: plain.index(plain[2]) + 1]
    for drafter in (drafter_class(name)(), *(Oracle([*prompt, *plain], gamma) for gamma in range(1, 7))):
        run = generate(model(kind), prompt, drafter, max_new_tokens=20, stop=Stop(tokens=plain[2]))
        assert (run.tokens, run.finish_reason) == (right, "stop_token")


@pytest.mark.parametrize("max_nodes", [0, 1, 2, 20])
@every_method
def test_case_14_a_stop_string_that_straddles_two_tokens(name, max_nodes):
    """Tokens a, bE, ND, c and d, END being the stop: text ab, and neither bE nor ND is shown, at any step."""
    stop = Stop(strings="END", tokenizer=Pieces("a", "bE", "ND", "c", "d"))
    drafter = eager(name) if name != "jacobi" else drafter_class(name)(init=[0, 1, 2, 3, 4])
    prompt = [0, 1, 2, 3, 4] * 3
    run = stream(counting(5), prompt, drafter, max_new_tokens=20, stop=stop, max_nodes=max_nodes)
    shown = [run.watch.released() for _ in run]
    result = run.result()
    assert (result.tokens, result.text, result.finish_reason) == ((0,), "ab", "stop_string")
    assert shown[-1] == "ab" and all("ab".startswith(text) for text in shown)


@pytest.mark.parametrize("position", range(7))
@every_method
def test_case_14_a_stop_string_inside_a_draft_at_every_position(name, position):
    """The answer is b c d e f g h a in one draft; the stop is the letters at ``position`` and after it."""
    letters = "bcdefgha"
    stop = Stop(strings=["zz", letters[position : position + 2]], tokenizer=Letters())
    run = generate(counting(), PERIODS, eager(name), max_new_tokens=20, stop=stop)
    assert (run.text, run.finish_reason) == (letters[:position], "stop_string")
    assert run.tokens == (1, 2, 3, 4, 5, 6, 7)[:position]


@pytest.mark.parametrize("limit", [0, 1, 2])
@every_method
def test_case_15_exactly_as_many_tokens_as_asked(name, limit):
    """Of a draft of 8 or more, all of which the target accepts."""
    run = generate(counting(), PERIODS, eager(name), max_new_tokens=limit)
    assert (run.tokens, run.finish_reason) == ((1, 2)[:limit], "length")
    assert run.trace.emitted == limit
    if limit and name != "autoregressive":
        assert run.trace.target_calls == 1 and run.trace.steps[0].verdict.accepted >= 8


@pytest.mark.parametrize("kind", ["float64", "float32"])
@every_method
def test_case_15_exactly_as_many_tokens_as_asked_of_a_model(name, kind):
    prompt = (1, 2, 3, 1, 2)
    for limit in (0, 1, 2):
        for drafter in (drafter_class(name)(), Oracle([*prompt, *answer(kind, prompt, 8)], gamma=5)):
            run = generate(model(kind), prompt, drafter, max_new_tokens=limit)
            assert (run.tokens, run.finish_reason) == (answer(kind, prompt, 8)[:limit], "length")


@pytest.mark.parametrize("stop", [None, Stop(tokens=None), Stop(tokens=[])], ids=["no stop", "None", "[]"])
@every_method
def test_case_16_without_a_stop_token_a_run_goes_to_its_limit(name, stop):
    """Also past what the model's own configuration calls the end of a sequence."""
    ours, prompt = copy.deepcopy(llama("float64")), (1, 2, 3)
    right = answer("float64", prompt, 20)
    ours.config.eos_token_id = ours.generation_config.eos_token_id = right[2]
    run = generate(CachedLM(ours), prompt, drafter_class(name)(), max_new_tokens=20, stop=stop)
    assert (run.tokens, run.finish_reason) == (right, "length")


@every_method
def test_case_17_a_prompt_at_the_context_limit_or_just_below(name):
    """GPT-2 has a table of positions: one too far would be an index out of range, in the middle of a forward."""
    gpt2 = tiny("gpt2")
    lm = CachedLM(gpt2)
    text = [5, 6, 7, 8] * (LIMIT // 4)
    for room in (1, 2, 3):
        run = generate(lm, text[: LIMIT - room], drafter_class(name)(), max_new_tokens=20)
        assert (len(run.tokens), run.finish_reason) == (room, "context")
        assert run.tokens[0] == plain_logits(gpt2, text[: LIMIT - room]).argmax()
    exact = generate(lm, text[: LIMIT - 1], drafter_class(name)(), max_new_tokens=1)
    assert (len(exact.tokens), exact.finish_reason) == (1, "length")
    for length in (LIMIT, LIMIT + 1):
        with pytest.raises(ContextLimitError, match=f"has {length} tokens .* at most {LIMIT - 1} tokens"):
            generate(lm, (text * 2)[:length], drafter_class(name)(), max_new_tokens=1)


@pytest.mark.parametrize("cap, tokens, reason", [(5, (1, 2, 3), "stop_token"), (2, (1, 2), "length")])
def test_case_18_a_stop_in_the_third_place_of_a_block_of_6(cap, tokens, reason):
    lm = counting()
    drafter = Oracle([0, 1, 2, 3, 4, 5, 6], gamma=5)
    run = generate(lm, [0], drafter, max_new_tokens=cap, stop=Stop(tokens=3))
    assert run.trace.steps[0].verdict.tokens == (1, 2, 3, 4, 5, 6)
    assert (run.tokens, run.finish_reason, lm.length) == (tokens, reason, len(tokens))


@table_and_model
@every_method
def test_case_19_prompts_of_one_and_two_tokens(name, kind):
    for prompt in ((0,), (1, 0), (2, 2)):
        run = generate(model(kind), prompt, drafter_class(name)(), max_new_tokens=12)
        assert run.tokens == answer(kind, prompt, 12)


@every_method
def test_case_19_an_empty_prompt_begins_a_sequence_or_is_refused(name):
    run = generate(model("float64"), [], drafter_class(name)(), max_new_tokens=12)
    assert run.tokens == answer("float64", (1,), 12)
    with pytest.raises(ValueError, match="this model has none; pass at least one token id"):
        generate(model("table"), [], drafter_class(name)())


@every_lookup
def test_case_19_without_a_repeated_ngram_nothing_is_drafted_until_there_is_one(name):
    """40 tokens in a row, then over again: the first draft is made after the second 0, and then all is right."""
    run = generate(counting(40), range(10), drafter_class(name)(), max_new_tokens=60)
    assert run.tokens == tuple(n % 40 for n in range(10, 70))
    drafts = [(step.context_length, step.tree.size > 0) for step in run.trace.steps]
    assert drafts[:31] == [(length, False) for length in range(10, 41)]
    assert all(drafted for _, drafted in drafts[31:]) and run.trace.acceptance_rate == 1.0


@every_method
def test_case_20_statistics_of_a_run_in_which_nothing_was_drafted(name):
    for prompt, options in (([0], {"max_nodes": 0}), ([0], {"max_new_tokens": 0})):
        trace = generate(counting(40), prompt, drafter_class(name)(), **{"max_new_tokens": 5, **options}).trace
        assert (trace.drafted, trace.tested, trace.accepted) == (0, 0, 0)
        assert (trace.acceptance_rate, trace.hit_rate, trace.acceptance_by_depth()) == (0.0, 0.0, [])
        assert trace.tokens_per_call == (1.0 if trace.steps else 0.0)
        assert len(json.loads(json.dumps(trace.to_json()))["steps"]) == trace.target_calls
    assert Trace().seconds == dict.fromkeys(PHASES, 0)


@every_method
def test_case_23_token_0_is_a_token_like_any_other(name):
    """Drafted, accepted, sampled with its probability, and a stop if it is said to be one."""
    zeros = TableLM(np.array([[9.0, 0.0, 0.0]] * 3))
    run = generate(zeros, [0, 0, 0], drafter_class(name)(), max_new_tokens=12)
    assert run.tokens == (0,) * 12
    assert name == "autoregressive" or run.trace.accepted > 0
    for stop in (Stop(tokens=0), Stop(tokens=[0, 2])):
        run = generate(zeros, [1, 1, 1], drafter_class(name)(), max_new_tokens=12, stop=stop)
        assert (run.tokens, run.finish_reason) == ((0,), "stop_token")

    even = TableLM(np.log(np.array([[0.6, 0.3, 0.1]] * 3)))

    def first(rng):
        rngs = Rng(0), rng
        return generate(even, [0, 1, 0, 2], drafter_class(name)(), max_new_tokens=1, sampling=PLAIN, rngs=rngs).tokens

    law = {(0,): 0.6, (1,): 0.3, (2,): 0.1}
    summed = {}
    for tokens, mass in enumerate_law(first).items():
        summed[tokens[:1]] = summed.get(tokens[:1], 0.0) + mass
    assert summed == pytest.approx(law, abs=1e-12)


def lines_run(job):
    """How many lines of Python run during ``job``: a cost that no clock disturbs."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        job()
    finally:
        sys.settrace(before)
    return count


def cost_of_a_step(name, length):
    """Lines run for one more proposal after a text of ``length`` tokens, three of them new."""
    drafter, context = drafter_class(name)(), [n % 7 for n in range(length)]
    drafter.reset(context)
    drafter.propose(context, Budget(16, 16), Rng(0))
    context += [n % 7 for n in range(length, length + 3)]
    return lines_run(lambda: drafter.propose(context, Budget(16, 16), Rng(0)))


@every_method
def test_case_25_a_lookup_in_10_000_tokens_costs_what_it_costs_in_1_000(name):
    """In lines run and in tokens read; a rescan would cost ten times as much."""
    short, long = (cost_of_a_step(name, length) for length in (1_001, 10_003))  # both end alike, 7 dividing 9,002
    assert 0 < long <= 1.1 * short
    read = [tokens_read(drafter_class(name)(), [n % 7 for n in range(length)]) for length in (1_001, 10_003)]
    assert read[0] == read[1] < 200


@every_method
def test_case_28_a_step_after_300_tokens_computes_its_own_rows_only(name):
    """Rows computed are counted: the prompt's once, then a tree's; seconds are there for every step of the trace."""
    net = tiny_model.model()
    prompt, rows = [n % 30 for n in range(300)], []
    lm = CachedLM(net, "eager", prefill_chunk=512)
    run_rows = lm.execution.run
    lm.execution.run = lambda ids, *rest: rows.append(len(ids)) or run_rows(ids, *rest)
    drafter = drafter_class(name)()
    trace = generate(lm, prompt, drafter, max_new_tokens=20).trace
    assert rows[0] == 299
    assert rows[1:] == [len(step.tree.tokens) for step in trace.steps]
    assert max(rows[1:]) <= drafter.max_nodes + 1
    assert cost_of_a_step(name, 307) <= 1.1 * cost_of_a_step(name, 34)  # both end alike

    assert len(trace.to_json()["steps"]) == trace.target_calls == len(rows) - 1
    for step in trace.steps:
        assert tuple(step.seconds) == PHASES and step.seconds["forward"] > 0
        assert all(seconds >= 0 for seconds in step.seconds.values())
    assert trace.decode_seconds == pytest.approx(sum(sum(step.seconds.values()) for step in trace.steps))
