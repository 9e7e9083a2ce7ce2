"""`logprobs`: the target's own log-probability of each emitted token, from the rows that verified it."""

import numpy as np
import pytest
import torch
from drafters_for_tests import KINDS, Adversary, Drawing, Oracle
from laws import Draw, by_text
from model_free import Letters
from tiny_models import VOCAB, tiny

from specdec_core.base.errors import SpecdecError
from specdec_core.core import engine
from specdec_core.core.contract import NullDrafter
from specdec_core.core.engine import Run, generate, together
from specdec_core.core.recorded import Recorded
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import Stop
from specdec_core.core.toy import TableLM
from specdec_core.core.typical import Typical
from specdec_core.drafters import DraftModel, PromptLookup
from specdec_core.model.batch import forward_together
from specdec_core.model.lm import CachedLM

PROMPT, LENGTH = [5, 9, 5, 9, 14, 5, 9], 12
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.7, top_k=20, top_p=0.9, repetition_penalty=1.3),
    Sampling(temperature=1.0, processors=[by_text]),
]


@torch.no_grad()
def plain(tokens, prompt=PROMPT):
    """One forward of the model's own over the whole text."""
    ids = torch.tensor([[*prompt, *tokens]])
    rows = tiny("llama")(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)  # (n, V)
    return rows[range(len(tokens)), list(tokens)].tolist()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled", "processors"])
def test_they_are_those_of_a_plain_forward_with_every_drafter(sampling):
    lm = CachedLM(tiny("llama"))
    text = [*PROMPT, *generate(lm, PROMPT, max_new_tokens=LENGTH, sampling=sampling).tokens]
    accepted = 0
    for drafter in (
        NullDrafter(),
        PromptLookup(),
        Oracle(text, 5),
        DraftModel(CachedLM(tiny("llama")), num_tokens=3, sampling=sampling),
        *(Adversary(kind, text, VOCAB, 1) for kind in KINDS),
    ):
        for limit in (LENGTH, 2):  # the second is clipped inside a draft
            run = generate(lm, PROMPT, drafter, max_new_tokens=limit, sampling=sampling, logprobs=True)
            assert len(run.logprobs) == len(run.tokens) == limit
            np.testing.assert_allclose(run.logprobs, plain(run.tokens), rtol=1e-9)
            accepted += run.trace.accepted
    assert accepted > 20


def test_of_a_table_they_are_its_logarithms_under_every_draw_and_rule():
    """Raw: a temperature, a penalty and the rule change which token comes, not what is said of it."""
    target, draft = TableLM.random(4, order=2, seed=3), TableLM.random(4, order=2, seed=9)
    for draw in ("point", "iid", "without_replacement"):
        for rule in (None, Typical()):
            drafter = Drawing(Draw(draft, (2, 1), draw))
            sampling = Sampling(temperature=1.5, presence_penalty=1.0)
            options = {"sampling": sampling, "rule": rule, "max_new_tokens": 30, "logprobs": True, "seed": 5}
            run = generate(target, [0, 1], drafter, **options)
            text = [0, 1, *run.tokens]
            right = [np.log(target.law(text[:place])[text[place]]) for place in range(2, len(text))]
            assert run.trace.accepted > 3
            np.testing.assert_allclose(run.logprobs, right, rtol=1e-12)


def test_runs_that_share_a_forward_have_them_each_for_itself():
    prompts = [PROMPT, [3], [8, 2, 8, 2, 8]]
    lm = CachedLM(tiny("llama"))
    runs = [Run(lm.with_own_cache(), prompt, PromptLookup(), 9, logprobs=True) for prompt in prompts]
    for run in runs:
        run.begin()
    while alive := [run for run in runs if not run.done]:
        together(alive, forward_together)
    for prompt, run in zip(prompts, runs, strict=True):
        np.testing.assert_allclose(run.result().logprobs, plain(run.result().tokens, prompt), rtol=1e-9)


def counting(vocab_size=8):
    return TableLM(3.0 * np.roll(np.eye(vocab_size), 1, axis=1))


def test_there_are_as_many_as_tokens_however_the_run_ends():
    """3 - log(exp(3) + 7) each: a stop token has one, the tokens of a stop string have none."""
    each, options = 3 - np.log(np.exp(3) + 7), {"max_new_tokens": 20, "logprobs": True}
    for stop, tokens in ((Stop(3), (1, 2, 3)), (Stop(strings="de", tokenizer=Letters()), (1, 2)), (Stop(1), (1,))):
        run = generate(counting(), [0], Oracle(range(8), 6), stop=stop, **options)
        assert run.tokens == tokens and run.logprobs == pytest.approx([each] * len(tokens), rel=1e-14)
    assert generate(counting(), [0], max_new_tokens=0, logprobs=True).logprobs == ()
    run = Run(counting(), [0], Oracle(range(8), 2), logprobs=True)
    next(iter(run))
    assert run.logprobs == pytest.approx([each] * 3) and run.result().logprobs == tuple(run.logprobs)


def test_only_the_rows_of_the_path_are_computed_and_none_if_not_asked(monkeypatch):
    rows, real = [], engine.log_probabilities
    monkeypatch.setattr(engine, "log_probabilities", lambda *of: rows.append(of[1:]) or real(*of))
    options = {"max_new_tokens": 20, "seed": 3, "sampling": Sampling(temperature=1.0)}
    drafter = Drawing(Draw(TableLM.random(4, seed=9), (3, 2), "iid"))
    asked = generate(TableLM.random(4, seed=3), [0], drafter, logprobs=True, **options)
    assert rows == [(step.emitted.path, step.tokens) for step in asked.trace.steps]
    rows.clear()
    plain_run = generate(TableLM.random(4, seed=3), [0], drafter, **options)
    assert (plain_run.logprobs, rows, plain_run.tokens) == (None, [], asked.tokens)


def test_what_gives_none_says_so():
    with pytest.raises(SpecdecError, match="logprobs need the logits"):
        generate(Recorded([1, 2], [3]), [1, 2], max_new_tokens=1, logprobs=True)
    with pytest.raises(ValueError, match="logprobs: expected True or False, got 3"):
        generate(counting(), [0], logprobs=3)
