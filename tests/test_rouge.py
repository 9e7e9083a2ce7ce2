"""ROUGE by hand, its limits, and the summaries that it is compared with."""

from itertools import combinations

import pytest

from specdec_core.race.summaries import common_subsequence, references, rouge, words
from specdec_core.race.workloads import own


def test_by_hand():
    """2 and 3 words, 1 in common twice: F1 = 2 * 2 / 5 = 0.8; "a b" is one of 1 and 2 pairs: 2 / 3; "a b" in order."""
    assert rouge("a b", "c a b") == pytest.approx((0.8, 2 / 3, 0.8))
    assert rouge("b a", "c a b") == pytest.approx((0.8, 0.0, 0.4))


def test_a_repeated_word_counts_as_often_as_both_have_it():
    assert rouge("a a a a", "a b").r1 == pytest.approx(2 * 1 / 6)


@pytest.mark.parametrize("text", ["", "...", "word"])
def test_nothing_in_common_is_zero(text):
    assert rouge(text, "other") == (0.0, 0.0, 0.0)


def test_equal_texts_are_one_and_both_directions_agree():
    a, b = "The lens, cut into rings, saved ships.", "Ships were saved: the lens was cut!"
    assert rouge(a, a) == (1.0, 1.0, 1.0)
    assert rouge(a, b) == rouge(b, a)


def test_case_and_punctuation_do_not_count():
    assert words("It's 2,750.") == ["it", "s", "2", "750"]
    assert rouge("THE LENS!", "the lens") == (1.0, 1.0, 1.0)


def test_common_subsequence_against_all_subsequences():
    def brute(a, b):
        both = [set(combinations(x, n)) for n in range(len(a), 0, -1) for x in (a,)]
        of_b = {part for n in range(len(b) + 1) for part in combinations(b, n)}
        return next((len(next(iter(parts))) for parts in both if parts & of_b), 0)

    for a, b in [("abcbdab", "bdcaba"), ("abc", "xyz"), ("aaa", "aa"), ("abcd", "dcba"), ("", "a")]:
        assert common_subsequence(a, b) == brute(a, b), (a, b)


def test_every_own_article_has_a_reference_in_its_words():
    found = references()
    assert list(found) == [question.id for question in own("summarize")]
    for question in own("summarize"):
        text, article = found[question.id], words(question.turns[0])
        assert len(words(text)) < len(article) / 2
        numbers = {word for word in words(text) if word.isdigit()}
        assert numbers <= set(article), question.id  # no figure that the article does not give
        others = [rouge(found[id], question.turns[0]).r1 for id in found if id != question.id]
        assert rouge(text, question.turns[0]).r1 > max(others), question.id
