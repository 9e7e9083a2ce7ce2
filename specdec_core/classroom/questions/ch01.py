"""Chapter 01: rejection sampling."""

from __future__ import annotations

import numpy as np

from ...core.rng import enumerate_law
from ..examiner import law_of
from ..question import Fail, Question, Slip
from ..reading import Exact, same


def laws(rng: np.random.Generator, V: int) -> np.ndarray:
    """(V,) a law with no entry near zero."""
    return rng.dirichlet(np.full(V, 2.0)) * 0.9 + 0.1 / V


def _pair(rng: np.random.Generator, V: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws, each with a token of its own that the other does not have."""
    p, q = laws(rng, V), laws(rng, V)
    p[0], q[1] = 0.0, 0.0
    return p / p.sum(), q / q.sum()


def _exact_residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    owed = np.array([max(a - b, 0.0) for a, b in zip(p, q, strict=True)])
    return owed / owed.sum() if owed.sum() > 0 else p


def _numbers(rng: np.random.Generator) -> list[tuple]:
    pairs = [(float(a), float(b)) for a, b in rng.uniform(0.05, 0.95, (8, 2))]
    return [(0.2, 0.8), (0.0, 0.5), (0.3, 0.3), (0.9, 0.3), *pairs]


ACCEPT = Question(
    "01.1", "accept", ("p_x", "q_x"), _numbers, right=lambda p, q: 1.0 if p >= q else p / q, returns="a probability",
    slips=(
        Slip("this is p(x)/q(x), which exceeds 1 where the target likes x better than the draft does; a "
             "probability stops at 1.", lambda p, q: p / q),
        Slip("the ratio is upside down: a token that the draft drew too often is kept in proportion p(x)/q(x).",
             lambda p, q: min(1.0, q / p) if p else 1.0),
        Slip("this is min(p(x), q(x)), the probability that x is drafted and accepted; that it is accepted once it "
             "has been drafted is asked for.", lambda p, q: min(p, q)),
        Slip("this is p(x), the rule for a draft that is one fixed token; x was drawn with probability q(x).",
             lambda p, q: p),
        Slip("a draft is kept or not by comparing with a uniform number; the probability of it is asked for.",
             lambda p, q: float(p >= q)),
))


def _law_pairs(rng: np.random.Generator) -> list[tuple]:
    equal = laws(rng, 4)
    return [*(_pair(rng, V) for V in (3, 4, 5, 8)), *((laws(rng, V), laws(rng, V)) for V in (2, 6)), (equal, equal)]


def _norm(x: np.ndarray) -> np.ndarray:
    return x / x.sum()


RESIDUAL = Question(
    "01.2", "residual", ("p", "q"), _law_pairs, right=_exact_residual, returns="a law over the vocabulary", slips=(
        Slip("this is p, but part of p has been paid out by the accepted drafts already; what is still owed is "
             "p − min(p, q).", lambda p, q: p),
        Slip("this is q's law; the correction comes from what p has too much.", lambda p, q: q),
        Slip("it does not sum to one: what is still owed must be divided by its sum.",
             lambda p, q: np.maximum(p - q, 0) if (p != q).any() else p),
        Slip("it does not sum to one: what is still owed must be divided by its sum.",
             lambda p, q: np.maximum(p - q, 0)),
        Slip("p and q have changed places: this is what the draft has too much.",
             lambda p, q: _norm(np.maximum(q - p, 0)) if (p != q).any() else p),
        Slip("p and q have changed places: this is what the draft has too much.",
             lambda p, q: _norm(np.maximum(q - p, 0))),
        Slip("where p equals q nothing is owed and the division is 0/0; nothing can be rejected there, so return p.",
             lambda p, q: _norm(np.maximum(p - q, 0))),
        Slip("where p equals q nothing is owed; nothing can be rejected there either, so return p, not zeros.",
             lambda p, q: _norm(np.maximum(p - q, 0)) if (p != q).any() else 0 * p),
        Slip("this takes |p − q|; a token that the draft has too much of is owed nothing, not the difference.",
             lambda p, q: _norm(abs(p - q)) if (p != q).any() else p),
        Slip("this takes |p − q|; a token that the draft has too much of is owed nothing, not the difference.",
             lambda p, q: _norm(abs(p - q))),
))


RATE = Question(
    "01.3", "acceptance_rate", ("p", "q"), _law_pairs,
    right=lambda p, q: float(sum(min(a, b) for a, b in zip(p, q, strict=True))), returns="a probability", slips=(
        Slip("this is Σ p·q, the chance that two independent draws agree; the accept rule keeps far more.",
             lambda p, q: float(p @ q)),
        Slip("this is the probability of a rejection, the total variation distance; one minus it is asked for.",
             lambda p, q: float(abs(p - q).sum() / 2)),
        Slip("this is 1 − Σ |p − q|; the total variation distance is half that sum.",
             lambda p, q: float(1 - abs(p - q).sum())),
        Slip("this adds min(1, p/q) over the vocabulary without asking how often each token is drafted.",
             lambda p, q: float(np.minimum(1, np.divide(p, q, out=np.ones_like(p), where=q > 0)).sum())),
        Slip("this averages min(1, p/q) over the vocabulary; tokens are drafted with probability q(x), not 1/V.",
             lambda p, q: float(np.minimum(1, np.divide(p, q, out=np.ones_like(p), where=q > 0)).mean())),
))


def _small_pairs(rng: np.random.Generator) -> list[tuple]:
    return [(laws(rng, 3), laws(rng, 3)), _pair(rng, 4), (laws(rng, 5), laws(rng, 5))]


def _round_law(p: np.ndarray, q: np.ndarray) -> Exact:
    both, rest = np.minimum(p, q), _exact_residual(p, q)
    law = {(x, True): float(both[x]) for x in range(len(p))}
    return Exact(law | {(x, False): float((1 - both.sum()) * rest[x]) for x in range(len(p))})


def _wrong_round(test, correction):
    def law(p, q):
        def run(rng):
            x = rng.pick(q)
            if test(rng, p, q, x):
                return x, True
            return rng.pick(correction(p, q)), False

        return Exact(enumerate_law(run))

    return law


def _tested(rng, p, q, x):
    return rng.uniform() < p[x] / q[x]


ROUND = Question(
    "01.4", "one_round", ("p", "q", "rng"), _small_pairs, right=_round_law, observe=law_of, like=(0, True),
    returns="the pair (token, accepted)", slips=(
        Slip("after a rejection it draws from p; what the accepted drafts have paid out is then paid twice. The "
             "correction comes from the residual.", _wrong_round(_tested, lambda p, q: p)),
        Slip("after a rejection it draws from q again; the correction comes from the residual.",
             _wrong_round(_tested, lambda p, q: q)),
        Slip("it keeps every draft, so what it emits follows q.", lambda p, q: Exact({(x, True): q[x] for x in
                                                                                     range(len(q))})),
        Slip("the token follows p, but no draft was tested: draw x from q first, and say True only where x is kept.",
             lambda p, q: Exact({(x, False): p[x] for x in range(len(p))})),
        Slip("it keeps a draft with probability p(x) instead of min(1, p(x)/q(x)).",
             _wrong_round(lambda rng, p, q, x: rng.uniform() < p[x], _exact_residual)),
        Slip("the test is upside down: it keeps with probability q(x)/p(x).",
             _wrong_round(lambda rng, p, q, x: p[x] == 0 or rng.uniform() < q[x] / p[x], _exact_residual)),
        Slip("True and False have changed places.",
             lambda p, q: Exact({(x, not kept): m for (x, kept), m in _round_law(p, q).items()})),
))


def _blocks(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for V, gamma in ((3, 2), (4, 1), (3, 3)):
        p = np.array([laws(rng, V) for _ in range(gamma + 1)])
        q = np.array([laws(rng, V) for _ in range(gamma)])
        cases.append((p, q, [int(rng.choice(V, p=row)) for row in q]))
    return [*cases, (np.array([laws(rng, 3)]), np.zeros((0, 3)), [])]


def _block_law(p, q, drafts, correction=_exact_residual, bonus=lambda p, q: p[-1], test=_tested, after=None):
    """The law of a block; ``after`` a rejection: nothing, "drafts" untested, a "bonus", or "both", with tests."""

    def run(rng):
        if after == "both":
            kept = [x if test(rng, p[i], q[i], x) else rng.pick(correction(p[i], q[i])) for i, x in enumerate(drafts)]
            return (*kept, rng.pick(p[-1]))
        for i, x in enumerate(drafts):
            if not test(rng, p[i], q[i], x):
                behind = drafts[i + 1 :] if after == "drafts" else (rng.pick(p[-1]),) if after == "bonus" else ()
                return (*drafts[:i], rng.pick(correction(p[i], q[i])), *behind)
        last = bonus(p, q)
        return tuple(drafts) if last is None else (*drafts, rng.pick(last))

    return Exact(enumerate_law(run))


def _reused(p, q, drafts):
    def run(rng):
        u = rng.uniform()
        for i, x in enumerate(drafts):
            if not u < p[i][x] / q[i][x]:
                return (*drafts[:i], rng.pick(_exact_residual(p[i], q[i])))
        return (*drafts, rng.pick(p[-1]))

    return Exact(enumerate_law(run))


BLOCK = Question(
    "01.5", "block", ("p", "q", "drafts", "rng"), _blocks, right=lambda p, q, drafts: _block_law(p, q, drafts),
    observe=law_of, like=[0], returns="the list of tokens to emit", slips=(
        Slip("where all drafts are accepted it stops; the forward has scored the place behind them too, and a bonus "
             "token comes from there.", lambda p, q, d: _block_law(p, q, d, bonus=lambda p, q: None)),
        Slip("this is q's law; the bonus token comes from p, from its last row.",
             lambda p, q, d: _block_law(p, q, d, bonus=lambda p, q: q[-1] if len(q) else p[-1])),
        Slip("the bonus token comes from the row behind the last draft, p[γ], not from the last draft's own row.",
             lambda p, q, d: _block_law(p, q, d, bonus=lambda p, q: p[len(q) - 1])),
        Slip("after a rejection it draws from p; the correction comes from the residual.",
             lambda p, q, d: _block_law(p, q, d, correction=lambda p, q: p)),
        Slip("it goes on behind a rejection; drafts there continue a text that was not written.",
             lambda p, q, d: _block_law(p, q, d, after="drafts")),
        Slip("it goes on behind a rejection: it tests the later drafts and adds a bonus. They continue a text that was "
             "not written; the correction is the last token, and the bonus is for drafts that were all accepted.",
             lambda p, q, d: _block_law(p, q, d, after="both")),
        Slip("it adds a bonus behind the correction; the bonus is for drafts that were all accepted, and its row "
             "continues the rejected one.", lambda p, q, d: _block_law(p, q, d, after="bonus")),
        Slip("one uniform number tests all drafts; each test needs a fresh one, or the tests are not independent.",
             _reused),
))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def _bug_cases(rng: np.random.Generator) -> list[tuple]:
    return [(rng.normal(scale=1.5, size=V), rng.normal(scale=1.5, size=V), T) for V, T in ((3, 0.5), (4, 2.0))]


def _decoder(draw, test_p, test_q):
    """A decoder by which laws it draws from, and which ones it tests and corrects with."""

    def law(p_logits, q_logits, T):
        def run(rng):
            x = rng.pick(_softmax(q_logits / (T if draw else 1)))
            p, q = _softmax(p_logits / (T if test_p else 1)), _softmax(q_logits / (T if test_q else 1))
            if rng.uniform() < p[x] / q[x]:
                return x
            return rng.pick(_exact_residual(p, q))

        return Exact(enumerate_law(run))

    return law


def _settled(ask, *case, like, read):
    """The law of an answer that is also given the rule of the chapter, working with the same random source."""

    def with_rule(*arguments):
        _, q_logits, T, rng = arguments
        drafted, settled = [_softmax(q_logits), _softmax(q_logits / T)], []

        def settle(x, p, q):
            x, p, q = read(x, 0), read(p, np.zeros(1)), read(q, np.zeros(1))
            if not any(same(q, law) for law in drafted):
                raise Fail("settle was given a q that is not the draft model's law, at this temperature or without it.")
            settled.append(x)
            return x if rng.uniform() < p[x] / q[x] else rng.pick(_exact_residual(p, q))

        token = ask(*arguments, settle)
        ran.append(bool(settled))
        return token

    ran: list[bool] = []
    law = law_of(with_rule, *case, like=like, read=read)
    if not all(ran) and same(law, DECODER.right(*case)):
        raise Fail("it follows the target's law without a draft: draft a token, and return what settle makes of it.")
    return law


DECODER = Question(
    "01.6", "decode", ("p_logits", "q_logits", "temperature", "rng", "settle"), _bug_cases,
    right=lambda p, q, T: Exact(dict(enumerate(_softmax(p / T)))), observe=_settled, like=0, returns="a token", slips=(
        Slip("the draft is drawn at the temperature but tested as if it had been drawn without: q must be the law "
             "that was drawn from.", _decoder(True, True, False)),
        Slip("p is used without the temperature: what is asked for is the target's law at that temperature.",
             _decoder(True, False, True)),
        Slip("now the draw is without the temperature, and the test with it: still two different q.",
             _decoder(False, True, True)),
        Slip("it emits the draft's law: no draft is ever rejected.",
             lambda p, q, T: Exact(dict(enumerate(_softmax(q / T))))),
))

QUESTIONS = (ACCEPT, RESIDUAL, RATE, ROUND, BLOCK, DECODER)
