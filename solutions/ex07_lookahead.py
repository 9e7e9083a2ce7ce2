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
# # Exercises 07 · Lookahead decoding
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# The chapter is [07 · Lookahead decoding](../chapters/07_lookahead.ipynb).
# The window has $N - 1$ levels, oldest first, and $W$ columns; up to $G$ candidates are checked beside it.

# %%
import numpy as np
from specdec_core.classroom import check

# %% [markdown] question="07.1"
# title: Rows of a step
# objective: say how wide the forward of a lookahead step is
# prerequisite: 07, "The mask"
# points: 1
# difficulty: 1
# minutes: 3
#
# How many rows does a full step have, the input token included?
#
# hint:
# The input token is a row of the window, and the first token of every candidate is the input token.
#
# hint:
# ```
# rows of the window: columns times levels
# rows of the candidates: how many, times how many tokens of each are not the input token
# ```

# %% answer="07.1"
def rows(W, N, G):
    """Rows of the forward of a full step."""
    # BEGIN SOLUTION
    return (W + G) * (N - 1)
    # END SOLUTION

# %% check="07.1"
check("07.1", rows)

# %% [markdown] question="07.2"
# title: The mask of the window
# objective: derive which rows of the window a row may see
# prerequisite: 07, "The mask"
# points: 3
# difficulty: 3
# minutes: 15
#
# Return the mask among the $W(N-1)$ rows of the window as an array of booleans:
# `mask[i, j]` says whether row $i$ sees row $j$.
# The rows come level by level: (level $j$, column $i$) is row $jW + i$, and the input token is row 0.
#
# One sentence decides it: *a row sees the text that it continues, and itself.*
# (Level 0, column $i$) continues (level 0, column $i - 1$);
# (level $j$, column $i$) continues (level $j - 1$, column $i$).
#
# hint:
# Each row continues exactly one other row, and what that one sees, it sees as well.
# Which row does row $r$ continue, by number?
#
# hint:
# ```
# for each row, in order:
#     it sees itself
#     row 0 continues nothing
#     a row of level 0 continues the row before it; any other row the one W rows before it
#     it sees all that this row sees
# ```

# %% answer="07.2"
def window_mask(W, N):
    """(W(N-1), W(N-1)) bool: whether row i sees row j."""
    # BEGIN SOLUTION
    mask = np.eye(W * (N - 1), dtype=bool)
    for row in range(1, len(mask)):
        mask[row] |= mask[row - 1 if row < W else row - W]
    return mask
    # END SOLUTION

# %% check="07.2"
check("07.2", window_mask)

# %% [markdown] question="07.3"
# title: The n-grams of a step
# objective: read what one forward has made of the window
# prerequisite: 07, "From pairs to n-grams"
# points: 2
# difficulty: 1
# minutes: 5
#
# `levels` is the window: $N - 1$ lists of $W$ tokens, oldest first.
# `made` holds the $W$ tokens that the forward has chosen after the newest level, one per column.
# Return the $W$ n-grams, in the order of the columns.
#
# hint:
# Along which direction of the window was each token chosen after the one before it?
#
# hint:
# ```
# for each column: its tokens from the oldest level to the newest, and then the token made for it
# ```

# %% answer="07.3"
def ngrams(levels, made):
    """W n-grams of N tokens."""
    # BEGIN SOLUTION
    return list(zip(*levels, made))
    # END SOLUTION

# %% check="07.3"
check("07.3", ngrams)

# %% [markdown] question="07.4"
# title: The pool
# objective: keep the most recent n-grams by their first token
# prerequisite: 07, "One step, in the open"
# points: 2
# difficulty: 2
# minutes: 8
#
# The pool is a dictionary: under each first token it has the list of its n-grams *without* that token,
# as tuples, the most recent last.
# Put `gram` into it and return the new pool; do not change the one you were given.
# If the n-gram is there already, it becomes the most recent one.
# At most `size` of them are kept for one first token.
#
# hint:
# Copy the one list that changes.
# What has to happen before you append to it?
#
# hint:
# ```
# kept <- what stands under the first token, without what we are about to add
# append the rest of the n-gram; if there are too many now, the front ones go
# a new dictionary: the old entries, and this list under the first token
# ```

# %% answer="07.4"
def remember(pool, gram, size):
    """The pool with one more n-gram."""
    # BEGIN SOLUTION
    first, rest = gram[0], tuple(gram[1:])
    kept = [other for other in pool.get(first, []) if other != rest]
    return {**pool, first: [*kept, rest][-size:]}
    # END SOLUTION

# %% check="07.4"
check("07.4", remember)

# %% [markdown] question="07.5"
# title: Step compression
# objective: compute S from α, f, N and the number of candidates
# prerequisite: 07, "How many tokens per step? E and S"
# points: 2
# difficulty: 2
# minutes: 8
#
# One step in $f$ has good drafts: $b$ of them, each of $N - 1$ tokens.
# They match independently, token by token, with probability $\alpha$.
# The other steps write one token.
# What is $S$, the average number of tokens per step?
#
# hint:
# First $E$, the tokens of a good step: one, and one more for each depth $i$ that at least one draft reaches.
# All $b$ fall short of depth $i$ with probability $(1 - \alpha^i)^b$.
#
# hint:
# ```
# E <- 1
# for each depth i from 1 to N - 1: add the probability that not all b drafts fall short of it
# S <- tokens of f steps, one of them good, divided by f
# ```

# %% answer="07.5"
def step_compression(alpha, f, N, b):
    """Tokens per step."""
    # BEGIN SOLUTION
    good = 1 + sum(1 - (1 - alpha**depth) ** b for depth in range(1, N))
    return (f - 1 + good) / f
    # END SOLUTION

# %% check="07.5"
check("07.5", step_compression)
