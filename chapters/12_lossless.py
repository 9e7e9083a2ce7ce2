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
# # 12 · Lossless, really?
#
# > **The question of this chapter.**
# > The theorem of this book is about distributions, and its proof uses real numbers.
# > A computer rounds.
# > Does a speculative run give the tokens of ordinary decoding?
# > If not, how soon does it diverge from them, and is anything lost then?
#
# **Afterwards you can**
#
# - tell apart four claims that "lossless" may mean, and say which of them follows from which;
# - explain why the number of rows in a forward changes the logits, and by how much in float32 and in bfloat16;
# - predict from two measured numbers after how many tokens a greedy answer diverges from the autoregressive one;
# - say how to get the same bits from forwards of any width, and what that costs;
# - read a table of ROUGE scores as evidence for losslessness, and say how little it proves.
#
# **Taken for granted:** chapter 01 (the distribution of the output, point-mass drafts),
# chapter 05 (prompt lookup), and from chapter 00 what a forward over several rows is.
#
# **Time:** 25 minutes of reading.
# The cells take about two minutes on two CPU cores,
# and longer on a processor without bfloat16 arithmetic, which must imitate it.

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

# %% [markdown]
# We load the same model twice: in float32, and in bfloat16, the format in which most models are served.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown, display
from specdec_core import CachedLM, load, theory
from specdec_core.race import markdown
from specdec_core.viz import figures, style

style.use()
models = {dtype: load(dtype=dtype) for dtype in ("float32", "bfloat16")}
targets = {dtype: CachedLM(model) for dtype, model in models.items()}
loaded = models["float32"]  # both have the same tokenizer
for model in models.values():
    print(model.why)

# %% [markdown]
# ## Four claims
#
# "Lossless" can mean four things.
# (*Law* is short for the distribution of the output.)
#
# | claim | about | why it should hold |
# |:--|:--|:--|
# | **same law** | the distribution of the output | the theorem of chapter 01, for real numbers |
# | **same tokens** | one greedy answer, or one answer for one seed | if both runs compute the same numbers |
# | **same bits** | every logit that a token was chosen from | not by the theorem: it depends on program and machine |
# | **same quality** | a mean score over many answers | a consequence of the same law |
#
# The same bits give the same tokens, if both runs do the same with the logits.
# The same tokens give the same scores.
# The same law gives the same *expected* score, and for greedy decoding, whose law is a point mass, the same tokens.
# None of these implications can be reversed: equal tokens come from unequal bits all the time,
# equal scores from unequal texts, and equal mean scores from unequal laws.
#
# The chapter starts with the numbers and works up through the table.

# %% [markdown]
# ## Numbers have a spacing
#
# Between $2^e$ and $2^{e+1}$, the numbers of a format with $b$ bits in its significand lie $2^{e-b+1}$ apart.
# Every result is rounded to one of them; half-way cases go to the number whose last bit is 0.
# float32 has $b = 24$, bfloat16 has $b = 8$ and keeps float32's range of exponents.
#
# **By hand.** From 256 on, bfloat16 has a spacing of $2^{8-7} = 2$.
# So $256 + 1 = 257$ lies half-way between 256 and 258 and is rounded to 256.
# Hence $(256 + 1) + 1 = 256$, but $256 + (1 + 1) = 258$: addition is not associative.
# A logit is a sum of hundreds of products, and **the order of its additions is part of its value**.

# %%
# NBVAL_CHECK_OUTPUT
def added(a, b):
    """a + b in bfloat16, by the definition above."""
    return theory.rounded(a + b, 8)


big, one = torch.tensor([256.0, 1.0], dtype=torch.bfloat16)
print(f"torch:      (256 + 1) + 1 = {float((big + one) + one):g},  256 + (1 + 1) = {float(big + (one + one)):g}")
print(f"specdec:    (256 + 1) + 1 = {added(added(256, 1), 1):g},  256 + (1 + 1) = {added(256, added(1, 1)):g}")
for name, bits in theory.BITS.items():
    print(f"{name:9}{bits:3} bits: near 20 the numbers lie {theory.spacing(20.0, bits):.2g} apart")

# %% [markdown]
# Two tokens whose logits near 20 differ by 0.1 may well be stored as the same number in bfloat16.

# %% [markdown]
# ## The shape of a forward
#
# Ordinary decoding runs forwards of one row.
# A step that checks $\gamma$ drafted tokens runs $\gamma + 1$ rows.
# The formula for each row is the same; the program is not.
# The product of a matrix and *one* vector runs other code than the product of two matrices.
# That code cuts the sums into pieces of other sizes, and adds the pieces in another order.
# Attention sums over keys in blocks, and where a block ends depends on how many keys there are.
#
# To see this effect alone, take known answers and read them again:
# the same tokens at the same places, once in forwards of one row, then of 2, 8 and 32 rows.
# The wider readings are runs in which every draft is right.
# The answers belong to six short prompts.

# %%
from specdec_core import generate
from specdec_core.drafters import PromptLookup
from specdec_core.race import own

LENGTH, WIDTHS, stop = 30, (2, 8, 32), loaded.stop
known = []  # (prompt, answer)
for question in own(["write", "math", "chat"], limit=2):
    prompt = loaded.encode(question.turns[0])
    answer = generate(targets["bfloat16"], prompt, PromptLookup(), max_new_tokens=LENGTH, stop=stop).tokens
    known.append((prompt, list(answer)))
print(f"{len(known)} answers, {sum(len(answer) for _, answer in known)} tokens")

# %% [markdown]
# For each row we keep five facts: whether all of its logits have the same bits as in the one-row forward;
# whether its argmax is another token; by how much the **gap** between the two best logits changed;
# the largest change of any logit; and the total variation between the two distributions at $T = 1$.

# %%
def compared(alone, rows):
    """(n, 5): same bits, argmax turned, change of the gap, largest change of a logit, total variation."""
    a, b = alone.double().cpu(), rows.double().cpu()
    best = a.topk(2).indices
    change = (b - a).gather(1, best)
    variation = (a.softmax(1) - b.softmax(1)).abs().sum(1) / 2
    same, turned = (a == b).all(1), a.argmax(1) != b.argmax(1)
    columns = [same, turned, change[:, 0] - change[:, 1], (b - a).abs().amax(1), variation]
    return torch.stack([column.double() for column in columns], 1).numpy()


from specdec_core.measure import reread

gaps = {dtype: [] for dtype in targets}  # between the two best logits of each row
best = {dtype: [] for dtype in targets}  # the best logit
seen = {(dtype, width): [] for dtype in targets for width in WIDTHS}
for prompt, answer in known:
    for dtype, lm in targets.items():
        alone = reread(lm, prompt, answer, 1)
        top = alone.double().cpu().topk(2).values
        gaps[dtype] += (top[:, 0] - top[:, 1]).tolist()
        best[dtype] += top[:, 0].tolist()
        for width in WIDTHS:
            seen[dtype, width].append(compared(alone, reread(lm, prompt, answer, width)))

# %%
BITS, TURNED, CHANGE, LARGEST, VARIATION = range(5)
shapes = {key: np.concatenate(parts) for key, parts in seen.items()}  # (rows, 5)
table = []
for (dtype, width), found in shapes.items():
    sizes = np.abs(found[:, CHANGE]).mean(), found[:, LARGEST].max(), found[:, VARIATION].mean()
    same = f"{found[:, BITS].sum():.0f} of {len(found)}"
    table.append([dtype, str(width), same, *(f"{size:.1e}" for size in sizes)])
columns = ["format", "rows per forward", "rows with the same bits", "mean change of the gap"]
columns += ["largest change of a logit", "mean variation"]
display(Markdown(markdown(table, columns)))

# %%
same = sum(found[:, BITS].sum() for found in shapes.values()) / sum(map(len, shapes.values()))
change = {d: np.mean([np.abs(shapes[d, width][:, CHANGE]).mean() for width in WIDTHS]) for d in targets}
factor = change["bfloat16"] / change["float32"]
print(f"Over both formats {same:.0%} of the rows keep all of their bits when the forward gets wider.")
sizes = " and by ".join(f"{size:.1e} in {dtype}" for dtype, size in change.items())
print(f"The gap changes on average by {sizes}.")
print(f"That is a factor of {factor:,.0f}; the spacings of the two formats differ by a factor of {2**16:,}.")

# %% [markdown]
# The two factors need not agree.
# Products in bfloat16 are usually added up in float32, and only the results are rounded;
# where two sums round to the same number, their difference is gone.
# Nothing here is random: run a cell again, and the numbers are the same.
# The change is a function of the shape.

# %% [markdown]
# ## Near ties
#
# A greedy token turns if the change is larger than the gap.
# Let $g \ge 0$ be the gap between the two best logits, and let the other shape add $d$ to it.
# The argmax turns if $g + d < 0$.
# Gaps have a density $f$; for gaps as small as the changes, it is practically $f(0)$.
# So
#
# $$P(\text{turn}) = E\left[\int_0^{\max(0, -d)} f(g)\,dg\right]
# \approx f(0)\,E[\max(0, -d)] = \tfrac12\, f(0)\, E|d|,$$
#
# where the last step assumes that $d$ is positive as often as negative.
# Two numbers decide: how many near ties the *text* has, and how large the changes of the *format* are.
# They have little to do with each other, so we can predict a rate for a format in which no turn was ever seen.
#
# **By hand.** One gap in ten is below 0.25, so $f(0) = 0.1/0.25 = 0.4$.
# With $E|d| = 0.05$ the rate is $0.4 \cdot 0.05 / 2 = 0.01$: one token in a hundred.
# With $E|d| = 10^{-5}$ it is one in 500,000.

# %%
# NBVAL_CHECK_OUTPUT
def wait(rate):
    """A rate in words."""
    return f"one token in {1 / rate:,.0f}" if rate else "no token"


density = theory.near_tie_density([0.1] + 9 * [1.0], within=0.25)
for shift in (0.05, 1e-5):
    print(f"f(0) = {density:.1f}, E|d| = {shift:g}: {wait(theory.flip_rate(density, shift))}")

# %% [markdown]
# Now measured, with $f(0)$ from the float32 gaps below one half and $E|d|$ from the table above:

# %%
WITHIN = 0.5
f0 = theory.near_tie_density(gaps["float32"], WITHIN)
rate = {dtype: theory.flip_rate(f0, change[dtype]) for dtype in targets}
tested = {dtype: sum(len(shapes[dtype, width]) for width in WIDTHS) for dtype in targets}
turned = {dtype: int(sum(shapes[dtype, width][:, TURNED].sum() for width in WIDTHS)) for dtype in targets}
near = sum(g < WITHIN for g in gaps["float32"])
print(f"f(0) = {f0:.2f} per unit of logit, from {near} of {len(gaps['float32'])} gaps")
for dtype in targets:
    print(f"{dtype:9} {wait(rate[dtype])} should turn; of {tested[dtype]} rows", end=" ")
    print(f"we expect {tested[dtype] * rate[dtype]:.2g} to turn, and {turned[dtype]} did")

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.8))
ordered = np.sort(gaps["float32"])
x, shares = np.geomspace(1e-6, WITHIN, 50), np.arange(1, len(ordered) + 1) / len(ordered)
axes.step(ordered, shares, where="post", label="measured gaps, float32", **(style.line(0) | {"marker": ""}))
axes.plot(x, f0 * x, label="f(0) · x", **(style.line(1) | {"marker": ""}))
for i, (dtype, size) in enumerate(change.items()):
    look = style.line(i + 2)
    axes.axvline(size, color=look["color"], linestyle=look["linestyle"], label=f"E|d|, {dtype}")
    axes.plot(size, rate[dtype], **(look | {"linestyle": "none"}), label=f"rate, {dtype}")
axes.set(xscale="log", yscale="log", xlim=(1e-6, 30), ylim=(1e-7, 1.5))
axes.set(xlabel="x, in units of logit", ylabel="share of the tokens with a gap below x")
axes.legend(loc="lower right")
alt = "Share of gaps below x, both axes logarithmic; a line continues it to the tiny changes of float32."
figures.save(fig, "12-gaps", alt=alt, model=models["float32"])

# %% [markdown]
# *A vertical line meets the dashed one at $f(0) E|d|$; the rate is half of that.*
# No run of this length can show the float32 rate.
# The line that leads to it rests on one assumption, that the density of gaps stays the same down to zero.
# That is plausible, since nothing in a text depends on differences as small as these.

# %% [markdown]
# ## Exact ties
#
# In bfloat16 a near tie can become an exact tie.
# If two logits are $g$ apart and the spacing is $s > g$, they are rounded to the same number
# with probability $1 - g/s$, since a rounding boundary lies between them with probability $g/s$.
# So
#
# $$P(\text{tie}) \approx f(0) \int_0^s (1 - g/s)\,dg = \tfrac12 f(0)\,s.$$
#
# This is the formula of the last section with the spacing in place of $E|d|$.
# **By hand:** near 20 bfloat16 has $s = 0.125$; with $f(0) = 0.4$ that gives $0.4 \cdot 0.125/2 = 0.025$.

# %%
for dtype in targets:
    spacing = np.mean(theory.spacing(np.array(best[dtype]), theory.BITS[dtype]))
    ties = sum(gap == 0 for gap in gaps[dtype])
    expected = len(gaps[dtype]) * theory.flip_rate(f0, spacing)
    print(f"{dtype:9} mean spacing {spacing:.1e}: {expected:.2g} exact ties expected,", end=" ")
    print(f"{ties} found in {len(gaps[dtype])} tokens")

# %% [markdown]
# At a tie the argmax takes the token with the lower id.
# The rule has no meaning, but it is the same in every forward.
# Whether there *is* a tie is not: the next forward may round one of the two up.
#
# **Play.** A is the better token by a small gap.
# The lower line is a forward of another shape, in which the logit of B came out a little higher.
# Find a shift that turns the token in float32 and not in bfloat16.
# Why can no shift do the opposite, and why could one if B had the lower id?
# (Rounding keeps the order, or makes two numbers equal.)
# Then look for the place where the spacing doubles.

# %%
from specdec_core.viz import near_tie

near_tie.slider(best=20.3, gap=0.04, shift=0.06)

# %% [markdown]
# ## First divergences
#
# Now the live run: five articles to summarize, ordinary decoding against prompt lookup, greedily, in both formats.
# The answers are as long as those above.
# (We also sample each of them twice in bfloat16, for the last section.)

# %%
from specdec_core import Sampling
from specdec_core.drafters import NullDrafter
SETTINGS = [("float32", 0.0), ("bfloat16", 0.0), ("bfloat16", 1.0)]  # format, temperature
METHODS = {"autoregressive": NullDrafter, "prompt lookup": PromptLookup}
articles = {question.id: loaded.encode(question.turns[0]) for question in own("summarize", limit=5)}
runs = {}  # (format, T, method) -> {question: generation}
for seed, (name, drafter) in enumerate(METHODS.items()):  # two seeds: at T = 1 two independent draws
    for dtype, T in SETTINGS:
        how = {"max_new_tokens": LENGTH, "stop": stop, "sampling": Sampling(temperature=T), "seed": seed}
        runs[dtype, T, name] = {
            key: generate(targets[dtype], prompt, drafter(), **how) for key, prompt in articles.items()
        }

# %%
from specdec_core.measure import first_difference, logit_gap

diverged = []  # (format, question, place)
rows = []
for dtype, T in SETTINGS[:2]:
    for key, prompt in articles.items():
        right, other = (runs[dtype, T, name][key].tokens for name in METHODS)
        if (at := first_difference(right, other)) is None:
            continue
        diverged.append((dtype, key, at))
        gap = {d: logit_gap(lm, [*prompt, *right[:at]]) for d, lm in targets.items()}
        pair = [repr(loaded.decode([t[at]], False)) if at < len(t) else "(end)" for t in (right, other)]
        rows.append([dtype, key, str(at + 1), *pair, *(f"{gap[d]:.3g}" for d in targets)])
columns = ["format", "question", "first different token", *METHODS, *(f"gap in {d}" for d in targets)]
display(Markdown(markdown(rows, columns) if rows else "No answer diverged in this run."))

# %%
counts = {dtype: sum(d == dtype for d, _, _ in diverged) for dtype in targets}
for dtype in targets:
    expected = len(articles) * (1 - theory.identical_probability(rate[dtype], LENGTH))
    print(f"{dtype:9} {counts[dtype]} of {len(articles)} answers diverged; by the rate we expect {expected:.2g}")

# %% [markdown]
# The gap comes from a fresh reading of the common text, which is a third shape.
# Where its bfloat16 gap is 0, the choice was between two equal numbers,
# and the float32 gap says how little the model itself preferred one of them.
# (The predicted rate is for rows of wide forwards.
# A step without a draft has one row, as in ordinary decoding, but reads keys and values that wider steps wrote.)
#
# After the first different token the contexts differ, so comparing further tokens means nothing.
# The honest measure is the *first* divergence.
# The chance that two answers are still identical falls with their length $n$:
# $P(\text{identical}) = (1 - \text{rate})^{n}$.

# %%
reread_turns = [part[:, TURNED] for width in WIDTHS for part in seen["bfloat16", width]]
firsts = [int(np.argmax(turns)) + 1 if turns.any() else np.inf for turns in reread_turns]
firsts += [next((at + 1 for d, k, at in diverged if (d, k) == ("bfloat16", key)), np.inf) for key in articles]
intact = [np.mean([first > n for first in firsts]) for n in range(LENGTH + 1)]

fig, axes = plt.subplots(figsize=(7.6, 3.6))
n = np.geomspace(1, 1e7, 200)
for i, dtype in enumerate(targets):
    curve = theory.identical_probability(rate[dtype], n)
    axes.plot(n, curve, label=f"predicted, {dtype}", **(style.line(i + 1) | {"marker": ""}))
look = style.line(0) | {"marker": "", "linewidth": 2.4}
axes.step(range(1, LENGTH + 1), intact[1:], where="post", label="measured, bfloat16", **look)
axes.set(xscale="log", ylim=(0, 1.05))
axes.set(xlabel="n, tokens of the answer", ylabel="share of answers still identical")
axes.legend(loc="lower left")
alt = "Share of answers identical to ordinary decoding against length: bfloat16 falls long before float32."
figures.save(fig, "12-identical", alt=alt, model=models["bfloat16"])

# %% jupyter={"source_hidden": true}
half = {d: f"{np.log(0.5) / np.log1p(-rate[d]):,.0f}" if rate[d] else "no number of" for d in targets}
widest, steady = shapes["bfloat16", WIDTHS[-1]][:, TURNED], len(shapes["bfloat16", WIDTHS[-1]])
display(Markdown(
    f"If the rates hold, half of the answers diverge within {half['bfloat16']} tokens in bfloat16, "
    f"and within {half['float32']} tokens in float32.\n\n"
    "> **The notes say …** that parallel Jacobi decoding ends at *exactly* the autoregressive tokens, without loss "
    "of precision (lookahead article), and that model-free methods are *strictly* lossless (model-free chapter, "
    "sections 6.4 and 11). For real numbers that is proved. On a machine, Jacobi's iteration solves the equations "
    "of a forward with many rows, and ordinary decoding those of a forward with one. "
    f"Measured: with {WIDTHS[-1]} rows in bfloat16, {int(widest.sum())} of {steady} tokens of known answers "
    "have another argmax. "
    + ("So the two systems have different solutions there, and both are right." if widest.any() else
       "In this run the two systems agree; the rate above says how long that lasts.")
    + f" In float32 we expect {wait(rate['float32'])} to turn."
))

# %% [markdown]
# The developers of lookahead decoding report the same from practice:
# in float16 their results sometimes differ from greedy search, in float32 they are the same
# ([issue 16](https://github.com/hao-ai-lab/LookaheadDecoding/issues/16) of their repository).
# The developers of transformers name the number of rows as the reason
# ([issue 39421](https://github.com/huggingface/transformers/issues/39421)).
# And vLLM's documentation promises losslessness "up to the precision limits of hardware numerics"
# ([Speculative Decoding](https://docs.vllm.ai/en/v0.17.0/features/speculative_decoding/)).
#
# Nor is this special to speculative decoding.
# Another batch size, a prefill in other pieces or another GPU does the same to ordinary decoding
# ([arXiv:2506.09501](https://arxiv.org/abs/2506.09501)).
# A greedy answer in bfloat16 is *an* answer of the model, not *the* answer.

# %% [markdown]
# ## And sampling?
#
# With $T > 0$ the theorem speaks of the law, and rounding moves the law itself.
# How far?
# Let every logit change by at most $\delta$.
# Then weights grow or shrink by a factor of at most $e^\delta$.
# Suppose that tokens of mass $a$ grow and the rest shrink.
# With $r = e^{2\delta}$ the mass $a$ becomes $ar/(ar + 1 - a)$.
# The gain $ar/(ar + 1 - a) - a$ is largest at $a = 1/(1 + e^\delta)$, and there it is
#
# $$\mathrm{TV} \le \tanh(\delta/2).$$
#
# **By hand:** for $\delta = 0.1$ the series $\tanh x \approx x - x^3/3$ gives $0.05 - 0.00004 = 0.04996$.

# %%
print(f"δ = 0.1: {theory.law_shift_bound(0.1):.5f}")
table = []
for dtype in targets:
    found = np.concatenate([shapes[dtype, width] for width in WIDTHS])
    moved, bounds = found[:, VARIATION], theory.law_shift_bound(found[:, LARGEST])
    sizes = (moved.mean(), moved.max(), bounds.mean())
    table.append([dtype, *(f"{size:.1e}" for size in sizes), f"{np.mean(moved <= bounds):.0%}"])
columns = ["format", "mean variation", "largest", "mean of the bounds", "rows within their bound"]
display(Markdown(markdown(table, columns)))

# %% [markdown]
# So "the output follows $p$" becomes "every token follows a law no further from $p$ than this bound".
# The bound is a distance between two roundings of the same model, neither of which is the true one.
#
# **One seed, the same tokens?**
# The theorem does not promise that.
# But the check of a point-mass draft draws $y$ from $p$ and looks whether a child equals $y$ (chapter 01),
# so it spends one uniform number per token, just as ordinary decoding does.
# With the same seed the two are the same function of $p$.
# At $T = 1$ they diverge only where a uniform number falls between two roundings of a cumulative sum.
# A draft *drawn* from a model spends its numbers differently,
# and there one seed gives two different answers from the same law.
# We test this on the article on which prompt lookup's run at $T = 1$ took the fewest steps per token.
# We decode it once more in float32 with the seed of that run, with both methods:

# %%
drafted = runs["bfloat16", 1.0, "prompt lookup"]
key = min(drafted, key=lambda name: drafted[name].trace.target_calls / len(drafted[name].tokens))
how = {"max_new_tokens": LENGTH, "stop": stop, "sampling": Sampling(temperature=1.0), "seed": 1}
pair = [generate(targets["float32"], articles[key], drafter(), **how) for drafter in METHODS.values()]
verdict = "the same" if pair[0].tokens == pair[1].tokens else "different"
calls = [run.trace.target_calls for run in pair]
print(f"{key}, T = 1, one seed: the tokens are {verdict}, in {calls[0]} forwards and in {calls[1]}")

# %% [markdown]
# ## The same bits at every width
#
# If the shape changes the rounding, give every forward the same shape.
# `CachedLM(model, numerics="invariant")` does that.
# Its design is a list of everything that depends on shape:
#
# 1. **Rows.** Matrix products sum in an order that depends on the number of rows.
#    So every forward has the same width:
#    smaller trees are padded with rows that nobody looks at, larger ones take several forwards.
#    The projection to the vocabulary runs over the padding, too.
# 2. **Keys.** Attention sums over the context in blocks,
#    whose borders depend on the number of keys, which includes the rows of this forward.
#    So that number is rounded up to a multiple of a block, and the excess is masked.
# 3. **Order of the keys.** In a tree the keys of a row's ancestors are not neighbors: siblings lie between them.
#    A masked key adds an exact 0, yet it takes a place in the sum, and the others move to other partial sums.
#    So each path from the root to a leaf is laid out after the context,
#    as the chain that it would be in ordinary decoding.
# 4. **Queries.** Attention is two matrix products, and its rows are the queries.
#    So they attend in tiles of a fixed number, four here:
#    one tile for a single token, three for a chain of eleven, one or two for the rows that a path adds to a tree.
# 5. **The device.** Which width, block and tile are enough depends on kernels, and no standard describes them.
#    So they are *found* by a test.
#    The model reads a random text in forwards of one token,
#    then as a chain and as a path through a tree, across the lengths at which kernels are seen to change.
#    The test compares all bits of the logits.
#
# Point 3 first, with random numbers as queries, keys and values: a tree of three branches after 40 keys.
# We compute the last branch in the tree and as a chain:

# %%
from specdec_core import DraftTree
from specdec_core.model import Flight, attend

tree, base, width = DraftTree.from_paths(0, [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]), 40, 16
noise = np.random.default_rng(0)
q, k, v = (torch.tensor(noise.normal(size=(base + width, heads, 64))).float() for heads in (9, 3, 3))
leaves = [tree.path_to(leaf) for leaf in (4, 8, 12)]


def last_branch(rows, ancestors, depths, paths):
    """Attention of these rows of a tree behind `base` keys in a forward of `width` rows, in tiles if along paths."""
    visible, positions = np.eye(width, dtype=bool), np.full(width, base)
    visible[: len(rows), : len(rows)], positions[: len(rows)] = ancestors, base + depths
    place = [*range(base), *(base + row for row in rows), *range(base + len(rows), base + width)]
    flight = Flight(base, 0, visible, positions, q.dtype, q.device, paths, tile=4)
    return attend(q[place][base:], k[place], v[place], flight, scale=64**-0.5)


ways = {"keys as they lie in the tree": (None, None), "each path laid out as a chain": ([[*range(5)]], leaves)}
for name, (alone, paths) in ways.items():
    chain = last_branch(leaves[2], np.tri(5, dtype=bool), np.arange(5), alone)[:5]
    rows = last_branch(range(13), tree.ancestors, tree.depths, paths)[leaves[2]]
    print(f"{name}: {int((rows == chain).all(-1).all(-1).sum())} of 5 rows have the bits of the chain")

# %% [markdown]
# The self-test covers the other points.
# Here it runs with several shapes, on the bfloat16 model.
# It stops at the first length at which bits differ.

# %%
from specdec_core.model import CANDIDATES, Shape, mismatches

fixed = CachedLM(models["bfloat16"], numerics="invariant", shape=CANDIDATES[0])
good = None
for shape in (Shape(16, 1), Shape(16, 64), *CANDIDATES):
    fixed.shape = shape
    wrong = mismatches(fixed)
    outcome = f"{wrong} rows differ" if wrong else "no bit differs"
    print(f"{shape.width} rows, keys in blocks of {shape.block}, tiles of {shape.tile}: {outcome}")
    if not wrong:
        good = shape
        break
print("Chosen:", good or "none. This device needs other shapes; the forwards below do differ.")

# %% [markdown]
# A width of one row would pass every such test, but it would be useless: drafts would be checked one by one.
# We want one width for *many* rows.
#
# Now two of the known answers again, each at all three widths, with this model:

# %%
equal = total = 0
for prompt, answer in known[:2]:
    alone = reread(fixed, prompt, answer, 1)
    for width in WIDTHS:
        equal += int((reread(fixed, prompt, answer, width) == alone).all(1).sum())
        total += len(answer)
print(f"{equal} of {total} rows have the bits of one-row decoding, from forwards of {WIDTHS} rows")

# %% [markdown]
# And live, on articles whose answers diverged above (or the first ones, if none did).
# Prompt lookup drafts chains; suffix decoding drafts trees.

# %%
from specdec_core.drafters import SuffixDecoding

keys = [*(key for dtype, key, _ in diverged if dtype == "bfloat16"), *articles]
keys = list(dict.fromkeys(keys))[:2]
live = {
    (key, name): generate(fixed, articles[key], drafter(), max_new_tokens=LENGTH, stop=stop)
    for key in keys for name, drafter in (METHODS | {"suffix decoding": SuffixDecoding}).items()
}
for (key, name), run in live.items():
    same = run.tokens == live[key, "autoregressive"].tokens
    verdict = "" if name == "autoregressive" else ", the same tokens" if same else ", OTHER tokens"
    print(f"{key}, {name}: {len(run.tokens)} tokens in {run.trace.target_calls} forwards{verdict}")

# %% [markdown]
# This identity is a property of *one* machine, one build of its libraries, one number of threads.
# The invariant answer is not more correct than the fast one; it is reproducible.
# It is good for comparing methods by tokens, for tests that demand equality,
# and for finding bugs, since a difference that remains has no excuse.

# %% [markdown]
# ## What it costs
#
# A one-row forward now runs the full width.
# On a machine where rows are nearly free (chapter 00) that costs little; elsewhere a width of $w$ costs $t(w)/t(1)$.
# A chain of drafts costs nothing more until it is wider than that.
# A tree pays for point 3: attention runs once per path.
# Here forwards of both kinds take turns:

# %%
from statistics import median
from time import perf_counter


def seconds(lm, tree):
    """One forward; a GPU answers when its logits are read."""
    start = perf_counter()
    lm.forward(tree).logits[-1, 0].item()
    return perf_counter() - start


prompt = articles[keys[0]]
kinds = {"one row": DraftTree.empty(prompt[-1]), "a chain of 11 rows": DraftTree.chain(prompt[-1], [7] * 10)}
kinds["a tree of 13 rows, 3 paths"] = tree
times = {}
for lm in (targets["bfloat16"], fixed):
    lm.prefill(prompt[:-1], reserve=64)
for _ in range(12):
    for kind, drafted in kinds.items():
        for lm in (targets["bfloat16"], fixed):
            times.setdefault((kind, lm.numerics), []).append(seconds(lm, drafted))

# %%
cost = {key: median(found[2:]) for key, found in times.items()}
rows = []
for kind in kinds:
    fast, slow = cost[kind, "fast"], cost[kind, "invariant"]
    rows.append([kind, f"{1e3 * fast:.1f} ms", f"{1e3 * slow:.1f} ms", f"{slow / fast:.2f}"])
display(Markdown(markdown(rows, ["a forward over", "fast", "invariant", "ratio"])))

# %%
def tokens_per_step(found):
    return sum(len(run.tokens) for run in found) / sum(run.trace.target_calls for run in found)


tau = tokens_per_step([live[key, "prompt lookup"] for key in keys])
fast, slow = cost["one row", "fast"], cost["one row", "invariant"]
chain = cost["a chain of 11 rows", "invariant"]
print(f"Ordinary decoding takes {slow / fast:.2f} times as long when it is invariant.")
print(f"Prompt lookup, with {tau:.2f} tokens per step here, is {tau * slow / chain:.2f} times as fast as that,")
print(f"and {tau * fast / chain:.2f} times as fast as fast ordinary decoding", end=" ")
print("(forwards alone, as if every step drafted 10 tokens).")

# %% [markdown]
# Two things follow.
# **Speedups measured within invariant numerics look better than they are**,
# because the baseline pays for rows that it does not use: there the speedup of a chain is close to τ.
# So say which baseline it was.
# And the price depends on the machine: it is small where reading the weights is the bottleneck.
#
# There are other ways to the same end:
# kernels that keep one order for every batch size (H. He and Thinking Machines Lab, 2025, see below),
# or float32 arithmetic on weights that are stored in bfloat16 ([arXiv:2506.09501](https://arxiv.org/abs/2506.09501)),
# which keeps the shapes free and makes turns rare instead of impossible.

# %% [markdown]
# ## Quality beside identity
#
# If tokens may differ, is the text still as good?
# Papers answer with scores.
# The lookahead paper ([arXiv:2402.02057](https://arxiv.org/abs/2402.02057), Table 2) compares summaries by ROUGE,
# with and without its method, at temperatures 0 and 1.
# Here is the same comparison on our five articles.
#
# **ROUGE** counts what a text and a reference have in common:
# words (ROUGE-1), pairs of neighboring words (ROUGE-2), and the longest common subsequence of words (ROUGE-L).
# With $m$ in common among $n_a$ and $n_b$, precision is $m/n_a$,
# recall is $m/n_b$, and their harmonic mean is $F_1 = 2m/(n_a + n_b)$.
#
# **By hand.** "the lens bends light" has 4 words, "a lens bends the light" has 5.
# All 4 words are common: $2 \cdot 4/9 = 0.889$.
# Among 3 and 4 pairs one is common, *lens bends*: $2/7 = 0.286$.
# The longest common subsequence is *lens bends light*: $2 \cdot 3/9 = 0.667$.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.race import references, rouge

scores = rouge("the lens bends light", "a lens bends the light")
print(", ".join(f"{name} {score:.3f}" for name, score in zip(("ROUGE-1", "ROUGE-2", "ROUGE-L"), scores)))

# %% [markdown]
# The references are summaries written by hand, one per article.
# The table has the mean scores in points (times 100),
# the number of answers that equal those of the ordinary run above them, and τ.

# %%
written = references()
scored = {
    key: 100 * np.array([rouge(run.text, written[q]) for q, run in found.items()])
    for key, found in runs.items()
}
rows = []
for dtype, T in SETTINGS:
    for name in METHODS:
        found, plain = runs[dtype, T, name], runs[dtype, T, "autoregressive"]
        equal = sum(found[q].tokens == plain[q].tokens for q in articles)
        same = f"{equal} of {len(articles)}" if name != "autoregressive" else ""
        means = (f"{score:.2f}" for score in scored[dtype, T, name].mean(0))
        rows.append([f"{T:g}", dtype, name, *means, same, f"{tokens_per_step(found.values()):.2f}"])
display(Markdown(markdown(rows, ["T", "format", "method", "ROUGE-1", "ROUGE-2", "ROUGE-L", "identical", "τ"])))

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.4))
r1 = {key: scores[:, 0] for key, scores in scored.items()}
plain = {(dtype, T): r1[dtype, T, "autoregressive"] for dtype, T in SETTINGS}
method = {(dtype, T): r1[dtype, T, "prompt lookup"] - plain[dtype, T] for dtype, T in SETTINGS}
pairs = {
    "float32: prompt lookup": method["float32", 0.0],
    "bfloat16: prompt lookup": method["bfloat16", 0.0],
    "bfloat16 for float32": plain["bfloat16", 0.0] - plain["float32", 0.0],
    "bfloat16, T = 1: prompt lookup": method["bfloat16", 1.0],
    "bfloat16, T = 1 for greedy": plain["bfloat16", 1.0] - plain["bfloat16", 0.0],
}
for i, (name, differences) in enumerate(pairs.items()):
    spread = np.linspace(-0.2, 0.2, len(differences))
    axes.plot(differences, i + spread, **(style.line(i) | {"linestyle": "none"}))
    axes.plot([differences.mean()] * 2, [i - 0.35, i + 0.35], color="black", linewidth=2)
axes.set_yticks(range(len(pairs)), pairs)
axes.invert_yaxis()
axes.set_xlabel("difference in ROUGE-1, points; each mark is an article, the bar their mean")
alt = "Differences in ROUGE-1 by article, five rows: a method in three settings; two formats; two temperatures."
figures.save(fig, "12-rouge", alt=alt, model=models["bfloat16"])

# %% [markdown]
# The figure has two yardsticks beside the method: the format and chance.
# Changing from float32 to bfloat16 turns tokens in ordinary decoding, too.
# And at $T = 1$ two answers from the *same* law differ by as much as the fourth row shows:
# prompt lookup had another seed there, and compared with chance its rounding does not count.

# %%
dice, rounding = method["bfloat16", 1.0], method["bfloat16", 0.0]
spread = dice.std(ddof=1)
error, needed = spread / np.sqrt(len(dice)), (2 * spread / 0.05) ** 2
print(f"T = 1, prompt lookup against ordinary: {dice.mean():+.2f} points, standard error {error:.2f}.")
print(f"It would take {needed:,.0f} articles to see a difference of 0.05 points at two standard errors.")
print(f"Greedy in bfloat16: no article moved by more than {np.abs(rounding).max():.1f} points,", end=" ")
print(f"the mean by {rounding.mean():+.2f}.")

# %% [markdown]
# **What a table of scores proves.** A mean score reduces a whole distribution to one number.
# **By hand:** let the reference be "a b", and let the model answer "a" or "b", each half of the time.
# Both answers have ROUGE-1 $= 2/3$.
# A broken method that *always* answers "a" has the same mean in every experiment of any size,
# and a total variation of one half.

# %%
# NBVAL_CHECK_OUTPUT
right, broken = {"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 0.0}
for name, law in (("the model", right), ("broken", broken)):
    print(f"{name}: mean ROUGE-1 {sum(share * rouge(text, 'a b').r1 for text, share in law.items()):.3f}")
print("total variation:", sum(abs(right[text] - broken[text]) for text in right) / 2)

# %% jupyter={"source_hidden": true}
display(Markdown(
    "> **The notes say …** (lookahead article, on the paper's Table 2) that ROUGE with and without lookahead differs "
    "by at most 0.05 points at temperatures 0 and 1, and that this *verifies* that checking keeps the law of the "
    "output, greedily and in sampling. That does not follow. Losslessness predicts equal scores, but many lossy "
    "methods give them as well (the broken one above, for example). At $T = 0$ a lossless method on exact numbers "
    "gives a difference of exactly 0, so any difference left there is rounding, or a bug. At $T = 1$ a difference "
    "as small as 0.05 says little unless there are many articles: with the spread of our model it would take "
    f"{needed:,.0f} of them. The law is verified by the proof and, for a program, by the exact enumeration "
    "of chapter 01. The paper's table is for something else, and shows it: a user would notice no loss."
))

# %% [markdown]
# The note adds that fewer drafts are accepted at $T = 1$ than at $T = 0$.
# The column τ shows whether that holds for prompt lookup here.

# %%
cold, hot = (tokens_per_step(runs["bfloat16", T, "prompt lookup"].values()) for T in (0.0, 1.0))
verdict = "as the note says" if hot < cold else "not so in this run"
print(f"τ = {cold:.2f} at T = 0 and {hot:.2f} at T = 1: {verdict}")

# %% [markdown]
# ## Pitfalls
#
# - **"Lossless" without saying what.** Law, tokens, bits or quality: name one.
# - **Testing bfloat16 by equality of tokens.** A correct program will fail this test.
#   Test in float32 or float64 with small models, or with invariant numerics.
#   Or allow a difference where the gap is below the rounding, and *print the gap*.
# - **Excusing every difference with rounding.** A divergence at a gap of 2 is a bug.
#   So is a float32 run that diverges every few hundred tokens.
# - **Comparing tokens after the first divergence.** The contexts differ,
#   so neither agreement nor difference means anything.
# - **Counting identical answers without their length.** With any rate above 0, long enough answers give 0 %.
# - **A speedup measured in invariant numerics against an invariant baseline**, quoted without saying so.
# - **Equal scores as a proof.** They only check that nothing is badly broken, and need a standard error.
# - **Blaming speculation.** First compare ordinary decoding with itself at another batch size.
#
# ## Summary
#
# - The theorem holds for real numbers.
#   Two runs of a program agree as far as they compute the same numbers, and the shape of a forward affects the numbers.
# - A greedy token turns with probability $\frac12 f(0) E|d|$: near ties of the text times changes of the format.
#   From float32 to bfloat16 the changes and the rate grow by orders of magnitude.
# - With a coarse spacing $s$ near ties become exact: a share $\frac12 f(0) s$ of the tokens.
# - In sampling, rounding moves the law of a token by at most $\tanh(\delta/2)$.
#   With point-mass drafts even the tokens are the same for the same seed,
#   but for the rare uniform number between two roundings.
# - One width, blocks of keys, paths laid out as chains, and a self-test give the same bits at every width.
#   The price is the time of the padding and, for a tree, of laying out each path.
# - Mean scores are too blunt to prove that the law is kept, or to notice that it is not.
#
# ## Further reading
#
# - Y. Leviathan, M. Kalman, Y. Matias, *Fast Inference from Transformers via Speculative Decoding*,
#   ICML 2023, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192), and C. Chen and others,
#   *Accelerating Large Language Model Decoding with Speculative Sampling*,
#   2023, [arXiv:2302.01318](https://arxiv.org/abs/2302.01318): the theorem
# - Y. Fu, P. Bailis, I. Stoica, H. Zhang, *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*,
#   ICML 2024, [arXiv:2402.02057](https://arxiv.org/abs/2402.02057): the comparison by ROUGE
# - J. Yuan and others, *Understanding and Mitigating Numerical Sources of Nondeterminism in LLM Inference*,
#   NeurIPS 2025, [arXiv:2506.09501](https://arxiv.org/abs/2506.09501): what batch size and GPU do to greedy answers
# - H. He and Thinking Machines Lab, *Defeating Nondeterminism in LLM Inference*, 2025,
#   [thinkingmachines.ai](https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/):
#   kernels that do not depend on the batch
# - C.-Y. Lin, *ROUGE: A Package for Automatic Evaluation of Summaries*, 2004,
#   [aclanthology.org/W04-1013](https://aclanthology.org/W04-1013/): the score
