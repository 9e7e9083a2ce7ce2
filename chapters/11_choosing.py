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
# # 11 · Choosing
#
# > **The question of this chapter.**
# > Given a load, a machine and a batch: which of this book's methods should run, and with how long a draft?
# > And what would tell us later that the choice was wrong?
#
# **Afterwards you can**
#
# - put every method on one scale, tokens per step against the time of a step,
#   and say why the order of τ is not the order of speed;
# - compare methods on recorded answers, without running the target again, and race only the finalists;
# - combine a lookup with a model, and say when the combination is slower than its parts;
# - compute from $t(q, B)$ up to which batch size a method pays;
# - write your choice in the switches of four serving engines,
#   and keep the four records that show whether it still holds.
#
# **Taken for granted:** chapter 00 ($t(q)$, the roofline) and chapter 10 (hit rate, replay, predicted speedup).
# From the other chapters you need only the name of each method and where its draft comes from, which is repeated here.
#
# **Time:** 35 minutes of reading.
# The cells take about two minutes on two CPU cores; run them with nothing else going on, because many use a stopwatch.

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
from specdec_core.viz import choosing, figures, style

style.use()
loaded = load()
lm = CachedLM(loaded)
print(loaded.why)

# %% [markdown]
# ## One scale for all methods
#
# Whatever a method does, its run is a list of steps.
# A step writes some tokens, runs one forward of the target over $q$ rows, and spends some time $d$ on its draft.
# Let τ be the mean number of tokens per step.
# The **price** of a step is its mean time in units of an ordinary step,
#
# $$\rho = \frac{\text{mean of } t(q) + d}{t(1)}, \qquad\text{and}\qquad \text{speedup} = \frac{\tau}{\rho},$$
#
# because $n$ steps write $n\tau$ tokens in $n\rho\,t(1)$, and ordinary decoding takes $n\tau\,t(1)$ for as many.
# A trained drafter has a large τ and a large $d$.
# A lookup has $d \approx 0$ and, when it misses, $q = 1$.
# A wide tree has a large $q$.
# All of this ends up in two numbers, and a method is worth using exactly if $\tau > \rho$.
#
# **By hand.** Half of the steps have 1 row, the other half 5; $t(5) = 1.4\,t(1)$;
# each step spends $0.05\,t(1)$ on its draft and writes two tokens on average.
# Then $\rho = (1 + 1.4)/2 + 0.05 = 1.25$, and the speedup is $2/1.25 = 1.6$.
# A model with $\tau = 3$ and $d = 1.5\,t(1)$ on 5 rows has $\rho = 2.9$:
# it writes more tokens and gains nearly nothing, 1.03.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.measure import Costs

Steps, speedup = choosing.Steps, choosing.speedup
by_hand = Costs(0, 1, (1, 5), (1.0, 1.4), (1.0, 1.4), (1.0, 1.4))
half = Steps(hit_rows={5: 1}, miss_rows={1: 1}, tokens=4, seconds={"draft": 0.05})  # one step of each kind
every = Steps(hit_rows={5: 2}, miss_rows={}, tokens=6, seconds={"draft": 1.5})
print(f"{speedup(half, by_hand):.2f} and {speedup(every, by_hand):.2f}")

# %% [markdown]
# ## The same answers for all
#
# Ordinary decoding answers one question from each of the eight tasks.
# Greedy answers do not depend on the drafter,
# so every drafter that reads tokens can be replayed on them, as in chapter 10.
# One thing is new.
# Heads and feature drafters read the target's *states*,
# so we keep those of each answer as well, from one forward over the finished text.
# The replay is a run of the usual loop, with a recording in the target's place.
# Whatever a drafter does, combinations included,
# it meets what it would meet live, and the loop times its drafting on the way.

# %%
from specdec_core import generate
from specdec_core.race import TASKS, own

LENGTH, stop = 32, loaded.stop
prompts = {question.task: loaded.encode(question.turns[0]) for question in own(limit=1)}
generate(lm, prompts["math"], max_new_tokens=4)  # first calls are slow
plain = {task: generate(lm, prompt, max_new_tokens=LENGTH, stop=stop) for task, prompt in prompts.items()}
texts = {task: [*prompts[task], *plain[task].tokens] for task in TASKS}
states = {task: lm.prefill(text, needs_hidden=True) for task, text in texts.items()}  # (tokens, D) each
print(f"{len(plain)} answers, {sum(len(run.tokens) for run in plain.values())} tokens")

# %% [markdown]
# Then we measure $t(q, B)$, the time of a forward with $q$ rows for each of $B$ sequences; larger $B$ are for later.

# %%
from specdec_core.measure import measure_costs

costs = measure_costs(lm, (1, 2, 3, 5, 9, 17, 33, 65), context=192, repeats=4, batches=(1, 2, 4, 8, 16))
times = ", ".join(f"t({q}) = {costs.break_even(q):.2f}" for q in (2, 5, 9, 17, 33, 65))
print(f"t(1) = {1e3 * costs.t(1):.1f} ms; in units of it {times}")

# %%
from specdec_core import Recorded


def replay(drafter):
    """task -> the trace of the greedy run with the recorded answer."""
    recordings = {task: Recorded(prompts[task], plain[task].tokens, states[task]) for task in TASKS}
    return {task: recorded.replay(drafter) for task, recorded in recordings.items()}


# %% [markdown]
# The methods are those of the package's registry, each with its default settings.
# Two of their needs must be met first.
# REST needs a datastore, which we build here in memory, from code that every machine has (chapter 08).
# The trained drafters need weights, which belong to one target.
# If the weights for this target are missing, the method is left out, and the cell says so.

# %%
from specdec_core.stores import SuffixStore, code_files, read_texts, tokenized

documents, size = [], 0
for document in tokenized(read_texts(iter(code_files())), loaded.tokenizer):
    documents.append(document)
    size += len(document) + 1
    if size > 300_000:
        break
store = SuffixStore.in_memory(documents, lm.vocab_size)

# %%
from specdec_core import SpecdecError
from specdec_core.drafters import BASELINE, REGISTRY, REST, build
from specdec_core.measure import context_for

context = context_for(lm, costs=costs)


def fresh(name):
    """A drafter with its default settings and an empty memory."""
    return REST(store) if name == "rest" else build(name, context)


drafters, missing = {}, []
for name in REGISTRY:
    try:
        drafters[name] = fresh(name)
    except SpecdecError:
        missing.append(name)
drafters.pop(BASELINE)
MODELS = ("draft_model", "mtp", "eagle", "medusa")
trained = [name for name in MODELS if name in drafters]
lookups = [name for name in drafters if name not in (*MODELS, "cascade", "adaptive")]
print("methods:", ", ".join(drafters))
print(f"datastore: {len(store):,} tokens; without weights for this target: {', '.join(missing) or 'no method'}")

# %% [markdown]
# Two methods cannot be replayed:
# Jacobi and lookahead decoding read what the target says *after a wrong token*, and no recording has that.
# They run live.
# All others are replayed.
# One drafter goes through the eight answers in turn, so that suffix decoding may remember the earlier ones.

# %%
LIVE = ("jacobi", "lookahead")
traces = {}  # method -> task -> trace
for name, drafter in drafters.items():
    if name in LIVE:
        traces[name] = {
            task: generate(lm, prompts[task], drafter, max_new_tokens=LENGTH, stop=stop).trace
            for task in TASKS
        }
    else:
        traces[name] = replay(drafter)


steps = {name: {task: Steps.of([run], name in MODELS) for task, run in by_task.items()}
         for name, by_task in traces.items()}

# %% [markdown]
# ## All methods, all tasks
#
# First the steps: τ, which does not depend on the machine (except for `adaptive`, which looks at $t(q)$).

# %%
def plainly(name):
    return name.replace("_", " ")


rows = [[plainly(name), *(f"{steps[name][task].tokens_per_call:.2f}" for task in TASKS)] for name in steps]
display(Markdown(markdown(rows, ["method", *map(plainly, TASKS)])))

# %% [markdown]
# Then the clock: the speedup predicted from the rows of each step and the measured $t(q)$,
# plus the time that drafting took in the replay.

# %%
gains = {(name, task): speedup(steps[name][task], costs) for name in steps for task in TASKS}
mean = {name: float(np.exp(np.mean([np.log(gains[name, task]) for task in TASKS]))) for name in steps}
order = sorted(mean, key=lambda name: -mean[name])
fig = choosing.table({(name, task): gains[name, task] for name in order for task in TASKS})
alt = "Predicted speedup of every method on every task, as numbers; losses are hatched, the best framed."
figures.save(fig, "11-all", alt=alt, model=loaded)

# %%
fig, axes = plt.subplots(figsize=(7.6, 4.4))
whole = {}
for i, name in enumerate(order):
    pooled = Steps.of(traces[name].values())
    tau, price = pooled.tokens_per_call, (pooled.mean(costs.t) + pooled.draft_seconds) / costs.t(1)
    whole[name] = tau, price
    axes.plot(price, tau, marker=style.MARKERS[i % 11], color=style.PALETTE[i % 7], linestyle="none",
              markersize=9, markeredgecolor="black", label=f"{plainly(name)}: {tau / price:.2f}")
top, right = 1.15 * max(tau for tau, _ in whole.values()), 1.1 * max(price for _, price in whole.values())
for level in (0.5, 0.75, 1, 1.25, 1.5, 2):
    x = min(right, top / level)  # where the ray leaves the picture
    axes.plot([0, x], [0, level * x], color="#7F7F7F", linewidth=2 if level == 1 else 0.8, linestyle="--")
    axes.annotate(f"{level:g}×", (x, level * x), fontsize=8, xytext=(2, 2), textcoords="offset points")
axes.set(xlabel="ρ, price of a step, in t(1)", ylabel="τ, tokens per step", xlim=(0.9, right), ylim=(0.9, top))
axes.legend(title="method: τ / ρ", loc="center left", bbox_to_anchor=(1.06, 0.5))
alt = "Tokens per step against the price of a step, a marker per method; each ray from the origin is one speedup."
figures.save(fig, "11-price", alt=alt, model=loaded)

# %%
by_tau = sorted(whole, key=lambda name: -whole[name][0])
by_speed = sorted(whole, key=lambda name: -whole[name][0] / whole[name][1])
moved = sum(a != b for a, b in zip(by_tau, by_speed))
display(Markdown(
    f"By τ: {', '.join(map(plainly, by_tau))}.\n\nBy speed: {', '.join(map(plainly, by_speed))}.\n\n"
    f"{moved} of {len(by_tau)} methods change their place."
))

# %% [markdown]
# *Every ray is one speedup; the heavy one is break-even.*
# Better drafts move a method up, cheaper ones move it left.
# On a machine where rows and drafting cost less, all points slide to the left, by different amounts.
# That is why the ranking of a paper is a ranking on the paper's machine.
#
# We use two means.
# τ/ρ in this figure is pooled, all tokens over all time, so that slow tasks weigh more.
# A *mean over the tasks*, below, is the geometric mean of their speedups, in which all tasks count alike;
# a few large gains lift it further.
#
# ### A paragraph each
#
# What each method needs and where its draft comes from does not depend on the run.
# The rest does, and the cell writes it.

# %%
ABOUT = {
    "prompt_lookup": ("05", "the request's own text", "nothing"),
    "ngram": ("09", "the request's own text, with counts", "nothing"),
    "jacobi": ("06", "the target's last step, wrong rows included", "nothing; rows in every step"),
    "lookahead": ("07", "n-grams that the target writes on the side", "nothing; a fixed, wide forward"),
    "rest": ("08", "a corpus, sorted beforehand", "a datastore in the target's tokens, some six bytes each"),
    "suffix_decoding": ("09", "all that the session has seen", "a memory that grows, empty at first"),
    "draft_model": ("02", "a smaller model, same tokenizer", "weights, a second cache, a forward per draft token"),
    "medusa": ("03", "heads on the target's last state", "trained heads, a tree mask, access to the states"),
    "mtp": ("03", "a module on state and token, recursively", "a trained module, access to the states"),
    "eagle": ("04", "a layer that continues states", "a trained layer, a tree mask, access to the states"),
    "cascade": ("11", "two of the others, the second on a miss", "what both need"),
    "adaptive": ("11", "another drafter, as long as it pays", "what that one needs, and $t(q)$"),
}


# %%
def listed(tasks):
    return ", ".join(plainly(task) for task in tasks) or "no task"


def paragraph_on(name):
    """What it needs, where its draft comes from, where it wins and loses here."""
    chapter, source, needs = ABOUT.get(name, ("–", "see its docstring", "see its docstring"))
    ranked = sorted(TASKS, key=lambda task: -gains[name, task])
    first = [task for task in TASKS if name == max(order, key=lambda other: gains[other, task])]
    lost = [task for task in TASKS if gains[name, task] < 0.995]
    tau, price = whole[name]
    drafting = np.mean([steps[name][task].draft_seconds for task in TASKS]) / costs.t(1)
    ends = [f"{plainly(task)} ({gains[name, task]:.2f})" for task in (ranked[0], ranked[-1])]
    return (
        f"**{plainly(name)}** (chapter {chapter}). *Draft from:* {source}. *Needs:* {needs}. "
        f"Here τ = {tau:.2f} for a step of {price:.2f} $t(1)$, of which drafting is {drafting:.2f}. "
        f"Best on {ends[0]}, worst on {ends[1]}; fastest of all on {listed(first)}; a loss on {listed(lost)}."
    )


display(Markdown("\n\n".join(paragraph_on(name) for name in order)))

# %% [markdown]
# One short answer per task is enough to *see* how the methods differ.
# It is too little to choose by; that is what *A procedure*, below, is for.
#
# ## Model-free against trained
#
# The two families fail differently.
# A lookup depends on the *text*: without a copy, there is nothing to find.
# A trained drafter depends on its *training*: it drafts everywhere, and pays for that in every step.
# So look at the first drafted token over all steps, misses included: $\alpha_1$ of chapter 10.

# %%
def alpha_1(name, task):
    """The share of all steps whose first drafted token was accepted."""
    run = traces[name][task]
    return sum(len(step.tokens) > 1 for step in run.steps) / run.target_calls


def best_of(names, task):
    return max(names, key=lambda name: gains[name, task])


table = []
for task in TASKS:
    cells = [plainly(task)]
    for family in (lookups, trained):
        name = best_of(family, task) if family else None
        numbers = [f"{alpha_1(name, task):.2f}", f"{gains[name, task]:.2f}"] if name else ["–", "–"]
        cells += [plainly(name) if name else "–", *numbers]
    table.append(cells)
columns = ["task", "best model-free", "its α₁", "its speedup", "best trained", "its α₁ ", "its speedup "]
display(Markdown(markdown(table, columns)))

# %% jupyter={"source_hidden": true}
def spread(name):
    values = [alpha_1(name, task) for task in TASKS]
    return f"{plainly(name)} {min(values):.2f} to {max(values):.2f}"


copying, free = ("summarize", "edit_code", "complete_code", "translate"), ("chat", "write")
def losing(names):
    """The tasks on which even the best of these methods loses."""
    return listed(task for task in TASKS if gains[best_of(names, task), task] < 0.995)


measured = "There are no trained weights for this target, so only the model-free half could be compared."
if trained:
    wins = {task: gains[best_of(lookups, task), task] >= gains[best_of(trained, task), task] for task in TASKS}
    right = [task for task in copying if wins[task]], [task for task in free if not wins[task]]
    measured = (
        f"Over the tasks $\\alpha_1$ ranges, for {'; '.join(map(spread, [*lookups[:1], *trained]))}. The rule speaks "
        f"of six tasks and names the faster family for {sum(map(len, right))} of them here: a model-free method is "
        f"faster on {listed(right[0])} of the four, a trained one on {listed(right[1])} of the two. "
        f"The best model-free method loses on {losing(lookups)}, the best trained one on {losing(trained)}."
    )

# %% jupyter={"source_hidden": true}
display(Markdown(
    "> **The notes say …** (model-free chapter, section 11) when to choose which: model-free methods for summaries, "
    "code, translation and reuse of long contexts; trained ones where text is free, because their acceptance is "
    "*stable*, for EAGLE about 0.8, in any context. As a first guess that is fair; as a rule it leaves out the price. "
    "A trained drafter's $\\alpha_1$ depends on the text as well, and its speedup depends on $d$, "
    f"which no acceptance rate contains. **Measured:** {measured}"
))

# %% [markdown]
# This book's drafters have seen little text; their cards say how much (chapter 04).
# More training may raise the acceptance, but does not change the price of a step.
# So first ask of any trained drafter what it would gain if *everything* were accepted:
# $(\gamma + 1)/\rho$, where γ is the depth of its draft.
# If that is not enough, no training will help.

# %%
for name in trained:
    drafts = [step.tree for task in TASKS for step in traces[name][task].steps if step.tree.size]
    depth, (tau, price) = max(int(tree.depths.max()) for tree in drafts), whole[name]
    print(f"{name:12} τ = {tau:.2f}, ρ = {price:.2f}: {tau / price:.2f} times as fast;", end=" ")
    print(f"if all {depth} tokens along a path were accepted, {(depth + 1) / price:.2f}")
if not trained:
    print("no trained drafter here")

# %% [markdown]
# ## Lookup first, a model when it misses
#
# A lookup costs nothing when it misses, and a model always has an answer.
# So ask the lookup first: this is a **cascade**.
# Let a share $h$ of the steps be the lookup's, each with $T_1$ tokens at a price of $\rho_1$,
# and the others the model's, with $T_2$ tokens at $\rho_2$.
# Tokens over time give
#
# $$\text{speedup} = \frac{h\,T_1 + (1 - h)\,T_2}{h\,\rho_1 + (1 - h)\,\rho_2},$$
#
# which lies *between* $T_1/\rho_1$ and $T_2/\rho_2$, as every such quotient does.
# The cascade beats the model alone exactly if a hit of the lookup is worth more,
# in tokens over time, than a step of the model.
# (This assumes that the model does as well on the steps left to it as on all steps.)
# **Any hit hides the model.**
# A lookup that fires on every comma takes the step away from a drafter that would have done better.
#
# **By hand.** $h = 0.4$; the model has $T_2 = 2$ at $\rho_2 = 1.6$, a rate of 1.25.
# Good hits, $T_1 = 2.5$ at $\rho_1 = 1.25$: $(1.0 + 1.2)/(0.5 + 0.96) = 1.51$, better than the model alone.
# Poor hits, $T_1 = 1.3$ at the same price: $(0.52 + 1.2)/1.46 = 1.18$, worse.

# %%
# NBVAL_CHECK_OUTPUT
def cascade_speedup(h, T_1, price_1, T_2, price_2):
    return (h * T_1 + (1 - h) * T_2) / (h * price_1 + (1 - h) * price_2)


good, poor = (cascade_speedup(0.4, T_1, 1.25, 2.0, 1.6) for T_1 in (2.5, 1.3))
print(f"good hits {good:.2f}, poor hits {poor:.2f}, no lookup {2.0 / 1.6:.2f}")

# %% [markdown]
# The knob is `min_n`, the shortest match that counts as a hit.
# We put the best trained drafter behind prompt lookup (or, without weights, the best other lookup), and vary `min_n`.
# All runs are replayed.
# The third column is the worth of a hit, $T_1/\rho_1$:

# %%
from specdec_core.drafters import Cascade, PromptLookup


def overall(runs):
    """Geometric mean over the tasks of the predicted speedup."""
    return float(np.exp(np.mean([np.log(speedup(Steps.of([run]), costs)) for run in runs.values()])))


others = trained or [name for name in lookups if name not in ("prompt_lookup", *LIVE)]
second = max(others, key=mean.__getitem__)
cascades = {n: replay(Cascade(PromptLookup(min_n=n, max_n=max(n, 3)), fresh(second))) for n in (1, 2, 3, 4)}
alone = {n: replay(PromptLookup(min_n=n, max_n=max(n, 3))) for n in cascades}
table = []
for n, runs in cascades.items():
    every = [step for run in alone[n].values() for step in run.steps]
    hits = [step for step in every if step.tree.size]
    paid = sum(costs.break_even(len(step.tree.tokens)) for step in hits)
    worth = f"{sum(len(step.tokens) for step in hits) / paid:.2f}" if hits else "–"
    speeds = (f"{value:.2f}" for value in (overall(alone[n]), mean[second], overall(runs)))
    table.append([str(n), f"{len(hits) / len(every):.2f}", worth, *speeds])
columns = ["min_n", "share of hits", "T₁ / ρ₁", "lookup alone", f"{plainly(second)} alone", "cascade"]
display(Markdown(markdown(table, columns)))

# %% [markdown]
# A cascade can be faster than *both methods alone* without leaving the formula:
# the lookup alone spends its misses on steps of one token, and the cascade gives those to the model.

# %% jupyter={"source_hidden": true}
best_n = max(cascades, key=lambda n: overall(cascades[n]))
c = {n: overall(runs) for n, runs in cascades.items()}
parts = max(mean[second], overall(alone[best_n]))
worse = [str(n) for n in cascades if c[n] < max(mean[second], overall(alone[n]))]
display(Markdown(
    "> **The notes say …** (model-free chapter, section 4.3) that prompt lookup is a plug-in without cost, to be "
    "combined with other drafters rather than used by itself. Its lookup is free; its *hits* are not: they cost rows, "
    "and in a cascade they cost the draft that was not asked for. "
    f"**Measured**, in front of {plainly(second)}: with `min_n` = 1 the cascade is predicted at {c[1]:.2f}; best is "
    f"`min_n` = {best_n} with {c[best_n]:.2f}, where the better of its two parts alone has {parts:.2f}. "
    + (f"With `min_n` = {', '.join(worse)} the combination is slower than one of its parts. " if worse else
       "At every `min_n` it is at least as fast as its parts. ")
    + f"By itself prompt lookup is {'a' if mean['prompt_lookup'] > 1 else 'no'} gain over these tasks, "
    f"{mean['prompt_lookup']:.2f} with its default settings."
))

# %% [markdown]
# By name the combination is `cascade:first=prompt_lookup,second=eagle`, with the default settings of both;
# in code it takes any two drafters, as above.
# Both drafters observe every step.
# When the model is asked again, it reads what it missed in one forward, so that its cache holds the whole text.
#
# ## Drafting only when it pays
#
# The other remedy for a poor draft is not to make it.
# For each place of the draft, `Adaptive` keeps a running mean of how often it was accepted lately.
# With $t(q)$ it computes the rate $(1 + a(m))\,/\,(t(m + 1) + d(m))$ for every length $m$,
# and takes the best, $m = 0$ included.
# A lookup can be watched at no cost: the text itself shows what a draft that was not used would have been worth.
# A drafter that costs something gets a trial now and then.
# We give `Adaptive` suffix decoding, its default, and then the trained drafter, whose $d$ is the time measured above:

# %%
from specdec_core.drafters import Adaptive

versions = {("suffix_decoding", "as it is"): traces["suffix_decoding"]}
versions["suffix_decoding", "adaptive"] = traces["adaptive"]
if trained:
    d = float(np.mean([steps[second][task].draft_seconds for task in TASKS]))
    versions[second, "as it is"] = traces[second]
    versions[second, "adaptive"] = replay(Adaptive(fresh(second), costs.t, lambda nodes: d))
table = []
for (name, how), runs in versions.items():
    found = {task: speedup(Steps.of([run]), costs) for task, run in runs.items()}
    low, high = min(found, key=found.get), max(found.values())
    drafted = sum(run.drafted for run in runs.values()) / sum(run.target_calls for run in runs.values())
    worst = f"{found[low]:.2f} ({plainly(low)})"
    table.append([plainly(name), how, f"{drafted:.1f}", worst, f"{high:.2f}", f"{overall(runs):.2f}"])
display(Markdown(markdown(table, ["method", "drafts", "drafted per step", "worst task", "best", "mean"])))

# %%
for name in dict.fromkeys(name for name, _ in versions):
    plain_mean, adapted = (overall(versions[name, how]) for how in ("as it is", "adaptive"))
    change = adapted / plain_mean
    verdict = "gains" if change > 1.005 else "loses" if change < 0.995 else "neither gains nor loses"
    print(f"{plainly(name)}: mean {plain_mean:.2f} as it is, {adapted:.2f} adaptive: {verdict} by choosing")

# %% [markdown]
# It protects against a task on which drafts fail for long.
# It costs the first steps of each kind, in which it has to find out; the answers here are short for that.
# Nothing is timed while it runs: with the same $t(q)$ it makes the same choices, so a run can be repeated.
#
# ## What a batch does to it
#
# So far one sequence had the machine to itself.
# A server puts $B$ sequences into one forward, and drafts turn $B$ rows into $Bq$.
# Take the roofline of chapter 00: in units of the time to read the weights, a forward
# over $n$ rows takes $\max(1, n/q^*)$, where $q^*$ is the number of rows from which on computing is the bottleneck.
# With τ tokens per step from $q$ rows and free drafts,
#
# $$\text{speedup}(B) = \tau \cdot \frac{\max(1, B/q^*)}{\max(1, Bq/q^*)} = \begin{cases}
# \tau & B \le q^*/q \quad\text{(rows are free)}\\
# \tau\, q^*/(Bq) & q^*/q \le B \le q^*\\
# \tau/q & B \ge q^* \quad\text{(every row costs)}\end{cases}$$
#
# It is a gain until
#
# $$B^* = q^* \cdot \frac{\tau}{q}.$$
#
# Since a step cannot write more tokens than it has rows, $\tau \le q$ always.
# So **on a busy enough machine every method loses**, whatever its acceptance.
# How long a method holds out is decided not by τ but by $\tau/q$, the tokens per *row*.
# Long drafts and wide trees raise τ and lower $\tau/q$.
#
# **By hand.** $q^* = 40$.
# A chain of 5 drafts with τ = 3: $q = 6$, $B^* = 20$.
# A tree of 60 nodes with τ = 4: $q = 61$, $B^* = 2.6$.

# %%
# NBVAL_CHECK_OUTPUT
machine = choosing.roofline(40, batches=(1, 2, 4, 8, 16, 20, 32, 64))
sizes = [part.batch for part in machine.by_batch]
print(f"{'B =':>39}", "".join(f"{B:6}" for B in sizes))
for name, q, tau in (("chain of 5, τ = 3", 6, 3), ("tree of 60, τ = 4", 61, 4)):
    values = "".join(f"{speedup(Steps({q: 1}, {}, tokens=tau), machine, B):6.2f}" for B in sizes)
    print(f"{name}: B* = {40 * tau / q:4.1f}; speedup   {values}")

# %% [markdown]
# **Measured.** We have timed forwards in which several sequences, each with its own cache, share the rows: $t(q, B)$.
# The speedups are *predicted* from it, since the loop of this package decodes one sequence at a time.
# Sequences of a batch take different steps, so we add up the rows of $B$ recorded steps, drawn at random.
# A drafter's model runs for the whole batch as well;
# we let its time grow as the target's one-row forward does, $d\,t(1, B)/t(1)$.
# Searches run one after the other and take $B\,d$.

# %%
SIZES = [part.batch for part in costs.by_batch]
print("B:              ", "".join(f"{B:7}" for B in SIZES))
for q in (1, 5, 9, 17):
    known = [B for B, part in zip(SIZES, costs.by_batch) if q <= part.widths[-1]]  # wider was not timed
    print(f"t({q}, B) / t(1): ".ljust(17), "".join(f"{costs.t(q, B) / costs.t(1):7.2f}" for B in known))

# %%
def over_tasks(name, B):
    """Geometric mean over the tasks; nan if one is not known."""
    return float(np.exp(np.mean([np.log(speedup(steps[name][task], costs, B)) for task in TASKS])))


shown = list(dict.fromkeys([*order[:4], *[name for name in order if name in trained][:2], "lookahead"]))
fig, axes = plt.subplots(figsize=(7.6, 4.0))
curves = {name: [over_tasks(name, B) for B in SIZES] for name in order}
for i, name in enumerate(shown):
    axes.plot(SIZES, curves[name], label=plainly(name), **style.line(i))
axes.axhline(1, color="black", linewidth=1)
axes.set_xscale("log", base=2)
axes.set_xticks(SIZES, SIZES)
axes.set(xlabel="B, sequences in a forward", ylabel="predicted speedup, mean over tasks", ylim=(0, None))
axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
alt = "Predicted speedup against the number of sequences in a batch, a line per method."
figures.save(fig, "11-batch", alt=alt, model=loaded)

# %%
def limit(name):
    """Where the curve falls to 1: a batch, or words."""
    known = [(B, value) for B, value in zip(SIZES, curves[name]) if not np.isnan(value)]
    if known[0][1] <= 1:
        return "never a gain"
    for (a, x), (b, y) in zip(known, known[1:]):
        if y <= 1:
            return f"up to B ≈ {a + (b - a) * (x - 1) / (x - y):.1f}"
    return f"still at B = {known[-1][0]}"


table, ratio = [], {}
for name in order:
    widths = np.mean([steps[name][task].mean(float) for task in TASKS])
    values = ["–" if np.isnan(value) else f"{value:.2f}" for value in curves[name]]
    ratio[name] = whole[name][0] / widths
    table.append([plainly(name), f"{widths:.1f}", f"{ratio[name]:.2f}", *values, limit(name)])
columns = ["method", "q, rows per step", "τ / q", *(f"B = {B}" for B in SIZES), "a gain"]
display(Markdown(markdown(table, columns)))

# %% jupyter={"source_hidden": true}
heads = [name for name in ("eagle", "medusa") if name in drafters]
ends = {name: limit(name) if limit(name).startswith("never") else f"a gain {limit(name)}" for name in order}
where = "; ".join(
    f"{plainly(name)} has τ/q = {ratio[name]:.2f} and is {ends[name]}"
    for name in dict.fromkeys([*heads, "lookahead", *order[:1]])
)
display(Markdown(
    "> **The notes say …** (lookahead article, at its end) that EAGLE and Medusa are suited to batches, and "
    "lookahead, which trades idle arithmetic for steps, to low latency. *All* of these methods trade idle "
    "arithmetic for steps, and a batch takes it from all of them. They differ in the number of rows per token. "
    "A tree of heads has many, too. And of one drafter's chains the shortest holds out longest, since each further "
    f"token is accepted less often than the one before it. **Here:** {where}."
))

# %% [markdown]
# Therefore some engines let the length of a draft depend on the batch, or stop drafting above some load.
# If yours has no such switch, choose for the batch that it runs *most of the time*,
# not for the benchmark with one request.
#
# ## Choose yourself
#
# Here is all of the above in one picture.
# Choose a task, a batch, and the costs of a forward:
# those measured here, or rooflines with $q^*$ at 8, 64 and 256 rows (drafting then keeps its price relative to $t(1)$).
# Things to find out: which method loses here and wins on a GPU-like machine?
# Which winner changes first as the batch grows?
# On which task is no choice good?

# %%
machines = {"measured here": costs}
machines |= {f"roofline, q* = {rows}": choosing.roofline(rows, costs.t(1)) for rows in (8, 64, 256)}
choosing.chooser({task: {name: steps[name][task] for name in order} for task in TASKS}, machines)

# %% [markdown]
# ## The finalists, live
#
# A prediction chooses whom to race; it does not replace the race.
# The best model-free method, the best trained one and the better combination now decode the eight prompts live.
# They take turns, and each task begins with another method (`specdec race` does the same and repeats it).

# %%
from specdec_core import compare

replayed = [name for name in lookups if name not in LIVE]
chosen = [max(replayed, key=mean.__getitem__)]
chosen += [max(trained, key=mean.__getitem__)] if trained else []
chosen += [max(("cascade", "adaptive"), key=mean.__getitem__)]
if chosen[-1] == "cascade" or overall(cascades[best_n]) > mean[chosen[-1]]:
    chosen[-1] = f"prompt lookup > {second}"
racers = {name: fresh(name) for name in chosen if name in drafters}  # nobody remembers these answers
if chosen[-1] not in racers:
    racers[chosen[-1]] = Cascade(PromptLookup(min_n=best_n, max_n=max(best_n, 3)), fresh(second))
asked = {task: [prompt] for task, prompt in prompts.items()}
race = compare(lm, asked, racers, max_new_tokens=LENGTH, repeats=1)
live = {(name, task): race.answers(name, task)[0] for name in race.methods for task in TASKS}

# %%
predicted = {name: {task: speedup(race.steps(name, task), costs) for task in TASKS} for name in chosen}
measured = {name: {task: race.row(name, task).decode_speedup for task in TASKS} for name in chosen}
fig, axes = plt.subplots(figsize=(7.6, 3.8))
for i, name in enumerate(chosen):
    at = np.arange(len(TASKS)) + 0.27 * (i - 1)
    axes.bar(at, list(measured[name].values()), width=0.25, label=plainly(name), **style.bar(i))
    axes.plot(at, list(predicted[name].values()), linestyle="none", marker="_", markersize=9, color="black",
              markeredgewidth=2, label="predicted from its steps" if not i else None)
axes.axhline(1, color="black", linestyle="--", linewidth=1)
axes.set_xticks(range(len(TASKS)), [plainly(task).replace(" ", "\n") for task in TASKS])
axes.set(ylabel="measured speedup")
axes.grid(axis="x", visible=False)
fig.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=4)
alt = "Measured speedups of the finalists by task, as bars; a mark where their steps predict each."
figures.save(fig, "11-race", alt=alt, model=loaded)

# %%
from specdec_core.measure import agreement

final = {name: race.row(name).decode_speedup for name in chosen}
for name in chosen:
    off = np.mean([abs(measured[name][task] / predicted[name][task] - 1) for task in TASKS])
    fewer = [task for task in TASKS if live[name, task].trace.tokens_per_call > 1.03]
    torn = [task for task in fewer if measured[name][task] < 1]
    print(f"{plainly(name)}: measured {final[name]:.2f} on average; predictions off by {off:.0%};", end=" ")
    print(f"fewer steps and yet slower on {listed(torn)}")
print(agreement(lm, race.pairs()))
winner = max(final, key=final.get)
won = f"{plainly(winner)} wins, {final[winner]:.2f}"
print("Over these eight questions", won if final[winner] > 1 else "no finalist gains: decode without drafts")

# %% [markdown]
# Each is one run, so a difference of a few per cent means nothing.
#
# And did the *replay* match the live run?
# The steps are the same as long as the answers are, with two exceptions.
# A trained drafter reads states, and states rounded in another forward may change its draft at a near tie.
# And a drafter that remembers the session may have seen another answer before.

# %%
def taken(trace):
    """Rows and tokens of each step."""
    return [(len(step.tree.tokens), len(step.tokens)) for step in trace.steps]


pairs = [(name, task) for name in chosen if name in traces
         for task in TASKS if live[name, task].tokens == plain[task].tokens]
equal = sum(taken(live[name, task].trace) == taken(traces[name][task]) for name, task in pairs)
print(f"{equal} of {len(pairs)} runs that wrote the recorded answer took the steps of the replay.")

# %% jupyter={"source_hidden": true}
widths = {name: np.mean([steps[name][task].mean(float) for task in TASKS]) for name in order}
widest = max(widths, key=widths.get)
fastest = [task for task in TASKS if trained and not wins[task]]
display(Markdown(
    "> **The notes say …** (five routes, last section) that long drafts, large batches and complex trees need not be "
    "faster, and that acceptance lengths, time per round, throughput and memory should be recorded together. "
    "**That holds**, and here are the numbers: the widest forwards are those of "
    f"{plainly(widest)}, {widths[widest]:.0f} rows for τ = {whole[widest][0]:.2f}, predicted {mean[widest]:.2f}; "
    f"the fastest method by prediction, {plainly(order[0])}, has {widths[order[0]]:.1f} rows. "
    "The note's table of situations (a draft model for general service with memory to spare, MTP where the model "
    "brings it, EAGLE and Medusa where one can train, prompt lookup where answers repeat their input) says what is "
    f"*possible*. It does not say what is fastest: on {listed(fastest)} that is a trained method here, "
    "on the other tasks a model-free one or none."
))

# %% [markdown]
# ## The same switches elsewhere
#
# You must tell an engine your choice in its own words.
# The package writes them, from the sources and documentation of these releases:

# %%
from specdec_core.race import ENGINES, WHERE, switches

print("; ".join(f"{engine} {WHERE[engine][0]}" for engine in ENGINES))
table = []
for name in order:
    found = switches(name)
    table.append([plainly(name), *("has it" if found[engine].same else "nearest only" for engine in ENGINES)])
display(Markdown(markdown(table, ["method", *ENGINES])))

# %%
def lines(name):
    """The switches of all engines for a method with its default settings."""
    text = f"**{plainly(name)}**\n\n"
    for engine, it in switches(name).items():
        head = f"{engine} {it.version}" + ("" if it.same else ", nearest it has")
        note = f"{it.note[0].upper()}{it.note[1:]}.\n\n" if it.note else "\n"
        text += f"{head}\n```\n{it.line}\n```\n{note}"
    return text


wanted = dict.fromkeys([chosen[0], *(trained and [max(trained, key=mean.__getitem__)] or ["eagle"])])
display(Markdown("\n".join(lines(name) for name in wanted)))

# %% [markdown]
# Versions are part of the answer: from one version to the next, switches are renamed and methods dropped.
# The defaults differ, too, so give the lengths.
# And an engine's *name* for a method does not say what it drafts:
# several engines have no tree, or one memory for all requests.
#
# ## What to record
#
# You choose once, but the load changes every day.
# Four records tell whether the choice still holds, and each catches what the others miss.
#
# | record | catches | unseen without it |
# |:--|:--|:--|
# | distribution of tokens per step | other text; drafts too long | a mean of 3 may be 3, 3, 3, 3 or 1, 1, 1, 9 |
# | time of a step by phase, quantiles | slow drafts, wide forwards, larger batches | τ rises, the speed does not |
# | end-to-end throughput, prompts included | what the user gets | decoding is not all: prompts must be read |
# | memory | caches and weights that displace sequences | faster requests, but fewer at a time |
#
# **Why the distribution.** A chain that is cut to γ tokens keeps $\min(k, \gamma)$ of its $k$ accepted tokens.
# So the shares $P(k \ge i)$ recorded with a long draft give τ for *every shorter one*:
# $\tau(\gamma) = 1 + \sum_{i \le \gamma} P(k \ge i)$.
# *By hand:* cutting to two drafted tokens turns the lengths 1, 1, 1, 9 into 1, 1, 1, 3, so τ = 1.5;
# the lengths 3, 3, 3, 3 stay as they are, τ = 3.
# The same mean leads to two decisions.
# (If you record an acceptance rate beside it, divide by the tokens that were *tested*:
# those after the first rejection were not.)

# %%
# NBVAL_CHECK_OUTPUT
def cut(lengths, gamma):
    """Tokens per step if drafts had been cut to gamma tokens; lengths count the target's own token."""
    return 1 + sum(np.mean([length - 1 >= i for length in lengths]) for i in range(1, gamma + 1))


for lengths in ([1, 1, 1, 9], [3, 3, 3, 3]):
    print(lengths, "τ:", *(f"{cut(lengths, gamma):g} with γ = {gamma}" for gamma in (8, 2)), sep="  ")

# %%
watched = [live[chosen[0], task].trace for task in TASKS]
live_steps = [step for trace in watched for step in trace.steps]
lengths = [len(step.tokens) for step in live_steps]
times = np.array([sum(step.seconds.values()) for step in live_steps]) * 1e3
fig, (left_axes, right_axes) = plt.subplots(1, 2, figsize=(7.6, 3.3))
counts = np.bincount(lengths)[1:]
left_axes.bar(range(1, len(counts) + 1), counts / len(lengths), **style.bar(1))
left_axes.axvline(np.mean(lengths), color="black", linestyle="--")
left_axes.set(xlabel="tokens per step", ylabel="share of the steps")
left_axes.set_title(f"{plainly(chosen[0])}: τ = {np.mean(lengths):.2f} (dashed)")
kinds = {"without a draft": [ms for ms, step in zip(times, live_steps) if not step.tree.size],
         "with a draft": [ms for ms, step in zip(times, live_steps) if step.tree.size]}
for i, (kind, values) in enumerate(kinds.items()):
    look = style.line(i) | {"marker": ""}
    right_axes.plot(np.sort(values), np.linspace(0, 1, len(values)), label=kind, **look)
right_axes.set(xlabel="time of a step, ms", ylabel="share of the steps that took no longer", title="Time per step")
right_axes.legend(loc="lower right")
alt = "Left, the distribution of tokens per step in a live run; right, step times with and without a draft."
figures.save(fig, "11-record", alt=alt, model=loaded)

# %%
seconds = {phase: sum(trace.seconds[phase] for trace in watched) for phase in watched[0].seconds}
tokens, decode = sum(lengths), sum(times) / 1e3
reading = sum(trace.prefill_seconds for trace in watched)
weights = loaded.parameters * loaded.dtype.itemsize
most = max(step.tree.size for step in live_steps)
config = lm.execution.facts.config
heads_kv, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
a_token = 2 * config.num_hidden_layers * heads_kv * width * lm.execution.facts.dtype.itemsize
phases = ", ".join(f"{phase} {part / decode:.1%}" for phase, part in seconds.items())
speeds = [tokens / decode, tokens / (decode + reading)]
display(Markdown(
    f"- **tokens per step:** mean {np.mean(lengths):.2f}; no draft token kept in "
    f"{np.mean(np.array(lengths) == 1):.0%} of the steps; 95% quantile {np.quantile(lengths, 0.95):.0f}\n"
    f"- **time of a step:** median {np.median(times):.1f} ms, "
    f"95% quantile {np.quantile(times, 0.95):.1f} ms; {phases}\n"
    f"- **throughput:** {speeds[0]:.1f} tokens/s in decoding, {speeds[1]:.1f} with the prompts\n"
    f"- **memory:** weights {weights / 1e6:.0f} MB, the cache as allocated {lm.cache_bytes() / 1e6:.1f} MB, "
    f"{a_token / 1e3:.1f} kB per token; the widest draft held {most} tokens, {most * a_token / 1e3:.0f} kB"
))

# %% [markdown]
# In production there is no baseline beside the method.
# But $t(1)$ was measured when the server started, and the records give the rest:
# speedup ≈ τ · $t(1)$ / mean time of a step.
# We check this against the race, which has its baseline.
# The estimate is off by as much as $t(1)$ has changed in the meantime, so renew it now and then.
# The cell also puts the shares of the first record to use:

# %%
from specdec_core.theory import best_gamma_measured

estimate = np.mean(lengths) * costs.t(1) * 1e3 / np.mean(times)
base = [live[BASELINE, task] for task in TASKS]
ordinary = sum(run.trace.decode_seconds for run in base) / sum(len(run.tokens) for run in base)
print(f"speedup from the records {estimate:.2f}, from the race {ordinary / (decode / tokens):.2f};", end=" ")
print(f"an ordinary step took {1e3 * costs.t(1):.1f} ms at first, {1e3 * ordinary:.1f} in the race")
hits = [step for run in traces["prompt_lookup"].values() for step in run.steps if step.tree.size]
recorded = [len(step.tokens) for step in hits]
shares = [np.mean([length - 1 >= i for length in recorded]) for i in range(11)]
alphas = [float(b / a) if a else 0.0 for a, b in zip(shares, shares[1:])]
gamma = best_gamma_measured(alphas, costs.t)
rate = {g: cut(recorded, g) / costs.break_even(g + 1) for g in (gamma, 10)}
advised = f"ask for {gamma}: {rate[gamma]:.2f}" if gamma != 10 else "ask for no other length"
print(f"prompt lookup drafts 10 tokens at a hit: {rate[10]:.2f} tokens in t(1); its own records {advised}")

# %% [markdown]
# vLLM reports the mean of the first record as *mean acceptance length*,
# the bonus token included, and acceptance by position.
# The other three records you must keep yourself.
# Memory is the one that people forget: a draft model's cache and weights take room from sequences,
# and on a full server one sequence less may cost more than a draft brings.
#
# ## A procedure
#
# 1. **Collect your own prompts**, fifty or so, as they come: `{"id": ..., "task": ..., "turns": [...]}`, one per line.
#    No benchmark replaces them.
# 2. **Measure the machine:** `specdec costs --batches 1,4,16` prints $t(q, B)$.
#    If $t(5)$ is 1.5 $t(1)$ at the batch that you serve,
#    drafts of four tokens must bring half a token per step to break even.
#    If no method can plausibly do that, stop here.
# 3. **Ask:** `specdec recommend --questions yours.jsonl --minutes 5`.
#    It races all methods that can run, halves the field twice,
#    varies the draft lengths of those left, and names the fastest *whose gain exceeds its spread*.
#    If there is none, it says to stay autoregressive.
# 4. **Read its paragraph to the end.** It says below which acceptance the choice no longer pays.
#    That number is your alarm.
# 5. **Do the answers repeat their input, or one another?**
#    If so, try `suffix_decoding` and a cascade before any training.
#    If not, only a trained drafter is left; compute $(\gamma + 1)/\rho$ first.
# 6. **Batch.** Its table has τ as *tokens/call*; $q$ is 1 + hit rate × length of the draft.
#    The gain ends near $q^*\tau/q$, with $q^*$ from step 2.
# 7. **Move it to your engine** with the lines that it prints, and measure again there.
# 8. **Record** the four things, and repeat 3 when the first record moves.
#
# Here is step 3 on one task, with two methods, and seconds in place of minutes so that it fits into a chapter.
# (A pass that does not fit into the time is left out; the next may still run.
# And such short answers feel their end:
# draft tokens accepted past it count in *accepted/hit*, but not in *tokens/call*.)

# %%
from specdec_core.race import ADVICE_COLUMNS, advice_rows, paragraph, recommend

names = ["prompt_lookup", *([name for name in chosen if name in trained] or ["suffix_decoding"])]
advice = recommend(lm, own("quote", limit=2), costs, seconds=max(12.0, 500 * costs.t(1)), names=names,
                   max_new_tokens=32, progress=False)
display(Markdown(f"*{paragraph(advice)}*\n\n" + markdown(advice_rows(advice), ADVICE_COLUMNS)))

# %% [markdown]
# ## Pitfalls
#
# - **Choosing by τ.** It leaves out the price.
#   Choosing by acceptance rate leaves out the length as well.
# - **Choosing on one question.** The rates of one question are not those of the next (chapter 10).
#   And the number that decided a choice looks better than it will be, because it was chosen for being large.
# - **A loop as evidence.** Every method predicts an answer that repeats itself (chapter 00).
#   Read the answers.
# - **A benchmark at batch 1 for a server.** What pays for one request may lose at sixteen.
# - **A baseline from another engine.** Compare with autoregressive decoding in the *same* loop, warm, in turns.
# - **A lookup in front of a model, unmeasured.** Each of its hits takes a step from the model.
#   Sweep `min_n` on your prompts, and compare with both parts alone.
# - **Forgetting what training costs,** and that it has to be repeated with every new target.
# - **Settings from another machine.** Sixty nodes are right where rows are free.
#
# ## Summary
#
# - Speedup is $\tau/\rho$: tokens per step over the price of a step.
#   Rankings by τ and by speed differ.
# - With recorded answers and states, all methods except Jacobi and lookahead can be replayed; race only the finalists.
# - Model-free methods depend on the text, trained ones on their training and on the price of their draft.
#   $(\gamma + 1)/\rho$ bounds what training can bring.
# - The speedup of a cascade lies between those of its two kinds of steps.
#   It needs a first drafter whose hits are good.
# - Adaptive drafting bounds the loss on text where drafts fail.
# - In a batch the gain ends near $B^* = q^*\tau/q$: the tokens per *row* decide.
# - Record the distribution of tokens per step, the time of a step, throughput and memory.
#
# **Can you answer these?**
# Method X has τ = 2.4 and $\rho = 1.9$, method Y τ = 1.5 and $\rho = 1.1$: which is faster?
# (Y: 1.36 against 1.26.)
# $q^* = 100$; a tree of 24 nodes has τ = 2.5.
# Up to which batch does it pay?
# ($B^* = 100 \cdot 2.5/25 = 10$.)
# A hit of your lookup writes 1.2 tokens at a price of 1.15, your model 2 at 1.5.
# Should the lookup come first?
# (No: 1.04 is less than 1.33; raise `min_n`.)
# You have recorded that steps write 1, 1, 1 and 9 tokens in turn.
# Should you cut the draft to two tokens?
# (Only if a row costs much: it lowers τ from 3 to 1.5.)
#
# ## Further reading
#
# - H. Xia and others, *Unlocking Efficiency in Large Language Model Inference:
#   A Comprehensive Survey of Speculative Decoding*, Findings of ACL 2024,
#   [arXiv:2401.07851](https://arxiv.org/abs/2401.07851), with Spec-Bench: many methods on one machine, batch 1
# - Y. Leviathan, M. Kalman, Y. Matias, *Fast Inference from Transformers via Speculative Decoding*,
#   ICML 2023, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192): section 3 on cost and length
# - Z. Chen and others, *Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding*, 2024,
#   [arXiv:2402.12374](https://arxiv.org/abs/2402.12374): the size of a tree chosen by the measured cost of a forward
# - R. Pope and others, *Efficiently Scaling Transformer Inference*, MLSys 2023,
#   [arXiv:2211.05102](https://arxiv.org/abs/2211.05102): where batches become compute-bound
# - G. Oliaro and others, *SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications*, NeurIPS 2025,
#   [arXiv:2411.04975](https://arxiv.org/abs/2411.04975): a lookup that falls back to a trained drafter
