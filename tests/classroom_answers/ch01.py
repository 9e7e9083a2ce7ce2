"""Chapter 01."""

ROUND = """
def one_round(p, q, rng):
    x = rng.pick({draft})
    if {test}:
        return x, {kept}
    owed = np.maximum(p - q, 0)
    return rng.pick({correction}), {lost}
"""

BLOCK = """
def block(p, q, drafts, rng):
    {first}
    for i, x in enumerate(drafts):
        u = {u}
        if not u < p[i][x] / q[i][x]:
            owed = np.maximum(p[i] - q[i], 0)
            return [*drafts[:i], rng.pick({correction}){behind}]
    return {end}
"""

GOING_ON = """
def block(p, q, drafts, rng):
    out = []
    for i, x in enumerate(drafts):
        if rng.uniform() < p[i][x] / q[i][x]:
            out.append(x)
        else:
            out.append(rng.pick(np.maximum(p[i] - q[i], 0)))
    return [*out, rng.pick(p[len(drafts)])]
"""

DECODE = """
def decode(p_logits, q_logits, temperature, rng, settle):
    def softmax(logits):
        return np.exp(logits) / np.exp(logits).sum()
    x = rng.pick(softmax({drawn}))
    p, q = softmax({p}), softmax({q})
    return {end}
"""


def one_round(draft="q", test="rng.uniform() * q[x] <= p[x]", kept=True, correction="owed", lost=False):
    return ROUND.format(draft=draft, test=test, kept=kept, correction=correction, lost=lost)


def block(first="pass", u="rng.uniform()", correction="owed", behind="", end="[*drafts, rng.pick(p[-1])]"):
    return BLOCK.format(first=first, u=u, correction=correction, behind=behind, end=end)


def decode(drawn="q_logits / temperature", p="p_logits / temperature", q="q_logits / temperature",
           end="settle(x, p, q)"):  # fmt: skip
    return DECODE.format(drawn=drawn, p=p, q=q, end=end)


WRONG = {
    "01.1": [
        ("accept = lambda p_x, q_x: p_x / q_x", "a probability stops at 1"),
        ("accept = lambda p_x, q_x: min(1, q_x / max(p_x, 1e-300))", "upside down"),
        ("accept = lambda p_x, q_x: min(p_x, q_x)", "drafted and accepted"),
        ("accept = lambda p_x, q_x: p_x", "one fixed token"),
        ("accept = lambda p_x, q_x: p_x >= q_x", "comparing with a uniform number"),
        ("accept = lambda p_x, q_x: 0.0", "nothing but zeros"),
        ("accept = lambda p_x, q_x: 'min(1, p/q)'", "got the text"),
    ],
    "01.2": [
        ("residual = lambda p, q: p", "paid out"),
        ("residual = lambda p, q: q", "this is q's law"),
        ("residual = lambda p, q: np.maximum(p - q, 0)", "does not sum to one"),
        ("residual = lambda p, q: np.maximum(q - p, 0) / max(np.maximum(q - p, 0).sum(), 1e-300)", "q"),
        ("residual = lambda p, q: np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()", "0/0"),
        ("residual = lambda p, q: abs(p - q) / abs(p - q).sum() if (p != q).any() else p", "takes |p − q|"),
        ("residual = lambda p, q: np.zeros(len(p))", "nothing but zeros"),
        ("residual = lambda p, q: np.maximum(p - q, 0)[:2]", "shape"),
        ("def residual(p, q):\n    p -= q\n    p[p < 0] = 0\n    return p / p.sum()", "changes its argument p"),
    ],
    "01.3": [
        ("acceptance_rate = lambda p, q: (p * q).sum()", "two independent draws"),
        ("acceptance_rate = lambda p, q: abs(p - q).sum() / 2", "probability of a rejection"),
        ("acceptance_rate = lambda p, q: 1 - abs(p - q).sum()", "half that sum"),
        ("acceptance_rate = lambda p, q: 0.0", "nothing but zeros"),
        ("acceptance_rate = lambda p, q: np.minimum(p, q)", "got an array of shape"),
    ],
    "01.4": [
        (one_round(correction="p"), "paid twice"),
        (one_round(correction="q"), "draws from q again"),
        (one_round(test="True"), "keeps every draft"),
        (one_round(draft="p", test="False", correction="np.eye(len(p))[x]"), "no draft was tested"),
        (one_round(test="rng.uniform() < p[x]"), "instead of min(1, p(x)/q(x))"),
        (one_round(kept=False, lost=True), "changed places"),
        ("one_round = lambda p, q, rng: rng.pick(q)", "should return the pair"),
        ("import random\none_round = lambda p, q, rng: (random.choices(range(len(q)), q)[0], True)",
         "with probability"),
        ("one_round = lambda p, q, rng: (rng.pick(p - q), True)", "expected a distribution"),
        ("def one_round(p, q, rng):\n    return int(np.searchsorted(np.cumsum(q), float(rng.uniform()))), True",
         "use rng.pick(law)"),
    ],
    "01.5": [
        (block(end="[*drafts]"), "a bonus token comes from there"),
        (block(end="[*drafts, rng.pick(q[-1] if len(q) else p[-1])]"), "this is q's law; the bonus token comes from p"),
        (block(end="[*drafts, rng.pick(p[max(len(drafts) - 1, 0)])]"), "not from the last draft's own row"),
        (block(correction="p[i]"), "the correction comes from the residual"),
        (block(behind=", *drafts[i + 1:]"), "goes on behind a rejection"),
        (block(behind=", rng.pick(p[-1])"), "adds a bonus behind the correction"),
        (GOING_ON, "tests the later drafts and adds a bonus"),
        (block(first="once = rng.uniform()", u="once"), "one uniform number tests all drafts"),
    ],
    "01.6": [
        (decode(q="q_logits"), "must be the law that was drawn from"),
        (decode(p="p_logits"), "p is used without the temperature"),
        (decode("q_logits", "p_logits", "q_logits"), "p is used without the temperature"),
        (decode(drawn="q_logits"), "still two different q"),
        (decode(end="x"), "no draft is ever rejected"),
        (decode(end="settle(x, 0, 0)"), "decode should"),
        ("decode = lambda p, q, t, rng, settle: rng.pick(np.exp(p / t))", "without a draft"),
        (decode(q="p_logits / temperature", drawn="p_logits / temperature"), "not the draft model's law"),
    ],
}  # fmt: skip

RIGHT = {
    "01.1": [
        "accept = lambda p_x, q_x: np.minimum(1, np.float32(p_x) / np.float32(q_x))",
        "import torch\naccept = lambda p_x, q_x: torch.tensor(p_x / q_x).clamp(max=1)",
        "from fractions import Fraction\naccept = lambda p_x, q_x: min(1, Fraction(p_x) / Fraction(q_x))",
    ],
    "01.2": [
        "def residual(p, q):\n    owed = [max(a - b, 0) for a, b in zip(p, q)]\n"
        "    return [x / sum(owed) for x in owed] if sum(owed) else list(p)",
        "import torch\ndef residual(p, q):\n    p, q = torch.from_numpy(p), torch.from_numpy(q)\n"
        "    r = torch.relu(p - q)\n    return r / r.sum() if r.sum() > 0 else p",
        "def residual(p, q):\n    p, q = p.astype(np.float32), q.astype(np.float32)\n    r = np.maximum(p - q, 0)\n"
        "    return r / r.sum() if r.any() else p",
        "def residual(p, q):\n    r = p - np.minimum(p, q)\n    return tuple(r / r.sum()) if r.any() else tuple(p)",
    ],
    "01.3": [
        "acceptance_rate = lambda p, q: 1 - abs(p - q).sum() / 2",
        "acceptance_rate = lambda p, q: sum(b * min(1, a / b) for a, b in zip(p, q) if b > 0)",
        "import torch\nacceptance_rate = lambda p, q: torch.minimum(*map(torch.tensor, (p, q))).sum()",
    ],
    "01.4": [one_round(), one_round(draft="q.astype(np.float32)", test="rng.uniform() < np.float32(p[x] / q[x])"),
             one_round(test="not p[x] / q[x] < rng.uniform()"),
             one_round(test="rng.uniform() - p[x] / q[x] < 0"),
             one_round(test="1 - rng.uniform() < p[x] / q[x]").replace("return x, True", "return [x, np.True_]")],
    "01.5": [block(), block(end="np.array([*drafts, rng.pick(p[len(drafts)])])")],
    "01.6": [decode(), decode(drawn="q_logits", q="q_logits"),
             decode(q="q_logits", drawn="q_logits").replace("exp(logits)", "exp(logits - logits.max())")],
}  # fmt: skip
