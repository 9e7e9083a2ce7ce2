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
# # 08 · REST
#
# > **The question of this chapter.**
# > When the text itself holds no copy of what comes next, can a library of other texts stand in?
# > How do we find a suffix among millions of tokens in a small part of a forward's time?
# > And when does the library know what the target will write?
#
# **Afterwards you can**
#
# - sort the suffixes of a corpus, find all places of any string by bisection,
#   and say what that costs in comparisons, seconds and bytes;
# - write REST's path from datastore to tree check, each part as a function of a few lines;
# - say why the most frequent prefixes are the best tree, and why checking a tree of fixed tokens is lossless;
# - tell *found* from *right*, and measure both against the size and the domain of a datastore;
# - choose the number of nodes from $t(q)$, and measure what share of the time retrieval takes.
#
# **Taken for granted:** τ, the tokens per forward, and $t(q)$, the time of a forward with $q$ rows (chapter 00);
# the formula of the model-free methods (chapter 05).
#
# **Time:** 30 minutes of reading.
# The cells take about a minute on two CPU cores;
# the last third uses a stopwatch, so run them with nothing else going on.

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
from specdec_core import CachedLM, load, viz
from specdec_core.viz import figures, style

style.use()
loaded = load()
lm, tokenizer = CachedLM(loaded), loaded.tokenizer
print(loaded.why)

# %% [markdown]
# ## The formula of chapter 05, with a library for a memory
#
# All model-free methods *find the n-gram that matches the context's suffix,
# take its continuation, and let the target check it*.
# Prompt lookup searches the request itself.
# **REST**, retrieval-based speculative decoding (He and others, 2023), searches a **datastore**:
# a large corpus $m_1 \dots m_M$, prepared beforehand.
# Each position $i$ of it is one pair of a context and a continuation,
#
# $$\big(\,m_1 \dots m_i,\;\; m_{i+1}\, m_{i+2} \dots\big), \qquad i = 1, \dots, M - 1,$$
#
# and we want the pairs whose context ends as ours does.
# Nothing has to be stored twice for that: a pair is a *position*.
# But two things are new, both because $M$ is in the millions.
#
# 1. **Finding.** A scan takes $O(M)$ per step.
#    The index of chapter 05, one dictionary per $n$, would need $M$ entries for each of $n = 2, \dots, 16$.
# 2. **Choosing.** A suffix may occur ten thousand times.
#    In a corpus the first match or the last means nothing.
#
# Sorting solves the first, counting the second.
#
# ## All suffixes, sorted
#
# A *suffix* of the corpus begins at some position and goes on to the end.
# Sort all suffixes like words in a dictionary, and keep only where each begins.
# That list of $M$ numbers is the **suffix array** (Manber and Myers, 1990).
# All places where a string occurs are then neighbors in this list,
# because the suffixes that begin with the string stand together.

# %%
from bisect import bisect_left, bisect_right


def suffix_array(tokens):
    """Where the suffixes begin, in the order of the suffixes."""
    return sorted(range(len(tokens)), key=lambda i: tokens[i:])


def find(tokens, sa, pattern):
    """The interval of the array whose suffixes begin with the pattern; empty if none does."""

    def beginning(i):
        return tokens[i : i + len(pattern)]

    return bisect_left(sa, pattern, key=beginning), bisect_right(sa, pattern, key=beginning)


# %% [markdown]
# **By hand.** Words are tokens, and `|` ends the document; it sorts after every word.
#
# | position | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 |
# |:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|
# | word | the | cat | sat | . | the | cat | ran | . | the | dog | sat | \| |
#
# | rank | begins at | suffix | | rank | begins at | suffix |
# |--:|--:|:--|:--|--:|--:|:--|
# | 0 | 3 | . the cat ran … | | 6 | 2 | sat . the cat … |
# | 1 | 7 | . the dog sat … | | 7 | 10 | sat \| |
# | 2 | 5 | cat ran . the … | | **8** | 4 | **the cat** ran . … |
# | 3 | 1 | cat sat . the … | | **9** | 0 | **the cat** sat . … |
# | 4 | 9 | dog sat \| | | 10 | 8 | the dog sat \| |
# | 5 | 6 | ran . the dog … | | 11 | 11 | \| |
#
# Where is *the cat*?
# We look for the first suffix that is not smaller than it, among ranks 0 to 11:
#
# - middle 6: *sat .* is smaller, so the border lies after it: ranks 7 to 11, or the end;
# - middle 9: *the cat* is not smaller: ranks 7 or 8, or 9 itself;
# - middle 8: *the cat* is not smaller; middle 7: *sat |* is smaller.
#   The border is **8**: four comparisons.
#
# In the same way we find the first suffix that is *larger*, at rank 10.
# So *the cat* occurs $10 - 8 = 2$ times, at positions 4 and 0.
# Our functions, and the package's:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.stores import SuffixStore

words = "the cat sat . the cat ran . the dog sat |".split()
sa = suffix_array(words)
print("suffix array:", sa)
print("the cat:", find(words, sa, ["the", "cat"]), "  a mouse:", find(words, sa, ["a", "mouse"]))

vocabulary = sorted(set(words) - {"|"})
ids = [vocabulary.index(word) for word in words[:-1]]
store = SuffixStore.in_memory([ids], vocab_size=len(vocabulary))  # ends each document with its own separator
the_cat = [vocabulary.index(word) for word in ("the", "cat")]
print("the same in the package:", store.sa.tolist() == sa, store.find(the_cat))

# %% [markdown]
# **What it costs.** A bisection over $M$ suffixes takes at most $\lceil \log_2 (M + 1) \rceil$ comparisons,
# two bisections $2 \lceil \log_2(M+1) \rceil$.
# Each comparison looks at no more than the $n$ tokens of the pattern: $O(n \log M)$.
# A thousand times as much text costs only twenty comparisons more.
# (Our `sorted` is good for small texts only, since two suffixes may share thousands of tokens.
# The package leaves the sorting to *divsufsort*, which takes $O(M \log M)$ and slices nothing.)
#
# ## Longest suffix, with back-off
#
# As in chapter 05, the longest suffix comes first, because it says most about where we are.
# If it does not occur, drop its *oldest* token and try again:

# %%
def longest(tokens, sa, context, max_n=16, min_n=2):
    """Interval and length of the longest suffix of the context that occurs; length 0 if none does."""
    for n in range(min(max_n, len(context)), min_n - 1, -1):
        lo, hi = find(tokens, sa, context[len(context) - n :])
        if hi > lo:
            return lo, hi, n
    return 0, 0, 0


# %%
# NBVAL_CHECK_OUTPUT
for text in ("we saw the cat", "near the dog sat", "a mouse"):
    context = text.split()
    lo, hi, n = longest(words, sa, context)
    print(f"{text!r}: match of {n}, at {sorted(sa[lo:hi])}, then {[words[sa[i] + n] for i in range(lo, hi)]}")

# %% [markdown]
# That is up to fifteen searches.
# Four are enough.
# If a suffix of $n$ tokens occurs in the corpus, then so does the suffix of $n - 1$ tokens, which is part of it.
# So "occurs" is true up to some length and false beyond it,
# and we can bisect over the length itself, as the package does.
#
# ## A tree of what follows
#
# Now the choice.
# The matches disagree about what comes next, and REST does not pick one of them.
# It puts all continuations into a **trie**, a tree in which continuations with a common beginning share its nodes.
# The weight of a node is the number of continuations that pass through it.
# Each node is a *prefix* of some continuation.
# The $c$ heaviest become the draft.

# %%
from collections import Counter


def weigh(continuations):
    """How many continuations begin with each prefix."""
    return Counter(tuple(line[:d]) for line in continuations for d in range(1, len(line) + 1))


def top(weights, c):
    """The c heaviest prefixes; among equals the shorter, then the smaller."""
    return sorted(weights, key=lambda prefix: (-weights[prefix], len(prefix), prefix))[:c]


# %% [markdown]
# **Why these $c$?**
# Suppose the corpus speaks for the target: a share $w(v)/R$ of the $R$ continuations begins with the prefix $v$,
# and the target's next tokens begin with it just as often.
# Node $v$ is accepted exactly if they do.
# By linearity of expectation,
#
# $$E[\text{accepted tokens}]
# \;=\; \sum_{v \in \text{tree}} P(v \text{ accepted})
# \;=\; \frac1R \sum_{v \in \text{tree}} w(v),$$
#
# and of all sets of $c$ nodes, the $c$ heaviest have the largest sum.
# They also *are* a tree.
# Whatever begins with a prefix begins with its parent too, so the parent weighs at least as much.
# It is also shorter, so it comes first.
#
# **By hand.** Context *the*, continuations of two tokens: *cat ran*, *cat sat*, *dog sat*.
# Weights: *cat* 2, *dog* 1, *cat ran* 1, *cat sat* 1, *dog sat* 1.
# With $c = 4$ the draft is *cat, dog, cat ran, cat sat*, and $E = (2 + 1 + 1 + 1)/3 = 5/3$.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Budget, Rng
from specdec_core.drafters import REST

lo, hi, n = longest(words, sa, ["the"], min_n=1)
weights = weigh([words[sa[i] + n : sa[i] + n + 2] for i in range(lo, hi)])
print("ours:   ", [(" ".join(prefix), weights[prefix]) for prefix in top(weights, 4)])

tree = REST(store, nodes=4, depth=2, min_n=1).propose([vocabulary.index("the")], Budget(64, 64), Rng(0))
paths = [[vocabulary[tree.tokens[i]] for i in tree.path_to(row)[1:]] for row in range(1, 5)]
print("package:", [" ".join(path) for path in paths])
expected = sum(weights[prefix] for prefix in top(weights, 4)) / (hi - lo)
print(f"expected accepted tokens, if the corpus is right: {expected:.4f}")

# %% [markdown]
# Two differences from the paper.
# Of many matches the authors' code reads at most 5,000; the package reads 128, spread evenly over the interval.
# Since the interval is sorted by what follows, this gives every share to within 1/128, and the same draft every time.
# And the paper's tree has up to 64 nodes, ours 8, for a reason given below.
#
# ## Checking a tree in one forward
#
# The tree's nodes are the rows of one forward, after the context.
# **Tree attention** lets each row see the context, its ancestors and itself, and the row's position is its depth.
# So the row is scored as if its branch stood there alone (chapter 03).
# The mask of our tree:

# %%
# NBVAL_CHECK_OUTPUT
names = ["the"] + [" ".join(path) for path in paths]
for name, row in zip(names, tree.ancestors.astype(int)):
    print(f"{name:8} sees {row.tolist()}")

# %% [markdown]
# From the root we then follow the target: at each node it emits one token $y$.
# If $y$ is one of the node's children, go there; if not, $y$ is the correction, and the step ends.
# Everything beside the path is dropped.
#
# ## Why it is lossless
#
# The *law* of a token is its distribution, and decoding is lossless if every token has the law $p$ of the target.
# At a node the children $d_1, \dots, d_k$ are $k$ *different, fixed* tokens.
# Nothing about them was drawn, so we can first draw $y$ from $p$, and then look whether it is among them.
# Whatever the children are, $P(\text{output} = y) = p(y)$.
#
# > **The notes say …**
# > (model-free chapter, section 6.4) that a rejected place is corrected by standard rejection sampling.
# > That is equivalent if the siblings are tested one after the other and *each* rejection changes the law.
# > Accept $d_1$ with probability $p(d_1)$;
# > else go on with $p$ without $d_1$, renormalized, and accept $d_2$ with probability $p(d_2)/(1 - p(d_1))$; and so on.
# > The probability of reaching $d_2$ and accepting it is $(1 - p(d_1)) \cdot p(d_2)/(1 - p(d_1)) = p(d_2)$.
# > Testing the second sibling against $p$ itself would be wrong.
# > To draw and look takes one draw and no residual; REST and this package do that.
#
# As a number, on a target with three tokens and a datastore that knows nothing about it:

# %%
# NBVAL_CHECK_OUTPUT
import numpy as np
from specdec_core import Sampling, TableLM, enumerate_law, generate, total_variation
from specdec_core.drafters import NullDrafter

toy = TableLM(np.log([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.6, 0.3, 0.1]]))
other = SuffixStore.in_memory([[0, 1, 2, 2, 0, 0, 1, 1, 0, 2, 1]], vocab_size=3)


def law(drafter):  # of all answers of four tokens at T = 1
    sampling = Sampling(temperature=1.0)
    return enumerate_law(
        lambda rng: generate(toy, [0, 1, 0], drafter, max_new_tokens=4, sampling=sampling, rngs=(rng, rng)).tokens
    )


laws = [law(drafter) for drafter in (NullDrafter(), REST(other, nodes=5, depth=3, min_n=1))]
close = total_variation(*laws) < 1e-12
print(f"{len(laws[0])} possible answers; distance of the two laws below 1e-12: {close}")

# %% [markdown]
# ## Search your own text
#
# The upper box is the datastore, the lower one the context.
# Things to find out: how many comparisons does a longer datastore take?
# What happens to the draft when the match gets one token longer?
# Which nodes go first when $c$ shrinks?

# %%
viz.suffix_array.viewer(tokenizer)

# %% [markdown]
# ## A datastore of real code
#
# Every machine that runs this chapter has a corpus of code:
# the Python standard library and the packages installed beside it.
# We take files in a fixed shuffled order, each text once, up to about a million tokens.
# Tokenizing takes nearly all of the time.

# %%
from time import perf_counter

from specdec_core.stores import code_files, read_texts, tokenized

LIMIT = 1_000_000
start, documents, size = perf_counter(), [], 0
for document in tokenized(read_texts(iter(code_files())), tokenizer):
    size += len(document) + 1
    if size > LIMIT:
        break
    documents.append(document)
read_seconds = perf_counter() - start


def store_of(limit):
    """A datastore of the first documents, up to so many tokens; the last one is cut."""
    kept, room = [], limit
    for document in documents:
        if room > 1:
            kept.append(document[: room - 1])
            room -= len(kept[-1]) + 1
    return SuffixStore.in_memory(kept, lm.vocab_size)


# %%
start = perf_counter()
code = store_of(LIMIT)
sort_seconds = perf_counter() - start
parts = {"tokens": code.tokens.nbytes, "suffix array": code.sa.nbytes, "sampled heads": code.heads.nbytes}
print(f"{len(documents)} files, {len(code):,} tokens;", end=" ")
print(f"read and tokenized in {read_seconds:.1f} s, sorted in {sort_seconds:.2f} s")
for name, count in parts.items():
    print(f"{name:14} {count / 1e6:6.2f} MB, {count / len(code):.3f} bytes per token")

# %% [markdown]
# **Memory, by the formula.** A token id below 65,535 takes 2 bytes, an entry of the array 4: $6M$ bytes.
# The sampled heads add an eighth of a byte per token.
# (They are the first eight bytes of every 64th suffix,
# and save the first comparisons of a bisection their jumps through the file.)
# With larger ids it is $8M$ bytes, and from $2^{32}$ tokens on the array's entries take 8 bytes each.
# Ten million tokens of this vocabulary take 61 MB, a hundred million 612 MB.
#
# A look inside: what follows a piece of code that everybody has written, and in which share of the matches?

# %%
def outline(drafter, context):
    """The draft for a context, each branch indented, with its expected share."""
    lo, hi, n = drafter.store.find(context, drafter.max_n, drafter.min_n)
    rows, lengths = drafter.store.continuations(lo, hi, n, drafter.depth, drafter.matches)
    weights = weigh([row[:length].tolist() for row, length in zip(rows, lengths)])
    print(f"the last {n} tokens occur {hi - lo} times; of {len(rows)} that were read:")

    def branch(prefix):  # each node below its parent, the heavier branch first
        return [(-weights[prefix[:d]], prefix[d - 1]) for d in range(1, len(prefix) + 1)]

    for prefix in sorted(top(weights, drafter.nodes), key=branch):
        print(f"{weights[prefix] / len(rows):7.0%}  {'   ' * len(prefix)}{tokenizer.decode([prefix[-1]])!r}")


context = tokenizer.encode("    for i in range(")
outline(REST(code, nodes=12, depth=4), context)

# %% [markdown]
# ## Retrieval time and memory against size
#
# First in comparisons, which no other program can disturb.
# We look up real contexts, taken from the source of this book's own package, which the datastore leaves out.

# %%
from specdec_core.stores import bench


def comparisons(store, pattern):
    """How many suffixes our two bisections look at in the package's array."""
    looked_at = []

    def beginning(i):
        looked_at.append(i)
        return store.tokens[i : i + len(pattern)].tolist()

    for border in (bisect_left, bisect_right):
        border(store.sa, pattern, key=beginning)
    return len(looked_at)


contexts = bench.contexts_of_own_source(tokenizer, 300)
sizes = [10_000, 30_000, 100_000, 300_000, LIMIT]
stores = {limit: store_of(limit) for limit in sizes}
for store in stores.values():
    mean = np.mean([comparisons(store, context[-2:]) for context in contexts])
    most = 2 * int(np.ceil(np.log2(len(store) + 1)))
    print(f"{len(store):9,} tokens: {mean:.1f} comparisons; at most {most}")

# %% [markdown]
# Then in seconds.
# A *query* is all that REST does in a step before it builds the tree:
# it finds the longest match and reads its continuations.
# *Warm* means that what the query touches is in memory.
# *Cold* means that the operating system dropped the files' pages before each query, so they come from the disk.
# This is the package's own benchmark.
# Building a store of tens of millions of tokens takes minutes, too long for a chapter.
# `specdec datastore build --code` builds one from all the code on your machine and keeps it;
# if it is there, it is measured here as well.

# %%
from specdec_core.stores import DatastoreError

try:
    large = [SuffixStore.open("code", tokenizer)]
except DatastoreError:
    large = []  # not built on this machine
timed = bench.measure(code, sizes[:-1], contexts)
timed += [row for store in large for row in bench.measure(store, [], contexts)]

# %%
from IPython.display import Markdown, display
from specdec_core.race import markdown

table = []
for row in timed:
    cold = "–" if row["cold_ms"] is None else f"{1e3 * row['cold_ms']:,.0f}"
    warm = [f"{1e3 * row[name]:,.0f}" for name in ("find_ms", "query_ms", "query_p99_ms")]
    room = [f"{row[name] / 1e6:.2f}" for name in ("bytes", "resident_bytes")]
    table.append([f"{row['tokens']:,}", *room, *warm, cold, f"{row['match_length']:.1f}"])
columns = ["tokens", "MB", "resident, MB", "find, µs", "query, µs", "99 % below, µs", "cold, µs",
           "tokens matched"]
display(Markdown(markdown(table, columns)))
if not large:
    print("No datastore called 'code' on this machine: the table ends at what a chapter can build.")

# %%
import matplotlib.pyplot as plt
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.6))
m = [row["tokens"] for row in timed]
left.plot(m, [row["find_ms"] for row in timed], label="find, warm", **style.line(1))
left.plot(m, [row["query_ms"] for row in timed], label="whole query, warm", **style.line(0))
if timed[0]["cold_ms"] is not None:
    left.plot(m, [row["cold_ms"] for row in timed], label="whole query, cold", **style.line(2))
left.set(ylabel="milliseconds (median)", title="Time")
formula = [6.125 * tokens / 1e6 for tokens in m]
right.plot(m, formula, color="#CCCCCC", linewidth=7, label="6.125 bytes per token")
right.plot(m, [row["bytes"] / 1e6 for row in timed], label="bytes of the files", **style.line(0))
right.set(ylabel="MB", title="Memory")
for axes in (left, right):
    axes.set(xscale="log", yscale="log", xlabel="tokens in the datastore")
    axes.legend()
alt = "Left: query time against the size of the datastore, warm and cold. Right: its bytes, in proportion to it."
figures.save(fig, "08-retrieval", alt=alt, model=loaded)

# %% [markdown]
# A store a thousand times as large takes twenty comparisons more.
# On the clock a query stays far below a millisecond, as long as what it touches is in memory.
# After the search come the continuations: a larger store has more of them (at most 128 are read), and longer matches.
# Memory grows with $M$.
# The files are *mapped*: opening a store reads a header,
# and only the pages that queries touch come into memory (*resident*, above).
# So a store may be larger than the machine's memory.
# A large datastore costs room, and the first touch of each page; it does not cost search time.
#
# ## What the target writes: answers to measure on
#
# Does a larger datastore help, and does its *domain* matter?
# We ask four questions about code and four about prose, and answer them by ordinary decoding.
# Because **the greedy answer does not depend on the drafter** (chapter 05),
# these recordings judge every datastore without running the model again.

# %%
from specdec_core.race import own

LENGTH = 64
questions = {
    "code": [question.turns[0] for question in own("complete_code", limit=2)]
    + ["Write a Python class for a stack with push, pop and peek.",
       "Write a Python script that reads a CSV file and prints the sum of the column `price`. Use argparse."],
    "chat": [question.turns[0] for question in [*own("write", limit=2), *own("chat", limit=1)]]
    + ["Explain in one paragraph why leaves change their color in autumn."],
}
runs = []  # (domain, prompt, answer of ordinary decoding)
for domain, texts in questions.items():
    for text in texts:
        prompt = loaded.encode(text)
        runs.append((domain, prompt, generate(lm, prompt, max_new_tokens=LENGTH, stop=loaded.stop)))
for domain, _, plain in runs[2::4]:
    print(f"{domain}: {plain.text[:90]!r} …")

# %% [markdown]
# Chapter 05 wrote the replay for chains.
# For trees we let the usual loop run with `Recorded` as the target,
# a language model that answers with the recorded tokens.
# After each step we can ask the drafter about it.

# %%
from specdec_core import Recorded, stream


def replay(prompt, answer, drafter):
    """Of each step of the greedy run with this answer: rows of the forward, tokens emitted, tokens matched."""
    run = stream(Recorded(prompt, answer), prompt, drafter, max_new_tokens=len(answer))
    return [(len(step.tree.tokens), len(step.tokens), drafter.match_len) for step in run]


def steps_of(domain, drafter):
    """The steps of all answers of a domain."""
    return [step for name, prompt, plain in runs if name == domain for step in replay(prompt, plain.tokens, drafter)]


def tau(steps):
    """Tokens per forward."""
    return sum(emitted for _, emitted, _ in steps) / len(steps)


def hits(steps):
    """Hit rate h, and accepted tokens per hit, a."""
    found = [emitted - 1 for rows, emitted, _ in steps if rows > 1]
    return len(found) / len(steps), np.mean(found) if found else 0.0


# %% [markdown]
# **The second datastore** is made of the target's own words: its answers to *other* questions of the chat kind.
# The transformers library writes them all at once, as one batch, since latency does not matter here.
# It is small: a model's text is expensive, while a corpus of code lies ready on the disk.

# %%
import torch

subjects = ("the moon", "bread", "a bicycle", "a forest", "rain", "a bridge")
forms = ("Write a short story about {}.", "Write a poem about {}.",
         "Explain in one paragraph how {} came to be.")
asked = [loaded.encode(form.format(subject)) for form in forms for subject in subjects]
width, pad = max(map(len, asked)), min(loaded.stop_ids)
rows = torch.tensor([[pad] * (width - len(row)) + row for row in asked], device=loaded.device)
mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in asked], device=loaded.device)
with torch.no_grad():
    written = loaded.model.generate(
        rows, attention_mask=mask, max_new_tokens=LENGTH, do_sample=False, pad_token_id=pad)
answers = [[token for token in row if token != pad] for row in written[:, width:].tolist()]
own_text = SuffixStore.in_memory(answers, lm.vocab_size)
print(f"{len(answers)} answers, {len(own_text):,} tokens")

# %% [markdown]
# ## Hit rate against size and domain
#
# A step is a **hit** if a suffix of at least two tokens was found, so that there was a draft.
# As in chapter 05, $h$ is the share of hits and $a$ the number of tokens accepted per hit: $\tau = 1 + h\,a$.

# %%
by_size = {domain: [steps_of(domain, REST(store)) for store in stores.values()] for domain in questions}
from_own = {domain: steps_of(domain, REST(own_text)) for domain in questions}
same_size = REST(store_of(len(own_text)))
fig, panels = plt.subplots(1, 3, figsize=(7.6, 3.4), constrained_layout=True)
values = {"h: share of hits": lambda s: hits(s)[0], "a: accepted per hit": lambda s: hits(s)[1],
          "τ: tokens per forward": tau}
for axes, (title, value) in zip(panels, values.items()):
    for i, domain in enumerate(questions, start=1):
        curve = [value(steps) for steps in by_size[domain]]
        lengths = [len(store) for store in stores.values()]
        axes.plot(lengths, curve, label=f"{domain}, code store", **style.line(i))
        look = {"marker": "P*"[i - 1], "color": style.PALETTE[i], "markersize": 11, "markeredgecolor": "black"}
        axes.plot(len(own_text), value(from_own[domain]), linestyle="none", label=f"{domain}, own text",
                  clip_on=False, zorder=5, **look)
    axes.set(xscale="log", xlabel="tokens in the store", title=title)
    axes.set_ylim(bottom=1 if "τ" in title else 0)
panels[0].legend(fontsize=7.5)
alt = "Share of hits, accepted tokens per hit and tokens per forward by size of the code store, for code and chat."
figures.save(fig, "08-size-domain", alt=alt, model=loaded)

# %%
from specdec_core.drafters import PromptLookup

memories = {
    f"code, {len(stores[LIMIT]):,} tokens": REST(stores[LIMIT]),
    f"code, {len(same_size.store):,} tokens": same_size,
    f"own text, {len(own_text):,} tokens": REST(own_text),
    "the request itself (prompt lookup)": PromptLookup(),
}
table = []
for name, drafter in memories.items():
    cells = []
    for domain in questions:
        steps = steps_of(domain, drafter)
        h, a = hits(steps)
        cells += [f"{h:.2f}", f"{a:.2f}", f"{tau(steps):.2f}"]
    table.append([name, *cells])
columns = ["memory", *(f"{domain}: {what}" for domain in questions for what in ("h", "a", "τ"))]
display(Markdown(markdown(table, columns)))

# %%
first, last = ({domain: by_size[domain][i] for domain in questions} for i in (0, -1))
print(f"From {len(stores[sizes[0]]):,} to {len(stores[LIMIT]):,} tokens of code")
for domain in questions:
    (h0, a0), (h1, a1) = hits(first[domain]), hits(last[domain])
    print(f"  {domain}: h from {h0:.2f} to {h1:.2f}, a from {a0:.2f} to {a1:.2f},", end=" ")
    print(f"τ from {tau(first[domain]):.2f} to {tau(last[domain]):.2f}.")
found, right = (hits(last["code"])[i] / max(hits(last["chat"])[i], 1e-9) for i in (0, 1))
print(f"In the largest, code has {found:.1f} times the hits of chat, and accepts {right:.1f} times as much per hit.")
print(f"The domain matters more for what is {'right' if right > found else 'found'}.")
small, mine = tau(steps_of("chat", same_size)), tau(from_own["chat"])
print(f"Chat, from {len(own_text):,} tokens: τ = {small:.2f} from code, {mine:.2f} from the target's own text.")

# %% [markdown]
# Read $h$ and $a$ apart: **found is not right**.
# Code holds English too, in comments and docstrings, so prose is found in it by its common pairs of tokens.
# Whether the target then goes on as the comment did is another question, and $a$ answers it.
# The last line of the table is a reminder:
# on a question that brings its own material, the request itself is the best domain there is (chapter 05).
# But its $h$ counts matches of one token, too, so compare it by τ.
# The two memories can be asked one after the other (chapter 11).
#
# A longer match should be more reliable.
# Here are all steps on the largest store, by the length of the match.
# The numbers above the bars say how many steps each rests on:

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.4))
groups = [(2, 2), (3, 3), (4, 5), (6, 8), (9, 16)]
names = [f"{low}" if low == high else f"{low}–{high}" for low, high in groups]
for i, domain in enumerate(questions, start=1):
    accepted = [[e - 1 for _, e, n in last[domain] if low <= n <= high] for low, high in groups]
    at = np.arange(len(groups)) + 0.4 * (i - 1.5)
    look = {"width": 0.38, "label": domain, **style.bar(i)}
    left.bar(at, [len(group) / len(last[domain]) for group in accepted], **look)
    bars = right.bar(at, [np.mean(group or [0]) for group in accepted], **look)
    right.bar_label(bars, [len(group) for group in accepted], fontsize=7)
for axes, what in ((left, "share of all steps"), (right, "accepted tokens per step")):
    axes.set_xticks(range(len(groups)), names)
    axes.set(xlabel="tokens matched", ylabel=what)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.15)
left.legend()
alt = "By length of the match: how many steps had it, and how many drafted tokens were accepted in them."
figures.save(fig, "08-match-length", alt=alt, model=loaded)
for domain in questions:
    short, long = ([e - 1 for _, e, n in last[domain] if low <= n <= high] for low, high in ((2, 3), (4, 16)))
    print(f"{domain}: {len(short)} matches of 2 or 3 tokens, {np.mean(short or [0]):.2f} accepted on average;", end=" ")
    print(f"{len(long)} longer ones, {np.mean(long or [0]):.2f}")

# %% [markdown]
# ## How many nodes?
#
# Counted in steps, more nodes never hurt much.
# On the clock each node is a row, so once more we need $t(q)$.
# The paper's 64 nodes were chosen on a GPU with models of 7 and 13 billion weights.

# %%
from specdec_core.measure import measure_costs

costs = measure_costs(lm, widths=(1, 2, 3, 5, 9, 17, 33, 65), context=160, repeats=7)
counts = [1, 2, 4, 8, 16, 32, 64]
swept = {domain: [steps_of(domain, REST(stores[LIMIT], nodes=c)) for c in counts] for domain in questions}


def predicted(steps):
    """Speedup over ordinary decoding if t(q) is the whole story."""
    return sum(emitted for _, emitted, _ in steps) * costs.t(1) / sum(costs.t(q) for q, _, _ in steps)


# %%
fig, panels = plt.subplots(1, 2, figsize=(7.6, 3.6), sharey=True)
for axes, value, title in zip(panels, (tau, predicted), ("Steps: τ", "Clock: speedup predicted from t(q)")):
    for i, domain in enumerate(questions, start=1):
        axes.plot(counts, [value(steps) for steps in swept[domain]], label=domain, **style.line(i))
    axes.axhline(1, color="black", linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, counts)
    axes.set(xlabel="c, nodes of the tree", title=title)
panels[0].legend()
alt = "Tokens per forward and predicted speedup by nodes of the tree: the first rises, the second falls behind."
figures.save(fig, "08-nodes", alt=alt, model=loaded)
best = {domain: counts[int(np.argmax([predicted(steps) for steps in swept[domain]]))] for domain in questions}
print(f"t(65) = {costs.break_even(65):.1f} t(1)")
for domain, c in best.items():
    chosen, most = swept[domain][counts.index(c)], swept[domain][-1]
    print(f"{domain}: fastest by t(q) with c = {c}:", end=" ")
    print(f"τ = {tau(chosen):.2f}, predicted {predicted(chosen):.2f} times;", end=" ")
    print(f"with 64: τ = {tau(most):.2f}, predicted {predicted(most):.2f}")

# %% [markdown]
# ## On the clock
#
# Now live, with the $c$ that is best for the code questions by $t(q)$.
# Ordinary decoding and REST take turns on two questions of each kind.
# Is the replay really the live run?
# And what share of the time does retrieval take?

# %%
from specdec_core import compare
from specdec_core.measure import agreement

asked = {domain: [prompt for name, prompt, _ in runs if name == domain][::2] for domain in questions}
drafter = REST(stores[LIMIT], nodes=best["code"])
race = compare(lm, asked, {"rest": drafter}, max_new_tokens=LENGTH, repeats=1)
live = {domain: race.answers("rest", domain) for domain in questions}
counted = {domain: [[(len(step.tree.tokens), len(step.tokens)) for step in run.trace.steps] for run in each]
           for domain, each in live.items()}
again = {domain: [[step[:2] for step in replay(prompt, run.tokens, drafter)]
                  for prompt, run in zip(asked[domain], each)] for domain, each in live.items()}
print("replayed steps equal the live steps, on every prompt:", again == counted)
print(agreement(lm, race.pairs()))

# %%
rows = {domain: race.row("rest", domain) for domain in questions}
guess = {domain: predicted([(*step, 0) for run in counted[domain] for step in run]) for domain in questions}
shares = {domain: row.ms["draft"] / sum(row.ms.values()) for domain, row in rows.items()}
table = []
for domain, row in rows.items():
    depths = ", ".join(f"{accepted / tested:.2f}" for accepted, tested in row.acceptance_by_depth[:3])
    speeds = [f"{value:.2f}" for value in (row.tokens_per_call, guess[domain], row.decode_speedup)]
    times = [f"{row.ms['draft']:.2f} ms", f"{row.ms['forward']:.1f} ms", f"{shares[domain]:.2%}"]
    table.append([domain, depths, *speeds, *times])
columns = ["on", "accepted at depth 1, 2, 3", "τ", "predicted", "measured speed",
           "retrieval per step", "forward per step", "share"]
display(Markdown(markdown(table, columns)))

# %% jupyter={"source_hidden": true}
share = max(shares.values())
hold = "holds here" if share < 0.06 else "does not hold here"
ms, forward = max(row.ms["draft"] for row in rows.values()), rows["code"].ms["forward"]
display(Markdown(
    "> **The notes say …** that retrieval with a suffix array takes less than 6 % of the time (section 6.2). "
    f"That **{hold}**: it took at most {share:.1%} of decoding, tree included. "
    f"But a share has two halves. Retrieval took {ms:.2f} ms per step and depends on the datastore and one CPU core; "
    f"the forward took {forward:.0f} ms and depends on the model, its hardware and the batch. "
    f"Beside a forward of 5 ms the same search would take {ms / (5 + ms):.0%}. "
    "From a cold disk, or for 64 requests of a batch one after the other on one core, it is another matter again. "
    "(It takes longer than the query above: here the trie is built as well, and between two queries "
    "a forward passes through the processor's caches.)"
))

# %%
for domain, row in rows.items():
    steps, clock = row.tokens_per_call, row.decode_speedup
    if clock < 0.98:
        verdict = "fewer forwards, more time" if steps > 1.03 else "nothing gained in steps, more time"
    elif clock <= 1.02:
        verdict = "fewer forwards, the same time" if steps > 1.03 else "no difference"
    else:
        verdict = "a win on both" + (", less on the clock" if clock < 0.95 * steps else "")
    print(f"{domain}: τ = {steps:.2f}, clock {clock:.2f} (predicted {guess[domain]:.2f}): {verdict}")

# %% [markdown]
# Here is the run with the largest τ, step by step.
# Tokens that came out of the library are marked.

# %%
traces = [run.trace for each in live.values() for run in each]
viz.replay.replay(max(traces, key=lambda trace: trace.tokens_per_call), tokenizer)

# %% [markdown]
# For comparison, *quoted, not measured here:* the authors report 1.62
# to 2.36 times the speed of ordinary decoding for 7B and 13B models on a GPU.
# Their stores are larger: 2.7 million Python samples of The Stack for code (27 GB),
# 774,000 conversations of UltraChat for chat (12 GB).
# Their targets write better code, which is more like what people write.
# And a forward over 64 rows costs them hardly more than one over a single row.
#
# ## Pitfalls
#
# - **Another tokenizer.** A datastore holds ids.
#   Built with one tokenizer and read with another, it matches nonsense, losslessly and uselessly.
#   The package records the tokenizer's fingerprint and refuses.
# - **Tokens at the seam.** A context that ends in the middle of a word ends in a token that no corpus has there.
#   One step later the problem is gone.
#   Prompts that end in a space are the usual case.
# - **Matches across documents.** Without a separator the end of one file "continues" with the beginning of the next.
# - **Copies.** A license header in two thousand files is frequent, and its frequency means nothing.
#   Take each text once.
# - **The benchmark in the store.** If the test's own source is in the corpus,
#   the hit rate measures memory of the answer.
#   That is why the package's own files are left out here.
# - **Byte order.** Tokens that are compared as bytes must be stored with the high byte first.
#   The other way round the order is wrong, and bisection misses matches silently.
# - **A hit rate by itself.** Anything is found if the store is large enough and `min_n` small enough.
#   Report $a$ beside it.
# - **What is in the store comes out in the timing.** A fast answer says that the text was there.
#   Do not build a shared store from private texts.
#
# ## Summary
#
# - REST is the formula of chapter 05 with a corpus for a memory.
#   A position of the corpus is a pair of context and continuation.
# - A suffix array makes all places of a string one interval, found in $2\lceil\log_2(M+1)\rceil$ comparisons;
#   back-off bisects over the length.
#   Comparisons grow with $\log M$, memory with $M$: 6 bytes per token.
# - Continuations go into a trie weighted by frequency.
#   The $c$ heaviest prefixes are a tree, and maximize the expected accepted tokens if the corpus speaks for the target.
# - The check is sample-then-match down the tree: lossless, whatever the store holds.
# - A larger store finds more.
#   The domain decides how much of it is right,
#   and a little of the target's own text may be worth a lot of somebody else's.
# - $c$ is a question of $t(q)$.
#   On a machine where rows are not free, small trees win.
#
# **Can you answer these?**
# How many comparisons does one bisection take at most in a store of 16 million tokens?
# (24, since $2^{24}$ is 16.8 million.)
# Why can the $c$ heaviest prefixes be cut off anywhere and still be a tree?
# (A parent weighs at least as much as its children and is shorter, so it comes before them.)
# A store has $h = 0.95$ and $a = 0.15$; a draft has 16 nodes, and $t(17) = 1.4\,t(1)$.
# Does it pay?
# (No: $a < r - 1 = 0.4$.
# Fewer nodes, a larger `min_n`, or a store of the right domain.)
#
# ## Further reading
#
# - Z. He, Z. Zhong, T. Cai, J. D. Lee, D. He, *REST: Retrieval-Based Speculative Decoding*,
#   NAACL 2024, [arXiv:2311.08252](https://arxiv.org/abs/2311.08252);
#   code at [github.com/FasterDecoding/REST](https://github.com/FasterDecoding/REST)
# - S. Ho, J. Park, P. Wang, *CREST: Effectively Compacting a Datastore For Retrieval-Based Speculative Decoding*,
#   2024, [arXiv:2408.04678](https://arxiv.org/abs/2408.04678): keep only the common n-grams
# - U. Manber, G. Myers, *Suffix Arrays: A New Method for On-Line String Searches*, SODA 1990;
#   SIAM Journal on Computing 22(5), 1993
# - U. Khandelwal and others, *Generalization through Memorization: Nearest Neighbor Language Models*,
#   ICLR 2020, [arXiv:1911.00172](https://arxiv.org/abs/1911.00172):
#   a datastore that changes the output's distribution, where REST's does not
# - Y. Mori, *libdivsufsort*, [github.com/y-256/libdivsufsort](https://github.com/y-256/libdivsufsort):
#   what sorts the suffixes here
