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
# # Exercises 08 · REST
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# The chapter is [08 · REST](../chapters/08_rest.ipynb).
# A corpus is a list of token ids; a few dozen tokens are enough for every mistake that can be made.

# %%
import numpy as np
from specdec_core.classroom import check

# %% [markdown] question="08.1"
# title: A suffix array
# objective: sort the suffixes of a text
# prerequisite: 08, "All suffixes, sorted"
# points: 1
# difficulty: 1
# minutes: 5
#
# Return the places at which the suffixes of `tokens` begin, in the order of the sorted suffixes.
# (Comparing whole suffixes is slow for a corpus, but right; the package uses a library.)
#
# hint:
# Python compares two lists token by token, and a list that ends comes before one that goes on:
# the order of a dictionary.
#
# hint:
# ```
# places 0, 1, 2, …, sorted by the text from each place on
# ```

# %% answer="08.1"
def suffix_array(tokens):
    """The places where the sorted suffixes begin."""
    # BEGIN SOLUTION
    return sorted(range(len(tokens)), key=lambda start: tokens[start:])
    # END SOLUTION

# %% check="08.1"
check("08.1", suffix_array)

# %% [markdown] question="08.2"
# title: All places at once
# objective: find every occurrence of a string by bisection
# prerequisite: 08, "All suffixes, sorted"
# points: 3
# difficulty: 3
# minutes: 12
#
# `order` is the suffix array of `tokens`.
# The suffixes that begin with `pattern` are neighbors in it: `order[lo:hi]`.
# Return `(lo, hi)`, and `(0, 0)` if there is none.
# With bisection the number of comparisons grows with the logarithm of the corpus;
# the check does not count them, but try it.
#
# hint:
# Compare the pattern with only as many tokens of a suffix as the pattern has.
# Where do the suffixes stop being smaller than it?
# Where do they begin to be larger?
#
# hint:
# ```
# cut <- for a place in the array: the first tokens of its suffix, as many as the pattern has
# lo  <- the first place whose cut is not smaller than the pattern      (halve an interval until it is empty)
# hi  <- the first place whose cut is larger than the pattern
# (0, 0) if these two are the same place
# ```

# %% answer="08.2"
def find(tokens, order, pattern):
    """The half-open range of the suffix array whose suffixes begin with the pattern."""
    # BEGIN SOLUTION
    from bisect import bisect_left, bisect_right

    def cut(start):
        return tokens[start : start + len(pattern)]

    lo, hi = bisect_left(order, pattern, key=cut), bisect_right(order, pattern, key=cut)
    return (lo, hi) if lo < hi else (0, 0)
    # END SOLUTION

# %% check="08.2"
check("08.2", find)

# %% [markdown] question="08.3"
# title: Back off
# objective: find the longest suffix of the context that the corpus has
# prerequisite: 08, "Longest suffix, with back-off"
# points: 2
# difficulty: 2
# minutes: 7
#
# The last `n` tokens of the context, with `n` from `min_n` to `max_n`:
# what is the largest `n` for which they occur in the corpus as one piece?
# Return it, or 0 if not even the last `min_n` tokens occur.
# The context may be shorter than `max_n`.
#
# hint:
# Each step of the search is one token shorter.
# At which end does it lose that token?
#
# hint:
# ```
# for n from the smaller of max_n and the context's length, down to min_n:
#     piece <- the last n tokens of the context
#     n is the answer if piece stands anywhere in the corpus
# ```

# %% answer="08.3"
def match_length(corpus, context, max_n, min_n):
    """Tokens of the longest suffix that occurs in the corpus."""
    # BEGIN SOLUTION
    for n in range(min(max_n, len(context)), min_n - 1, -1):
        piece = context[len(context) - n :]
        if any(corpus[start : start + n] == piece for start in range(len(corpus) - n + 1)):
            return n
    return 0
    # END SOLUTION

# %% check="08.3"
check("08.3", match_length)

# %% [markdown] question="08.4"
# title: The heaviest prefixes
# objective: choose the nodes of a draft tree from what followed the matches
# prerequisite: 08, "A tree of what follows"
# points: 3
# difficulty: 3
# minutes: 12
#
# `continuations` are lists of tokens.
# Every beginning of a continuation, of one token or more, is a node;
# its weight is the number of continuations that begin with it.
# Return the `c` heaviest nodes as a list of pairs `(prefix, weight)`, the heaviest first;
# among equals the shorter comes first, then the one that is smaller in token order.
# If there are fewer than `c`, return all.
#
# hint:
# Count first, choose afterwards.
# Why does a parent always come before its child in this order?
#
# hint:
# ```
# weight <- for each continuation, and each of its beginnings: one more for that beginning
# sort the beginnings by: larger weight, then smaller length, then token order
# the first c, with their weights
# ```

# %% answer="08.4"
def heaviest(continuations, c):
    """The c heaviest prefixes and their weights, in order."""
    # BEGIN SOLUTION
    from collections import Counter

    weight = Counter(tuple(text[:end]) for text in continuations for end in range(1, len(text) + 1))
    ranked = sorted(weight, key=lambda prefix: (-weight[prefix], len(prefix), prefix))
    return [(prefix, weight[prefix]) for prefix in ranked[:c]]
    # END SOLUTION

# %% check="08.4"
check("08.4", heaviest)

# %% [markdown] question="08.5"
# title: The mask of a tree
# objective: let one forward check all branches of a tree
# prerequisite: 08, "Checking a tree in one forward"
# points: 2
# difficulty: 2
# minutes: 7
#
# Row 0 is the root, and `parents[i]` is the row that row $i$ continues, always an earlier one; `parents[0]` is −1.
# Return the mask of tree attention, an array of truth values: `mask[i, j]` says whether row $i$ sees row $j$.
#
# hint:
# A row sees itself and whatever its parent sees.
# In which order do you have to fill the rows?
#
# hint:
# ```
# for each row: start from it and go up, parent by parent, to the root; it sees every row on the way
# ```

# %% answer="08.5"
def tree_mask(parents):
    """(rows, rows) bool: whether row i sees row j."""
    # BEGIN SOLUTION
    mask = np.eye(len(parents), dtype=bool)
    for row in range(1, len(parents)):
        mask[row] |= mask[parents[row]]
    return mask
    # END SOLUTION

# %% check="08.5"
check("08.5", tree_mask)
