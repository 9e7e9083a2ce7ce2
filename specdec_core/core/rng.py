"""Randomness through one narrow door, so that a run can be replayed and a law can be enumerated.

A decoder draws in two ways only: ``uniform`` (compare with an acceptance probability) and ``pick`` (one
index from a law). `Rng` answers them with numpy's Philox stream. `enumerate_law` runs the same decoder once
for every way its draws can fall and adds up the probabilities: the exact law of whatever it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import numpy as np

from ..base.arguments import whole

Outcome = TypeVar("Outcome", bound=Hashable)


class Rng:
    """A seeded stream of draws.

    Example:
        >>> Rng(0).pick(np.array([0.0, 1.0, 0.0]))
        1
    """

    def __init__(self, seed: int | np.random.SeedSequence = 0):
        seed = seed if isinstance(seed, np.random.SeedSequence) else whole("seed", seed, 0)
        self._generator = np.random.Generator(np.random.Philox(seed))

    def uniform(self) -> float:
        """A fresh u in [0, 1)."""
        return self._generator.random()

    def pick(self, law: np.ndarray) -> int:
        """An index drawn from ``law`` (V,), nonnegative, summing to one up to rounding."""
        return pick_at(self.uniform(), law)


def pick_at(u: float, law: np.ndarray) -> int:
    """The inverse-CDF draw at u in [0, 1): an index with positive probability, whatever the rounding.

    Example:
        >>> pick_at(0.999999, np.array([0.2, 0.8, 0.0]))
        1
    """
    cdf = np.cumsum(law)
    index = int(np.searchsorted(cdf, u * cdf[-1], side="right"))
    # u * total can round up to the total itself; the last index with mass is then the right one.
    return index if index < len(law) else int(np.flatnonzero(law)[-1])


def spawn(seed: int) -> tuple[Rng, Rng]:
    """Two independent streams of one seed: one for drafting, one for verifying."""
    draft, verify = np.random.SeedSequence(whole("seed", seed, 0)).spawn(2)
    return Rng(draft), Rng(verify)


class _Interval:
    """A uniform known only to lie in [lo, hi). Comparing it splits the run into the two cases."""

    def __init__(self, owner: _Branching):
        self._owner, self.lo, self.hi = owner, 0.0, 1.0

    def __lt__(self, threshold: float) -> bool:
        threshold = float(threshold)
        if threshold >= self.hi:
            return True
        if threshold <= self.lo:
            return False
        share = (threshold - self.lo) / (self.hi - self.lo)
        below = self._owner.branch([share, 1.0 - share]) == 0
        self.lo, self.hi = (self.lo, threshold) if below else (threshold, self.hi)
        return below


class _Branching:
    """Stands in for `Rng`: follows a prescribed list of branches, then always the first open one."""

    def __init__(self, prescribed: list[int]):
        self._prescribed, self.weight = prescribed, 1.0
        self.taken: list[int] = []
        self.widths: list[int] = []

    def branch(self, probabilities: list[float]) -> int:
        step = len(self.taken)
        index = self._prescribed[step] if step < len(self._prescribed) else 0
        self.taken.append(index)
        self.widths.append(len(probabilities))
        self.weight *= probabilities[index]
        return index

    def uniform(self) -> _Interval:
        return _Interval(self)

    def pick(self, law: np.ndarray) -> int:
        law = np.asarray(law, np.float64)
        support = np.flatnonzero(law)
        return int(support[self.branch(list(law[support] / law.sum()))])


def enumerate_law(run: Callable[[Rng], Outcome], limit: int = 2_000_000) -> dict[Outcome, float]:
    """The exact law of ``run(rng)``, found by running it once for every outcome of its draws.

    Args:
        run: any function of a random source that draws only through ``rng.uniform() < x`` and ``rng.pick``.
        limit: refuse to go on after this many runs.

    Returns:
        a mapping from result to probability; the probabilities sum to 1 up to rounding.

    Raises:
        RuntimeError: if more than ``limit`` runs would be needed.

    Example:
        >>> enumerate_law(lambda rng: rng.uniform() < 0.25)
        {True: 0.25, False: 0.75}
    """
    law: dict[Outcome, float] = {}
    prescribed: list[int] = []
    for _ in range(whole("limit", limit, 1)):
        rng = _Branching(prescribed)
        result = run(cast(Rng, rng))  # which draws through `uniform() < x` and `pick` alone
        law[result] = law.get(result, 0.0) + rng.weight
        # Advance like an odometer: the last branch that has a next case takes it.
        taken = rng.taken
        while taken and taken[-1] + 1 == rng.widths[len(taken) - 1]:
            taken.pop()
        if not taken:
            return law
        prescribed = taken[:-1] + [taken[-1] + 1]
    raise RuntimeError(f"more than {limit} outcomes; use a smaller vocabulary, tree or length")


def total_variation(a: dict[Outcome, float], b: dict[Outcome, float]) -> float:
    """Half the L1 distance of two laws given as mappings.

    Example:
        >>> total_variation({"x": 0.5, "y": 0.5}, {"x": 1.0})
        0.5
    """
    return 0.5 * sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys())
