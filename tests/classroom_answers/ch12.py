"""Chapter 12."""

RATE = "turn_rate = lambda g, d, w: np.mean(np.array(g) < w) / {per} * {size}"
SAME = "still_identical = lambda pairs, n: np.mean([{test} for a, b in pairs])"
KEYS = """
def keys(parents, row, context):
    path = [row]
    while parents[path[-1]] != -1:
        path.append(parents[path[-1]])
    return {end}
"""

WRONG = {
    "12.1": [
        ("spacing = lambda x, bits: 2.0 ** (np.floor(np.log2(x)) - bits)", "leading one counts"),
        ("spacing = lambda x, bits: 2.0 ** (1 - bits)", "just above 1"),
        ("spacing = lambda x, bits: x * 2.0 ** (1 - bits)", "does not grow with x in between"),
        ("spacing = lambda x, bits: 2.0 ** (round(np.log2(x)) - bits + 1)", "not the nearest one"),
        ("spacing = lambda x, bits: 2.0 ** (np.ceil(np.log2(x)) - bits + 1)", "not the one above"),
        ("spacing = lambda x, bits: 2 ** np.floor(np.log2(x))", "the power of two itself"),
    ],
    "12.2": [
        (RATE.format(per="w", size="np.abs(d).mean()"), "half of them do"),
        (RATE.format(per="w", size="np.mean(d) / 2"), "their size is asked for"),
        (RATE.format(per="1", size="np.abs(d).mean() / 2"), "over `within`"),
        ("turn_rate = lambda g, d, w: sum(x < w for x in g) / w * np.abs(d).mean() / 2", "per token"),
        (RATE.format(per="w", size="1"), "matters as much"),
        ("turn_rate = lambda g, d, w: np.mean(np.array(g) < np.abs(d).mean()) / 2", "very few gaps"),
    ],
    "12.3": [
        (SAME.format(test="all(x == y for x, y in zip(a[:n], b[:n]))"), "where the other goes on"),
        (SAME.format(test="a[n - 1 : n] == b[n - 1 : n]"), "token n alone"),
        (SAME.format(test="a == b"), "whole answers"),
        ("still_identical = lambda pairs, n: sum(x == y for a, b in pairs for x, y in zip(a[:n], b[:n])) / "
         "sum(max(len(a[:n]), len(b[:n])) for a, b in pairs)", "share of the *tokens*"),
        (SAME.format(test="a[:n] != b[:n]"), "has parted"),
        (SAME.format(test="a[:n] == b[:n] and len(a) >= n"), "both answers may have ended"),
        (SAME.format(test="a[n - 1] == b[n - 1]"), "raised IndexError"),
    ],
    "12.4": [
        (KEYS.format(end="[*range(context), *(context + r for r in path)]"), "from the root down"),
        (KEYS.format(end="[*range(context), *(context + r for r in path[:0:-1])]"), "sees itself"),
        (KEYS.format(end="[*range(context), *(context + r for r in path[-2::-1])]"), "root of the tree is missing"),
        ("keys = lambda parents, row, context: list(range(context + row + 1))", "siblings"),
        (KEYS.format(end="[*range(context), *path[::-1]]"), "stand behind the context"),
        (KEYS.format(end="[context + r for r in path[::-1]]"), "committed context is missing"),
    ],
}  # fmt: skip

RIGHT = {
    "12.1": ["import math\n\ndef spacing(x, bits):\n    return 2.0 ** (math.frexp(x)[1] - bits)"],
    "12.2": [RATE.format(per="w", size="np.abs(d).mean() / 2")],
    "12.3": [SAME.format(test="a[:n] == b[:n]")],
    "12.4": [KEYS.format(end="np.array([*range(context), *(context + r for r in path[::-1])])")],
}
