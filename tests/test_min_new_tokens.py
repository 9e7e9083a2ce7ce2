"""`min_new_tokens`: no stop token comes early, wherever in a draft it stands, and the law is that of such a target."""

from functools import cache

import numpy as np
import pytest
import torch
from drafters_for_tests import Adversary, Drawing, Oracle
from laws import EXACT, PLAIN, WRONG, Draw, by_text, next_law
from model_free import Letters
from tiny_models import VOCAB, tiny
from transformers import GenerationConfig

from specdec_core.base.errors import SpecdecError
from specdec_core.core import engine, sampling
from specdec_core.core.contract import NullDrafter
from specdec_core.core.engine import generate
from specdec_core.core.recorded import Recorded
from specdec_core.core.rng import enumerate_law, total_variation
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import HeldBack, Stop
from specdec_core.core.toy import TableLM
from specdec_core.drafters import DraftModel, PromptLookup
from specdec_core.model.lm import CachedLM

TARGET, DRAFT = TableLM.random(3, order=2, seed=3), TableLM.random(3, order=2, seed=100)
SAMPLINGS = {
    "T=1": PLAIN,
    "all": Sampling(temperature=0.8, top_k=2, repetition_penalty=1.3, presence_penalty=0.5, processors=[by_text]),
    "T=0": Sampling(),
}
PROMPT, LONGEST = (0, 1, 0, 1), 3


def own_law(least, ends, how):
    """Token by token: a stop token has the logit -inf while fewer than ``least`` tokens are out, else it ends."""

    class Held(TableLM):
        def row(self, context):
            row = super().row(context).copy()
            row[[*ends] if len(context) - len(PROMPT) < least else []] = -np.inf
            return row

    held, law, ended = Held(TARGET.table), {(): 1.0}, {}
    for _ in range(LONGEST):
        longer = {}
        for tokens, mass in law.items():
            for x, p in enumerate(next_law(held, PROMPT, tokens, how)):
                (ended if x in ends else longer)[(*tokens, x)] = mass * p
        law = longer
    return {tokens: mass for tokens, mass in {**ended, **law}.items() if mass}


def law_of(drafter, least, ends, how):
    options = {"max_new_tokens": LONGEST, "min_new_tokens": least, "sampling": how, "stop": Stop(ends)}
    return enumerate_law(lambda rng: generate(TARGET, PROMPT, drafter, rngs=(rng, rng), **options).tokens)


def drafters(how):
    yield from (NullDrafter(), PromptLookup(num_tokens=2))
    yield Drawing(Draw(DRAFT, (2, 1), "point", how))  # q with and without the stop tokens held back alike
    yield Drawing(Draw(DRAFT, (1, 1), "iid"))
    yield Drawing(Draw(DRAFT, (2,), "without_replacement"))


@pytest.mark.parametrize("ends", [(2,), (0, 2)], ids=str)
@pytest.mark.parametrize("least", range(LONGEST + 1))
@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_law_is_that_of_a_target_whose_stop_tokens_are_held_back(name, least, ends):
    expected = own_law(least, ends, SAMPLINGS[name])
    assert {len(tokens) >= least for tokens in expected} == {True}
    for drafter in drafters(SAMPLINGS[name]):
        assert total_variation(law_of(drafter, least, ends, SAMPLINGS[name]), expected) <= EXACT, drafter.name


MISTAKES = {
    "one token too early": lambda tokens, length: HeldBack(tokens, length - 1),
    "one token too late": lambda tokens, length: HeldBack(tokens, length + 1),
    "counted without the prompt": lambda tokens, length: HeldBack(tokens, length - len(PROMPT)),
    "not at all": lambda tokens, length: HeldBack(frozenset(), length),
    "one stop token only": lambda tokens, length: HeldBack(frozenset([min(tokens)]), length),
}


def at_the_root(rows, i):
    """`_Rows.scores` that decides for a whole step by how long the text is at its root."""
    return rows._sampling.process(rows._logits[i], rows._context)


@pytest.mark.parametrize("name", [None, "by the root of a step", *MISTAKES])
def test_a_mistake_in_what_is_held_back_is_caught(name, monkeypatch):
    if name in MISTAKES:
        monkeypatch.setattr(engine, "HeldBack", MISTAKES[name])
    elif name:
        monkeypatch.setattr(sampling._Rows, "scores", at_the_root)
    least, ends, drafter = 1 if name == "one token too late" else 2, (0, 2), Drawing(Draw(DRAFT, (1, 1), "iid"))
    error = total_variation(law_of(drafter, least, ends, PLAIN), own_law(least, ends, PLAIN))
    assert error > WRONG if name else error <= EXACT


TEXT, LENGTH = [5, 9, 5, 9, 14, 5, 9], 16


@cache
def by_transformers(least, ends):
    model, ids = tiny("llama"), torch.tensor([TEXT])
    config = GenerationConfig(
        do_sample=False, max_new_tokens=LENGTH, min_new_tokens=least, eos_token_id=list(ends), pad_token_id=0
    )
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    finally:
        model.generation_config = own
    return tuple(out[0, len(TEXT) :].tolist())


@pytest.mark.parametrize("least", [0, 3, LENGTH])
def test_greedy_decoding_is_that_of_transformers_with_min_new_tokens(least):
    plain = generate(CachedLM(tiny("llama")), TEXT, max_new_tokens=LENGTH).tokens
    for ends in ((plain[2],), (plain[0], plain[5], plain[9]), (VOCAB + 7, plain[1])):
        answer = by_transformers(least, tuple(end for end in ends if end < VOCAB))
        assert len(answer) >= max(least, 1)
        options = {"max_new_tokens": LENGTH, "min_new_tokens": least, "stop": Stop(ends)}
        lm, text = CachedLM(tiny("llama")), [*TEXT, *answer]
        for drafter in (
            NullDrafter(),
            PromptLookup(),
            Oracle(text, 5),
            Oracle([*TEXT, *plain], 6),
            DraftModel(CachedLM(tiny("llama"))),
            *(Adversary(kind, text, VOCAB, 1, stops=plain[:3]) for kind in ("stops inside", "iid")),
        ):
            assert generate(lm, TEXT, drafter, **options).tokens == answer, drafter.name


def test_without_stop_tokens_nothing_changes_and_the_best_tokens_are_enough():
    for stop in (None, Stop(), Stop(strings="zz", tokenizer=Letters())):
        for how in (None, PLAIN):
            options = {"max_new_tokens": 9, "sampling": how, "stop": stop, "seed": 4}
            runs = [generate(TARGET, [0], PromptLookup(), min_new_tokens=least, **options).tokens for least in (0, 9)]
            assert runs[0] == runs[1]
    assert generate(Recorded([1, 2], [3, 4]), [1, 2], max_new_tokens=2, min_new_tokens=2).tokens == (3, 4)
    with pytest.raises(SpecdecError, match="min_new_tokens and logprobs need the logits"):
        generate(Recorded([1, 2], [3, 4]), [1, 2], max_new_tokens=2, min_new_tokens=2, stop=Stop(9))


def counting(vocab_size=8, **options):
    return TableLM(3.0 * np.roll(np.eye(vocab_size), 1, axis=1), **options)


def test_stop_strings_and_the_end_of_the_context_still_end_the_run():
    drafter = Oracle(range(8), 6)
    options = {"max_new_tokens": 20, "min_new_tokens": 20}
    run = generate(counting(), [0], drafter, stop=Stop(3, strings="c", tokenizer=Letters()), **options)
    assert (run.text, run.finish_reason) == ("b", "stop_string")
    run = generate(counting(max_length=6), [0], drafter, stop=Stop(7), **options)
    assert (run.tokens, run.finish_reason) == ((1, 2, 3, 4, 5), "context")


def test_once_enough_tokens_are_out_a_step_is_plain_again():
    """No row is asked for through a processor: the fast path of greedy decoding is back."""
    asked = []

    class Noting(HeldBack):
        def __call__(self, ids, scores):
            asked.append(ids.shape[1])
            return super().__call__(ids, scores)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "HeldBack", Noting)
        run = generate(counting(), [0], max_new_tokens=12, min_new_tokens=3, stop=Stop(2))
    assert asked == [1, 2, 3] and run.finish_reason == "stop_token" and 2 not in run.tokens[:3]


@pytest.mark.parametrize(
    "least, says",
    [
        (6, "min_new_tokens must be at most max_new_tokens, 5; got 6"),
        (-1, "min_new_tokens must be at least 0; got -1"),
        (1.5, "min_new_tokens: expected a whole number, got 1.5"),
        (True, "min_new_tokens: expected a whole number, got True"),
        (None, "min_new_tokens: expected a whole number, got None"),
    ],
)
def test_impossible_numbers_are_refused(least, says):
    with pytest.raises(ValueError, match=says):
        generate(TARGET, [0], max_new_tokens=5, min_new_tokens=least)


def test_when_every_token_is_a_stop_token_the_error_says_what_holds_them_back():
    with pytest.raises(SpecdecError, match="HeldBack.* forbids every token"):
        generate(TARGET, [0], max_new_tokens=5, min_new_tokens=1, stop=Stop([0, 1, 2]))
