"""Typical acceptance, the rule of Medusa that is NOT lossless (arXiv:2401.10774, section 2.3.1).

A drafted token is kept if the target finds it likely enough: p(x) > min(epsilon, delta exp(-H(p))), where H is the
entropy of p. No law q enters and nothing is drawn; the more uncertain the target is, the less is asked of a token.
What comes out are plausible tokens whose law is not p: `distance` says exactly how far from it, by enumeration.

`Typical()` stands where `verify` does: ``generate(..., rule=Typical())``. Greedy, at T = 0, the two are one rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..base.arguments import real
from .contract import Drafter, LanguageModel
from .engine import generate
from .rng import Rng, enumerate_law, total_variation
from .rules import Greedy, Laws, Rule, Trial, Verdict, verify
from .sampling import Sampling
from .tree import DraftTree


def threshold(p: np.ndarray, epsilon: float = 0.09, delta: float = 0.3) -> float:
    """min(epsilon, delta exp(-H(p))), which p(x) must exceed; H in nats.

    Args:
        p: (V,) law.
        epsilon: the most that is ever asked; it bounds the rule for a target that is sure.
        delta: share of exp(-H), the probability of each token in a uniform law of entropy H.

    Example:
        >>> round(threshold(np.full(10, 0.1)), 12), threshold(np.array([1.0, 0.0]))
        (0.03, 0.09)
    """
    positive = p[p > 0]
    return float(min(epsilon, delta * np.exp((positive * np.log(positive)).sum())))


@dataclass(frozen=True)
class Typical:
    """The rule, in the form of `verify`. Not lossless.

    Every node whose token is likely enough, and whose parent was kept, could be kept; the deepest of them is, and of
    equally deep ones that with the likeliest path. The token after it is the target's best, drafted or not: so every
    step writes one, as in the paper, whose candidates all begin with the target's best token.

    Args:
        epsilon, delta: see `threshold`; the defaults are those of the authors' code.

    Example:
        >>> tree, law = DraftTree.chain(7, [1, 2]), np.array([[0.0, 0.2, 0.8], [0.05, 0.9, 0.05], [0.5, 0.2, 0.3]])
        >>> Typical()(law, tree, Rng(0)).tokens  # 1 has p = 0.2: kept; 2 then has 0.05: not
        (1, 1)
    """

    epsilon: float = 0.09
    delta: float = 0.3
    label: ClassVar[str] = "typical acceptance, not lossless"

    def __post_init__(self) -> None:
        vars(self).update(epsilon=real("epsilon", self.epsilon, 0, 1), delta=real("delta", self.delta, 0))

    def __call__(self, p: Laws | Greedy, tree: DraftTree, rng: Rng) -> Verdict:
        if isinstance(p, Greedy):
            return verify(p, tree, rng)
        trials, kept, bars = [], {0: 0.0}, {}  # kept: log p of the path to each node
        for node in range(1, len(tree.tokens)):
            parent = int(tree.parents[node])
            if not tree.candidate[node] or parent not in kept:
                continue
            law, token = p[parent], tree.tokens[node]
            if parent not in bars:
                bars[parent] = threshold(law, self.epsilon, self.delta)
            accepted = bool(law[token] > bars[parent])
            trials.append(Trial(node, float(accepted), accepted))
            if accepted:
                kept[node] = kept[parent] + float(np.log(law[token]))
        path = tree.path_to(max(kept, key=lambda node: (tree.depths[node], kept[node])))
        best = int(np.argmax(p[path[-1]]))
        return Verdict(tuple(path), best, tuple(trials), (*(int(t) for t in tree.tokens[path[1:]]), best))


def generation_law(
    target: LanguageModel,
    prompt: Sequence[int],
    length: int,
    sampling: Sampling,
    drafter: Drafter | None = None,
    rule: Rule | None = None,
) -> dict[tuple[int, ...], float]:
    """The exact law of the ``length`` tokens that `generate` writes, found by enumerating all its draws.

    Args:
        target: with a vocabulary of a few tokens, such as a `TableLM`.
        drafter: keeps nothing over a `reset`; none gives the target's own law.
        rule: how trees are verified; lossless by default.

    Example:
        >>> from specdec_core.core.toy import TableLM
        >>> coin = TableLM(np.zeros((2, 2)))
        >>> generation_law(coin, [0], 1, Sampling(temperature=1.0))
        {(0,): 0.5, (1,): 0.5}
    """

    def tokens(rng: Rng) -> tuple[int, ...]:
        rngs = (rng, rng)
        return generate(target, prompt, drafter, max_new_tokens=length, sampling=sampling, rule=rule, rngs=rngs).tokens

    return {text: float(mass) for text, mass in enumerate_law(tokens).items()}


def distance(
    target: LanguageModel,
    prompt: Sequence[int],
    length: int,
    sampling: Sampling,
    drafter: Drafter,
    rule: Rule | None = None,
) -> float:
    """Total variation between the distribution that a drafter and a rule write and the target's own; 0 if lossless.

    Args: as `generation_law`.

    Returns:
        in [0, 1]: the largest difference in probability that any set of texts of ``length`` tokens can have.
    """
    own = generation_law(target, prompt, length, sampling)
    return total_variation(own, generation_law(target, prompt, length, sampling, drafter, rule))
