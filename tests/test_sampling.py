"""`Sampling` against transformers' logits processors, and its edges by hand."""

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process as hf

from specdec_core.core.sampling import Sampling, softmax
from specdec_core.core.tree import DraftTree

VOCAB = 50
CONTEXT = [3, 7, 7, 11, 0, 49]

PROCESSORS = {
    "temperature": ({"temperature": 0.3}, [hf.TemperatureLogitsWarper(0.3)]),
    "top-k": ({"top_k": 7}, [hf.TopKLogitsWarper(7)]),
    "top-k above V": ({"top_k": 80}, [hf.TopKLogitsWarper(80)]),
    "top-p": ({"top_p": 0.73}, [hf.TopPLogitsWarper(0.73)]),
    "top-p tiny": ({"top_p": 1e-9}, [hf.TopPLogitsWarper(1e-9)]),
    "min-p": ({"min_p": 0.11}, [hf.MinPLogitsWarper(0.11)]),
    "repetition": ({"repetition_penalty": 1.7}, [hf.RepetitionPenaltyLogitsProcessor(1.7)]),
    "repetition below 1": ({"repetition_penalty": 0.6}, [hf.RepetitionPenaltyLogitsProcessor(0.6)]),
    "all": (
        {"temperature": 1.4, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
        [
            hf.RepetitionPenaltyLogitsProcessor(1.2),
            hf.TemperatureLogitsWarper(1.4),
            hf.TopKLogitsWarper(20),
            hf.TopPLogitsWarper(0.9),
            hf.MinPLogitsWarper(0.02),
        ],
    ),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_law_is_that_of_transformers_processors(name):
    options, processors = PROCESSORS[name]
    sampling = Sampling(**{"temperature": 1.0, **options})
    for seed in range(40):
        logits = np.random.default_rng(seed).normal(scale=3.0, size=VOCAB)
        scores = LogitsProcessorList(processors)(torch.tensor([CONTEXT]), torch.from_numpy(logits)[None].clone())
        law = sampling.law(sampling.penalize(logits, CONTEXT, []))
        np.testing.assert_allclose(law, scores.softmax(-1)[0].numpy(), rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(law > 0, np.isfinite(scores[0].numpy()))


def test_presence_penalty_is_subtracted_once_from_generated_tokens_only():
    """Context 3 7 | 5 5 7, of which 3 7 is the prompt: 5 and 7 lose 0.5 once, 3 does not."""
    came = Sampling(presence_penalty=0.5).penalize(np.zeros(9), [3, 7, 5, 5, 7], [5, 5, 7])
    assert came.tolist() == [0, 0, 0, 0, 0, -0.5, 0, -0.5, 0]


def test_repetition_penalty_reads_the_prompt_too_and_counts_a_token_once():
    came = Sampling(repetition_penalty=2.0).penalize(np.array([4.0, -4.0, 4.0, 0.0]), [0, 0, 1, 3], [1])
    assert came.tolist() == [2.0, -8.0, 4.0, 0.0]


def test_penalize_leaves_its_argument_alone():
    logits = np.ones(4)
    Sampling(repetition_penalty=2.0, presence_penalty=1.0).penalize(logits, [0, 1], [1])
    assert logits.tolist() == [1, 1, 1, 1]


def test_ties_at_the_kth_place_are_kept():
    assert Sampling(temperature=1.0, top_k=1).law(np.array([2.0, 2.0, 0.0])).tolist() == [0.5, 0.5, 0.0]


def test_top_p_keeps_the_token_that_crosses_it():
    """Masses .5 .3 .2: 0.5 is reached by the first alone, 0.51 needs the second."""
    logits = np.log([0.5, 0.3, 0.2])
    assert Sampling(temperature=1.0, top_p=0.49).law(logits).tolist() == [1.0, 0.0, 0.0]
    np.testing.assert_allclose(Sampling(temperature=1.0, top_p=0.51).law(logits), [0.625, 0.375, 0.0])


def test_zero_temperature_is_the_limit_of_small_ones():
    logits = np.array([1.0, 1.001, -5.0])
    for temperature in (1e-6, 1e-300, 5e-324):
        np.testing.assert_array_equal(Sampling(temperature=temperature).law(logits), Sampling().law(logits))


def test_forbidden_tokens_stay_forbidden():
    """-inf is how a model or a mask forbids a token; no processor may bring it back or make a NaN of it."""
    logits = np.array([-np.inf, 0.0, 1.0, -np.inf])
    for options, _ in PROCESSORS.values():
        sampling = Sampling(**{"temperature": 1.0, **options})
        law = sampling.law(sampling.penalize(logits, [0, 1], [1]))
        assert law[[0, 3]].tolist() == [0.0, 0.0] and abs(law.sum() - 1) < 1e-12


def test_softmax_of_large_numbers():
    np.testing.assert_allclose(softmax(np.array([[1e4, 1e4], [-1e4, 0.0]])), [[0.5, 0.5], [0.0, 1.0]])


def test_laws_see_the_drafted_path_to_their_row_and_no_other():
    """Tree 0 -> 1 -> 2 and 0 -> 3 below the prompt [4, 0]; each row is penalized for its own ancestors.

    With equal logits 0 and a presence penalty of ln 2, a seen token keeps half the weight of a new one. The prompt
    (4, 0) is not penalized.
    """
    tree = DraftTree.from_paths(0, [[1, 2], [3]])
    sampling = Sampling(temperature=1.0, presence_penalty=np.log(2.0))
    laws = sampling.laws(torch.zeros(4, 5), tree, [4, 0], prompt_length=2)
    for row, seen in enumerate([[], [1], [1, 2], [3]]):
        weights = np.where(np.isin(range(5), seen), 0.5, 1.0)
        np.testing.assert_allclose(laws[row], weights / weights.sum(), rtol=1e-12)


def test_greedy_laws_are_ids_and_follow_the_penalties():
    """Row 1 stands after token 1, whose repeated logit 1.0 falls to 0.25 and loses to token 2's 0.9."""
    tree, logits = DraftTree.chain(0, [1]), torch.tensor([[0.0, 1.0, 0.9], [0.0, 1.0, 0.9]])
    assert Sampling().laws(logits, tree, [0], 1).ids.tolist() == [1, 1]
    ids = Sampling(repetition_penalty=4.0).laws(logits, tree, [0], 1).ids
    assert [ids[0], ids[1]] == [1, 2]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"temperature": -0.1}, "temperature must be at least 0; got -0.1"),
        ({"temperature": float("nan")}, "temperature must be at least 0; got nan"),
        ({"temperature": float("inf")}, "temperature must be at least 0; got inf"),
        ({"top_k": -1}, "top_k must be at least 0; got -1"),
        ({"top_k": 1.5}, "top_k: expected a whole number, got 1.5"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1; got 0.0"),
        ({"top_p": 1.01}, "top_p must be above 0"),
        ({"min_p": -0.1}, "min_p must be from 0 to 1"),
        ({"min_p": 1.1}, "min_p must be from 0 to 1; got 1.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"presence_penalty": float("nan")}, "presence_penalty must be finite"),
    ],
)
def test_values_out_of_range_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        Sampling(**options)
