# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: all
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 · Draft models
#
# > **The question of this chapter.**
# > A second, smaller model writes the draft.
# > How long should the draft be, and how much faster can decoding get?
# > What do the two numbers that decide it, acceptance and cost, look like on a real pair of models?
#
# **Afterwards you can**
#
# - write the whole algorithm with its indices, and say what each row of the target's forward is for;
# - compute the tokens that a step outputs and the drafts that it accepts, and not confuse the two;
# - get from acceptance α and cost ratio $c$ to the speedup and to the best draft length γ, and say when no γ gains;
# - say what the two KV caches hold after a rejection, and after a draft that was accepted as a whole;
# - measure α by depth and by task, and say why one number is not enough;
# - say where a small draft model spends its time, and what a reduced vocabulary does about it.
#
# **Taken for granted:** chapter 00 ($t(q)$, τ)
# and chapter 01 (accept rule, residual, bonus token, exact laws by enumeration).
# A *law* is the distribution of the next token after some text, as in chapter 01.
#
# **Time:** 35 minutes of reading; the cells take about two minutes on two CPU cores.
# Run them with nothing else going on, because some use a stopwatch.

# %% [markdown]
# ## Set up

# %%
import importlib.util
import pathlib
import subprocess
import sys

if importlib.util.find_spec("specdec_core") is None:
    places = [pathlib.Path(".."), *pathlib.Path(".").glob("*/")]  # beside or below this notebook
    checkouts = [place.resolve() for place in places if (place / "specdec_core" / "__init__.py").is_file()]
    if not checkouts:
        raise SystemExit("Clone the repository of this book into this folder, then run this cell again.")
    pip = [sys.executable, "-m", "pip", "install", f"{checkouts[0]}[race]"]
    lines = subprocess.run(pip, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    print("\n".join(line.strip() for line in lines if "Found existing" in line or "Successfully" in line))
    importlib.invalidate_caches()

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display
from specdec_core import CachedLM, load
from specdec_core.race import markdown
from specdec_core.viz import figures, style

style.use()
loaded = load("default")
lm = CachedLM(loaded)
print(loaded.why)

# %% [markdown]
# ## One step and its indices
#
# Number the places of a text from 0.
# At the beginning of a step $n$ tokens are written, $x_0 \dots x_{n-1}$, and the first open place is $n$.
# A step has three parts.
#
# 1. **Draft.**
#    For $i = 0, 1, \dots, \gamma - 1$ the draft model reads $x_0 \dots x_{n-1}, d_0 \dots d_{i-1}$
#    and gives a law $q_i$ for place $n + i$; $d_i$ is drawn from it.
# 2. **Score.**
#    One forward of the target over $x_{n-1}, d_0, \dots, d_{\gamma-1}$: $\gamma + 1$ rows.
#    (What stands before $x_{n-1}$ is in the cache.)
# 3. **Test**, in order.
#    $d_i$ is accepted with probability $\min(1, p_i(d_i)/q_i(d_i))$.
#    At the first rejection a correction is drawn from the residual of $p_i$ and $q_i$.
#    If none is rejected, a bonus token is drawn from $p_\gamma$.
#
# A row that has read the token at place $m$ gives the law for place $m + 1$.
# All indices follow from this one shift:
#
# | row of the forward | reads | which stands at place | its law $p_j$ is for place | and serves to |
# |:--|:--|:--|:--|:--|
# | 0 | $x_{n-1}$ | $n - 1$ | $n$ | test $d_0$ |
# | $j = 1 \dots \gamma - 1$ | $d_{j-1}$ | $n + j - 1$ | $n + j$ | test $d_j$ |
# | γ | $d_{\gamma-1}$ | $n + \gamma - 1$ | $n + \gamma$ | draw the bonus |
#
# With $k$ accepted drafts the step writes $d_0 \dots d_{k-1}$ to the places $n \dots n + k - 1$
# and the target's own token to place $n + k$.
# The next step begins with $n + k + 1$ tokens.
# Row 0 needs a token to read, so $n \ge 1$: an empty prompt has to begin with the model's beginning-of-sequence token.
#
# **By hand.**
# $n = 5$, $\gamma = 3$.
# The drafts are for places 5, 6, 7.
# The forward has four rows, which read places 4, 5, 6, 7 and give the laws of places 5, 6, 7, 8.
# Let $d_0$ be accepted and $d_1$ rejected, so $k = 1$.
# Place 5 holds $d_0$, and place 6 a correction drawn from the residual of row 1.
# $d_2$ is dropped, and so are rows 2 and 3, which have read a token that was not written.
# The next step has $n = 7$.
#
# (The paper, Leviathan, Kalman and Matias, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192), algorithm 1,
# counts from 1: its $x_i$, $q_i$ and $p_i$ are ours at $i - 1$, and the bonus comes from its $p_{\gamma+1}$.)
#
# Now in code.
# In place of models there are functions that return the law after a list of tokens:

# %%
from specdec_core import core


def step(p_after, q_after, x, n, gamma, rng):
    """The tokens for places n, n + 1, ... of a text x, of which the first n are written."""
    drafts, qs = [], []
    for i in range(gamma):  # place n + i
        qs.append(q_after(x[:n] + drafts))
        drafts.append(rng.pick(qs[i]))
    ps = [p_after(x[:n] + drafts[:j]) for j in range(gamma + 1)]  # row j, for place n + j: one forward
    for i, d in enumerate(drafts):
        if not rng.uniform() < min(1, ps[i][d] / qs[i][d]):
            return [*drafts[:i], rng.pick(core.residual(ps[i], qs[i]))]
    return [*drafts, rng.pick(ps[gamma])]


def decode(p_after, q_after, prompt, length, gamma, rng, step=step):
    """``length`` tokens after the prompt, and how many forwards of the target they took."""
    x, end, calls = list(prompt), len(prompt) + length, 0
    while len(x) < end:
        x += step(p_after, q_after, x, len(x), gamma, rng)
        calls += 1
    return tuple(x[len(prompt) : end]), calls  # the last step may have written too much


# %% [markdown]
# Is this the algorithm?
# Chapter 01 gave us the means to ask: `enumerate_law` runs a program once for every outcome of its draws.
# We compare three tokens of `decode` with three tokens of the target alone.
# We also compare them, jointly with the number of calls, with the package.
# There the draft model is a drafter like every other, `DraftModel`, and `generate` is the loop.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Sampling, TableLM, enumerate_law, generate, total_variation
from specdec_core.drafters import DraftModel, NullDrafter

PLAIN, PROMPT, LENGTH, GAMMA = Sampling(temperature=1.0), [0, 1], 3, 2
target, draft = TableLM.random(2, order=2, seed=3), TableLM.random(2, order=2, seed=5)


def packaged(rng, drafter):
    run = generate(target, PROMPT, drafter, max_new_tokens=LENGTH, sampling=PLAIN, rngs=(rng, rng))
    return run.tokens, run.trace.target_calls


ours = enumerate_law(lambda rng: decode(target.law, draft.law, PROMPT, LENGTH, GAMMA, rng))
theirs = enumerate_law(lambda rng: packaged(rng, DraftModel(draft, GAMMA, sampling=PLAIN)))
alone = enumerate_law(lambda rng: packaged(rng, NullDrafter())[0])
same = total_variation(ours, theirs) <= 1e-12
print(f"{len(ours)} outcomes; `decode` and the package differ by at most 1e-12: {same}")


# %%
# NBVAL_CHECK_OUTPUT
def report(name, law):
    """Distance from the target's own law, and the expected number of calls, of a law over (tokens, calls)."""
    texts = {}
    for (tokens, _), mass in law.items():
        texts[tokens] = texts.get(tokens, 0.0) + mass
    distance = total_variation(texts, alone)
    words = "exact, to 1e-12" if distance <= 1e-12 else f"off by {distance:.4f}"
    print(f"{name:50} {words:15} {sum(mass * calls for (_, calls), mass in law.items()):.2f} calls")


report("decode", ours)

# %% [markdown]
# ## Off by one
#
# Wrong indices do not crash.
# Here are four mistakes; each is the step above with one of its numbers shifted.

# %%
def shifted(test=0, bonus=0, rejected=0):
    """`step` with the row of the test, the row of the bonus, or the place of the correction shifted."""

    def step(p_after, q_after, x, n, gamma, rng):
        drafts, qs = [], []
        for i in range(gamma):
            qs.append(q_after(x[:n] + drafts))
            drafts.append(rng.pick(qs[i]))
        ps = [p_after(x[:n] + drafts[:j]) for j in range(gamma + 1)]
        for i, d in enumerate(drafts):
            p = ps[max(i + test, 0)]
            if not rng.uniform() < min(1, p[d] / qs[i][d]):
                return [*drafts[: i + rejected], rng.pick(core.residual(p, qs[i]))]
        return [*drafts, rng.pick(ps[gamma + bonus])]

    return step


# %%
# NBVAL_CHECK_OUTPUT
mistakes = {
    "draft i tested by row i + 1, which has read it": {"test": 1},
    "draft i tested by row i - 1": {"test": -1},
    "bonus from row γ - 1: the last draft was not read": {"bonus": -1},
    "the rejected draft kept, the correction after it": {"rejected": 1},
}
for name, shift in mistakes.items():
    wrong = shifted(**shift)
    report(name, enumerate_law(lambda rng: decode(target.law, draft.law, PROMPT, LENGTH, GAMMA, rng, wrong)))

# %% [markdown]
# > **The notes say …** (*A short introduction*, above its listing) that some of its boundary conditions may be wrong.
# > We looked.
# > **Its slices are right:** $n$ there is the number of *rows*, so $n - 1$ tokens are drafted from place $i$ on.
# > The last $n$ rows of the target belong to places $i \dots i + n - 1$, the last of them to the bonus.
# > (By the sentence above the listing the small model drafts $n$ tokens; in the listing it is one fewer.)
# > The test compares with the right row, and the residual is taken at the right place.
# >
# > **Four things are not right.**
# > The draft's laws, which test and residual need, are never stored.
# > The slice needs $i \ge 1$: after an empty text there are only $n - 1$ rows.
# > Nothing ends the text: the last step may write up to $n - 1$ tokens too many,
# > and if an accepted draft contains a stop token, the text goes on after it.
# > And the loop is a `for` over $i$ that sets $i$ in its own body.
# > In Python the next turn sets $i$ again, to the *following* place, whatever was accepted.
# > What does that do?

# %%
# NBVAL_CHECK_OUTPUT
def decode_with_for(p_after, q_after, prompt, length, gamma, rng):
    """A `for` over the places: each turn begins one place further, and writes over what stands there."""
    x, end, calls = list(prompt), len(prompt) + length, 0
    for n in range(len(prompt), end):
        x[n:] = step(p_after, q_after, x, n, gamma, rng)
        n = len(x)  # meant to skip what was accepted; without effect
        calls += 1
    return tuple(x[len(prompt) : end]), calls


report("a while loop", ours)
wrong = enumerate_law(lambda rng: decode_with_for(target.law, draft.law, PROMPT, LENGTH, GAMMA, rng))
report("a for loop", wrong)

# %% [markdown]
# The law is still exact, and nothing is gained: one call per token.
# Each turn writes its first place with the target's law and throws away the rest, which the next turn writes again.
# A test of the *text* cannot find this mistake.
# Count calls as well.
#
# ## How many tokens per step?
#
# Suppose every draft is accepted with the same probability α, given that those before it were.
# Then at least $i$ drafts are accepted with probability $\alpha^i$,
# and the expected number of **accepted** tokens is the sum of these:
#
# $$E[\text{accepted}] = \sum_{i=1}^{\gamma} P(\text{at least } i)
# = \alpha + \alpha^2 + \dots + \alpha^\gamma = \frac{\alpha\,(1 - \alpha^{\gamma})}{1 - \alpha}.$$
#
# Every step writes one more token, the correction or the bonus.
# So the expected number of **output** tokens, which is τ, is
#
# $$E[\text{tokens}] = 1 + \alpha + \dots + \alpha^\gamma = \frac{1 - \alpha^{\gamma+1}}{1 - \alpha}.$$
#
# **By hand.**
# α = 0.8, γ = 4: $0.8 + 0.64 + 0.512 + 0.4096 = 2.3616$ accepted, 3.3616 output.
# However long the draft, no more than $1/(1 - \alpha) = 5$ tokens are output on average,
# and $\alpha/(1 - \alpha) = 4$ accepted.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import acceptance_rate, expected_accepted, expected_tokens

print(f"output {expected_tokens(0.8, 4):.4f}, accepted {expected_accepted(0.8, 4):.4f}")

# %% [markdown]
# > **The notes say …** (*lookahead article*, at its equation 4)
# > that this formula gives the expected number of *accepted* tokens.
# > It gives the output tokens.
# > At α = 0.8 and γ = 4 that is 3.36 against 2.36,
# > and the second is the one to compare with a count of accepted drafts.
# > The note on *five routes* has both right.
# > Published tables use either; only the count of accepted drafts can be below 1.
#
# Now the same number from the algorithm.
# We need a pair of models whose acceptance is the same everywhere:
# let every row of both tables be the same law, turned by one token.
# By the overlap of chapter 01, $\beta = \sum_x \min(p, q) = 0.4 + 0.3 + 0.1 = 0.8$ after every token.

# %%
# NBVAL_CHECK_OUTPUT
def turned(law):
    """A model whose law after token i is the same law, turned by i."""
    return TableLM(np.log([np.roll(law, shift) for shift in range(len(law))]))


even, tilted = turned([0.6, 0.3, 0.1]), turned([0.4, 0.5, 0.1])
print("β after each token:", *(round(acceptance_rate(even.law([a]), tilted.law([a])), 12) for a in range(3)))
sizes = enumerate_law(lambda rng: len(step(even.law, tilted.law, [0], 1, 4, rng)))
for size, mass in sorted(sizes.items()):
    formula = 0.8 ** (size - 1) * (0.2 if size <= 4 else 1)
    print(f"{size} tokens with probability {mass:.4f}, by the formula {formula:.4f}")
print(f"expected: {sum(size * mass for size, mass in sizes.items()):.4f}")

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2))
left.bar(list(sizes), list(sizes.values()), **style.bar(1))
mean = sum(size * mass for size, mass in sizes.items())
left.axvline(mean, color="black", linestyle="--", linewidth=1, label=f"mean {mean:.2f}")
left.set(title="α = 0.8, γ = 4", xlabel="output tokens of a step", ylabel="probability")
left.legend(loc="upper left")
lengths = range(17)
for i, alpha in enumerate((0.9, 0.8, 0.6, 0.3)):
    right.plot(lengths, [expected_tokens(alpha, g) for g in lengths], label=f"α = {alpha}", **style.line(i))
    right.axhline(1 / (1 - alpha), color=style.PALETTE[i], linewidth=0.8, linestyle=":")
right.set(title="Output tokens by γ; dotted: 1/(1 − α)", xlabel="γ", ylim=(0, 12.5))
right.legend(loc="upper left", ncols=2)
alt = "Left, probabilities of one to five tokens per step, five likeliest; right, tokens by γ, up to a ceiling."
figures.save(fig, "02-tokens", alt=alt)

# %% [markdown]
# Two observations.
# On the left, the most probable outcome is the *longest* one, although no single draft is certain.
# And each further draft adds less than the one before it:
# the γ-th adds $\alpha^\gamma$ tokens, while it costs as much as the first.
#
# ## The speedup, and the best γ
#
# Let a call of the draft model take $c$ times as long as a call of the target.
# A step takes γ calls of the one and one call of the other, so
#
# $$\text{speedup} = \frac{1 + \alpha + \dots + \alpha^\gamma}{1 + \gamma c}$$
#
# (theorem 3.8 of the paper).
# It makes two assumptions:
# the target's forward over $\gamma + 1$ rows takes no longer than one over a single row, $t(\gamma + 1) = t(1)$;
# and nothing else costs time.
# We keep both for a moment.
#
# **When does any γ gain?**
# If $\alpha \le c$, none does: $1 + \alpha + \dots + \alpha^\gamma \le 1 + \gamma\alpha \le 1 + \gamma c$.
# If $\alpha > c$, at least $\gamma = 1$ does, by a factor of $(1 + \alpha)/(1 + c)$.
# So *some draft length gains exactly if α > c*.
# A draft model can be too slow to be of use, however good it is.
#
# **Which γ is best?**
# Draft number $\gamma + 1$ adds $\alpha^{\gamma+1}$ tokens for a time of $c$.
# It raises the speedup as long as this rate is better than the rate so far:
#
# $$\frac{\alpha^{\gamma+1}}{c} > \frac{1 + \alpha + \dots + \alpha^\gamma}{1 + \gamma c}.$$
#
# The left side falls with γ.
# Once it is below the average rate it stays below:
# a further draft lowers the average, but not below its own rate.
# So the first γ at which the condition fails is the best.
#
# **By hand.**
# α = 0.8, $c = 0.1$.
# At $\gamma = 4$ the speedup is $3.3616/1.4 = 2.40$,
# and the next draft adds tokens at a rate of $0.8^5/0.1 = 3.28$: go on.
# At $\gamma = 6$ the speedup is $3.9514/1.6 = 2.47$, and the next draft's rate is $0.8^7/0.1 = 2.10$: stop.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import best_gamma, speedup

g = best_gamma(0.8, 0.1)
print(f"γ = 4: {speedup(0.8, 4, 0.1):.4f}; best γ: {g}, {speedup(0.8, g, 0.1):.4f}")
rows = []
for c in (0.02, 0.05, 0.1, 0.2, 0.5):
    bests = [(best_gamma(alpha, c), alpha) for alpha in (0.3, 0.5, 0.7, 0.8, 0.9)]
    rows.append([f"c = {c}", *(f"{speedup(alpha, g, c):.2f} (γ = {g})" for g, alpha in bests)])
display(Markdown(markdown(rows, ["", *(f"α = {alpha}" for alpha in (0.3, 0.5, 0.7, 0.8, 0.9))])))

# %% [markdown]
# Move the sliders and find out:
# How flat is the top of the curve, that is, what does it cost to choose a γ that is wrong by two?
# What happens to the best γ when the draft becomes twice as fast?
# Where does the hatched region begin to matter?

# %%
from specdec_core.viz import draft_length

draft_length.sliders(alpha=0.8, gamma=4, c=0.1)

# %% [markdown]
# ## Two caches
#
# Two models read one text, and each has a KV cache.
# The target's is simple.
# The forward adds $\gamma + 1$ rows, and $1 + k$ of them stay: the last written token and the accepted drafts.
# (The correction, or the bonus, has no row yet; it is the root of the next step.)
# The draft model's is less simple.
# It drafts $d_0$ after reading $x_{n-1}$, reads $d_0$, drafts $d_1$, and so on; after drafting $d_{\gamma-1}$ it stops.
# **It never reads its last draft.**
# To do so would take one more forward in every step, and would be of use only if everything is accepted.
#
# | tokens in the cache | target | draft model |
# |:--|:--|:--|
# | before the step | $n - 1$ | at most $n - 1$ |
# | after drafting | $n - 1$ | $n + \gamma - 1$: the text and $d_0 \dots d_{\gamma-2}$ |
# | after the step, $k$ accepted | $n + k$ | the same; the first $n + \min(k, \gamma - 1)$ are the text's |
# | to be cut | none | $\gamma - 1 - \min(k, \gamma - 1)$ |
# | to be read before the next draft | | $k + 1 - \min(k, \gamma - 1)$: one, or **two if all were accepted** |
#
# **By hand.**
# γ = 3.
# Nothing accepted: the cache holds two rejected drafts, cut 2, and read the correction.
# One accepted: cut 1, read the correction.
# All three accepted: nothing to cut, but $d_2$ was never read, so read $d_2$ and the bonus, two rows in one forward.
#
# The package does not store these numbers.
# When `DraftModel` is next asked for a draft, it compares what it has read with the text,
# cuts what differs and reads what is missing.
# That is also right when it was not asked for some steps, as in chapter 11.
# Here is a run with the three cases; we look at its two caches after each step:

# %%
from specdec_core import stream
from specdec_core.viz import two_caches

letters, gamma = "abcdef", 3
writer, guesser = TableLM.random(6, order=2, seed=3), TableLM.random(6, order=2, seed=3)
noise = np.random.default_rng(0).normal(scale=1.5, size=guesser.table.shape)
guesser.table += noise  # the same table, badly remembered
drafter = DraftModel(guesser, gamma, sampling=PLAIN)
run, moments = stream(writer, [0, 1, 2, 3], drafter, max_new_tokens=100, sampling=PLAIN), []
for done in run:
    drafts, kept = done.tree.tokens[1:].tolist(), done.verdict.accepted
    if len(done.tokens) == kept + 1:  # the limit may cut the last step short
        moments.append(two_caches.Moment(list(run.context), drafts, kept, writer.length, guesser.length))
shown = [next(moment for moment in moments if moment.accepted == k) for k in (0, 1, 3)]

# %%
fig = two_caches.draw(shown, letters.__getitem__)
alt = "For none, one and all of three drafts accepted: the text and both models' caches, place by place."
figures.save(fig, "02-caches", alt=alt)

# %%
# NBVAL_CHECK_OUTPUT
table = {}
for moment in moments:
    table.setdefault(moment.accepted, set()).add(moment.words())
for k, words in sorted(table.items()):
    of_text = min(k, gamma - 1)  # drafts in the draft model's cache that are the text's
    print(f"{k} of {gamma} accepted: {', '.join(words)};", end=" ")
    print(f"by the table: cut {gamma - 1 - of_text}, read {k + 1 - of_text}")

# %% [markdown]
# *The dashed line: where the step began.
# Each cell names the token.
# In the draft model's row a split cell holds the token to be read, and the rejected one that is still there.*
#
# Without the cut, the draft model continues a text that does not exist.
# Without the second token to be read, it drafts for a place one too early from then on.
# Neither makes the output wrong: verification does not trust the draft.
# They only lower α, and therefore such mistakes go unnoticed for long.
#
# ## The draft model of this book
#
# A draft model has to share the target's tokenizer, since the test compares probabilities of the *same* token.
# Families with a small enough member are rare: the default target is the smallest of its own.
# So its draft model was made from it: some of its layers, its embedding, some rows of its vocabulary projection.
# It was then trained to have the target's laws, on text that the target had written.
# The loss is the distillation of Hinton and others
# ([arXiv:1503.02531](https://arxiv.org/abs/1503.02531)) at temperature 1:
# the draft model's law is pulled towards the target's whole law, not only towards the token that was written.
# DistillSpec ([arXiv:2310.08461](https://arxiv.org/abs/2310.08461)) studies such training for draft models.
# It favors text that the *draft model* has written; here the target wrote all of it.
# A weight file has a card, which says how it was made:

# %%
from specdec_core.drafters import weights

path = weights.shipped("draft_model")
print(f"{path.stat().st_size / 1e6:.1f} MB:", weights.read_card(path))

# %%
from safetensors.torch import load_file
from specdec_core.drafters import Context, build

context = Context(lm)
small = build("draft_model:num_tokens=8", context)
whole = build("draft_model:num_tokens=8,vocabulary=full", context)
trained = sum(tensor.numel() for name, tensor in load_file(path).items() if name != "ids")
few, many, width = small.lm.execution.facts.layers, lm.execution.facts.layers, loaded.model.config.hidden_size
print(f"The target has {many} layers and {loaded.parameters / 1e6:.1f} million weights.")
print(f"The draft model has {few} layers of the same width {width}, {trained / 1e6:.1f} million weights of its own,")
print(f"and of the {lm.vocab_size} rows of the projection {len(small.draft_ids)}.")
print("Embedding and projection are the target's, and stay as they were.")
print(f"Each token of text takes it {few / many:.0%} of the target's KV cache.")

# %% [markdown]
# `model=` takes any other draft model, by a folder or a name on the Hub:
# `specdec generate --method draft_model:model=...`.
# One with another tokenizer is refused, with a message that names both.
#
# ## What α really is
#
# The paper defines β, the acceptance after one particular text, $\beta = \sum_x \min(p(x), q(x))$, and α as its mean.
# The formula for $E[\text{tokens}]$ needs more than a mean:
# it needs the *same* β everywhere, or at least values of β that do not depend on one another.
# How much does that matter?
# Let a step be as likely to begin at an easy place, $\beta = 0.9$, as at a hard one, $\beta = 0.5$; then α = 0.7.
# For γ = 2 the probability that both drafts are accepted is
#
# - $0.7 \cdot 0.7 = 0.49$ if each place is easy or hard independently of its neighbor: 2.19 tokens;
# - $\frac12(0.9^2 + 0.5^2) = 0.53$ if easy places stand together:
#   **2.23**, and the second draft, given the first, is accepted with probability $0.53/0.7 = 0.757$;
# - $0.9 \cdot 0.5 = 0.45$ if they alternate: **2.15**.
#
# One α gives three answers.
# The formula with the conditional rates, $1 + \alpha_1 + \alpha_1\alpha_2 + \dots$, is always true.
# There $\alpha_i$ is the share of accepted drafts among those *tested* at depth $i$:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import expected_tokens_by_depth

chances = {"independent": 0.7 * 0.7, "easy places together": (0.9**2 + 0.5**2) / 2, "alternating": 0.9 * 0.5}
for name, both in chances.items():
    rates = [0.7, both / 0.7]
    print(f"{name:22} α₁ = 0.7, α₂ = {rates[1]:.3f}: {expected_tokens_by_depth(rates):.2f} tokens")
print(f"constant α = 0.7:      {expected_tokens(0.7, 2):.2f} tokens")

# %% [markdown]
# Which of the three describes a language model?
# We measure it on two questions from each of the eight tasks, answered greedily.
# In greedy decoding β is 1 or 0: the draft model's best token is the target's, or it is not.
# If a draft is accepted up to depth $i$, the draft model has read nothing but the answer itself.
# So **one forward of the draft model over the finished answer** tells for each place
# whether a draft would be right there, at whatever depth, and whatever γ is.
# From these bits every run can be replayed.

# %%
from specdec_core import DraftTree
from specdec_core.race import TASKS, own

short = build("draft_model:num_tokens=2", context)
answers = {task: [] for task in TASKS}  # task -> [(prompt, tokens), ...]
live = {}  # task -> tokens of each step of its last run
for question in own(limit=2):
    prompt = loaded.encode(question.turns[0])
    run = generate(lm, prompt, short, max_new_tokens=48, stop=loaded.stop)
    answers[question.task].append((prompt, list(run.tokens)))
    live[question.task] = [len(done.tokens) for done in run.trace.steps]


def drafted_right(drafter, prompt, answer):
    """For each token of a greedy answer: is it the draft model's best token after the same text?"""
    drafter.lm.prefill(prompt[:-1], reserve=len(answer))
    out = drafter.lm.forward(DraftTree.chain(prompt[-1], answer[:-1]))
    return drafter.draft_ids[out.logits.argmax(-1).cpu().numpy()] == np.array(answer)


# %%
def replay(bits, gamma):
    """Tokens of each step of the greedy run with this answer."""
    at, steps = 0, []
    while at < len(bits):
        k = 0
        while k < gamma and at + k < len(bits) and bits[at + k]:
            k += 1
        steps.append(min(k + 1, len(bits) - at))
        at += steps[-1]
    return steps


bits = {task: [drafted_right(small, prompt, tokens) for prompt, tokens in kept] for task, kept in answers.items()}
replayed = {task: replay(runs[-1], 2) for task, runs in bits.items()}
same = sum(replayed[task] == live[task] for task in TASKS)
print("math, tokens of each step, γ = 2")
print("  replayed:", *replayed["math"])
print("  live:    ", *live["math"])
print(f"In {same} of {len(live)} answers the steps are the same.", end=" ")
if same < len(live):
    print("In the others two logits of the draft model nearly tie, and a forward of many rows rounds differently.")

# %% [markdown]
# **By depth and by task.**
# The figure shows a depth if at least ten drafts were tested there.

# %%
def by_depth(runs, gamma=8):
    """(accepted, tested) at depths 1 ... γ, over all steps of the replayed runs."""
    counts = np.zeros((gamma, 2), int)
    for run in runs:
        at = 0
        for size in replay(run, gamma):
            k = int(min(np.argmin([*run[at : at + gamma], False]), gamma))  # accepted from here on
            counts[:k, 0] += 1
            counts[: min(k + 1, gamma, len(run) - at), 1] += 1
            at += size
    return counts


every = [run for runs in bits.values() for run in runs]
counts = by_depth(every)
alpha = np.mean(np.concatenate(every))
by_task = {task: np.mean(np.concatenate(runs)) for task, runs in bits.items()}

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.8), width_ratios=(3, 4))
deep = [d for d in range(8) if counts[d, 1] >= 10]
rates = [counts[d, 0] / counts[d, 1] for d in deep]
left.plot([d + 1 for d in deep], rates, label="αᵢ, accepted / tested", **style.line(1))
left.axhline(alpha, color="black", linestyle="--", linewidth=1, label="share of all places")
left.set(title="By depth", xlabel="depth i", ylabel="share drafted right", ylim=(0, 1))
left.set_xticks([d + 1 for d in deep])
left.legend(loc="best")
order = sorted(by_task, key=by_task.get, reverse=True)
right.barh([task.replace("_", " ") for task in order], [by_task[task] for task in order], **style.bar(1))
right.axvline(alpha, color="black", linestyle="--", linewidth=1)
right.invert_yaxis()
right.grid(axis="y", visible=False)
right.set(title="By task", xlabel="share of places where the draft is right", xlim=(0, 1))
alt = "Left, acceptance by depth beside the share of all places; right, that share for each of eight tasks."
figures.save(fig, "02-alpha", alt=alt, model=loaded)

# %%
first = counts[0, 0] / counts[0, 1]
later = counts[deep[1:], 0].sum() / max(counts[deep[1:], 1].sum(), 1)
low, high = order[-1], order[0]
print(f"Of all {sum(map(len, every))} places {alpha:.2f} are drafted right,", end=" ")
print(f"by task {by_task[low]:.2f} ({low}) to {by_task[high]:.2f} ({high}).")
print(f"At depth 1 {first:.2f} of the drafts are accepted, further on {later:.2f} of those tested:", end=" ")
print("easy places stand together." if later > first + 0.02 else "no sign that easy places stand together.")

# %% [markdown]
# A draft model does **not** grow worse with depth by reading its own drafts: those that were accepted are the text.
# What changes with depth is which places are tested.
# Depth 1 is tested at the beginning of a step: after a place where the draft was just wrong, or after a bonus token.
# Deeper places are tested only if the ones before were right.
# (The drafters of chapter 04 continue *states* instead of tokens, and for them depth is another matter.)
#
# What does that do to the formula?
# The table shows tokens per step as counted in the replay, by the formula with the rates by depth,
# and by the formula with the constant α of the same places:

# %%
def tau(runs, gamma):
    """Tokens per step over some replayed answers."""
    sizes = [size for run in runs for size in replay(run, gamma)]
    return sum(sizes) / len(sizes)


def with_rates(runs, gamma):
    """The formula with the conditional rates by depth."""
    return expected_tokens_by_depth([a / max(n, 1) for a, n in by_depth(runs, gamma)])


def row(name, value):
    return [name, *(f"{value(g):.2f}" for g in GAMMAS)]


# %%
GAMMAS = (1, 2, 3, 4, 6, 8)
rows = []
shown = [("all tasks", every, alpha), *((task, bits[task], by_task[task]) for task in (high, low))]
for name, runs, rate in shown:
    rows.append(row(f"{name.replace('_', ' ')}, counted", lambda g: tau(runs, g)))
    rows.append(row("formula with the αᵢ by depth", lambda g: with_rates(runs, g)))
    rows.append(row(f"formula with α = {rate:.2f}", lambda g: expected_tokens(float(rate), g)))
display(Markdown(markdown(rows, ["tokens per step", *(f"γ = {g}" for g in GAMMAS)])))
off = {g: expected_tokens(float(alpha), g) / tau(every, g) - 1 for g in GAMMAS}
print(f"With one α for all tasks the formula is off by {min(off.values()):+.1%} to {max(off.values()):+.1%}.")

# %% [markdown]
# The end of an answer cuts its last step short, which lowers every count a little.
# Why else do count and constant α differ?
# If γ had no limit, a step would end only at a wrong draft.
# There would be as many steps as wrong places, and τ would be $1/(1 - \alpha)$,
# in *whatever order* easy and hard places come.
# With a limit the order matters.
# Where easy places stand together, a step takes several of them, and hard places begin more steps than their share.
# Then the rate at depth 1 is below the share of all places, and the formula promises too much.
# Where easy and hard places alternate, it promises too little.
# (The example above fixed the share of *steps* that begin at an easy place; here α is a share of *places*.)
# The rates by depth are counted over steps, so they have no such error.
#
# ## Where a draft's time goes
#
# A call of the draft model has two parts: a few layers, and the projection of the last state to the vocabulary.
# The layers of a small model are small; the vocabulary is not, because it is the target's.
# We count the weights that a call has to read:

# %%
layers = trained / 1e6
for name, drafter in (("full vocabulary", whole), ("reduced vocabulary", small)):
    head = len(drafter.draft_ids) * width / 1e6
    print(f"{name:20} layers {layers:.1f} M + projection of {len(drafter.draft_ids):5} tokens {head:4.1f} M:", end=" ")
    print(f"the projection is {head / (layers + head):.0%}")

# %% [markdown]
# FR-Spec ([arXiv:2502.14856](https://arxiv.org/abs/2502.14856)) made this observation
# for an EAGLE drafter and a vocabulary of 128 thousand tokens.
# Its remedy: rank the tokens by frequency, and let the *draft* choose among the most frequent ones only.
# The target keeps all of its vocabulary.
# Decoding stays lossless: $q$ is 0 at the tokens left out, which the accept rule allows of any law.
# The price is acceptance, since a token outside the set $K$ can never be drafted:
#
# $$\beta = \sum_{x \in K} \min(p(x), q(x)) \;\le\; p(K).$$
#
# **By hand.**
# α = 0.70 and $c = 0.20$ with the full vocabulary.
# Let the reduced one halve the cost and lose a tenth of the acceptance: α = 0.63, $c = 0.10$.
# Full vocabulary: the best is $\gamma = 3$, with $2.533/1.6 = 1.58$.
# Reduced: $\gamma = 3$ as well, with $2.277/1.3 = 1.75$.
# Losing a few points of α matters less than losing half of the cost.

# %%
# NBVAL_CHECK_OUTPUT
for name, rate, cost in (("full", 0.70, 0.20), ("reduced", 0.63, 0.10)):
    print(f"{name:8} γ = {best_gamma(rate, cost)}: {speedup(rate, best_gamma(rate, cost), cost):.2f}")

# %% [markdown]
# Now we measure where the time of one drafted token goes, for both vocabularies.
# Runs in which every call is timed take turns with runs that are not watched.

# %%
from specdec_core.measure import HEAD, PARTS, PRODUCTS, drafting

prompt, _ = answers["chat"][0]
options = {"max_new_tokens": 16, "repeats": 2, "stop": loaded.stop}
split = {name: drafting(lm, prompt, drafter, **options) for name, drafter in (("full", whole), ("reduced", small))}
fig, axes = plt.subplots(figsize=(7.6, 2.8))
names = {PRODUCTS: "layers", HEAD: "vocabulary projection"}
for row, one in enumerate(split.values()):
    left = 0.0
    for i, part in enumerate(PARTS):
        label = names.get(part, part) if row == 0 else None
        axes.barh(row, 1e3 * one.parts[part], left=left, height=0.55, label=label, **style.bar(i))
        left += 1e3 * one.parts[part]
axes.set_yticks(range(2), [f"{name}, {one.vocabulary} tokens" for name, one in split.items()])
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
longest = max(one.seconds for one in split.values())
axes.set(xlabel="milliseconds per drafted token", xlim=(0, 1.05e3 * longest))
fig.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=3, fontsize=8)
alt = "Time of a drafted token by part: layers, projection, attention, other, Python; for two vocabularies."
figures.save(fig, "02-cost", alt=alt, model=loaded)

# %%
reachable = np.mean([np.isin(tokens, small.draft_ids).mean() for kept in answers.values() for _, tokens in kept])
full = np.concatenate([drafted_right(whole, *pair) for kept in answers.values() for pair in kept]).mean()
one, other = split["full"], split["reduced"]
print(f"The projection takes {one.projection:.0%} of a drafted token's time with the full vocabulary,", end=" ")
print(f"{other.projection:.0%} with the reduced one.")
print(f"A drafted token takes {1e3 * one.seconds:.2f} and {1e3 * other.seconds:.2f} ms:", end=" ")
print(f"the reduced vocabulary is {one.seconds / other.seconds:.2f} times as fast.")
print(f"{reachable:.1%} of the answers' tokens are among the {len(small.draft_ids)}; no rate can be above that.")
print(f"Drafted right: {full:.3f} of the places with all tokens, {alpha:.3f} with the reduced set.")

# %% [markdown]
# *Python's part is what remains of the unwatched runs' time; it may vanish in the noise between the two.*
# The layers are the same in both bars.
# If they are slower beside the full projection, its tens of megabytes are the likely reason:
# in every call they drive the layers' weights out of the processor's cache.
#
# The draft model was *trained* with the reduced set.
# Given all rows of the projection, it also has to rank tokens that it never learned to rank.
# A model trained for all tokens would do better, so the comparison of the two rates favors the reduced set.
#
# ## Predicted and measured
#
# Now we have all the pieces.
# First $c$ on this machine: the time of a one-row forward of the draft model, over that of the target.
# Then the target's $t(\gamma + 1)$, which theorem 3.8 sets to $t(1)$.

# %%
from specdec_core.measure import measure_costs

costs = measure_costs(lm, widths=(1, 2, 3, 5, 9), context=192, repeats=9)
pairs = {"reduced": small, "full": whole}
cheap = {name: measure_costs(drafter.lm, widths=(1,), context=192, repeats=9) for name, drafter in pairs.items()}
c = {name: found.t(1) / costs.t(1) for name, found in cheap.items()}
print(f"target: t(1) = {1e3 * costs.t(1):.1f} ms;", end=" ")
print(", ".join(f"t({q}) = {costs.break_even(q):.2f} t(1)" for q in costs.widths[1:]))
for name, rate in (("reduced", float(alpha)), ("full", float(full))):
    g = best_gamma(rate, c[name], 8)
    print(f"{name:7} c = {c[name]:.3f}; by theorem 3.8 with its α = {rate:.2f} the best γ up to 8 is {g},", end=" ")
    print(f"{speedup(rate, g, c[name]):.2f} times as fast")

# %% [markdown]
# Then the race: the first question of four tasks, without a draft and with four draft lengths.
# `compare` lets them take turns, each first in its turn, so that a busy moment of the machine hits all of them alike.
# The time to read the prompt is not counted.
# Theorem 3.8 gets the α of these four answers, not that of all sixteen.

# %%
from specdec_core import compare
from specdec_core.measure import agreement

RACED, TOKENS, LENGTHS = ("edit_code", "math", "chat", "write"), 40, (1, 2, 4, 8)
asked = {task: [answers[task][0][0]] for task in RACED}
drafters = {gamma: build(f"draft_model:num_tokens={gamma}", context) for gamma in LENGTHS}
race = compare(lm, asked, drafters, max_new_tokens=TOKENS, repeats=1)
print(agreement(lm, race.pairs()))


# %%
lanes = {0: "autoregressive", **{gamma: gamma for gamma in LENGTHS}}  # γ -> its name in the race
traces = {g: [answer.trace for answer in race.answers(lane)] for g, lane in lanes.items()}
counted = {g: race.steps(lane).tokens_per_call for g, lane in lanes.items()}
pace = {g: sum(t.emitted for t in some) / sum(t.decode_seconds for t in some) for g, some in traces.items()}
a = float(np.mean(np.concatenate([bits[task][0][:TOKENS] for task in RACED])))
call = cheap["reduced"].t(1)  # seconds of a call of the draft model
simple = {g: speedup(a, g, c["reduced"]) for g in lanes}
known = {g: counted[g] * costs.t(1) / (costs.t(g + 1) + g * call) for g in lanes}
clock = {g: pace[g] / pace[0] for g in lanes}
formula = {g: expected_tokens(a, g) for g in lanes}
table = {
    "E by the formula": formula,
    "τ counted": counted,
    "theorem 3.8": simple,
    "with τ and t(γ + 1)": known,
    "measured": clock,
}
rows = [[str(g), *(f"{column[g]:.2f}" for column in table.values())] for g in LENGTHS]
display(Markdown(markdown(rows, ["γ", *table])))

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.6))
curves = {
    "τ, counted: tokens per target call": counted,
    "predicted: theorem 3.8, constant α": simple,
    "predicted: counted τ, measured t(γ + 1)": known,
    "measured speedup": clock,
}
for i, (label, values) in enumerate(curves.items()):
    axes.plot(list(values), list(values.values()), label=label, **style.line(i))
axes.axhline(1, color="black", linestyle="--", linewidth=1)
axes.set(xlabel="γ, tokens drafted per step", ylabel="tokens per call; times as fast", ylim=(0, None))
axes.set_xticks([0, *LENGTHS])
axes.legend(loc="best", fontsize=8)
alt = "Over the draft length: tokens per step, two predictions of the speedup, and the speedup measured."
figures.save(fig, "02-speed", alt=alt, model=loaded)

# %%
by_theorem, by_costs, by_clock = (max(values, key=values.get) for values in (simple, known, clock))
print(f"The best γ is {by_theorem} by theorem 3.8, {by_costs} by the measured costs, {by_clock} by the clock", end=" ")
print(f"({clock[by_clock]:.2f} times as fast as no draft)." if by_clock else "(0: none of these gained).")
gap = [clock[g] / known[g] - 1 for g in LENGTHS]
print(f"Measured speedup against that predicted with all costs: {min(gap):+.0%} to {max(gap):+.0%}.")
torn = [g for g in LENGTHS if counted[g] > 1.03 and clock[g] < 1]
print("Fewer target calls and yet slower at γ =", ", ".join(map(str, torn)) or "none of these")
drafted = sum(trace.seconds["draft"] for trace in traces[4]) / sum(trace.drafted for trace in traces[4])
print(f"At γ = 4 a drafted token took {1e3 * drafted:.2f} ms, a call of the draft model {1e3 * call:.2f} ms:", end=" ")
print("the rest is the loop around it." if drafted > call else "the loop is lost in the noise.")

# %% [markdown]
# The steps are the same on every machine, as far as rounding allows; the clock is not.
# Theorem 3.8 is too optimistic wherever $t(\gamma + 1) > t(1)$.
# Where that begins depends on the machine (chapter 00); from there on the error grows with the length of the draft.
# With a large target on a GPU both corrections shrink:
# rows are nearly free, and $c$ is that of a model a hundred times smaller.
# The pair of this chapter is the hard case: the target is so small that a draft model can hardly be much smaller.
#
# ## With sampling
#
# Nothing of the algorithm changes at $T > 0$; the first section of this chapter ran it there.
# The draft is drawn at the same temperature and with the same top-k and top-p as asked of the target.
# Losslessness does not require that (chapter 01); it is the plain choice, and mostly keeps $q$ close to $p$.
# Here are whole answers on the real pair, enumerated: two tokens, drawn from the two best of each law.

# %%
two_best = Sampling(temperature=1.0, top_k=2)
cat = loaded.tokenizer.encode("The cat sat on the mat. The dog sat on the")


def text_of(drafter):
    def run(rng):
        return generate(lm, cat, drafter, max_new_tokens=2, sampling=two_best, rngs=(rng, rng)).tokens

    return enumerate_law(run)


one = build("draft_model:num_tokens=1", Context(lm, sampling=two_best))
laws = [text_of(drafter) for drafter in (NullDrafter(), one)]
print(f"{len(laws[0])} texts of two tokens;", end=" ")
print(f"distance of the laws without and with the draft model: {total_variation(*laws):.1e}")

# %% [markdown]
# With the tables of the first section the distance was below 1e-12.
# Here a forward with two rows may round differently from one with a single row.
# Where it does, the number above is larger than that; where it does not, it is as small (chapter 12).
#
# **Same law, other samples.**
# One seed gives different texts with a draft model and without one.
# The same uniforms answer different questions, here "is this draft accepted", there "which token".
# Both texts are samples of one law, and comparing them tests nothing.

# %%
warm = Sampling(temperature=1.0)
free = build("draft_model:num_tokens=4", Context(lm, sampling=warm))
for name, drafter in (("without a draft", NullDrafter()), ("with the draft model", free)):
    answer = generate(lm, cat, drafter, max_new_tokens=24, sampling=warm, seed=1, stop=loaded.stop)
    print(f"{name}, {answer.trace.target_calls} target calls:\n    {answer.text!r}")

# %% [markdown]
# **How does α depend on the temperature?**
# At each place of the recorded answers the two laws are known,
# so $\beta = \sum_x \min(p, q)$ can be computed without a draw.
# Its mean is α; because of its spread, α alone does not tell everything.

# %%
TEMPERATURES, spread = (0.0, 0.5, 1.0, 1.5), {}
for task in RACED:
    prompt, tokens = answers[task][0]
    chain = DraftTree.chain(prompt[-1], tokens[:-1])
    for model in (lm, small.lm):
        model.prefill(prompt[:-1], reserve=len(tokens))
    ps, qs = (model.forward(chain).logits.double().cpu().numpy() for model in (lm, small.lm))
    scores = np.full(ps.shape, -np.inf)
    scores[:, small.draft_ids] = qs
    for T in TEMPERATURES:
        law = Sampling(temperature=T).law
        spread.setdefault(T, []).extend(np.minimum(law(p), law(q)).sum() for p, q in zip(ps, scores))

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2))
left.hist(spread[1.0], bins=np.linspace(0, 1, 11), **style.bar(1))
left.axvline(np.mean(spread[1.0]), color="black", linestyle="--", linewidth=1, label="their mean, α")
left.set(title="β, place by place, T = 1", xlabel="β", ylabel="places")
left.legend(loc="best")
right.plot(TEMPERATURES, [np.mean(spread[T]) for T in TEMPERATURES], **style.line(1))
right.set(title="α by temperature", xlabel="temperature of both models", ylabel="α, mean of β", ylim=(0, 1))
right.set_xticks(TEMPERATURES)
alt = "Left, a histogram of the acceptance probability over places; right, its mean at four temperatures."
figures.save(fig, "02-beta", alt=alt, model=loaded)

# %%
values = np.array(spread[1.0])
print(f"At T = 1: α = {values.mean():.2f}; {np.mean(values < 0.2):.0%} of the places have β below 0.2,", end=" ")
print(f"{np.mean(values > 0.8):.0%} above 0.8.")
print("α by temperature: " + ", ".join(f"{np.mean(spread[T]):.2f} at T = {T:g}" for T in TEMPERATURES) + ".")

# %% [markdown]
# (The places are those of greedy answers, also for $T > 0$; sampled answers lead to other places.)
#
# ## Pitfalls
#
# - **3.36 and 2.36.**
#   Output tokens include the correction or bonus, accepted tokens do not.
#   Say which you mean.
# - **Row $j$ reads place $n + j - 1$ and speaks about place $n + j$.**
#   Every off-by-one of this chapter violates that line, and none of them crashes.
# - **A right law does not prove the loop.**
#   A loop that forgets what it accepted is lossless and useless.
#   Count calls.
# - **Rejected tokens in the draft model's cache**, or a last draft that it never read:
#   the output is still right, only α is lower.
#   Compare the cache with a fresh forward.
# - **Another tokenizer.**
#   Equal ids of two vocabularies are not the same token.
# - **α > c is the condition**, not "the draft is smaller".
#   A draft model of a quarter of the size with a quarter of the time needs α above ¼ to gain anything,
#   and more to gain much.
# - **γ from the formula with a constant α** is a first guess.
#   The top is flat; $t(\gamma + 1)$ moves it to the left.
# - **Acceptance over drafted tokens** falls with γ by construction.
#   Divide by the tokens *tested*.
# - **The vocabulary is the target's.**
#   Whoever counts a draft model's size in layers forgets the projection, which may be half of its work.
#
# ## Summary
#
# - A step: γ draws from $q_0 \dots q_{\gamma-1}$,
#   one forward with $\gamma + 1$ rows, tests in order, and one token of the target's own.
#   $n$ grows by $k + 1$.
# - $E[\text{tokens}] = (1 - \alpha^{\gamma+1})/(1 - \alpha)$ output, one less accepted; at most $1/(1 - \alpha)$.
# - Speedup $= E/(1 + \gamma c)$, if rows are free.
#   Some γ gains exactly if $\alpha > c$;
#   the best γ is where the next draft's rate $\alpha^{\gamma+1}/c$ falls below the rate so far.
#   With measured costs: $E\,t(1)/(t(\gamma + 1) + \gamma\, t_{\text{draft}})$.
# - After a step the target's cache is right.
#   The draft model's holds rejected tokens to be cut, or lacks its last draft if all were accepted.
# - α is a mean of a β that differs from place to place and from task to task.
#   $1 + \alpha_1 + \alpha_1\alpha_2 + \dots$ with the conditional rates is exact.
# - In a small draft model the projection to the whole vocabulary can weigh as much as the layers.
#   Drafting only frequent tokens makes it cheap and bounds β by $p(K)$.
#
# **Can you answer these?**
# γ = 5 and all drafts were accepted: how many tokens were written, and how many must the draft model read next?
# (Six; two.)
# α = 0.6, $c = 0.6$: which γ?
# (None: α is not above $c$.)
# A run with γ = 8 has τ = 2.9 and one with γ = 4 has 2.7: which is faster?
# (That depends on $c$ and $t(q)$; the second saves four draft calls and four rows per step.)
#
# ## Further reading
#
# - Y. Leviathan, M. Kalman, Y. Matias, *Fast Inference from Transformers via Speculative Decoding*,
#   ICML 2023, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192): algorithm 1, equation 1, theorem 3.8, corollary 3.9
# - C. Chen and others, *Accelerating Large Language Model Decoding with Speculative Sampling*,
#   2023, [arXiv:2302.01318](https://arxiv.org/abs/2302.01318): the same algorithm with a target of 70 billion weights
# - Y. Zhou and others, *DistillSpec: Improving Speculative Decoding via Knowledge Distillation*, ICLR 2024,
#   [arXiv:2310.08461](https://arxiv.org/abs/2310.08461): on whose text, and with which loss, to train a draft model
# - G. Hinton, O. Vinyals, J. Dean, *Distilling the Knowledge in a Neural Network*,
#   2015, [arXiv:1503.02531](https://arxiv.org/abs/1503.02531)
# - W. Zhao and others,
#   *FR-Spec: Accelerating Large-Vocabulary Language Models via Frequency-Ranked Speculative Sampling*,
#   ACL 2025, [arXiv:2502.14856](https://arxiv.org/abs/2502.14856)
