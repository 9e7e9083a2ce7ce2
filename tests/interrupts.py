"""A drafter that presses Ctrl-C."""

from specdec_core.drafters import REGISTRY, DrafterBase
from specdec_core.tree import DraftTree


def register(monkeypatch, nth):
    """Make `interrupts` a method that is interrupted in its nth answer; a race warms up with the first."""
    answers = iter(range(1, 1000))

    class Interrupts(DrafterBase):
        name = "interrupts"

        def reset(self, context):
            if next(answers) == nth:
                raise KeyboardInterrupt

        def propose(self, context, budget, rng):
            return DraftTree.empty(context[-1])

    monkeypatch.setitem(REGISTRY, "interrupts", Interrupts)
