"""What comes with the package for the default model: the training text and the weights of four drafters."""

import numpy as np
import pytest

from specdec_core.base.errors import ModelError
from specdec_core.drafters import weights
from specdec_core.model import fetch
from specdec_core.race.workloads import FURTHER, TASKS, own
from specdec_core.training import waves
from specdec_core.training.selfchat import ANSWER

NAMES = ("draft_model", "eagle", "medusa", "mtp")
VOCAB = 49152


@pytest.mark.parametrize("name", NAMES)
def test_each_drafter_has_whole_weights_for_the_default_model(name):
    tensors, card = weights.read(weights.shipped(name), fetch.DEFAULT.weights_sha256, VOCAB)
    assert card.name == name and card.tokens > 0 and card.data["answer_tokens"] >= 1_500_000
    assert len(tensors["ids"]) == card.recipe["vocabulary"] == len(set(tensors["ids"].tolist()))
    assert card.curve[-1][1:] == card.acceptance and 0 < card.acceptance[0] < 1


def test_all_of_them_take_at_most_40_megabytes():
    assert sum(weights.shipped(name).stat().st_size for name in NAMES) <= 40e6


def test_another_target_is_refused_by_name():
    with pytest.raises(ModelError, match="was trained for smollm2-135m-instruct"):
        weights.read(weights.shipped("eagle"), "0" * 64, VOCAB)


def test_the_training_text_is_long_enough_and_holds_none_of_the_prompts_that_are_raced():
    from transformers import AutoTokenizer

    stored = np.load(waves.TEXT)
    assert (stored["roles"] == ANSWER).sum() >= 1_500_000
    tokenizer = AutoTokenizer.from_pretrained(fetch.place(fetch.DEFAULT))
    text = "\n".join(tokenizer.batch_decode(stored["tokens"].astype(int).tolist()))
    for question in own([*TASKS, *FURTHER]):
        for turn in question.turns:
            assert len(turn) < 40 or turn[:80] not in text, question.id
