"""Several runs in one forward: each gets the tokens that it has alone, whatever its drafter and its sampling."""

import numpy as np
import pytest
from tiny_models import VOCAB, randomized, tiny

from specdec_core.core import NullDrafter, Run, Sampling, Stop, TableLM, generate, one_by_one, together
from specdec_core.drafters import Lookahead, PromptLookup
from specdec_core.model.batch import forward_together
from specdec_core.model.lm import CachedLM

RNG = np.random.default_rng(0)
PROMPTS = [[5, 6, 7, 8] * 4, [3], RNG.integers(VOCAB, size=30).tolist(), [9, 8, 7]]
DRAFTERS = {
    "no drafter": [NullDrafter] * 4,
    "prompt lookup": [PromptLookup] * 4,
    "a drafter each": [PromptLookup, NullDrafter, lambda: Lookahead(3, 3, 3), PromptLookup],
}


def all_steps(runs, forward):
    for run in runs:
        run.begin()
    while going := [run for run in runs if not run.done]:
        together(going, forward)
    return [run.result() for run in runs]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=20)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("drafters", DRAFTERS.values(), ids=DRAFTERS)
@pytest.mark.parametrize("execution", ["eager", "auto"])
def test_a_ragged_batch_has_the_tokens_of_each_alone(execution, drafters, sampling):
    model = randomized(type(tiny("llama"))(tiny("llama").config)).float()
    lm = CachedLM(model, execution)
    lengths = [20, 7, 0, 33]  # the batch shrinks; one never begins
    made = list(zip(PROMPTS, drafters, lengths, range(4), strict=True))
    alone = [
        generate(lm, prompt, drafter(), max_new_tokens=length, sampling=sampling, seed=seed)
        for prompt, drafter, length, seed in made
    ]
    batch = all_steps(
        [
            Run(lm.with_own_cache(), prompt, drafter(), max_new_tokens=length, sampling=sampling, seed=seed)
            for prompt, drafter, length, seed in made
        ],
        forward_together,
    )
    assert [run.tokens for run in batch] == [run.tokens for run in alone]
    assert [len(run.trace.steps) for run in batch] == [len(run.trace.steps) for run in alone]
    assert [run.finish_reason for run in batch] == ["length"] * 4


def test_any_language_models_advance_together_and_the_forward_is_timed_once():
    runs = [Run(TableLM.random(5, seed=seed), [0, seed], max_new_tokens=9, stop=Stop([2])) for seed in range(4)]
    done = all_steps(runs, one_by_one)
    for seed, run in enumerate(done):
        assert run.tokens == generate(TableLM.random(5, seed=seed), [0, seed], max_new_tokens=9, stop=Stop([2])).tokens
    assert len({run.trace.steps[0].seconds["forward"] for run in done}) == 1
