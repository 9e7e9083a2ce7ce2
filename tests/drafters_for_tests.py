"""Drafters that help as much, or as little, as a test wants. None may change what is emitted, or its law."""

from laws import Draw

from specdec_core.drafters import DrafterBase
from specdec_core.tree import DraftTree


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


class Oracle(DrafterBase):
    """Proposes the right continuation; with ``shift`` not 0 modulo V, always a wrong one."""

    name = "oracle"

    def __init__(self, text, gamma, shift=0, vocab_size=1 << 30):
        self.text, self.gamma, self.shift, self.vocab_size = list(text), gamma, shift, vocab_size

    def propose(self, context, budget, rng):
        gamma = min(self.gamma, budget.nodes, budget.depth)
        right = self.text[len(context) : len(context) + gamma]
        return DraftTree.chain(context[-1], [(x + self.shift) % self.vocab_size for x in right])
