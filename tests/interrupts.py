"""A drafter that presses Ctrl-C, or is told to end as `timeout` does."""

import os
import signal

from specdec_core.core.contract import DrafterBase
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import REGISTRY


def ctrl_c():
    raise KeyboardInterrupt


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


def register(monkeypatch, nth, press=ctrl_c):
    """Make `interrupts` a method that is interrupted in its nth answer; a race warms up with the first."""
    answers = iter(range(1, 1000))

    class Interrupts(DrafterBase):
        name = "interrupts"

        def reset(self, context):
            if next(answers) == nth:
                press()

        def propose(self, context, budget, rng):
            return DraftTree.empty(context[-1])

    monkeypatch.setitem(REGISTRY, "interrupts", Interrupts)
