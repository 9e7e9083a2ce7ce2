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
# # 07 · Lookahead decoding
#
# > **The question of this chapter.**
# > Jacobi's rounds are full of pieces of the answer at the wrong place.
# > Can the model collect these pieces while it writes, check them where they fit, and do both in one forward?
# > And how cheap must a row of that forward be for this to pay?
#
# **Afterwards you can**
#
# - build the $W \times N$ window, the n-gram pool and the $G$ candidates from plain functions,
#   and derive the attention mask with which all of them share one forward;
# - say why the method is lossless, greedily and with sampling, and why the pool needs to store only token ids;
# - derive $E$ and $S$, the expected tokens per step,
#   and say where they grow with $\log b$, where they stop, and what the ceiling is;
# - fit the two parameters of $S$ to a run of your own and compare with the paper's;
# - read an ablation: what the window contributes, what the candidates, what the prompt;
# - compute from $t(q)$ when all this loses,
#   and split the work over several machines that do not communicate during a forward.
#
# **Taken for granted:** chapter 06, above all its last section;
# $t(q)$ and τ from chapter 00, sample-then-match from chapter 01.
#
# **Time:** 40 minutes of reading; the cells take about a minute and a half on two CPU cores.

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
# ## From pairs to n-grams
#
# Hidden between two rounds of Jacobi's iteration are the pairs $(y^t_{i-1},\, y^{t+1}_i)$:
# down one row and right one column, the model chose the second token after the first.
# Two changes make a method of them (Fu, Bailis, Stoica and Zhang, 2024, *lookahead decoding*).
#
# **Remember more rounds.**
# The diagonal over $N - 1$ remembered rounds and the new one is a sequence of $N$ tokens,
# each chosen after the one before.
# For this the newest token of each diagonal must *see* the older tokens of its diagonal,
# so all of them go into the forward.
#
# **Forget the place.**
# An n-gram goes into a **pool** under its first token.
# Whenever that token is the last of the text, at whatever place, the rest of the n-gram is a draft.
# The forward that makes new n-grams also checks up to $G$ old ones.
#
# The rounds that are remembered form a **window** of $N - 1$ *levels*, oldest first, and $W$ *columns*.
# The token at level $j$ and column $i$ has position $i + j$ relative to the **input token**.
# The input token is the last token of the text, and is itself (level 0, column 0).
# For $W = 5$, $N = 4$ the positions are
#
# | | column 0 | 1 | 2 | 3 | 4 | in the paper's Figure 2(b) |
# |:--|:--|:--|:--|:--|:--|:--|
# | level 0, oldest | 0 | 1 | 2 | 3 | 4 | blue 0, orange 1–4 |
# | level 1 | 1 | 2 | 3 | 4 | 5 | green |
# | level 2, newest | 2 | 3 | 4 | 5 | 6 | red |
# | new: what the forward makes | 3 | 4 | 5 | 6 | 7 | |
#
# A column read downwards, with the new token at its end, is an n-gram of $N$ consecutive positions.
# There are $W$ of them per forward.
#
# ## The mask
#
# All rows share one forward, so each must see what it continues and nothing else.
# The mask follows from one sentence: **a row sees the text that it continues, and itself.**
#
# - (level 0, column $i$) continues the input token and level 0 up to column $i - 1$: an ordinary chain.
# - (level $j$, column $i$) continues (level $j - 1$, column $i$) and what that one continues.
#   So it sees its own column down to itself, and level 0 up to its column.
# - Token $d$ of a candidate continues the input token and the candidate's first $d - 1$ tokens.
#   It sees no other candidate and nothing of the window; and the window sees no candidate.
#
# Nothing else is in the mask.
# And since each row continues exactly one row, **the whole forward is a tree**, rooted at the input token.
# Here are both: the mask from the three rules, and the parents from the word *continues*.

# %%
import numpy as np
from specdec_core import DraftTree


def mask(W, N, G):
    """sees[i, j]: whether row i sees row j. Rows: the window level by level, then the candidates."""
    rows = [("window", j, i) for j in range(N - 1) for i in range(W)]
    rows += [("candidate", g, d) for g in range(G) for d in range(N - 1)]

    def sees(row, other):
        (kind, j, i), (what, l, c) = row, other
        if what == "window" and l == c == 0:
            return True  # the input token
        if kind == "window":
            return what == "window" and (l == 0 and c <= i or c == i and l <= j)
        return what == "candidate" and l == j and c <= i

    return np.array([[sees(row, other) for other in rows] for row in rows])


def window_parents(width, count):
    """(0, i) continues (0, i - 1); (j, i) continues (j - 1, i). Row of (j, i): j * width + i."""
    return [*range(-1, width - 1), *range(width * (count - 1))]


# %% [markdown]
# Now the same from the package, whose drafter proposes a tree, for the paper's $W = 5$, $N = 4$, $G = 2$.
# We fill its window and pool by hand with numbers that are easy to tell apart:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Budget, Rng
from specdec_core.drafters import Lookahead

W, N, G = 5, 4, 2
drafter = Lookahead(W, N, G)
drafter.levels = [[10 * j + i + j for i in range(W)] for j in range(N - 1)]  # tens: level; units: position
drafter.pool = {0: {(91, 92, 93): None, (81, 82, 83): None}}
tree = drafter.propose([0], Budget(64, 64), Rng(0))
print("rows:", len(tree.tokens), "of which can be accepted, besides the root:", int(tree.candidate.sum()) - 1)
print("the mask is the package's:", bool((mask(W, N, G) == tree.ancestors).all()))
print("so are the parents:", window_parents(W, N - 1) == tree.parents[: W * (N - 1)].tolist())
red_6 = 14
print("the red 6 sees positions", [int(tree.depths[j]) for j in np.flatnonzero(tree.ancestors[red_6])])

# %%
from specdec_core.viz import figures, lookahead

rows = tree.tokens.tolist()
levels = tuple(tuple(rows[j * W : (j + 1) * W]) for j in range(N - 1))
candidates = tuple(tuple(rows[start : start + N - 1]) for start in range(W * (N - 1), len(rows), N - 1))
frame = lookahead.Frame(levels, candidates, (), (), ())
assert (frame.tree.ancestors == tree.ancestors).all()
fig = lookahead.draw_mask(frame)
alt = "The 21 by 21 mask for W = 5, N = 4, G = 2: triangles for level 0, diagonals, two small triangles."
figures.save(fig, "07-mask", alt=alt)

# %% [markdown]
# *Rows see columns.
# The lines separate the levels and the candidates; the colors of the window are the paper's.*
# The first five columns are level 0, a triangle that repeats in every level.
# The diagonals are the columns of the window: each row sees its own column.
# The two small triangles are the candidates.
# It is the paper's Figure 2(b).
#
# > **The notes say …** (*lookahead article*) that the one rule behind this mask is:
# > each token sees all tokens whose number is *larger* than its own.
# > **It is stated backwards**: no row sees a larger position, since attention stays causal.
# > Even turned round, the rule allows too much.
# > Of the 14 window tokens with a smaller number, the red 6 sees six (printed above, with itself):
# > blue 0, orange 1 to 4, green 5.
# > It does not see green 1 to 4, nor red 2 to 5, though their numbers are smaller.
# > What a row sees depends on its column, not on its number.
# > The note also says that the red 6 does not see the blue token;
# > it does, as every row does, since the blue 0 is the input token.
#
# **How many rows?**
# $W(N-1)$ for the window, the input token being one of them, and $G(N-1)$ for the candidates:
#
# $$q = (W + G)(N - 1).$$
#
# The paper's settings for $N = 5$ and $G = W$ are $W$ = 15, 10, 7 for models of 7, 13 and 34 billion weights:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import theory

for columns in (15, 10, 7):
    by_hand, package = (columns + columns) * (5 - 1), theory.lookahead_step_tokens(W=columns, N=5, G=columns)
    drawn = len(mask(columns, 5, columns))
    print(f"W = G = {columns:2}, N = 5: {by_hand} rows, from the package {package}, of the mask {drawn}")

# %% [markdown]
# ## One step, in the open
#
# Four small functions are needed: two for the pool, one for the check of a candidate, and one that moves the window.
# After a forward the oldest level goes and the new one comes.
# Level $j + 1$ becomes level $j$, and the input token moves on by one,
# so every token of the window keeps its place in the text.
# Only the first token of the new level 0 is replaced, by the true input token.
# (If a step wrote more than one token, the paper and we still move the window by one:
# its tokens then stand further on in the text than where they were made.
# They are guesses.)

# %%
def remember(pool, gram, size):
    """Put an n-gram under its first token, as the most recent; of more than size the oldest goes."""
    kept = [one for one in pool.get(gram[0], []) if one != gram[1:]]
    pool[gram[0]] = [*kept, gram[1:]][-size:]


def look_up(pool, token, G):
    """What the pool has after this token, most recent first."""
    return pool.get(token, [])[::-1][:G]


# %%
def agreed(best, rows, candidate):
    """How many tokens of a candidate are the target's own. best[r] is the target's choice after row r."""
    at = 0
    for k, (token, row) in enumerate(zip(candidate, rows)):
        if best[at] != token:
            return k
        at = row
    return len(candidate)


def slide(levels, made, N):
    """The next window, and the n-grams that this forward completed."""
    if len(levels) < N - 1:  # still filling: nothing is dropped, so the columns step left instead
        return [level[1:] for level in (*levels, made)], []
    return [*levels[1:], made], list(zip(*levels, made))


# %% [markdown]
# Then the step, with one forward in it.
# Decoding begins with a single level of $W + N - 2$ tokens;
# $N - 2$ steps later the window is full, and the first n-grams appear.

# %%
def step(lm, context, levels, pool, N, G):
    """One forward: writes at least one token, fills the pool, moves the window. Returns (levels, Frame)."""
    levels[0][0] = context[-1]
    width, candidates = len(levels[0]), look_up(pool, context[-1], G)
    tokens, parents = [t for level in levels for t in level], window_parents(width, len(levels))
    window, rows = len(tokens), []
    for candidate in candidates:  # side by side, each hanging from the input token
        rows.append(range(len(tokens), len(tokens) + len(candidate)))
        parents += [0, *rows[-1][:-1]]
        tokens += candidate
    best = lm.forward(DraftTree(tokens, parents)).logits.argmax(-1).tolist()
    accepted = [own[: agreed(best, own, candidate)] for own, candidate in zip(rows, candidates)]
    path = [0, *max(accepted, key=len, default=[])]  # the rows that become text
    emitted = [*(tokens[row] for row in path[1:]), best[path[-1]]]
    lm.commit(path)
    made = best[window - width : window]  # the choices after the newest level
    new_levels, grams = slide(levels, made, N)
    for gram in grams:
        remember(pool, gram, G)
    parts = map(tuple, (map(tuple, levels), candidates, made, grams, emitted))
    return new_levels, lookahead.Frame(*parts, dict(pool))


# %%
def lookahead_decode(lm, prompt, first, N, G, length):
    """Greedy lookahead decoding from a first level of W + N - 2 tokens. Returns the steps."""
    lm.prefill(prompt[:-1], reserve=1024)
    context, levels, pool, frames = list(prompt), [list(first)], {}, []
    while len(context) < len(prompt) + length:
        levels, frame = step(lm, context, levels, pool, N, G)
        context += frame.emitted
        frames.append(frame)
    return frames


# %% [markdown]
# **By hand.**
# Take the model of chapter 06, which looks at the last word only:
#
# | after | . | the | cat | sat | on | a | dog | ran |
# |:--|:--|:--|:--|:--|:--|:--|:--|:--|
# | it says | the | cat | sat | on | a | . | ran | . |
#
# Let $W = 3$, $N = 3$, $G = 2$, and let the prompt be ".".
# The first level, of $W + N - 2 = 4$ tokens, is the input token and *dog ran cat*.
# Chapter 06 wrote *the cat sat on a* in five rounds.
#
# 1. **Step 1.**
#    One level so far: (. dog ran cat).
#    After its tokens the model says: (the ran . sat).
#    It writes *the*.
#    There is nothing in the pool and no n-gram yet.
#    The columns move left; level 0 is (~~dog~~ **the**, ran, cat), with the input token in place of *dog*,
#    and level 1 is (ran, ., sat).
# 2. **Step 2.**
#    The newest level is (ran, ., sat), and after its tokens the model says (. the on).
#    The columns, downwards: (the ran .), (ran . the), (cat sat on).
#    These go to the pool.
#    The model writes *cat*; the pool was still empty when *the* was looked up.
# 3. **Step 3.**
#    The input token is *cat*.
#    The pool has (sat on) after it: a candidate.
#    The model agrees with both words, and says *a* after them.
#    **Three tokens in one forward.**
#
# Note that *cat sat on* was made at places 3, 4 and 5 of the text, where it is wrong,
# and was used at 2, 3 and 4: the pool does not depend on places.
# Note also that the first n-gram, (the ran .), is a bad one:
# *ran* was chosen after *dog*, which the input token replaced.
# Checking a bad n-gram costs a few rows; it never leads to a wrong word.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import TableLM

follower = {".": "the", "the": "cat", "cat": "sat", "sat": "on", "on": "a", "a": ".", "dog": "ran", "ran": "."}
WORDS = list(follower)
toy = TableLM(np.eye(len(WORDS))[[WORDS.index(word) for word in follower.values()]])


def ids(text):
    return [WORDS.index(word) for word in text.split()]


def show(tokens):
    return "(" + " ".join(WORDS[token] for token in tokens) + ")"


toy_frames = lookahead_decode(toy, ids("."), ids(". dog ran cat"), N=3, G=2, length=5)
for t, frame in enumerate(toy_frames, start=1):
    given, kept = (" ".join(map(show, tokens)) or "none" for tokens in (frame.candidates, frame.grams))
    print(f"step {t}: levels", *map(show, frame.levels), "new", show(frame.made), "candidates", given)
    print("        to the pool:", kept, "; writes", show(frame.emitted))

# %% [markdown]
# Now we compare ours with the package on the real model, token by token:
# the windows, the pools and what each step writes.
# The package draws its first level from the prompt's tokens; ours begins with the same one.
# The window is full of wild guesses, among which near ties are common.
# So both run with `numerics="invariant"`: then a row's best token does not depend on how many other rows there are.

# %%
from specdec_core import stream
from specdec_core.race import own

wanted = ("chat-01", "math-01")
questions = {question.id: question for question in own() if question.id in wanted}
prompts = {name: loaded.encode(questions[name].turns[0]) for name in wanted}
W, N, G, LENGTH, prompt = 4, 4, 4, 40, prompts["math-01"]
exact = CachedLM(loaded, numerics="invariant")
drafter, theirs = Lookahead(W, N, G), []
for done in stream(exact, prompt, drafter, max_new_tokens=LENGTH, seed=0):
    pool = {token: list(kept) for token, kept in drafter.pool.items()}
    theirs.append((done.tree.tokens.tolist(), done.verdict.tokens, pool))

first = theirs[0][0][: W + N - 2]  # the package's first level
frames, same = lookahead_decode(exact, prompt, first, N, G, LENGTH), []
for frame, (rows, tokens, pool) in zip(frames, theirs):
    window = [token for level in frame.levels for token in level]
    same.append((rows[: len(window)], tokens, pool) == (window, frame.emitted, frame.pool))
print(f"{len(frames)} steps; windows, pools and tokens equal the package's in {sum(same)} of them")

# %% [markdown]
# One difference remains, which does not show in the tokens.
# We put candidates side by side, as the paper does.
# The package puts them into one tree, in which candidates with a common beginning share its rows.
# That needs fewer rows for the same drafts, and one walk down the tree finds the longest match.
#
# > **The notes say …** (*lookahead article*) that the candidates are disjoint n-grams,
# > not a tree as in SpecInfer, so that tree verification cannot be used on them.
# > Disjoint paths from one input token *are* a tree that branches at its root only.
# > Merging common beginnings changes neither the tokens nor their distribution.
# > The comparison above was between the two.
#
# ### The prompt's own n-grams
#
# The pool need not be filled by the window alone.
# With `prompt_ngrams` the package also puts every n-gram of the text there:
# those of the prompt first, then those of what has been written.
# With $N = 3$ and two n-grams kept for each first token:

# %%
# NBVAL_CHECK_OUTPUT
def pool_from(tokens, N, size):
    """A pool with every n-gram of the text, in order."""
    pool = {}
    for end in range(N, len(tokens) + 1):
        remember(pool, tuple(tokens[end - N : end]), size)
    return pool


text = ids("the cat sat on a dog . the cat ran . the dog ran . the")
pool = pool_from(text, N=3, size=2)
print("after the:", *map(show, look_up(pool, WORDS.index("the"), 2)), "  (cat sat), the oldest, has gone")
theirs = Lookahead(W=1, N=3, G=2, prompt_ngrams=True)
theirs.propose(text, Budget(64, 64), Rng(0))
print("the package's pool is the same:", {token: list(kept) for token, kept in theirs.pool.items()} == pool)

# %% [markdown]
# This is prompt lookup inside lookahead: a memory of the text, keyed by one token.
# The ablation below separates what it brings from what the window brings.
#
# ## Step by step
#
# This is what the run above looked like.
# The subscript is the position relative to the input token;
# a column read downwards, with the yellow token, is an n-gram for the pool.
# (Without a kernel: the first steps, in which the window fills, and some later ones.)

# %%
def word(token):
    return loaded.tokenizer.decode([token])


winners = [t for t, frame in enumerate(frames, start=1) if len(frame.emitted) > 1]
lookahead.player(frames, word, static=sorted({1, 2, 3, *winners[:3]}))

# %% [markdown]
# ## Why it is lossless
#
# The window's rows are **never** candidates.
# They are scratch rows: none of their tokens is written unless it has been checked as a candidate in a later forward.
# What is written is what the target would have written: with greedy decoding, by the comparison in `agreed`.
#
# With sampling, the argument is the one for all fixed drafts (chapter 01).
# The window still takes the target's *argmax*, also at $T > 0$.
# A candidate is then one fixed token at each place, and the distribution it was drawn from is a point mass.
# Sample-then-match emits exactly $p$: draw $y$ from $p$, then continue with those candidates that begin with $y$.
# (The paper's Algorithm 4 accepts with probability $p(x)$ and renormalizes after each rejection;
# chapter 01 showed that this gives the same distribution.)
#
# **That is why the pool needs to store only ids.**
# The test $\min(1, p/q)$ of a draft that was *drawn* needs the whole distribution $q$ that it was drawn from.
# With point masses, $q$ is one for the token and zero elsewhere, so the id is enough.
# (And sample-then-match needs no $q$ at all:
# it emits $y \sim p$ for any draft that was made independently of the number with which $y$ is drawn.)

# %%
n_grams = sum(len(kept) for kept in frames[-1].pool.values())
as_ids, as_laws = n_grams * (N - 1) * 4, n_grams * (N - 1) * lm.vocab_size * 4
print(f"the pool after {LENGTH} tokens: {n_grams} n-grams, {as_ids / 1e3:.1f} kB of ids;", end=" ")
print(f"with laws in float32, {as_laws / 1e6:.0f} MB")

# %% [markdown]
# Here it is as a number: the exact distribution
# (the *law*) of all answers of four tokens of a three-token model, with sampling at $T = 1$.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Sampling, enumerate_law, generate, total_variation
from specdec_core.drafters import NullDrafter

three = TableLM(np.log([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.6, 0.3, 0.1]]))


def exact_law(drafter):
    """The law of (answer, whether a draft was accepted); the window's first level is one fixed draw."""
    options = dict(max_new_tokens=4, sampling=Sampling(temperature=1.0))
    def run(rng):
        answer = generate(three, [0, 1], drafter, rngs=(Rng(0), rng), **options)
        return answer.tokens, answer.trace.accepted > 0
    return enumerate_law(run)


def answers_only(law):
    return {tokens: sum(mass for (one, _), mass in law.items() if one == tokens) for tokens, _ in law}


plain, ahead = exact_law(NullDrafter()), exact_law(Lookahead(W=2, N=3, G=2, prompt_ngrams=True))
distance = total_variation(answers_only(plain), answers_only(ahead))
used = sum(mass for (_, accepted), mass in ahead.items() if accepted)
print(f"{len(answers_only(plain))} possible answers; distance of the two laws below 1e-12: {distance < 1e-12}")
print(f"a draft was accepted with probability {used:.3f}")

# %% [markdown]
# ## How many tokens per step? E and S
#
# Suppose a step checks $b$ drafts of $\gamma$ tokens.
# Let $L_j$ be the number of tokens of draft $j$ that match.
# The step writes $1 + \max_j L_j$ tokens.
# Suppose also that the drafts match independently of one another,
# and each token matches with probability $\alpha$ if those before it did.
# Then $P(L_j \ge i) = \alpha^i$, all $b$ fall short of $i$ with probability $(1 - \alpha^i)^b$, and
#
# $$E = 1 + \sum_{i=1}^{\gamma} P(\max_j L_j \ge i)
# = 1 + \sum_{i=1}^{\gamma}\big(1 - (1 - \alpha^i)^b\big)
# = (\gamma + 1) - \sum_{i=1}^{\gamma} (1 - \alpha^i)^b.$$
#
# For $b = 1$ it is $1 + \alpha + \dots + \alpha^\gamma$, as for a draft model.
# The paper then assumes that good drafts exist in one step out of $f$ only,
# and that the other $f - 1$ steps write one token each.
# So the **step compression** is
#
# $$S = \frac{\#\text{tokens}}{\#\text{steps}} = \frac{f - 1 + E}{f}, \qquad\text{with } \gamma = N - 1,\; b = W = G.$$
#
# $S$ is τ under another name.
# *By hand*, $\alpha = \frac12$, $\gamma = 2$, $b = 2$, $f = 3$:
# $E = 3 - (\frac12)^2 - (\frac34)^2 = 2.1875$ and $S = (2 + 2.1875)/3 = 1.396$.

# %%
# NBVAL_CHECK_OUTPUT
def E(alpha, gamma, b):
    """Expected tokens of a step with b independent drafts of length gamma."""
    return gamma + 1 - sum((1 - alpha**i) ** b for i in range(1, gamma + 1))


def S(alpha, f, N, b):
    """Step compression of lookahead decoding."""
    return (f - 1 + E(alpha, N - 1, b)) / f


package = theory.expected_tokens_b(0.5, 2, 2)
print(f"by hand: E = {E(0.5, 2, 2):.4f}, S = {S(0.5, 3, 3, 2):.3f};", end=" ")
print(f"from the package: {package:.4f}, {theory.step_compression(3, package):.3f}")
alpha, f = theory.PAPER_ALPHA, theory.PAPER_F  # what the paper fits to a 7B model: quoted
for b in (1, 2, 4, 8, 15, 30, 60, 10**6):
    value = S(alpha, f, 5, b)
    print(f"b = {b:7}: E = {E(alpha, 4, b):.3f}, S = {value:.3f}, steps for 100 tokens {100 / value:5.1f}")

# %% [markdown]
# **How it grows.**
# $1 - (1 - \alpha^i)^b$ is nearly 1 while $\alpha^i b \gg 1$, and nearly 0 when $\alpha^i b \ll 1$.
# So $E$ counts the $i$ with $\alpha^i > 1/b$, about $\ln b / \ln(1/\alpha)$ of them: **$E$ is linear in $\log b$**,
# with slope $1/\ln(1/\alpha)$ for a factor $e$, as long as there are such $i$ up to $\gamma$.
# Beyond $b \approx \alpha^{-\gamma}$ all $\gamma$ are counted, and $E$ bends towards its ceiling:
#
# $$E \le \gamma + 1 = N, \qquad S \le \frac{f - 1 + N}{f}.$$

# %%
import matplotlib.pyplot as plt

b = np.geomspace(1, 3000, 120)
fig, panels = plt.subplots(1, 2, figsize=(7.6, 3.6))
for i, size in enumerate((5, 10, 20)):
    panels[0].plot(b, S(alpha, f, size, b), label=f"N = {size}", **{**style.line(i + 1), "marker": ""})
    panels[1].plot(b, 100 / S(alpha, f, size, b), label=f"N = {size}", **{**style.line(i + 1), "marker": ""})
straight = S(alpha, f, 20, 30) + (np.log(b) - np.log(30)) / (f * np.log(1 / alpha))
panels[0].plot(b, straight, color="black", linewidth=1, label="slope 1/(f ln(1/α))")
panels[0].axhline((f - 1 + 5) / f, color="#7F7F7F", linestyle=(0, (5, 2)), linewidth=1)
panels[0].annotate("ceiling of N = 5", (1.1, (f - 1 + 5) / f), (0, 3), textcoords="offset points", fontsize=8)
for axes, title in zip(panels, ("S, tokens per step", "Steps for 100 tokens")):
    axes.set_xscale("log")
    axes.set(xlabel="b = W = G, drafts per step", title=title)
    axes.legend(fontsize=8)
alt = "Left: S against log b, straight, then flat below a ceiling. Right: steps for 100 tokens, a bent curve."
quoted = [f"α = {alpha}, f = {f} (arXiv:2402.02057, Figure 4)"]
figures.save(fig, "07-formula", alt=alt, quoted=quoted)

# %%
# NBVAL_CHECK_OUTPUT
slope = 1 / (f * np.log(1 / alpha))
print(f"slope for a factor e, from the argument: {slope:.3f}")
for size in (5, 10, 20):
    at = [(S(alpha, f, size, e * np.e) - S(alpha, f, size, e)) for e in (2, 10, 100)]
    print(f"N = {size:2}: from b = 2, 10, 100 on {at[0]:.3f}, {at[1]:.3f}, {at[2]:.3f};", end=" ")
    print(f"ceiling {(f - 1 + size) / f:.3f}, bent to it beyond b = {alpha ** -(size - 1):.0f}")

# %% [markdown]
# Not all of the notes' conclusions from this survive.
# The numbers in the three boxes come from the functions above.

# %% jupyter={"source_hidden": true}
# NBVAL_CHECK_OUTPUT
from IPython.display import Markdown, display

gain = [E(alpha, 4, 2 * b) - E(alpha, 4, b) for b in (15, 30)]
steps = [100 / S(alpha, f, 20, b) for b in (1, 2, 4, 8, 16, 32)]
saved = ", ".join(f"{before - after:.1f}" for before, after in zip(steps, steps[1:]))
display(Markdown(
    "> **The notes say …** (*lookahead article*) that $E$ grows linearly with $b = W$. It grows with $\\log b$ "
    "and saturates at $\\gamma + 1$: with the paper's $\\alpha$ and $N = 5$, doubling $b$ from 15 to 30 adds "
    f"{gain[0]:.2f} tokens, from 30 to 60 another {gain[1]:.2f}, and all that is beyond 60 "
    f"{5 - E(alpha, 4, 60):.2f}.\n\n"
    "> **The notes say …** (both), after the paper's abstract, that the number of *steps* falls linearly with "
    "$\\log(\\text{FLOPs})$. **$S$ is linear in $\\log b$**, up to its ceiling; the steps are $m/S$, a "
    "reciprocal, and the right panel is bent. (FLOPs per step are proportional to the rows, $2b(N-1)$ for "
    "$W = G$, so at fixed $N$ their logarithm is $\\log b$ plus a constant.) Over one doubling the two can "
    "hardly be told apart. Over five, from $b = 1$ to 32 with $N = 20$, far below the ceiling, each saves fewer "
    f"of 100 steps than the one before: {saved}."
))

# %% jupyter={"source_hidden": true}
# NBVAL_CHECK_OUTPUT
display(Markdown(
    "> **The notes say …** (*lookahead article*) that, unlike speculative decoding with its ceiling "
    "$1/(1-\\alpha)$, lookahead has none. **At fixed $N$ it has one**, $S \\le (f - 1 + N)/f$: "
    f"{(f - 1 + 5) / f:.2f} for $N = 5$ and the paper's $f$. Raising $N$ alone does not help: the sum over $i$ "
    f"converges, and at $b = 15$ going from $N = 5$ to 20 raises $S$ from {S(alpha, f, 5, 15):.2f} to "
    f"{S(alpha, f, 20, 15):.2f}, with nearly five times the rows. Both must grow, and the rows grow with their "
    "product. Nor is the independence free: drafts with *different first tokens* exclude one another, and at "
    "most one of them survives its first token: they never bring more than "
    "$1 + 1 + \\alpha + \\alpha^2 + \\dots = 1 + 1/(1-\\alpha)$ tokens (compare Sequoia, "
    "[arXiv:2402.12374](https://arxiv.org/abs/2402.12374), section 3.1.2). Take $\\alpha$ and $b$ of a fit as "
    "effective values."
))

# %% [markdown]
# ## A curve of our own
#
# Now live: $N = 5$, $W = G$ from 1 to 15, on two requests, without the prompt's n-grams.
# All settings of this chapter take turns on each prompt, with the same loop and the same baseline.
# The answers are short, so that the chapter stays short.
# The first $N - 2$ steps of each run only fill the window, which lowers $S$ a little.

# %%
CURVE = (1, 2, 3, 7, 15)
ABLATION = [  # N, W, G, the prompt's n-grams pooled; the paper's speedup and S: quoted
    (10, 1, 3, True, 1.36, 1.45),
    (5, 1, 10, True, 1.36, 1.51),
    (5, 1, 30, False, 1.04, 1.12),
    (5, 1, 30, True, 1.46, 1.59),
    (5, 30, 1, False, 1.61, 1.79),
    (5, 15, 15, False, 1.78, 1.96),
    (5, 15, 15, True, 1.88, 2.05),
]
SCALE, LENGTH = 5, 32


def scaled(n):
    return max(1, round(n / SCALE))


settings = {("curve", w): (5, w, w, False) for w in CURVE}
settings |= {("full", *row[:4]): row[:4] for row in ABLATION}
settings |= {("scaled", *row[:4]): (row[0], scaled(row[1]), scaled(row[2]), row[3]) for row in ABLATION}
shapes = sorted(set(settings.values()))
print(f"{len(settings)} settings, {len(shapes)} different ones")

# %%
from specdec_core import compare
from specdec_core.measure import agreement, measure_costs
from specdec_core.race import markdown

methods = {"prompt lookup": "prompt_lookup"}
for N, W, G, prompt_ngrams in shapes:
    methods[N, W, G, prompt_ngrams] = f"lookahead:N={N},W={W},G={G},prompt_ngrams={prompt_ngrams}"
race = compare(lm, list(prompts.values()), methods, max_new_tokens=LENGTH, repeats=1)
print(agreement(lm, race.pairs()))


# %%
def compression(shape):
    """S: tokens per step, all prompts together."""
    return race.row(shape).tokens_per_call


def clock(shape):
    """Times faster than ordinary decoding, measured."""
    return race.row(shape).decode_speedup


points = [(w, 4, compression((5, w, w, False))) for w in CURVE]
fit = theory.fit_alpha_f(points)
print("measured:", ", ".join(f"S({w}) = {value:.2f}" for w, _, value in points))
print(f"fit: α = {fit.alpha:.3f}, f = {fit.f:.2f}; root mean square error of S {fit.rms:.3f}.", end=" ")
print(f"The paper's: {alpha}, {f}.")

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.8))
b = np.geomspace(1, 40, 80)
here, theirs = style.line(1), style.QUOTED
values = [value for *_, value in points]
axes.plot(CURVE, values, label="measured here", **{**here, "linestyle": "none", "markersize": 8})
label = f"fitted: α = {fit.alpha:.2f}, f = {fit.f:.2f}"
axes.plot(b, fit.S(b, 4), label=label, **{**here, "marker": ""})
ceiling = (fit.f + 4) / fit.f
axes.axhline(ceiling, color=here["color"], linestyle="--", linewidth=0.8, label="its ceiling, (f − 1 + N)/f")
label = f"quoted: the paper's fit, α = {alpha}, f = {f}"
axes.plot(b, S(alpha, f, 5, b), label=label, **{**theirs, "marker": ""})
(row,) = [row for row in ABLATION if row[:4] == (5, 15, 15, False)]
label = "quoted: the paper's S for (5, 15, 15)"
axes.plot([15], [row[5]], label=label, **{**theirs, "linestyle": "none"})
axes.set_xscale("log")
axes.set_xticks(CURVE, CURVE)
axes.minorticks_off()
axes.set(xlabel="b = W = G, with N = 5", ylabel="S, tokens per step")
axes.legend(fontsize=8, loc="upper left")
axes.set_ylim(0.95, max(ceiling, S(alpha, f, 5, 40)) * 1.25)
alt = "S against log b: measured points, a fitted curve and its ceiling; the paper's fit, quoted."
quoted = [f"α = {alpha}, f = {f}, S = {row[5]} (arXiv:2402.02057, Figure 4, Table 3)"]
figures.save(fig, "07-curve", alt=alt, model=loaded, quoted=quoted)

# %% [markdown]
# There are two parameters, and five points from two short answers.
# The shape of the curve is worth looking at, the digits of $\alpha$ are not.
# One can trade $\alpha$ for $f$: rare good steps with better drafts look much like frequent ones with worse drafts.
# Is $S$ straight in $\log b$?
# Piece by piece:

# %%
for (w, _, low), (v, _, high) in zip(points, points[1:]):
    doublings = np.log2(v / w)
    by_fit = (fit.S(v, 4) - fit.S(w, 4)) / doublings
    print(f"from b = {w:2} to {v:2}: {(high - low) / doublings:+.2f} per doubling; the fit says {by_fit:+.2f}")
until = fit.alpha ** -4 if fit.alpha > 0 else float("inf")
print(f"By the fit the curve bends towards its ceiling, {ceiling:.2f}, from about b = {until:.0f} on.")
for depth, (accepted, tested) in enumerate(race.steps((5, 15, 15, False)).by_depth, start=1):
    print(f"W = G = 15, depth {depth}: a token accepted in {accepted} of the {tested} steps that got there")

# %% [markdown]
# Acceptance by depth is a check on the model behind the fit, which has one $\alpha$ for all depths.
# (At depth 1 it counts the steps with candidates, and those of them in which a candidate was right.)

# %% [markdown]
# ## The ablation
#
# What do the window, the candidates and the prompt contribute?
# The paper's Table 3 separates them (7B model, MT-Bench, A100).
# Here are its nine settings again: unscaled, for which only the steps matter here,
# and with $W$ and $G$ divided by 5, for a machine with less to spare.
# *Prompt* says whether the prompt's n-grams are pooled.
# *Clock* says how many times faster than ordinary decoding it is
# (from two short answers, so the stopwatch may be wrong by a tenth).
# The paper's columns are **quoted**.

# %%
def cells(shape):
    return [f"{compression(shape):.2f}", f"{clock(shape):.2f}"]


table = [
    ["none (ordinary)", "", "1.00", "1.00", *cells("autoregressive"), "", ""],
    ["prompt lookup", "yes", "1.55", "1.44", *cells("prompt lookup"), "", ""],
]
for *shape, speed, value in ABLATION:
    N, W, G, prompt_ngrams = shape
    row = [f"({N}, {W}, {G})", "yes" if prompt_ngrams else "no", f"{value:.2f}", f"{speed:.2f}"]
    table.append([*row, *cells(tuple(shape)), *cells(settings[("scaled", *shape)])])
columns = ["(N, W, G)", "prompt", "paper: S", "paper: clock", "here: S", "clock", "scaled: S", "clock"]
display(Markdown(markdown(table, columns)))

# %%
fig, axes = plt.subplots(figsize=(7.6, 4.6))
names = [f"({N}, {W}, {G})" + (", prompt" if p else "") for N, W, G, p, *_ in ABLATION]
place = np.arange(len(names))
small = [compression(settings[("scaled", *row[:4])]) for row in ABLATION]
sides = {"S here, unscaled": [compression(row[:4]) for row in ABLATION]}
sides[f"S here, W and G divided by {SCALE}"] = small
for i, (label, values) in enumerate(sides.items()):
    gained = [value - 1 for value in values]
    axes.barh(place + 0.4 * (i - 0.5), gained, left=1, height=0.36, label=label, **style.bar(i + 1))
theirs = {**style.QUOTED, "linestyle": "none"}
axes.plot([row[5] for row in ABLATION], place, label="S in the paper, quoted", **theirs)
lookup = compression("prompt lookup")
axes.axvline(lookup, color="black", linestyle="--", linewidth=1, label="prompt lookup here")
axes.set_yticks(place, names)
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set(xlabel="S, tokens per step; bars begin at ordinary decoding, 1", xlim=(0.97, None))
axes.legend(fontsize=8, loc="upper right")
alt = "Tokens per step for seven settings of (N, W, G), unscaled and scaled, beside the paper's, quoted."
quoted = ["S of the paper's Table 3 (arXiv:2402.02057; LLaMA-2-Chat-7B, MT-Bench, A100)"]
figures.save(fig, "07-ablation", alt=alt, model=loaded, quoted=quoted)

# %%
narrow, single = compression((5, 1, 30, False)), compression((5, 30, 1, False))
balanced = compression((5, 15, 15, False))
best = "the best" if balanced >= max(narrow, single) else "not the best"
print(f"30 candidates, but a window of one column: S = {narrow:.2f}; one n-gram per step feeds the pool.")
print(f"A window of 30 columns, but one candidate: S = {single:.2f}.")
print(f"15 of each: S = {balanced:.2f}, {best} of the three without the prompt.")
print(f"With the prompt's n-grams that becomes {compression((5, 15, 15, True)):.2f},", end=" ")
print(f"and the window of one column {compression((5, 1, 30, True)):.2f}.")

# %% [markdown]
# A window of one column with the prompt's n-grams depends on repetition alone, like prompt lookup.
# The wide window adds what the text has not said yet.
# Where answers repeat nothing, it is the only source of drafts.
#
# ## When it loses
#
# A step with $q$ rows must write $t(q)/t(1)$ tokens to be worth its time.
# $S$ grows with the logarithm of the rows; from the corner on, $t(q)$ grows in proportion to them (chapter 00).
# So wherever the corner is, **beyond it a larger window gains less than it costs**,
# and the best setting is near the corner.

# %%
from collections import Counter

costs = measure_costs(lm, widths=(1, 4, 8, 16, 24, 32, 48, 64, 96, 124), context=96, repeats=5)


def forwards(shape):
    """Rows of a forward -> how many forwards had as many, in all answers."""
    steps = race.steps(shape)
    return Counter(steps.hit_rows) + Counter(steps.miss_rows)


def predicted(shape):
    """Times faster if t(q) is the whole story."""
    seconds = sum(count * costs.t(q) for q, count in forwards(shape).items())
    return race.steps(shape).tokens * costs.t(1) / seconds


def mean_rows(shape):
    """Rows of a forward, the mean of all answers."""
    return np.mean([*forwards(shape).elements()])


# %%
rows_of = {w: mean_rows((5, w, w, False)) for w in CURVE}
gain = {w: clock((5, w, w, False)) for w in CURVE}
table = []
for w, q in rows_of.items():
    numbers = compression((5, w, w, False)), costs.break_even(q), predicted((5, w, w, False)), gain[w]
    table.append([str(w), f"{q:.1f}", *(f"{number:.2f}" for number in numbers)])
columns = ["W = G", "rows q", "S", "needed, t(q)/t(1)", "predicted", "measured, times faster"]
display(Markdown(markdown(table, columns)))

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.6))
x = [rows_of[w] for w in CURVE]
axes.plot(x, [compression((5, w, w, False)) for w in CURVE], label="steps: S", **style.line(1))
needed = [costs.break_even(q) for q in costs.widths]
axes.plot(costs.widths, needed, label="needed: t(q)/t(1)", **style.line(2))
axes.plot(x, list(gain.values()), label="clock: times faster, measured", **style.line(3))
for w, q in rows_of.items():
    look = {"textcoords": "offset points", "fontsize": 7, "ha": "center"}
    axes.annotate(f"W = {w}", (q, gain[w]), (0, -13), **look)
axes.axhline(1, color="black", linestyle="--", linewidth=1)
axes.set_xscale("log", base=2)
axes.set_xticks(costs.widths, costs.widths)
axes.set(xlabel="q, rows of a forward (mean of a run)", ylabel="tokens per step; times faster")
axes.set_ylim(0, 1.1 * max(needed))
axes.legend(fontsize=8, loc="upper left")
alt = "Against the rows of a forward: S, the tokens needed to break even, and the measured speed."
figures.save(fig, "07-clock", alt=alt, model=loaded)

# %%
best = max(CURVE, key=gain.get)
most = max(CURVE, key=lambda w: compression((5, w, w, False)))
S_most = compression((5, most, most, False))
print(f"Most tokens per step at W = G = {most}: S = {S_most:.2f}, on the clock {gain[most]:.2f}.")
print(f"Fastest at W = G = {best}: {gain[best]:.2f} times ordinary decoding.")
if gain[best] < 1:
    print("This machine is one of those on which lookahead decoding loses at every width tried.")
elif gain[most] < 1:
    print(f"What takes the fewest steps loses time on this machine; W = G = {best} gains a little.", end=" ")
    print("The scoreboards disagree on which is best.")
print(f"Per row, beyond the corner, t(q) rises by {(costs.t(124) - costs.t(64)) / 60 / costs.t(1):.3f} t(1).")

# %% [markdown]
# The paper itself reports smaller gains on an RTX 3090 than on an A100.
# (It also had to write the mask into FlashAttention, which otherwise knows the causal triangle only;
# that brought about 20 % more, *quoted*.
# An engine that accepts no mask but its own cannot run this method.)
# Large batches are the same case:
# a server that decodes many requests in one forward uses the rows that the window would need.
# With $B$ requests the forward has $qB$ rows,
# and the corner is reached $B$ times sooner (chapter 11 measures $t(q, B)$).
#
# ## Lookahead parallelism
#
# One way out is to use more machines.
# The columns of the window do not see each other, except for level 0; the candidates do not see each other at all.
# So each of several *ranks*, with a whole copy of the model, takes **some leaves of the tree and their ancestors**.
# During the forward no rank needs anything from the others.
# Afterwards they exchange each row's best token, and all verify the same tree.
# The price is that rows which several leaves need, the input token and level 0, are computed more than once.
# In the setting of the paper's Figure 3, four ranks, $W = 5$, $N = 4$, $G = 2$:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.model import shares


def share_out(tree, ranks):
    """Leaf after leaf, in four lines; the package also balances the rows that are new to a rank."""
    sees = tree.ancestors
    leaves = [i for i in range(len(tree.tokens)) if i not in set(tree.parents.tolist())]
    per_rank = np.array_split(leaves, ranks)
    return [np.flatnonzero(sees[own].any(axis=0)) for own in per_rank]


names = ["blue 0"] + [f"orange {i}" for i in range(1, 5)] + [f"green {i}" for i in range(1, 6)]
names += [f"red {i}" for i in range(2, 7)] + [f"candidate {g}.{d}" for g in (1, 2) for d in (1, 2, 3)]
for rank, own_rows in enumerate(shares(tree, 4)):
    print(f"rank {rank}, {len(own_rows)} rows:", ", ".join(names[row] for row in own_rows))
for name, divide in (("the package", shares), ("ours", share_out)):
    counts = [len(own_rows) for own_rows in divide(tree, 4)]
    print(f"{name}: {len(tree.tokens)} rows, {sum(counts)} computed, at most {max(counts)} on a rank")

# %% [markdown]
# What must be exchanged after a forward of 120 rows?
# For greedy decoding the best tokens are enough, at 8 bytes per row; for sampling, each row of logits must be sent.
# Keys and values are never sent:
# a rank that lacks some of the accepted tokens computes them again in front of its next share.

# %%
# NBVAL_CHECK_OUTPUT
rows_sent = theory.lookahead_step_tokens(15, 5, 15)
as_logits = rows_sent * lm.vocab_size * 4
print(f"best tokens: {rows_sent * 8} bytes per step; logits: {as_logits / 1e6:.1f} MB per step")

# %% [markdown]
# Now we run two ranks: two processes of `torch.distributed`, each with the model, on this machine.
# (On one machine they share its cores, so nothing gets faster;
# the run shows that the tokens are the same and the forwards narrower.)
# `numerics="invariant"` makes a token's bits independent of the other rows in the forward.

# %%
import dataclasses
import json
import os
import tempfile

SCRIPT = """
import json, sys
import torch.distributed as dist
from specdec_core import CachedLM, generate, load
from specdec_core.drafters import Lookahead
from specdec_core.model import Shape, ShardedLM

rank, folder = int(sys.argv[1]), sys.argv[2]
prompt, shape, padded = json.load(open(folder + "/job.json"))
dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
lm, widths = CachedLM(load("default"), numerics="invariant", shape=Shape(*padded)), []
inner, lm.forward = lm.forward, lambda *rest: widths.append(len(rest[0].tokens)) or inner(*rest)
answer = generate(ShardedLM(lm, exchange="argmax"), prompt, Lookahead(*shape), max_new_tokens=16)
json.dump([answer.tokens, widths], open(f"{folder}/{rank}.json", "w"))
dist.destroy_process_group()
"""

# %%
shape = (5, 4, 2)  # W, N, G
prompt = prompts["math-01"]
alone = generate(exact, prompt, Lookahead(*shape), max_new_tokens=16)
with tempfile.TemporaryDirectory() as folder:
    job = [prompt, shape, dataclasses.astuple(exact.shape)]
    (pathlib.Path(folder) / "job.json").write_text(json.dumps(job))
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT]
    ranks = [subprocess.Popen([*command, str(rank), folder], env=threads) for rank in range(2)]
    assert [process.wait() for process in ranks] == [0, 0]
    results = [json.loads((pathlib.Path(folder) / f"{rank}.json").read_text()) for rank in range(2)]
widths = [[len(done.tree.tokens) for done in alone.trace.steps], *(widths for _, widths in results)]
print("tokens of both ranks equal those of one:", all(tuple(tokens) == alone.tokens for tokens, _ in results))
for name, row in zip(("one rank", "rank 0 of 2", "rank 1 of 2"), widths):
    print(f"{name:11}: {len(row)} forwards, {np.mean(row):.1f} rows in the mean, at most {max(row)}")

# %% [markdown]
# The gain is bounded in two ways.
# Some rows cannot be shared out.
# And more ranks allow more columns in the same time per step, but $S$ grows only with their logarithm.
# If one machine runs all rows in about $t(1)$, a second one cannot shorten the step.
# (*Quoted:* up to 4 times ordinary decoding with several GPUs on code completion, says the abstract of the paper.)
#
# ## Pitfalls
#
# - **Positions are not row numbers.**
#   Row (level $j$, column $i$) has position $i + j$.
#   If rows get their row number as position, the window still "works", but with worse n-grams: only $S$ shows it.
# - **The input token belongs to level 0.**
#   If the last step's guess stays there, every n-gram of column 0 begins with a token that was not written.
# - **An n-gram of column 0 may be a hybrid:** its second token was made after the guess that the input token replaced.
#   It is checked like any other.
# - **A pool without a limit** grows with every step.
#   Keep the most recent $G$ for each first token.
# - **Committing window rows.**
#   Keys and values of the window and of failed candidates must leave the cache.
#   Only the accepted path stays.
# - **$S$ of a short answer is too low:** the first $N - 2$ steps fill the window.
#   **$S$ of a loop is too high** (chapter 05).
# - **The defaults of a paper belong to its machine.**
#   $W = 15$ is for an A100.
#   Measure $t(q)$, then choose.
#
# ## Summary
#
# - The window remembers $N - 1$ Jacobi rounds in $W$ columns.
#   A column with its new token is an n-gram;
#   the pool keeps it under its first token, and up to $G$ are checked where they fit.
#   All this takes one forward of $(W + G)(N - 1)$ rows.
# - The mask follows from one sentence: a row sees the text that it continues.
#   It is a tree.
# - It is lossless, because nothing of the window is written unchecked;
#   with sampling, because a draft is a point mass, for which ids suffice.
# - $E = (\gamma + 1) - \sum_i (1 - \alpha^i)^b$ and $S = (f - 1 + E)/f$:
#   linear in $\log b$ up to $b \approx \alpha^{-\gamma}$, never above $(f - 1 + N)/f$.
#   Steps are $1/S$, hence not linear in $\log b$.
# - Beyond the corner of $t(q)$ the time grows in proportion to the rows, the tokens only with their logarithm.
#   So the best window is a small one on a small machine, and none on a busy server.
# - Ranks can share the leaves of the tree, without communication during the forward, and agree on the same tokens.
#
# **Can you answer these?**
# Which positions does the green 3 of Figure 2(b) see?
# (Blue 0, orange 1 and 2, itself.)
# With $\alpha = 0.5$ and $N = 4$, beyond which $b$ does a larger window bring little?
# (A few times $0.5^{-3} = 8$: $E$ is 3.55 at 8 and 3.99 at 32, and never above 4.)
# A forward with 80 rows costs $2\,t(1)$ and $S = 1.7$: what would you change?
# (Fewer rows; at 1.7 it loses, and $S$ falls only with the logarithm.)
#
# ## Further reading
#
# - Y. Fu, P. Bailis, I. Stoica, H. Zhang, *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*,
#   ICML 2024, [arXiv:2402.02057](https://arxiv.org/abs/2402.02057); their code,
#   `lade`, is at [github.com/hao-ai-lab/LookaheadDecoding](https://github.com/hao-ai-lab/LookaheadDecoding),
#   where `LEVEL` is $N$, `WINDOW_SIZE` is $W$ and `GUESS_SET_SIZE` is $G$
# - A. Santilli and others, *Accelerating Transformer Inference for Translation via Parallel Decoding*,
#   ACL 2023, [arXiv:2305.10427](https://arxiv.org/abs/2305.10427)
# - Z. Chen and others, *Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding*,
#   2024, [arXiv:2402.12374](https://arxiv.org/abs/2402.12374): what several drafts can bring at most
# - X. Miao and others, *SpecInfer*, 2023, [arXiv:2305.09781](https://arxiv.org/abs/2305.09781):
#   candidates as a tree, and its mask
