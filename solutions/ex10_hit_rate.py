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
# # Exercises 10 · The hit-rate model
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# A step is a *hit* if the memory had a draft for it.
# *Coverage* is the share of the steps that are hits.
# *Regularity* is the probability that a drafted token is accepted,
# given a hit and that all drafted tokens before it were accepted.

# %%
from specdec_core.classroom import check

# %% [markdown] question="10.1"
# title: Two rates from a log
# objective: measure coverage and regularity apart
# prerequisite: 05, "How long a suffix?"
# points: 2
# difficulty: 1
# minutes: 6
#
# For each step of a run, `drafted` says how many tokens were drafted (0 if the memory had nothing),
# and `accepted` how many of them were accepted.
# Return the pair `(coverage, regularity)`, with the regularity of the *first* drafted token.
# If nothing was ever drafted, the regularity is 0.
#
# hint:
# A step without a draft says nothing about how good drafts are.
# Which steps go into which share?
#
# hint:
# ```
# hits       <- the steps in which something was drafted
# coverage   <- hits over all steps
# regularity <- hits with at least one token accepted, over hits
# ```

# %% answer="10.1"
def rates(drafted, accepted):
    """(coverage, regularity of the first drafted token)."""
    # BEGIN SOLUTION
    hits = [kept for found, kept in zip(drafted, accepted) if found]
    regularity = sum(kept > 0 for kept in hits) / len(hits) if hits else 0.0
    return len(hits) / len(drafted), regularity
    # END SOLUTION

# %% check="10.1"
check("10.1", rates)

# %% [markdown] question="10.2"
# title: Tokens per step
# objective: put coverage and regularity together
# prerequisite: 05, "How long a suffix?"
# points: 2
# difficulty: 2
# minutes: 7
#
# A hit drafts $\gamma$ tokens; `regularities[i]` is the regularity of the $i$-th of them, and there may be none.
# What is the expected number of tokens that a step writes, the target's own included?
#
# hint:
# The expected number of accepted tokens is the sum over $i$ of the probability that *at least* $i$ are accepted.
# How often does coverage enter into that probability?
#
# hint:
# ```
# reached <- coverage
# for each depth: reached shrinks by that depth's regularity; add it up
# and the target's own token
# ```

# %% answer="10.2"
def tokens_per_step(coverage, regularities):
    """Expected tokens of a step."""
    # BEGIN SOLUTION
    total, reached = 1.0, coverage
    for regularity in regularities:
        reached *= regularity
        total += reached
    return total
    # END SOLUTION

# %% check="10.2"
check("10.2", tokens_per_step)

# %% [markdown] question="10.3"
# title: Break-even
# objective: say from which coverage on a method pays
# prerequisite: 05, "When does it pay? A miss is free, a wrong draft is not"
# points: 3
# difficulty: 3
# minutes: 12
#
# All times are in units of an ordinary step.
# Every step makes a lookup, which takes `lookup`.
# A hit brings `a` accepted tokens on average besides the target's own, and its forward takes `r` $\ge 1$ instead of 1.
# From which coverage on is decoding with the method at least as fast as without it?
# Return the smallest such coverage; it may come out above 1.
# If no coverage is enough, return infinity, `float("inf")`.
# If the lookup is free and a hit loses nothing, every coverage is enough: return 0.
#
# hint:
# Tokens over time at coverage $h$ is $(1 + h a) / (1 + \mathrm{lookup} + h (r - 1))$.
# Set it to be at least 1, and solve for $h$.
# When must you not divide?
#
# hint:
# ```
# paid   <- what every step costs beyond an ordinary one
# gained <- what one hit gains, in tokens, beyond what its longer forward costs
# nothing is paid and a hit loses nothing: 0
# a hit gains nothing: infinity
# otherwise paid in units of gained
# ```

# %% answer="10.3"
def break_even(a, r, lookup):
    """The smallest coverage at which the method is at least as fast as ordinary decoding."""
    # BEGIN SOLUTION
    gained = a - (r - 1)
    if lookup == 0 and gained >= 0:
        return 0.0
    return lookup / gained if gained > 0 else float("inf")
    # END SOLUTION

# %% check="10.3"
check("10.3", break_even)

# %% [markdown] question="10.4"
# title: What limits it?
# objective: read a trace and say which improvement would bring most
# prerequisite: 05, "When does it pay? A miss is free, a wrong draft is not"
# points: 3
# difficulty: 3
# minutes: 15
#
# A run was recorded step by step: `drafted` and `accepted` are as in 10.1,
# and `times` says what each step took in units of an ordinary step (at least 1).
# The speed of the run is all tokens over all time.
# Three improvements are on offer:
#
# - `"memory"`: a perfect memory; *every* step is a hit, with the mean tokens and the mean time of the hits of this run;
# - `"agreement"`: perfect drafts; all drafted tokens are accepted, in the same times;
# - `"forward"`: a free forward; the same tokens, and every step takes 1.
#
# Return the word for the improvement that would make the run fastest.
# (There is at least one hit, and no tie.)
#
# hint:
# Each improvement gives the run another number of tokens or another time.
# Write down the three speeds as formulas before you compare them.
# What does a mean hit look like?
#
# hint:
# ```
# memory    <- over the hits alone: tokens, the target's own included, over time
# agreement <- over all steps: one and all that was drafted, over time
# forward   <- over all steps: one and all that was accepted, over the number of steps
# the word of the largest
# ```

# %% answer="10.4"
def limit(drafted, accepted, times):
    """'memory', 'agreement' or 'forward': what would make the run fastest."""
    # BEGIN SOLUTION
    steps = len(drafted)
    hits = [i for i in range(steps) if drafted[i]]
    speeds = {
        "memory": sum(1 + accepted[i] for i in hits) / sum(times[i] for i in hits),
        "agreement": (steps + sum(drafted)) / sum(times),
        "forward": (steps + sum(accepted)) / steps,
    }
    return max(speeds, key=speeds.get)
    # END SOLUTION

# %% check="10.4"
check("10.4", limit)
