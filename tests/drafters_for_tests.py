"""Drafters that help as much, or as little, as a test wants. None may change what is emitted, or its law."""

import numpy as np
from laws import Draw

from specdec_core.core.contract import DrafterBase
from specdec_core.core.tree import DraftTree


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


class Adversary(DrafterBase):
    """Grows a random tree of at most ``nodes`` rows at every step; what it is made of is its ``kind``.

    Args:
        text: prompt and right continuation, which half of the tokens are taken from where a path follows it.
        kind: one of `KINDS`.
        stops: tokens that ``"stops inside"`` strews over the tree.
    """

    name = "adversary"

    def __init__(self, kind, text, vocab_size, seed, nodes=12, stops=()):
        self.kind, self.text, self.vocab_size, self.nodes, self.stops = kind, list(text), vocab_size, nodes, list(stops)
        self.random = np.random.default_rng(seed)

    def propose(self, context, budget, rng):
        size = min(budget.nodes, self.nodes)
        return KINDS[self.kind](self, context, size, budget.depth, rng)

    def right(self, context, depth):
        """The token at ``depth`` after the context, or any token where the text has ended."""
        at = len(context) - 1 + depth
        return self.text[at] if at < len(self.text) else self.any()

    def any(self):
        return int(self.random.integers(self.vocab_size))

    def oracle(self, context, size, depth, rng, shift=0):
        right = [self.right(context, d) for d in range(1, min(size, depth) + 1)]
        return DraftTree.chain(context[-1], [(token + shift) % self.vocab_size for token in right])

    def always_wrong(self, context, size, depth, rng):
        return self.oracle(context, size, depth, rng, shift=1)

    def tree(self, context, size, depth, rng, repeats=0.2, tokens=()):
        """Nodes hung anywhere, deep ones rather than bushy ones; a node may repeat its elder sibling."""
        made, parents, depths = [context[-1]], [-1], [0]
        for row in range(1, size + 1 if depth else 1):
            above = row - 1 if self.random.random() < 0.5 else int(self.random.integers(row))
            if depths[above] == depth:
                above = 0
            siblings = [made[i] for i, parent in enumerate(parents) if parent == above]
            if siblings and self.random.random() < repeats:
                token = siblings[-1]
            elif tokens and self.random.random() < 0.3:
                token = int(self.random.choice(tokens))
            else:
                likely = self.random.random() < 0.7
                token = self.right(context, depths[above] + 1) if likely else self.any()
            made.append(token)
            parents.append(above)
            depths.append(depths[above] + 1)
        return DraftTree(made, parents)

    def repeated_siblings(self, context, size, depth, rng):
        return self.tree(context, size, depth, rng, repeats=0.8)

    def stops_inside(self, context, size, depth, rng):
        return self.tree(context, size, depth, rng, tokens=self.stops)

    def scratch_rows(self, context, size, depth, rng):
        """Some subtrees can never be accepted, though they hold right tokens as often as others."""
        tree = self.tree(context, size, depth, rng)
        candidate = self.random.random(size=len(tree.tokens)) < 0.8
        candidate[0] = True
        for row in range(1, len(candidate)):
            candidate[row] &= candidate[tree.parents[row]]
        return DraftTree(tree.tokens, tree.parents, candidate=candidate)

    def drawn(self, context, size, depth, rng, draw):
        """Children drawn from random laws q that lean to the right token, through the loop's own random source."""
        made, parents, depths, q = [context[-1]], [-1], [0], []
        for node in range(size + 1):
            if node == len(made):
                break
            law = self.random.dirichlet(np.ones(self.vocab_size))
            law[self.right(context, depths[node] + 1)] += 1.0
            q.append(law / law.sum())
            for _ in range(min(int(self.random.integers(1, 4)), size + 1 - len(made)) if depths[node] < depth else 0):
                token = rng.pick(law)
                if draw == "without_replacement":
                    law[token] = 0.0
                made.append(token)
                parents.append(node)
                depths.append(depths[node] + 1)
                if not law.any():
                    break
        return DraftTree(made, parents, draw, np.array(q))

    def iid(self, context, size, depth, rng):
        return self.drawn(context, size, depth, rng, "iid")

    def without_replacement(self, context, size, depth, rng):
        return self.drawn(context, size, depth, rng, "without_replacement")


KINDS = {
    "always wrong": Adversary.always_wrong,
    "oracle": Adversary.oracle,
    "random trees": Adversary.tree,
    "repeated siblings": Adversary.repeated_siblings,
    "stops inside": Adversary.stops_inside,
    "scratch rows": Adversary.scratch_rows,
    "iid": Adversary.iid,
    "without replacement": Adversary.without_replacement,
}
