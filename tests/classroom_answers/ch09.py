"""Chapter 09."""

FOLLOWERS = """
def followers(tokens, string):
    found, n = {{}}, len(string)
    for i in range({until}):
        if tokens[i:i + n] == string:
            {what}
    return found
"""
COUNT = "found[tokens[i + n]] = found.get(tokens[i + n], 0) + 1"

GROW = """
def grow(followers, nodes, min_prob):
    draft, waiting = [], [(1.0, ())]
    while waiting and len(draft) < nodes + 1:
        {take}
        draft.append((path, p))
        found = followers(path)
        for token, count in found.items():
            share = {share}
            if share >= {least}:
                waiting.append((share, path + (token,)))
    return draft[1:]
"""
BEST = "p, path = waiting.pop(waiting.index(max(waiting)))"
SHARE = "p * count / sum(found.values())"

BOUNDED = """
def bounded(past, answer, max_requests, max_tokens):
    kept = {start}
    while kept and ({requests} or {tokens}):
        kept.pop({which})
    return kept{end}
"""


def bounded(start="past + [answer]", requests="len(kept) > max_requests", tokens="sum(map(len, kept)) > max_tokens",
            which="0", end=""):  # fmt: skip
    return BOUNDED.format(start=start, requests=requests, tokens=tokens, which=which, end=end)


WRONG = {
    "09.1": [
        (FOLLOWERS.format(until="len(tokens) - n", what="found[tokens[i + n]] = 1"), "each of them once only"),
        (FOLLOWERS.format(until="len(tokens) - n + 1", what=COUNT), "raised IndexError"),
        ("def followers(tokens, string):\n    return {x: tokens.count(x) for x in tokens}", "all tokens of the text"),
        (FOLLOWERS.format(until="len(tokens) - n", what=COUNT).replace("== string", "== string and tokens[i + n]"),
         "gave"),
        (FOLLOWERS.format(until="len(tokens) - n", what=COUNT).replace("string:", "string:", 1)
         .replace("n = {}, len(string)", "n = {}, 1").replace("== string", "== string[-1:]"), "last token alone"),
        ("followers = lambda tokens, string: [1]", "got a list of 1"),
    ],
    "09.2": [
        ("import math\nallowed = lambda n, f, o, m: max(0, min(m, math.ceil(f * n + o)))", "no node"),
        ("allowed = lambda n, f, o, m: max(0, min(m, round(f * n + o)))", "no node"),
        ("allowed = lambda n, f, o, m: min(m, int(f * n + o))", "less than no nodes"),
        ("allowed = lambda n, f, o, m: max(0, int(f * n + o))", "never stops growing"),
        ("allowed = lambda n, f, o, m: max(0, min(m, f * n + o))", "not a whole number"),
        ("allowed = lambda n, f, o, m: m", "length has no effect"),
    ],
    "09.3": [
        (GROW.format(take=BEST, share="count / sum(found.values())", least="min_prob"), "product of the shares"),
        (GROW.format(take="p, path = max(waiting); waiting.clear()", share=SHARE, least="min_prob"),
         "likeliest token only"),
        (GROW.format(take="p, path = min(waiting, key=lambda w: (len(w[1]), -w[0])); waiting.remove((p, path))",
                     share=SHARE, least="min_prob"), "level by level"),
        (GROW.format(take=BEST, share=SHARE, least="0"), "min_prob has no effect"),
        (GROW.format(take="p, path = waiting.pop(waiting.index(min(waiting)))", share=SHARE, least="min_prob"),
         "least likely"),
        ("grow = lambda followers, nodes, min_prob: followers(7)", "a tuple of tokens"),
    ],
    "09.4": [
        (bounded(which="-1"), "the oldest answers go first"),
        (bounded(tokens="False"), "max_tokens has no effect"),
        (bounded(requests="False"), "max_requests has no effect"),
        ("bounded = lambda past, answer, r, t: past + [answer]", "nothing is ever forgotten"),
        (bounded(start="[*past]"), "the new answer is not remembered"),
        ("def bounded(past, answer, r, t):\n    past.append(answer)\n    return past", "changes its argument past"),
    ],
}  # fmt: skip

RIGHT = {
    "09.1": [FOLLOWERS.format(until="len(tokens) - n", what=COUNT),
             "from collections import Counter\ndef followers(tokens, string):\n    n = len(string)\n"
             "    return Counter(b for i, b in enumerate(tokens) if i >= n and tokens[i - n:i] == string)"],
    "09.2": ["allowed = lambda n, f, o, m: np.clip(np.floor(f * n + o), 0, m)"],
    "09.3": [GROW.format(take=BEST, share=SHARE, least="min_prob"),
             "import heapq\ndef grow(followers, nodes, min_prob):\n    heap, out = [(-1.0, ())], []\n"
             "    while heap and len(out) <= nodes:\n        p, path = heapq.heappop(heap)\n"
             "        out.append([list(path), -p])\n"
             "        below = followers(list(path))\n        for token in below:\n"
             "            q = p * below[token] / sum(below.values())\n"
             "            if -q >= min_prob:\n                heapq.heappush(heap, (q, path + (token,)))\n"
             "    return out[1:]"],
    "09.4": [bounded()],
}  # fmt: skip
