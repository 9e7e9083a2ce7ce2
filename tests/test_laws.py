"""Every lossless (draw, rule) pair emits tokens whose law is exactly the target's, by enumeration in float64."""

import pytest
from drafters_for_tests import Drawing
from laws import EXACT, PLAIN, Draw, by_text, completed, law_error
from transformers.generation import logits_process as hf

from specdec_core.core.contract import NullDrafter
from specdec_core.core.engine import Run
from specdec_core.core.rng import enumerate_law, total_variation
from specdec_core.core.rules import verify
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.drafters import PromptLookup


def fresh(make, *arguments):
    """A processor of transformers that is prepared for one vocabulary size at its first call, made for each call."""
    return lambda ids, scores: make(*arguments)(ids, scores)


BIAS = fresh(hf.SequenceBiasLogitsProcessor, [[[0, 1], 2.0], [[2], -1.0], [[1, 2, 0], 1.5]])
WORDS = fresh(hf.NoBadWordsLogitsProcessor, [[1, 0], [0, 1, 2]], None)
SAMPLINGS = {
    "T=1": PLAIN,
    "T=0.7": Sampling(temperature=0.7),
    "top-k": Sampling(temperature=1.0, top_k=2),
    "top-p": Sampling(temperature=1.0, top_p=0.8),
    "min-p": Sampling(temperature=1.0, min_p=0.3),
    "repetition": Sampling(temperature=1.0, repetition_penalty=1.8),
    "presence": Sampling(temperature=1.0, presence_penalty=1.5),
    "all": Sampling(temperature=0.8, top_k=3, top_p=0.95, min_p=0.05, repetition_penalty=1.3, presence_penalty=0.5),
    "T=0": Sampling(),
    "T=0 penalized": Sampling(repetition_penalty=1.8, presence_penalty=1.5),
    "bias": Sampling(temperature=1.0, processors=[BIAS]),
    "words": Sampling(temperature=1.0, processors=[WORDS]),
    "n-grams": Sampling(temperature=1.0, processors=[hf.NoRepeatNGramLogitsProcessor(3)]),
    "text": Sampling(temperature=0.7, top_k=2, presence_penalty=1.5, processors=[by_text]),
    "processors": Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.3, processors=[by_text, WORDS, BIAS]),
    "T=0 processors": Sampling(repetition_penalty=1.3, processors=[by_text, WORDS, BIAS]),
}
# V -> children by depth. A width of V exhausts the support without replacement, and repeats siblings when iid.
SHAPES = {
    3: [(1,), (3,), (1, 1, 1), (2, 2), (3, 1), (2, 1, 1)],
    4: [(1, 1), (2,), (4,), (2, 1)],
    5: [(1,), (1, 1), (2,), (3,)],
}


def models(vocab_size, order=1):
    """A target and a draft model that disagree."""
    return TableLM.random(vocab_size, order, seed=vocab_size), TableLM.random(vocab_size, order, seed=100)


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
@pytest.mark.parametrize(
    "vocab_size, widths", [(v, widths) for v, shapes in SHAPES.items() for widths in shapes], ids=str
)
def test_block_has_the_target_law(vocab_size, widths, draw):
    target, draft = models(vocab_size, order=1 + (len(widths) > 1))
    assert law_error(verify, Draw(draft, widths, draw), target) <= EXACT


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_block_has_the_target_law_under_every_sampling(name, draw):
    """The draft processes its logits as the target does, and then not at all; each is the law it drew from."""
    target, draft = models(4)
    for drafting in (SAMPLINGS[name], PLAIN):
        assert law_error(verify, Draw(draft, (2, 1), draw, drafting), target, SAMPLINGS[name]) <= EXACT
        assert law_error(verify, Draw(draft, (1, 1), draw, drafting), target, SAMPLINGS[name]) <= EXACT


@pytest.mark.parametrize("draw", ["point", "iid", "without_replacement"])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["T=1", "all", "T=0", "processors", "T=0 processors"])
def test_a_whole_generation_has_the_target_law(name, order, draw):
    """Three tokens through the decode loop: several steps, clipped at the limit, penalties along the way."""
    target, draft = models(3, order)
    widths = (2, 1) if draw == "point" else (1, 1) if order == 1 else (2,)
    assert generation_error(target, Drawing(Draw(draft, widths, draw, SAMPLINGS[name])), SAMPLINGS[name]) <= EXACT


@pytest.mark.parametrize("drafter", [NullDrafter(), PromptLookup(num_tokens=2)], ids=["null", "prompt_lookup"])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_whole_generation_of_the_package_s_drafters_has_the_target_law(name, drafter):
    target, _ = models(3, order=2)
    assert generation_error(target, drafter, SAMPLINGS[name], prompt=(0, 1, 2, 0, 1), length=4) <= EXACT


def generation_error(target, drafter, sampling, prompt=(0, 1), length=3):
    def tokens(rng):
        run = Run(target, prompt, drafter, max_new_tokens=length, sampling=sampling, rngs=(rng, rng))
        list(run)
        return run.result().tokens

    return total_variation(enumerate_law(tokens), completed({(): 1.0}, target, prompt, length, sampling))
