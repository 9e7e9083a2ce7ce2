"""Chapter 04."""

RERANK = """
def rerank(parents, confidence, keep):
    value = [1.0]
    for i in range(1, len(parents)):
        value.append(value[parents[i]] * confidence[i])
    return {end}
"""

LAYER = """
def next_layer(layer, head, k):
    out = []
    for path, value in layer:
        out += sorted([((*path, t), {value}) for t, p in head(path).items()], key=lambda c: -c[1]){each}
    return sorted(out, key=lambda c: -c[1]){cut}
"""


def next_layer(value="value * p", each="", cut="[:k]"):
    return LAYER.format(value=value, each=each, cut=cut)


WRONG = {
    "04.1": [
        ("examples = lambda f, t: list(zip(f, t, f[1:]))", "was *drawn*"),
        ("examples = lambda f, t: list(zip(f[:-1], t[1:], f[:-1]))", "already given"),
        ("examples = lambda f, t: list(zip(f[1:], t[1:], f[1:]))", "one place too far"),
        ("examples = lambda f, t: list(zip(f, t[2:], f[1:]))", "two places further"),
        ("examples = lambda f, t: list(zip(f, t[1:]))", "got 2 things, expected 3"),
    ],
    "04.2": [
        ("rerank = lambda parents, c, keep: sorted(sorted(range(1, len(c)), key=lambda i: -c[i])[:keep])",
         "parents are gone"),
        (RERANK.format(end="sorted(sorted(range(len(value)), key=lambda i: -value[i])[:keep])"),
         "the root is always there"),
        ("rerank = lambda parents, c, keep: list(range(1, len(c)))[:keep]", "keeps the first rows"),
        (RERANK.format(end="sorted(sorted(range(1, len(value)), key=lambda i: value[i])[:keep])"), "worth least"),
        (RERANK.format(end="sorted(range(1, len(value)), key=lambda i: -value[i])[:keep]"),
         "rising order is asked for"),
    ],
    "04.3": [
        (next_layer(each="[:k]", cut=""), "k best of each node"),
        (next_layer(value="p"), "that probability alone"),
        (next_layer(each="[:1]"), "one child of each node"),
        ("next_layer = lambda layer, head, k: layer", "layer that was given"),
        ("next_layer = lambda layer, head, k: [head(path) for path, _ in layer]", "next_layer should return"),
    ],
}  # fmt: skip

RIGHT = {
    "04.1": ["examples = lambda f, t: [[np.float32(f[i]), t[i + 1], np.float32(f[i + 1])] for i in range(len(t) - 1)]"],
    "04.2": [RERANK.format(end="np.sort(np.argsort(-np.array(value[1:]))[:keep] + 1)")],
    "04.3": [next_layer(), next_layer(each="[:k]")],
}  # fmt: skip
