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
# # 00 · Start here
#
# > **The question of this chapter.**
# > A language model writes one token per pass.
# > Why can it *check* eight guessed tokens in little more time than it needs to write one, and where does that stop?
#
# **Afterwards you can**
#
# - race ordinary decoding against a speculative method, and read both scoreboards, forwards and seconds;
# - say what one token costs, without a key-value cache and with one;
# - measure how the time of a forward grows with its tokens, and explain the curve with two numbers of your machine;
# - tell from that curve, before any race, how good a draft has to be.
#
# **Taken for granted:** some Python, and a rough idea of what a language model does:
# tokens go in, and a score for each possible next token comes out.
# No probability theory yet, and no GPU.
#
# **Time:** 25 minutes of reading.
# The cells take little more than a minute on two CPU cores.
# Run them in order, with nothing else going on, because half of them use a stopwatch.
#
# The boxes **The notes say …** examine single statements of four sets of reading notes from which this book grew.
# The appendix collects them.

# %% [markdown]
# ## Set up
#
# The first cell of every chapter is this one.
# Where the package is installed, as after `make lab` or on Binder, it does nothing.
# In a bare Python, or on Colab, it installs the package from a checkout of the repository,
# and the cell shows what pip adds, and which older versions it finds and replaces.

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
# Now a model.
# The default is SmolLM2-135M-Instruct: small enough for a laptop, fetched once (93 MB) and kept.
# `load` takes a GPU if there is one, and 16-bit numbers if the hardware computes with them.
# It says what it chose.

# %%
from specdec_core import CachedLM, load
from specdec_core.viz import style

style.use()
loaded = load("default")
lm = CachedLM(loaded)
print(loaded.why)

# %% [markdown]
# With 135 million parameters it often writes nonsense.
# That does not matter here:
# the methods of this book promise to return *what the model would have written anyway*, only sooner.
# Good or bad, the text is the model's own.
#
# ## One race in one minute
#
# **Autoregressive decoding** is the ordinary way.
# One pass of the model, a *forward*, reads the text so far and scores every possible next token.
# One of them is appended, and the next forward begins.
# In this chapter the token with the best score is appended, which is called *greedy* decoding.
# (Chapter 01 draws it at random.)
# Fifty tokens take fifty forwards, one after the other.
#
# **Speculative decoding** puts a cheap guess in front: a *draft* of the next few tokens.
# The model, now called the *target*, reads all of them in one forward, which scores every position at once.
# We keep the drafted tokens for as long as each is what the target would have written.
# At the first that is not, we take the target's own token instead.
# One such turn of the loop, a draft, a forward and a check, is a *step*.
# A step writes at least one token, as before, and at best all the drafted ones and one more.
#
# Who writes the draft?
# Nearly every chapter of this book answers that differently.
# The simplest answer is **prompt lookup**:
# find the last few tokens somewhere earlier in the text, and draft what followed them there.
# It needs no second model and no training.
#
# We race the two on two requests:
# one asks for a small change in a function and for the whole function back, the other for the opening of a novel.
# They were chosen because they show the two ways this can end.

# %%
from specdec_core.race import own

questions = {question.id: question for question in own(["edit_code", "write"])}
tasks = {"edit code": questions["edit_code-03"], "write": questions["write-04"]}
prompts = {task: loaded.encode(question.turns[0]) for task, question in tasks.items()}
for task, question in tasks.items():
    print(f"{task}: {len(prompts[task])} tokens\n    {question.turns[0].splitlines()[0]}\n")

# %% [markdown]
# `compare` runs both methods in the same loop; autoregression is the method whose draft is always empty.
# They take turns, three times over, so that a busy moment of the machine hits both.
# (A short run before the stopwatch starts is not counted, because first calls are slow.)

# %%
from specdec_core import compare

LENGTH = 96
asked = {task: [prompt] for task, prompt in prompts.items()}
race = compare(lm, asked, ["prompt_lookup"], max_new_tokens=LENGTH, repeats=3)
winner, loser = (race.answers("prompt_lookup", task)[0] for task in tasks)

# %% [markdown]
# There are two scoreboards.
# The first counts **steps**: $\tau$ is the number of tokens per forward of the target, on average.
# Autoregression has $\tau = 1$; a method with drafts cannot have less.
# The second is the **clock**: tokens per second, and how many times faster than autoregression that is.
# (The time to read the prompt is the same for both and is left out.
# Of the three repeats each column gives the middle one, and in brackets the slowest and the fastest.
# The ratio is taken repeat by repeat, so its middle value need not be the ratio of the two middle speeds.)

# %%
from IPython.display import Markdown, display
from specdec_core.race import markdown

rows = []
for task in tasks:
    for method in race.methods:
        row = race.row(method, task)
        steps = [str(row.target_calls), f"{row.tokens_per_call:.2f}"]
        spread = f" ({row.decode_speedup_low:.2f}–{row.decode_speedup_high:.2f})" if method == "prompt_lookup" else ""
        clock = [f"{row.decode_tokens_per_second:.1f}", f"{row.decode_speedup:.2f}{spread}"]
        rows.append([task, method, *steps, *clock])
columns = ["task", "method", "forwards", "τ, tokens per forward", "tokens per second", "times faster"]
display(Markdown(markdown(rows, columns)))

# %%
import matplotlib.pyplot as plt
from specdec_core.viz import figures

fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2), sharey=True)
for place, (task, method) in enumerate((task, method) for task in tasks for method in race.methods):
    look, name = style.bar(style.index(method)), f"{task}\n{method.replace('_', ' ')}"
    row = race.row(method, task)
    left.barh(name, row.tokens_per_call, height=0.6, **look)
    right.barh(name, row.decode_speedup, height=0.6, **look)
    repeats = [row.decode_speedup_low, row.decode_speedup, row.decode_speedup_high]
    right.plot(repeats, [place] * len(repeats), "D", color="white", mec="black", markersize=5)
for axes, title in ((left, "Steps: tokens per forward, τ"), (right, "Clock: times faster")):
    axes.axvline(1, color="black", linestyle="--", linewidth=1)
    axes.set_title(title)
    axes.grid(axis="y", visible=False)
left.invert_yaxis()
alt = "Bars for two tasks and two methods. Left, tokens per forward; right, speed against autoregression."
figures.save(fig, "00-race", alt=alt, model=loaded)

# %% [markdown]
# *Dashed: autoregression.
# Diamonds: the single repeats.*
# Do the scoreboards agree?

# %%
for task in tasks:
    row = race.row("prompt_lookup", task)
    tau, gain = row.tokens_per_call, row.decode_speedup
    if tau > 1.05 and gain < 0.98:
        verdict = "Fewer forwards, and yet more time: the scoreboards disagree, and the clock is right."
    elif gain < 0.98:
        verdict = "Hardly anything gained in steps, something lost on the clock: drafts that fail are not free."
    elif gain <= 1.02:
        verdict = "On the clock nothing is won and nothing lost."
    elif gain < 0.9 * tau:
        verdict = "Both say it won, but the clock by less: a forward that checks a draft takes longer."
    else:
        verdict = "Both say it won, by about the same factor."
    print(f"{task}: {tau:.2f} tokens per forward, {gain:.2f} times as fast.\n    {verdict}\n")

# %% [markdown]
# The whole chapter is about the gap between these two numbers.
# But first, look at the winner at work.
# Each step is one forward.
# A token marked in blue was drafted and accepted; the others are the target's own.
# Move the slider (on a page without a kernel you see the whole run instead).

# %%
from specdec_core.viz import replay

replay.replay(winner.trace, loaded.tokenizer)

# %% [markdown]
# Long blue stretches are code that the model copied from the request.
# A stretch ends where the answer differs from the request.
# (A draft may be right beyond the length that we asked for; what is beyond is accepted and then cut off.)
# And here is the loser:

# %%
replay.replay(loser.trace, loaded.tokenizer)

# %% [markdown]
# ## Is it the same text?
#
# It must be, or the race means nothing.
# With exact arithmetic it always is: a drafted token is kept only if the target would have written it.
# Computers round, though, and the rounding of a forward can depend on how many tokens are in it.
# Sometimes two candidates are so close that this tips the choice, and from there on the texts differ.

# %%
for task in tasks:
    row = race.row("prompt_lookup", task)
    if row.identical:
        print(f"{task}: all tokens the same")
    for found in row.divergences:
        print(f"{task}: the same up to token {found.position};", end=" ")
        print(f"there the target's two largest scores are {found.logit_gap:.2g} apart")

# %% [markdown]
# If that bothers you, ask for `numerics="invariant"`.
# Every forward is then padded to one width,
# and each token is computed with the same roundings, whatever else was drafted.
# That is slower, and it turns "the same up to rounding" into "the same":

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import generate
from specdec_core.drafters import PromptLookup

exact = CachedLM(loaded, numerics="invariant")
for task, prompt in prompts.items():
    plain = generate(exact, prompt, max_new_tokens=48, stop=loaded.stop)
    drafted = generate(exact, prompt, PromptLookup(), max_new_tokens=48, stop=loaded.stop)
    print(f"{task}: identical {plain.tokens == drafted.tokens}")

# %% [markdown]
# `generate` is the loop itself: a model, a prompt and, where something is to be drafted, a drafter.
#
# Chapter 12 examines rounding in detail.
# Until then, read "lossless" as "the same text, up to rounding".

# %% [markdown]
# ## What one token costs
#
# ### Without a cache
#
# The first loop that one would write is this:
# hand the whole text to the model, take the last row of scores, append the best token, repeat.

# %%
import torch

ids = torch.tensor([prompts["write"]], device=loaded.device)  # (1, L)
with torch.no_grad():
    for _ in range(4):
        logits = loaded.model(ids, use_cache=False, logits_to_keep=1).logits  # (1, 1, V)
        ids = torch.cat([ids, logits.argmax(-1)], dim=1)  # (1, L + 1)
print(repr(loaded.decode(ids[0, -4:].tolist())))

# %% [markdown]
# The $n$-th token makes the model read $n$ tokens, nearly all of which it has read before.
# If reading $n$ tokens takes a time proportional to $n$,
# then writing $m$ tokens takes $1 + 2 + \dots + m \approx m^2/2$ times as long as reading one.
#
# ### With a cache
#
# What the model computes *at* a position depends only on that position and those before it.
# So it need not be computed twice.
# Later positions need from it only a *key* and a *value* vector per layer.
# These are kept, and that store is the **KV cache**.
# Then a forward reads one new token, and only attention looks back, over stored vectors.

# %%
from specdec_core.measure import measure_costs, measure_uncached

lengths = (32, 64, 128, 256, 512)
whole = measure_uncached(loaded.model, lengths, repeats=3)
cached = [measure_costs(lm, widths=[1], context=length, repeats=9).t(1) for length in lengths]
fig, axes = plt.subplots(figsize=(7.6, 3.4))
axes.plot(lengths, [1e3 * t for t in whole.median], label="without a cache: read all again", **style.line(2))
axes.plot(lengths, [1e3 * t for t in cached], label="with a cache: read one new token", **style.line(1))
axes.set_xscale("log", base=2)
axes.set_xticks(lengths, lengths)
axes.set_ylim(bottom=0)
axes.set_xlabel("tokens of context")
axes.set_ylabel("milliseconds for the next token")
axes.legend()
alt = "Time for the next token by context length: rising without a key-value cache, nearly flat with one."
figures.save(fig, "00-kv-cache", alt=alt, model=loaded)

# %%
for length, new in zip(lengths, cached):
    old = whole.t(length)
    print(f"{length:4} tokens of context: {1e3 * old:6.1f} ms without,", end=" ")
    print(f"{1e3 * new:5.1f} ms with: {old / new:4.1f} times")

# %% [markdown]
# Now read the curve without a cache in another way.
# Each of its points is *one* forward over many tokens.
# It is far cheaper than that many forwards over one token each:

# %%
length = lengths[-1]
share = whole.t(length) / (length * cached[-1])
print(f"one forward over {length} tokens:    {1e3 * whole.t(length):8.0f} ms, {share:.0%} of the time of")
print(f"{length} forwards over one token each: {1e3 * length * cached[-1]:6.0f} ms")

# %% [markdown]
# Tokens that are *known* are cheap to read together.
# Tokens that are still to be written are not known; that is what a draft is for.
#
# ## t(q): the time of a forward with q tokens in it
#
# Let $t(q)$ be the time of one forward with $q$ new tokens, its *rows*, after a context that is already cached.
# Writing a token takes $t(1)$.
# Checking a draft of $\gamma$ tokens takes $t(\gamma + 1)$, because the last token of the text has to be read as well.
#
# **What to expect.**
# A forward does two things with each weight of the model.
# It *reads* it from memory, once, however many rows there are.
# And it *computes* with it: one multiplication and one addition for each row.
# With $P$ weights of $b$ bytes, a memory that delivers $B$ bytes per second,
# and a processor that does $F$ operations per second,
#
# $$t(q) \;\ge\;
# \max\Big(\underbrace{\frac{bP}{B}}_{\text{reading}},\;\underbrace{\frac{2Pq}{F}}_{\text{computing}}\Big),
# \qquad\text{the two being equal at}\quad q^* = \frac{b}{2}\cdot\frac{F}{B}.$$
#
# For $q < q^*$ the forward waits for the memory (it is *memory-bound*) and more rows cost nothing;
# beyond $q^*$ it is *compute-bound* and each row costs its share.
# Note that the size of the model has dropped out of $q^*$.
#
# **By hand.**
# Take $P$ = 135 million weights of $b$ = 2 bytes, $B$ = 20 GB/s and $F$ = 200 GFLOP/s.
# Reading takes 0.27 GB / 20 GB/s = 13.5 ms.
# One row computes 0.27 GFLOP, which takes 1.35 ms.
# So ten rows are free, $q^* = 10$, and forty take 54 ms.
# The same numbers from the package:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import ridge, roofline

example = {"bandwidth": 20e9, "flops": 200e9}
print("corner at q =", ridge(2, **example))
for q in (1, 10, 40):
    print(f"q = {q:2}: at least {1e3 * roofline(q, 2 * 135e6, 135e6, **example):.1f} ms")

# %% [markdown]
# **Your machine.**
# Two short measurements give $B$ and $F$.
# One adds up an array far larger than the processor's own caches;
# the other multiplies two square matrices in the model's number format.

# %%
from time import perf_counter


def seconds(job, repeats=5):
    """The best of several runs; reading the result makes a GPU finish first."""
    times = []
    for _ in range(repeats + 1):
        start = perf_counter()
        job().flatten()[0].item()
        times.append(perf_counter() - start)
    return min(times[1:])


size = 8192 if loaded.device.type == "cuda" else 1536
array = torch.ones(64 << 20, device=loaded.device)  # 256 MB
matrix = torch.ones(size, size, device=loaded.device, dtype=loaded.dtype)
B = array.nbytes / seconds(array.sum)
F = 2 * size**3 / seconds(lambda: matrix @ matrix)
del array, matrix

# %%
embedding, head = loaded.model.get_input_embeddings().weight, loaded.model.get_output_embeddings().weight
P = sum(weight.numel() for weight in loaded.model.parameters())
if embedding is not head:
    P -= embedding.numel()  # of a separate input table a forward reads only its rows
b = head.element_size()
corner = ridge(b, bandwidth=B, flops=F)
print(f"P = {P / 1e6:.0f} million weights of b = {b} bytes;", end=" ")
print(f"B = {B / 1e9:.1f} GB/s; F = {F / 1e9:.0f} GFLOP/s")
print(f"reading: {1e3 * b * P / B:.2f} ms per forward; computing: {1e3 * 2 * P / F:.2f} ms per row;", end=" ")
print(f"corner at q = {corner:.1f}")

# %% [markdown]
# **And t(q) itself**, for $q$ = 1 to 128.
# The widths take turns, as the methods did.

# %%
from specdec_core.viz import forward_cost

costs = measure_costs(lm, widths=(1, 2, 4, 8, 16, 32, 64, 128), context=256, repeats=7)
fig = forward_cost.draw(costs, floor=lambda q: roofline(q, b * P, P, B, F))
alt = "Time of a forward by its rows: flat at first, then rising in proportion; the roofline lies below."
figures.save(fig, "00-forward-cost", alt=alt, model=loaded)

# %% [markdown]
# The dotted line is what the same $q$ tokens would take one by one;
# the distance from the curve up to it is all that speculation can ever win.
# The dash-dotted line is the floor just derived.
# In numbers:

# %%
cheap = max(q for q in costs.widths if costs.break_even(q) <= 1.5)
last = costs.widths[-2:]
slope = (costs.t(last[1]) - costs.t(last[0])) / (last[1] - last[0])
print(f"2 rows cost {costs.break_even(2):.2f} times as much as 1,", end=" ")
print(f"8 rows {costs.break_even(8):.2f} times, {last[1]} rows {costs.break_even(last[1]):.1f} times.")
print(f"Nearly free (at most half a forward extra): up to q = {cheap} of the widths measured.")
print(f"At the right end each further row costs {slope / costs.t(1):.2f} of t(1);", end=" ")
print(f"computing alone explains {2 * P / F / slope:.0%} of that.")
floor = roofline(1, b * P, P, B, F)
print(f"At the left end the floor explains {floor / costs.t(1):.0%} of t(1).")

# %% [markdown]
# The rest is what the floor leaves out:
# attention over the cache, hundreds of small operations that each have to be started,
# and matrix kernels that do not reach the speed of a large square product.
# A floor only says what cannot be beaten.
# On some machines even two rows cost visibly more than one, because the library switches to another kernel there.
#
# So checking is nearly free **as long as the machine would otherwise wait for its memory**.
# A data-center GPU can do hundreds of operations in the time in which it reads one byte; a laptop perhaps ten.
# Other requests can use these operations too:
# a server that decodes many requests in one forward fills it with their rows, and leaves less room for drafts.
#
# ## What a draft has to earn
#
# A forward with a draft costs $t(q)/t(1)$ ordinary forwards, so it pays if it yields more tokens than that.
# At worst it yields one token: then we have lost $t(q) - t(1)$.
# At best it yields $q$ tokens.
# If each drafted token that is tested is accepted with the same probability $\alpha$,
# the $i$-th is kept with probability $\alpha^i$, since it and all before it have to be right.
# With the target's own token that makes $1 + \alpha + \dots + \alpha^{q-1}$ tokens on average.
# Set equal to $t(q)/t(1)$, this gives the $\alpha$ at which nothing is won or lost.

# %%
forward_cost.slider(costs)

# %% [markdown]
# Move $q$ to the right (without a kernel, read the table downwards).
# Two numbers pull in opposite directions.
# If all drafts are accepted, the time per token falls; but the tokens needed to break even grow with $t(q)$.
# A long draft is a bet with a high stake.
#
# Now the gap between the two scoreboards can be *computed*.
# A run is a list of steps; step $i$ has $q_i$ rows and writes $n_i$ tokens.
# If t(q) is the whole story, the speedup is
#
# $$\frac{\sum_i n_i \; t(1)}{\sum_i t(q_i)}.$$

# %%
for task, answer in zip(tasks, (winner, loser)):
    trace = answer.trace
    predicted = trace.emitted * costs.t(1) / sum(costs.t(len(step.tree.tokens)) for step in trace.steps)
    with_draft = sum(step.tree.size > 0 for step in trace.steps)
    beyond = sum(max(step.verdict.accepted - len(step.tokens), 0) for step in trace.steps)
    print(f"{task}: {with_draft} of {trace.target_calls} steps had a draft,", end=" ")
    print(f"{trace.accepted} of {trace.drafted} drafted tokens were accepted", end="")
    print(f", {beyond} of them beyond the end." if beyond else ".")
    measured = race.row("prompt_lookup", task).decode_speedup
    print(f"    predicted from t(q): {predicted:.2f} times as fast; measured: {measured:.2f}\n")

# %% [markdown]
# Where predicted and measured differ, the reason is what t(q) does not contain:
# the lookup itself, and a machine that was not equally quiet in both measurements.
# Chapter 10 makes this a model of every method in the book.
#
# ## A win that is worth nothing
#
# One warning before you run races of your own.
# Here are all the prompts that ask for free writing, with prompt lookup.
# τ is plotted over a property of the *text*:
# the share of its four-token sequences (4-grams) that had occurred in it before.

# %%
def repeated(tokens, n=4):
    """Share of the n-grams that occurred earlier in the same text."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams)


free = {}
for question in own("write"):
    prompt = loaded.encode(question.turns[0])
    free[question.id] = generate(lm, prompt, PromptLookup(), max_new_tokens=LENGTH, stop=loaded.stop)
fig, axes = plt.subplots(figsize=(7.6, 3.4))
for name, answer in free.items():
    x, y = repeated(answer.tokens), answer.trace.tokens_per_call
    axes.plot(x, y, linestyle="none", color="#0072B2", marker="o", markeredgecolor="white")
    if x > 0.2:
        axes.annotate(name, (x, y), (-6, 0), textcoords="offset points", fontsize=8, ha="right", va="center")
axes.axhline(1, color="black", linestyle="--", linewidth=1)
axes.set(xlabel="share of repeated 4-grams in the answer", ylabel="τ, tokens per forward", xlim=(-0.03, 1))
alt = "Tokens per forward by share of repeated 4-grams, one point per free-writing prompt: they rise together."
figures.save(fig, "00-loops", alt=alt, model=loaded)

# %%
worst = max(free, key=lambda name: repeated(free[name].tokens))
print(f"{worst}, τ = {free[worst].trace.tokens_per_call:.2f}; the end of the answer:\n")
print("…" + " / ".join(line for line in free[worst].text[-160:].splitlines() if line.strip()))

# %% [markdown]
# A small model that always takes its best token can fall into a loop.
# Prompt lookup is excellent at predicting a loop, and the scoreboard reports a triumph.
# Nothing is wrong with the method, and the text is still the model's own.
# But the number says nothing about free writing.
# **Read what was written before you believe a speedup.**

# %% jupyter={"source_hidden": true}
rates = [answer.trace.acceptance_rate for answer in free.values()]
inside = sum(0.2 <= rate <= 0.4 for rate in rates)
holds, loops = inside > len(rates) / 2, sum(repeated(answer.tokens) > 0.4 for answer in free.values())
display(Markdown(
    "> **The notes say …** that on free writing a drafted token is accepted with probability 0.2 to 0.4 "
    "(their chapter on model-free methods, section 8). In this run, counting the accepted among the tested "
    f"tokens (those after a rejection are not tested), {inside} of {len(rates)} prompts lie in that range; "
    f"they go from {min(rates):.2f} to {max(rates):.2f}. "
    + ("The range describes most of them. " if holds else "One range does not describe them. ")
    + f"What decides is whether the text repeats itself: {loops} of these answers repeat more than 40% of "
    "their 4-grams. (The notes' number also counts the places that have no draft; chapter 10 measures both parts, "
    "method by method and task by task.)"
))

# %% [markdown]
# ## Where to run this book
#
# | where | how | what to expect |
# |:--|:--|:--|
# | laptop or server | in a checkout, `make lab`; needs Python 3.10, git, make | the numbers of your own machine |
# | Windows, or no make | make an environment from `environment.yml` (below) | as above |
# | Binder | open the repository there | one or two slow, shared cores: the times vary |
# | Colab | clone the repository in a first cell (below) | *Change runtime type* gives a GPU; `load` takes it |
# | a GPU of your own | install the build of torch for it | `load("default")` takes it |
#
# Without make: `conda env create -f environment.yml`, `conda activate specdec`, `jupyter lab chapters`.
# Binder builds the same `environment.yml` and fetches the model.
# On Colab, open a chapter and add a cell `!git clone ADDRESS`, with the repository's address, above its first one.
# A GPU has room for more than the default: `load("org/model")` gives it a model worth its memory.
#
# Every chapter begins with the same set-up cell and draws its figures from the run that you just made.
# The machine is written under each figure.
# A cell whose first line is `# NBVAL_CHECK_OUTPUT` gives the same output on every machine,
# and the tests of the book compare it.
# On the command line, `specdec race` runs this chapter's race over all tasks, and `specdec costs` measures $t(q)$.
#
# ## Pitfalls
#
# - **τ is not speed.**
#   It cannot fall below 1; the clock can.
#   Report both.
# - **A forward's time is not its arithmetic.**
#   By operations alone, checking eight tokens would cost eight times as much as writing one.
# - **t(q) belongs to a machine, a model, a number format and a batch size.**
#   Measure it where you decode.
# - **Compare with the same loop.**
#   A baseline from another program measures two programs.
# - **Let methods take turns.**
#   If they run one after the other, the clock also measures what else the machine did meanwhile.
# - **Read the text.**
#   Loops look like speed.
#
# ## Summary
#
# - Speculative decoding guesses several tokens and lets the target check all of them in one forward;
#   a forward yields τ ≥ 1 tokens.
# - A KV cache makes a token cost $t(1)$ instead of a forward over the whole text.
# - $t(q) \ge \max(bP/B,\ 2Pq/F)$: nearly flat while memory is the bottleneck, proportional to $q$ beyond $q^* = bF/2B$.
# - A draft with $q$ rows pays if it yields more than $t(q)/t(1)$ tokens.
# - On text that copies, even the simplest draft wins; on text that does not, it can cost more than it brings.
#
# ## Further reading
#
# - Y. Leviathan, M. Kalman, Y. Matias, *Fast Inference from Transformers via Speculative Decoding*,
#   ICML 2023, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192)
# - C. Chen and others, *Accelerating Large Language Model Decoding with Speculative Sampling*,
#   2023, [arXiv:2302.01318](https://arxiv.org/abs/2302.01318)
# - A. Saxena, *Prompt Lookup Decoding*, 2023,
#   [github.com/apoorvumang/prompt-lookup-decoding](https://github.com/apoorvumang/prompt-lookup-decoding)
# - S. Williams, A. Waterman, D. Patterson,
#   *Roofline: An Insightful Visual Performance Model for Multicore Architectures*,
#   Communications of the ACM 52(4), 2009
# - R. Pope and others, *Efficiently Scaling Transformer Inference*,
#   MLSys 2023, [arXiv:2211.05102](https://arxiv.org/abs/2211.05102)
# - L. Ben Allal and others, *SmolLM2: When Smol Goes Big*, 2025, [arXiv:2502.02737](https://arxiv.org/abs/2502.02737)
