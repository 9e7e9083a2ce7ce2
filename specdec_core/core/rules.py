"""Verification: which part of a draft tree the target keeps, and the one token that follows it.

The rule must match the way the children were drawn, so `verify` reads it from the tree:

* ``"point"``: sample y from p; accept the child equal to y. The draft was one fixed set of tokens.
* ``"iid"``: accept a child x with probability min(1, p(x)/q(x)) (Leviathan et al. 2023, arXiv:2211.17192,
  Algorithm 1); on rejection p becomes the residual and the next sibling is tested against it (SpecInfer,
  arXiv:2305.09781, multi-step speculative sampling).
* ``"without_replacement"``: the same, with q renormalized without the rejected child each time
  (recursive rejection sampling, arXiv:2402.14160).

All three return tokens whose distribution is exactly p's. Greedy decoding is T = 0, where every row of p is one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from ..base.errors import BrokenLogits
from .rng import Rng
from .tree import DraftTree


class Laws(Protocol):
    """Anything whose ``laws[i]`` is the target's law (V,) after row i of a tree; a dense (N+1, V) array will do."""

    def __getitem__(self, i: int) -> np.ndarray: ...


class Tokens(Protocol):
    """Anything whose ``tokens[i]`` is a token for row i of a tree; a list will do."""

    def __getitem__(self, i: int, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class Greedy:
    """Laws that are all one-hot, as at T = 0, stored by their tokens.

    Attributes:
        ids: (N+1,) the target's best token after each row of a tree.
        broken: rows whose logits are not numbers, with what is wrong with them; an error once the walk comes there.
    """

    ids: Tokens
    broken: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """One test of one node: the probability with which it could be accepted, and whether it was."""

    node: int
    accept_prob: float
    accepted: bool


@dataclass(frozen=True, eq=False, slots=True)
class Verdict:
    """What the target made of a tree.

    Attributes:
        path: (k+1,) row ids from the root to the last accepted node.
        next_token: the bonus token if the path ends in a leaf, else the correction.
        trials: every test made, in order.
        tokens: (k+1,) the tokens to emit: k accepted ones and ``next_token``.
    """

    path: tuple[int, ...]
    next_token: int
    trials: tuple[Trial, ...]
    tokens: tuple[int, ...]

    @property
    def accepted(self) -> int:
        """k, the number of draft tokens kept."""
        return len(self.path) - 1


class Rule(Protocol):
    """A way to verify. `Lossless` is the one by default; others may stand in its place (`typical`).

    Attributes:
        label: names a rule that is not lossless in tables and plots; "" for one that is.
    """

    @property
    def label(self) -> str: ...

    def __call__(self, p: Laws | Greedy, tree: DraftTree, rng: Rng) -> Verdict: ...


@dataclass(frozen=True)
class Lossless:
    """The rule that is `verify`: the tokens are distributed as the target's own."""

    label: ClassVar[str] = ""

    def __call__(self, p: Laws | Greedy, tree: DraftTree, rng: Rng) -> Verdict:
        return verify(p, tree, rng)


def accept_probability(p_x: float, q_x: float) -> float:
    """min(1, p(x)/q(x)), the probability of keeping a draft token x (arXiv:2211.17192, section 2.3).

    Raises:
        ValueError: if q(x) is not positive: a token that was drawn from q has q(x) > 0.

    Example:
        >>> accept_probability(0.2, 0.8)
        0.25
    """
    if not q_x > 0:
        raise ValueError(f"q(x) = {q_x}: the draft token has no mass under q, so it was drawn from another law")
    return min(1.0, p_x / q_x)


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """norm(max(p - q, 0)), the law of the correction after a rejection (arXiv:2211.17192, section 2.3).

    Where p == q nothing can be rejected except by rounding, and the residual would be 0/0; p itself is
    returned then, which keeps the result finite and supported where p is.

    Args:
        p, q: (V,) laws.

    Returns:
        (V,) float64 law.

    Example:
        >>> residual(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.2])).tolist()
        [1.0, 0.0, 0.0]
    """
    p = np.asarray(p, np.float64)
    excess = np.maximum(p - q, 0.0)
    total = excess.sum()
    return excess / total if total > 0 else p / p.sum()


def verify(p: Laws | Greedy, tree: DraftTree, rng: Rng) -> Verdict:
    """Walk the tree from the root, keep what the target accepts, and sample the token that follows.

    Args:
        p: the target's law after each row.
        tree: the draft.
        rng: source of the acceptance uniforms and of the correction or bonus token; unused when greedy.

    Returns:
        the `Verdict`; its tokens are distributed as the target's own next tokens.

    Raises:
        ValueError: when sampling, for a tree that was drawn from laws and has lost them (`DraftTree.without_q`).

    Example:
        >>> tree = DraftTree.chain(7, [1, 2])
        >>> verify(Greedy([1, 5, 9]), tree, Rng(0)).tokens
        (1, 5)
    """
    path, trials = [0], []
    while True:
        tests, token = _children(p, tree, path[-1], rng)
        trials += tests
        if not (tests and tests[-1].accepted):
            break
        path.append(tests[-1].node)
    tokens = tuple(int(t) for t in tree.tokens[path[1:]]) + (token,)
    return Verdict(tuple(path), token, tuple(trials), tokens)


def clip(verdict: Verdict, keep: int) -> Verdict:
    """The verdict cut to its first ``keep`` tokens (1 <= keep <= k + 1).

    The last token kept becomes ``next_token``: it is emitted but not committed to the cache, exactly like
    the correction or bonus token of an uncut verdict.

    Example:
        >>> whole = verify(Greedy([1, 2, 3, 4]), DraftTree.chain(7, [1, 2, 3]), Rng(0))
        >>> cut = clip(whole, 2)
        >>> whole.tokens, cut.tokens, cut.path, cut.next_token
        ((1, 2, 3, 4), (1, 2), (0, 1), 2)
    """
    if not 1 <= keep <= len(verdict.tokens):
        raise ValueError(f"keep must be between 1 and {len(verdict.tokens)}, the tokens of the verdict; got {keep}")
    if keep == len(verdict.tokens):
        return verdict
    tokens = verdict.tokens[:keep]
    return Verdict(verdict.path[:keep], tokens[-1], verdict.trials, tokens)


def _children(p: Laws | Greedy, tree: DraftTree, node: int, rng: Rng) -> tuple[list[Trial], int]:
    """The tests of a node's children, up to the first that is accepted, and the token that follows the node."""
    if isinstance(p, Greedy):
        if node in p.broken:
            raise BrokenLogits(p.broken[node])
        best = int(p.ids[node])
        return _matched(tree, node, best, lambda token: float(token == best)), best
    law = np.asarray(p[node], np.float64)  # (V,)
    if tree.draw == "point":
        y = rng.pick(law)
        return _matched(tree, node, y, lambda token: float(law[token])), y
    return _drawn(law, tree, node, rng)


def _matched(tree: DraftTree, node: int, y: int, probability: Callable[[int], float]) -> list[Trial]:
    """Children that were fixed: the one equal to the target's own token y is accepted."""
    trials = []
    for child in tree.children(node):
        token = int(tree.tokens[child])
        trials.append(Trial(child, probability(token), token == y))
        if token == y:
            break
    return trials


def _drawn(law: np.ndarray, tree: DraftTree, node: int, rng: Rng) -> tuple[list[Trial], int]:
    """Children that were drawn from q: each is tested against what the ones before it left of the target's law."""
    trials: list[Trial] = []
    children, rejected = tree.children(node), None
    if not children:
        return trials, rng.pick(law)
    if tree.q is None:
        raise ValueError(f"draw={tree.draw!r} needs q, the laws drawn from; this tree was stored without them")
    q = tree.q[node]  # (V,)
    for child in children:
        if rejected is not None and tree.draw == "without_replacement":
            q = without(q, rejected)
        x = int(tree.tokens[child])
        prob = accept_probability(law[x], q[x])
        accepted = bool(rng.uniform() < prob)
        trials.append(Trial(child, float(prob), accepted))
        if accepted:
            return trials, x
        law, rejected = residual(law, q), x
    return trials, rng.pick(law)


def without(q: np.ndarray, x: int) -> np.ndarray:
    """q without token x, renormalized: the law of the next draw without replacement.

    Raises:
        ValueError: if x carried all the mass, so that nothing is left to draw.

    Example:
        >>> without(np.array([0.5, 0.25, 0.25]), 0).tolist()
        [0.0, 0.5, 0.5]
    """
    rest = np.array(q, np.float64)
    rest[x] = 0.0
    total = rest.sum()
    if not total > 0:
        raise ValueError(f"token {x} carried all the mass of q: there is no further draw without replacement")
    return rest / total
