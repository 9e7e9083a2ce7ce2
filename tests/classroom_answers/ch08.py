"""Chapter 08."""

LENGTH = """
def match_length(corpus, context, max_n, min_n):
    for n in {order}:
        piece = {piece}
        if any(corpus[i:i + len(piece)] == piece for i in range(len(corpus))):
            return n
    return 0
"""
DOWN = "range(min(max_n, len(context)), min_n - 1, -1)"
LAST = "context[len(context) - n:]"

FIND = """
def find(tokens, order, pattern):
    hits = [k for k, i in enumerate(order) if tokens[i:i + len(pattern)] == pattern]
    return {end}
"""

HEAVY = """
def heaviest(texts, c):
    count = {{}}
    for text in texts:
        for d in {ends}:
            count[tuple(text[:d])] = count.get(tuple(text[:d]), 0) + 1
    return [(p, count[p]) for p in sorted(count, key=lambda p: {key})]{cut}
"""
ALL = "range(1, len(text) + 1)"

TREE = """
def tree_mask(parents):
    mask = np.zeros((len(parents), len(parents)), {dtype})
    for i in range(len(parents)):
        at = i
        while at >= 0:
            mask[{where}] = 1
            at = {up}
    return mask
"""

WRONG = {
    "08.1": [
        ("suffix_array = lambda t: sorted(range(len(t)), key=lambda i: t[i])", "first token only"),
        ("suffix_array = lambda t: sorted(range(len(t)), key=lambda i: t[i:], reverse=True)", "other way round"),
        ("suffix_array = lambda t: np.argsort(sorted(range(len(t)), key=lambda i: t[i:]))", "ranks of the suffixes"),
        ("suffix_array = sorted", "places are asked for, not tokens"),
        ("suffix_array = lambda t: range(len(t))", "object of type range"),
        ("suffix_array = lambda t: t.sort() or t", "changes its argument tokens"),
    ],
    "08.2": [
        (FIND.format(end="(hits[0], hits[-1]) if hits else (0, 0)"), "here it stands on it"),
        (FIND.format(end="(min(order[k] for k in hits), max(order[k] for k in hits) + 1) if hits else (0, 0)"),
         "places in the text"),
        (FIND.format(end="(hits[0], hits[0] + 1) if hits else (0, 0)"), "one match only"),
        (FIND.format(end="(hits[0], hits[-1] + 1) if hits else (sum(tokens[i:] < pattern for i in order),) * 2"),
         "return (0, 0)"),
        (FIND.format(end="hits"), "should return the pair (lo, hi)"),
        (FIND.format(end="(hits[0], hits[-1] + 1)"), "raised IndexError"),
    ],
    "08.3": [
        (LENGTH.format(order=DOWN, piece="context[max(0, len(context) - max_n):][:n]"), "drops the newest token"),
        (LENGTH.format(order=DOWN, piece="context[:n]"), "beginning of the context"),
        (LENGTH.format(order="range(min_n, max_n + 1)", piece=LAST), "begins with the shortest"),
        (LENGTH.format(order="range(min(max_n, len(context)), 0, -1)", piece=LAST), "min_n has no effect"),
        (LENGTH.format(order="range(len(context), min_n - 1, -1)", piece=LAST), "max_n has no effect"),
    ],
    "08.4": [
        (HEAVY.format(ends="[len(text)]", key="(-count[p], len(p), p)", cut="[:c]"), "whole continuations only"),
        (HEAVY.format(ends=ALL, key="(len(p), -count[p], p)", cut="[:c]"), "shallow nodes first"),
        (HEAVY.format(ends=ALL, key="(-count[p], -len(p), p)", cut="[:c]"), "before its parent"),
        (HEAVY.format(ends=ALL, key="(count[p], len(p), p)", cut="[:c]"), "lightest first"),
        (HEAVY.format(ends=ALL, key="(-count[p], len(p), p)", cut=""), "c has no effect"),
    ],
    "08.5": [
        ("tree_mask = lambda parents: np.tri(len(parents), dtype=bool)", "plain causal attention"),
        (TREE.format(dtype="bool", where="i, at", up="parents[at] if at == i else -1"), "not its parent alone"),
        (TREE.format(dtype="bool", where="at, i", up="parents[at]"), "changed places"),
        (TREE.format(dtype="bool", where="i, parents[i]", up="-1"), "[0, 0] is False; expected True"),
        ("tree_mask = lambda parents: np.eye(len(parents), dtype=bool)", "sees itself alone"),
    ],
}  # fmt: skip

RIGHT = {
    "08.1": ["def suffix_array(t):\n"
             "    return np.array(sorted((tuple(t[i:]), i) for i in range(len(t))), object)[:, 1]"],
    "08.2": [FIND.format(end="np.array([hits[0], hits[-1] + 1] if hits else [0, 0])")],
    "08.3": [LENGTH.format(order=DOWN, piece=LAST)],
    "08.4": [HEAVY.format(ends=ALL, key="(-count[p], len(p), p)", cut="[:c]")],
    "08.5": [TREE.format(dtype="np.int8", where="i, at", up="parents[at]")],
}  # fmt: skip
