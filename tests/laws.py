"""How far the law of a (draw, rule) pair is from the target's, by enumeration: no sampling, no tolerance for noise.

`law_error` is used twice: on the package's own rule, where it must vanish, and on copies with a classic mistake
planted in them, where it must not.
"""

import numpy as np
import torch

from specdec_core.core.rng import enumerate_law, total_variation
from specdec_core.core.sampling import Sampling
from specdec_core.core.tree import DraftTree

EXACT = 1e-12  # float64 rounding over a few thousand sums
WRONG = 1e-3  # a mistake shows well above this
PLAIN = Sampling(temperature=1.0)


def completed(law, target, prompt, length, sampling=PLAIN):
    """``law`` over blocks of at most ``length`` tokens, each block completed by the target, token by token.

    ``completed({(): 1.0}, ...)`` is the target's own law.
    """
    while any(len(tokens) < length for tokens in law):
        longer = {}
        for tokens, mass in law.items():
            p = next_law(target, prompt, tokens, sampling) if len(tokens) < length else None
            for tail, p_x in [((), 1.0)] if p is None else [((int(x),), p[x]) for x in np.flatnonzero(p)]:
                longer[tokens + tail] = longer.get(tokens + tail, 0.0) + mass * p_x
        law = longer
    return law


def next_law(model, prompt, generated, sampling):
    """(V,) law of the token after ``prompt + generated``, processors called as transformers calls them."""
    context = [*prompt, *generated]
    scores = torch.tensor(sampling.penalize(model.row(context), context, list(generated)))[None]  # (1, V)
    for processor in sampling.processors:
        scores = processor(torch.tensor([context]), scores)
    return sampling.law(scores[0].numpy())


def by_text(ids, scores):
    """A processor that changes every score by what the whole text before it is, in its order."""
    return scores + torch.from_numpy(np.random.default_rng(ids[0].tolist()).normal(size=tuple(scores.shape)))


class Draw:
    """Draws trees from a draft model, ``widths[d]`` children for each node at depth d.

    ``draw="point"`` takes the most probable tokens instead of drawing. ``q`` is the law drawn from, at leaves too.
    ``reported`` puts another law in the tree than the one drawn from: the mistake of an unprocessed q.
    """

    def __init__(self, model, widths, draw="iid", sampling=PLAIN, reported=None):
        self.model, self.widths, self.draw = model, widths, draw
        self.sampling, self.reported = sampling, reported or sampling
        self._laws = {}

    @property
    def depth(self):
        return len(self.widths)

    def law(self, prompt, generated, sampling):
        key = (*prompt, -1, *generated, sampling)
        if key not in self._laws:
            self._laws[key] = next_law(self.model, prompt, generated, sampling)
        return self._laws[key]

    def __call__(self, prompt, rng, generated=(), depth=None):
        """A tree below ``prompt + generated``, at most ``depth`` deep."""
        paths, parents, depths, q = [tuple(generated)], [-1], [0], []
        for node, path in enumerate(paths):  # grows as it is walked
            q.append(self.law(prompt, path, self.reported))
            if depths[node] < min(self.depth, self.depth if depth is None else depth):
                for x in self.siblings(self.law(prompt, path, self.sampling), self.widths[depths[node]], rng):
                    paths.append(path + (x,))
                    parents.append(node)
                    depths.append(depths[node] + 1)
        tokens = [([*prompt, *generated])[-1]] + [path[-1] for path in paths[1:]]
        return DraftTree(np.array(tokens), np.array(parents), self.draw, np.array(q))

    def siblings(self, law, width, rng):
        if self.draw == "iid":
            return [rng.pick(law) for _ in range(width)]
        if self.draw == "point":
            return [int(x) for x in np.argsort(-law, kind="stable")[:width]]
        rest, drawn = law.copy(), []
        while len(drawn) < width and rest.any():
            drawn.append(rng.pick(rest))
            rest[drawn[-1]] = 0.0  # `pick` divides by what is left
        return drawn


def law_error(rule, draw, target, sampling=PLAIN, prompt=(0, 1)):
    """Total variation between the target's law and that of one verified block, completed by the target.

    Args:
        rule: ``rule(p, tree, rng)`` with ``.tokens``, as `verify`.
        draw: ``draw(prompt, rng)`` gives the tree; ``draw.depth`` bounds it.
        target: a `TableLM`.

    Returns:
        the error over all sequences of ``draw.depth + 1`` tokens, the longest block.
    """
    rows = {}

    def block(rng):
        tree = draw(prompt, rng)
        key = tree.tokens.tobytes() + tree.parents.tobytes()
        if key not in rows:
            target.prefill(prompt[:-1])
            rows[key] = sampling.laws(target.forward(tree).logits, tree, prompt, len(prompt))
        return tuple(rule(rows[key], tree, rng).tokens)

    length = draw.depth + 1
    came = completed(enumerate_law(block), target, prompt, length, sampling)
    return total_variation(came, completed({(): 1.0}, target, prompt, length, sampling))
