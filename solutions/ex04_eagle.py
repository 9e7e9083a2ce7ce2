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
# # Exercises 04 · EAGLE
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# EAGLE drafts on *features*, the target's last hidden states.
# Here a feature is one number; what matters is which token it is paired with.
# The value of a node of a draft tree is the product of the confidences on its path, its own included.

# %%
from specdec_core.classroom import check

# %% [markdown] question="04.1"
# title: What the head is trained on
# objective: align features and tokens, so that the token that was drawn is known
# prerequisite: 04, "Continue states, not tokens"
# points: 2
# difficulty: 2
# minutes: 7
#
# `features[i]` is the target's feature at place `i`, after it has read `tokens[i]`.
# The head is to predict the next feature.
# It is given the feature at a place *and* the token that was drawn after it,
# for the feature alone does not say which of the likely tokens was drawn.
# Return the list of all triples `(feature, token, target)`.
#
# hint:
# From place `i` on, which token was drawn from the distribution that feature `i` gives?
# And which feature results from reading that token?
#
# hint:
# ```
# for each place but the last:
#     the feature there, the token one place further on, the feature one place further on
# ```

# %% answer="04.1"
def examples(features, tokens):
    """(feature, token, target) for each place that has a next one."""
    # BEGIN SOLUTION
    return list(zip(features, tokens[1:], features[1:]))
    # END SOLUTION

# %% check="04.1"
check("04.1", examples)

# %% [markdown] question="04.2"
# title: Rerank
# objective: keep the nodes of a tree that are worth most
# prerequisite: 04, "A tree that follows the confidence"
# points: 2
# difficulty: 2
# minutes: 8
#
# EAGLE-2 grows a tree that is too large and keeps `keep` of its nodes,
# those with the largest values (Li and others, 2024, arXiv:2406.16858).
# Row 0 is the root; `parents[i]` is the row that row `i` continues, an earlier one,
# and `confidence[i]` is the probability that the head gives its token.
# Return the rows that are kept besides the root, in rising order; all of them if there are fewer.
#
# hint:
# Why does a node that is kept never lose its parent, if values are compared and not confidences?
#
# hint:
# ```
# value of the root <- 1; of a row <- its parent's value times its own confidence
# the rows but the root, by value, largest first; the first so many; sorted by number
# ```

# %% answer="04.2"
def rerank(parents, confidence, keep):
    """The rows of the largest values, in rising order."""
    # BEGIN SOLUTION
    value = list(confidence)
    for row in range(1, len(parents)):
        value[row] *= value[parents[row]]
    ranked = sorted(range(1, len(parents)), key=value.__getitem__, reverse=True)
    return sorted(ranked[:keep])
    # END SOLUTION

# %% check="04.2"
check("04.2", rerank)

# %% [markdown] question="04.3"
# title: The next layer
# objective: grow a tree where the head is confident
# prerequisite: 04, "A tree that follows the confidence"
# points: 3
# difficulty: 3
# minutes: 10
#
# `layer` is a list of pairs `(path, value)`, the nodes that are being continued.
# `head(path)` gives the head's distribution after a path: a dictionary from token to probability.
# Return the `k` children of the largest value among *all* children of *all* these nodes,
# as pairs `(path, value)`, the best first.
# A child's path is its parent's with the token appended.
#
# hint:
# One list of all children comes first; choosing comes second.
#
# hint:
# ```
# children <- for each node of the layer, for each token of the head's distribution after it:
#                 the path with the token, the node's value times the probability
# by value, largest first; the first k
# ```

# %% answer="04.3"
def next_layer(layer, head, k):
    """The k best children of a layer, best first."""
    # BEGIN SOLUTION
    children = []
    for path, value in layer:
        children += [((*path, token), value * share) for token, share in head(path).items()]
    return sorted(children, key=lambda child: child[1], reverse=True)[:k]
    # END SOLUTION

# %% check="04.3"
check("04.3", next_layer)
