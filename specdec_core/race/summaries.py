"""ROUGE: how many words, word pairs, and words in order two texts have in common.

After C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, as F1 of precision and recall. Words
are runs of a-z and 0-9 after lowercasing, not stemmed, as in the package `rouge-score` without its stemmer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple


class Rouge(NamedTuple):
    """F1, each in [0, 1]: of words, of word pairs, and of the longest common subsequence."""

    r1: float
    r2: float
    rl: float


def rouge(text: str, reference: str) -> Rouge:
    """Compare a text with a reference; both ways give the same number.

    Example:
        >>> rouge("the lens bends light", "a lens bends the light")  # in common: 4 of 4 and 5 words, 1 pair, 3 in order
        Rouge(r1=0.8888888888888888, r2=0.2857142857142857, rl=0.6666666666666666)
    """
    a, b = words(text), words(reference)
    ones = sum((Counter(a) & Counter(b)).values())
    twos = sum((Counter(zip(a, a[1:], strict=False)) & Counter(zip(b, b[1:], strict=False))).values())
    return Rouge(
        _f1(ones, len(a), len(b)), _f1(twos, len(a) - 1, len(b) - 1), _f1(common_subsequence(a, b), len(a), len(b))
    )


def words(text: str) -> list[str]:
    """The words that are counted.

    Example:
        >>> words("Fresnel's lens, 1823.")
        ['fresnel', 's', 'lens', '1823']
    """
    return re.findall(r"[a-z0-9]+", text.lower())


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence: words of both in the same order, gaps allowed.

    Example:
        >>> common_subsequence("a b c d".split(), "b x a d".split())
        2
    """
    best = [0] * (len(b) + 1)  # best[j]: of the part of a that was read and b[:j]
    for word in a:
        diagonal = 0
        for j, other in enumerate(b, 1):
            diagonal, best[j] = best[j], diagonal + 1 if word == other else max(best[j], best[j - 1])
    return best[-1]


def references() -> dict[str, str]:
    """A summary written by hand for every own question of the task "summarize", by the question's id.

    Example:
        >>> sorted(references())[0]
        'summarize-01'
    """
    lines = (files(__package__) / "prompts" / "references.jsonl").read_text(encoding="utf-8").splitlines()
    return {entry["id"]: entry["reference"] for entry in map(json.loads, lines)}


def _f1(common: int, of_a: int, of_b: int) -> float:
    """Harmonic mean of common / of_a and common / of_b; 0 where nothing is in common."""
    return 2 * common / (of_a + of_b) if common else 0.0
