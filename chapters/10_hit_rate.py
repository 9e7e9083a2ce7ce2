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
# # 10 · The hit-rate model
#
# > **The question of this chapter.**
# > Two numbers describe a method that looks up its drafts: how often it finds one, and how often the draft is right.
# > Are they enough to say, before any race, how fast the method will be, and on which tasks it loses?
#
# **Afterwards you can**
#
# - derive the acceptance by depth from *coverage* and *regularity*, and say why coverage enters once;
# - measure the two apart, by task and by method, without running the model again;
# - compute tokens per step from them, then a speedup with this machine's $t(q)$, and check it against the clock;
# - say what must be true for drafting to pay, with and without a cost for a miss;
# - say with numbers why these methods win on text that repeats, and what they risk on free writing.
#
# **Taken for granted:** chapter 00 ($t(q)$, τ) and chapter 05 (prompt lookup, replay, loops).
# The n-gram dictionary and suffix decoding are from chapter 09.
# All you need here: prompt lookup drafts a chain, while they remember more than one continuation of a suffix
# and draft a small *tree*, several continuations that share their beginning.
# One forward checks the whole tree.
#
# **Time:** 25 minutes of reading.
# The cells take about a minute on two CPU cores; run them with nothing else going on, because some use a stopwatch.

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
loaded = load()
lm = CachedLM(loaded)
print(loaded.why)

# %% [markdown]
# ## Two factors
#
# Look at one step.
# Let $H$ be the event of a **hit**: the memory holds the suffix of the context, so there is a draft.
# Let $A_i$ be the event that at least $i$ drafted tokens are accepted.
# A token can be accepted only if there is a draft and all tokens before it were accepted:
#
# $$H \supseteq A_1 \supseteq A_2 \supseteq \dots$$
#
# Write $h = P(H)$ for the **coverage**
# and $r_i = P(A_i \mid H, A_1, \dots, A_{i-1})$ for the **regularity** at depth $i$.
# (A draft that ends before depth $i$ counts as not accepted there.)
# Then the acceptance at depth $i$, given that this depth was reached, is
#
# $$\alpha_1 = P(A_1)
# = \underbrace{P(H)}_{\text{covered}} \cdot \underbrace{P(A_1 \mid H)}_{\text{the target agrees}} = h\,r_1,
# \qquad \alpha_i = P(A_i \mid A_{i-1}) = r_i \quad (i \ge 2).$$
#
# That $h$ is missing in the second formula is no oversight.
# If token $i - 1$ was accepted, there *was* a draft, so the hit is certain.
# Hence $P(A_i) = h\, r_1 \cdots r_i$, with one $h$.
# A step accepts $\sum_i \mathbf 1[A_i]$ tokens, with mean $\sum_i P(A_i)$,
# and every step also emits one token of the target:
#
# $$E[\text{tokens per step}] = 1 + h A, \qquad A = r_1 + r_1 r_2 + \dots + r_1 \cdots r_\gamma,$$
#
# where $A = E[\text{accepted} \mid H]$ is what a hit brings on average.
# Nothing was assumed: no independence, no constant $\alpha$.
#
# **By hand.** Half of the steps hit, a draft has two tokens, and $r = (0.8, 0.9)$.
# Then $A = 0.8 + 0.72 = 1.52$ and $E = 1 + 0.5 \cdot 1.52 = 1.76$.
# Multiplying by the coverage at *every* depth,
# with $\alpha = (0.4, 0.45)$, would give $1 + 0.4 + 0.18 = 1.58$: too few.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import conditional_alphas, expected_tokens_by_depth, hit_rate_tokens

print("α by depth:", conditional_alphas(0.5, [0.8, 0.9]).round(3).tolist())
print(f"coverage once:          {hit_rate_tokens(0.5, [0.8, 0.9]):.2f} tokens per step")
print(f"coverage at each depth: {expected_tokens_by_depth([0.5 * 0.8, 0.5 * 0.9]):.2f}")

# %% [markdown]
# > **The notes say …** (model-free chapter, section 8.1)
# > that the acceptance probability at layer $i$ is P(the memory covers the suffix) × P(the target agrees | covered).
# > At $i = 1$ that is right.
# > At every later depth the first factor is 1, because a step is covered *as a whole* or not at all.
# > Below we measure how much the difference matters.

# %% [markdown]
# ## Answers to measure on
#
# As in chapter 05, the greedy answer does not depend on the drafter,
# so it is recorded once, and any drafter is *replayed* against it.
# We take two questions from each of the eight tasks, 48 tokens each.
# The first question of each task is also **raced**:
# ordinary decoding and three methods on the same prompt, with the clock running.
# They answer each question one after another,
# each question begins with another method, and nobody remembers an earlier question.
# Of the second question we need only the answer, so we write it with a drafter, which is quicker.
# The three are the methods whose memory needs no preparation; the others join later.

# %%
from specdec_core import compare, generate
from specdec_core.drafters import NGramDictionary, PromptLookup, SuffixDecoding
from specdec_core.race import TASKS, own

LENGTH = 48
METHODS = {
    "prompt_lookup": PromptLookup,
    "ngram": NGramDictionary,
    "suffix_decoding": lambda: SuffixDecoding(max_requests=0),  # this request only
}
prompts = {task: [loaded.encode(question.turns[0]) for question in own(task, limit=2)] for task in TASKS}
first = {task: [prompt] for task, (prompt, _) in prompts.items()}
race = compare(lm, first, METHODS, max_new_tokens=LENGTH, repeats=1)

# %%
live = {(task, name): race.answers(name, task)[0] for task in TASKS for name in race.methods}
answers = {}  # task -> [(prompt, tokens), ...]
for task, (one, other) in prompts.items():
    second = generate(lm, other, PromptLookup(), max_new_tokens=LENGTH, stop=loaded.stop)
    answers[task] = [(one, live[task, "autoregressive"].tokens), (other, second.tokens)]
total = sum(len(tokens) for kept in answers.values() for _, tokens in kept)
print(f"{sum(map(len, answers.values()))} answers, {total} tokens")

# %% [markdown]
# The replay of chapter 05 followed a chain.
# Two of our methods draft trees, so we run the usual loop with `Recorded` as the target,
# a language model that answers with the recorded tokens.
# We keep the rows of each step's forward and the number of tokens that it wrote.
# Does the replay match the live run?
# With the answer of each live run it must take the same steps:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Recorded


def counted(trace):
    """Rows and tokens of each step."""
    return [(len(step.tree.tokens), len(step.tokens)) for step in trace.steps]


def replay(prompt, answer, drafter):
    """The steps of the greedy run with this answer."""
    return counted(Recorded(prompt, answer).replay(drafter))


same = [replay(prompts[task][0], live[task, name].tokens, make()) == counted(live[task, name].trace)
        for task in TASKS for name, make in METHODS.items()]
print("replayed steps equal the live steps, for every method and task:", all(same))

# %% [markdown]
# ## Coverage and regularity, measured apart
#
# Counting the steps of a list gives the two factors.
# A hit is a step with more than one row.
# $r_i$ is the number of hits with at least $i$ accepted tokens, divided by the number with at least $i - 1$.

# %%
DEPTHS = 16


def rates(steps):
    """Coverage, (DEPTHS,) regularities, and the rows of the hits."""
    hits = [(q, emitted - 1) for q, emitted in steps if q > 1]
    reached = [sum(k >= i for _, k in hits) for i in range(DEPTHS + 1)]
    r = [after / before if before else 0.0 for before, after in zip(reached, reached[1:])]
    return len(hits) / len(steps), r, [q for q, _ in hits]


def tau(steps):
    """Tokens per step."""
    return sum(emitted for _, emitted in steps) / len(steps)


by_prompt = {
    (task, name): [replay(prompt, tokens, make()) for prompt, tokens in kept]
    for task, kept in answers.items() for name, make in METHODS.items()
}
steps = {key: sum(runs, []) for key, runs in by_prompt.items()}

# %%
rows = []
for (task, name), taken in steps.items():
    h, r, widths = rates(taken)
    accepted = (tau(taken) - 1) / h if h else 0.0
    numbers = (h, r[0], h * r[0], accepted, np.mean(widths or [1]) - 1, tau(taken))
    rows.append([task.replace("_", " "), name.replace("_", " "), *(f"{number:.2f}" for number in numbers)])
columns = ["task", "method", "coverage h", "regularity r₁", "α₁ = h r₁", "A, accepted per hit"]
display(Markdown(markdown(rows, [*columns, "drafted per hit", "τ"])))

# %%
fig, panels = plt.subplots(1, 2, figsize=(7.6, 4.8), sharey=True)
picks = {"Coverage h": lambda taken: rates(taken)[0], "Regularity r₁": lambda taken: rates(taken)[1][0]}
for axes, (title, pick) in zip(panels, picks.items()):
    for i, name in enumerate(METHODS):
        places = [row + 0.27 * (i - 1) for row in range(len(TASKS))]
        values = [pick(steps[task, name]) for task in TASKS]
        axes.barh(places, values, height=0.25, label=name.replace("_", " "), **style.bar(i))
    axes.set(title=title, xlim=(0, 1))
    axes.grid(axis="y", visible=False)
panels[0].set_yticks(range(len(TASKS)), [task.replace("_", " ") for task in TASKS])
panels[0].invert_yaxis()
fig.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
alt = "For each task and method: the share of steps with a draft, and how often its first token was accepted."
figures.save(fig, "10-factors", alt=alt, model=loaded)

# %%
def spread(pick, name="prompt_lookup"):
    """Smallest and largest value over the tasks, with their names."""
    found = sorted((pick(steps[task, name]), task) for task in TASKS)
    return f"from {found[0][0]:.2f} ({found[0][1]}) to {found[-1][0]:.2f} ({found[-1][1]})"


print("prompt lookup, over the tasks:")
print("    coverage goes", spread(lambda taken: rates(taken)[0]))
print("    regularity of the first token", spread(lambda taken: rates(taken)[1][0]))
print("    accepted tokens per hit", spread(lambda taken: (tau(taken) - 1) / rates(taken)[0]))
w, q = steps["write", "prompt_lookup"], steps["quote", "prompt_lookup"]
picks = {"coverage": lambda t: rates(t)[0], "number of accepted tokens per hit": lambda t: (tau(t) - 1) / rates(t)[0]}
for what, pick in picks.items():
    values = [pick(steps[task, "prompt_lookup"]) for task in TASKS]
    factor = max(values) / min(values) if min(values) else np.inf
    print(f"The largest {what} of a task is {factor:.1f} times the smallest.")
print(f"Free writing is covered {rates(w)[0]:.2f} of the time, quoting {rates(q)[0]:.2f};", end=" ")
print(f"a hit brings {(tau(w) - 1) / rates(w)[0]:.2f} and {(tau(q) - 1) / rates(q)[0]:.2f} tokens.")

# %% [markdown]
# With `min_n` = 1 one known token is enough for a hit, and commas are known everywhere.
# So coverage says little about a task as long as such poor hits count; compare the two factors just printed.
# The drafts differ in size, too:
# two of the methods draft ten tokens whatever was matched, suffix decoding only as many as the match is long.
#
# **By depth.** Is the regularity one number?
# Here are all tasks together, up to the ten tokens that two of the methods draft.
# The figure shows a depth if at least ten drafts reached it.

# %%
def reached(name):
    """(DEPTHS + 1,) hits with at least 0, 1, ... accepted tokens, over all tasks."""
    taken = [step for task in TASKS for step in steps[task, name]]
    return [sum(q > 1 and emitted > i for q, emitted in taken) for i in range(DEPTHS + 1)]


fig, axes = plt.subplots(figsize=(7.6, 3.6))
initial, later = {}, {}
for i, name in enumerate(METHODS):
    count = reached(name)
    deep = [d for d in range(1, 11) if count[d - 1] >= 10]  # prompt lookup and n-grams draft ten tokens
    r = [count[d] / count[d - 1] for d in deep]
    initial[name], later[name] = r[0], sum(count[d] for d in deep[1:]) / sum(count[d - 1] for d in deep[1:])
    axes.plot(deep, r, label=name.replace("_", " "), **style.line(i))
axes.set(xlabel="depth i", ylabel="regularity $r_i$", ylim=(0, 1.05), xticks=range(1, 11))
axes.legend(loc="lower right")
alt = "Regularity by depth for three methods: low at the first token, higher after it."
figures.save(fig, "10-depth", alt=alt, model=loaded)

# %%
for name in METHODS:
    print(f"{name:16} first token {initial[name]:.2f}, after it {later[name]:.2f} on average")
rises = all(later[name] > initial[name] for name in METHODS)
print("Acceptance rises after the first token." if rises else "It does not rise for every method here.")

# %% [markdown]
# If it rises, the reason is selection: hits are good or bad, and the first token finds out which.
# Whatever gets past it is a copy in progress.
# So one constant $\alpha$ is a poor model of a memory, and the formula with $r_i$ is worth its length.
# Regularity stays below 1 partly because drafts end, which counts as not accepted:
# a short match gives suffix decoding a short draft.

# %% [markdown]
# ## From hit rate to tokens
#
# Here are three formulas for the same measured $h$ and $r_i$:
#
# 1. coverage once: $1 + h\,(r_1 + r_1 r_2 + \dots)$;
# 2. coverage at each depth: $\alpha_i = h\,r_i$;
# 3. one constant: $\alpha = h\,r_1$ at all depths, $E = (1 - \alpha^{\gamma+1})/(1 - \alpha)$ with $\gamma = 10$.
#
# The first must give τ exactly, since it is the same count in another order:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import expected_tokens

longest = max(emitted - 1 for taken in steps.values() for _, emitted in taken)
off = [abs(hit_rate_tokens(*rates(taken)[:2]) - tau(taken)) for taken in steps.values()]
print("no accepted draft was longer than DEPTHS:", longest <= DEPTHS)
print("coverage once gives τ, for every method and task, to 1e-9:", max(off) < 1e-9)

# %%
formulas = {
    "coverage once": lambda h, r: hit_rate_tokens(h, r),
    "coverage at each depth": lambda h, r: expected_tokens_by_depth([h * x for x in r]),
    "constant α = h r₁": lambda h, r: expected_tokens(h * r[0], 10),
}
taus = [tau(taken) for taken in steps.values()]
fig, axes = plt.subplots(figsize=(7.6, 4.0))
for i, (name, formula) in enumerate(formulas.items()):
    values = [formula(*rates(taken)[:2]) for taken in steps.values()]
    off = np.round(np.array(values) / taus - 1, 9) + 0.0
    print(f"{name:24} off by {off.min():+.0%} to {off.max():+.0%}, {off.mean():+.1%} on average")
    axes.plot(taus, values, label=name, **{**style.line(i), "linestyle": "none"})
axes.plot([1, max(taus)], [1, max(taus)], color="black", linestyle="--", linewidth=1, label="equal")
axes.set(xlabel="τ, counted", ylabel="tokens per step, by the formula")
axes.legend(loc="upper left")
alt = "Tokens per step by three formulas against those counted; only coverage once always lies on the diagonal."
figures.save(fig, "10-tokens", alt=alt, model=loaded)

# %% [markdown]
# Where every step hits, the second formula is right as well.
# The third can err in both directions.
# Where the first token is poor it repeats that at every depth and comes out too low.
# Where the first token is good it comes out too high, since it does not know that drafts end.
#
# All this is bookkeeping, not prediction: the rates come from the same steps.
# A prediction takes the rates of *one* question and says what *another* question of the same task will do:

# %%
errors = {}
for (task, name), (one, other) in by_prompt.items():
    for known, asked in ((one, other), (other, one)):
        errors.setdefault(task, []).append(hit_rate_tokens(*rates(known)[:2]) / tau(asked) - 1)
for task, found in sorted(errors.items(), key=lambda item: np.mean(np.abs(item[1]))):
    print(f"{task:14} off by {np.mean(np.abs(found)):4.0%} on average, {np.max(np.abs(found)):4.0%} at most")
print(f"all tasks      off by {np.mean(np.abs(sum(errors.values(), []))):4.0%} on average")

# %% [markdown]
# The formula is exact, but the rates of a task vary from one question to the next.
# Before you quote a hit rate, ask how many questions it was measured on.
# Two are few.

# %% [markdown]
# ## From tokens to time
#
# A step with a hit takes $t(q)$, where $q$ is the number of rows of its forward;
# a step without takes $t_{\text{miss}}$; and every step spends $t_{\text{draft}}$ on the lookup.
# The speedup is expected tokens over expected time, compared with one token in $t(1)$:
#
# $$\text{speedup} = \frac{(1 + h A)\; t(1)}{h\, t_{\text{hit}} + (1 - h)\, t_{\text{miss}} + t_{\text{draft}}},$$
#
# with $t_{\text{hit}}$ the mean of $t(q)$ over the hits.
# A method that drafts only on a hit has $t_{\text{miss}} = t(1)$.
#
# **By hand.** $h = 0.5$, $A = 1.52$ from above, $t_{\text{hit}} = 1.2$, $t_{\text{miss}} = t(1) = 1$:
# the speedup is $1.76 / (0.6 + 0.5) = 1.6$.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import hit_rate_speedup

print(f"{hit_rate_speedup(0.5, 1.52, t_hit=1.2, t_miss=1.0, t_1=1.0):.4f}")

# %%
from specdec_core.measure import measure_costs

costs = measure_costs(lm, widths=(1, 2, 3, 5, 8, 11, 17, 33), context=256, repeats=15)
print("q           " + "".join(f"{q:6}" for q in costs.widths))
print("t(q) / t(1) " + "".join(f"{costs.break_even(q):6.2f}" for q in costs.widths))

# %% [markdown]
# Now the race.
# *Predicted* is the formula, with the rates of the raced question,
# $t(q)$ as just measured, and $t_{\text{draft}}$ from the live run.
# *Measured* is the seconds per token of ordinary decoding over those of the method, without the reading of the prompt.

# %%
def predict(taken, t_draft=0.0):
    """Speedup by the formula, for steps of a method that drafts only on a hit."""
    h, _, widths = rates(taken)
    if not h:
        return hit_rate_speedup(0.0, 0.0, costs.t(1), costs.t(1), costs.t(1), t_draft)
    t_hit = np.mean([costs.t(q) for q in widths])
    return hit_rate_speedup(h, (tau(taken) - 1) / h, t_hit, costs.t(1), costs.t(1), t_draft)


def outcome(race, name, task):
    """τ, predicted speedup and measured speedup of one method on one task."""
    taken = counted(race.answers(name, task)[0].trace)
    return tau(taken), predict(taken, race.steps(name, task).draft_seconds), race.row(name, task).decode_speedup


outcomes = {(task, name): outcome(race, name, task) for task in TASKS for name in METHODS}

# %% [markdown]
# The formula does not ask where a draft comes from.
# So a second race has the other methods of this book,
# each with a chapter of its own, write the first 20 tokens of the same answers.
# Jacobi and lookahead decoding remember what the target writes on the side.
# REST's memory here is the target's own conversations, which come with the package.
# The other four draft with a trained model.
# Methods that draft in every step have $h = 1$; rows that are not drafts count in $t(q)$ all the same.

# %%
from specdec_core import SpecdecError
from specdec_core.drafters import REST, Context, build
from specdec_core.stores import SuffixStore
from specdec_core.race import documents

others = {}
for name in ("rest", "jacobi", "lookahead:W=5,N=4,G=5", "draft_model", "mtp", "medusa", "eagle"):
    try:
        if name == "rest":
            others[name] = REST(SuffixStore.in_memory(documents(loaded.tokenizer), lm.vocab_size))
        else:
            others[name.partition(":")[0]] = build(name, Context(lm))
    except SpecdecError as error:  # another target: its conversations and weights do not come with the package
        print(f"{name} is left out: {str(error).splitlines()[0]}")
more = compare(lm, first, others, max_new_tokens=20, repeats=1)
outcomes |= {(task, name): outcome(more, name, task) for name in others for task in TASKS}

# %%
drawn = list(dict.fromkeys(name for _, name in outcomes))
models = ("draft_model", "mtp", "medusa", "eagle")
parts = {"drafts from a memory": [name for name in drawn if name not in models],
         "drafts from a trained model": [name for name in drawn if name in models]}
numbers = [value for _, x, y in outcomes.values() for value in (x, y)]
low, high = 0.95 * min(numbers), 1.05 * max(numbers)
ticks = [tick for tick in (0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8) if low <= tick <= high]


def look(i):
    color = style.PALETTE[i + 1]
    return {"mfc": "white" if i % 2 else color, "mec": color if i % 4 else "black", "mew": 1.3,
            "markersize": 7, "linestyle": "none"}

# %%
fig, panels = plt.subplots(1, 2, figsize=(7.6, 4.6), sharey=True)
for axes, (title, names) in zip(panels, parts.items()):
    for i, name in enumerate(names):
        axes.plot([], [], marker="o", label=name.replace("_", " "), **look(i))
        for j, task in enumerate(TASKS):
            axes.plot(*outcomes[task, name][1:], marker=style.MARKERS[j], **look(i))
    axes.plot([low, high], [low, high], color="black", linestyle="--", linewidth=1)
    axes.axhline(1, color="#7F7F7F", linewidth=0.8)
    axes.axvline(1, color="#7F7F7F", linewidth=0.8)
    for axis in ("x", "y"):
        axes.set(**{f"{axis}scale": "log", f"{axis}lim": (low, high)})
        axes.set(**{f"{axis}ticks": ticks, f"{axis}ticklabels": ticks})
    axes.minorticks_off()
    axes.set(title=title, xlabel="predicted speedup")
    axes.legend(loc="upper left", fontsize=8, frameon=True, framealpha=1, edgecolor="none")
panels[0].set_ylabel("measured speedup")
marks = [plt.Line2D([], [], linestyle="none", marker=style.MARKERS[j], color="#7F7F7F") for j in range(len(TASKS))]
fig.legend(marks, [task.replace("_", " ") for task in TASKS], loc="outside upper center", ncols=4, fontsize=8)
alt = "Measured against predicted speedup, a point for each method and task; dashed: as predicted; thin lines: 1."
figures.save(fig, "10-speed", alt=alt, model=loaded)

# %%
off = [y / x - 1 for _, x, y in outcomes.values()]
print(f"measured over predicted, minus 1: median {np.median(off):+.1%},", end=" ")
print(f"mean distance {np.mean(np.abs(off)):.1%}, at worst {max(off, key=abs):+.0%}.")
signs = sum((x > 1) == (y > 1) for _, x, y in outcomes.values())
print(f"Predicted and measured are on the same side of 1 in {signs} of {len(outcomes)} cases.")
torn = [f"{name.replace('_', ' ')} on {task} (τ = {t:.2f}, clock {y:.2f})"
        for (task, name), (t, _, y) in outcomes.items() if t > 1.03 and y < 0.98]
print(f"Fewer forwards and yet slower, {len(torn)} of {len(outcomes)}:", "; ".join(torn) or "none")

# %% [markdown]
# The formula knows the numbers of rows and tokens of each kind of step.
# It does not know that $t(q)$ also grows with the context, that the rows of a tree need a mask of their paths,
# that keeping accepted tokens takes time, too, or that the machine was not equally quiet all the time.
# Each run here is a single one; `specdec race` repeats them.

# %% [markdown]
# ## Break-even
#
# Require a speedup of at least 1 and collect the terms with $h$:
#
# $$h\,\big(\underbrace{A\,t(1) - (t_{\text{hit}} - t_{\text{miss}})}_{\text{what a hit gains}}\big)
# \;\ge\; \underbrace{t_{\text{miss}} + t_{\text{draft}} - t(1)}_{\text{what every step pays}}.$$
#
# **Drafts only on a hit, lookup for free.** The right side is 0 and $h$ cancels:
# the condition is $A \ge t_{\text{hit}}/t(1) - 1$, which chapter 05 wrote $a \ge r - 1$.
# There is *no* break-even hit rate.
# Coverage scales a gain or a loss, and never turns one into the other.
#
# **A fixed shape.** Some methods run the same number of rows in every step, whether they have found something or not:
# the window of lookahead decoding (chapter 07), or a tree that is always filled.
# Then $t_{\text{miss}} = t_{\text{hit}}$, every step pays $t_{\text{hit}} - t(1)$, and the break-even hit rate is
#
# $$h^* = \frac{t_{\text{hit}}/t(1) - 1}{A}.$$
#
# **By hand.** $A = 1.5$, $t_{\text{hit}} = 1.3$, $t(1) = 1$.
# Fixed shape: $h^* = 0.3/1.5 = 0.2$.
# Drafts on a hit: 1.5 is more than 0.3, so any $h$ gains.
# With a lookup of 0.02 in each step: $h^* = 0.02/(1.5 - 0.3) = 0.0167$.
# And with $A = 0.2$ a hit loses 0.1, so no $h$ is enough.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import break_even_hit_rate

print("fixed shape:       ", round(break_even_hit_rate(1.5, t_hit=1.3, t_miss=1.3, t_1=1.0), 4))
print("draft on a hit:    ", round(break_even_hit_rate(1.5, t_hit=1.3, t_miss=1.0, t_1=1.0), 4))
print("with a lookup:     ", round(break_even_hit_rate(1.5, t_hit=1.3, t_miss=1.0, t_1=1.0, t_draft=0.02), 4))
print("a hit that loses:  ", break_even_hit_rate(0.2, t_hit=1.3, t_miss=1.0, t_1=1.0, t_draft=0.02))

# %% [markdown]
# The same on this machine, for each task with prompt lookup:
# what a hit needs, what it brings, and the break-even hit rate if the same hits came in a fixed shape.

# %%
rows = []
for task in TASKS:
    h, _, widths = rates(steps[task, "prompt_lookup"])
    A, t_hit = (tau(steps[task, "prompt_lookup"]) - 1) / h, np.mean([costs.t(q) for q in widths])
    star = break_even_hit_rate(A, t_hit, t_hit, costs.t(1))
    side = "gains" if A > t_hit / costs.t(1) - 1 else "loses"
    fixed = hit_rate_speedup(h, A, t_hit, t_hit, costs.t(1))
    speed = predict(steps[task, "prompt_lookup"])
    numbers = (f"{t_hit / costs.t(1) - 1:.2f}", f"{A:.2f}", side, f"{speed:.2f}", f"{h:.2f}",
               f"{star:.2f}" if star <= 1 else "above 1", f"{fixed:.2f}")
    rows.append([task.replace("_", " "), *numbers])
columns = ["task", "A needed", "A brought", "a hit", "predicted", "h"]
display(Markdown(markdown(rows, [*columns, "h* of a fixed shape", "predicted, fixed shape"])))

# %% [markdown]
# > **The notes say …** that where nothing repeats, prompt lookup falls back to ordinary decoding
# > and has paid for a verification in vain (model-free chapter, section 4.3).
# > A miss has nothing to verify.
# > It costs $t(1)$, like any ordinary step, and the lookup; only a *wrong* draft costs a verification.
# > Counted in this run:

# %%
every = [(name, step) for (_, name), run in live.items() for step in run.trace.steps]
misses = [step for name, step in every if name in METHODS and step.tree.size == 0]
plain = [step for name, step in every if name == "autoregressive"]
print("rows of the forward at a miss:", sorted({len(step.tree.tokens) for step in misses}))
forwards = [1e3 * np.median([step.seconds["forward"] for step in kind]) for kind in (misses, plain)]
print(f"its median time over {len(misses)}: {forwards[0]:.1f} ms; of ordinary steps: {forwards[1]:.1f} ms")
looked = 1e3 * np.median([step.seconds["draft"] for step in misses])
print(f"the lookup that found nothing: {looked:.3f} ms, {looked / forwards[1]:.2%} of an ordinary step")

# %% [markdown]
# ## Is an α of 0.2 to 0.4 a loss?
#
# > **The notes say …** that free writing has $\alpha \approx 0.2$ to $0.4$ and *therefore* a speedup below 1
# > (section 8.1).
# > The conclusion does not follow.
#
# Let there always be one drafted token, accepted with probability $\alpha$.
# Then a step writes $1 + \alpha$ tokens in $t(2)$, a gain exactly if $t(2) < (1 + \alpha)\,t(1)$.
# For longer drafts let each further row cost $s$, so that $t(q)/t(1) = 1 + s(q - 1)$ is a straight line.
# Since $1 + \alpha + \dots + \alpha^\gamma \le 1 + \gamma\alpha$, no $\gamma$ gains if $s \ge \alpha$;
# and if $s < \alpha$, $\gamma = 1$ gains.
# So on a straight line
#
# $$\text{some draft length gains} \quad\iff\quad s < \alpha.$$
#
# *By hand:* $\alpha = 0.3$, $s = 0.2$, $\gamma = 1$: $1.3/1.2 = 1.08$, a gain.
# With $\gamma = 10$: $E = 1.43$ against $t(11) = 3\,t(1)$, a loss of half.
# The **length** of the draft was wrong, not the task.
# Here is the same from the package, for several slopes and for this machine, with the best $\gamma$ in brackets:

# %%
from specdec_core.theory import best_gamma_measured, speedup_measured


def best(alpha, t):
    """The largest speedup up to γ = 10, its γ, and the speedup at γ = 10."""
    gamma = best_gamma_measured([alpha] * 10, t)
    gains = [speedup_measured(expected_tokens(alpha, g), t(g + 1), 0.0, t(1)) for g in (gamma, 10)]
    return f"{gains[0]:.2f} (γ = {gamma}); {gains[1]:.2f}"


machines = {f"s = {s}": (lambda q, s=s: 1 + s * (q - 1)) for s in (0.01, 0.05, 0.2, 0.5)}
machines["this machine"] = costs.t
rows = [[name, *(best(alpha, t) for alpha in (0.2, 0.3, 0.4))] for name, t in machines.items()]
display(Markdown(markdown(rows, ["t(q)", *(f"α = {alpha}: best; at γ = 10" for alpha in (0.2, 0.3, 0.4))])))

# %%
lost = [alpha for alpha in (0.2, 0.3, 0.4) if best_gamma_measured([alpha] * 10, costs.t) == 0]
second = costs.break_even(2) - 1
print(f"On this machine the second row costs {second:.2f} t(1).", end=" ")
pays = f"No length pays at α = {', '.join(map(str, lost))}."
print(pays if lost else "At α = 0.2, 0.3 and 0.4 some length pays.")

# %% [markdown]
# All that $\alpha$ alone gives is a bound:
# with free rows and any $\gamma$, $E \le 1/(1 - \alpha)$, which is 1.25 at 0.2 and 1.67 at 0.4.
# So little can be *won* there.
# Whether something is *lost* depends on $t(q)$ and on the length of the draft.

# %% [markdown]
# ## The hit-rate map
#
# Here is all of it in one picture: coverage to the right, regularity upwards,
# and the predicted speedup on the dashed lines, for drafts of $\gamma$ tokens with this machine's $t(q)$.
# Each task stands where prompt lookup puts it:
# at its coverage, and at the *constant* $r$ that would accept as many tokens as its hits did with $\gamma = 10$.
# Things to find out: which way does $\gamma$ move the break-even line?
# When is the line level, and what does the box do to it?
# Where must a task lie so that a fixed shape loses and drafting on a hit gains?

# %%
from specdec_core.theory import alpha_for
from specdec_core.viz import hit_rate


def point(taken):
    """(coverage, constant regularity) of a method that drafts up to ten tokens."""
    h = rates(taken)[0]
    return h, alpha_for(min(1 + (tau(taken) - 1) / h, 11), 10) if h else 0.0


points = {task.replace("_", " "): point(steps[task, "prompt_lookup"]) for task in TASKS}
h, r = (round(20 * x) / 20 for x in points["write"])
hit_rate.sliders(costs, points, gamma=10, coverage=h, regularity=r, model=loaded)

# %% [markdown]
# ## Is translation repetitive?
#
# > **The notes say …** that summaries, code and *translation* are high in both factors, with $\alpha \approx 0.8$
# > to $0.9$, and that free writing is low, with 0.2 to 0.4 (section 8.1; section 4.2 names translation, too).
#
# "$\alpha$" can be read in three ways: as $h\,r_1$, by the note's formula; as regularity alone, all accepted
# over all tested tokens of the hits; or as the constant $\alpha$ that gives the measured τ at $\gamma = 10$.
# In each reading we grant the note the best of our three methods:

# %%
def readings(taken):
    """α as h r₁; as accepted / tested at hits; as the constant that gives τ."""
    h, r, _ = rates(taken)
    accepted = sum(emitted - 1 for _, emitted in taken)
    tested = accepted + sum(q > 1 and emitted < q for q, emitted in taken)
    return h * r[0], accepted / tested if tested else 0.0, alpha_for(min(tau(taken), 11), 10)


alphas = {task: np.max([readings(steps[task, name]) for name in METHODS], axis=0) for task in TASKS}
order = sorted(TASKS, key=lambda task: -alphas[task][0])
rows = [[task.replace("_", " "), *(f"{value:.2f}" for value in alphas[task])] for task in order]
display(Markdown(markdown(rows, ["task", "α₁ = h r₁", "regularity alone", "constant α giving τ"])))

# %% [markdown]
# And how much of each answer repeats itself (chapter 00)?
# Any memory predicts a loop perfectly, on any task.

# %%
def repeated(tokens, n=4):
    """Share of the n-grams that occurred earlier in the same text."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


for task in ("translate", "write"):
    for (prompt, tokens), taken in zip(answers[task], by_prompt[task, "prompt_lookup"]):
        copied = len(set(tokens) & set(prompt)) / len(set(tokens))
        tail = loaded.decode(tokens[-20:]).replace("\n", " / ")
        print(f"{task}: τ = {tau(taken):.2f}, α₁ = {readings(taken)[0]:.2f};", end=" ")
        print(f"{repeated(tokens):.0%} of its 4-grams are repetitions,", end=" ")
        print(f"{copied:.0%} of its distinct tokens stand in the prompt\n    …{tail}")

# %% jupyter={"source_hidden": true}
named = ["summarize", "edit_code", "complete_code", "translate"]
high = [task for task in named if max(alphas[task][0], alphas[task][2]) >= 0.8]
place = order.index("translate") + 1
loops = sum(repeated(tokens) > 0.4 for _, tokens in answers["translate"])
display(Markdown(
    f"> **Measured.** Translation has $\\alpha_1$ = {alphas['translate'][0]:.2f} with the best of three methods, "
    f"rank {place} of {len(TASKS)}; the constant that gives its τ is {alphas['translate'][2]:.2f}. "
    + ("That is in the note's range. " if "translate" in high else "That is not 0.8 to 0.9. ")
    + (f"Of its {len(answers['translate'])} answers {loops} {'is a loop' if loops == 1 else 'are loops'}, which "
       "says something about the model and nothing about translation. " if loops else "")
    + "Of the four tasks that the note names, "
    + (", ".join(task.replace("_", " ") for task in high) if high else "none")
    + f" reach{'es' if len(high) < 2 else ''} 0.8 in the first or the third reading. The note's order of the two "
    "extremes, code above free writing, "
    + ("is what we find: " if alphas["edit_code"][0] > alphas["write"][0] else "is not what we find: ")
    + f"{alphas['edit_code'][0]:.2f} for edited code, {alphas['write'][0]:.2f} for writing. Quoted, not measured "
    "here: on Spec-Bench (Vicuna-7B, greedy) prompt lookup runs at 1.07 times the ordinary speed on translation "
    "and at 2.31 times on summaries (chapter 05)."
))

# %% [markdown]
# Two languages share names, numbers and punctuation; those are covered, and such copies end after a token or two.
# A *session* of translations from one form or one product's manual would be different:
# there the memory of chapter 09 holds earlier translations.
# Whether a task is repetitive depends on what the memory holds, not on the task's name.

# %% [markdown]
# ## Why they win, why they lose
#
# | | coverage | regularity | what follows |
# |:--|:--|:--|:--|
# | quoting, editing | a match is there | long copies | $A \gg t_{\text{hit}}/t(1) - 1$: a gain that grows with $h$ |
# | summaries, chat, maths | names, numbers, commas | a token or so | the draft's length and $t(q)$ decide |
# | free writing | commas, *of the*; or a loop | mostly wrong | little to win; long wrong drafts lose |
# | anything, memory empty | none | – | ordinary decoding, at ordinary speed |
#
# How to win more: a larger memory raises coverage (chapters 08 and 09);
# a larger `min_n` raises regularity and lowers coverage; shorter drafts after short matches lower $t_{\text{hit}}$.
# Chapter 11 combines methods.
#
# ## Pitfalls
#
# - **Coverage twice.** It enters once per step, not once per token.
# - **Coverage of what?**
#   Here it is the coverage of *steps*.
#   Chapter 05 counted *positions*, also those inside an accepted copy, which are covered well.
#   The two numbers differ; say which you mean.
# - **A hit rate without its `min_n`.** If a suffix of one token counts,
#   many steps are covered whose drafts are never accepted, and the rate means little.
# - **Acceptance per token drafted** punishes long drafts for ending; acceptance per token *tested* does not.
#   Neither is $\alpha_1$, which counts misses, too.
# - **One α for all depths.** It is low at the first token and higher after it.
# - **Break-even without $t(q)$.** There is no α, and no hit rate, that wins or loses on every machine.
# - **Rates from two prompts**, as here: good for learning the model, too few for choosing a method.
#
# ## Summary
#
# - $\alpha_1 = h\,r_1$, and $\alpha_i = r_i$ from there on; $E = 1 + hA$ with $A = r_1 + r_1 r_2 + \dots$, exactly.
# - Coverage and regularity are counted from recorded answers, by task and method, without another forward.
# - Speedup $= (1 + hA)\,t(1) / (h\,t_{\text{hit}} + (1 - h)\,t_{\text{miss}} + t_{\text{draft}})$.
# - Drafting only on a hit pays if $A > t_{\text{hit}}/t(1) - 1$, whatever the coverage.
#   A fixed shape needs $h > (t_{\text{hit}}/t(1) - 1)/A$.
# - A miss costs an ordinary step; a wrong draft costs its rows.
# - A small α is no loss by itself:
#   if $t(q)$ is a straight line, some length gains exactly if a row costs less than $\alpha\,t(1)$.
# - Text that repeats has a large $A$; translation is such text only if its model, or its session, repeats itself.
#
# ## Twelve questions
#
# Each can be answered from chapters 00, 01, 05 and this one.
# Answer first, then unfold.
#
# **1.** State the one formula of the methods that draft without a model.
#
# <details><summary>Answer</summary>Find the n-gram that matches the context's suffix,
# take its continuation, let the target check it.
# (Chapter 05, "One formula".)</details>
#
# **2.** What is the memory of prompt lookup, of lookahead decoding, of REST, and of suffix decoding?
#
# <details><summary>Answer</summary>This request; n-grams that the model writes on the side;
# a large corpus, sorted beforehand; all that the session has seen.
# (Chapter 05, "One formula", the table.)</details>
#
# **3.** Someone fills the memory with another user's text.
# What happens to the output, and what to the speed?
#
# <details><summary>Answer</summary>The distribution of the output stays the same:
# the draft is a point mass, checked against the target, and the argument never uses where it came from.
# The speed changes with the drafts.
# (Chapter 05, "Why it is lossless"; chapter 01, "Drafts that were not drawn: point masses".)</details>
#
# **4.** Five drafted tokens are all accepted.
# How many tokens does the step emit, and from which distribution does the last one come?
#
# <details><summary>Answer</summary>Six; the last is the bonus token, from p at the place after the last draft.
# (Chapter 05, end of "Why it is lossless"; chapter 01, "A block of drafts, and the bonus token".)</details>
#
# **5.** p = (5, 3, 1, 1)/10 and q = (2, 2, 2, 4)/10.
# How often is a draft from q accepted, and what is the distribution of the correction?
#
# <details><summary>Answer</summary>(2 + 2 + 1 + 1)/10 = 0.6.
# The residual (p − min(p, q))/(1 − 0.6) = (3, 1, 0, 0)/4.
# (Chapter 01, "How much can be kept?" and "The residual, backwards".)</details>
#
# **6.** Why not draw the correction from p itself?
#
# <details><summary>Answer</summary>Accepted drafts have already contributed part of p, namely min(p, q).
# The correction must contribute exactly the rest, or the total is not p.
# (Chapter 01, "The residual, backwards".)</details>
#
# **7.** Why can a forward over eight rows take little longer than one over one row, and where does that end?
#
# <details><summary>Answer</summary>The weights are read once, whatever the number of rows;
# up to q* = bF/2B rows the forward waits for the memory, beyond that for the arithmetic.
# (Chapter 00, "t(q): the time of a forward with q tokens in it".)</details>
#
# **8.** Half of the steps hit, r = (0.8, 0.9).
# How many tokens does a step emit on average?
# Why is the second depth not multiplied by the coverage again?
#
# <details><summary>Answer</summary>1 + 0.5 (0.8 + 0.72) = 1.76.
# If the first token was accepted, there was a draft, so the second cannot miss.
# (Here, "Two factors".)</details>
#
# **9.** A hit brings 0.4 tokens on average and its forward takes 1.3 t(1).
# Coverage is 10 percent, lookups are free, a miss runs one row.
# Does it pay?
# At 90 percent?
#
# <details><summary>Answer</summary>At both: 0.4 is more than 0.3.
# The speedup (1 + hA)/(1 + 0.3 h) is 1.04/1.03 = 1.01 and 1.36/1.27 = 1.07.
# (Here, "From tokens to time" and "Break-even"; chapter 05, "When does it pay?
# A miss is free, a wrong draft is not".)</details>
#
# **10.** The same hits in a method that runs its rows in every step.
# From which hit rate on does it pay?
#
# <details><summary>Answer</summary>h* = 0.3/0.4 = 0.75.
# (Here, "Break-even".)</details>
#
# **11.** α = 0.3 at every place.
# Is drafting a loss?
# Give a t(q) for which it is a loss, and one for which it is not.
#
# <details><summary>Answer</summary>It depends on t(q).
# If each further row costs 0.2 t(1), one drafted token gains, 1.3/1.2 = 1.08, and ten lose.
# If a row costs 0.3 t(1) or more, no length gains.
# (Here, "Is an α of 0.2 to 0.4 a loss?")</details>
#
# **12.** Prompt lookup shows τ = 3 on free writing.
# What do you do before you believe it?
# And which values of the two factors would you expect instead?
#
# <details><summary>Answer</summary>Read the text: it may be a loop, which the share of repeated 4-grams shows.
# Otherwise expect hits on common tokens only, hence little regularity and few accepted tokens per hit.
# (Chapter 00, "A win that is worth nothing"; chapter 05, "Loops:
# read the text first"; here, "Why they win, why they lose".)</details>
#
# ## Further reading
#
# - Y. Leviathan, M. Kalman, Y. Matias, *Fast Inference from Transformers via Speculative Decoding*,
#   ICML 2023, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192): $E$ and the speedup for one constant α
# - A. Saxena, *Prompt Lookup Decoding*, 2023,
#   [github.com/apoorvumang/prompt-lookup-decoding](https://github.com/apoorvumang/prompt-lookup-decoding)
# - G. Oliaro, Z. Jia, D. Campos, A. Qiao, *SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications*,
#   NeurIPS 2025, [arXiv:2411.04975](https://arxiv.org/abs/2411.04975): drafts as long as the match is
# - H. Xia and others, *Unlocking Efficiency in Large Language Model Inference: A Comprehensive Survey
#   of Speculative Decoding*, Findings of ACL 2024, [arXiv:2401.07851](https://arxiv.org/abs/2401.07851);
#   Spec-Bench, quoted above, is at [github.com/hemingkx/Spec-Bench](https://github.com/hemingkx/Spec-Bench)
