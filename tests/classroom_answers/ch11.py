"""Chapter 11."""

METRICS = """
def metrics(d, k):
    tested = sum(min(a, b + 1) for a, b in zip(d, k))
    return {tau}, {rate}
"""

WIDTH = """
def best_width(alphas, times):
    def speed(g):
        return ({tokens}) / times[{row}]
    return max({among}, key=speed)
"""

BATCH = """
def largest_batch(tau, gamma, t, most):
    return max((b for b in range(1, most + 1) if {test}), default=0){more}
"""


def metrics(tau="1 + sum(k) / len(k)", rate="sum(k) / tested if tested else 0"):
    return METRICS.format(tau=tau, rate=rate)


def best_width(tokens="1 + np.cumprod(alphas[:g]).sum()", row="g", among="range(len(times))"):
    return WIDTH.format(tokens=tokens, row=row, among=among)


def largest_batch(test="tau * t(b) > t(b * (gamma + 1))", more=""):
    return BATCH.format(test=test, more=more)


WRONG = {
    "11.1": [
        (metrics(rate="sum(k) / max(1, sum(d))"), "not over drafted"),
        (metrics(tau="sum(k) / len(k)"), "own token, too"),
        (metrics(tau="1 + sum(k) / max(1, sum(x > 0 for x in d))"), "over all steps"),
        (metrics(tau="sum(k) / tested if tested else 0", rate="1 + sum(k) / len(k)"), "changed places"),
        (metrics(rate="sum(k) / tested"), "raised ZeroDivisionError"),
    ],
    "11.2": [
        (best_width(row="max(0, g - 1)", among="range(1, len(times))"), "γ"),
        (best_width(among="range(1, len(times))"), "no draft is a choice"),
        ("best_width = lambda alphas, times: len(alphas)", "most tokens per step"),
        (best_width(tokens="1 + sum(alphas[:g])"), "multiply them"),
        (best_width(tokens="np.cumprod(alphas[:g]).sum()"), "own token counts"),
        ("best_width = lambda alphas, times: 0", "cheapest forward"),
    ],
    "11.3": [
        (largest_batch("tau * t(b) > t(b * gamma)"), "input token as well"),
        (largest_batch("tau * t(b) > t(b + gamma)"), "all B sequences draft"),
        (largest_batch("tau * t(1) > t(b * (gamma + 1))"), "B rows, not one"),
        ("largest_batch = lambda tau, gamma, t, most: most", "the most that was allowed"),
        (largest_batch(more=" + 1"), "no longer pays"),
        ("largest_batch = lambda tau, gamma, t, most: t(0)", "expected at least 1"),
    ],
    "11.4": [
        ("def combine(context, lookup, model):\n    a, b = lookup(context), model(context)\n"
         "    return a or b", "costs time"),
        ("combine = lambda context, lookup, model: model(context) or lookup(context)", "it asks the draft model first"),
        ("combine = lambda context, lookup, model: lookup(context) + model(context)", "joins the two"),
        ("combine = lambda context, lookup, model: max(lookup(context), model(context), key=len)", "longer draft"),
        ("combine = lambda context, lookup, model: lookup(context)", "never uses the draft model"),
        ("combine = lambda context, lookup, model: lookup(context[-1:])", "expected the context"),
    ],
}  # fmt: skip

RIGHT = {
    "11.1": [metrics()],
    "11.2": [best_width(), best_width(tokens="sum(np.prod(alphas[:i]) for i in range(g + 1))")],
    "11.3": [largest_batch()],
    "11.4": ["def combine(context, lookup, model):\n    found = lookup(context)\n"
             "    return found if found else model(context)"],
}  # fmt: skip
