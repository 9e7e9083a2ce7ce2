"""Drafters that help as much, or as little, as a test wants. None may change what is emitted, or its law."""

from laws import Draw

from specdec_core.drafters import DrafterBase


class Drawing(DrafterBase):
    """Draws its trees from a draft model, as `laws.Draw` says, through the random source of the loop."""

    name = "drawing"

    def __init__(self, draw: Draw):
        self.draw = draw

    def reset(self, context):
        self.prompt = tuple(context)

    def propose(self, context, budget, rng):
        generated = tuple(context[len(self.prompt) :])
        return self.draw(self.prompt, rng, generated, budget.depth)
