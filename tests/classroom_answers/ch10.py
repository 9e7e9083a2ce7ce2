"""Chapter 10."""

RATES = """
def rates(drafted, accepted):
    hits = sum(d > 0 for d in drafted)
    return {end}
"""

LIMIT = """
def limit(drafted, accepted, times):
    d, a, t = map(np.array, (drafted, accepted, times))
    hit = d > 0
    speeds = {{"memory": {memory}, "agreement": {agreement}, "forward": {forward}}}
    return {pick}(speeds, key=speeds.get)
"""


def limit(memory="(1 + a[hit]).sum() / t[hit].sum()", agreement="(1 + d).sum() / t.sum()", forward="(1 + a).mean()",
          pick="max"):  # fmt: skip
    return LIMIT.format(memory=memory, agreement=agreement, forward=forward, pick=pick)


WRONG = {
    "10.1": [
        (RATES.format(end="hits / len(drafted), sum(a > 0 for a in accepted) / len(accepted)"), "product of the two"),
        (RATES.format(end="hits / len(drafted), sum(accepted) / max(1, sum(drafted))"), "mixes all depths"),
        (RATES.format(end="hits / len(drafted), sum(accepted) / max(1, hits)"), "how many tokens a hit brings"),
        (RATES.format(end="sum(a > 0 for a in accepted) / max(1, hits), hits / len(drafted)"), "changed places"),
        (RATES.format(end="hits / len(drafted), sum(a > 0 for a in accepted) / hits"), "raised ZeroDivisionError"),
        (RATES.format(end="hits / len(drafted)"), "should return the pair"),
    ],
    "10.2": [
        ("tokens_per_step = lambda c, r: 1 + np.cumprod([c * x for x in r]).sum()", "coverage enters once"),
        ("tokens_per_step = lambda c, r: c * np.cumprod(r).sum()", "own token is missing"),
        ("tokens_per_step = lambda c, r: 1 + c * sum(r)", "multiply the regularities"),
        ("tokens_per_step = lambda c, r: 1 + np.cumprod(r).sum()", "not every step has one"),
        ("tokens_per_step = lambda c, r: c * (1 + np.cumprod(r).sum())", "multiplies the target's own token"),
        ("tokens_per_step = lambda c, r: c", "argument coverage"),
    ],
    "10.3": [
        ("break_even = lambda a, r, s: s / (a - (r - 1)) if s else (0.0 if a >= r - 1 else np.inf)", "can never pay"),
        ("break_even = lambda a, r, s: s / a", "has to be earned first"),
        ("break_even = lambda a, r, s: 0.0 if a >= r - 1 + s else float('inf')", "paid in every step"),
        ("break_even = lambda a, r, s: 0.0", "nothing but zeros"),
        ("break_even = lambda a, r, s: min(1.0, s / (a - r + 1)) if a > r - 1 else (1.0 if s or a < r - 1 else 0.0)",
         "can never pay"),
        ("break_even = lambda a, r, s: (s / (a - r) if a > r else np.inf) if s and a > r - 1 else "
         "(0.0 if not s and a >= r - 1 else np.inf)", "not r"),
    ],
    "10.4": [
        ("limit = lambda d, a, t: 'memory'", "it always says 'memory'"),
        ("limit = lambda d, a, t: 'agreement'", "it always says 'agreement'"),
        (limit(pick="min"), "bring least"),
        (limit("(d > 0).mean()", "a.sum() / d.sum()", "len(t) / t.sum()", "min"), "smallest of the three shares"),
        (limit("(1 + a[hit]).mean()", "(1 + d).mean()", "0"), "divide by time"),
        ("limit = lambda d, a, t: 3", "got 3"),
    ],
}  # fmt: skip

RIGHT = {
    "10.1": [RATES.format(end="np.float32(hits / len(drafted)), "
                          "np.float64(sum(a > 0 for a in accepted) / max(1, hits))")],
    "10.2": ["tokens_per_step = lambda c, r: 1 + c * np.cumprod(r).sum()"],
    "10.3": ["def break_even(a, r, s):\n    if s == 0 and a >= r - 1:\n        return 0\n"
             "    return s / (a - r + 1) if a > r - 1 else np.inf"],
    "10.4": [limit(),
             limit().replace("return max(speeds, key=speeds.get)", "return max(speeds, key=speeds.get).upper()")],
}  # fmt: skip
