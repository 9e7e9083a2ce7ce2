# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: all
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
# # Exercises 01 · Rejection sampling
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Loops or arrays, numpy or torch: any form that gives the right values passes.
# No answer needs another one.
#
# The chapter is [01 · Rejection sampling](../chapters/01_rejection_sampling.ipynb).
# $p$ is the target's law, $q$ the draft's, both arrays of shape $(V,)$.

# %%
import numpy as np
from specdec_core.classroom import check

# %% [markdown] question="01.1"
# title: The accept rule
# objective: state with which probability a drafted token is kept
# prerequisite: 01, "How much can be kept?"
# points: 1
# difficulty: 1
# minutes: 2
#
# A token $x$ was drawn from $q$.
# With which probability may it be kept at most, if in the end tokens are to follow $p$?
# You are given the two numbers $p(x)$ and $q(x) > 0$.
#
# hint:
# What is drafted and kept of $x$ must not exceed what is to be emitted of it, $p(x)$.
# And a probability has an upper limit of its own.
#
# hint:
# ```
# if the target likes x at least as well as the draft does: always keep it
# otherwise: keep it in proportion
# ```

# %% answer="01.1"
def accept(p_x, q_x):
    """The probability of keeping a draft token x, from p(x) and q(x)."""
    # BEGIN SOLUTION
    return min(1.0, p_x / q_x)
    # END SOLUTION

# %% check="01.1"
check("01.1", accept)

# %% [markdown] question="01.2"
# title: The residual
# objective: write down the distribution of the correction, its special case included
# prerequisite: 01, "The residual, backwards" and "The residual, forwards"
# points: 2
# difficulty: 2
# minutes: 6
#
# After a rejection the correction is drawn from the residual law.
# Return it as an array of shape $(V,)$ that sums to one.
# If $p$ and $q$ are the same law, nothing can be rejected; return $p$ then, so that rounding can do no harm.
# (A *law* is a distribution over the vocabulary.)
#
# hint:
# Of each token, accepted drafts have supplied $\min(p, q)$.
# What is still missing?
#
# hint:
# ```
# missing <- for each token: the excess of p over q, or nothing
# total   <- sum of missing
# result  <- missing in units of total; but p where total is zero
# ```

# %% answer="01.2"
def residual(p, q):
    """The law of the correction after a rejection, from two laws of shape (V,)."""
    # BEGIN SOLUTION
    missing = np.maximum(p - q, 0)
    return missing / missing.sum() if missing.sum() > 0 else p.copy()
    # END SOLUTION

# %% check="01.2"
check("01.2", residual)

# %% [markdown] question="01.3"
# title: How often a draft is kept
# objective: compute the acceptance rate of two laws
# prerequisite: 01, "How much can be kept?"
# points: 1
# difficulty: 1
# minutes: 3
#
# A token is drawn from $q$ and tested by the accept rule.
# What is the probability $\beta$ that it is kept, over all tokens that could be drawn?
# Some tokens may have $q(x) = 0$: they are never drawn.
#
# hint:
# A token is drafted with probability $q(x)$ and then kept with probability $\min(1, p(x)/q(x))$.
# Multiply before you add.
#
# hint:
# ```
# beta <- 0
# for each token: add the smaller of the two probabilities
# ```

# %% answer="01.3"
def acceptance_rate(p, q):
    """The probability that a token drawn from q is accepted, from two laws of shape (V,)."""
    # BEGIN SOLUTION
    return float(np.minimum(p, q).sum())
    # END SOLUTION

# %% check="01.3"
check("01.3", acceptance_rate)

# %% [markdown] question="01.4"
# title: One round
# objective: put draw, test and correction together, so that the result follows p exactly
# prerequisite: 01, "\"Lossless\" as a number"
# points: 3
# difficulty: 2
# minutes: 10
#
# A *round* is one drafted token with its test and, if needed, its correction.
# Draw a token from $q$, test it, and correct it if it is rejected.
# Return the pair `(token, accepted)`: the token to emit, and whether it was the draft.
#
# `rng` has two methods: `rng.pick(law)` returns an index drawn from a law,
# and `rng.uniform()` a number $u$ in $[0, 1)$ that you may compare, as in `rng.uniform() < x`.
# The check goes through *every* outcome of these draws and adds up the probabilities,
# so that it knows the law of your answer exactly.
# (Draw in no other way: the check would not see it.)
#
# hint:
# There are at most three draws: the draft, the test, the correction.
# Only the first two always happen.
# The correction has a law of its own, see 01.2.
#
# hint:
# ```
# x <- draw from q
# if a fresh u is below min(1, p(x)/q(x)):  x is emitted, and it was the draft
# otherwise: missing <- positive part of p - q;  emit a draw from missing, divided by its sum
# ```

# %% answer="01.4"
def one_round(p, q, rng):
    """One token that follows p, drafted from q: (token, whether it was the draft)."""
    # BEGIN SOLUTION
    x = rng.pick(q)
    if rng.uniform() < min(1.0, p[x] / q[x]):
        return x, True
    missing = np.maximum(p - q, 0)
    return rng.pick(missing / missing.sum()), False
    # END SOLUTION

# %% check="01.4"
check("01.4", one_round)

# %% [markdown] question="01.5"
# title: A block and its bonus
# objective: verify γ drafts in order and end the step with the target's own token
# prerequisite: 01, "A block of drafts, and the bonus token"
# points: 3
# difficulty: 3
# minutes: 15
#
# Now $\gamma$ drafts at once.
# `drafts[i]` was drawn from `q[i]`; the forward has given `p[i]`, the target's law at the same place,
# and one more row, `p[gamma]`, the law after the last draft.
# So `p` has shape $(\gamma + 1, V)$ and `q` has $(\gamma, V)$; $\gamma$ may be 0.
#
# Test the drafts in order.
# Return the list of the tokens to emit, between 1 and $\gamma + 1$ of them.
# `rng` is that of 01.4.
#
# hint:
# A step ends in one of two ways: at the first rejection, with a correction, or after all drafts, with a bonus token.
# At that last place there was no draft that could have supplied a part of $p$.
#
# hint:
# ```
# for each draft, in order:
#     test it with a fresh u, against its own rows of p and q
#     rejected: stop; the tokens are those accepted so far and a correction
# all accepted: the tokens are all drafts and a draw from the row of p that is left
# ```

# %% answer="01.5"
def block(p, q, drafts, rng):
    """The tokens of one step, from laws p (γ+1, V) and q (γ, V) and γ drafted tokens."""
    # BEGIN SOLUTION
    for i, x in enumerate(drafts):
        if not rng.uniform() < p[i][x] / q[i][x]:
            missing = np.maximum(p[i] - q[i], 0)
            return [*drafts[:i], rng.pick(missing / missing.sum())]
    return [*drafts, rng.pick(p[len(drafts)])]
    # END SOLUTION

# %% check="01.5"
check("01.5", block)

# %% [markdown] question="01.6"
# title: Find the mistake
# objective: say which q the accept rule means once a temperature is used
# prerequisite: 01, "Temperature, top-k and top-p come first"
# points: 2
# difficulty: 2
# minutes: 8
#
# The decoder below runs, never crashes, and writes plausible text.
# It is meant to sample from the target at the temperature `temperature`, which is above zero.
# What it emits does not follow that law.
# Mend the decoder; one line is enough.
# `settle(x, p, q)` is given to you and is right:
# it tests a token `x` that was drawn from `q` against `p`, and returns it or a correction.
#
# hint:
# The theorem of the chapter says what $q$ is:
# not "the draft model's law" but the law from which *this* token was drawn.
#
# hint:
# ```
# write down the three laws that the code uses:
#   the one that x is drawn from, the one that stands for p, the one that stands for q
# two of them have to be the same one
# ```

# %% answer="01.6"
def decode(p_logits, q_logits, temperature, rng, settle):
    """One token from the target at this temperature, drafted by the draft model."""

    def softmax(logits):
        e = np.exp(logits - logits.max())
        return e / e.sum()

    # BEGIN SOLUTION
    q = softmax(q_logits / temperature)
    x = rng.pick(q)
    # GIVEN
    # q = softmax(q_logits)
    # x = rng.pick(softmax(q_logits / temperature))
    # END SOLUTION
    p = softmax(p_logits / temperature)
    return settle(x, p, q)

# %% check="01.6"
check("01.6", decode)
