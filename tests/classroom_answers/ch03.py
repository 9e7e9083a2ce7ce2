"""Chapter 03."""

PATHS = """
from itertools import product
def best_paths(accuracy, nodes):
    heads, ranks = accuracy.shape
    paths = [p for d in range(1, heads + 1) for p in product(range(ranks), repeat=d)]
    return sorted(paths, key=lambda p: {key})[:nodes]
"""

WALK = """
def walk(tokens, parents, best):
    out, at = [], 0
    while True:
        {emit}
        fits = [i for i in range(1, len(tokens)) if parents[i] == at{test}]
        if not fits{stop}:
            return out{end}
        at = fits[0]
"""


def walk(emit="out.append(best[at])", test=" and tokens[i] == best[at]", stop="", end=""):
    return WALK.format(emit=emit, test=test, stop=stop, end=end)


TYPICAL = """
def typical(p, epsilon, delta):
    entropy = -sum(x * np.log(x) for x in p if {positive})
    return {end}
"""


def typical(end="p > min(epsilon, delta * np.exp(-entropy))", positive="x > 0"):
    return TYPICAL.format(end=end, positive=positive)


WRONG = {
    "03.1": [
        ("expected_tokens = lambda parents, shares: sum(shares)", "multiply the shares"),
        ("def expected_tokens(parents, shares):\n    r = list(shares)\n    for i in range(1, len(r)):\n"
         "        r[i] *= r[parents[i]]\n    return sum(r[1:])", "the root's 1"),
        ("def expected_tokens(parents, shares):\n    r, s = [1], [1]\n    for i in range(1, len(parents)):\n"
         "        r.append(r[parents[i]] * shares[i])\n        s.append(s[parents[i]] + r[i])\n    return max(s)",
         "best path alone"),
        ("expected_tokens = lambda parents, shares: len(parents)", "number of rows"),
        ("expected_tokens = lambda parents, shares: shares", "got a list"),
    ],
    "03.2": [
        (PATHS.format(key="(len(p), -np.prod([accuracy[i, r] for i, r in enumerate(p)]))"), "level by level"),
        (PATHS.format(key="-accuracy[len(p) - 1, p[-1]]"), "of its own head alone"),
        (PATHS.format(key="-sum(accuracy[i, r] for i, r in enumerate(p))"), "not their sum"),
        (PATHS.format(key="np.prod([accuracy[i, r] for i, r in enumerate(p)])"), "least likely"),
        ("best_paths = lambda t, n: [[0] * d for d in range(1, min(n, len(t)) + 1)]", "this is one path"),
    ],
    "03.3": [
        (walk(test="", stop=" or tokens[fits[0]] != best[at]"), "the first child only"),
        (walk(end="[:-1]"), "own token is missing"),
        (walk(stop=" or True"), "after one level"),
        (walk(test=" or i == at + 1 and tokens[i] == best[at]"), "walk"),
        ("walk = lambda tokens, parents, best: None if len(tokens) > 3 else best[:1]", "returned None"),
    ],
    "03.4": [
        (typical("p > max(epsilon, delta * np.exp(-entropy))"), "the smaller one counts"),
        (typical("p > min(epsilon, delta * np.exp(entropy))"), "with the right sign"),
        (typical("p > epsilon"), "the fixed threshold"),
        (typical("p > delta * np.exp(-entropy)"), "ε is not used"),
        (typical(positive="True"), "0 · log 0"),
        (typical("p <= min(epsilon, delta * np.exp(-entropy))"), "what is rejected"),
    ],
}  # fmt: skip

RIGHT = {
    "03.1": ["def expected_tokens(parents, shares):\n    def reach(i):\n"
             "        return 1 if i == 0 else shares[i] * reach(parents[i])\n"
             "    return np.sum([reach(i) for i in range(len(parents))])"],
    "03.2": [PATHS.format(key="-np.prod([accuracy[i, r] for i, r in enumerate(p)])")],
    "03.3": [walk()],
    "03.4": [typical(), typical().replace("return ", "return list(").replace("entropy))", "entropy)))")],
}  # fmt: skip
