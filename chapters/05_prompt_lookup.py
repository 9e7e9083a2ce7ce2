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
# # 05 · Prompt lookup
#
# > **The question of this chapter.**
# > How far does copying from the text itself get us, without a second model and without training?
# > What should we look for, which match should we believe, how much should we copy, and on which tasks does it pay?
#
# **Afterwards you can**
#
# - state the one formula behind all methods that draft without a model (chapters 05 to 09),
#   and say why they are lossless;
# - build the matcher, by rescanning and with an index, and say what each costs per step;
# - choose `min_n`, `max_n`, the number of tokens, and the match that wins, from measurements instead of habit;
# - tell a miss, which costs nothing, from a wrong draft, which does, and compute from $t(q)$ when drafting pays;
# - set the same switches in transformers, vLLM and TensorRT-LLM, and know where their defaults differ.
#
# **Taken for granted:** chapter 00: a forward checks a whole draft,
# τ counts the tokens per forward, $t(q)$ is the time of a forward with $q$ rows.
# Chapter 01 helps in one section.
#
# **Time:** 30 minutes of reading.
# The cells take a little more than a minute on two CPU cores.
# Some of them use a stopwatch, so run them while nothing else is running.

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
from specdec_core import CachedLM, load
from specdec_core.viz import style

style.use()
loaded = load("default")
lm = CachedLM(loaded)
print(loaded.why)

# %% [markdown]
# ## One formula
#
# A summary uses the names and phrases of its article.
# An edited function is mostly the old function.
# A quotation *is* its source.
# In all of these the next tokens already exist somewhere, and the last few tokens say where.
# That gives a draft without any model:
#
# > **Find the n-gram that matches the context's suffix, take its continuation, let the target check it.**
#
# An *n-gram* is a sequence of $n$ tokens.
# Let the context be $x_1 \dots x_L$, the *memory* a sequence of tokens $m$,
# and $\gamma$ the length of the draft we want.
# Then
#
# $$\text{choose } i \text{ with } \; m_{i-n+1} \dots m_{i} \;=\; x_{L-n+1} \dots x_L,
# \qquad \text{draft } \; m_{i+1} \dots m_{i+\gamma}.$$
#
# If no such $i$ exists for the largest $n$, try a smaller one;
# if none exists at all, there is no draft, and the step is an ordinary one.
# Every model-free method of this book is this formula.
# They differ in **where the memory comes from**:
#
# | method | memory $m$ | chapter |
# |:--|:--|:--|
# | prompt lookup | this request: its prompt and its answer so far | 05 |
# | lookahead decoding | n-grams that the model writes on the side, in the same forward | 06, 07 |
# | REST | a large corpus, sorted beforehand | 08 |
# | suffix decoding | all that the session has seen, with counts | 09 |
#
# As a decoding method of its own, the idea is A. Saxena's (2023).
# His README calls it *prompt lookup decoding* (PLD); servers call it *n-gram speculation*.

# %% [markdown]
# ## The matcher, in the open
#
# Two functions are enough.
# The suffix itself does not count as a match: it has no continuation yet, so the search stops one place before the end.

# %%
def matches(tokens, n):
    """Where the last n tokens stand earlier in the text."""
    suffix = tokens[len(tokens) - n :]
    return [i for i in range(len(tokens) - n) if tokens[i : i + n] == suffix]


def find_draft(tokens, max_n=3, min_n=1, num_tokens=10, match="last"):
    """The continuation of the longest suffix that matches; [] if none does."""
    for n in range(min(max_n, len(tokens) - 1), min_n - 1, -1):
        if found := matches(tokens, n):
            start = (found[-1] if match == "last" else found[0]) + n
            return tokens[start : start + num_tokens]
    return []


# %% [markdown]
# **By hand.**
# Count words as tokens, with `max_n` = 3, `min_n` = 1, three tokens of draft, and this context:
#
# | position | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
# |:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|
# | word | the | cat | sat | and | the | cat | ran | . | the | cat |
#
# - $n = 3$: the suffix is *. the cat*.
#   It stands nowhere earlier.
# - $n = 2$: the suffix is *the cat*.
#   It stands at 0 and at 4.
# - If the **first** match wins, the draft is what follows position 1: *sat and the*.
#   If the **last** wins, it is what follows position 5: *ran . the*.
# - Only if $n = 2$ had failed would we have asked for *cat* alone.
#
# The same from our functions, from the package, and from transformers, which does it its own way:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Budget, Rng
from specdec_core.drafters import NullDrafter, PromptLookup

words = "the cat sat and the cat ran . the cat".split()
vocabulary = sorted(set(words))
ids = [vocabulary.index(word) for word in words]
print("matches of 'the cat':", matches(words, 2))
for match in ("first", "last"):
    drafter = PromptLookup(num_tokens=3, match=match)
    drafter.reset(ids)
    drafted = drafter.propose(ids, Budget(nodes=64, depth=64), Rng(0)).tokens[1:]
    print(f"{match:5}: {find_draft(words, num_tokens=3, match=match)}", end=" ")
    print(f"and from the package: {[vocabulary[i] for i in drafted]}")

# %%
import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

theirs = PromptLookupCandidateGenerator(num_output_tokens=3, max_matching_ngram_size=3, max_length=100)
candidate, _ = theirs.get_candidates(torch.tensor([ids]))
print("transformers:", [vocabulary[i] for i in candidate[0, len(ids) :]])

# %% [markdown]
# ## Try it on your own text
#
# Type anything; the matcher treats the end of your text as the end of the context.
# Things to find out: what does one more letter do to a long suffix?
# When do *first* and *last* differ?
# What does *last* draft at the end of `ha ha ha ha`?

# %%
from specdec_core.viz import matcher

matcher.viewer(loaded.tokenizer)

# %% [markdown]
# ## Why it is lossless
#
# A match only means that *we* believe in a continuation; whether it is right, the target decides.
# In greedy decoding a drafted token is kept only if it is the target's own best token at that place.
# With sampling, the draft is one fixed token $d$, so the distribution it was "drawn" from is a point mass, $q(d) = 1$.
# The rule of chapter 01 accepts it with probability $\min(1, p(d)/q(d)) = p(d)$;
# on rejection it draws from the residual, which is $p$ without $d$, renormalized.
# So
#
# $$P(\text{output} = d) = p(d), \qquad
# P(\text{output} = y) = (1 - p(d)) \cdot \frac{p(y)}{1 - p(d)} = p(y) \quad (y \ne d).$$
#
# Drawing $y$ from $p$ and keeping the draft if $y = d$ gives the same; this is what the package does.
# The source of the draft appears nowhere in the argument.
# The memory may be wrong, old, or someone else's: that changes the speed, never the distribution of the output.
# Here it is as a number: the exact distribution
# (its **law**, for short) of all answers of four tokens, for a model with three tokens:

# %%
# NBVAL_CHECK_OUTPUT
import numpy as np
from specdec_core import Sampling, TableLM, enumerate_law, generate, total_variation

toy = TableLM(np.log([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.6, 0.3, 0.1]]))


def law(drafter):
    """Answer -> its probability."""
    options = {"max_new_tokens": 4, "sampling": Sampling(temperature=1.0)}
    return enumerate_law(lambda rng: generate(toy, [0, 1, 0], drafter, rngs=(rng, rng), **options).tokens)


plain, drafted = law(NullDrafter()), law(PromptLookup(num_tokens=3))
close = total_variation(plain, drafted) < 1e-12
print(f"{len(plain)} possible answers; distance of the two laws below 1e-12: {close}")

# %% [markdown]
# One more thing to count correctly.
# A draft of five tokens that is accepted whole yields **six**:
# the forward has also scored the place after the last drafted token, and the target's own token there comes for free.
# The following model walks through eight tokens in a circle; the prompt ends where it has been before:

# %%
# NBVAL_CHECK_OUTPUT
circle = TableLM(np.log(0.01 + np.roll(np.eye(8), 1, axis=1)))
answer = generate(circle, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1], PromptLookup(num_tokens=5), max_new_tokens=12)
step = answer.trace.steps[0]
drafted = step.tree.tokens[1:].tolist()
print(f"drafted {drafted}, accepted {step.verdict.accepted}, emitted {list(step.tokens)}")

# %% [markdown]
# > **The notes say …** in the worked example of their model-free chapter
# > (section 9) that a step with all five drafted tokens accepted outputs 5 tokens.
# > It outputs 6: five accepted and the bonus token.
# > (Elsewhere the note counts the bonus itself: its *tokens per step* includes it.)

# %% [markdown]
# ## Answers to measure on
#
# Now to the settings: which match, how long a suffix, how long a draft.
# Each question could be answered by many live races.
# There is a shortcut, which rests on losslessness: **the greedy answer does not depend on the drafter**.
# So record the answers once, and *replay* any drafter against the recorded tokens:
# it proposes, we compare with what the model is known to write, and count.
# No model runs, and a setting takes milliseconds.
#
# We take two questions from each of the tasks.
# Of the conversations we take the first turn, and the second turn, which asks for a change of the first answer.
# Each is answered twice, by ordinary decoding and by prompt lookup, in turns; the times will be needed later.

# %%
from specdec_core import compare
from specdec_core.measure import agreement, measure_costs
from specdec_core.race import TASKS, markdown, own

asked = {}  # task -> prompts
for question in own([task for task in TASKS if task != "chat"], limit=2):
    asked.setdefault(question.task, []).append(loaded.encode(question.turns[0]))
for question in own("chat", limit=2):
    first = loaded.encode(question.turns[0])
    reply = generate(lm, first, PromptLookup(), max_new_tokens=80, stop=loaded.stop)
    second = loaded.encode(question.turns[:2], answers=[loaded.decode(reply.tokens).strip()])
    asked.setdefault("chat, turn 1", []).append(first)
    asked.setdefault("chat, turn 2", []).append(second)
tasks = list(asked)
lengths = [len(prompt) for prompts in asked.values() for prompt in prompts]
print(f"{len(lengths)} prompts of {min(lengths)} to {max(lengths)} tokens")

# %%
race = compare(lm, asked, ["prompt_lookup"], max_new_tokens=64, repeats=1)
runs = [  # (task, prompt, ordinary answer, answer with lookup)
    (done.task, list(done.prompt_ids), done.answers["autoregressive"], done.answers["prompt_lookup"])
    for done in race.rounds
]
print(agreement(lm, race.pairs()))

# %% [markdown]
# The replay needs no loop of its own.
# `Recorded` is a language model that knows one prompt and its answer: after each token it says the next one.
# Its method `replay` runs the same `generate` as before, so a drafter meets the record as it would meet the target,
# and the trace shows the steps.
#
# Is that really the live run?
# For each prompt we replay the default settings against what the live run wrote,
# and compare step by step: rows and tokens.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Recorded


def counted(trace):
    """(rows of the forward, tokens emitted) of each step."""
    return [(len(step.tree.tokens), len(step.tokens)) for step in trace.steps]


equal = []
for _, prompt, _, live in runs:
    replayed = Recorded(prompt, live.tokens).replay(PromptLookup())
    equal.append(counted(replayed) == counted(live.trace))
print("replayed steps equal the live steps, on every prompt:", all(equal))

# %% [markdown]
# From here on a setting is judged by replaying it against the answers of ordinary decoding.
# τ of a task is the number of its tokens over the number of its forwards.
# Over the tasks we take the geometric mean, so that no task counts more because it copies more.

# %%
def traces_by_task(make):
    """Replay a drafter, made anew by ``make()`` for each prompt: task -> the traces of its prompts."""
    found = {task: [] for task in tasks}
    for task, prompt, plain, _ in runs:
        found[task].append(Recorded(prompt, plain.tokens).replay(make()))
    return found


def tau(traces):
    """Tokens per forward, all traces together."""
    return sum(trace.emitted for trace in traces) / sum(trace.target_calls for trace in traces)


def mean_tau(found):
    """Geometric mean of τ over the tasks."""
    return float(np.exp(np.mean([np.log(tau(traces)) for traces in found.values()])))


# %% [markdown]
# ## What a lookup costs
#
# Our `find_draft` rescans the whole context in every step.
# For each $n$ it compares the suffix with about $L$ windows, so a step costs up
# to $(\texttt{max\_n} - \texttt{min\_n} + 1) \cdot L$ comparisons, $O(L)$, and an answer of $m$ tokens $O(mL)$.
# (vLLM goes over the reversed context once, as in Knuth, Morris and Pratt's string search,
# and gets all $n$ in one pass: still $O(L)$, with a smaller factor.)
#
# The package keeps an **index**: a dictionary from each n-gram to the position of its follower.
# A new token adds one entry for each $n$, and a lookup is one read for each $n$:
# at most $\texttt{max\_n} - \texttt{min\_n} + 1$, however long the context.
# With *last*, a later occurrence overwrites the entry; with *first*, it does not.
#
# We measure by counting, not in seconds: a list and a dictionary that count how often they are read.
# The text is one long session: all prompts and answers, one after another.

# %%
class CountedList(list):
    reads = 0

    def __getitem__(self, key):
        self.reads += 1
        return super().__getitem__(key)


class CountedDict(dict):
    reads = writes = 0

    def get(self, key, default=None):
        self.reads += 1
        return super().get(key, default)

    def __setitem__(self, key, value):
        self.writes += 1
        super().__setitem__(key, value)


# %%
session = [token for _, prompt, plain, _ in runs for token in (*prompt, *plain.tokens)]
drafter = PromptLookup(num_tokens=10, max_n=3, min_n=1)
drafter._follower = index = CountedDict()
lengths = [2**k for k in range(5, 20) if 2**k <= len(session)]
scan_reads, index_reads = [], []
for length in lengths:
    context, before = session[:length], index.reads
    drafted = drafter.propose(context, Budget(nodes=64, depth=64), Rng(0)).tokens[1:].tolist()
    index_reads.append(index.reads - before)
    text = CountedList(context)
    assert find_draft(text) == drafted  # the two agree
    scan_reads.append(text.reads)
print(f"at L = {lengths[-1]}: {scan_reads[-1]} reads by the scan, {index_reads[-1]} by the index")
print(f"filling the index took {index.writes / (lengths[-1] - 1):.2f} writes per token")

# %%
import matplotlib.pyplot as plt
from specdec_core.viz import figures

fig, axes = plt.subplots(figsize=(7.6, 3.4))
grey = {"color": "#7F7F7F", "linewidth": 1}
axes.plot(lengths, [3 * length for length in lengths], linestyle=":", label="3 L: nothing matches", **grey)
axes.plot(lengths, scan_reads, label="rescanning the context", **style.line(2))
axes.plot(lengths, index_reads, label="reading the index", **style.line(1))
axes.axhline(3, linestyle=(0, (5, 2)), label="max_n − min_n + 1 = 3: nothing matches", **grey)
axes.set_xscale("log", base=2)
axes.set_yscale("log")
axes.set_xticks(lengths, lengths)
axes.set(xlabel="L, tokens of context", ylabel="reads in one lookup")
axes.set_ylim(0.6, 3e6)
axes.legend(loc="upper left", ncols=2)
alt = "Reads in one lookup by context length: rising in proportion for a rescan, at most three for the index."
figures.save(fig, "05-work", alt=alt, model=loaded)

# %% [markdown]
# Does it matter?
# A scan of a few hundred tokens takes next to no time compared with a forward.
# A scan of a hundred thousand tokens does take time,
# and it comes in every step, for every request of a batch, on the CPU that should be feeding the GPU.
# The index costs memory instead: one entry for each $n$ and token of context.

# %% [markdown]
# ## First or last?
#
# When several places match, the formula does not say which $i$ to choose.
# The two obvious answers have different strengths:
#
# - **last**: what is near is more likely to be relevant.
#   The text may have changed its subject, or its variable names, since the first occurrence.
# - **first**: it is further from the end, so *more text follows it*.
#   The continuation of the last match may reach the end of the context after a few tokens.
#
# The second point matters.
# In a text that repeats one token, `a a a a`, the last earlier occurrence of the suffix is shifted by a single token,
# and only one token follows it.
# The first has all the rest after it:

# %%
# NBVAL_CHECK_OUTPUT
for text in ("a a a a a a a a", "x y x y x y x y"):
    for match in ("first", "last"):
        print(f"{text}   {match:5}: {find_draft(text.split(), num_tokens=10, match=match)}")

# %% [markdown]
# There is a way to have both.
# If the continuation reaches the end of the context, go on reading *in the draft itself*.
# The copy overlaps with what it writes, as in the compression method of Lempel and Ziv (1977),
# and a repetition with period $p$ is continued with period $p$.
# None of the libraries at the end of the chapter does this, so we build it here:
# where the draft has reached the end, its length is the period.

# %%
class Overlapping(PromptLookup):
    """The last match, copied on into the draft where the context ends."""

    def propose(self, context, budget, rng):
        tree = super().propose(context, budget, rng)
        draft, length = tree.tokens[1:].tolist(), min(self.num_tokens, budget.nodes, budget.depth)
        if draft:  # shorter than length only if the context ended
            draft = [draft[i % len(draft)] for i in range(length)]
        return type(tree).chain(context[-1], draft)


variants = {
    "first": lambda **kw: PromptLookup(match="first", **kw),
    "last": lambda **kw: PromptLookup(match="last", **kw),
    "last, overlapping": lambda **kw: Overlapping(match="last", **kw),
}
found = {name: traces_by_task(make) for name, make in variants.items()}

# %%
fig, axes = plt.subplots(figsize=(7.6, 4.6))
for i, (name, by_task) in enumerate(found.items()):
    places = [row + 0.27 * (i - 1) for row in range(len(tasks))]
    axes.barh(places, [tau(by_task[task]) for task in tasks], height=0.25, label=name, **style.bar(i))
axes.axvline(1, color="black", linestyle="--", linewidth=1)
axes.set_yticks(range(len(tasks)), [task.replace("_", " ") for task in tasks])
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set_xlabel("τ, tokens per forward (dashed: autoregression)")
axes.legend(title="which match", loc="best")
alt = "Tokens per forward by task for three rules: the first match, the last match, the last with overlap."
figures.save(fig, "05-first-last", alt=alt, model=loaded)

# %%
means = {name: mean_tau(by_task) for name, by_task in found.items()}
print("geometric mean over the tasks:", ", ".join(f"{name} {value:.3f}" for name, value in means.items()))
for name, other in (("first", "last"), ("last", "first")):
    won = [task for task in tasks if tau(found[name][task]) > tau(found[other][task])]
    print(f"{name} beats {other} on {len(won)} of {len(tasks)}:", ", ".join(won) or "none")
gap = abs(means["first"] / means["last"] - 1)
size = "within 2 percent of each other" if gap < 0.02 else f"{gap:.0%} apart"
print(f"Over all tasks first and last are {size}. Between single tasks the sign may change.")

# %% [markdown]
# Two prompts per task cannot rank the two rules for good; the race on the command line, `specdec race`, takes more.
# What we can see here is how much the choice matters, compared with the settings that follow,
# and that no choice is best for all tasks.
# Overlap can help only where a draft would have reached the end of the context, as in a loop,
# and a fast loop is no success.
# More on that below.

# %% [markdown]
# ## How long a suffix?
#
# A longer suffix says more about where we are, so its continuation should be right more often.
# But a longer suffix is found less often.
# We measure both, at **every** position of the recorded answers and for each $n$ alone.
# How often does the suffix of length $n$ occur earlier (*coverage*)?
# And if it does, how often is the next token the one that followed it there (*agreement*)?

# %%
def coverage_and_agreement(n):
    """Over all positions of all answers: share with a match of length n; share of these that are right."""
    right = covered = positions = 0
    for _, prompt, plain, _ in runs:
        full, drafter = [*prompt, *plain.tokens], PromptLookup(num_tokens=1, max_n=n, min_n=n)
        for at in range(len(prompt), len(full)):
            draft = drafter.propose(full[:at], Budget(nodes=1, depth=1), Rng(0)).tokens[1:]
            positions += 1
            covered += len(draft)
            right += len(draft) and int(draft[0]) == full[at]
    return covered / positions, right / covered


sizes = range(1, 8)
coverage, agreement = zip(*(coverage_and_agreement(n) for n in sizes))
alone = [mean_tau(traces_by_task(lambda n=n: PromptLookup(max_n=n, min_n=n))) for n in sizes]
down_to = {
    m: [mean_tau(traces_by_task(lambda n=n, m=m: PromptLookup(max_n=n, min_n=min(m, n)))) for n in sizes]
    for m in (1, 2)
}

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.6))
left.plot(sizes, coverage, label="coverage: a match exists", **style.line(1))
left.plot(sizes, agreement, label="agreement: it is right", **style.line(2))
left.plot(sizes, np.multiply(coverage, agreement), label="both", **style.line(0))
left.set(xlabel="n", ylabel="share of positions", ylim=(0, 1), title="One n at a time")
right.plot(sizes, alone, label="min_n = max_n", **style.line(2))
right.plot(sizes, down_to[2], label="min_n = 2", **style.line(3))
right.plot(sizes, down_to[1], label="min_n = 1", **style.line(1))
right.set(xlabel="max_n", ylabel="τ, tokens per forward", title="Longest first, down to min_n")
for axes in (left, right):
    axes.set_xticks(sizes)
    axes.legend()
alt = "Left: coverage falls and agreement rises with n. Right: tokens per forward by max_n for three min_n."
figures.save(fig, "05-suffix-length", alt=alt, model=loaded)

# %%
best = max(sizes, key=lambda n: down_to[1][n - 1])
print(f"coverage falls from {coverage[0]:.2f} (n = 1) to {coverage[-1]:.2f} (n = {sizes[-1]});", end=" ")
print(f"agreement goes from {agreement[0]:.2f} to {agreement[-1]:.2f}.")
print(f"One n alone: best is n = {1 + np.argmax(alone)} with τ = {max(alone):.2f}; n = 5 has {alone[4]:.2f}.")
print(f"Down to 1: best is max_n = {best} with τ = {max(down_to[1]):.2f}; max_n = 3 has {down_to[1][2]:.2f}.")
print(f"Forbidding n = 1 changes τ at max_n = 3 from {down_to[1][2]:.2f} to {down_to[2][2]:.2f}.")

# %% [markdown]
# That is why all implementations try the **longest suffix first**: with back-off, a larger `max_n` takes no match away;
# it only replaces an uncertain match by a better one.
# `min_n` decides how uncertain a guess may be.
# In steps, `min_n` = 1 can hardly lose: after a wrong draft the target's own token is emitted all the same.
# On the clock it can: a wrong draft costs its rows, as we shall see two sections below.

# %% [markdown]
# ## How many tokens?
#
# In steps, the same argument says that longer is better, since a longer draft takes nothing away.
# (Nearly: a step that emits a different number of tokens ends elsewhere,
# and the next lookup starts from another suffix.)
# But each drafted token is a row of the forward.
# So we need $t(q)$, as in chapter 00.
# (A forward takes no longer than one with more rows.
# So if a wider forward had the smaller median, that median counts for both: $t(q)$ never falls.)

# %%
costs = measure_costs(lm, widths=(1, 2, 4, 6, 8, 11, 16, 24, 33), context=320, repeats=9)
print("q           " + "".join(f"{q:6}" for q in costs.widths))
print("t(q) / t(1) " + "".join(f"{costs.break_even(q):6.2f}" for q in costs.widths))


def predicted(traces):
    """Speedup over ordinary decoding if t(q) is the whole story."""
    rows = [len(step.tree.tokens) for trace in traces for step in trace.steps]
    return sum(trace.emitted for trace in traces) * costs.t(1) / sum(map(costs.t, rows))


# %%
counts = (1, 2, 3, 5, 7, 10, 15, 23, 32)
swept = [traces_by_task(lambda c=c: PromptLookup(num_tokens=c)) for c in counts]
shown = ["edit_code", "summarize", "write"]
fig, panels = plt.subplots(1, 2, figsize=(7.6, 3.8), sharey=True)
boards = {"Steps: τ": tau, "Clock: speedup predicted from t(q)": predicted}
for axes, (title, measure_of) in zip(panels, boards.items()):
    for i, task in enumerate(shown):
        curve = [measure_of(by_task[task]) for by_task in swept]
        axes.plot(counts, curve, label=task.replace("_", " "), **style.line(i + 1))
    everything = [np.exp(np.mean([np.log(measure_of(by_task[t])) for t in tasks])) for by_task in swept]
    axes.plot(counts, everything, label="geometric mean of all tasks", **style.line(0))
    axes.axhline(1, color="black", linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks(counts, counts)
    axes.minorticks_off()
    axes.set(xlabel="num_tokens, longest draft", title=title)
panels[1].legend(loc="upper right")
alt = "Tokens per forward and predicted speedup by longest draft: the first levels off, the second has a peak."
figures.save(fig, "05-num-tokens", alt=alt, model=loaded)

# %%
def peak(measure_of, task):
    """The num_tokens with the largest value, and the value."""
    return max(((measure_of(by_task[task]), -c) for by_task, c in zip(swept, counts)))


for task in shown:
    (steps_best, at_steps), (clock_best, at_clock) = peak(tau, task), peak(predicted, task)
    print(f"{task}: most tokens per forward at num_tokens = {-at_steps} (τ = {steps_best:.2f});", end=" ")
    print(f"fastest by t(q) at {-at_clock} ({clock_best:.2f} times).", end=" ")
    print("The scoreboards disagree." if at_steps != at_clock else "")

# %% [markdown]
# ## When does it pay? A miss is free, a wrong draft is not
#
# Let a share $h$ of the steps have a draft (the *hit rate*).
# A step without one is an ordinary step: it takes $t(1)$ and emits one token, and costs only the lookup in addition.
# A step with one takes $t(q)$ and emits $1 + k$ tokens.
# Write $a$ for the mean of $k$ over the hits, and $r$ for the mean of $t(q)/t(1)$ over the hits.
# Then per step
#
# $$\tau = 1 + h\,a, \qquad \frac{\text{time}}{t(1)} = 1 + h\,(r - 1),
# \qquad \text{speedup} = \frac{1 + h\,a}{1 + h\,(r-1)}.$$
#
# This exceeds 1 exactly if $a > r - 1$.
# **The hit rate is not in the condition.**
# It only scales the gain or the loss.
# The sign depends on what happens *at* a hit:
# the accepted tokens against the forward's extra time, $t(q) - t(1)$ in units of $t(1)$.
#
# *By hand:* with $t(11) = 1.3\, t(1)$, a hit must bring 0.3 tokens on average to pay.
# If two drafts are wrong from their first token and the third yields a single token, that still pays.
# With $h = 0.4$ and $a = 0.1$ the speedup is $1.04/1.12 = 0.93$; with $a = 2$ it is $1.8/1.12 = 1.61$.
# The lookup's own time should be added to both kinds of steps; let us see how much it is.

# %%
steps = race.steps("prompt_lookup")
lookup, forward = steps.seconds["draft"], steps.seconds["forward"]
print(f"a lookup takes {1e6 * lookup:.0f} microseconds, {lookup / forward:.2%} of a forward's time")
for depth, (accepted, tested) in enumerate(steps.by_depth[:4], start=1):
    print(f"at depth {depth}: {accepted} of {tested} tested tokens accepted, {accepted / tested:.2f}")

# %% [markdown]
# The first token of a draft shows whether the hit is a good one; after it acceptance tends to be higher.
# Chapter 10 makes a model of that.
#
# Now task by task, with the stopwatch as well.
# The speed is that of decoding alone; reading the prompt is the same for both methods.
# The steps are those of the live runs.
# Where the live answer differs from the recorded one after a near tie, its τ differs from that in the figures above.
# Each answer is timed once, so expect a measured speed to be off by some percent, and take one above τ for noise.

# %%
from IPython.display import Markdown, display

rows, summary = [], {}
for task in tasks:
    row, steps = race.row("prompt_lookup", task), race.steps("prompt_lookup", task)
    needed = sum(count * costs.break_even(q) for q, count in steps.hit_rows.items()) / steps.hits
    traces = [answer.trace for answer in race.answers("prompt_lookup", task)]
    s = {"h": row.hit_rate, "a": row.accepted_per_hit, "r": needed}
    s |= {"tau": row.tokens_per_call, "predicted": predicted(traces), "clock": row.decode_speedup}
    summary[task] = s
    rows.append([task, *(f"{number:.2f}" for number in {**s, "r": s["r"] - 1}.values())])
columns = ["task", "hit rate h", "accepted per hit, a", "needed, r − 1", "τ", "predicted", "measured"]
display(Markdown(markdown(rows, columns)))

# %%
fig, axes = plt.subplots(figsize=(7.6, 4.6))
names = {"tau": "steps: τ", "predicted": "clock, predicted from t(q)", "clock": "clock, measured"}
for i, (key, name) in enumerate(names.items()):
    places = [row + 0.27 * (i - 1) for row in range(len(tasks))]
    axes.barh(places, [summary[task][key] for task in tasks], height=0.25, label=name, **style.bar(i))
axes.axvline(1, color="black", linestyle="--", linewidth=1)
axes.set_yticks(range(len(tasks)), [task.replace("_", " ") for task in tasks])
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set_xlabel("times ordinary decoding (dashed)")
axes.legend(loc="best")
alt = "For each task three bars: tokens per forward, the speedup predicted from t(q), the measured speedup."
figures.save(fig, "05-tasks", alt=alt, model=loaded)

# %%
for task, s in summary.items():
    if s["clock"] < 0.98:
        verdict = "fewer forwards, more time" if s["tau"] > 1.03 else "nothing gained in steps, more time"
    elif s["clock"] <= 1.02:
        verdict = "fewer forwards, the same time" if s["tau"] > 1.03 else "no difference"
    elif s["clock"] < 0.95 * s["tau"]:
        verdict = f"a win on both, on the clock by {1 - s['clock'] / s['tau']:.0%} less"
    else:
        verdict = "a win on both, by about the same factor"
    print(f"{task:14} τ = {s['tau']:.2f}, clock {s['clock']:.2f}: {verdict}")

# %% [markdown]
# Here is the condition $a > r - 1$ as a picture:
# above the line drafting pays, below it costs, if $t(q)$ is the whole story.
# The size of a marker shows the hit rate, which moves no marker across the line.

# %%
fig, axes = plt.subplots(figsize=(7.6, 4.4))
for i, (task, s) in enumerate(summary.items()):
    look = {"marker": style.MARKERS[i], "color": style.PALETTE[i % 7], "markeredgecolor": "black"}
    label = f"{task.replace('_', ' ')} (h = {s['h']:.2f})"
    axes.plot(s["r"] - 1, s["a"], markersize=5 + 12 * s["h"], linestyle="none", label=label, **look)
limit = 1.25 * max(max(s["r"] - 1, 0.2) for s in summary.values())
axes.plot([0, limit], [0, limit], color="black", linestyle="--", linewidth=1, label="break-even: a = r − 1")
axes.fill_between([0, limit], [0, limit], color="#DDDDDD", linewidth=0)
axes.set(xlim=(0, limit), ylim=(0, None), ylabel="a: accepted tokens per hit")
axes.set_xlabel("r − 1: extra time of a forward at a hit, in units of t(1)")
axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=0.6)
alt = "Accepted tokens per hit by the extra time of its forward, one marker per task, and the break-even line."
figures.save(fig, "05-break-even", alt=alt, model=loaded)

# %% jupyter={"source_hidden": true}
w = summary["write"]
ends = "ahead" if w["a"] > w["r"] - 1 else "behind"
display(Markdown(
    "> **The notes say …** that on tasks with little repetition prompt lookup falls back to ordinary "
    "decoding and has paid for a verification in vain (model-free chapter, section 4.3), and "
    "(section 8) that low coverage makes the speedup fall below 1. Two things are mixed up here. A **miss** "
    "pays for no verification: there is nothing to verify, the step is an ordinary $t(1)$. A **wrong draft** "
    "does, namely $t(q) - t(1)$. So low coverage alone can never push the speedup below 1 (up to the lookup "
    f"itself); only hits that are wrong can. In this run, on free writing, {1 - w['h']:.0%} of the steps were "
    f"misses; the other {w['h']:.0%} brought {w['a']:.2f} tokens and cost {w['r'] - 1:.2f} $t(1)$ extra each, which "
    f"puts the task **{ends}**: predicted {w['predicted']:.2f}, measured {w['clock']:.2f}."
))

# %% jupyter={"source_hidden": true}
t, e = summary["translate"], summary["edit_code"]
first, second = summary["chat, turn 1"], summary["chat, turn 2"]
order = sorted(summary, key=lambda task: -summary[task]["tau"])
listed = "; ".join(f"{task.replace('_', ' ')} ({summary[task]['tau']:.2f})" for task in order)
display(Markdown(
    "> **The notes say …** that summarizing, completing code, *translating* and multi-turn chat reuse their "
    f"input word for word (section 4.2). In this run the order by τ is: {listed}. Translation has "
    f"τ = {t['tau']:.2f}, edited code {e['tau']:.2f}. A translation shares names and numbers with its "
    "source, not words; where τ is high nevertheless, read the answer (next section). Quoted for comparison: "
    "on Spec-Bench (Vicuna-7B, greedy, RTX 3090) prompt lookup is 1.07 times as fast as ordinary decoding on "
    "translation and 2.31 times on summaries. Multi-turn chat: the first turn "
    f"has τ = {first['tau']:.2f}, the second {second['tau']:.2f}"
    + (", as the note expects: its answer can be copied from the first." if second["tau"] > first["tau"] else
       "; here the note's expectation fails: this model did not go back to what it had said.")
))

# %% [markdown]
# ## Loops: read the text first
#
# A small model that always takes its best token sometimes falls into a loop,
# and from there on the text is easy for prompt lookup.
# Such an answer says nothing about its task.
# As in chapter 00 we look at the share of an answer's 4-grams that occurred before *in the answer*:

# %%
def repeated(tokens, n=4):
    """Share of the n-grams that occurred earlier in the same text."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


loops = {i for i, (_, _, plain, _) in enumerate(runs) if repeated(plain.tokens) > 0.4}
for i in sorted(loops):
    task, prompt, plain, live = runs[i]
    tail = loaded.decode(plain.tokens[-24:]).replace("\n", " / ")
    print(f"{task}: {repeated(plain.tokens):.0%} repeated, τ = {live.trace.tokens_per_call:.2f}")
    print(f"    …{tail}\n")
print(f"{len(loops)} of {len(runs)} answers are loops by this measure (above 40% of their 4-grams repeated).")

# %%
def by_answer(make, without=()):
    """Geometric mean of τ over the answers, but for some."""
    kept = [(prompt, plain.tokens) for i, (_, prompt, plain, _) in enumerate(runs) if i not in without]
    taus = [Recorded(prompt, tokens).replay(make()).tokens_per_call for prompt, tokens in kept]
    return np.exp(np.mean(np.log(taus)))


for name, make in variants.items():
    every, rest = by_answer(make), by_answer(make, without=loops)
    print(f"{name:18} all answers: τ = {every:.3f}   without the loops: {rest:.3f}")

# %% [markdown]
# Which way the loops move the mean depends on the other answers in it:
# the τ of a loop is above that of free writing, and may still be below that of a copied function.
# In this run:

# %%
print(f"Leaving the loops out moves the mean τ of {name!r} by {rest / every - 1:+.1%}.")
for task in dict.fromkeys(runs[i][0] for i in sorted(loops)):
    kept = [(p, plain.tokens) for i, (t, p, plain, _) in enumerate(runs) if t == task and i not in loops]
    taus = [Recorded(prompt, tokens).replay(PromptLookup()).tokens_per_call for prompt, tokens in kept]
    straight = f"{np.mean(taus):.2f} without its loops" if taus else "nothing but loops"
    print(f"{task}: τ = {tau(traces_by_task(PromptLookup)[task]):.2f} as a task, {straight}")

# %% [markdown]
# Larger models loop less, but the check is one line, so make it anyway.
#
# Some repetition is real work, though.
# An answer in which an idiom returns with other names, test after test, also repeats its n-grams.
# The measure cannot tell the two apart; a reader can.

# %% [markdown]
# ## The same switches elsewhere
#
# | here | transformers 5.24 | vLLM 0.33 | TensorRT-LLM 1.4 rc |
# |:--|:--|:--|:--|
# | switches of | `generate` | `speculative_config` | `NGramDecodingConfig` |
# | turn it on | give `prompt_lookup_num_tokens` | `"method": "ngram"` | pass the object as `speculative_config` |
# | `num_tokens` = 10 | `prompt_lookup_num_tokens` | `num_speculative_tokens` | `max_draft_len` |
# | its default | none: off unless given | none: must be given | none: must be given |
# | `max_n` = 3 | `max_matching_ngram_size` = 2 | `prompt_lookup_max` = 5 | `max_matching_ngram_size` = 2 |
# | `min_n` = 1 | always 1 | `prompt_lookup_min` = `prompt_lookup_max` | always 1 |
# | `match` = last | always the first | always the first, among the longest | `is_use_oldest` = True: the first |
# | memory: this request | this request | this request | `is_public_pool` = True: one pool for all requests |
# | kept: the last place | nothing | nothing | `is_keep_all` = True: all continuations of a pattern |
# | lookup: index | scan, once for each n | one pass over the reversed context | dictionary of patterns |
#
# Transformers' column was read from its source as installed here,
# the other two from the projects' documentation and source of these versions.
# Three traps:
#
# - **vLLM's `min_n`.**
#   The field's documentation says that `prompt_lookup_min` defaults to 1.
#   The code that fills it in does something else:
#   if only `prompt_lookup_max` is given, the minimum becomes the same number; if neither is given, both become 5.
#   The figure above shows the effect of such a choice: one $n$ alone, without back-off.
#   Give both.
# - **TensorRT-LLM's pool.**
#   Where all requests share one pool, a request gets drafts from other people's text.
#   That is still lossless: it is a small version of chapter 09's method.
#   But which text comes fast tells something about what others have written.
#   Consider this before serving strangers; the project's newer source refuses the option.
# - **The first match is the default everywhere but here.**

# %% [markdown]
# > **The notes say …** that vLLM's switch is `speculative_model="[ngram]"`.
# > It was: the documentation of 0.5 and 0.6 has it.
# > Today it is `speculative_config={"method": "ngram", ...}`, as in the table.
#
# > **The notes say …** that plain n-gram speculation cuts recent text into a dictionary of n-grams.
# > That is one implementation: the index above, or,
# > with counts instead of one position, the drafter `NGramDictionary` of chapter 09.
# > The drafts of prompt lookup are the same with and without it.

# %% [markdown]
# ## Pitfalls
#
# - **The suffix matches itself.**
#   Search only where a continuation exists, or every lookup succeeds with an empty draft.
# - **The last match may have little after it.**
#   In a loop of period $p$ its draft has $p$ tokens.
#   Copy with overlap, or take an earlier match.
# - **Indexing the draft.**
#   Only committed tokens may enter the index; drafted tokens that were rejected were never part of the text.
# - **Tokens are not words.**
#   The same word is a different token after a newline than after a space,
#   so a quotation that starts a line can miss its source for one step.
# - **Counting five for six.**
#   A draft that is accepted whole brings the bonus token as well.
# - **A high hit rate is no merit.**
#   With `min_n` = 1 nearly every comma hits.
#   What counts is $a$ against $r - 1$.
# - **τ of a loop.**
#   See above.
#
# ## Summary
#
# - One formula: find the n-gram that matches the context's suffix, take its continuation, let the target check it.
#   The methods of chapters 05 to 09 differ in their memory.
# - Lossless because the check is the target's; a fixed draft is a point mass, and sample-then-match is its exact rule.
# - With an index a lookup costs at most `max_n − min_n + 1` reads, whatever the context's length;
#   a rescan costs $O(L)$.
# - Longest suffix first: longer means rarer and more reliable, and back-off combines both.
#   Which of several matches wins matters less, and no answer is best for all tasks.
# - A miss costs one lookup and an ordinary step.
#   A wrong draft costs $t(q) - t(1)$.
#   Drafting pays exactly if $a > r - 1$, whatever the hit rate.
# - It wins on text that repeats its source: edited code, quotations, later turns.
#   On free writing there is little to win, and the clock decides whether time is lost.
#
# **Can you answer these?**
# Why does the greedy answer not depend on the drafter, and what did that save us?
# What would `max_n` = 1 do to coverage and to agreement?
# A task has $h = 0.9$, $a = 0.2$, and $t(11) = 1.5\,t(1)$:
# does drafting ten tokens pay, and what would you change first?
# (No: $a < r - 1 = 0.5$.
# The hits are poor, so raise `min_n`, or draft fewer tokens.)
#
# ## Further reading
#
# - A. Saxena, *Prompt Lookup Decoding*, 2023,
#   [github.com/apoorvumang/prompt-lookup-decoding](https://github.com/apoorvumang/prompt-lookup-decoding)
# - N. Yang and others, *Inference with Reference: Lossless Acceleration of Large Language Models*,
#   2023, [arXiv:2304.04487](https://arxiv.org/abs/2304.04487): copying from a given reference, some months earlier
# - H. Xia and others, *Unlocking Efficiency in Large Language Model Inference:
#   A Comprehensive Survey of Speculative Decoding*,
#   Findings of ACL 2024, [arXiv:2401.07851](https://arxiv.org/abs/2401.07851); its Spec-Bench and leaderboard,
#   quoted above, are at [github.com/hemingkx/Spec-Bench](https://github.com/hemingkx/Spec-Bench)
# - J. Ziv, A. Lempel, *A Universal Algorithm for Sequential Data Compression*,
#   IEEE Transactions on Information Theory 23(3), 1977
# - D. Knuth, J. Morris, V. Pratt, *Fast Pattern Matching in Strings*, SIAM Journal on Computing 6(2), 1977
# - Documentation: [vLLM](https://docs.vllm.ai/en/latest/features/speculative_decoding/n_gram/),
#   [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/),
#   [transformers](https://huggingface.co/docs/transformers/generation_strategies)
