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
# # Exercises 09 · Suffix decoding
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# The chapter is [09 · Suffix decoding](../chapters/09_suffix_decoding.ipynb).
# A text is a list of token ids.

# %%
from specdec_core.classroom import check

# %% [markdown] question="09.1"
# title: What followed
# objective: count the followers of a string in a text
# prerequisite: 09, "The plain case: one length, counted"
# points: 1
# difficulty: 1
# minutes: 5
#
# Return a dictionary:
# for each token that stands right after an occurrence of `string` (a list of one token or more), how often it does.
# Occurrences may overlap.
# An occurrence at the very end of the text has no follower.
#
# hint:
# In `7 7 7 7` the string `7 7` occurs three times, and twice something follows.
#
# hint:
# ```
# for each place from which the string and one token more fit:
#     if the string stands there: count the token after it
# ```

# %% answer="09.1"
def followers(tokens, string):
    """token -> how often it followed the string."""
    # BEGIN SOLUTION
    found, n = {}, len(string)
    for end in range(n, len(tokens)):
        if tokens[end - n : end] == string:
            found[tokens[end]] = found.get(tokens[end], 0) + 1
    return found
    # END SOLUTION

# %% check="09.1"
check("09.1", followers)

# %% [markdown] question="09.2"
# title: How long a draft
# objective: turn the length of a match into a number of nodes
# prerequisite: 09, "How long a draft? Which branch?"
# points: 1
# difficulty: 1
# minutes: 3
#
# After a match of `match` tokens a draft may have `factor` times as many nodes, plus `offset`,
# rounded down to whole nodes, but never more than `most` and never fewer than none.
# The offset may be negative.
#
# hint:
# Three bounds act on one number.
# Which of them is below it?
#
# hint:
# ```
# nodes <- factor times match, plus offset, without its fraction
# not above most, and not below none
# ```

# %% answer="09.2"
def allowed(match, factor, offset, most):
    """Nodes that a draft may have."""
    # BEGIN SOLUTION
    return max(0, min(most, int(factor * match + offset)))
    # END SOLUTION

# %% check="09.2"
check("09.2", allowed)

# %% [markdown] question="09.3"
# title: Best first
# objective: grow a draft tree by the probability of its paths
# prerequisite: 09, "How long a draft? Which branch?"
# points: 4
# difficulty: 3
# minutes: 18
#
# `followers(path)` is the memory.
# For a tuple of tokens, at first the empty one,
# it returns a dictionary with the counts of what followed *the match and this path*.
# A node is a path.
# Its probability is the product, from the root down,
# of the count of each token over the counts of all that followed there.
#
# Take the likeliest open node, again and again.
# At first the followers of the match are open; when a node is taken, its followers open.
# Leave out nodes less likely than `min_prob`.
# Return at most `nodes` pairs `(path, probability)` in the order in which they were taken.
#
# hint:
# Keep the open nodes in a list of `(probability, path)`.
# Why can a child never be likelier than its parent, and what follows for the order?
#
# hint:
# ```
# open <- the followers of the empty path, with their shares
# while there is an open node and the draft is not full:
#     take the likeliest one out of open, and into the draft
#     open its followers: its own probability times their shares, unless that is below min_prob
# ```

# %% answer="09.3"
def grow(followers, nodes, min_prob):
    """(path, probability) of the likeliest nodes, best first."""
    # BEGIN SOLUTION
    draft, waiting = [], [((), 1.0)]
    while waiting and len(draft) <= nodes:
        node = max(waiting, key=lambda pair: pair[1])
        waiting.remove(node)
        draft.append(node)
        path, probability = node
        found = followers(path)
        total = sum(found.values())
        below = [((*path, token), probability * count / total) for token, count in found.items()]
        waiting += [pair for pair in below if pair[1] >= min_prob]
    return draft[1 : nodes + 1]
    # END SOLUTION

# %% check="09.3"
check("09.3", grow)

# %% [markdown] question="09.4"
# title: A memory with a bound
# objective: forget the oldest answers first
# prerequisite: 09, "What remembering costs"
# points: 2
# difficulty: 2
# minutes: 7
#
# `past` holds the answers that are remembered, the oldest first, each a list of tokens.
# A new `answer` is added at the end.
# Then the oldest go until there are at most `max_requests` answers *and* at most `max_tokens` tokens in all;
# if the new one alone is too long, it goes too.
# Return the list that is left, and do not change `past`.
#
# hint:
# One loop can watch both bounds.
# When does it have to end at the latest?
#
# hint:
# ```
# kept <- a copy of past, and the new answer at its end
# while kept is not empty and one of the two bounds is broken: drop the first
# ```

# %% answer="09.4"
def bounded(past, answer, max_requests, max_tokens):
    """The answers that are remembered."""
    # BEGIN SOLUTION
    kept = [*past, answer]
    while kept and (len(kept) > max_requests or sum(map(len, kept)) > max_tokens):
        kept = kept[1:]
    return kept
    # END SOLUTION

# %% check="09.4"
check("09.4", bounded)
