"""Identity to autoregressive decoding, answer by answer, and how close the call was where it fails."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..core.contract import LanguageModel
from ..core.tree import DraftTree


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first difference; the shorter length if one begins the other; None if they are equal.

    Example:
        >>> first_difference([1, 2, 3], [1, 5, 3]), first_difference([1], [1, 2]), first_difference([1], [1])
        (1, 1, None)
    """
    common = min(len(a), len(b))
    differs = next((i for i in range(common) if a[i] != b[i]), common)
    return None if differs == len(a) == len(b) else differs


def agreement(lm: LanguageModel, pairs: Sequence[tuple[Sequence[int], list[int], list[int]]]) -> str:
    """In words: how many answers are those of ordinary decoding, and how near a tie was where the others diverge.

    Args:
        pairs: (prompt, ordinary answer, other answer), all token ids.

    Example:
        >>> from specdec_core.core.toy import TableLM
        >>> print(agreement(TableLM([[0.0, 3.0, 1.0]] * 3), [([0], [1, 1], [1, 1]), ([0], [1, 1], [1, 2])]))
        1 of 2 answers are those of ordinary decoding, token for token.
        Where the others diverge, the two best logits are at most 2 apart, and rounding decides (chapter 12).
    """
    apart = {(*prompt, *right[: first_difference(right, other)]) for prompt, right, other in pairs if right != other}
    same = sum(right == other for _, right, other in pairs)
    words = f"{same} of {len(pairs)} answers are those of ordinary decoding, token for token."
    if apart:
        gap = max(logit_gap(lm, text) for text in apart)
        near = "tied exactly" if gap == 0 else f"at most {gap:.2g} apart"
        words += f"\nWhere the others diverge, the two best logits are {near}, and rounding decides (chapter 12)."
    return words


def logit_gap(lm: LanguageModel, context: Sequence[int]) -> float:
    """Largest minus second largest logit of the token after `context`.

    Example:
        >>> from specdec_core.core.toy import TableLM
        >>> logit_gap(TableLM([[0.0, 3.0, 1.0]] * 3), [0, 1])
        2.0
    """
    lm.prefill(context[:-1], reserve=1)
    largest, second = lm.forward(DraftTree.empty(context[-1])).logits[0].double().topk(2).values.tolist()
    return largest - second


def reread(lm: LanguageModel, prompt: Sequence[int], answer: Sequence[int], width: int) -> torch.Tensor:
    """The rows of logits behind an answer that is known, from forwards over ``width`` tokens of it at a time.

    ``width`` 1 is autoregressive decoding; a larger one is a run whose drafts are all right. Without rounding the rows
    would be the same.

    Args:
        prompt: at least one token.
        answer: the tokens that follow; row i is behind the distribution of token i of the answer.
        width: rows of a forward, at least 1; the last forward may have fewer.

    Returns:
        (len(answer), V).

    Example:
        >>> from specdec_core.core.toy import TableLM
        >>> lm = TableLM.random(4)
        >>> bool((reread(lm, [0], [1, 2, 3], 1) == reread(lm, [0], [1, 2, 3], 2)).all())
        True
    """
    if width < 1 or not prompt:
        raise ValueError(f"width must be at least 1, and so must the prompt; got {width} and {len(prompt)} tokens")
    lm.prefill(prompt[:-1], reserve=len(answer) + width)
    read, rows = [prompt[-1], *answer[:-1]] if answer else [], []
    for start in range(0, len(read), width):
        chunk = read[start : start + width]
        rows.append(lm.forward(DraftTree.chain(chunk[0], chunk[1:])).logits.clone())
        lm.commit(range(len(chunk)))
    return torch.cat(rows) if rows else torch.empty(0, lm.vocab_size)
