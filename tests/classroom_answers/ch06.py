"""Chapter 06."""

SOLVE = """
def solve(context, guess, best):
    rounds = 0
    while True:
        after = [best(context + guess[:i]) for i in range(len(guess))]
        {count}
        if after == guess:
            return {end}
        guess = after
        rounds += 1
"""

WRONG = {
    "06.1": [
        ("def jacobi_round(c, g, best):\n    out = []\n    for _ in g:\n        out.append(best(c + out))\n"
         "    return out",
         "Gauss–Seidel"),
        ("jacobi_round = lambda c, g, best: [best(c + g[:i + 1]) for i in range(len(g))]", "its own old token"),
        ("jacobi_round = lambda c, g, best: [best(c)] * len(g)", "the guess is not used"),
        ("jacobi_round = lambda c, g, best: [best(c + g[:i]) for i in range(len(g) + 1)]", "one token too long"),
        ("jacobi_round = lambda c, g, best: g", "argument guess"),
        ("jacobi_round = lambda c, g, best: [best(x) for x in g]", "best takes a list of tokens"),
        ("jacobi_round = lambda c, g, best: [best([])]", "expected at least one token"),
        ("jacobi_round = lambda c, g, best: best(c, g)", "calls a function that it was given"),
    ],
    "06.2": [
        ("settled = lambda a, b: next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))",
         "one more is known"),
        ("settled = lambda a, b: next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a)) + 1",
         "only m tokens"),
        ("settled = lambda a, b: sum(x == y for x, y in zip(a, b))", "at every place"),
        ("settled = lambda a, b: 0", "nothing but zeros"),
        ("settled = lambda a, b: b", "got a list"),
    ],
    "06.3": [
        (SOLVE.format(count="rounds += 0", end="guess, rounds + 1"), "only confirms"),
        (SOLVE.format(count="pass", end="guess, len(guess)"), "the most that can be needed"),
        (SOLVE.format(count="return after, 1", end="guess, rounds"), "after one round"),
        ("solve = lambda c, g, best: (g, 0)", "no round at all"),
        (SOLVE.format(count="pass", end="guess"), "should return the pair (tokens, rounds)"),
    ],
    "06.4": [
        ("pairs = lambda last, old, new: list(zip([last] + new, new))", "neighbours of one round"),
        ("pairs = lambda last, old, new: list(zip(old, new))", "same place"),
        ("pairs = lambda last, old, new: list(zip(old, new[1:]))", "the first pair is missing"),
        ("pairs = lambda last, old, new: list(zip([last] + new, old))", "changed places"),
        ("pairs = lambda last, old, new: zip([last] + old, new)", "object of type zip"),
    ],
}  # fmt: skip

RIGHT = {
    "06.1": ["import torch\n"
             "jacobi_round = lambda c, g, best: torch.tensor([best(tuple(c + g[:i])) for i in range(len(g))])"],
    "06.2": ["settled = lambda a, b: min(int(np.cumprod(np.array(a) == np.array(b)).sum()) + 1, len(b))"],
    "06.3": [
        SOLVE.format(count="pass", end="[guess, rounds]"),
        "def solve(c, g, best):\n    y = []\n    for _ in g:\n        y.append(best(c + y))\n    t, z = 0, g\n"
        "    while z != y:\n        z, t = [best(np.array(c + z[:i])) for i in range(len(z))], t + 1\n"
        "    return np.array(y), t",
    ],
    "06.4": ["pairs = lambda last, old, new: np.stack([[last, *old[:-1]], new], axis=1)"],
}  # fmt: skip
