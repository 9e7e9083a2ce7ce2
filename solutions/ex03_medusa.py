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
# # Exercises 03 · Multi-token prediction and Medusa
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# A draft tree is given by rows: row 0 is the root, the last token of the text;
# `parents[i]` is the row that row $i$ continues, always an earlier one, and `parents[0]` is −1.

# %%
import numpy as np
from specdec_core.classroom import check

# %% [markdown] question="03.1"
# title: Expected tokens of a tree
# objective: weigh a tree by its paths
# prerequisite: 03, "What a tree is worth"
# points: 2
# difficulty: 2
# minutes: 7
#
# `shares[i]` is the probability that the target chooses row $i$'s token,
# given that it has chosen those above it; `shares[0]` is 1.
# Siblings hold different tokens, so the target chooses at most one of them.
# How many tokens does a step write on average, the target's own included?
#
# hint:
# The walk through the tree reaches at most one row of each depth.
# With which probability does it reach row $i$?
#
# hint:
# ```
# reach of the root is 1
# reach of any other row: that of its parent times its own share       (parents come first)
# every row that is reached stands for one token written, the root for the target's own: add up all reaches
# ```

# %% answer="03.1"
def expected_tokens(parents, shares):
    """Expected tokens of a step that checks this tree."""
    # BEGIN SOLUTION
    reach = list(shares)
    for row in range(1, len(parents)):
        reach[row] *= reach[parents[row]]
    return sum(reach)
    # END SOLUTION

# %% check="03.1"
check("03.1", expected_tokens)

# %% [markdown] question="03.2"
# title: The best tree
# objective: choose the nodes of a Medusa tree by measured accuracy
# prerequisite: 03, "Which tree?"
# points: 3
# difficulty: 3
# minutes: 15
#
# Medusa's heads guess independently: `accuracy[i, r]` is the measured share of steps in which guess $r$
# (0 the best) of head $i$ was right, an array of shape (heads, ranks).
# A node at depth $d$ is a path of $d$ ranks, one for each of the first $d$ heads;
# its worth is the product of their accuracies.
# Return the `nodes` paths that are worth most, the best first, each as a list of ranks.
#
# hint:
# There are few enough paths to write all of them down: `itertools.product` lists those of one length.
# Why do the best ones form a tree, whatever the accuracies are?
#
# hint:
# ```
# paths <- for each depth from 1 to the number of heads: every combination of that many ranks
# worth of a path <- for each head on it, the accuracy of the rank taken; all multiplied
# sort by worth, the largest first; the first so many
# ```

# %% answer="03.2"
def best_paths(accuracy, nodes):
    """The paths that are worth most, best first."""
    # BEGIN SOLUTION
    chosen, waiting = [], [((), 1.0)]
    while waiting and len(chosen) <= nodes:
        path, worth = max(waiting, key=lambda entry: entry[1])
        waiting.remove((path, worth))
        chosen.append(path)
        if len(path) < len(accuracy):
            waiting += [((*path, rank), worth * share) for rank, share in enumerate(accuracy[len(path)])]
    return chosen[1 : nodes + 1]
    # END SOLUTION

# %% check="03.2"
check("03.2", best_paths)

# %% [markdown] question="03.3"
# title: The greedy walk
# objective: check a tree of drafts against the target's choices
# prerequisite: 03, "Checking a tree"
# points: 2
# difficulty: 2
# minutes: 8
#
# One forward has given `best`: `best[i]` is the target's choice after row $i$ and all above it.
# Walk from the root to the child that holds the target's choice, and on from there, as long as there is such a child.
# Return the tokens that the step emits.
# (Siblings hold different tokens.)
#
# hint:
# At each row the target's choice is emitted, with or without a child that holds it.
# What does such a child change?
#
# hint:
# ```
# at <- the root
# repeat: emit the target's choice at `at`
#         if a child of `at` holds that token: go there; otherwise this was the last token
# ```

# %% answer="03.3"
def walk(tokens, parents, best):
    """The tokens of a step."""
    # BEGIN SOLUTION
    child = {(parents[row], tokens[row]): row for row in range(1, len(tokens))}
    emitted, row = [], 0
    while row is not None:
        emitted.append(best[row])
        row = child.get((row, best[row]))
    return emitted
    # END SOLUTION

# %% check="03.3"
check("03.3", walk)

# %% [markdown] question="03.4"
# title: Typical acceptance
# objective: write the rule that is not lossless, and see what it asks of a token
# prerequisite: 03, "Typical acceptance is not lossless"
# points: 2
# difficulty: 2
# minutes: 8
#
# Medusa's *typical acceptance* (Cai and others, 2024, arXiv:2401.10774) keeps a drafted token $x$
# if $p(x) > \min(\epsilon,\ \delta\, e^{-H(p)})$.
# Here $H(p) = -\sum_x p(x) \ln p(x)$ is the entropy of the target's law $p$, its distribution of the next token.
# Return for each token of the vocabulary whether it would be kept.
# Some tokens may have $p(x) = 0$; they add nothing to the entropy.
#
# hint:
# $p \ln p$ goes to 0 with $p$, but a computer does not know that.
#
# hint:
# ```
# entropy   <- over the tokens with p above zero
# threshold <- the smaller of epsilon and delta times e to the minus entropy
# compare every p with it
# ```

# %% answer="03.4"
def typical(p, epsilon, delta):
    """(V,) bool: which tokens typical acceptance would keep."""
    # BEGIN SOLUTION
    positive = p[p > 0]
    entropy = -(positive * np.log(positive)).sum()
    return p > min(epsilon, delta * np.exp(-entropy))
    # END SOLUTION

# %% check="03.4"
check("03.4", typical)
