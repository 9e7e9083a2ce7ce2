"""Chapter 07."""

MASK = """
def window_mask(W, N):
    places = [(j, i) for j in range(N - 1) for i in range(W)]
    return np.array([[{rule} for k, c in places] for j, i in places])
"""

POOL = """
def remember(pool, gram, size):
    pool = {{key: list(value) for key, value in pool.items()}}
    kept, rest = pool.setdefault(gram[0], []), tuple(gram[1:])
    {body}
    return pool
"""

WRONG = {
    "07.1": [
        ("rows = lambda W, N, G: (W + G) * N", "not N of either"),
        ("rows = lambda W, N, G: W * (N - 1) + G", "a candidate has N − 1 rows"),
        ("rows = lambda W, N, G: (W + G) * (N - 1) + 1", "not an extra row"),
        ("rows = lambda W, N, G: W * (N - 1)", "the candidates are missing"),
        ("rows = lambda W, N, G: (W + G) * (N - 1) / 7", "not a whole number"),
    ],
    "07.2": [
        ("window_mask = lambda W, N: np.tri(W * (N - 1), dtype=bool)", "plain causal attention"),
        (MASK.format(rule="k + c < j + i or (k, c) == (j, i)"), "the rule by numbers"),
        (MASK.format(rule="k == 0 or (c == i and k <= j)"), "not all of it"),
        (MASK.format(rule="c == i and k <= j"), "level 0 is missing"),
        (MASK.format(rule="(k == 0 and c <= i or c == i and k <= j) and (k, c) != (j, i)"), "itself, too"),
        (MASK.format(rule="j == 0 and i <= c or c == i and j <= k"), "changed places"),
        (MASK.format(rule="c <= i and k <= j"), "its own column only"),
        (MASK.format(rule="k == 0 and c < i or c == i and k <= j and j"), "[0, 0] is False; expected True."),
        ("window_mask = lambda W, N: np.ones(W * (N - 1), bool)", "expected shape"),
    ],
    "07.3": [
        ("ngrams = lambda levels, made: levels + [made]", "these are the levels"),
        ("ngrams = lambda levels, made: list(zip(*levels))", "at the end of each column is missing"),
        ("ngrams = lambda levels, made: list(zip(made, *levels))", "stand at the end"),
        ("ngrams = lambda levels, made: list(zip(made, *levels[::-1]))", "read upwards"),
        ("ngrams = lambda levels, made: list(zip(*levels[1:], made))", "the oldest level is missing"),
        ("ngrams = lambda levels, made: set(zip(*levels, made))", "got a set"),
    ],
    "07.4": [
        (POOL.format(body="kept.append(rest); del kept[:-size]"), "it is not there twice"),
        (POOL.format(body="kept[:] = [x for x in kept if x != rest] + [rest]; del kept[size:]"), "not the newest"),
        (POOL.format(body="kept[:] = [x for x in kept if x != rest] + [rest]"), "not bounded"),
        (POOL.format(body="kept[:] = [rest]"), "forgets what else"),
        (POOL.format(body="rest in kept or kept.append(rest); del kept[:-size]"), "become the most recent"),
        ("def remember(pool, gram, size):\n    pool.setdefault(gram[0], []).append(tuple(gram[1:]))\n    return pool",
         "changes its argument pool"),
    ],
    "07.5": [
        ("step_compression = lambda a, f, N, b: N - sum((1 - a**i) ** b for i in range(1, N))", "this is E"),
        ("step_compression = lambda a, f, N, b: (N - sum((1 - a**i) ** b for i in range(1, N))) / f", "they count too"),
        ("step_compression = lambda a, f, N, b: (f + N - sum((1 - a**i) ** b for i in range(1, N + 1))) / f",
         "γ = N − 1"),
        ("step_compression = lambda a, f, N, b: (f - 1 + sum(a**i for i in range(N))) / f", "one draft per step"),
        ("step_compression = lambda a, f, N, b: 0.0", "nothing but zeros"),
    ],
}  # fmt: skip

RIGHT = {
    "07.1": ["rows = lambda W, N, G: np.int32(W * (N - 1) + G * (N - 1))"],
    "07.2": [MASK.format(rule="k == 0 and c <= i or c == i and k <= j"),
             "import torch\n" + MASK.format(rule="int(k == 0 and c <= i or c == i and k <= j)")
             + "mask = window_mask\nwindow_mask = lambda W, N: torch.tensor(mask(W, N))"],
    "07.3": ["ngrams = lambda levels, made: np.array([*levels, made]).T"],
    "07.4": [POOL.format(body="kept[:] = [x for x in kept if x != rest] + [rest]; del kept[:-size]")],
    "07.5": ["step_compression = lambda a, f, N, b: "
             "(f - 1 + N - ((1 - np.float64(a) ** np.arange(1, N)) ** b).sum()) / f"],
}  # fmt: skip
