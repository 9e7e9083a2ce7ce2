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
# # Exercises 12 · Lossless, really?
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.

# %%
from specdec_core.classroom import check

# %% [markdown] question="12.1"
# title: The spacing of a format
# objective: say how far apart the numbers of a format lie at a given size
# prerequisite: 12, "Numbers have a spacing"
# points: 2
# difficulty: 1
# minutes: 5
#
# How far is it from `x` $> 0$ to the next larger number of a format whose significand has `bits` bits,
# the leading one included?
# (`x` is neither subnormal nor too large.
# If it is not a number of the format itself, return the distance of the two numbers around it.)
#
# hint:
# Between $2^e$ and $2^{e+1}$ the numbers lie equally far apart.
# How many of them are there?
#
# hint:
# ```
# e       <- the largest whole number with 2^e <= x
# numbers from 2^e up to, and without, 2^(e+1): as many as the bits after the leading one can write
# spacing <- the way from 2^e to 2^(e+1), over that number
# ```

# %% answer="12.1"
def spacing(x, bits):
    """Distance between neighboring numbers around x."""
    # BEGIN SOLUTION
    power = 1.0
    while power > x:
        power /= 2
    while 2 * power <= x:
        power *= 2
    return power / 2 ** (bits - 1)
    # END SOLUTION

# %% check="12.1"
check("12.1", spacing)

# %% [markdown] question="12.2"
# title: How often does a token turn?
# objective: predict a rate from the near ties of a text and the changes of a format
# prerequisite: 12, "Near ties"
# points: 3
# difficulty: 2
# minutes: 10
#
# `gaps` are the differences between the two best logits at many tokens, all $\ge 0$.
# `changes` say by how much such differences changed (with sign) at other places,
# when forwards of another shape were run.
# The changes are small compared with `within`, and positive as often as negative.
# Return the probability per token that the argmax turns, with $f(0)$ taken from the gaps (strictly) below `within`.
#
# hint:
# The formula has two factors and a number.
# Which list gives which factor?
# What has the sign of a change to do with the number?
#
# hint:
# ```
# density <- share of the gaps below within, per unit of logit
# size    <- mean of the changes without their signs
# half of the product
# ```

# %% answer="12.2"
def turn_rate(gaps, changes, within):
    """Probability per token that a change turns the argmax."""
    # BEGIN SOLUTION
    density = sum(gap < within for gap in gaps) / (len(gaps) * within)
    size = sum(abs(change) for change in changes) / len(changes)
    return density * size / 2
    # END SOLUTION

# %% check="12.2"
check("12.2", turn_rate)

# %% [markdown] question="12.3"
# title: Still identical
# objective: measure divergence so that contexts which differ do not count
# prerequisite: 12, "First divergences"
# points: 2
# difficulty: 1
# minutes: 6
#
# `pairs` are pairs of answers to the same prompts, each a list of tokens.
# Which share of the pairs has not diverged within the first `n` $\ge 1$ tokens?
# An answer that ends where the other goes on has diverged from it;
# two that ended earlier at the same place, with the same tokens, have not.
#
# hint:
# One place decides about a pair.
# What do you know about the tokens before it, and what about those after it?
#
# hint:
# ```
# a pair is identical up to n <- the beginnings, of at most n tokens, are equal as lists
# the share of such pairs
# ```

# %% answer="12.3"
def still_identical(pairs, n):
    """Share of the pairs that agree in their first n tokens."""
    # BEGIN SOLUTION
    return sum(list(a[:n]) == list(b[:n]) for a, b in pairs) / len(pairs)
    # END SOLUTION

# %% check="12.3"
check("12.3", still_identical)

# %% [markdown] question="12.4"
# title: Keys in the order of a chain
# objective: lay a branch of a tree out so that attention sums in the order of ordinary decoding
# prerequisite: 12, "The same bits at every width"
# points: 3
# difficulty: 2
# minutes: 10
#
# The cache holds `context` committed tokens in slots 0, 1, …;
# the rows of a draft tree lie after them in the order of the tree, row $i$ in slot `context` $+\, i$.
# `parents[i]` is the parent of row $i$, and `parents[0]` $= -1$.
# Which slots does attention have to read for `row`, and in which order,
# so that its sums run as they would if the path to that row had been decoded token by token?
#
# hint:
# Token by token, there would be no siblings, and every token would stand right after the one it continues.
#
# hint:
# ```
# path <- the row, its parent, the parent's parent, ... up to row 0; then reversed
# all slots of the context, then those of the path
# ```

# %% answer="12.4"
def keys(parents, row, context):
    """Slots whose keys the row attends to, in the order of a chain."""
    # BEGIN SOLUTION
    path = []
    while row >= 0:
        path.insert(0, context + row)
        row = parents[row]
    return list(range(context)) + path
    # END SOLUTION

# %% check="12.4"
check("12.4", keys)
