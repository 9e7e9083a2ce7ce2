"""Logits processors in the loop: transformers' own, after their own text, at no position that cannot come to be."""

from functools import cache

import pytest
import torch
from drafters_for_tests import KINDS, Adversary, Oracle
from laws import by_text
from tiny_models import VOCAB, tiny
from transformers import GenerationConfig
from transformers.generation import logits_process as hf

from specdec_core.base.errors import SpecdecError
from specdec_core.core.contract import Choices, NullDrafter
from specdec_core.core.engine import generate
from specdec_core.core.recorded import Recorded
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import Stop
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import DraftModel, PromptLookup
from specdec_core.model.lm import CachedLM

PROMPT, LENGTH = [5, 9, 5, 9, 14, 5, 9], 24


def threes(batch, ids):
    """Tokens that are a multiple of 3 after an even one, and any after an odd one."""
    return list(range(0, VOCAB, 3 if ids[-1] % 2 == 0 else 1))


@cache
def plain():
    return generate(CachedLM(tiny("llama")), PROMPT, max_new_tokens=LENGTH).tokens


def processors():
    """Name -> processors that change the plain answer; the first words forbidden are what it says."""
    first, second, third = plain()[:3]
    return {
        "bad words": [hf.NoBadWordsLogitsProcessor([[first], [second, third], [7, 8, 9]], eos_token_id=None)],
        "n-grams": [hf.NoRepeatNGramLogitsProcessor(2)],
        "bias": [hf.SequenceBiasLogitsProcessor([[[first], -50.0], [[9, second], 20.0], [[third], 5.0]])],
        "prefix": [hf.PrefixConstrainedLogitsProcessor(threes, 1)],
        "suppress": [hf.SuppressTokensLogitsProcessor([first, second])],
        "list": hf.LogitsProcessorList([hf.NoRepeatNGramLogitsProcessor(1), hf.TemperatureLogitsWarper(0.5)]),
        "function": [lambda ids, scores: scores.masked_fill(torch.arange(VOCAB) % 4 == ids[0, -2] % 4, -torch.inf)],
        "text": [by_text, hf.NoRepeatNGramLogitsProcessor(2)],
    }


def by_transformers(given, **fields):
    config = GenerationConfig(do_sample=False, max_new_tokens=LENGTH, pad_token_id=0, **fields)
    ids = torch.tensor([PROMPT])
    model = tiny("llama")
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        mask = torch.ones_like(ids)
        out = model.generate(
            ids, attention_mask=mask, generation_config=config, logits_processor=hf.LogitsProcessorList(given)
        )
    finally:
        model.generation_config = own
    return tuple(out[0, len(PROMPT) :].tolist())


def drafters(answer, sampling):
    text = [*PROMPT, *answer]
    yield from (NullDrafter(), PromptLookup(), Oracle(text, 5), Oracle(text, 3, shift=1, vocab_size=VOCAB))
    yield Oracle([*PROMPT, *plain()], 6)  # drafts what the processors forbid
    yield DraftModel(CachedLM(tiny("llama")), num_tokens=4, sampling=sampling)
    yield from (Adversary(kind, text, VOCAB, seed) for seed, kind in enumerate(KINDS))


@pytest.mark.parametrize("name", ["bad words", "n-grams", "bias", "prefix", "suppress", "list", "function", "text"])
def test_greedy_decoding_is_that_of_transformers_with_the_same_processors(name):
    given = processors()[name]
    answer, sampling = by_transformers(given), Sampling(processors=given)
    assert answer != plain()
    lm, accepted = CachedLM(tiny("llama")), []
    for drafter in drafters(answer, sampling):
        run = generate(lm, PROMPT, drafter, max_new_tokens=LENGTH, sampling=sampling)
        assert run.tokens == answer, drafter.name
        accepted.append(run.trace.acceptance_rate)
    assert accepted[2:4] == [1.0, 0.0]  # always right, and always wrong


def test_a_processor_is_asked_only_about_texts_that_come_to_be():
    """Of a tree with a wrong branch, at T = 0, and behind a stop token: such texts may have no answer at all."""
    asked = []

    def note(ids, scores):
        asked.append(ids[0].tolist())
        return scores

    counts = TableLM(torch.eye(6).roll(1, 1).numpy() * 9.0)  # 0 1 2 3 4 5 0 ...

    class Both(NullDrafter):
        def propose(self, context, budget, rng):
            return DraftTree.from_paths(context[-1], [[4, 5], [1, 2, 3, 4]])

    for temperature in (0.0, 0.01):
        asked.clear()
        sampling = Sampling(temperature, processors=[note])
        run = generate(counts, [0], Both(), sampling=sampling, stop=Stop(2))
        assert (run.tokens, asked) == ((1, 2), [[0], [0, 1]])


@pytest.mark.parametrize(
    "given, says",
    [
        (lambda ids, scores: scores[0], r"expected a tensor of scores of shape \(1, 5\), got shape \(5,\)"),
        (lambda ids, scores: scores[:, 1:], r"of shape \(1, 5\), got shape \(1, 4\)"),
        (lambda ids, scores: None, "got None"),
        (lambda ids, scores: scores.numpy(), r"expected a tensor of scores of shape \(1, 5\), got array"),
        (lambda ids, scores: scores.masked_fill(torch.arange(5) == 3, torch.nan), "got nan for token 3"),
        (lambda ids, scores: scores.masked_fill(torch.arange(5) == 0, torch.inf), "got inf for token 0"),
        (lambda ids, scores: scores - torch.inf, "forbids every token; expected it to leave at least one"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_processor_that_breaks_its_contract_is_named_in_words(given, says, temperature):
    for among in ([given], [by_text, given], [given, by_text]):
        with pytest.raises(SpecdecError, match="processor <function .*" + says):
            generate(TableLM.random(5), [0], sampling=Sampling(temperature, processors=among))


@pytest.mark.parametrize("given", [by_text, None, "text", [by_text, 3], {by_text}, hf.LogitsProcessor()])
def test_what_is_no_sequence_of_callables_is_refused(given):
    with pytest.raises(ValueError, match="processors: expected a tuple of callables, got "):
        Sampling(processors=given)


def test_a_processor_may_write_into_its_scores_and_returns_any_kind_of_float():
    """The rows of the forward stay as they were: the drafter and the log-probabilities read them."""

    def in_place(ids, scores):
        scores[:, ids[0, -1]] = -torch.inf
        return scores.float().requires_grad_()

    logits = torch.zeros(1, 4, dtype=torch.float64)
    sampling = Sampling(temperature=1.0, processors=[in_place])
    law = sampling.laws(logits, DraftTree.empty(2), [2], 1)[0]
    assert law.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3]) and logits.tolist() == [[0.0] * 4]


def test_the_best_tokens_alone_cannot_be_processed():
    with pytest.raises(SpecdecError, match="processors, min_new_tokens and logprobs need the logits"):
        generate(Recorded([1, 2], [3]), [1, 2], max_new_tokens=1, sampling=Sampling(processors=[by_text]))
    ids = Sampling().laws(Choices(torch.tensor([3])), DraftTree.empty(2), [2], 1).ids
    assert ids.tolist() == [3]
