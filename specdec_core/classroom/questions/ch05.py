"""Chapter 05: prompt lookup."""

from __future__ import annotations

import numpy as np

from ..question import Question, Slip


def text(rng: np.random.Generator, length: int, V: int = 3) -> list[int]:
    """A text over few tokens, so that its n-grams return."""
    return [int(token) for token in rng.integers(0, V, length)]


def _texts(rng: np.random.Generator) -> list[tuple]:
    cases = [(text(rng, L, 3), n) for L in (6, 12, 20) for n in (1, 2, 3)]
    return [([7, 7, 7, 7], 2), ([1, 2, 3], 2), ([5], 1), *cases]


def _matches(tokens: list[int], n: int) -> list[int]:
    return [i for i in range(len(tokens) - n) if all(tokens[i + j] == tokens[len(tokens) - n + j] for j in range(n))]


def _apart(tokens: list[int], n: int) -> list[int]:
    return [i for i in _matches(tokens, n) if i + n <= len(tokens) - n]


MATCHES = Question(
    "05.1", "matches", ("tokens", "n"), _texts, right=_matches, like=[0],
    returns="the list of the places, in rising order", slips=(
        Slip("it also finds the suffix itself, which has no continuation: stop the search one short of the end.",
             lambda t, n: [*_matches(t, n), *([len(t) - n] if len(t) >= n else [])]),
        Slip("it leaves out matches that overlap the suffix; in a text that repeats itself those are matches too.",
             _apart),
        Slip("these are the places behind the matches; where each match begins is asked for.",
             lambda t, n: [i + n for i in _matches(t, n)]),
        Slip("these are the places where the last token alone stands; all n tokens must agree.",
             lambda t, n: [i for i in range(len(t) - n) if t[i + n - 1] == t[-1]]),
        Slip("this is only the last match; all are asked for.", lambda t, n: _matches(t, n)[-1:]),
        Slip("this is only the first match; all are asked for.", lambda t, n: _matches(t, n)[:1]),
        Slip("the places come in falling order; rising order is asked for.", lambda t, n: _matches(t, n)[::-1]),
))


def _lookups(rng: np.random.Generator) -> list[tuple]:
    cases = [(text(rng, L, V), max_n, min_n, k) for L, V, max_n, min_n, k in
             ((10, 3, 3, 1, 4), (20, 3, 3, 1, 5), (20, 4, 3, 2, 3), (30, 2, 4, 2, 2), (15, 9, 3, 1, 4), (8, 2, 2, 2, 9),
              (40, 3, 4, 1, 3))]
    return [([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], 3, 1, 2), ([1, 2, 3], 3, 1, 4), ([6, 6], 5, 1, 3), *cases]


def _draft(tokens, max_n, min_n, k, which=-1, order=None, offset=0) -> list[int]:
    lengths = range(min(max_n, len(tokens) - 1), min_n - 1, -1)
    for n in order(lengths) if order else lengths:
        found = _matches(tokens, n)
        if found:
            start = found[which] + n + offset
            return tokens[max(start, 0) : start + k]
    return []


DRAFT = Question(
    "05.2", "find_draft", ("tokens", "max_n", "min_n", "num_tokens"), _lookups, right=_draft, like=[0],
    returns="the list of the drafted tokens", slips=(
        Slip("it tries short suffixes first; a longer one is rarer but more reliable, so the longest comes first.",
             lambda *case: _draft(*case, order=lambda lengths: list(lengths)[::-1])),
        Slip("of several matches it takes the first; the last one is asked for here.",
             lambda *case: _draft(*case, which=0)),
        Slip("the draft begins with the match itself; what follows the match is the draft.",
             lambda t, M, m, k: next((t[f[-1] : f[-1] + k] for n in range(min(M, len(t) - 1), m - 1, -1)
                                      if (f := _matches(t, n))), [])),
        Slip("the draft begins one token late.", lambda *case: _draft(*case, offset=1)),
        Slip("the draft begins one token early: with the last token of the match.",
             lambda *case: _draft(*case, offset=-1)),
        Slip("it never shortens the suffix: where max_n tokens have no match, try fewer, down to min_n.",
             lambda t, M, m, k: _draft(t, M, max(m, min(M, len(t) - 1)), k)),
        Slip("the suffix matches itself, which has no continuation, so there is never a draft.", lambda *case: []),
        Slip("min_n has no effect: a suffix shorter than that is not to be trusted.",
             lambda t, M, m, k: _draft(t, M, 1, k)),
        Slip("num_tokens has no effect: the draft is longer than that.", lambda t, M, m, k: _draft(t, M, m, len(t))),
))


def _drafts(rng: np.random.Generator) -> list[tuple]:
    cases = [([4, 5, 6], [4, 5, 6, 9]), ([4, 5, 6], [1, 5, 6, 9]), ([4, 5, 6], [4, 1, 6, 9]), ([], [3])]
    for length in (1, 2, 4, 6, 8):
        target = text(rng, length + 1, 3)
        draft = [t if rng.random() < 0.7 else (t + 1) % 3 for t in target[:-1]]
        cases.append((draft, target))
    return cases


def _count(draft: list[int], target: list[int]) -> int:
    k = 0
    while k < len(draft) and draft[k] == target[k]:
        k += 1
    return k


VERIFY = Question(
    "05.3", "greedy_verify", ("draft", "best"), _drafts, right=lambda d, b: d[: _count(d, b)] + [b[_count(d, b)]],
    like=[0], returns="the list of the tokens to emit", slips=(
        Slip("it emits the accepted drafts only: the target's own token at the next place has been computed as well, "
             "and comes for free.", lambda d, b: d[: _count(d, b)]),
        Slip("a whole draft accepted brings the bonus token too: γ + 1 tokens, not γ.",
             lambda d, b: d[: _count(d, b)] + ([b[_count(d, b)]] if _count(d, b) < len(d) else [])),
        Slip("it goes on behind the first token that is wrong; what the target says there follows a text that was not "
             "written.", lambda d, b: list(b)),
        Slip("it collects every place where the two agree; a step ends at the first place where they do not.",
             lambda d, b: [x for x, y in zip(d, b, strict=False) if x == y] + [b[-1]]),
        Slip("at the first disagreement it emits the draft's token; the target's is the right one.",
             lambda d, b: d[: _count(d, b) + 1] if _count(d, b) < len(d) else d + [b[-1]]),
        Slip("it emits the draft whatever the target says.", lambda d, b: d + [b[-1]]),
))


def _indexed(rng: np.random.Generator) -> list[tuple]:
    cases = [(text(rng, L, V), n) for L, V, n in ((8, 2, 1), (12, 3, 2), (20, 2, 3), (5, 9, 2))]
    return [([1, 2, 1, 2, 3], 2), ([1, 2], 2), ([4], 1), *cases]


def _index(tokens: list[int], n: int, shift: int = 0, first: bool = False, itself: bool = False) -> dict:
    found: dict = {}
    for follower in range(n, len(tokens) + itself):
        gram = tuple(tokens[follower - n : follower])
        if not (first and gram in found):
            found[gram] = follower + shift
    return found


INDEX = Question(
    "05.4", "index", ("tokens", "n"), _indexed, right=_index, like={(0,): 0},
    returns="a dict from n-grams (tuples) to places", slips=(
        Slip("the suffix is in the index, with a follower that is not there; stop one short of the end.",
             lambda t, n: _index(t, n, itself=True)),
        Slip("of several occurrences it keeps the first; a later one is to replace it.",
             lambda t, n: _index(t, n, first=True)),
        Slip("the values are where the n-grams begin; where the token behind them stands is asked for.",
             lambda t, n: _index(t, n, shift=-n)),
        Slip("the values are where the n-grams end; where the token behind them stands is asked for.",
             lambda t, n: _index(t, n, shift=-1)),
        Slip("the values are the tokens that follow; their places are asked for, or a draft could have one token only.",
             lambda t, n: {gram: t[place] for gram, place in _index(t, n).items()}),
))


def _rates(rng: np.random.Generator) -> list[tuple]:
    drawn = zip(*(rng.uniform(*bounds, 6).tolist() for bounds in ((0.1, 1), (0, 4), (1, 3))), strict=True)
    return [(0.4, 0.1, 1.3), (0.4, 2.0, 1.3), (0.0, 1.0, 2.0), (1.0, 0.5, 1.5), *drawn]


SPEED = Question(
    "05.5", "speedup", ("h", "a", "r"), _rates, right=lambda h, a, r: (1 + h * a) / (1 + h * (r - 1)),
    returns="a number", slips=(
        Slip("this lets every step take the time of a hit; a miss takes t(1) only.", lambda h, a, r: (1 + h * a) / r),
        Slip("this is τ, tokens per step; a step with a draft also takes longer.", lambda h, a, r: 1 + h * a),
        Slip("a hit emits the accepted tokens and the target's own: 1 + a, not a.",
             lambda h, a, r: (h * a + 1 - h) / (1 + h * (r - 1))),
        Slip("this is the speedup at a hit; in the other steps nothing is gained or lost.",
             lambda h, a, r: (1 + a) / r),
        Slip("this averages the speedup of steps; time adds up over steps, so divide all tokens by all time.",
             lambda h, a, r: h * (1 + a) / r + 1 - h),
        Slip("this is the inverse: time for a token, not tokens for a time.",
             lambda h, a, r: (1 + h * (r - 1)) / (1 + h * a)),
))


def _copies(rng: np.random.Generator) -> list[tuple]:
    cases = [(text(rng, L, 5), int(rng.integers(0, L)), k) for L, k in ((5, 3), (6, 8), (8, 12), (10, 2))]
    return [([1, 2, 3], 1, 5), ([9], 0, 4), ([1, 2, 3, 4], 0, 2), *cases]


def _overlap(tokens: list[int], start: int, k: int) -> list[int]:
    written = list(tokens)
    for i in range(k):
        written.append(written[start + i])
    return written[len(tokens) :]


COPY = Question(
    "05.6", "copy", ("tokens", "start", "num_tokens"), _copies, right=_overlap, like=[0],
    returns="the list of the drafted tokens, num_tokens of them", slips=(
        Slip("it stops at the end of the text; go on reading in the draft itself.", lambda t, s, k: t[s : s + k]),
        Slip("at the end of the text it goes on from the text's beginning, not from where the copy began.",
             lambda t, s, k: [(t[s:] + t * k)[i] for i in range(k)]),
        Slip("at the end of the text it repeats the last token.", lambda t, s, k: (t[s:] + [t[-1]] * k)[:k]),
        Slip("it returns the text together with the draft; the draft alone is asked for.",
             lambda t, s, k: t + _overlap(t, s, k)),
        Slip("it begins one token late.", lambda t, s, k: _overlap(t, s, k + 1)[1:]),
))

QUESTIONS = (MATCHES, DRAFT, VERIFY, INDEX, SPEED, COPY)
