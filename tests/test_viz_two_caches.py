"""The picture of two caches against the drafter itself: what it says to cut and to read is what is done."""

import numpy as np
import pytest

from specdec_core.core.engine import stream
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.drafters import DraftModel
from specdec_core.viz import two_caches
from specdec_core.viz.two_caches import Moment

PLAIN = Sampling(temperature=1.0)


class Watched(TableLM):
    """Counts what is cut from it and what it reads."""

    cut = read = 0

    def rewind(self, length):
        self.cut += self.length - length
        super().rewind(length)

    def forward(self, tree, needs_hidden=False):
        self.read += len(tree.tokens)
        return super().forward(tree, needs_hidden)


def moments(gamma, length=90):
    target = TableLM.random(4, order=2, seed=3)
    draft = Watched(target.table + np.random.default_rng(0).normal(size=target.table.shape))
    drafter = DraftModel(draft, gamma, sampling=PLAIN)
    run = stream(target, [0, 1, 2], drafter, max_new_tokens=length, sampling=PLAIN)
    moment = None
    for step in run:
        if moment:  # of all that was read in this step, gamma - 1 were its own drafts
            yield moment, f"cut {draft.cut}, read {draft.read - gamma + 1}"
        drafts, accepted = step.tree.tokens[1:].tolist(), step.verdict.accepted
        moment = Moment(list(run.context), drafts, accepted, target.length, draft.length)
        draft.cut = draft.read = 0


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_words_are_what_the_drafter_does(gamma):
    seen = list(moments(gamma))
    assert [moment.words() for moment, _ in seen] == [done for _, done in seen]
    assert {moment.accepted for moment, _ in seen} >= {0, gamma}
    for moment, _ in seen:
        assert moment.target == len(moment.text) - 1
        assert moment.draft == moment.before + gamma - 1


def test_after_a_whole_block_the_draft_lags_one_token_more():
    words = {moment.accepted: moment.words() for moment, _ in moments(3)}
    assert words[3] == "cut 0, read 2" and words[0] == "cut 2, read 1"


def test_every_moment_is_a_panel_with_the_tokens_of_the_text():
    moment = Moment([5, 6, 7, 9], [7, 8, 8], accepted=1, target=3, draft=4)
    fig = two_caches.draw([moment, moment], "w{}".format)
    assert len(fig.axes) == 2
    shown = [text.get_text() for text in fig.axes[0].texts]
    assert shown.count("w8") == 1 and shown.count("w9") == 3  # the stale draft; the correction, in text and to be read
    assert fig.axes[0].get_title(loc="left") == "1 of 3 accepted: cut 1, read 1"
