"""Chapter 05."""

WRONG = {
    "05.1": [
        ("matches = lambda t, n: [i for i in range(len(t) - n + 1) if t[i:i + n] == t[len(t) - n:]]", "suffix itself"),
        ("matches = lambda t, n: [i for i in range(len(t) - 2 * n + 1) if t[i:i + n] == t[len(t) - n:]]", "overlap"),
        ("matches = lambda t, n: [i + n for i in range(len(t) - n) if t[i:i + n] == t[len(t) - n:]]", "behind the m"),
        ("matches = lambda t, n: [i for i in range(len(t) - n) if t[i:i + n] == t[len(t) - n:]][:1]", "the first m"),
        ("matches = lambda t, n: [i for i in range(len(t) - n) if t[i:i + n] == t[len(t) - n:]][-1:]", "the last m"),
        ("matches = lambda t, n: {0, 1}", "got a set of 2"),
    ],
    "05.2": [
        ("def find_draft(t, max_n, min_n, k):\n    for n in range(min_n, min(max_n, len(t) - 1) + 1):\n"
         "        for i in range(len(t) - n - 1, -1, -1):\n            if t[i:i + n] == t[len(t) - n:]:\n"
         "                return t[i + n:i + n + k]\n    return []", "short suffixes first"),
        ("def find_draft(t, max_n, min_n, k):\n    for n in range(min(max_n, len(t) - 1), min_n - 1, -1):\n"
         "        for i in range(len(t) - n):\n            if t[i:i + n] == t[len(t) - n:]:\n"
         "                return t[i + n:i + n + k]\n    return []", "takes the first"),
        ("def find_draft(t, max_n, min_n, k):\n    for n in range(min(max_n, len(t) - 1), min_n - 1, -1):\n"
         "        for i in range(len(t) - n - 1, -1, -1):\n            if t[i:i + n] == t[len(t) - n:]:\n"
         "                return t[i:i + k]\n    return []", "begins with the match itself"),
        ("def find_draft(t, max_n, min_n, k):\n    for n in range(min(max_n, len(t)), min_n - 1, -1):\n"
         "        for i in range(len(t) - n, -1, -1):\n            if t[i:i + n] == t[len(t) - n:]:\n"
         "                return t[i + n:i + n + k]\n    return []", "suffix matches itself"),
        ("def find_draft(t, max_n, min_n, k):\n    for n in range(min(max_n, len(t) - 1), 0, -1):\n"
         "        for i in range(len(t) - n - 1, -1, -1):\n            if t[i:i + n] == t[len(t) - n:]:\n"
         "                return t[i + n:i + n + k]\n    return []", "min_n has no effect"),
    ],
    "05.3": [
        ("def greedy_verify(draft, best):\n    out = []\n    for d, b in zip(draft, best):\n        if d != b:\n"
         "            break\n        out.append(d)\n    return out", "comes for free"),
        ("def greedy_verify(draft, best):\n    out = []\n    for d, b in zip(draft, best):\n        out.append(b)\n"
         "        if d != b:\n            break\n    return out", "bonus token too"),
        ("greedy_verify = lambda draft, best: best", "goes on behind"),
        ("greedy_verify = lambda draft, best: [d for d, b in zip(draft, best) if d == b] + best[-1:]", "every place"),
        ("greedy_verify = lambda draft, best: draft + best[-1:]", "whatever the target says"),
    ],
    "05.4": [
        ("index = lambda t, n: {tuple(t[f - n:f]): f for f in range(n, len(t) + 1)}", "suffix is in the index"),
        ("def index(t, n):\n    d = {}\n    for f in range(n, len(t)):\n        d.setdefault(tuple(t[f - n:f]), f)\n"
         "    return d", "keeps the first"),
        ("index = lambda t, n: {tuple(t[f - n:f]): f - n for f in range(n, len(t))}", "where the n-grams begin"),
        ("index = lambda t, n: {tuple(t[f - n:f]): t[f] for f in range(n, len(t))}", "tokens that follow"),
        ("index = lambda t, n: {}", "gave {}"),
    ],
    "05.5": [
        ("speedup = lambda h, a, r: (1 + h * a) / r", "every step take the time of a hit"),
        ("speedup = lambda h, a, r: 1 + h * a", "this is τ"),
        ("speedup = lambda h, a, r: (h * a + 1 - h) / (1 + h * (r - 1))", "1 + a, not a"),
        ("speedup = lambda h, a, r: (1 + a) / r", "speedup at a hit"),
        ("speedup = lambda h, a, r: h * (1 + a) / r + 1 - h", "averages the speedup"),
    ],
    "05.6": [
        ("copy = lambda t, s, k: t[s:s + k]", "stops at the end"),
        ("copy = lambda t, s, k: (t[s:] + t * k)[:k]", "from the text's beginning"),
        ("copy = lambda t, s, k: (t[s:] + [t[-1]] * k)[:k]", "repeats the last token"),
        ("def copy(t, s, k):\n    for i in range(k):\n        t.append(t[s + i])\n    return t[-k:]",
         "changes its argument"),
        ("copy = lambda t, s, k: [0] * k", "nothing but zeros"),
    ],
}  # fmt: skip

RIGHT = {
    "05.1": ["def matches(t, n):\n    s, found = tuple(t[len(t) - n:]), ()\n    for i in range(max(0, len(t) - n)):\n"
             "        if tuple(t[i:i + n]) == s:\n            found += (i,)\n    return found",
             "def matches(t, n):\n    s = t[len(t) - n:]\n"
             "    return np.array([i for i in range(len(t) - n) if t[i:i + n] == s], np.int32)"],
    "05.3": ["def greedy_verify(draft, best):\n    k = int(np.cumprod([d == b for d, b in zip(draft, best)]).sum())\n"
             "    return best[:k + 1]"],
    "05.4": ["from collections import defaultdict\ndef index(t, n):\n    d = defaultdict(int)\n"
             "    for i in range(len(t) - n):\n        d[tuple(np.array(t[i:i + n]))] = np.int64(i + n)\n    return d"],
    "05.5": ["speedup = lambda h, a, r: (h * (1 + a) + (1 - h)) / (h * r + (1 - h))"],
    "05.6": ["copy = lambda t, s, k: [t[s + i % (len(t) - s)] for i in range(k)]"],
}  # fmt: skip
