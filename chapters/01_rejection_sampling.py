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
# # 01 · Rejection sampling
#
# > **The question of this chapter.**
# > A draft token was drawn from the wrong distribution.
# > How can we keep it most of the time, and still emit exactly what the target would have emitted?
#
# **Afterwards you can**
#
# - state the accept rule, and derive the distribution of the correction both ways:
#   backwards from the goal, forwards as in the paper;
# - compute *exactly* the distribution of what a decoder emits, so that "lossless" is a number,
#   and read off what each classic mistake costs;
# - say which distributions are compared once temperature, top-k and top-p are used,
#   and what becomes of the rule at $T = 0$;
# - choose the rule that belongs to a draft: drawn, fixed, or several siblings at once;
# - say what an API must return before a draft can be checked through it.
#
# **Taken for granted:** chapter 00, and probabilities that add up to one.
# Nothing about rejection sampling.
#
# **Time:** 40 minutes of reading; the cells take about a minute on two CPU cores.
# Only the last three sections use a model.

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
from specdec_core.race import markdown
from specdec_core.viz import figures, style

style.use()

# %% [markdown]
# ## Two laws over the same words
#
# In chapter 00 the target took its best token each time, and checking was simple: is the drafted token the best one?
# Mostly, though, a model does not take its best token.
# It turns its scores, the *logits* $z$, into a *distribution* $p(x) = e^{z_x} / \sum_y e^{z_y}$ (the *softmax*),
# which gives each token $x$ a probability, and *draws* a token from it.
# Then there is no right token to compare with.
# (A distribution is also called a **law**: the shorter word, and this book uses both.)
#
# The draft has a law of its own, $q$, and has drawn a token from it.
# In this chapter the vocabulary has four words, so that everything can be done by hand:
#
# | | cat | dog | fish | owl |
# |:--|:--|:--|:--|:--|
# | $p$, target | 5/10 | 3/10 | 1/10 | 1/10 |
# | $q$, draft | 2/10 | 2/10 | 2/10 | 4/10 |
#
# Two simple ideas fail in opposite ways.
# *Keep every draft:* then what we emit follows $q$, which is not what we were asked for.
# *Draw a token from $p$, and keep the draft if it is the same:*
# then what we emit is right, since it is the draw from $p$ either way.
# But a draft is kept only with probability $\sum_x p(x)\,q(x)$, here 0.22.
# Even a perfect draft, $q = p$, would be thrown away most of the time.
#
# ## How much can be kept?
#
# Suppose we keep a draft $x$ with probability $a(x)$.
# The token $x$ is then drafted *and* kept with probability $q(x)\,a(x)$.
# If in the end we are to emit $x$ with probability $p(x)$, that must not be too much already:
#
# $$q(x)\,a(x) \le p(x) \quad\text{and}\quad a(x) \le 1,
# \qquad\text{so}\qquad a(x) \le \min\Big(1, \frac{p(x)}{q(x)}\Big).$$
#
# The **accept rule** of speculative sampling takes all that is allowed: $a(x) = \min(1, p(x)/q(x))$.
# A token that the target likes at least as well as the draft did is always kept.
# One that the draft drew too often is kept in proportion.
# What is kept of $x$ is $q(x)\,a(x) = \min(q(x), p(x))$, and in total
#
# $$\beta = \sum_x \min\big(p(x), q(x)\big),$$
#
# the probability that a draft is accepted.
# No rule that emits $p$ keeps more.
# For our words $\beta = (2 + 2 + 1 + 1)/10 = 6/10$.
#
# ## The residual, backwards
#
# With probability $1 - \beta$ the draft is rejected, and we draw a **correction** from another law, $r$.
# Which law?
# We need not guess: we demand that the result be right, and solve for $r$.
# (We assume that $r$ does not depend on which token was rejected.
# If a solution exists, the assumption was allowed.)
#
# A token $y$ can be emitted in two ways.
# It was drafted and accepted, with probability $\min(q(y), p(y))$.
# Or some $x$ was drafted and rejected, and then $y$ was drawn from $r$:
#
# $$\sum_x q(x)\big(1 - a(x)\big)\; r(y) = \Big[\sum_x \big(q(x) - \min(q(x), p(x))\big)\Big]\, r(y).$$
#
# The two together must be $p(y)$.
# There is one unknown, and the equation is linear:
#
# $$r(y) = \frac{p(y) - \min(q(y), p(y))}{\sum_x \big(q(x) - \min(q(x), p(x))\big)}.$$
#
# This is the **residual law**: the part of $p$ that accepted drafts do not supply,
# divided by how often a correction is drawn.
#
# ## The residual, forwards
#
# The paper that introduced the method (Leviathan, Kalman and Matias,
# [arXiv:2211.17192](https://arxiv.org/abs/2211.17192), section 2.3 and appendix A.1) goes the other way.
# It *states* the law of the correction,
#
# $$p'(y) = \mathrm{norm}\big(\max(0,\, p(y) - q(y))\big)
# = \frac{p(y) - \min(q(y), p(y))}{\sum_x \big(p(x) - \min(q(x), p(x))\big)},$$
#
# and checks that it works.
# The denominator is $1 - \beta$, because $p$ sums to one.
# So
#
# $$P(\text{rejected}, y) = (1 - \beta)\,p'(y) = p(y) - \min(q(y), p(y)),$$
#
# and with $P(\text{accepted}, y) = \min(q(y), p(y))$ the two add up to $p(y)$. ∎
#
# ## The two denominators
#
# Backwards we divided by the probability of a *rejection*, a sum over $q$;
# forwards by what the numerator *sums to*, a sum over $p$.
# They are one number:
#
# $$\sum_x \big(q(x) - \min(q(x), p(x))\big) = 1 - \beta = \sum_x \big(p(x) - \min(q(x), p(x))\big),$$
#
# because both laws sum to one.
# The total excess of $q$ over $p$ equals that of $p$ over $q$.
# It is also the **total variation** distance of the two laws, $\mathrm{TV}(p, q) = \frac12 \sum_x |p(x) - q(x)|$:
# the most by which the probabilities of any event can differ.
# With it we shall measure all errors of this chapter.
#
# > **The notes say …** (*A short introduction to speculative decoding*)
# > that their denominator differs a little from the paper's, and that the two turn out equal.
# > They are equal, as shown above, if both laws sum to one.
# > If one of them has lost mass, for instance by a top-k that was not renormalized, the two differ.
# > (If the missing part of $q$ means that nothing was drafted, the sum over $p$ is the right one.)
#
# **By hand.**
#
# | | cat | dog | fish | owl | sum |
# |:--|:--|:--|:--|:--|:--|
# | accept with $\min(1, p/q)$ | 1 | 1 | 1/2 | 1/4 | |
# | drafted and accepted, $\min(p, q)$ | 2/10 | 2/10 | 1/10 | 1/10 | $\beta$ = 6/10 |
# | drafted and rejected, $q - \min(p, q)$ | 0 | 0 | 1/10 | 3/10 | 4/10 |
# | still missing, $p - \min(p, q)$ | 3/10 | 1/10 | 0 | 0 | 4/10 |
# | residual $r$ | 3/4 | 1/4 | 0 | 0 | 1 |
# | emitted, $\min(p, q) + \frac{4}{10}\, r$ | 5/10 | 3/10 | 1/10 | 1/10 | 1 |
#
# The last row is $p$.
# Now the same in code.
# The two definitions take five lines, and work on fractions as well as on floats:

# %%
# NBVAL_CHECK_OUTPUT
from fractions import Fraction

WORDS = ["cat", "dog", "fish", "owl"]
p = np.array([Fraction(n, 10) for n in (5, 3, 1, 1)])
q = np.array([Fraction(n, 10) for n in (2, 2, 2, 4)])


def accept(p_x, q_x):
    return min(1, p_x / q_x)


def residual(p, q):
    missing = p - np.minimum(p, q)
    return missing / missing.sum()


kept, r = np.array([q_x * accept(p_x, q_x) for p_x, q_x in zip(p, q)]), residual(p, q)
print("residual:", *r)
print("emitted: ", *(kept + (1 - kept.sum()) * r))

# %% [markdown]
# The package has the same two functions in its room `core`, for floats, with one more case:
# where $p = q$ nothing is ever rejected, the residual would be 0/0, and the function returns $p$.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import core
from specdec_core.theory import acceptance_rate, residual_denominators

p, q = p.astype(float), q.astype(float)
print([float(core.accept_probability(p_x, q_x)) for p_x, q_x in zip(p, q)])
print(core.residual(p, q).round(12).tolist())
print("accepted with probability", round(acceptance_rate(p, q), 12))
print("the two denominators:", *(round(x, 12) for x in residual_denominators(p, q)))

# %% [markdown]
# In a picture, the rule is a statement about areas.
# The area under both laws is accepted.
# The part of $q$ outside it is rejected, the part of $p$ outside it is the residual, and these two areas are equal.

# %%
both, place = np.minimum(p, q), np.arange(len(WORDS))
fig, axes = plt.subplots(1, 2, figsize=(7.6, 3.1), sharey=True)
axes[0].bar(place, both, **style.bar(0), label=f"min(p, q): accepted, {both.sum():.1f}")
label = f"q − min(p, q): rejected, {(q - both).sum():.1f}"
axes[0].bar(place, q - both, bottom=both, **style.bar(2), label=label)
axes[0].set_title("The draft's law q")
axes[1].bar(place, both, **style.bar(0))
label = f"p − min(p, q): corrections, {(p - both).sum():.1f}"
axes[1].bar(place, p - both, bottom=both, **style.bar(1), label=label)
axes[1].set_title("What is emitted: p")
for panel in axes:
    panel.set_xticks(place, WORDS)
    panel.set_ylim(0, 0.65)
    panel.legend(loc="upper left" if panel is axes[0] else "upper right")
axes[0].set_ylabel("probability")
alt = "Left, q split into an accepted and a rejected part; right, p: the accepted part and corrections."
figures.save(fig, "01-overlap", alt=alt)

# %% [markdown]
# Is $r$ the only choice?
# If it must not depend on the rejected token, yes: the equation has one solution.
# If it may, there are others.
# For example: after *fish* always *cat*; after *owl* two times in three *cat*, else *dog* (check it).
# But averaged over the rejections, each of them gives $r$ again.
#
# > **The notes say …** (*A short introduction*) that after a rejection
# > the target's own law at that place cannot be used, because its logits are off,
# > which is why the token was rejected.
# > The conclusion is right, the reason is not.
# > Nothing is wrong with $p$: the target read a prefix that is by now accepted text,
# > and its law there is *exactly* the one to emit.
# > But accepted drafts have supplied part of $p$ already.
# > Whoever draws the correction from $p$ supplies that part twice:
# > *cat* comes with 0.2 + 0.4 · 0.5 = 0.4 instead of 0.5, *owl* with 0.14 instead of 0.1.
# > We shall see this number again.
#
# ## One round, step by step
#
# One drafted token with its test, and a correction if the test fails, is a *round*.
# It needs at most three random numbers: $u_1$ draws the token from $q$, $u_2$ tests it, $u_3$ draws the correction.
# In the widget they are points on strips of length one.
# Move them, or improve the draft, and watch how the round ends.
# (Without a kernel you see one round that rejects, and one that accepts.)

# %%
from specdec_core.viz import stepper

stepper.player(p, q, WORDS, rejected=(0.7, 0.5, 0.5), accepted=(0.7, 0.2, 0.5))

# %% [markdown]
# Two things to try.
# Move $u_1$ to *cat*: no $u_2$ can reject it.
# Then pull the draft towards $p$: for each token the part of the second strip that rejects shrinks,
# and in the end nothing is left to correct.
#
# ## "Lossless" as a number
#
# One can run a sampler a million times and look at the frequencies.
# That takes long, and an error below a thousandth is lost in the noise.
# There is a better way, because a sampler is a program whose only randomness is a few draws.
# Run it once for *every possible outcome of those draws*, and add up the probabilities of the runs that end alike.
# That gives the exact law of what it emits.
#
# `enumerate_law` does this.
# It hands the program a random source with two methods:
# `rng.pick(law)`, which goes through all tokens of the law, and `rng.uniform() < x`, which goes through both answers.
# Here is the round as a program:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import enumerate_law, total_variation


def one_round(rng):
    x = rng.pick(q)
    if rng.uniform() < accept(p[x], q[x]):
        return "accepted", WORDS[x]
    return "corrected", WORDS[rng.pick(residual(p, q))]


for (how, word), probability in sorted(enumerate_law(one_round).items()):
    print(f"{how:9} {word:4} {probability:.3f}")

# %% [markdown]
# These are the second and the fourth row of the table by hand.
# Put together, and compared with $p$:

# %%
# NBVAL_CHECK_OUTPUT
def exact(distance):
    """A total variation in words: what lies below 1e-12 is rounding of the sums, and differs by machine."""
    return "at most 1e-12" if distance <= 1e-12 else f"{distance:.4f}"


def from_p(rng):
    """The mistake of the box above: the correction drawn from p."""
    x = rng.pick(q)
    return WORDS[x if rng.uniform() < accept(p[x], q[x]) else rng.pick(p)]


wanted = dict(zip(WORDS, p))
right = enumerate_law(lambda rng: one_round(rng)[1])
print("one round:              ", exact(total_variation(right, wanted)))
print("correction drawn from p:", exact(total_variation(enumerate_law(from_p), wanted)))
print("every draft kept:       ", exact(total_variation(dict(zip(WORDS, q)), wanted)))

# %% [markdown]
# By hand: with the correction drawn from $p$, the law of what is emitted is (0.40, 0.32, 0.14, 0.14),
# which is off by ½ (0.10 + 0.02 + 0.04 + 0.04) = 0.10.
#
# ## A block of drafts, and the bonus token
#
# A step of decoding drafts $\gamma$ tokens, one after the other, each from the law that follows the ones before it.
# The target scores all of them in one forward, and then they are tested **in order**.
# At the first rejection a correction is drawn,
# and the drafts after it are dropped: they continue a text that was not written.
#
# If all $\gamma$ are accepted, we add one more token.
# The forward has also read the last draft itself, so its last row is the target's law *after* all of them.
# From it we draw the **bonus token**.
# It is drawn from $p$, not from a residual: at that place no draft was tested, so nothing of $p$ has been supplied.
# A step therefore emits between 1 and $\gamma + 1$ tokens, and the last of them is always the target's own.
#
# > **The notes say …** (*A short introduction*) that the bonus token is a gain in every case.
# > It nearly is.
# > To *test* $\gamma$ drafts takes the rows of the last token and of $\gamma - 1$ drafts, $\gamma$ in all;
# > the last draft is read for the bonus alone.
# > So the bonus comes only when all drafts were accepted, but costs $t(\gamma + 1) - t(\gamma)$ in *every* step.
# > That is next to nothing on the flat part of $t(q)$, and the price of a row beyond it.
# > Now keep the number of rows fixed.
# > A step with $\gamma$ drafts and a bonus emits as many tokens as one with $\gamma + 1$ drafts and no bonus:
# > after $\gamma$ accepted drafts there is one more token either way.
# > Compared like this, the bonus saves one draft, and that is always a gain.
#
# Why is the block of tokens that a step emits lossless?
# The first token has the law $p$, by the theorem above.
# If it was a correction, the block ends there.
# If it was an accepted draft, the rest is the same problem, one token further and with one draft less.
# With no draft left, the token is a draw from $p$.
# So, by induction, every token has the target's law given the tokens before it.
# And whether the block goes on depends only on tokens and draws of the past.
#
# Below, the step is written in four parts, so that we can put a mistake into each of them.

# %%
class Parts:
    """What a step draws and decides."""

    def __init__(self, rng):
        self.rng = rng

    def draw(self, q):
        return self.rng.pick(q)

    def test(self, x, p, q):
        return self.rng.uniform() < accept(p[x], q[x])

    def correction(self, p, q):
        return self.rng.pick(residual(p, q))

    def bonus(self, p, q):
        return self.rng.pick(p)

# %%
class Block(Parts):
    """One step. ``p_after(tokens)`` and ``q_after(tokens)`` are the laws that follow some tokens."""

    def run(self, p_after, q_after, gamma):
        drafts = []
        for _ in range(gamma):
            drafts.append(self.draw(q_after(drafts)))
        for i, x in enumerate(drafts):
            p, q = p_after(drafts[:i]), q_after(drafts[:i])
            if not self.test(x, p, q):
                return (*drafts[:i], self.correction(p, q))
        return (*drafts, self.bonus(p_after(drafts), q_after(drafts)))

# %% [markdown]
# Target and draft are tables: for each word a row of logits for the next.
# Blocks differ in length, so before they can be compared with the target's law over three words,
# each shorter block is completed by the target, word by word.

# %%
from specdec_core import Sampling, TableLM

target, draft = TableLM.random(4, seed=3, scale=1.0), TableLM.random(4, seed=103, scale=1.0)
PLAIN = Sampling(temperature=1.0)


def after(lm, sampling=PLAIN):
    """The law of the next token after a prompt, the one token 1, and some tokens."""
    return lambda tokens: sampling.law(lm.row([1, *tokens]))


def three_words(rng, kind, p_after, q_after=None):
    """A block of the kind, completed by the target; with kind None all three words are the target's."""
    tokens = kind(rng).run(p_after, q_after, gamma=2) if kind else ()
    while len(tokens) < 3:
        tokens = (*tokens, rng.pick(p_after(tokens)))
    return tokens

# %%
# NBVAL_CHECK_OUTPUT
def error(kind, p_after=after(target), q_after=after(draft)):
    """Total variation between the words of a kind of block and the target's own."""
    emitted, wanted = (
        enumerate_law(lambda rng: three_words(rng, choice, p_after, q_after)) for choice in (kind, None)
    )
    return total_variation(emitted, wanted)


law = enumerate_law(lambda rng: Block(rng).run(after(target), after(draft), gamma=2))
print("probability of a block of 1, 2, 3 tokens:", end=" ")
print(*(f"{sum(m for tokens, m in law.items() if len(tokens) == n):.3f}" for n in (1, 2, 3)))
print("distance from the target's law over three words:", exact(error(Block)))

# %% [markdown]
# The rest of the book does not use `Block`.
# It uses the package's `verify`, which takes the drafts as a *tree* (here a chain).
# The tree carries the laws $q$ that the drafts were drawn from.
# The same test:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import DraftTree


class Packaged(Block):
    def run(self, p_after, q_after, gamma):
        drafts = []
        for _ in range(gamma):
            drafts.append(self.draw(q_after(drafts)))
        prefixes = [drafts[:i] for i in range(gamma + 1)]
        laws = np.array([q_after(prefix) for prefix in prefixes[:-1]])
        tree = DraftTree.chain(1, drafts, q=laws, draw="iid")
        return core.verify([p_after(prefix) for prefix in prefixes], tree, self.rng).tokens


same = enumerate_law(lambda rng: Packaged(rng).run(after(target), after(draft), gamma=2))
print("our block against the package's:", exact(total_variation(law, same)))
print("distance from the target's law: ", exact(error(Packaged)))

# %% [markdown]
# ## Eight mistakes, each as a number
#
# These are the classic mistakes.
# None of them crashes.
# Each replaces one part of the block.

# %%
def inverse_cdf(u, law):
    """The token whose share of [0, 1) holds u; whatever is missing from 1 falls to the last token."""
    return next((x for x, edge in enumerate(np.cumsum(law)[:-1]) if u < edge), len(law) - 1)


class CorrectionFromP(Block):
    def correction(self, p, q):
        return self.rng.pick(p)


class NotRenormalized(Block):
    def correction(self, p, q):
        return inverse_cdf(self.rng.uniform(), np.maximum(p - q, 0))


class BonusFromQ(Block):
    def bonus(self, p, q):
        return self.rng.pick(q)

# %%
class OneUniform(Block):
    """One uniform for all tests of the block."""

    def __init__(self, rng):
        super().__init__(rng)
        self.u = rng.uniform()

    def test(self, x, p, q):
        return self.u < accept(p[x], q[x])


class DrawnWithIt(Block):
    """Each draft is tested with the uniform that drew it."""

    def draw(self, q):
        self.us = [*getattr(self, "us", []), self.rng.uniform()]
        return inverse_cdf(self.us[-1], q)

    def test(self, x, p, q):
        return self.us.pop(0) < accept(p[x], q[x])

# %%
def drawing(sampling):
    """Blocks that draw by ``sampling`` and afterwards report the unprocessed law as q."""

    class Drawing(Block):
        def draw(self, q):
            return self.rng.pick(sampling.law(np.log(q)))

    return Drawing

# %%
MISTAKES = {
    "no mistake": Block,
    "correction drawn from p": CorrectionFromP,
    "residual not renormalized": NotRenormalized,
    "bonus drawn from q": BonusFromQ,
    "one uniform for all tests": OneUniform,
    "tested with the uniform that drew it": DrawnWithIt,
    "q unprocessed, drawn at T = 0.5": drawing(Sampling(temperature=0.5)),
    "q unprocessed, drawn from the top 2": drawing(Sampling(temperature=1.0, top_k=2)),
    "drafted the best token, tested as if drawn": drawing(Sampling()),
}

# %%
# NBVAL_CHECK_OUTPUT
errors = {name: error(kind) for name, kind in MISTAKES.items()}
for name, distance in errors.items():
    print(f"{name:42} {exact(distance)}")

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.6))
for row, distance in enumerate(errors.values()):
    axes.barh(row, max(distance, 1e-17), left=1e-18, height=0.6, **style.bar(0 if distance <= 1e-12 else 2))
    if distance > 1e-12:
        axes.text(2 * distance, row, exact(distance), va="center", fontsize=8)
axes.axvline(1e-12, color="black", linestyle="--", linewidth=1)
axes.text(1.5e-12, -0.05, "1e-12: all to the left is rounding", va="center", fontsize=9)
axes.set_yticks(range(len(errors)), errors)
axes.invert_yaxis()
axes.set_xscale("log")
axes.set_xlim(1e-18, 30)
axes.set_xticks([1e-16, 1e-12, 1e-8, 1e-4, 1])
axes.grid(axis="y", visible=False)
axes.set_xlabel("total variation from the target's law, three words (logarithmic)")
alt = "Distance from the target's law: rounding for the right rule, above 0.01 for each of eight mistakes."
figures.save(fig, "01-mistakes", alt=alt)

# %% [markdown]
# Between the right rule and the mildest mistake lie more than ten orders of magnitude.
# That is the use of an exact test: there is nothing to argue about.
# A sampled test has to tell an error of size $d$ from noise, and needs on the order of $1/d^2$ blocks for that.
# By reading the output nobody finds any of these mistakes: the words are still fluent.
#
# Look at three of them once more.
#
# - **Not renormalized.**
#   $\max(p - q, 0)$ sums to $1 - \beta$, not to 1.
#   A sampler that walks along the cumulative sums runs out of mass and takes the last token.
#   (A sampler that itself divides by the sum hides the mistake, until somebody replaces the sampler.)
# - **The uniform that drew it.**
#   Given that $u$ drew $x$, $u$ is no longer uniform on [0, 1): it lies in $x$'s share.
#   So the place of $x$ in the vocabulary nearly decides the test in advance.
# - **Tested as if drawn.**
#   Proposing the draft's best token instead of drawing one is perfectly fine,
#   with the rule that belongs to it (a few sections below).
#   The rule min(1, p/q) is not that rule.
#
# ## Temperature, top-k and top-p come first
#
# A user asks for a temperature $T$ of 0.8, top-k of 3 and top-p of 0.9.
# Then *that* is the law to be emitted.
# The logits are divided by $T$.
# Top-k keeps the three best tokens.
# Of these, top-p keeps the fewest best that hold 0.9 of their probability.
# The rest is made to sum to one, and the result is $p$.
# All of this happens **before** $p$ and $q$ are compared.
# (The paper's section 2.2 says so in a line: every such option is sampling from an adjusted law.)
#
# Nobody asks this of $q$, but something else: **$q$ must be the law that the draft was drawn from**, whatever it was.
# The proof used $q$ in one place only, "drafted with probability $q(x)$".
# A draft may be drawn at another temperature, without top-k, or greedily:
# every choice is lossless as long as it is reported honestly.
# It only changes $\beta$.

# %%
# NBVAL_CHECK_OUTPUT
asked = Sampling(temperature=0.8, top_k=3, top_p=0.9)
choices = {
    "as asked of the target": asked,
    "at T = 1, nothing cut": PLAIN,
    "at T = 2": Sampling(temperature=2.0),
    "greedily, T = 0": Sampling(),
}
p_after, rows = after(target, asked), []
for how, sampling in choices.items():
    q_after = after(draft, sampling)
    beta = acceptance_rate(p_after(()), q_after(()))
    rows.append([f"drawn {how}, and so reported", f"{beta:.3f}", exact(error(Block, p_after, q_after))])

# Two mistakes: q is not what was drawn from, and p is not what was asked for.
hidden = error(drawing(asked), p_after, after(draft))
raw, own = (enumerate_law(lambda rng: three_words(rng, None, after(target, law))) for law in (PLAIN, asked))
rows.append(["drawn as asked, the unprocessed q reported", "", exact(hidden)])
rows.append(["p compared before it is processed", "", exact(total_variation(raw, own))])
display(Markdown(markdown(rows, ["draft", "β, first token", "distance from what was asked"])))

# %% [markdown]
# A token with $q(x) > 0$ that the target's top-k has removed has $p(x) = 0$ and is always rejected.
# The other way round is no problem either: what the draft can never propose, the residual supplies.
#
# How much does honesty matter?
# We vary the temperature at which the draft is drawn; the target is at $T = 0.7$.
# The left panel shows the acceptance.
# The right panel shows the error, once with $q$ reported as drawn and once with $q$ from the unprocessed logits.

# %%
temperatures = [0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0]
p_after, betas, honest, dishonest = after(target, Sampling(temperature=0.7)), [], [], []
for T in temperatures:
    drawn = Sampling(temperature=T)
    betas.append(acceptance_rate(p_after(()), after(draft, drawn)(())))
    honest.append(error(Block, p_after, after(draft, drawn)))
    dishonest.append(error(drawing(drawn), p_after, after(draft)))
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2))
left.plot(temperatures, betas, **style.line(1))
left.set(title="Acceptance", ylabel="β at the first draft", ylim=(0, 1))
right.plot(temperatures, honest, **style.line(0), label="q as drawn")
right.plot(temperatures, dishonest, **style.line(2), label="q of the unprocessed logits")
right.set(title="Error", ylabel="total variation")
right.legend()
for axes in (left, right):
    axes.set_xlabel("temperature of the draft")
alt = "Acceptance and error by the draft's temperature; the error of unprocessed q is zero only at T = 1."
figures.save(fig, "01-processed", alt=alt)

# %% [markdown]
# The wrong curve touches zero at $T = 1$, where unprocessed and processed are the same law.
# That is how this mistake survives: it passes every test made at temperature 1.
#
# ## Greedy is T = 0
#
# As $T$ falls to 0, all of $p$ moves to the best token $x^*$, and in the limit $p(x^*) = 1$.
# (In code, `Sampling()` means $T = 0$.)
# Nothing has to be proved again:
#
# - the accept rule gives $\min(1, 1/q(x^*)) = 1$ for $x^*$ and $\min(1, 0/q(x)) = 0$ for all others:
#   **accept while the draft is the target's best token**;
# - the residual $\max(p - q, 0)$ is positive at $x^*$ only: **the correction is the target's best token**;
# - $q$ has dropped out, so it does not matter how the draft was made, and no random number is left.

# %%
# NBVAL_CHECK_OUTPUT
row = target.row([1])
q_here = after(draft)(())
for T in (1, 0.3, 0.1, 0.03, 0):
    p_T = Sampling(temperature=T).law(row)
    tests = [accept(p_x, q_x) for p_x, q_x in zip(p_T, q_here)]
    print(f"T = {T:<4}  p =", *(f"{x:.3f}" for x in p_T), "  accept =", *(f"{x:.3f}" for x in tests))

greedy = after(target, Sampling())
law = enumerate_law(lambda rng: three_words(rng, Block, greedy, after(draft)))
print("at T = 0 the exact law is", {tokens: float(mass) for tokens, mass in law.items() if mass})
print("the target's own choice: ", list(enumerate_law(lambda rng: three_words(rng, None, greedy))))

# %% [markdown]
# In one point $T = 0$ is not the limit.
# If two tokens share the largest logit, the law at small $T$ gives each ½,
# while at $T = 0$ a program takes one of them, usually the first.
# Decoding with a draft and decoding without one must break such ties in the same way (chapter 12).
#
# ## Drafts that were not drawn: point masses
#
# Prompt lookup copies its draft out of the context.
# It was not drawn from any law; or rather, from one with all its mass on one token, $q(x) = 1$: a **point mass**.
# The rule applies as it stands:
#
# - accept $x$ with $\min(1, p(x)/1) = p(x)$;
# - otherwise the residual: $\max(p - q, 0)$ is $p$ with $x$ taken out,
#   so renormalize and draw: $r(y) = p(y)/(1 - p(x))$ for $y \ne x$.
#
# This is *accept-then-renormalize*.
# Now remember the second simple idea from the beginning, *sample-then-match*:
# draw $y$ from $p$; if $y = x$, the draft is accepted, and if not, $y$ is the correction.
#
# **Claim.**
# For a point mass the two are the same, even jointly in what is emitted *and* whether the draft was accepted.
# **Proof.**
# Both accept and emit $x$ with probability $p(x)$.
# Both reject and emit $y \ne x$ with probability $p(y)$:
# the one directly, the other as $(1 - p(x)) \cdot p(y)/(1 - p(x))$. ∎
#
# The claim also holds for several *different* guesses $x_1, \dots, x_k$ for the same place,
# tested one after the other on what is left of $p$.
# The factors cancel: $(1 - p(x_1)) \cdot \frac{p(x_2)}{1 - p(x_1)} = p(x_2)$, and so on.
# The lookahead paper ([arXiv:2402.02057](https://arxiv.org/abs/2402.02057)) states its sampling algorithm
# in the first form.
# The package uses the second, which needs one draw per place and never looks at $q$.

# %%
def accepted(law):
    """The probability of an acceptance, from a law over (how, token)."""
    return sum(mass for (how, _), mass in law.items() if how == "accepted")


def renormalize(rng, p, guesses):
    for x in guesses:
        if rng.uniform() < p[x]:
            return "accepted", x
        p = core.without(p, x)
    return "corrected", rng.pick(p)


def match(rng, p, guesses):
    y = rng.pick(p)
    return ("accepted" if y in guesses else "corrected"), y

# %%
# NBVAL_CHECK_OUTPUT
for guesses in ([3], [0, 2], [3, 1, 0]):
    one, other = (enumerate_law(lambda rng: rule(rng, p, guesses)) for rule in (renormalize, match))
    print(f"{', '.join(WORDS[x] for x in guesses)}: accepted with probability {accepted(one):.3f};", end=" ")
    print("distance of the two", exact(total_variation(one, other)))

# %% [markdown]
# At the beginning sample-then-match was wasteful; here it is optimal.
# The difference is in the draft.
# For a token *drawn* from $q$, matching keeps only $\sum_x p(x) q(x)$.
# For a fixed token nothing better than $p(x)$ is possible, since $\min(p(x), 1) = p(x)$.
#
# ## Several drafts for one place
#
# If a forward is nearly free, why check one candidate for the next token and not four?
# Such drafts are **siblings**.
# Draw $x_1, x_2, \dots$ from $q$ and test them in turn.
# When $x_1$ is rejected, what has to be emitted from then on follows the residual $p_1 = r(p, q)$:
# the derivation above says precisely that.
# So we have the old problem again, with a new target $p_1$ and a second draft.
# *Any* lossless rule for the target $p_1$ will do:
#
# - **independent** (i.i.d.): $x_2$ is drawn from the same $q$.
#   Accept it with $\min(1, p_1(x_2)/q(x_2))$,
#   and if it fails too, go on with $p_2 = r(p_1, q)$ (SpecInfer, [arXiv:2305.09781](https://arxiv.org/abs/2305.09781));
# - **without replacement**: given the first,
#   the second was drawn from $q$ without $x_1$, renormalized; call that law $q_1$.
#   The second was drawn from $q_1$, so it is compared with $q_1$:
#   $\min(1, p_1(x_2)/q_1(x_2))$ ([arXiv:2402.14160](https://arxiv.org/abs/2402.14160)).
#
# A sibling drawn without replacement is worth more: a token that has just been rejected is not proposed again.

# %%
def siblings(rng, k, replacement, p=p, q=q, forget=False, reported=None):
    """k drafts for one place; drawing each when its turn comes is the same as drawing all beforehand."""
    for turn in range(k):
        x = rng.pick(q)
        tested = q if reported is None else reported
        if rng.uniform() < accept(p[x], tested[x]):
            return "accepted", x
        if not forget:
            p = core.residual(p, tested)
        if not replacement and turn + 1 < k:
            q = core.without(q, x)
    return "corrected", rng.pick(p)


def words(law):
    """The law of the token alone."""
    return {WORDS[x]: law.get(("accepted", x), 0) + law.get(("corrected", x), 0) for x in range(len(WORDS))}

# %%
# NBVAL_CHECK_OUTPUT
for replacement in (True, False):
    laws = [enumerate_law(lambda rng: siblings(rng, k, replacement)) for k in (1, 2, 3, 4)]
    distance = max(total_variation(words(law), wanted) for law in laws)
    print(f"{'i.i.d.' if replacement else 'without replacement'}, 1 to 4 siblings:", exact(distance))

# %% [markdown]
# Now with mistakes: siblings drawn without replacement but tested as if independent,
# and later siblings compared with $p$ again instead of with what is left of it.

# %%
# NBVAL_CHECK_OUTPUT
unmatched = enumerate_law(lambda rng: siblings(rng, 2, replacement=False, reported=q))
forgetful = enumerate_law(lambda rng: siblings(rng, 2, replacement=True, forget=True))
print("a rule that does not match the draw:", exact(total_variation(words(unmatched), wanted)))
print("the second sibling tested against p:", exact(total_variation(words(forgetful), wanted)))

# %% [markdown]
# How much do siblings gain?
# Besides the two ways to draw them there is a third, not to draw at all:
# propose the $k$ best tokens of $q$ as point masses, which are accepted with probability $\sum_{i \le k} p(x_i)$.
# Which is best depends on the target.
# So we take twelve random laws $p$ over five tokens, each with a $q$ that is half $p$ and half noise.
# We use them twice: as they are, and with $p$ sharpened as by $T = 0.2$.

# %%
ks, random = range(1, 6), np.random.default_rng(0)
draws = [random.dirichlet(np.ones(5), size=2) for _ in range(12)]
pairs = [(p_, (p_ + noise) / 2) for p_, noise in draws]
sharp = [(Sampling(temperature=0.2).law(np.log(p_)), q_) for p_, q_ in pairs]


def curves(pairs):
    """For each way to make k siblings: the mean acceptance, over the pairs, for each k."""

    def drawn(k, replacement):
        laws = [enumerate_law(lambda rng: siblings(rng, k, replacement, *pair)) for pair in pairs]
        return np.mean([accepted(law) for law in laws])

    def best(k):
        return np.mean([p_[np.argsort(-q_)[:k]].sum() for p_, q_ in pairs])

    return {
        "drawn without replacement": [drawn(k, False) for k in ks],
        "drawn i.i.d.": [drawn(k, True) for k in ks],
        "the k best of q, not drawn": [best(k) for k in ks],
    }

# %%
fig, panels = plt.subplots(1, 2, figsize=(7.6, 3.3), sharey=True)
for axes, some, title in zip(panels, (pairs, sharp), ("Target at T = 1", "Target at T = 0.2")):
    for i, (name, curve) in enumerate(curves(some).items(), start=1):
        axes.plot(ks, curve, **style.line(i), label=name)
        print(f"{title}, {name}: {curve[0]:.2f} with one, {curve[1]:.2f} with two")
    axes.set(title=title, xlabel="k, siblings", xticks=list(ks), ylim=(0, 1.04))
panels[0].set_ylabel("P(one of them is accepted)")
panels[1].legend(loc="lower right")
alt = "Acceptance by the number of siblings for two targets; without replacement lies above i.i.d. in both."
figures.save(fig, "01-siblings", alt=alt)

# %% [markdown]
# Five siblings out of five tokens without replacement miss nothing;
# independent ones return to tokens that were rejected.
# Not drawing loses much if the target itself draws from many tokens.
# If the target is nearly certain, it can win on average, as it does on the right from two siblings on.
# (For a single pair of laws a draw may still be better: where the best token of $q$ is not the target's.)
# All three are in the package.
# The tree says how its siblings were made (`draw` is `"iid"`, `"without_replacement"` or `"point"`),
# and `verify` reads the rule from it.

# %% [markdown]
# ## A real target
#
# Now the model of chapter 00.
# This chapter is about laws and not about speed.
# So the model runs in double precision (`float64`), where rounding is smallest.
# That is slow, but it lets us keep the same yardstick: 1e-12.

# %%
import torch
from specdec_core import CachedLM, load

device = "cuda" if torch.cuda.is_available() else "cpu"  # Apple's GPU does not compute in float64
loaded = load("default", dtype="float64", device=device)
lm, tokenizer = CachedLM(loaded), loaded.tokenizer
print(loaded.why)

# %% [markdown]
# **The draft.**
# A toy, but one with a real law: the same model, allowed to read only the last three tokens.
# At each place of a short text it draws one token, which is tested against the target that has read everything.
# (The text goes on as given, whatever is drawn, so each place is a round of its own.)
# One forward of the target over the text gives $p$ at all places.

# %%
from specdec_core import Rng

ids = tokenizer.encode(
    "Maria lived in Lisbon and had a small dog called Bruno. Every morning Maria and Bruno walked "
    "down to the river. One day, the dog ran away, and Maria looked for Bruno in the whole of Lisbon."
)


def laws_after(tokens, last=1):
    """The model's laws at T = 1 after the last few prefixes of ``tokens``, from one forward."""
    lm.prefill(tokens[:-last])
    logits = lm.forward(DraftTree.chain(tokens[-last], tokens[len(tokens) - last + 1 :])).logits
    return [PLAIN.law(row) for row in logits.cpu().numpy()]


places = range(4, len(ids))  # place n: the token after ids[:n]
ps = dict(zip(places, laws_after(ids[:-1], last=len(places))))
qs = {n: laws_after(ids[n - 3 : n])[0] for n in places}
betas = {n: acceptance_rate(ps[n], qs[n]) for n in places}

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.0))
axes.bar(range(len(places)), betas.values(), **style.bar(1))
axes.set_xticks(range(len(places)), [tokenizer.decode([ids[n]]) for n in places], rotation=90, fontsize=8)
axes.set(ylim=(0, 1), ylabel="β = Σ min(p, q)", xlabel="the word that stands there in the text")
axes.grid(axis="x", visible=False)
alt = "Acceptance probability before each word of a short text: it differs several-fold from word to word."
figures.save(fig, "01-acceptance", alt=alt, model=loaded)
mean = sum(betas.values()) / len(betas)
print(f"β from {min(betas.values()):.2f} to {max(betas.values()):.2f}, mean {mean:.2f}")

# %% [markdown]
# So β is not a constant of the draft.
# It is a number for each place:
# high where the last three tokens tell nearly all that the whole text tells, low where they do not.
# (Chapter 02 asks what its mean is good for.)
#
# **One accepted and one rejected draft.**
# At every place we draw a token and let `verify` test it.
# Then we look at two of them: an accepted one whose test could have failed, and a rejected one that had a chance.

# %%
rounds, rng = {}, Rng(1)
for n in places:
    x = rng.pick(qs[n])
    tree = DraftTree.chain(ids[n - 1], [x], q=qs[n][None], draw="iid")
    rounds[n] = x, core.verify([ps[n], ps[n]], tree, rng)
chance = {n: verdict.trials[0].accept_prob for n, (_, verdict) in rounds.items()}
kept = [n for n in places if rounds[n][1].accepted]
lost = [n for n in places if not rounds[n][1].accepted]
print(f"{len(kept)} of {len(places)} drafts accepted; expected, the sum of β: {sum(betas.values()):.1f}")

# %%
risked = [n for n in kept if chance[n] < 1] or kept
shown = {"accepted": max(risked, key=lambda n: qs[n][rounds[n][0]]), "rejected": max(lost, key=chance.get)}
for how, n in shown.items():
    x, y = rounds[n][0], rounds[n][1].next_token
    print(f"{how} after “…{tokenizer.decode(ids[max(0, n - 8) : n])}”: draft “{tokenizer.decode([x])}”")
    print(f"    q = {qs[n][x]:.4f}, p = {ps[n][x]:.4f}: accepted with probability {chance[n]:.3f}")
    if how == "rejected":
        r_y = core.residual(ps[n], qs[n])[y]
        print(f"    correction “{tokenizer.decode([y])}”: p = {ps[n][y]:.4f}, residual = {r_y:.4f}")

# %%
fig, panels = plt.subplots(1, 2, figsize=(7.6, 3.6))
for axes, (how, n) in zip(panels, shown.items()):
    x, y = rounds[n][0], rounds[n][1].next_token
    laws = {"q, draft": qs[n], "p, target": ps[n], "residual": core.residual(ps[n], qs[n])}
    largest = np.argsort(-np.maximum(ps[n], qs[n]))[:7].tolist()
    top = list(dict.fromkeys([x, y, *largest] if how == "rejected" else [x, *largest]))
    for i, (label, law) in enumerate(list(laws.items())[: 2 + (how == "rejected")]):
        at = np.arange(len(top)) + 0.27 * (i - 1)
        axes.barh(at, law[top], height=0.27, **style.bar(i), label=label)
    notes = {**({y: " ← correction"} if how == "rejected" else {}), x: " ← draft"}
    names = [f"{tokenizer.decode([t])!r}{notes.get(t, '')}" for t in top]
    axes.set_yticks(range(len(top)), names, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(title=f"A draft that was {how}", xlabel="probability")
    axes.legend(loc="lower right")
alt = "Largest probabilities of q and p where a draft was accepted, and where one was rejected."
figures.save(fig, "01-live", alt=alt, model=loaded, seed=1)

# %% [markdown]
# There are tens of thousands of tokens here instead of four, but the formula is the same.
# We compare accepted part plus corrections with $p$, for the whole vocabulary and at every place:

# %%
# NBVAL_CHECK_OUTPUT
worst = 0.0
for n in places:
    kept_mass = np.minimum(ps[n], qs[n])
    emitted = kept_mass + (1 - kept_mass.sum()) * core.residual(ps[n], qs[n])
    worst = max(worst, 0.5 * np.abs(emitted - ps[n]).sum())
print("largest distance from p over all places:", exact(worst))

# %% [markdown]
# ## Is a text-only API enough?
#
# > **The notes say …** (*A short introduction*, on greedy sampling) that greedy checking comes down
# > to comparing the decoded strings, needs no probabilities, and so works with any LLM API.
# > Let us see what the API has to return.
#
# **Probabilities are not needed.**
# True: at $T = 0$ the rule asks for the target's best token and nothing else.
# **But it asks for it at every drafted place.**
# With context $c$ and drafts $x_1, \dots, x_\gamma$ the check needs
#
# $$\arg\max p(\cdot \mid c),\quad \arg\max p(\cdot \mid c, x_1),\quad \dots,\quad
# \arg\max p(\cdot \mid c, x_1, \dots, x_\gamma),$$
#
# $\gamma + 1$ answers, from **one** call with $c, x_1, \dots, x_\gamma$ as its prompt.
# An ordinary completion endpoint returns what comes *after* its prompt: the last of these, and none of the others.
# Below, the model plays both kinds of endpoint, and we count the calls.

# %%
calls = {"plain": 0, "echo": 0}


def plain(prompt):
    """A completion endpoint at T = 0, one token asked for: the best token after the whole prompt."""
    calls["plain"] += 1
    return int(laws_after(prompt)[0].argmax())


def echo(prompt, last):
    """An endpoint that reports on its prompt: the best token after each of the last prefixes."""
    calls["echo"] += 1
    return [int(law.argmax()) for law in laws_after(prompt, last)]

# %%
def check(best, drafts):
    """Emit the target's tokens, ``best(i)`` after i drafts, for as long as the draft agrees."""
    emitted = []
    for i, x in enumerate([*drafts, None]):  # after the last draft there is the bonus
        emitted.append(best(i))
        if emitted[-1] != x:
            return emitted


context, drafts = ids[:20], []
for _ in range(5):
    drafts.append(plain(context + drafts))  # the target's own choice: a perfect draft
drafts[4] = ids[0]  # spoiled at the last place
calls.update(plain=0, echo=0)
answers = echo(context + drafts, last=len(drafts) + 1)
emitted = check(lambda i: answers[i], drafts)
assert emitted == check(lambda i: plain(context + drafts[:i]), drafts)
print("emitted either way:", repr(tokenizer.decode(emitted)))
print(f"{len(emitted)} tokens: {calls['echo']} call with echo, {calls['plain']} calls with plain completions")

# %% [markdown]
# One token per call is autoregression, with a draft on top.
# (The calls can be sent at the same time, but each is a whole request over the whole prompt, and is paid for.
# And one plain request for $\gamma + 1$ tokens returns the right text without any draft:
# the server then does the sequential work that we wanted to save.)
#
# What we need is an endpoint that reports on its *prompt*: the best token at each prompt position.
# In vLLM this is the sampling parameter `prompt_logprobs=1`.
# In the older completion interface of OpenAI, and in some servers that follow it, it is `echo` with `logprobs`.
# We can throw the numbers away, but not the names of the tokens.
#
# **And it must be tokens, not strings.**
# Text does not say how it was cut:

# %%
# NBVAL_CHECK_OUTPUT
whole, cut = tokenizer.encode(" the"), tokenizer.encode(" th") + tokenizer.encode("e")
print(whole, cut, "same text:", tokenizer.decode(whole) == tokenizer.decode(cut))
print("encoded again:", tokenizer.encode(tokenizer.decode(cut)))

# %% [markdown]
# Suppose the target would write “ the” as one token, and the draft is “ th”.
# The strings agree as far as they go, but the target has not written “ th”.
# Whoever accepts by comparing strings lets the model continue from tokens that it would not have produced,
# and with another law.
# If the API takes only text, the server cuts it anew, and the positions of its report need not be those of our drafts.
#
# > So the claim survives in part.
# > Greedy checking needs no probabilities and is lossless.
# > It does need **the argmax token at every drafted position from one call**,
# > which a text-in, text-out completion does not give.
# > At $T > 0$ the API must return more: for a draft drawn from $q$ one needs $p(x)$ at each drafted position,
# > *and* all of $p$ where a draft is rejected.
# > Only a point-mass draft needs little: sample-then-match takes one *sample* from $p$ at each position.
#
# ## Same law, other samples
#
# Last, whole runs at $T = 1$ on the model: prompt lookup, whose drafts are point masses, against autoregression.
# To have few enough outcomes we sample from the two best tokens only, and write three tokens: at most eight texts.
# `enumerate_law` goes through the *engine itself*, its forwards, its cache and its verification.
# The drafts are verified once by sample-then-match.
# Then they are declared as drawn from a law with all its mass on one token (a *one-hot* law),
# and verified by accept-then-renormalize.

# %%
from specdec_core import generate
from specdec_core.drafters import NullDrafter, PromptLookup


class AsDrawn(PromptLookup):
    """The same drafts, declared as drawn from laws with all their mass on one token."""

    name = "prompt_lookup, accept-then-renormalize"

    def propose(self, context, budget, rng):
        drafts = super().propose(context, budget, rng).tokens[1:]
        q = np.zeros((len(drafts), lm.vocab_size))
        q[np.arange(len(drafts)), drafts] = 1.0
        return DraftTree.chain(context[-1], drafts, q=q, draw="iid")


prompt = tokenizer.encode("The cat sat on the mat. The dog sat on the rug. The cat sat on the")
two_best = Sampling(temperature=1.0, top_k=2)

# %%
def run(drafter, rng):
    answer = generate(lm, prompt, drafter, max_new_tokens=3, sampling=two_best, rngs=(rng, rng))
    return answer.tokens, answer.trace.accepted


drafters = [NullDrafter(), PromptLookup(num_tokens=2), AsDrawn(num_tokens=2)]
run_laws, some_accepted = {}, {}
for drafter in drafters:
    law = enumerate_law(lambda rng: run(drafter, rng))
    some_accepted[drafter.name] = sum(mass for (_, accepted), mass in law.items() if accepted)
    run_laws[drafter.name] = {tokens: 0.0 for tokens, _ in law}
    for (tokens, _), mass in law.items():
        run_laws[drafter.name][tokens] += mass

# %%
# NBVAL_CHECK_OUTPUT
own = run_laws["autoregressive"]
for name, law in run_laws.items():
    print(f"{name}: distance from autoregressive decoding {exact(total_variation(law, own))};", end=" ")
    print(f"a draft was accepted with probability {some_accepted[name]:.3f}")

# %% [markdown]
# That is the theorem, checked through a language model with 135 million weights.
# Now the same engine, not enumerated but *run*, with a few seeds:

# %%
SEEDS, seen = range(10), {}
for drafter, first in ((drafters[0], 0), (drafters[1], 100)):
    options = {"max_new_tokens": 3, "sampling": two_best}
    drawn = [generate(lm, prompt, drafter, seed=first + seed, **options).tokens for seed in SEEDS]
    seen[drafter.name] = [drawn.count(text) / len(drawn) for text in sorted(own, key=own.get)]

# %%
texts, place = sorted(own, key=own.get), np.arange(len(own))
fig, axes = plt.subplots(figsize=(7.6, 3.8))
for i, (name, marker, color) in enumerate(zip(seen, "^D", ("white", "#F0E442"))):
    at, law = place + 0.15 - 0.3 * i, run_laws[name]
    axes.barh(at, [law[t] for t in texts], height=0.3, **style.bar(i), label=f"exact law, {name}")
    label = f"{len(SEEDS)} runs, {name}"
    axes.plot(seen[name], at, marker, color=color, mec="black", label=label, clip_on=False, zorder=3)
axes.set_yticks(place, [repr(tokenizer.decode(t)) for t in texts], fontsize=8)
axes.grid(axis="y", visible=False)
axes.set_xlabel("probability of the text, or share of the runs")
axes.legend(fontsize=8, loc="lower right")
alt = "Exact probabilities of three-token texts, equal for both methods; the shares among ten runs scatter."
figures.save(fig, "01-laws", alt=alt, model=loaded)

# %% [markdown]
# The bars agree, up to 1e-12.
# The marks, ten runs each, agree neither with the law nor with each other, and nothing is wrong with them.
# **Lossless is a statement about laws.**
# It does not say that two runs give the same text, and two equal texts do not prove it.
# Longer texts, all drawn at $T = 1$ with nothing cut:

# %%
def write(drafter, seed):
    return generate(lm, prompt, drafter, max_new_tokens=24, sampling=PLAIN, seed=seed)


answers = {
    "autoregressive, seed 1": write(NullDrafter(), 1),
    "prompt lookup, seed 1": write(PromptLookup(), 1),
    "the same, accept-then-renormalize": write(AsDrawn(), 1),
    "prompt lookup, seed 2": write(PromptLookup(), 2),
}
for name, answer in answers.items():
    print(f"{name} ({answer.trace.target_calls} forwards):\n    {tokenizer.decode(answer.tokens)!r}\n")
first, second = (answer.tokens for answer in list(answers.values())[:2])
print("the first two are", "the same, token by token." if first == second else "different.")

# %% [markdown]
# The second text equals the first wherever rounding permits it.
# That is not an accident, and not a theorem either.
# With sample-then-match each emitted token takes exactly one draw from $p$, as in autoregression.
# So with one seed the same uniforms meet the same laws.
# If the very same drafts are verified by accept-then-renormalize, the uniforms are used differently,
# and the result is another text from the same law.
# In 16-bit arithmetic the first two diverge too,
# as soon as a rounded $p$ moves the edge between two tokens across a uniform (chapter 12).
#
# So do not test a sampler by comparing texts.
# Compare laws, exactly where that is possible.
#
# ## Pitfalls
#
# - **$q$ is what was drawn from**, after temperature, top-k and top-p; and $p$ is what was asked for.
#   Neither is softmax of the logits unless $T = 1$ and nothing is cut.
# - **The correction is drawn from the residual, renormalized.**
#   Not from $p$, of which accepted drafts have supplied a part.
# - **The bonus is drawn from $p$**, at the place after the last draft.
#   Never from $q$, never from a residual.
# - **A fresh uniform for every test.**
#   Not the one that drew the token, and not one for the whole block.
# - **The rule belongs to the draw.**
#   Fixed drafts, independent ones, and ones drawn without replacement each have a rule of their own.
# - **Test in order, stop at the first rejection.**
#   What the target scored after it belongs to another text.
# - **Tests at $T = 1$ do not find an unprocessed $q$, and reading the output finds nothing.**
#   Enumerate a small vocabulary, at several temperatures.
# - **Equal seeds need not give equal texts**, and equal texts at one seed prove nothing.
#
# ## Summary
#
# - Accept a draft $x \sim q$ with probability $\min(1, p(x)/q(x))$: the most that any rule emitting $p$ allows.
#   In total $\beta = \sum_x \min(p, q) = 1 - \mathrm{TV}(p, q)$ is accepted.
# - After a rejection draw from $r = (p - \min(p, q))/(1 - \beta)$.
#   The law follows from the goal; its two denominators, from $q$ and from $p$, are equal because both laws sum to one.
# - All accepted: one bonus token from $p$.
#   By induction the block has the target's law, exactly:
#   at most 1e-12 in every enumeration above, and above 0.01 for each classic mistake.
# - Processing comes before comparing.
#   $q$ may be anything, if it is reported as it was drawn.
# - $T = 0$: accept while equal to the argmax, correct with the argmax; $q$ drops out.
#   An API has to return the argmax at *every* drafted position of one call.
# - Point-mass drafts: sample-then-match and accept-then-renormalize are one law.
#   Siblings: after a rejection the target is the residual, and the same problem begins again.
#
# ## Further reading
#
# - Y. Leviathan, M. Kalman, Y. Matias, *Fast Inference from Transformers via Speculative Decoding*,
#   ICML 2023, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192): sections 2.2 and 2.3, proof in appendix A.1
# - C. Chen and others, *Accelerating Large Language Model Decoding with Speculative Sampling*,
#   2023, [arXiv:2302.01318](https://arxiv.org/abs/2302.01318): the same rule, found independently
# - X. Miao and others, *SpecInfer*, 2023, [arXiv:2305.09781](https://arxiv.org/abs/2305.09781):
#   several independent drafts for one place
# - W. Jeon and others, *Recursive Speculative Decoding: Accelerating LLM Inference via Sampling Without Replacement*,
#   2024, [arXiv:2402.14160](https://arxiv.org/abs/2402.14160)
# - Z. Sun and others, *SpecTr: Fast Speculative Decoding via Optimal Transport*,
#   2023, [arXiv:2310.15141](https://arxiv.org/abs/2310.15141): what is the best that $k$ drafts allow
# - Y. Fu and others, *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*,
#   2024, [arXiv:2402.02057](https://arxiv.org/abs/2402.02057): sampling with point-mass drafts
# - J. von Neumann, *Various techniques used in connection with random digits*, 1951:
#   where rejection sampling comes from
