"""The draft tree: what a drafter proposes and the target checks in one forward pass.

Row 0 is the root, the last committed token. Every other row is a node whose parent is an earlier row,
so a plain chain, a Medusa tree, a trie of retrieved continuations and the lookahead window are all the
same object. N counts the nodes besides the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..base.arguments import ids, one_of, vector, whole

DRAWS = ("point", "iid", "without_replacement")


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A rooted tree of draft tokens.

    Attributes:
        tokens: (N+1,) int64 token ids; ``tokens[0]`` is the last committed token.
        parents: (N+1,) int64; ``parents[0] == -1`` and ``parents[i] < i``.
        draw: how the children of a node were chosen, which fixes the verification rule:
            ``"point"`` (one fixed set of tokens), ``"iid"`` (each child drawn from ``q[i]``) or
            ``"without_replacement"`` (drawn one after another from ``q[i]``, never the same twice).
        q: (N+1, V) float64 or None; ``q[i]`` is the law from which the children of node i were drawn.
            Needed unless ``draw == "point"``.
        candidate: (N+1,) bool; False marks scratch rows that ride in the same forward but can never be
            accepted (the lookahead window is made of them).

    Raises:
        ValueError: if the arrays disagree in length, hold anything but whole numbers (of ``candidate``: but True and
            False), a parent does not come before its child, a candidate hangs from a scratch row, or q is missing
            or has the wrong shape.

    Example:
        >>> tree = DraftTree.from_paths(7, [[1, 2], [1, 3], [4]])
        >>> tree.tokens.tolist(), tree.parents.tolist()
        ([7, 1, 2, 3, 4], [-1, 0, 1, 1, 0])
        >>> tree.depths.tolist()
        [0, 1, 2, 2, 1]
    """

    tokens: np.ndarray
    parents: np.ndarray
    draw: str = "point"
    q: np.ndarray | None = None
    candidate: np.ndarray = field(default=None)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        tokens, parents = vector("tokens", self.tokens), vector("parents", self.parents)
        candidate = np.ones(tokens.shape, bool) if self.candidate is None else vector("candidate", self.candidate, bool)
        vars(self).update(tokens=tokens, parents=parents, candidate=candidate)
        rows = tokens.size
        if tokens.ndim != 1 or rows == 0 or parents.shape != (rows,) or candidate.shape != (rows,):
            raise ValueError(
                f"tokens, parents and candidate must be vectors of one length >= 1; got shapes "
                f"{tokens.shape}, {parents.shape}, {candidate.shape}"
            )
        if parents[0] != -1 or (parents[1:] < 0).any() or (parents[1:] >= np.arange(1, rows)).any():
            raise ValueError(f"parents must be -1 for row 0 and an earlier row elsewhere; got {parents.tolist()}")
        if not candidate[0] or (candidate[1:] & ~candidate[parents[1:]]).any():
            raise ValueError("the root is always a candidate, and a candidate cannot hang from a scratch row")
        one_of("draw", self.draw, DRAWS)
        if self.draw != "point" and rows > 1 and (self.q is None or self.q.ndim != 2 or len(self.q) != rows):
            shape = None if self.q is None else self.q.shape
            raise ValueError(f"draw={self.draw!r} needs q of shape ({rows}, V), the laws drawn from; got {shape}")

    @property
    def size(self) -> int:
        """N, the number of nodes besides the root."""
        return len(self.tokens) - 1

    @cached_property
    def depths(self) -> np.ndarray:
        """(N+1,) int64: edges from the root, which is also the offset of each row's position."""
        depths = np.zeros(len(self.tokens), np.int64)
        for i in range(1, len(depths)):
            depths[i] = depths[self.parents[i]] + 1
        return depths

    @cached_property
    def is_chain(self) -> bool:
        """True if every row hangs from the row before it."""
        return bool((self.parents == np.arange(-1, len(self.parents) - 1)).all())

    @cached_property
    def ancestors(self) -> np.ndarray:
        """(N+1, N+1) bool: ``ancestors[i, j]`` where j lies on the path from the root to i, i included.

        This is the tree-attention mask among the rows of one forward pass.

        Example:
            >>> DraftTree.from_paths(7, [[1], [4]]).ancestors.astype(int).tolist()
            [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
        """
        rows = len(self.tokens)
        if self.is_chain:
            return np.tri(rows, dtype=bool)
        mask = np.eye(rows, dtype=bool)
        for i in range(1, rows):
            mask[i] |= mask[self.parents[i]]
        return mask

    @cached_property
    def _children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in self.tokens]
        for i in range(1, len(self.tokens)):
            if self.candidate[i]:
                children[self.parents[i]].append(i)
        return children

    def children(self, i: int) -> list[int]:
        """Candidate children of row i, in the order in which they were drawn."""
        return self._children[i]

    def path_to(self, i: int) -> list[int]:
        """Row ids from the root to row i, both included.

        Example:
            >>> DraftTree.from_paths(7, [[1, 2], [1, 3]]).path_to(3)
            [0, 1, 3]
        """
        path = [i]
        while path[-1]:
            path.append(int(self.parents[path[-1]]))
        return path[::-1]

    def without_q(self) -> DraftTree:
        """The same tree with the laws dropped, small enough to keep in a trace; it still says how it was drawn.

        A tree that was drawn from laws cannot be verified in sampling without them; `verify` refuses it.

        Example:
            >>> tree = DraftTree.chain(7, [1], q=np.array([[0.5, 0.5]]), draw="iid").without_q()
            >>> tree.draw, tree.q
            ('iid', None)
        """
        bare = object.__new__(DraftTree)  # checked already, and without the masks that the forward was made with
        vars(bare).update(tokens=self.tokens, parents=self.parents, draw=self.draw, q=None, candidate=self.candidate)
        return bare

    @classmethod
    def empty(cls, root: int) -> DraftTree:
        """No draft: the root alone, which makes the step an autoregressive one."""
        return cls(np.array([root]), np.array([-1]))

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int], q: np.ndarray | None = None, draw: str = "point") -> DraftTree:
        """One path. With q of shape (N, V), ``q[d]`` is the law from which token d was drawn.

        Example:
            >>> DraftTree.chain(7, [1, 2]).parents.tolist()
            [-1, 0, 1]
        """
        rows = len(tokens) + 1
        laws = None
        if q is not None and rows > 1:
            # Row i holds the law of its children, so the last row has none; the zeros are never read.
            laws = np.concatenate([np.asarray(q, np.float64), np.zeros((1, np.shape(q)[1]))])
        return cls(np.concatenate([[root], vector("tokens", tokens)]), np.arange(-1, rows - 1), draw, laws)

    @classmethod
    def from_paths(cls, root: int, paths: Sequence[Sequence[int]], limit: int | None = None) -> DraftTree:
        """The trie of several continuations of the root; shared prefixes are stored once.

        ``limit`` bounds the number of nodes; earlier paths are kept first.
        """
        tokens, parents, index = [root], [-1], {}
        limit = None if limit is None else whole("limit", limit, 0)
        for path in paths:
            at = 0
            for token in ids("path", path):
                key = (at, token)
                if key not in index:
                    if limit is not None and len(tokens) > limit:
                        break
                    index[key] = len(tokens)
                    tokens.append(token)
                    parents.append(at)
                at = index[key]
        return cls(np.array(tokens), np.array(parents))
