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
# # 09 · Suffix decoding
#
# > **The question of this chapter.**
# > Whoever answers the same kind of request again and again has already written most of the next answer.
# > How can all of it be remembered?
# > How long a draft does a match deserve, and which of several continuations goes first?
# > And when is all that worth nothing?
#
# **Afterwards you can**
#
# - count n-grams of one length, then of all lengths at once, and say what this costs in three data structures;
# - compute a draft by hand: its length from the match, its branches from the counts, its score;
# - say when the memory of this request should win over that of past requests;
# - measure a session request by request, against prompt lookup,
#   in steps and on the clock, and recognize a session where there is nothing to gain;
# - bound the memory, and check that forgetting is exact.
#
# **Taken for granted:** chapters 00 and 05; the tree check from chapter 08.
#
# **Time:** 30 minutes of reading.
# The cells take about a minute on two CPU cores; some use a stopwatch, so run them with nothing else going on.

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
# ## The session as the memory
#
# Once more the formula of chapter 05:
# *find the n-gram that matches the context's suffix, take its continuation, let the target check it.*
# Prompt lookup remembers this request.
# REST remembers a corpus that somebody else wrote, and never changes.
# **Suffix decoding** (Oliaro and others, 2024) remembers *the session*:
# this request, prompt and answer so far, and the **answers to all requests before**.
# It learns with every token.
#
# This suits the way programs use models.
# An agent sends the same instruction a thousand times with other data;
# a pipeline asks for the same form; a coding assistant writes the same boilerplate.
# The prompt does not contain the answer's phrases, so prompt lookup finds little.
# The answer before it does.
#
# It also changes the questions.
# Chapter 05 took *one* match and copied a fixed number of tokens.
# A memory that holds a string many times can do better, because it can **count**.
#
# ## The plain case: one length, counted
#
# An n-gram dictionary keeps, for every n-gram, the tokens that followed it and how often each did.

# %%
from collections import Counter, defaultdict


def count_ngrams(tokens, n):
    """For each n-gram: which tokens followed, and how often."""
    followers = defaultdict(Counter)
    for i in range(len(tokens) - n):
        followers[tuple(tokens[i : i + n])][tokens[i + n]] += 1
    return followers


def most_frequent(followers, context, n, length):
    """The likeliest follower, then the likeliest after that, and so on."""
    text = list(context)
    for _ in range(length):
        if not (found := followers.get(tuple(text[len(text) - n :]))):
            break
        text.append(max(found, key=found.get))
    return text[len(context) :]


# %% [markdown]
# **By hand.** Letters are tokens, and the text so far is `a b c a b d a b d a b`.
# With $n = 2$ the suffix is `a b`.
# It was followed by `c` once and by `d` twice: draft `d`.
# Then `b d`, followed by `a` both times; then `d a`, followed by `b`.
# The draft is `d a b`.
# (Prompt lookup copies from the *last* `a b`, which gives the same here.
# After `a b d a b d a b c a b` it would draft `c`, where the counts say `d`, two to one.)

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Budget, Rng
from specdec_core.drafters import NGramDictionary, PromptLookup, SuffixDecoding
WIDE = Budget(nodes=64, depth=64)
text = "a b c a b d a b d a b".split()
ids = [ord(letter) for letter in text]


def draft_of(drafter, ids):
    drafter.reset(ids)
    return drafter.propose(ids, WIDE, Rng(0))


print("followers of a b:", dict(count_ngrams(text, 2)["a", "b"]))
print("draft:", most_frequent(count_ngrams(text, 2), text, n=2, length=3))
tree = draft_of(NGramDictionary(num_tokens=3, max_n=2, min_n=2), ids)
print("package:", [chr(token) for token in tree.tokens[1:]])

# %% [markdown]
# ## All lengths at once
#
# One $n$ is not enough: short n-grams are found often and mean little, long ones mean much and are found seldom.
# So count **every** string of up to $D$ tokens.
# The same table then says what followed a string $s$: look up the counts of $s$ with one token more.

# %%
def count_all(tokens, depth):
    """How often each string of up to depth tokens occurs."""
    counts = Counter()
    for i in range(len(tokens)):
        for j in range(i + 1, min(i + depth, len(tokens)) + 1):
            counts[tuple(tokens[i:j])] += 1
    return counts


def followers_of(counts, string):
    size = len(string)
    return {s[-1]: count for s, count in counts.items() if len(s) == size + 1 and s[:size] == string}


# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.stores import GrowingText, PastTexts, as_text

counts = count_all(text, depth=6)
memory = GrowingText(depth=6)
for letter in text:
    memory.append(letter)
for string in ("b", "a b", "d a b", "c"):
    s = tuple(string.split())
    print(f"{string!r} × {counts[s]}, followed by {followers_of(counts, s)};", end=" ")
    print("package:", memory.count("".join(s)), memory.followers(memory.find("".join(s))))
print("every string counted alike:", all(memory.count("".join(s)) == count for s, count in counts.items()))
grams = [(s, found) for n in (1, 2, 3) for s, found in count_ngrams(text, n).items()]
print("n-gram dictionaries are slices of it:", all(followers_of(counts, s) == found for s, found in grams))

# %% [markdown]
# The last line shows the relation to the plain case:
# the dictionary for one $n$ is what the table says about strings of $n$ and $n + 1$ tokens.
#
# The table has up to $D$ entries for every token of text.
# Most of them are superfluous.
# If `d a` is always followed by `b`, then `d a` and `d a b` have the same count, and one entry can stand for both.
# Two structures make use of that.
#
# **A suffix tree** merges forwards.
# It is the trie of all suffixes, cut off at $D$ tokens, with a node only where a count changes.
# Its edges are labelled with strings.
# Adding a string makes at most two nodes, so $M$ tokens make at most $2M$, whatever $D$ is.
#
# **A suffix automaton** also merges backwards: strings that always *end* at the same places are one state.
# It has at most $2M - 1$ states, knows strings of every length, and takes a token in constant time on average.
# The classical construction (Blumer and others, 1985), in the open:

# %%
def extend(states, last, token):
    """One token more; returns the state of the whole text. A state: [longest string, link, {token: state}]."""
    new, p = len(states), last
    states.append([states[last][0] + 1, 0, {}])
    while p != -1 and token not in states[p][2]:
        states[p][2][token] = new
        p = states[p][1]
    if p != -1:
        q = states[p][2][token]
        if states[q][0] > states[p][0] + 1:  # its longer strings now end at fewer places: split it
            clone = len(states)
            states.append([states[p][0] + 1, states[q][1], dict(states[q][2])])
            while p != -1 and states[p][2].get(token) == q:
                states[p][2][token] = clone
                p = states[p][1]
            states[q][1] = q = clone
        states[new][1] = q
    return new


def automaton(tokens):
    states, last = [[0, -1, {}]], 0
    for token in tokens:
        last = extend(states, last, token)
    return states


# %%
# NBVAL_CHECK_OUTPUT
states = automaton(text)
distinct = sum(state[0] - states[state[1]][0] for state in states[1:])  # strings that a state stands for
one_by_one = len(count_all(text, len(text)))
print(f"{len(text)} tokens, {distinct} different strings (counted one by one: {one_by_one})")
print(f"states of the automaton: {len(states) - 1}, at most {2 * len(text) - 1}")

# %% [markdown]
# Why does the package use the tree?
# Because a memory must be able to **forget**.
# Taking a string out of a counted tree is the reverse of putting it in.
# An automaton only grows, and its counts need a pass over its links.
# The three structures have the same content; how they compare on real text is measured below.
#
# ## How long a draft? Which branch?
#
# Suppose the last $n$ tokens have occurred before.
# From there the draft grows in the counted tree, token by token.
#
# - **Branch choice from counts.** A node's probability is the product of the shares on its path,
#   $P(v) = \prod \frac{\text{count of the token}}{\text{count of all followers}}$.
#   The open node with the largest $P$ goes next; nodes with $P$ below 0.1 are left out.
# - **Draft length from match length.** It may have at most $\lfloor f \cdot n \rfloor$ nodes, $f$ = `factor` = 1:
#   a match of two tokens deserves two nodes, a match of twelve tokens twelve.
#   A long match is evidence that we are inside a copy.
#   (Match and draft together have at most $D$ tokens.)
# - **Score.** $\sum_v P(v)$ over the nodes: by linearity of expectation,
#   this is the expected number of accepted tokens *if the target followed the counts* (chapter 08 has the same sum).
#   Over all $n$ the draft with the largest score wins; among equals, the longer match.

# %%
import heapq


def grow(counts, matched, nodes, min_prob=0.1):
    """(path, probability) of the likeliest nodes after a match, best first."""
    draft, heap, pushed = [], [], 0

    def open_below(path, probability):
        nonlocal pushed
        found = followers_of(counts, matched + path)
        for token in sorted(found, key=lambda t: (-found[t], t)):
            p = probability * found[token] / sum(found.values())
            if p >= min_prob:
                pushed += 1  # first come, first served among equals
                heapq.heappush(heap, (-p, pushed, path + (token,)))

    open_below((), 1.0)
    while heap and len(draft) < nodes:
        p, _, path = heapq.heappop(heap)
        draft.append((path, -p))
        open_below(path, -p)
    return draft


# %%
def suffix_draft(tokens, depth=24, nodes=16, factor=1.0):
    """The best draft over all match lengths: (score, length of the match, nodes)."""
    counts, best = count_all(tokens, depth), (0.0, 0, [])
    for n in range(1, min(len(tokens), depth - 1) + 1):
        draft = grow(counts, tuple(tokens[len(tokens) - n :]), min(nodes, int(factor * n)))
        score = sum(p for _, p in draft)
        if (score, n) > best[:2] and draft:
            best = (score, n, draft)
    return best


# %% [markdown]
# **By hand**, on the text above:
#
# | n | suffix | followed by | nodes allowed | draft | score |
# |--:|:--|:--|--:|:--|--:|
# | 1 | `b` | c 1, d 2 | 1 | d (2/3) | 0.67 |
# | 2 | `a b` | c 1, d 2 | 2 | d (2/3), a (2/3) | 1.33 |
# | 3 | `d a b` | d 1 | 3 | d, a, b (1 each) | 3 |
# | 4 | `b d a b` | d 1 | 4 | d, a, b; then the text ends | 3 |
# | **5** | `a b d a b` | d 1 | 5 | d, a, b | **3** |
# | 6 | `d a b d a b` | never seen | | | |
#
# Three drafts score 3, and the longest match wins.
# Here all three say `d a b`.

# %%
# NBVAL_CHECK_OUTPUT
score, n, draft = suffix_draft(text)
print(f"ours:    match of {n}, score {score:.2f}, draft {[path[-1] for path, _ in draft]}")
drafter = SuffixDecoding()
tree = draft_of(drafter, ids)
drafted = [chr(token) for token in tree.tokens[1:]]
print(f"package: match of {drafter.match_len}, score {drafter.score:.2f}, draft {drafted}")

# %% [markdown]
# One example proves little.
# Two hundred random texts over three letters, where everything repeats and many drafts branch:

# %%
# NBVAL_CHECK_OUTPUT
import random

draw, same, branched = random.Random(0), 0, 0
for _ in range(200):
    letters = [draw.choice("abc") for _ in range(draw.randint(5, 40))]
    score, n, draft = suffix_draft(letters, depth=10, nodes=8, factor=2.0)
    drafter = SuffixDecoding(depth=10, nodes=8, factor=2.0)
    tree = draft_of(drafter, [ord(letter) for letter in letters])
    paths = [tuple(chr(tree.tokens[i]) for i in tree.path_to(row)[1:]) for row in range(1, tree.size + 1)]
    alike = drafter.match_len == n and abs(drafter.score - score) < 1e-9
    same += alike and paths == [path for path, _ in draft]
    branched += not tree.is_chain
print(f"{same} of 200 drafts the same, match, score and tree; {branched} of them branch")

# %% [markdown]
# ## Two memories, one draft: local before global
#
# Suffix decoding keeps two such memories.
# The **local** one counts this request, prompt included; the **global** one counts all past answers.
# Both are asked.
# The draft from the past is taken only if it scores *more*; on a tie this request wins.
# A few words of this text mean more than as many words of another text,
# and the global counts mix what different requests meant.
# But where the past has a longer match, it may draft more, and wins by its score.
#
# Below, each line of the upper box is a past answer.
# Move *tokens read*: the memory grows with every token.
# Things to find out: where does the past win, and when does this request take over?
# Which line of the tree appears when a string occurs for the second time?
# What does *factor* do to a good match, and to a poor one?

# %%
viz.suffix_tree.viewer(tokenizer)

# %% [markdown]
# ## Why it is lossless
#
# For the same reason as REST (chapter 08):
# the draft is a tree of fixed tokens, so at each node we draw $y$ from $p$ and look whether it is among the children.
# What the memories hold decides how often it is.
# It never changes the *law* of $y$, its distribution.
# As a number, with a past answer in the memory that the target would seldom have given:

# %%
# NBVAL_CHECK_OUTPUT
import numpy as np
from specdec_core import Sampling, TableLM, enumerate_law, generate, total_variation
from specdec_core.drafters import NullDrafter
three = TableLM(np.log([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.6, 0.3, 0.1]]))


def experienced():
    """A drafter that remembers a past answer."""
    drafter = SuffixDecoding(factor=2.0)
    drafter.past.add(as_text([2, 2, 0, 0, 1, 1, 0, 2, 1]))
    return drafter


def law(make):  # the exact law of four tokens at T = 1
    sampling = Sampling(temperature=1.0)
    return enumerate_law(
        lambda rng: generate(three, [0, 1, 0], make(), max_new_tokens=4, sampling=sampling, rngs=(rng, rng)).tokens
    )


plain_law, drafted_law = law(NullDrafter), law(experienced)
close = total_variation(plain_law, drafted_law) < 1e-12
print(f"{len(plain_law)} possible answers; distance of the two laws below 1e-12: {close}")

# %% [markdown]
# ## Three sessions
#
# Now live: three sessions of a few requests each, as a program might send them.
#
# - **same form**: an agent in a loop, the same instruction with another name each time;
# - **same fields**: a pipeline that turns data into JSON, where the target has some freedom;
# - **unrelated**: stories, poems and puzzles.
#   Nothing returns but the language.
#
# Ordinary decoding answers each of them, request after request.
# The greedy answer does not depend on the drafter, so these recordings will serve for all comparisons in steps.

# %%
from specdec_core.race import own

LENGTH = 64
form = ("Write a Python class `{}` with the attributes `name` and `price`, a method `total(quantity)`, "
        "and a docstring. Reply with code only.")
fields = 'Turn this order into JSON with the keys "item", "quantity", "city" and "status": {}'
orders = ("three lamps for Oslo, paid.", "two chairs for Turin, paid.", "five mugs for Ghent, open.",
          "four bowls for Porto, paid.", "six plates for Bergen, open.")
sessions = {
    "same form": [form.format(name) for name in ("Tea", "Coffee", "Milk", "Juice", "Apple")],
    "same fields": [fields.format(order) for order in orders],
    "unrelated": [question.turns[0] for question in [*own("write", limit=3), *own("math", limit=2)]],
}
prompts = {name: [loaded.encode(text) for text in texts] for name, texts in sessions.items()}
plain = {name: [generate(lm, prompt, max_new_tokens=LENGTH, stop=loaded.stop) for prompt in each]
         for name, each in prompts.items()}
for answer in plain["same form"][:2]:
    print(answer.text, "\n")

# %% [markdown]
# The replay is that of chapter 08.
# At each step suffix decoding tells which match the draft came from,
# and it keeps what it learned from one answer to the next.

# %%
from specdec_core import Recorded, stream


def counted(step):
    """Of a step: rows of its forward, and tokens emitted."""
    return {"rows": len(step.tree.tokens), "emitted": len(step.tokens)}


def steps_of(prompt, answer, drafter):
    """The steps of the greedy run with this answer; those of suffix decoding with their match."""
    steps = []
    for step in stream(Recorded(prompt, answer), prompt, drafter, max_new_tokens=len(answer)):
        steps.append(counted(step))
        if isinstance(drafter, SuffixDecoding):
            steps[-1] |= {"match_len": drafter.match_len, "score": drafter.score, "source": drafter.source}
    return steps


# %%
def through(session, drafter):
    """One drafter through all requests of a session: a list of steps for each."""
    return [steps_of(prompt, run.tokens, drafter) for prompt, run in zip(prompts[session], plain[session])]


def tau(steps):
    """Tokens per forward."""
    return sum(step["emitted"] for step in steps) / len(steps)


# %% [markdown]
# Four memories go through each session.
# *Prompt lookup* and the *n-gram dictionary* (lengths 1 to 3) know this request only.
# *Suffix, local* is suffix decoding that may not keep past requests.
# The fourth, *suffix*, keeps them.

# %%
import matplotlib.pyplot as plt
methods = {
    "prompt lookup": PromptLookup,
    "n-gram dictionary": NGramDictionary,
    "suffix, local": lambda: SuffixDecoding(max_requests=0),
    "suffix": SuffixDecoding,
}
replayed = {
    (session, name): through(session, make()) for session in sessions for name, make in methods.items()
}
fig, panels = plt.subplots(1, 3, figsize=(7.6, 3.5), sharey=True)
for axes, session in zip(panels, sessions):
    for i, name in enumerate(methods):
        taus = [tau(steps) for steps in replayed[session, name]]
        axes.plot(range(1, 1 + len(taus)), taus, label=name, **style.line((1, 3, 4, 2)[i]))
    axes.axhline(1, color="black", linestyle="--", linewidth=1)
    axes.set(title=session, xlabel="request of the session", ylim=(0, None))
panels[0].set_ylabel("τ, tokens per forward")
panels[-1].legend(loc="upper right", fontsize=8)
alt = "Tokens per forward, request by request, in three sessions, for four memories."
figures.save(fig, "09-sessions", alt=alt, model=loaded)

# %%
from IPython.display import Markdown, display
from specdec_core.race import markdown


def joint(session, name, first=0):
    """τ of a method over the requests of a session, from the one numbered ``first``."""
    return tau([step for steps in replayed[session, name][first:] for step in steps])


table = []
for session in sessions:
    later = {name: joint(session, name, first=1) for name in methods}
    table.append([f"{session}, first request", *(f"{tau(replayed[session, name][0]):.2f}" for name in methods)])
    table.append([f"{session}, later ones", *(f"{value:.2f}" for value in later.values())])
    winner = max(later, key=later.get)
    lead = "" if winner == "suffix" else f" of suffix by {later[winner] / later['suffix'] - 1:.1%}"
    print(f"{session}: from the second request on, {winner} is ahead{lead}.")
display(Markdown(markdown(table, ["τ", *methods])))

# %% jupyter={"source_hidden": true}
rise = joint("same form", "suffix", first=1)
gram, local = joint("same form", "n-gram dictionary"), joint("same form", "suffix, local")
adds = "adds little" if local > gram else "adds nothing"
display(Markdown(
    "> **The notes say …** (*A short introduction*, on suffix decoding) that it is an n-gram method in a better "
    "edition, except that it drafts from a suffix tree made of the conversation's history. We take it apart on the "
    "session *same form*. A tree over **this request**, instead of a dictionary of lengths up to 3, moves τ from "
    f"{gram:.2f} to {local:.2f}. The **history** moves it to {rise:.2f} from the second request on. So the exception "
    f"is the point: the tree by itself {adds}, the session is what counts. (A tree capped at length $n$ does "
    "hold the counts of an n-gram dictionary, as we checked above.)"
))

# %% [markdown]
# Within one request suffix decoding may even fall *behind* the dictionary.
# Its own rule holds it back:
# matches are short there, and a match of one token drafts one node, where the dictionary drafts ten.
#
# Which memory was it?
# The steps of the whole method, by the source of their draft:

# %%
table = []
for session in sessions:
    steps = [step for one in replayed[session, "suffix"] for step in one]
    for source in ("this request", "past requests", "none"):
        mine = [step for step in steps if step["source"] == source]
        drafted = sum(step["rows"] - 1 for step in mine)
        kept = sum(step["emitted"] - 1 for step in mine)
        means = [f"{count / max(len(mine), 1):.1f}" for count in (drafted, kept)]
        table.append([f"{session}: {source}", f"{len(mine) / len(steps):.0%}", *means])
display(Markdown(markdown(table, ["draft from", "share of the steps", "nodes per step", "accepted per step"])))

# %% [markdown]
# ## Is the match's length worth its draft?
#
# The rule *longer match, longer draft* is a claim about text: after a long match more tokens will be right.
# The left figure has all steps of the three sessions by the length of the match;
# the numbers above the bars count the steps.
# (The tree is $D = 24$ tokens deep, which match and draft share.
# Beyond twelve tokens a longer match leaves less room for the draft,
# and wins only where little is left of the old text.)
# The right figure tests the score, which claims to be the number of accepted tokens.

# %%
steps = [s for session in sessions for one in replayed[session, "suffix"] for s in one if s["rows"] > 1]
groups = [(1, 1), (2, 2), (3, 4), (5, 8), (9, 12), (13, 23)]
inside = [[s for s in steps if low <= s["match_len"] <= high] for low, high in groups]
names = [f"{low}" if low == high else f"{low}–{high}" for low, high in groups]
edges = [0, 1, 2, 4, 8, 17]
binned = [[s for s in steps if low < s["score"] <= high] for low, high in zip(edges, edges[1:])]
points = [
    (np.mean([s["score"] for s in group]), np.mean([s["emitted"] - 1 for s in group]), len(group))
    for group in binned if group
]

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.6))
drafted, kept = (
    [np.mean([s[fact] - 1 for s in group] or [0]) for group in inside] for fact in ("rows", "emitted")
)
left.bar(names, drafted, label="drafted nodes", **style.bar(0))
bars = left.bar(names, kept, width=0.5, label="accepted", **style.bar(1))
left.bar_label(bars, [len(g) for g in inside], fontsize=7)
left.set(xlabel="tokens matched", ylabel="per step", title="Length")
left.legend()
right.plot([0, 16], [0, 16], color="black", linestyle="--", linewidth=1, label="kept promises")
scores, outcomes, _ = zip(*points)
right.plot(scores, outcomes, label="steps with such a score", **style.line(1))
for x, y, count in points:
    right.annotate(f"{count}", (x, y), textcoords="offset points", xytext=(6, -9), fontsize=7)
right.set(xlabel="score: accepted tokens promised", ylabel="accepted, mean", title="Promise and outcome")
right.legend()
alt = "Left: drafted and accepted tokens by length of the match. Right: accepted tokens by promised ones."
figures.save(fig, "09-match-length", alt=alt, model=loaded)

# %%
for x, y, count in points:
    print(f"score about {x:5.2f}: {y:5.2f} accepted, the mean of {count} steps, {y / x:.0%} of the promise")
print("a higher score accepts more:", all(a < b for a, b in zip(outcomes, outcomes[1:])))

# %% [markdown]
# The score takes the counts at their word.
# A string that occurred *once* has a follower with share 1,
# as has a string that occurred a hundred times with the same follower.
# The score cannot tell them apart.
# What matters for choosing among drafts is the order of the scores, and the last line says whether that is right.
#
# ## What should `factor` be?
#
# Counted in steps, a longer draft loses nothing.
# On the clock each node is a row: again $t(q)$ decides.
# With the last setting, ∞, a draft may have sixteen nodes whatever the match,
# just as prompt lookup always drafts ten tokens.

# %%
from specdec_core.measure import measure_costs

costs = measure_costs(lm, widths=(1, 2, 3, 5, 9, 17), context=160, repeats=7)
print("q           " + "".join(f"{q:6}" for q in costs.widths))
print("t(q) / t(1) " + "".join(f"{costs.break_even(q):6.2f}" for q in costs.widths))


def predicted(steps):
    """Speedup over ordinary decoding if t(q) is the whole story."""
    return sum(s["emitted"] for s in steps) * costs.t(1) / sum(costs.t(s["rows"]) for s in steps)


factors = {"½": 0.5, "1": 1.0, "2": 2.0, "4": 4.0, "∞": 16.0}
swept = {session: [sum(through(session, SuffixDecoding(factor=f)), []) for f in factors.values()]
         for session in sessions}

# %%
fig, panels = plt.subplots(1, 2, figsize=(7.6, 3.5), sharey=True)
for axes, value, title in zip(panels, (tau, predicted), ("Steps: τ", "Clock: speedup predicted from t(q)")):
    for i, session in enumerate(sessions, start=1):
        axes.plot(list(factors), [value(steps) for steps in swept[session]], label=session, **style.line(i))
    axes.axhline(1, color="black", linestyle="--", linewidth=1)
    axes.set(xlabel="factor: nodes per matched token (∞: always 16)", title=title, ylim=(0, None))
panels[1].legend()
alt = "Tokens per forward and predicted speedup against the factor, for three sessions."
figures.save(fig, "09-factor", alt=alt, model=loaded)
for session in sessions:
    guesses = dict(zip(factors, map(predicted, swept[session])))
    best = max(guesses, key=guesses.get)
    print(f"{session}: fastest by t(q) with factor {best}: {guesses[best]:.2f} times;", end=" ")
    print(f"with 1 {guesses['1']:.2f}, always 16 nodes {guesses['∞']:.2f}")

# %% [markdown]
# ## On the clock
#
# Now the session that suits the method, and the one that does not, live.
# Ordinary decoding, prompt lookup and suffix decoding take turns at each request.
# One drafter of each kind goes through the whole session.

# %%
from specdec_core import compare

METHODS = ("prompt_lookup", "suffix_decoding")
raced = {
    session: compare(lm, prompts[session][:count], METHODS, max_new_tokens=LENGTH, repeats=1)
    for session, count in (("same form", 4), ("unrelated", 3))
}
live = {(session, name): [run.trace for run in race.answers(name)]
        for session, race in raced.items() for name in METHODS}
again = SuffixDecoding()
equal = [
    [(s["rows"], s["emitted"]) for s in steps_of(prompt, run.tokens, again)]
    == [(len(step.tree.tokens), len(step.tokens)) for step in run.trace.steps]
    for prompt, run in zip(prompts["same form"], raced["same form"].answers("suffix_decoding"))
]
print("replayed steps equal the live steps, through the whole session:", all(equal))

# %%
from specdec_core.measure import agreement

print(agreement(lm, [pair for race in raced.values() for pair in race.pairs()]))

# %%
rows = {(session, name): raced[session].row(name) for session, name in live}
guess = {key: predicted([counted(step) for trace in traces for step in trace.steps]) for key, traces in live.items()}
table = []
for (session, name), row in rows.items():
    depths = ", ".join(f"{accepted / tested:.2f}" for accepted, tested in row.acceptance_by_depth[:3])
    speeds = [f"{value:.2f}" for value in (row.tokens_per_call, guess[session, name], row.decode_speedup)]
    memory = (row.ms["draft"] + row.ms["observe"]) / sum(row.ms.values())
    table.append([f"{session}: {name.replace('_', ' ')}", depths, *speeds, f"{memory:.2%}"])
columns = ["session: method", "accepted at depth 1, 2, 3", "τ", "predicted", "measured speed", "time of the memory"]
display(Markdown(markdown(table, columns)))

# %%
good, bad = (rows[session, "suffix_decoding"] for session in raced)
rival, calm = (rows[session, "prompt_lookup"] for session in raced)
print(f"same form: {good.decode_speedup / rival.decode_speedup:.2f} times as fast as prompt lookup, all requests.")
speed = bad.decode_speedup
loses = "loses to" if speed < 0.98 else "roughly equals" if speed < 1.02 else "beats"
print(f"unrelated: it {loses} ordinary decoding, with τ = {bad.tokens_per_call:.2f}", end=" ")
print(f"and {speed:.2f} times the speed (predicted {guess['unrelated', 'suffix_decoding']:.2f}).")
print("  Prompt lookup, which remembers nothing of the session, has", end=" ")
print(f"τ = {calm.tokens_per_call:.2f} and {calm.decode_speedup:.2f} times the speed.")
past = [s for one in replayed["unrelated", "suffix"] for s in one if s["source"] == "past requests"]
wrong = sum(s["emitted"] == 1 for s in past) / max(len(past), 1)
print(f"  Of suffix decoding's {len(past)} drafts from past answers {wrong:.0%} were wrong from the first token.")
each = {(session, i): steps for session in sessions
        for i, steps in enumerate(replayed[session, "suffix"], start=1)}
for session, i in sorted(each, key=lambda place: predicted(each[place]))[:2]:
    steps = each[session, i]
    print(f"Among its worst by t(q): request {i} of {session!r},", end=" ")
    print(f"τ = {tau(steps):.2f}, {predicted(steps):.2f} times the speed.")

# %% [markdown]
# **When it loses.** Where requests have nothing in common, the past offers only phrases of one or two tokens.
# Each costs rows and is mostly wrong.
# The method's own rule saves it from worse, since a match of one token drafts one node.
# What it gains there comes from *this* request,
# from a poem's refrain or a loop, and any lookup in the request gains that too.
# A session's *first* request is always such a case.
# And all of this is greedy:
# at a temperature above 0 the target takes other turns than last time, and matches end earlier.
# If neither the session nor its requests repeat themselves, turn the method off;
# chapter 11 has a drafter that notices by itself.
#
# Here is a later request of the good session, as it was written:

# %%
viz.replay.replay(live["same form", "suffix_decoding"][2], tokenizer)

# %% [markdown]
# ## What remembering costs
#
# **Time.** A token adds *one* string of $D$ tokens to the tree, and visits the nodes on its path:
# at most $D$, however much is remembered.
# So as the tree fills, the time must level off.
#
# **Memory.** Here are the three structures from above on real text, the source of some standard modules.

# %%
import argparse
import ast
import inspect
import tarfile
import typing
from time import perf_counter

from specdec_core.stores import tokenized

modules = (argparse, ast, inspect, tarfile, typing)
tokens = np.concatenate(list(tokenized(map(inspect.getsource, modules), tokenizer)))[:40_000].tolist()
BLOCK, passes = 4_000, []
for _ in range(3):  # the best of three, since others use this machine too
    growing, times, nodes = GrowingText(depth=24), [], []
    for start in range(0, len(tokens), BLOCK):
        block, begun = as_text(tokens[start : start + BLOCK]), perf_counter()
        for char in block:
            growing.append(char)
        times.append((perf_counter() - begun) / len(block))
        nodes.append(growing.nodes)
    passes.append(times)
seconds = np.min(passes, axis=0)
fast, slow = 1e6 * min(seconds), 1e6 * max(seconds)
print(f"{len(tokens):,} tokens: {fast:.1f} to {slow:.1f} µs per token; {nodes[-1] / len(tokens):.2f} nodes per token")

# %%
parts = [len(tokens) * i // 4 for i in range(1, 5)]
states = [len(automaton(tokens[:size])) for size in parts]
table = [len(count_all(tokens[:size], depth=24)) for size in parts[:2]]  # too large to go on
ends = np.minimum(np.arange(1, len(nodes) + 1) * BLOCK, len(tokens))
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.5))
left.plot(ends, [1e6 * s for s in seconds], label="suffix tree, D = 24", **style.line(2))
left.set(xlabel="tokens remembered", ylabel="µs for one token more", title="Time", ylim=(0, None))
right.plot(parts[:2], table, label="table of all strings, D = 24", **style.line(0))
right.plot(ends, nodes, label="suffix tree, D = 24: nodes", **style.line(2))
right.plot(parts, states, label="suffix automaton: states", **style.line(3))
right.plot(ends, 2 * ends, color="#7F7F7F", linestyle=":", label="2 M")
right.set(xlabel="tokens remembered", ylabel="entries", title="Memory", yscale="log")
for axes in (left, right):
    axes.legend(fontsize=8, loc="lower right")
alt = "Left: the time to add a token as the memory grows. Right: entries of table, tree and automaton."
figures.save(fig, "09-cost", alt=alt, model=loaded)

# %% [markdown]
# Tree and automaton have about as many entries, a small fraction of the table's.
# The tree stops at $D$ tokens, the automaton does not; but only the tree can forget.
#
# **A bound.** A server runs for weeks.
# The global memory is a queue:
# a new answer goes in, and as long as there are too many requests or tokens, the oldest goes out.
# *Out* means that every string it had brought is counted once less.
# Forgetting must be exact, or the counts drift.
# Here three hundred answers of 60 tokens go through a memory of ten:

# %%
answers = [as_text(tokens[60 * i : 60 * (i + 1)]) for i in range(300)]
bounded, endless, sizes = PastTexts(depth=24, max_texts=10), PastTexts(depth=24), []
for answer in answers:
    bounded.add(answer)
    endless.add(answer)
    sizes.append((bounded.nodes, endless.nodes))
fresh = PastTexts(depth=24)
for answer in answers[-10:]:
    fresh.add(answer)
strings = [answer[i : i + n] for answer in answers for i in range(0, 60, 7) for n in (1, 2, 5)]
alike = bounded.nodes == fresh.nodes and all(bounded.count(s) == fresh.count(s) for s in strings)
print(f"after {len(answers)} answers: {bounded.tokens} tokens kept;", end=" ")
print(f"the same as a memory that never saw the other {len(answers) - 10}: {alike}")

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.2))
for i, (name, line) in enumerate(zip(("the last 10 answers", "all answers"), zip(*sizes)), start=1):
    axes.plot(range(1, len(answers) + 1), line, label=name, **{**style.line(i), "marker": None})
axes.axhline(2 * 600, color="#7F7F7F", linestyle=":", label="2 × 600 tokens, the bound")
axes.set(xlabel="answers given", ylabel="nodes of the tree", yscale="log")
axes.legend()
alt = "Nodes of the tree by answers given: level for a memory of ten answers, rising for one of all."
figures.save(fig, "09-bounded", alt=alt, model=loaded)

# %% [markdown]
# The right bound depends on how soon the session repeats itself:
# a memory of ten is enough for a loop over the same form, and useless for a hundred forms in rotation.
#
# ## The same elsewhere
#
# | here | vLLM (`speculative_config`) | Arctic Inference |
# |:--|:--|:--|
# | turn it on: `SuffixDecoding()` | `"method": "suffix"`; needs Arctic Inference | part of its vLLM plugin |
# | `depth` = 24, match and draft together | `suffix_decoding_max_tree_depth` = 24 | 64 |
# | `max_requests` = 10,000 | `suffix_decoding_max_cached_requests` = 10,000 | 100,000; first in, first out |
# | `factor` = 1 | `suffix_decoding_max_spec_factor` = 1.0 | and an offset |
# | `min_prob` = 0.1 | `suffix_decoding_min_token_prob` = 0.1 | 0.1 |
# | `nodes` = 16, a tree | `num_speculative_tokens`, a chain | either |
#
# TensorRT-LLM's option of one n-gram pool for all requests
# (chapter 05) is the same idea with short n-grams and no counts.
#
# *Quoted, not measured here:* the authors report up to 5.3 times the speed of ordinary decoding on agents' workloads
# (Oliaro and others, 2024), with larger models, on GPUs.
#
# ## Pitfalls
#
# - **Remembering drafts.** Only committed tokens may be counted.
#   A rejected draft was never part of the text; counted, it would confirm itself.
# - **Remembering prompts globally.** The past holds *answers*.
#   Prompts in it would be counted as if the target had written them.
# - **Text that is too fresh.** The end of the text has no follower yet.
#   It must not be counted as "followed by nothing".
#   And yet the string before it must be found at once: in a loop the match is one period old.
# - **A share of 1 from a count of 1.** The score cannot tell it from a share of 1 from a hundred
#   (see *Promise and outcome*, above).
# - **Forgetting by rebuilding.** A rebuild stalls the server.
#   Forget one string at a time.
# - **One memory for all users.** The text is lossless, the time is not:
#   a fast answer says that somebody has had this answer before.
#   Keep one memory per tenant.
# - **Judging a session by its first request**, or a benchmark of unrelated questions by this method.
#   Say which sessions you measured.
#
# ## Summary
#
# - The memory is the session: this request, and past answers.
#   Nothing is built beforehand; each token is learned as it is committed.
# - Count every string of up to $D$ tokens.
#   A path-compressed tree does it with at most $2M$ nodes.
#   It takes a token in a time that depends on $D$ alone, and can forget exactly.
#   An n-gram dictionary is the special case of one length.
# - The draft's length comes from the match's length, its branches from the product of count shares.
#   The best sum of shares wins; on a tie, this request wins over the past.
#   It is lossless, since the draft is a tree of fixed tokens.
# - It wins where requests resemble each other, from the second request on.
#   Within one request it is prompt lookup with counts.
#   Where nothing returns it finds nothing, and may cost time.
#
# **Can you answer these?**
# A string was followed by x three times and by y once, and x was always followed by z.
# Which three nodes come first, and what is their score? (x 0.75, z 0.75, y 0.25: 1.75.)
# Why can a tree forget and an automaton not?
# (Putting a string in adds one to the counts on its path, and that can be undone;
# the automaton has merged strings that end alike, and does not know which text brought which state.)
# You get $\tau = 6$ on a benchmark that sends each question three times.
# What have you measured?
# (How well the memory keeps answers.)
#
# ## Further reading
#
# - G. Oliaro, Z. Jia, D. Campos, A. Qiao, *SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications*,
#   NeurIPS 2025, [arXiv:2411.04975](https://arxiv.org/abs/2411.04975);
#   code in [github.com/snowflakedb/ArcticInference](https://github.com/snowflakedb/ArcticInference)
# - E. Ukkonen, *On-line construction of suffix trees*, Algorithmica 14, 1995
# - A. Blumer and others, *The smallest automaton recognizing the subwords of a text*,
#   Theoretical Computer Science 40, 1985
# - J. Cleary, I. Witten, *Data Compression Using Adaptive Coding and Partial String Matching*, IEEE Transactions
#   on Communications 32(4), 1984: predicting the next symbol from counts of the longest match, for another purpose
