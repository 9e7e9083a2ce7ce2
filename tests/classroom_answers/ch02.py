"""Chapter 02."""

BEST = """
def best_gamma(alpha, c, most):
    def speed(g):
        return sum(alpha**i for i in range(g + 1)) / {time}
    return {pick}({among}, key=speed)
"""


def best_gamma(time="(g * c + 1)", pick="max", among="range(most + 1)"):
    return BEST.format(time=time, pick=pick, among=among)


WRONG = {
    "02.1": [
        ("expected_tokens = lambda a, g: sum(a**i for i in range(1, g + 1))", "accepted tokens"),
        ("expected_tokens = lambda a, g: sum(a**i for i in range(g + 2))", "γ + 1 drafts"),
        ("expected_tokens = lambda a, g: (1 - a ** (g + 1)) / (1 - a)", "raised ZeroDivisionError"),
        ("expected_tokens = lambda a, g: float((1 - np.float64(a) ** (g + 1)) / (1 - np.float64(a)))",
         "divides by zero"),
        ("expected_tokens = lambda a, g: 1 + a * g", "all before it were accepted"),
        ("expected_tokens = lambda a, g: 1 + g * a**g", "shorter parts"),
    ],
    "02.2": [
        ("speedup = lambda a, g, c: sum(a**i for i in range(g + 1)) / (c + 1)", "γ times in a step"),
        ("speedup = lambda a, g, c: sum(a**i for i in range(g + 1)) / ((g + 1) * c + 1)", "not γ + 1 times"),
        ("speedup = lambda a, g, c: sum(a**i for i in range(1, g + 1)) / (g * c + 1)", "not all that a step writes"),
        ("speedup = lambda a, g, c: sum(a**i for i in range(g + 1))", "drafting takes time"),
        ("speedup = lambda a, g, c: (g * c + 1) / sum(a**i for i in range(g + 1))", "the inverse"),
    ],
    "02.3": [
        (best_gamma(among="range(1, most + 1)"), "γ = 0"),
        (best_gamma(time="1"), "always the largest"),
        (best_gamma(among="range(most)"), "`most` is a choice"),
        (best_gamma(time="(1 + c * (g > 0))"), "there are γ"),
        (best_gamma(pick="min"), "slowest"),
    ],
    "02.4": [
        ("alpha_by_depth = lambda k, g: [sum(x >= i for x in k) / len(k) for i in range(1, g + 1)]", "all steps"),
        ("alpha_by_depth = lambda k, g: [k.count(i) / len(k) for i in range(1, g + 1)]", "ended at that depth"),
        ("alpha_by_depth = lambda k, g: [sum(k) / (g * len(k))] * g", "one number for all depths"),
        ("def alpha_by_depth(k, g):\n    n = np.array([sum(x >= i for x in k) for i in range(g + 1)], float)\n"
         "    with np.errstate(all='ignore'):\n        return n[1:] / n[:-1]", "not 0/0"),
        ("alpha_by_depth = lambda k, g: [0.0] * (g + 1)", "expected shape"),
    ],
    "02.5": [
        ("draft_cache = lambda g, k: (max(0, g - 1 - k), 1)", "two to read"),
        ("draft_cache = lambda g, k: (g - k, 1)", "one drafted token less"),
        ("draft_cache = lambda g, k: (g - 1, k + 1)", "starts over"),
        ("draft_cache = lambda g, k: (0, 1 + (k == g))", "nothing is cut"),
        ("draft_cache = lambda g, k: g - k", "should return the pair"),
    ],
}  # fmt: skip

RIGHT = {
    "02.1": ["expected_tokens = lambda a, g: (np.float32(a) ** np.arange(g + 1)).sum()",
             "expected_tokens = lambda a, g: g + 1 if a == 1 else (1 - a ** (g + 1)) / (1 - a)"],
    "02.3": [best_gamma(among="range(most, -1, -1)")],
    "02.4": ["def alpha_by_depth(k, g):\n    n = (np.array(k)[:, None] >= np.arange(g + 1)).sum(0)\n"
             "    return np.divide(n[1:], n[:-1], out=np.zeros(g), where=n[:-1] > 0)"],
    "02.5": ["draft_cache = lambda g, k: [max(0, g - 1 - k), 1 + (k == g)]"],
}  # fmt: skip
