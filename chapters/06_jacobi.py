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
# # 06 · Jacobi decoding
#
# > **The question of this chapter.**
# > The $m$ tokens of a greedy answer are the solution of $m$ equations.
# > Can we solve all of them at once, instead of one after the other, and why is so little gained by it?
#
# **Afterwards you can**
#
# - write greedy decoding as a triangular system of equations,
#   and tell its ways of solution apart: Gauss–Seidel, Jacobi, autoregression;
# - prove that Jacobi's way needs at most $m$ rounds, and that tokens which are right from the left on stay right;
# - read the heat map of a trajectory: tokens that are settled, right too early, lost again,
#   or right at the wrong place;
# - explain with two measured numbers why so little time is saved;
# - name exactly the 2-grams that are hidden between two rounds, from which chapter 07 makes a method that works.
#
# **Taken for granted:** chapter 00: one forward scores many tokens,
# τ counts the tokens per forward, $t(q)$ is the time of a forward with $q$ rows.
# One section on sampling uses chapter 01.
# No numerical mathematics is needed.
#
# **Time:** 25 minutes of reading; the cells take about a minute on two CPU cores.

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
lm, tokenizer = CachedLM(loaded), loaded.tokenizer
print(loaded.why)

# %% [markdown]
# ## An answer is the solution of m equations
#
# Let $x$ be the prompt.
# The greedy answer $y_1 \dots y_m$ is defined by
#
# $$y_i = \arg\max_y\, p(y \mid x,\, y_1 \dots y_{i-1}), \qquad i = 1 \dots m.$$
#
# One can read this as a recipe: compute $y_1$, then $y_2$, and so on.
# One can also read it as a **system of $m$ equations in $m$ unknowns**.
# Write $F_i(y) = \arg\max p(\cdot \mid x, y_1 \dots y_{i-1})$.
# Then we look for a $y$ with $y = F(y)$, a *fixed point* of $F$.
# The system is nonlinear (there is a whole language model in $F$),
# and it is **triangular**: $F_i$ depends only on unknowns with a smaller number.
# The first equation has no unknown on its right-hand side.
#
# **There is exactly one solution.**
# The first equation gives $y_1$.
# With it the second gives $y_2$, and so on: there is never a choice.
# (Ties of the argmax are broken in one fixed way.)
# So *any* fixed point, found by any means, is the greedy answer.
#
# Two ways of solving such systems come from the nineteenth century.
# Both start from a guess $y^0$ and improve it:
#
# | | update of $y_i$ | forwards for one sweep |
# |:--|:--|:--|
# | **Gauss–Seidel** | one after the other, each with the *newest* values of the others | $m$, one after the other |
# | **Jacobi** | all unknowns at once, with the values of the *last round*: $y^{t+1} = F(y^t)$ | 1 |
#
# For a triangular system the first sweep of Gauss–Seidel is already the solution:
# by the time $y_i$ is updated, everything it depends on is final.
# That sweep *is* autoregressive decoding.
# One sweep of Jacobi is called a *round*.
# It suits our machine: all $F_i$ come from a single forward,
# since the forward over $x, y_1 \dots y_{m-1}$ scores every place.

# %%
from specdec_core import DraftTree


def jacobi_round(lm, last, y):
    """F(y): at each place the target's choice after the last round's tokens left of it. One forward.

    ``lm`` has read the prompt up to its last token, ``last``. Nothing is kept of the forward.
    """
    rows = DraftTree.chain(last, y[:-1])  # the prompt's last token, y_1 ... y_{m-1}: m rows
    return lm.forward(rows).logits.argmax(-1).tolist()


def solve(lm, prompt, y):
    """All rounds of Jacobi's iteration from the guess y, up to the first that changes nothing."""
    lm.prefill(prompt[:-1], reserve=len(y))
    rounds = [list(y)]
    while (y := jacobi_round(lm, prompt[-1], rounds[-1])) != rounds[-1]:
        rounds.append(y)
    return rounds


# %% [markdown]
# **By hand.**
# Take a "model" that looks at the last word only, and always knows what comes next:
#
# | after | . | the | cat | sat | on | a | dog | ran |
# |:--|:--|:--|:--|:--|:--|:--|:--|:--|
# | it says | the | cat | sat | on | a | . | ran | . |
#
# The prompt is ".", and we want five words.
# The answer is *the cat sat on a*.
# Let the guess be *dog cat dog on dog*; two of its words are right, by luck.
# Each word of a round is what the table says after the word **one row up and one column to the left**
# (the first: after the prompt):
#
# | round | 1 | 2 | 3 | 4 | 5 | right from the left |
# |:--|:--|:--|:--|:--|:--|:--|
# | 0 | dog | **cat** | dog | **on** | dog | 0 |
# | 1 | **the** | ran | **sat** | ran | **a** | 1 |
# | 2 | **the** | **cat** | . | **on** | . | 2 |
# | 3 | **the** | **cat** | **sat** | the | **a** | 3 |
# | 4 | **the** | **cat** | **sat** | **on** | cat | 4 |
# | 5 | **the** | **cat** | **sat** | **on** | **a** | 5 |
#
# Words in bold are right.
# In round 1 three of five are, and in round 2 two of those three are wrong again:
# *sat* was right at place 3 by luck, but *ran* stood to its left, and after *ran* the table says something else.
# Only words that are right **from the left on** stay.
# All five rounds were needed, as many as autoregression has steps.
# (`solve` runs one round more, to see that nothing changes.)
# The same by the two functions:

# %%
# NBVAL_CHECK_OUTPUT
import numpy as np
from specdec_core import TableLM

follower = {".": "the", "the": "cat", "cat": "sat", "sat": "on", "on": "a", "a": ".", "dog": "ran", "ran": "."}
WORDS = list(follower)
toy = TableLM(np.eye(len(WORDS))[[WORDS.index(word) for word in follower.values()]])


def ids(text):
    return [WORDS.index(word) for word in text.split()]


toy_rounds = solve(toy, ids("."), ids("dog cat dog on dog"))
for t, y in enumerate(toy_rounds):
    print(t, " ".join(f"{WORDS[token]:4}" for token in y))

# %% [markdown]
# And the same from the package, where Jacobi decoding is a drafter like any other:
# the last round is the draft, and the forward that checks it is the next round.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import generate
from specdec_core.drafters import Jacobi, NullDrafter

drafter = Jacobi(m=5, init=ids("dog cat dog on dog"))
answer = generate(toy, ids("."), drafter, max_new_tokens=5)
for t, done in enumerate(drafter.trajectory):
    settled = answer.tokens[: done.context_length - 1]
    same = [*settled, *done.guess][:5] == toy_rounds[t]
    guess = " ".join(WORDS[token] for token in done.guess)
    print(f"round {t}: {len(settled)} written, then the guess ({guess}); as ours: {same}")

# %% [markdown]
# It does two things more.
# Places that are written leave the guess on the left and fresh ones enter on the right,
# so that the guess is always $m$ tokens long.
# On the first $m$ places that changes nothing, because no place depends on those to its right.
# And the last guessed token goes into the forward as well,
# $m + 1$ rows instead of $m$, to get the token after a guess that is right as a whole.
#
# ## At most m rounds
#
# Let $k_t$ be the number of tokens of $y^t$ that are right from the left on, the **settled** ones.
#
# > **Theorem.**
# > $k_{t+1} \ge \min(k_t + 1,\, m)$.
# > So at least $t$ tokens are settled after $t$ rounds, all of them after $m$ rounds,
# > and a settled token never changes again.
#
# *Proof.*
# Let $y^*$ be the solution.
# For $i \le k_t + 1$ the tokens left of place $i$ in round $t$ are $y^*_1 \dots y^*_{i-1}$,
# so $y^{t+1}_i = F_i(y^t) = F_i(y^*) = y^*_i$.
# Hence the first $k_t + 1$ tokens of round $t + 1$ are right.
# Start with $k_0 \ge 0$ and count.
# $\blacksquare$
#
# The theorem promises one token per round, as many as autoregression has per step.
# Jacobi never needs more rounds than autoregression needs steps.
# It needs fewer only if place $k_t + 2$, or more of them, came out right by luck.
#
# **How does the decoder know $k_t$?**
# It does not know $y^*$.
# But compare two rounds.
# As long as $y^{t+1}_i = y^t_i$ from the left on, these tokens reproduced themselves after a right prefix.
# So they are right, and so is the one after them, which was computed from them: these tokens are **confirmed**.
# That is the check of a draft, token by token, as in chapter 00:
# **Jacobi decoding is speculative decoding whose draft is its own last round**.
# $k$ tokens are accepted, and one more is added.

# %%
# NBVAL_CHECK_OUTPUT
def right_from_left(y, answer):
    """k: the settled tokens of a round."""
    return next((i for i, (a, b) in enumerate(zip(y, answer)) if a != b), len(answer))


def all_settle(lm, prompt, m, rng):
    """The theorem, checked on one trajectory from a random guess."""
    rounds = solve(lm, prompt, rng.integers(lm.vocab_size, size=m).tolist())
    k = [right_from_left(y, rounds[-1]) for y in rounds]
    plain = list(generate(lm, prompt, NullDrafter(), max_new_tokens=m).tokens)
    return rounds[-1] == plain and len(rounds) - 1 <= m and all(b >= min(a + 1, m) for a, b in zip(k, k[1:]))


rng = np.random.default_rng(0)
held = [all_settle(TableLM.random(6, order=2, seed=s), [0, 1], m, rng) for s in range(100) for m in (1, 3, 8)]
print(f"the theorem held on {sum(held)} of {len(held)} trajectories")

# %% [markdown]
# > **The notes say …** (*model-free chapter*, section 5.2) that later rounds overwrite tokens
# > which were already at their right place, and (*lookahead article*) that right tokens do not stay in the sequence.
# > This is true in part.
# > **A settled token is never overwritten**: that is the theorem, and the reason why the iteration ends.
# > Only tokens that were right *beyond* the first error can be overwritten,
# > because the tokens to their left were wrong: *sat* in round 1 above.
#
# ## One real trajectory
#
# Now the model.
# The prompt asks for the alphabet, $m = 16$, and the guess is drawn from the tokens of the prompt.
# What happens beyond the settled tokens differs from guess to guess, and even with the rounding of a machine.
# So we try six guesses and show the one whose rounds have the most pieces of the answer at other places.
# (A token counts as in a *piece* if it and a neighbor follow one another somewhere in the answer too.)
# Play the rounds, or (without a kernel) read all of them from the top down.

# %%
from specdec_core.viz import figures, jacobi

M = 16


def random_guess(prompt, m, seed=0):
    """m tokens of the prompt, drawn at random: the usual first guess."""
    return [prompt[i] for i in np.random.default_rng(seed).integers(len(prompt), size=m)]


def word(token):
    return tokenizer.decode([token])


alphabet = tokenizer.encode("The letters of the alphabet are A, B, C, D,")
tried = [solve(lm, alphabet, random_guess(alphabet, M, seed)) for seed in range(6)]
pieces = [sum(row.count("misplaced") for row in jacobi.kinds(found, found[-1])[1:]) for found in tried]
rounds = tried[int(np.argmax(pieces))]
answer = rounds[-1]
print(f"{M} tokens in {', '.join(str(len(found) - 1) for found in tried)} rounds; shown: guess {1 + np.argmax(pieces)}")
print("tokens in displaced pieces:", pieces)
print(f"the answer: {tokenizer.decode(answer)!r}")

# %%
jacobi.player(rounds, answer, word)

# %%
fig = jacobi.draw(rounds, answer, word)
alt = "Heat map of a Jacobi trajectory, one row per round, one column per place: the settled part is a staircase."
figures.save(fig, "06-trajectory", alt=alt, model=loaded)

# %% [markdown]
# The settled region is a staircase, mostly one place per round.
# The rounds that each guess took are printed above; autoregression takes 16 steps.
# The rest of a row is not all noise, and that is the point of this chapter:

# %%
marked = jacobi.kinds(rounds, answer)
k = [right_from_left(y, answer) for y in rounds]
count = {kind: sum(row.count(kind) for row in marked[1:]) for kind in jacobi.LOOKS}
beyond = sum(count.values()) - count["settled"]
print("settled after each round:", k)
print(f"Of the {beyond} cells beyond the settled ones, in rounds 1 to {len(rounds) - 1}:")
ahead = count["early"] + count["lost"]
print(f"  {ahead:3} are right ahead of their turn; {count['lost']} of these are wrong again one round later")
print(f"  {count['misplaced']:3} belong to a piece of the answer that stands at another place")
print(f"  {count['wrong']:3} are neither")

# %% [markdown]
# The model knows pieces of its answer early: tokens follow one another as in the answer, long before their turn.
# But a piece that is one place too far to the left
# or the right is worth nothing to an iteration that compares place by place.
# Worse, it stays displaced.
# Each of its tokens is computed from the displaced one to its left,
# so the piece reproduces itself, at the wrong place, until the staircase arrives and it has to begin again.
# In the toy model:

# %%
# NBVAL_CHECK_OUTPUT
for t, y in enumerate(solve(toy, ids("."), ids("cat sat on a ."))):  # the answer, one place too far left
    print(t, " ".join(f"{WORDS[token]:4}" for token in y))

# %% [markdown]
# Four of the five guessed words belong to the answer and are in order, and the answer still takes five rounds.
#
# ## How much does it bring?
#
# The theorem promises one token per round.
# A round brings $1 + d$ tokens if exactly $d$ further places happen to come out right.
# Let $A_d$ be the probability that $d$ or more do.
# Then
#
# $$\tau = 1 + A_1 + A_2 + \dots, \qquad\text{since } E[D] = \sum_{d \ge 1} P(D \ge d).$$
#
# We take trajectories on four prompts of different kinds.
# Of every token beyond the first wrong one we ask: is it right, and in its place?
# If not, does it belong to a piece of the answer?

# %%
from specdec_core.race import own

wanted = ("edit_code-01", "math-01", "chat-02", "write-02")
questions = {question.id: question for question in own() if question.id in wanted}
prompts = {name: loaded.encode(questions[name].turns[0]) for name in wanted}
trajectories = {name: solve(lm, prompt, random_guess(prompt, M)) for name, prompt in prompts.items()}
for name, found in trajectories.items():
    print(f"{name:12} {M} tokens in {len(found) - 1} rounds: {tokenizer.decode(found[-1])!r}")

# %%
NEAR = 8  # places beyond the first wrong token that are looked at
in_place, elsewhere, seen, jumps = np.zeros(NEAR), np.zeros(NEAR), np.zeros(NEAR), []
for found in trajectories.values():
    rows = jacobi.kinds(found, found[-1])
    settled = [row.count("settled") for row in rows]
    jumps += [b - a - 1 for a, b in zip(settled, settled[1:])]
    for row, done in zip(rows[1:-1], settled[1:-1]):
        for place, kind in enumerate(row[done + 1 :][:NEAR]):
            seen[place] += 1
            in_place[place] += kind in ("early", "lost")
            elsewhere[place] += kind == "misplaced"
run = [np.mean([jump >= d for jump in jumps]) for d in (1, 2, 3)]
terms = " + ".join(f"{share:.3f}" for share in run)
print(f"tokens per round: {1 + np.mean(jumps):.3f} = 1 + {terms} + …")

# %%
import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(7.6, 3.4))
bars = {"right, in its place": in_place / seen, "a piece of the answer, elsewhere": elsewhere / seen}
for i, (label, heights) in enumerate(bars.items()):
    axes.bar(np.arange(1, NEAR + 1) + 0.38 * (i - 0.5), heights, width=0.36, label=label, **style.bar(i + 1))
label = "$A_1$: share of rounds that settle a second token"
axes.axhline(run[0], color="black", linestyle="--", linewidth=1, label=label)
axes.set_xticks(range(1, NEAR + 1))
axes.set(xlabel="places beyond the first wrong token", ylabel="share of rounds")
axes.set_ylim(0, 1.1 * max(run[0], *(max(heights) for heights in bars.values())))
axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
alt = "Share of rounds by distance beyond the first wrong token: right in place, or in a displaced piece."
figures.save(fig, "06-distance", alt=alt, model=loaded)

# %%
here, there = in_place.sum() / seen.sum(), elsewhere.sum() / seen.sum()
print(f"Of {seen.sum():.0f} tokens up to {NEAR} places beyond the first wrong one", end=" ")
print(f"{here:.0%} are right in their place, {there:.0%} in a piece of the answer elsewhere.")
print(f"What counts is a second token in one round: {run[0]:.0%} of the rounds.")

# %% [markdown]
# *Bars: tokens after a wrong one, which the iteration cannot use.
# Dashed: those it can use.*
# A token counts only if nothing to its left is wrong.
# The next one that could count was computed from a context whose last token was wrong,
# and then a model is seldom right at exactly this place.
# What it knows appears somewhere else.
#
# ## And the clock?
#
# Counted in rounds, Jacobi never loses.
# But a round is a forward with $m + 1$ rows, which pays only if
#
# $$\tau > \frac{t(m+1)}{t(1)}.$$
#
# A larger $m$ gives more places a chance to be right early, but it also costs more.
# All methods answer the same prompts in turn, beside ordinary decoding.

# %%
from IPython.display import Markdown, display
from specdec_core import compare
from specdec_core.measure import agreement, measure_costs
from specdec_core.race import markdown

SIZES, LENGTH = (1, 2, 4, 8, 16, 32), 32
methods = {m: f"jacobi:m={m}" for m in SIZES} | {"repeat": "jacobi:m=8,init=repeat"}
race = compare(lm, list(prompts.values()), methods, max_new_tokens=LENGTH, repeats=1)
costs = measure_costs(lm, widths=[1, *(m + 1 for m in SIZES)], context=160, repeats=9)

# %%
steps = {m: race.row(m).tokens_per_call for m in SIZES}  # τ, all prompts together
clock = {m: race.row(m).decode_speedup for m in SIZES}  # times faster than ordinary decoding
predicted = {m: steps[m] / costs.break_even(m + 1) for m in SIZES}
rows = []
for m in SIZES:
    depths = ", ".join(f"{share:.2f}" for share in race.steps(m).alphas[:2])
    values = steps[m], costs.break_even(m + 1), predicted[m], clock[m]
    rows.append([str(m), depths, *(f"{value:.2f}" for value in values)])
names = ["m", "accepted at depth 1, 2", "τ", "needed, t(m + 1)/t(1)", "predicted", "measured, times faster"]
display(Markdown(markdown(rows, names)))

# %%
print(agreement(lm, race.pairs()))

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.6))
axes.plot(SIZES, [steps[m] for m in SIZES], label="steps: τ, tokens per round", **style.line(1))
needed = [costs.break_even(m + 1) for m in SIZES]
axes.plot(SIZES, needed, label="needed to break even: t(m + 1)/t(1)", **style.line(2))
axes.plot(SIZES, [clock[m] for m in SIZES], label="clock: times faster, measured", **style.line(3))
axes.axhline(1, color="black", linestyle="--", linewidth=1)
axes.set_xscale("log", base=2)
axes.set_xticks(SIZES, SIZES)
axes.set(xlabel="m, length of the guess", ylabel="tokens per round; times", ylim=(0, None))
axes.legend()
alt = "Against m: tokens per round, little above one; what a forward costs, rising; the measured speed."
figures.save(fig, "06-clock", alt=alt, model=loaded)

# %%
best_steps, best_clock = max(SIZES, key=steps.get), max(SIZES, key=clock.get)
losing = [m for m in SIZES if clock[m] < 0.98 and steps[m] > 1]
lucky = [m for m in SIZES if clock[m] > 1.02 * steps[m]]
print(f"Most tokens per round: {steps[best_steps]:.2f}, at m = {best_steps}.", end=" ")
print(f"Best on the clock: {clock[best_clock]:.2f} times, at m = {best_clock}.")
if steps[best_steps] > 1:
    share = (steps[1] - 1) / (steps[best_steps] - 1)
    print(f"A guess of one token has {share:.0%} of the largest gain in τ.")
if losing:
    print(f"The scoreboards disagree at m = {', '.join(map(str, losing))}: fewer forwards, yet more time.")
if lucky:
    print(f"At m = {', '.join(map(str, lucky))} the clock gains more than the steps.", end=" ")
    print("More rows make no forward faster: that is the error of the stopwatch.")

# %% [markdown]
# Does a better guess help?
# Only in the first rounds; the guess is soon replaced by what the model made of it.
# The exception is a guess that is right from the left on:
# if $y^0$ is what prompt lookup (chapter 05) would have drafted, the first round is a step of prompt lookup.
# After that, the initialization only decides the fresh tokens on the right:

# %%
print(f"m = 8, fresh places filled with random tokens of the prompt: τ = {steps[8]:.3f};", end=" ")
print(f"with the last token repeated: τ = {race.row('repeat').tokens_per_call:.3f}")

# %% [markdown]
# A *trained* model can do better.
# Consistency training (CLLM, in the reading list) shows a model its own Jacobi trajectories
# and teaches it to jump from any of their rounds to the end, so that the staircase gains several places per round.
# But this method needs training, and the model is a different one afterwards.
#
# ## With sampling
#
# At $T > 0$ there are no equations with one solution.
# But the decoder still works, because it is speculative decoding:
# the last round is one fixed chain of tokens, a point-mass draft, and sample-then-match (chapter 01) is exact for it.
# The package still guesses by argmax and lets the verification sample.
# We compare the exact distribution (the *law*) of four tokens with that of ordinary sampling,
# for a model with three tokens:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Sampling, enumerate_law, total_variation

three = TableLM(np.log([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.6, 0.3, 0.1]]))


def law(drafter):
    """Answer -> its probability."""
    options = {"max_new_tokens": 4, "sampling": Sampling(temperature=1.0)}
    return enumerate_law(lambda rng: generate(three, [0, 1], drafter, rngs=(rng, rng), **options).tokens)


plain, drafted = law(NullDrafter()), law(Jacobi(3, init="repeat"))
same = total_variation(plain, drafted) < 1e-12
print(f"{len(plain)} possible answers; distance of the two laws below 1e-12: {same}")

# %% [markdown]
# ## The 2-gram hidden between two rounds
#
# The rounds are thrown away, although the heat map shows that they are full of pieces of the answer.
# How can one collect pieces *regardless of their place*?
# Look at what one round tells us.
# Token $y^{t+1}_i$ is the model's choice after $x, y^t_1 \dots y^t_{i-1}$.
# The last token it has seen is $y^t_{i-1}$.
# So
#
# $$\big(\,y^{t}_{i-1},\; y^{t+1}_i\,\big), \qquad i = 1 \dots m, \quad y^t_0 = \text{the last token of the prompt},$$
#
# is a pair whose second token the model chose after the first:
# **one token of round $t$, and the token of round $t + 1$ one place to its right.**
# In the heat map: down one row and right one column.
# Two neighbors in the *same* round are not such a pair.
# They were computed at the same time; neither depended on the other.

# %%
# NBVAL_CHECK_OUTPUT
def hidden_pairs(last, before, after):
    """The 2-grams between two rounds: y_{i-1} of the first with y_i of the second."""
    return list(zip([last, *before], after))


def same_round_pairs(y):
    """Neighbors of one round. Not 2-grams of the model: for comparison only."""
    return list(zip(y, y[1:]))


def in_words(pairs):
    return " ".join(f"({WORDS[a]} {WORDS[b]})" for a, b in pairs)


(dot,), first = ids("."), ids("dog cat dog on dog")
second = jacobi_round(toy, dot, first)
hidden = hidden_pairs(dot, first, second)
print("between the rounds:", in_words(hidden))
print("within the second: ", in_words(same_round_pairs(second)))
assert all(follower[WORDS[a]] == WORDS[b] for a, b in hidden)

# %% [markdown]
# Every pair of the first line is in the table of the toy model.
# No pair of the second line is: this model never says *ran* after *the*, nor *sat* after *ran*.
#
# The package's drafter keeps what is needed: in each `Round`, `guess[d - 1]` and `argmax[d]` are such a pair.
# Now the notes' own example.

# %%
# NBVAL_CHECK_OUTPUT
sat, on, the, mat, a, rug = range(6)
names = ["sat", "on", "the", "mat", "a", "rug"]


def pairs_of_example(after_the):
    """Prefix "The cat sat", guess (on, a, rug); a model that says `after_the` after "the"."""
    table = np.zeros((6, 6))
    for before, after in [(sat, on), (on, the), (a, mat), (rug, on), (the, after_the), (mat, on)]:
        table[before, after] = 1.0
    example = Jacobi(3, init=[on, a, rug])
    generate(TableLM(table), [sat], example, max_new_tokens=1)
    (round_0,) = example.trajectory
    return round_0.argmax[:3], hidden_pairs(sat, round_0.guess, round_0.argmax[:3])


for after_the in (mat, rug):
    y1, found = pairs_of_example(after_the)
    said = " ".join(f"({names[b]} {names[c]})" for b, c in found)
    print(f'after "the" comes {names[after_the]}: y¹ = {[names[i] for i in y1]}, pairs {said}')

# %% [markdown]
# > **The notes say …** (*model-free chapter*, section 9) that the step from $y^0$ =
# > (on, a, rug) to $y^1$ = (on, the, mat) after "sat" yields the n-grams (on, the), (the, mat) and (on, the, mat).
# > The pairs between these rounds are **(sat, on), (on, the), (a, mat)**.
# > Of the notes' three n-grams only (on, the) is one. *the* and *mat* both belong to round 1:
# > *mat* was chosen after *a*, which stood there in round 0, and nobody has asked the model what follows *the*.
# > The cell above shows that the pair cannot be known:
# > two models that differ only in what follows *the* give the same two rounds and the same pairs.
# > And a 3-gram takes three rounds.
# > (In its second step the note still takes "sat" for the last token and finds nothing in the pool that begins with it.
# > But (sat, on) does.
# > And the last token is *the* by then: the guess began with *on*, which is right, so the round confirmed two tokens.)
#
# > **The notes say …** (*lookahead article*,
# > second observation) that between two adjacent rounds the suffix of the earlier is the prefix of the later.
# > In general they share no tokens: compare rounds 0 and 1 of the toy model.
# > What holds is that each token of the later round *continues* the earlier round's tokens to its left.
# > (The article's example, *Paris* of round 1 at place 1 and the comma of round 2 at place 2, is a true pair;
# > but its tokens are at two neighboring places, not at the same one.)
#
# On the real model, are these pairs better than neighbors of the same round?
# We count how many of each kind occur in what the model really writes: its answer of 64 tokens to the same prompt.
# Settled tokens are left out, since they are the answer.

# %%
def shares(found, last, text):
    """Share of the pairs, settled tokens left out, that occur in the text: between two rounds, within one."""
    true, between, within = set(zip(text, text[1:])), [], []
    for before, after in zip(found, found[1:]):
        done = right_from_left(after, found[-1])
        between += hidden_pairs(last, before, after)[done + 1 :]
        within += same_round_pairs(after)[done:]
    return [np.mean([pair in true for pair in pairs]) for pairs in (between, within)]


found_pairs = {}
for name, prompt in prompts.items():
    text = generate(lm, prompt, Jacobi(4), max_new_tokens=64, stop=loaded.stop).tokens
    found_pairs[name] = shares(trajectories[name], prompt[-1], text)

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.0))
for i, label in enumerate(("pairs between two rounds", "neighbors of the same round")):
    places = [row + 0.36 * (i - 0.5) for row in range(len(found_pairs))]
    lengths = [both[i] for both in found_pairs.values()]
    axes.barh(places, lengths, height=0.34, label=label, **style.bar(i + 1))
axes.set_yticks(range(len(found_pairs)), list(found_pairs))
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set(xlabel="share that occurs in the answer of 64 tokens", xlim=(0, None))
axes.legend(loc="best")
alt = "For four prompts: the share of pairs between two rounds, and of neighbors in one, found in the answer."
figures.save(fig, "06-pairs", alt=alt, model=loaded)

# %%
between, within = (np.mean([both[i] for both in found_pairs.values()]) for i in (0, 1))
verdict = "better than" if between > within else "no better than"
print(f"On average {between:.0%} of the pairs between two rounds occur in the answer,", end=" ")
print(f"{within:.0%} of the neighbors in one: they are {verdict} neighbors here.")

# %% [markdown]
# Where the context is wrong further left, pairs are guesses, not facts, and must be checked before use.
# But they come for free, $m$ of them per forward.
# They need no second model and no text to copy from, and they do not depend on places.
# If more than two rounds are remembered, they become longer n-grams.
# That is the next chapter.
#
# ## Pitfalls
#
# - **The fixed point is what counts, not the guess.**
#   The answer is the greedy one whatever the guess.
#   A test that only compares texts will not notice a broken iteration, so count rounds as well.
# - **Comparing with the wrong round.**
#   $y^{t+1}_i$ confirms $y^t_i$ only if everything to its left was confirmed.
#   To count all equal tokens is to count luck.
# - **A round has $m$ or $m + 1$ rows**, depending on whether the last guess goes in.
#   It gives the token after a guess that is right as a whole.
# - **Pairs within a round.**
#   They look like 2-grams of the model but are not.
# - **"Never worse" is about rounds.**
#   On the clock every row beyond the flat part of $t(q)$ is paid for.
# - **Rounding.**
#   A forward with $m + 1$ rows may round differently from one with a single row;
#   at a near tie the answers diverge (chapter 12).
#
# ## Summary
#
# - Greedy decoding is a triangular system $y = F(y)$ with one solution.
#   One Gauss–Seidel sweep is autoregression; a Jacobi round is one forward over the whole guess.
# - $k_{t+1} \ge k_t + 1$ until all is settled: at most $m$ rounds, and settled tokens stay.
#   The proof is one line: the next place sees the right prefix.
# - Jacobi decoding is speculative decoding with its own last round as the draft, lossless at every temperature.
# - Beyond the first wrong token, pieces of the answer are common but useless:
#   they stand at the wrong place, or are lost again because a token to their left was wrong.
#   So τ is hardly above 1, and $t(m+1)/t(1)$ uses up the gain.
# - The 2-grams hidden between two rounds are $(y^t_{i-1}, y^{t+1}_i)$, and only these.
#
# **Can you answer these?**
# A guess of eight tokens has its first error at place 3.
# How many tokens are settled after the round, at least?
# (Three: two were right, and place 3 now has a right prefix.)
# Can $y^{t+1} = y^t$ happen at a wrong answer?
# (No: that is a fixed point, and there is only one.)
# What is the 3-gram hidden in three rounds?
# ($y^{t}_{i-2}, y^{t+1}_{i-1}, y^{t+2}_{i}$: a diagonal;
# whether its last token was computed from its first, and from which tokens to its left, is a question for chapter 07.)
#
# ## Further reading
#
# - A. Santilli and others, *Accelerating Transformer Inference for Translation via Parallel Decoding*,
#   ACL 2023, [arXiv:2305.10427](https://arxiv.org/abs/2305.10427): Jacobi and Gauss–Seidel for decoding
# - Y. Song and others, *Accelerating Feedforward Computation via Parallel Nonlinear Equation Solving*,
#   ICML 2021, [arXiv:2002.03629](https://arxiv.org/abs/2002.03629): the same idea for layers and other sequences
# - Y. Fu and others, *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*, ICML 2024,
#   [arXiv:2402.02057](https://arxiv.org/abs/2402.02057): Algorithm 1 is Jacobi decoding; the observation about 2-grams
# - S. Kou and others, *CLLMs: Consistency Large Language Models*,
#   ICML 2024, [arXiv:2403.00835](https://arxiv.org/abs/2403.00835): a model trained on its Jacobi trajectories
# - J. Ortega, W. Rheinboldt, *Iterative Solution of Nonlinear Equations in Several Variables*, Academic Press, 1970
