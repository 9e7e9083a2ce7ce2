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
# # Exercises 06 · Jacobi decoding
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# The chapter is [06 · Jacobi decoding](../chapters/06_jacobi.ipynb).
# A text is a list of token ids.
# Where a function gets `best`, that is the target: `best(tokens)` is its greedy choice after these tokens.

# %%
from specdec_core.classroom import check

# %% [markdown] question="06.1"
# title: One round
# objective: update a whole guess at once
# prerequisite: 06, "An answer is the solution of m equations"
# points: 2
# difficulty: 1
# minutes: 6
#
# `guess` holds $m$ tokens for the $m$ places after `context`.
# Return the guess of the next round, $y^{t+1} = F(y^t)$: a list of $m$ tokens.
#
# hint:
# What does the equation of place $i$ have on its right-hand side?
# All of it comes from round $t$.
#
# hint:
# ```
# for each place i from 0 to m - 1:
#     the new token is the target's choice after the context and the first i tokens of the OLD guess
# ```

# %% answer="06.1"
def jacobi_round(context, guess, best):
    """The guess of the next round, as long as this one."""
    # BEGIN SOLUTION
    return [best(context + guess[:i]) for i in range(len(guess))]
    # END SOLUTION

# %% check="06.1"
check("06.1", jacobi_round)

# %% [markdown] question="06.2"
# title: What is settled
# objective: read from two rounds which tokens are final
# prerequisite: 06, "At most m rounds"
# points: 2
# difficulty: 2
# minutes: 6
#
# `new` is the round after `old`, both of $m \ge 1$ tokens.
# How many tokens of `new`, counted from the left, are *known* to be those of the answer?
# The decoder does not know the answer; it can only compare the two.
#
# hint:
# A token is right if it was computed from right ones.
# The first token of `new` was computed from the context alone.
#
# hint:
# ```
# k <- how many tokens at the left are the same in both
# those are known, and one more, if there is one more
# ```

# %% answer="06.2"
def settled(old, new):
    """How many tokens at the left of `new` are known to be right."""
    # BEGIN SOLUTION
    k = 0
    while k < len(old) and old[k] == new[k]:
        k += 1
    return min(k + 1, len(new))
    # END SOLUTION

# %% check="06.2"
check("06.2", settled)

# %% [markdown] question="06.3"
# title: To the fixed point
# objective: solve the system, and count rounds as the theorem does
# prerequisite: 06, "At most m rounds"
# points: 3
# difficulty: 2
# minutes: 10
#
# Do rounds until the guess is the answer.
# Return the pair `(tokens, rounds)`: the $m$ tokens, and the smallest $t$ for which $y^t$ is the answer.
# A last round that changes nothing confirms it and is not counted;
# a guess that was right from the start takes 0 rounds.
#
# hint:
# You cannot know that a round was the last one before you have seen the next.
# Count accordingly.
#
# hint:
# ```
# t <- 0
# repeat:
#     next <- one round from the guess
#     if it changes nothing: the guess is the answer, reached after t rounds
#     the guess becomes next, and t grows by one
# ```

# %% answer="06.3"
def solve(context, guess, best):
    """The greedy answer of len(guess) tokens, and the Jacobi rounds that it took."""
    # BEGIN SOLUTION
    rounds = 0
    while True:
        after = [best([*context, *guess[:place]]) for place in range(len(guess))]
        if after == guess:
            return guess, rounds
        guess, rounds = after, rounds + 1
    # END SOLUTION

# %% check="06.3"
check("06.3", solve)

# %% [markdown] question="06.4"
# title: The hidden pairs
# objective: say which two tokens of two rounds belong together
# prerequisite: 06, "The 2-gram hidden between two rounds"
# points: 2
# difficulty: 2
# minutes: 6
#
# `old` and `new` are two rounds in a row, `last` the last token of the context.
# Return the list of all $m$ pairs $(a, b)$ in which the target chose $b$ *right after* $a$,
# in the order of their places.
#
# hint:
# Ask of each token of `new`: which token was the last one that the target had read when it chose this one?
#
# hint:
# ```
# for each place i: pair the new token at i with what stood before it in the round it was computed from
# what stood before place 0 is the end of the context
# ```

# %% answer="06.4"
def pairs(last, old, new):
    """The 2-grams hidden between two rounds."""
    # BEGIN SOLUTION
    return list(zip([last, *old], new))
    # END SOLUTION

# %% check="06.4"
check("06.4", pairs)
