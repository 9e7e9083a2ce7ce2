"""What comes into the loop is checked here: a prompt, and the tree that a drafter proposes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.arguments import ids
from ..base.errors import ContextLimitError, DraftError
from .contract import Budget, LanguageModel
from .tree import DraftTree


def checked_prompt(prompt: Sequence[int], lm: LanguageModel) -> list[int]:
    """The prompt's token ids, or the beginning-of-sequence token for an empty one.

    Raises:
        ContextLimitError: if it leaves no room for a new token.
        ValueError: for what is no list of ids of the vocabulary.

    Example:
        >>> from specdec_core import TableLM
        >>> checked_prompt((1, 2), TableLM.random(4))
        [1, 2]
    """
    tokens = ids("prompt", prompt)
    if not tokens:
        if lm.bos_id is None:
            raise ValueError(
                "an empty prompt needs a beginning-of-sequence token, and this model has none; "
                "pass at least one token id"
            )
        tokens = [lm.bos_id]
    if bad := [i for i in tokens if i >= lm.vocab_size]:
        raise ValueError(f"token ids must be in 0 ... {lm.vocab_size - 1}; the prompt has {bad[:5]}")
    if len(tokens) >= lm.max_length:
        raise ContextLimitError(
            f"the prompt has {len(tokens)} tokens and the model's context holds {lm.max_length}; "
            f"shorten the prompt to at most {lm.max_length - 1} tokens"
        )
    return tokens


def check_tree(tree: DraftTree, root: int, budget: Budget, vocab_size: int, name: str) -> None:
    """Refuse a tree that breaks the drafter's contract.

    Args:
        tree: what the drafter called ``name`` proposed.
        root: the last token of the context.
        budget: what it was given.
        vocab_size: V of the target.

    Raises:
        DraftError: naming the drafter and what is wrong.

    Example:
        >>> check_tree(DraftTree.chain(7, [1, 2]), 7, Budget(2, 2), 10, "mine")
    """
    problem = None
    if not isinstance(tree, DraftTree):
        raise DraftError(f"{name!r} proposed {tree!r}; expected a tree, `DraftTree.empty(context[-1])` for no draft")
    if tree.tokens[0] != root:
        problem = f"is rooted at token {tree.tokens[0]}, not at the last token {root}"
    elif tree.size > budget.nodes or (tree.size and tree.depths.max() > budget.depth):
        problem = f"has {tree.size} nodes and depth {tree.depths.max()}; {budget} allows fewer"
    elif tree.size and not (tree.tokens.min() >= 0 and tree.tokens.max() < vocab_size):
        problem = f"holds token ids outside 0 ... {vocab_size - 1}"
    elif tree.q is not None and tree.size and tree.q.shape[1] != vocab_size:
        problem = f"has laws q over {tree.q.shape[1]} tokens; the target has {vocab_size}"
    elif tree.q is not None and tree.size:
        problem = _wrong_laws(tree)
    if problem:
        raise DraftError(f"the tree proposed by {name!r} {problem}")


def _wrong_laws(tree: DraftTree) -> str | None:
    """Why children of a tree cannot have been drawn from its laws, if they cannot. Only laws with children are read."""
    if tree.draw == "point":
        return None
    assert tree.q is not None
    nodes = np.flatnonzero(tree.candidate)[1:]
    parents, tokens = tree.parents[nodes], tree.tokens[nodes]
    for row in np.unique(parents):
        total, least = tree.q[row].sum(), tree.q[row].min()
        if not (abs(total - 1) <= 1e-6 and least >= 0):
            return f"has a q after row {row} that sums to {total}, its least {least}; expected 1 within 1e-6, and 0"
    if len(never := nodes[tree.q[parents, tokens] <= 0]):
        row = never[0]
        return f"has token {tree.tokens[row]} in row {row}, where its q is 0: it was drawn from another law"
    if tree.draw == "without_replacement":
        if len(np.unique(np.stack([parents, tokens]), axis=1).T) < len(nodes):
            return "draws a child twice from one q without replacement"
        if np.isin(tree.parents[~tree.candidate], parents).any():
            return "has scratch rows among children drawn without replacement, whose order of drawing they would change"
    return None
