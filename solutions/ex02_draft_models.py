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
# # Exercises 02 · Draft models
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# Every token of a draft is accepted with probability $\alpha$, given that those before it were;
# $\gamma$ tokens are drafted in a step, and a call of the draft model takes $c$ times as long as one of the target.

# %%
from specdec_core.classroom import check

# %% [markdown] question="02.1"
# title: Expected tokens
# objective: tell the tokens that a step writes from those that are accepted
# prerequisite: 02, "How many tokens per step?"
# points: 1
# difficulty: 1
# minutes: 5
#
# How many tokens does a step write on average, the target's own included?
# Your answer must also hold for $\alpha = 1$.
# (For $\alpha = 0.8$ and $\gamma = 4$ there are two numbers that are often confused, 3.36 and 2.36.)
#
# hint:
# The expected number of accepted tokens is the sum over $i$ of the probability that at least $i$ are accepted.
#
# hint:
# ```
# one for the target's own token
# for each depth from 1 to gamma: add the probability that this depth is reached, alpha multiplied so many times
# ```

# %% answer="02.1"
def expected_tokens(alpha, gamma):
    """Expected tokens of a step."""
    # BEGIN SOLUTION
    return sum(alpha**depth for depth in range(gamma + 1))
    # END SOLUTION

# %% check="02.1"
check("02.1", expected_tokens)

# %% [markdown] question="02.2"
# title: Speedup
# objective: weigh tokens against the time of drafting
# prerequisite: 02, "The speedup, and the best γ"
# points: 2
# difficulty: 2
# minutes: 6
#
# By what factor is decoding faster than without a draft,
# if the target's forward over all drafts takes no longer than an ordinary one?
#
# hint:
# Divide the tokens of one step by its time, in units of an ordinary step.
#
# hint:
# ```
# tokens <- those of 02.1
# time   <- gamma calls of the draft model, c each, and one of the target
# ```

# %% answer="02.2"
def speedup(alpha, gamma, c):
    """Speed over that of ordinary decoding."""
    # BEGIN SOLUTION
    written = 1.0
    for _ in range(gamma):
        written = 1.0 + alpha * written
    return written / (1.0 + gamma * c)
    # END SOLUTION

# %% check="02.2"
check("02.2", speedup)

# %% [markdown] question="02.3"
# title: The best γ
# objective: choose a draft length, or none at all
# prerequisite: 02, "The speedup, and the best γ"
# points: 2
# difficulty: 2
# minutes: 7
#
# Which $\gamma$ from 0 to `most` gives the largest speedup in the sense of 02.2?
#
# hint:
# Try all of them.
# With which $\gamma$ is the speedup exactly 1?
#
# hint:
# ```
# for each gamma from 0 to most, both included: its speedup
# the gamma of the largest
# ```

# %% answer="02.3"
def best_gamma(alpha, c, most):
    """The draft length with the largest speedup."""
    # BEGIN SOLUTION
    def value(gamma):
        return sum(alpha**depth for depth in range(gamma + 1)) / (gamma * c + 1)

    return max(range(most + 1), key=value)
    # END SOLUTION

# %% check="02.3"
check("02.3", best_gamma)

# %% [markdown] question="02.4"
# title: What α really is
# objective: measure acceptance by depth
# prerequisite: 02, "What α really is"
# points: 3
# difficulty: 2
# minutes: 9
#
# `accepted` says for each step how many of its $\gamma$ drafts were accepted, from the left.
# Return $\gamma$ numbers.
# The $i$-th is the share of steps that accepted token $i$, among those that *tested* it,
# that is, that accepted all tokens before it.
# Where a depth was never tested, return 0.
#
# hint:
# A step that accepted three of four drafts tested all four of them.
#
# hint:
# ```
# reached[i] <- the number of steps with at least i accepted, for i from 0 to gamma
# the share at depth i is reached[i] over reached[i - 1], or 0 where nothing reached i - 1
# ```

# %% answer="02.4"
def alpha_by_depth(accepted, gamma):
    """γ conditional acceptance rates, the nearest token first."""
    # BEGIN SOLUTION
    reached = [sum(kept >= depth for kept in accepted) for depth in range(gamma + 1)]
    return [further / here if here else 0.0 for here, further in zip(reached, reached[1:])]
    # END SOLUTION

# %% check="02.4"
check("02.4", alpha_by_depth)

# %% [markdown] question="02.5"
# title: The draft model's cache
# objective: keep two caches in step
# prerequisite: 02, "Two caches"
# points: 3
# difficulty: 3
# minutes: 10
#
# Before a step the draft model's cache holds all of the text but the last token.
# It reads that token, drafts, reads its own draft, drafts the next, and so on,
# until it has drafted $\gamma \ge 1$ tokens.
# Of these the target accepts the first $k$ and adds a token of its own.
#
# Before the next step the cache must again hold a beginning of the text and nothing else.
# Return the pair `(cut, read)`: how many tokens have to be cut from its end,
# and how many tokens of the new text, *its last token included*, the draft model has to read before it can draft again.
#
# hint:
# How many of its own drafts has the draft model read?
# Write down cache and text for $\gamma = 2$ and $k$ = 0, 1, 2.
#
# hint:
# ```
# in the cache: the old text, and all drafts but the last
# cut  <- those of them that were rejected
# read <- the tokens of the new text that are not in what is left of the cache
# ```

# %% answer="02.5"
def draft_cache(gamma, k):
    """(tokens to cut, tokens to read) of the draft model's cache."""
    # BEGIN SOLUTION
    held = gamma - 1
    kept = min(held, k)
    return held - kept, k + 1 - kept
    # END SOLUTION

# %% check="02.5"
check("02.5", draft_cache)
