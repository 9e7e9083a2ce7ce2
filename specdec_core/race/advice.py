"""The answer of `recommend` in words, and as the cells of a table."""

from __future__ import annotations

import math

from .recommendation import Advice, Entry

ADVICE_COLUMNS = (
    "pass",
    "method",
    "speedup",
    "low-high",
    "decoding",
    "expected",
    "tokens/call",
    "hit rate",
    "accepted/hit",
    "identical",
)

LEGEND = (
    "speedup: tokens per second over those of autoregressive decoding, prefill included, with its smallest and "
    "largest over the repeats, or over the questions of a pass run once. decoding: without prefill. "
    "expected: the same as the hit-rate model predicts it from acceptance and t(q). A hit is a step that had a draft."
)


def paragraph(advice: Advice) -> str:
    """What to use, why, how sure, and when to stop."""
    best, gain = advice.best, advice.best.gain
    spread = f"{gain.low:.2f}-{gain.high:.2f} over {gain.count} {gain.over}"
    if gain.count == 1:
        spread = "measured once, so its spread is not known"
    measured = f"{gain.speedup:.2f} times the tokens per second of autoregressive decoding"
    measured += f" ({spread}; prefill included)"
    if best.method == advice.method:
        parts = [f"Use {best.method}. It gave {measured}, and {_decoding(best)}."]
    else:
        judgment = "not a gain beyond its spread" if gain.speedup > 1 else "no gain"
        parts = [
            f"Stay autoregressive. The fastest method, {best.method}, gave {measured}, which is {judgment}; "
            f"it gave {_decoding(best)}."
        ]
    parts.append(_hits(best))
    if len(best.by_task) > 1:
        ends = [pick(best.by_task.items(), key=lambda item: item[1].speedup) for pick in (min, max)]
        parts.append("By task it went from {0[1].speedup:.2f} ({0[0]}) to {1[1].speedup:.2f} ({1[0]}).".format(*ends))
    if best.prediction:
        parts.append(_switch_off(best, used=best.method == advice.method))
    if best.row.identical is False:
        parts.append(
            "Not all of its answers had the tokens of autoregressive decoding: rounding decides near ties. "
            "specdec race shows where, and --numerics invariant has none."
        )
    if advice.stopped:
        parts.append(f"This rests on less than was planned: {advice.stopped}.")
    return " ".join(parts)


def _decoding(entry: Entry) -> str:
    words = f"{entry.row.decode_speedup:.2f} in decoding alone"
    if entry.prediction:
        words += f", where its acceptance and t(q) predict {entry.prediction.speedup:.2f}"
    return words


def _hits(entry: Entry) -> str:
    steps = entry.steps
    if not steps.hits:
        return "It never had a draft."
    accepted = f"{steps.accepted_per_hit:.2f} tokens of a draft were accepted on average"
    return f"It had a draft in {steps.hit_rate:.0%} of its steps; {accepted}."


def _switch_off(entry: Entry, used: bool) -> str:
    """When a method stops paying; or, if it does not pay, when it would."""
    p, steps = entry.prediction, entry.steps
    accepted = f"{p.least_accepted:.2f} tokens of a draft are accepted on average"
    means = f"a mean acceptance length of {1 + p.least_accepted:.2f} in vLLM's count"
    if math.isfinite(p.least_alpha):
        means += f", {p.least_alpha:.0%} of the tokens tested if all depths were alike"
    rate = ""
    if steps.misses and 0 < p.least_hit_rate <= 1:
        rate = f"the hit rate {'falls below' if used else 'exceeds'} {p.least_hit_rate:.1%} or "
    if used and p.least_accepted < 0.005:
        return "A draft costs next to nothing here: keep it on."
    if not used and p.speedup > 1:
        return "By its acceptance and t(q) it should pay; to see whether it does, give more --minutes."
    if not used:
        return f"It would pay here if {rate}more than {accepted} ({means}; it was {steps.accepted_per_hit:.2f})."
    free = steps.misses and p.least_hit_rate == 0
    start = "A step without a draft costs it nothing, so its hit rate may be any. " if free else ""
    return f"{start}Switch it off when {rate}fewer than {accepted} ({means})."


def advice_rows(advice: Advice) -> list[list[str]]:
    """The table's cells, in the order of `ADVICE_COLUMNS`."""
    return [
        [
            str(entry.stage),
            entry.method,
            f"{entry.gain.speedup:.2f}",
            f"{entry.gain.low:.2f}-{entry.gain.high:.2f}" if entry.gain.count > 1 else "-",
            f"{entry.row.decode_speedup:.2f}",
            f"{entry.prediction.speedup:.2f}" if entry.prediction else "-",
            f"{entry.row.tokens_per_call:.2f}",
            f"{entry.steps.hit_rate:.0%}",
            f"{entry.steps.accepted_per_hit:.2f}",
            {True: "yes", False: "no", None: "- (sampled)"}[entry.row.identical],
        ]
        for entry in advice.entries
    ]


def ran(advice: Advice) -> str:
    """What was measured, and how long it took."""
    passes = "; ".join(f"pass {done.stage}: {done}" for done in advice.passes)
    return f"{passes}; {advice.seconds:.0f} s in all"
