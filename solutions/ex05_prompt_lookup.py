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
# # Exercises 05 · Prompt lookup
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# The chapter is [05 · Prompt lookup](../chapters/05_prompt_lookup.ipynb).
# A text is a list of token ids.

# %%
from specdec_core.classroom import check

# %% [markdown] question="05.1"
# title: Where the suffix stands
# objective: find all earlier occurrences of the context's last n tokens
# prerequisite: 05, "The matcher, in the open"
# points: 1
# difficulty: 1
# minutes: 4
#
# Return the list of all places $i$, in rising order,
# at which the last `n` tokens of the text begin *earlier* in the text.
# The suffix itself is not a match: nothing follows it.
# A match may overlap it.
# If the text has `n` tokens or fewer, there is none.
#
# hint:
# In the text `7 7 7 7` the last two tokens stand at 0, at 1, and at 2.
# Two of these are matches.
#
# hint:
# ```
# suffix <- last n tokens
# for each place i from which n tokens fit, and at least one more after them:
#     keep i if the n tokens from i on are the suffix
# ```

# %% answer="05.1"
def matches(tokens, n):
    """The places where the last n tokens begin earlier in the text."""
    # BEGIN SOLUTION
    suffix = tokens[len(tokens) - n :]
    return [i for i in range(len(tokens) - n) if tokens[i : i + n] == suffix]
    # END SOLUTION

# %% check="05.1"
check("05.1", matches)

# %% [markdown] question="05.2"
# title: The draft
# objective: write prompt lookup: longest suffix first, last match, its continuation
# prerequisite: 05, "One formula"
# points: 3
# difficulty: 2
# minutes: 12
#
# Look up the last `max_n` tokens; if they stand nowhere earlier, one token fewer, and so on down to `min_n`.
# The first length that has a match decides: of its matches take the **last**,
# and return at most `num_tokens` of the tokens that follow it.
# If nothing matches, return the empty list.
#
# hint:
# The search for one length is 05.1; write it out again here.
# What do you know about the largest length that makes sense in a short text?
#
# hint:
# ```
# for n from the smaller of max_n and (length - 1) down to min_n:
#     go through the places from the right
#     at the first one where the n tokens are the suffix: the draft is what follows them, cut to num_tokens
# no draft
# ```

# %% answer="05.2"
def find_draft(tokens, max_n, min_n, num_tokens):
    """The continuation of the last match of the longest suffix that has one."""
    # BEGIN SOLUTION
    for n in range(min(max_n, len(tokens) - 1), min_n - 1, -1):
        suffix = tokens[len(tokens) - n :]
        for i in range(len(tokens) - n - 1, -1, -1):
            if tokens[i : i + n] == suffix:
                return tokens[i + n : i + n + num_tokens]
    return []
    # END SOLUTION

# %% check="05.2"
check("05.2", find_draft)

# %% [markdown] question="05.3"
# title: The greedy check
# objective: let the target check a draft, and count what a step emits
# prerequisite: 05, "Why it is lossless"
# points: 2
# difficulty: 2
# minutes: 6
#
# One forward over a draft of $\gamma$ tokens gives `best`, a list of $\gamma + 1$ tokens:
# `best[i]` is the target's own choice after the context and the first `i` drafted tokens.
# Return the list of the tokens that the step emits.
#
# hint:
# If the first drafted token is not the target's choice, what good is `best[1]`?
# And `best[0]`?
#
# hint:
# ```
# k <- how many drafted tokens agree with the target's choices, counted from the left, up to the first that does not
# emit those k, and then the target's choice at the next place
# ```

# %% answer="05.3"
def greedy_verify(draft, best):
    """The tokens of a step: the accepted part of the draft and the target's own token after it."""
    # BEGIN SOLUTION
    k = 0
    while k < len(draft) and draft[k] == best[k]:
        k += 1
    return [*draft[:k], best[k]]
    # END SOLUTION

# %% check="05.3"
check("05.3", greedy_verify)

# %% [markdown] question="05.4"
# title: An index instead of a scan
# objective: replace the scan by a dictionary that grows with the text
# prerequisite: 05, "What a lookup costs"
# points: 2
# difficulty: 2
# minutes: 8
#
# Return a dictionary: its keys are the n-grams of the text as tuples,
# its values the place of the token that *follows* the n-gram.
# If one occurs several times, the last occurrence wins.
# The n-gram at the very end has no follower; its last occurrence does not count.
#
# hint:
# Walk over the followers instead of the n-grams: the token at place $f$ follows the $n$ tokens before it.
#
# hint:
# ```
# for each place f that has n tokens before it:
#     key <- the n tokens before f
#     the entry of key becomes f, whatever it was
# ```

# %% answer="05.4"
def index(tokens, n):
    """n-gram -> place of the token that follows its last occurrence."""
    # BEGIN SOLUTION
    return {tuple(tokens[f - n : f]): f for f in range(n, len(tokens))}
    # END SOLUTION

# %% check="05.4"
check("05.4", index)

# %% [markdown] question="05.5"
# title: When does it pay?
# objective: turn hit rate, accepted tokens and forward cost into a speedup
# prerequisite: 05, "When does it pay? A miss is free, a wrong draft is not"
# points: 2
# difficulty: 2
# minutes: 6
#
# A share `h` of the steps finds a draft.
# On average such a step emits `a` accepted tokens and the target's own,
# and its forward takes `r` times as long as that of one token.
# A step without a draft is an ordinary one.
# What is the speedup over ordinary decoding?
# (Lookups cost nothing here.)
#
# hint:
# Count tokens and time of an average step, each in units of an ordinary step, before you divide.
#
# hint:
# ```
# tokens <- one from every step, and what hits add, as often as they come
# time   <- one for every step, and the extra time of hits, as often as they come
# ```

# %% answer="05.5"
def speedup(h, a, r):
    """Speed with prompt lookup over speed without."""
    # BEGIN SOLUTION
    return (1 + h * a) / (1 + h * (r - 1))
    # END SOLUTION

# %% check="05.5"
check("05.5", speedup)

# %% [markdown] question="05.6"
# title: Copy with overlap
# objective: draft beyond the end of the text when it repeats itself
# prerequisite: 05, "First or last?"
# points: 2
# difficulty: 3
# minutes: 8
#
# A match has been found, and its continuation begins at place `start`.
# Draft exactly `num_tokens` tokens from there.
# If the copy reaches the end of the text, it continues in what it has just written,
# as in the compression method of Lempel and Ziv.
# Do not change `tokens`.
#
# hint:
# From the text `1 2 3` with `start` 1, five tokens are `2 3 2 3 2`.
# What is the period, and why?
#
# hint:
# ```
# written <- a copy of the text
# num_tokens times: append the token that stands one place further than the one before, beginning at start
# the draft is what was appended
# ```

# %% answer="05.6"
def copy(tokens, start, num_tokens):
    """num_tokens tokens read from start on, the text being continued by what is read."""
    # BEGIN SOLUTION
    written = list(tokens)
    for i in range(start, start + num_tokens):
        written.append(written[i])
    return written[len(tokens) :]
    # END SOLUTION

# %% check="05.6"
check("05.6", copy)
