"""`DraftModel`: two models, two caches, one text; and the law of what they emit together."""

import numpy as np
import pytest
from laws import EXACT, PLAIN, completed
from tiny_models import tiny

from specdec_core.base.errors import SpecdecError
from specdec_core.core.contract import Budget, LMOutput
from specdec_core.core.engine import generate
from specdec_core.core.rng import Rng, enumerate_law, total_variation
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import Cascade, DraftModel, PromptLookup
from specdec_core.drafters.draft_model import refuse_other_tokenizer
from specdec_core.model.lm import CachedLM

PROMPT = (0, 1, 0)
SAMPLINGS = [
    PLAIN,
    Sampling(temperature=0.7, top_k=2),
    Sampling(temperature=1.0, top_p=0.8),
    Sampling(temperature=1.3, repetition_penalty=1.5, presence_penalty=0.3),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_law_of_whole_answers_is_the_targets(gamma, sampling):
    size = 3 if gamma < 3 else 2  # the outcomes multiply
    target, draft = TableLM.random(size, seed=1), TableLM.random(size, order=2, seed=2)

    def run(rng):
        drafter = DraftModel(draft, gamma, sampling=sampling)
        return generate(target, PROMPT, drafter, max_new_tokens=3, sampling=sampling, rngs=(rng, rng)).tokens

    assert total_variation(enumerate_law(run), completed({(): 1.0}, target, PROMPT, 3, sampling)) <= EXACT


def test_a_draft_sampled_otherwise_than_its_q_says_is_noticed():
    """The draft is drawn at T = 1 and handed over as if it had been drawn at T = 1/2: the law moves."""
    target, draft = TableLM.random(3, seed=1), TableLM.random(3, seed=2)

    class Wrong(DraftModel):
        def propose(self, context, budget, rng):
            tree = super().propose(context, budget, rng)
            if not tree.size:
                return tree
            sharper = tree.q[:-1] ** 2
            return DraftTree.chain(context[-1], tree.tokens[1:], sharper / sharper.sum(1, keepdims=True), "iid")

    def run(rng):
        drafter = Wrong(draft, 2, sampling=PLAIN)
        return generate(target, PROMPT, drafter, max_new_tokens=2, sampling=PLAIN, rngs=(rng, rng)).tokens

    assert total_variation(enumerate_law(run), completed({(): 1.0}, target, PROMPT, 2)) > 1e-3


@pytest.mark.parametrize("gamma", range(1, 6))
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_case_05_a_model_that_drafts_for_itself_is_always_right(name, gamma):
    model = tiny(name)
    target, prompt = CachedLM(model), [5, 6, 7]
    expected = generate(target, prompt, max_new_tokens=20).tokens
    run = generate(target, prompt, DraftModel(CachedLM(model), gamma), max_new_tokens=20)
    assert run.tokens == expected
    for step in run.trace.steps:
        assert step.verdict.accepted == step.tree.size >= min(gamma, 1)
    assert run.trace.steps[0].tree.size == gamma


@pytest.mark.parametrize("gamma", [1, 4])
def test_another_models_drafts_change_no_token_and_its_cache_follows_the_text(gamma):
    """After each step the draft model's next law is that of its own plain forward over the context."""
    target, draft = TableLM.random(5, order=2, seed=3), TableLM.random(5, order=3, seed=4)

    class Watched(DraftModel):
        def _draw(self, logits, context, rng):
            assert np.array_equal(logits, draft.row(context)), context
            return super()._draw(logits, context, rng)

    expected = generate(target, PROMPT, max_new_tokens=30).tokens
    run = generate(target, PROMPT, Watched(draft, gamma), max_new_tokens=30)
    assert run.tokens == expected and {step.verdict.accepted for step in run.trace.steps} != {gamma}


def test_left_out_for_some_steps_it_reads_what_it_missed():
    """In a cascade it is asked only now and then."""
    target = TableLM.random(5, order=2, seed=3)
    prompt = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    expected = generate(target, prompt, max_new_tokens=30).tokens
    drafter = Cascade(PromptLookup(num_tokens=2, min_n=2), DraftModel(TableLM(target.table), 3))
    run = generate(target, prompt, drafter, max_new_tokens=30)
    assert run.tokens == expected and run.trace.tokens_per_call > 2


def test_vocabularies_padded_otherwise_draft_shared_ids_only():
    target = TableLM.random(5, seed=1)
    for size in (3, 8):
        draft = TableLM.random(size, seed=2)
        draft.table[:, -1] += 20.0  # of eight tokens it would always say the eighth
        sampling = Sampling(temperature=1.0)

        def run(rng, draft=draft, sampling=sampling):
            drafter = DraftModel(draft, 2, vocab_size=5, sampling=sampling)
            return generate(target, [0, 1], drafter, max_new_tokens=2, sampling=sampling, rngs=(rng, rng)).tokens

        # A draft model cannot be asked about ids it does not have: the text stays among those both know.
        if size == 8:
            assert total_variation(enumerate_law(run), completed({(): 1.0}, target, (0, 1), 2)) <= EXACT
        drafter = DraftModel(draft, 2, vocab_size=5, sampling=sampling)
        drafter.reset([0, 1])
        tree = drafter.propose([0, 1], Budget(8, 8), Rng(0))
        assert tree.q.shape == (3, 5) and tree.tokens.max() < min(size, 5)


class Few(TableLM):
    """Reads all tokens of its table and projects to some of them only, as FR-Spec's drafts do."""

    def __init__(self, table, ids):
        super().__init__(table)
        self.ids, self.vocab_size = np.array(ids), len(ids)

    def forward(self, tree, needs_hidden=False):
        out = super().forward(tree, needs_hidden)
        return LMOutput(out.logits[:, self.ids], out.hidden)


@pytest.mark.parametrize("ids, sampling", [*(([2, 0], sampling) for sampling in SAMPLINGS), ([1], PLAIN)], ids=str)
def test_with_rows_for_some_tokens_only_the_law_is_still_the_targets(ids, sampling):
    target = TableLM.random(3, seed=1)
    draft = Few(TableLM.random(3, order=2, seed=2).table, ids)

    def run(rng):
        drafter = DraftModel(draft, 2, 3, sampling, ids)
        return generate(target, PROMPT, drafter, max_new_tokens=3, sampling=sampling, rngs=(rng, rng)).tokens

    assert total_variation(enumerate_law(run), completed({(): 1.0}, target, PROMPT, 3, sampling)) <= EXACT


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_q_is_the_processed_law_of_the_rows_there_are_and_zero_elsewhere(sampling):
    whole, ids = TableLM.random(6, seed=2), [4, 0, 3]
    drafter = DraftModel(Few(whole.table, ids), 2, 6, sampling, ids)
    drafter.reset([0, 4])
    tree = drafter.propose([0, 4, 3], Budget(8, 8), Rng(0))
    for row, context in enumerate(([0, 4, 3], [0, 4, 3, int(tree.tokens[1])])):
        scores = np.full(6, -np.inf)
        scores[ids] = whole.row(context)[ids]
        expected = sampling.law(sampling.penalize(scores, context, context[2:]))
        assert np.array_equal(tree.q[row], expected) and not tree.q[row][[1, 2, 5]].any()
        assert int(tree.tokens[row + 1]) in ids


@pytest.mark.parametrize("penalty", [1.0, 4.0])
def test_greedy_drafts_are_the_best_of_the_rows_after_the_penalties(penalty):
    whole, ids = TableLM.random(6, seed=5), [5, 2, 0]
    sampling = Sampling(repetition_penalty=penalty, presence_penalty=2 * (penalty - 1))
    drafter, context = DraftModel(Few(whole.table, ids), 4, 6, sampling, ids), [0, 2]
    drafter.reset(context)
    tree = drafter.propose(context, Budget(8, 8), Rng(0))
    drafted = list(context)
    for token in tree.tokens[1:]:
        scores = sampling.penalize(whole.row(drafted), drafted, drafted[2:])
        assert token == ids[int(scores[ids].argmax())]
        drafted.append(int(token))
    assert tree.size == 4 and tree.q is None
    assert (len(set(drafted[2:])) == 3) == (penalty > 1)  # all three tokens only where repeating one costs


def test_ids_that_name_no_token_for_each_row_are_refused():
    draft = TableLM.random(3)
    for ids, message in (
        ([0, 1], "each of the draft model's 3 rows; got 2"),
        ([0, 1, 1], "0 ... 4 of the target, each once"),
        ([0, 1, 5], "0 ... 4 of the target, each once"),
        ([-1, 0, 1], "0 ... 4 of the target, each once"),
    ):
        with pytest.raises(ValueError, match=message):
            DraftModel(draft, 2, 5, ids=np.array(ids))


def test_near_the_end_of_its_own_context_it_drafts_less_and_then_nothing():
    target = TableLM.random(4, seed=1)
    expected = generate(target, [0, 1, 2], max_new_tokens=20).tokens
    run = generate(target, [0, 1, 2], DraftModel(TableLM(target.table, max_length=9), 4), max_new_tokens=20)
    assert run.tokens == expected
    assert [step.tree.size for step in run.trace.steps][:3] == [4, 1, 0]
    longer = generate(target, [0, 1] * 6, DraftModel(TableLM(target.table, max_length=9), 4), max_new_tokens=5)
    assert longer.trace.drafted == 0


class Tokenizer:
    def __init__(self, name, vocabulary):
        self.name_or_path, self._vocabulary = name, vocabulary

    def get_vocab(self):
        return self._vocabulary


def test_case_24_another_tokenizer_is_refused_by_name():
    target = Tokenizer("big", {"a": 0, "b": 1})
    refuse_other_tokenizer(Tokenizer("small", {"a": 0, "b": 1}), target)
    with pytest.raises(SpecdecError, match=r"\(other, 2 tokens\) is not the target's \(big, 2 tokens\): 'a' is"):
        refuse_other_tokenizer(Tokenizer("other", {"b": 0, "a": 1}), target)
    with pytest.raises(SpecdecError, match="'c' is token 2 in only one of them"):
        refuse_other_tokenizer(Tokenizer("more", {"a": 0, "b": 1, "c": 2}), target)


def test_no_tokens_to_draft_is_an_error():
    with pytest.raises(ValueError, match="num_tokens must be at least 1; got 0"):
        DraftModel(TableLM.random(3), 0)
