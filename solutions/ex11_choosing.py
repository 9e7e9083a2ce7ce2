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
# # Exercises 11 · Choosing
#
# Write the answer in the cell below each question, then run the cell that checks it.
# The check draws inputs by a seed and says what is wrong; grading draws others.
# Any form that gives the right values passes.
# No answer needs another one.
#
# $t(q)$ is the time of a forward over $q$ rows, in units of an ordinary step, $t(1) = 1$ or nearly.

# %%
from specdec_core.classroom import check

# %% [markdown] question="11.1"
# title: Two numbers to record
# objective: compute τ and the acceptance rate from a log
# prerequisite: 11, "What to record"
# points: 2
# difficulty: 2
# minutes: 7
#
# For each step, `drafted` says how many tokens were drafted in a chain, and `accepted` how many of them were accepted.
# A draft is tested from the left, up to the first token that is rejected.
# Return the pair `(tau, rate)`: the mean number of tokens per step,
# the target's own included, and accepted tokens over *tested* tokens (0 if none was tested).
#
# hint:
# If two of five drafted tokens were accepted, three were tested.
# And if all five were accepted?
#
# hint:
# ```
# tested in a step <- the accepted tokens, and one more if there was one more
# tau  <- 1 and the mean of accepted, over all steps
# rate <- all accepted over all tested
# ```

# %% answer="11.1"
def metrics(drafted, accepted):
    """(τ, acceptance rate)."""
    # BEGIN SOLUTION
    kept = sum(accepted)
    tested = kept + sum(right < length for length, right in zip(drafted, accepted))
    return 1 + kept / len(accepted), kept / tested if tested else 0.0
    # END SOLUTION

# %% check="11.1"
check("11.1", metrics)

# %% [markdown] question="11.2"
# title: How many tokens to draft here
# objective: choose γ by this machine's t(q)
# prerequisite: 11, "Drafting only when it pays"
# points: 3
# difficulty: 2
# minutes: 9
#
# `alphas[i]` is the probability that drafted token $i + 1$ is accepted given that those before it were;
# `times[q - 1]` is $t(q)$ for $q = 1 \dots$ `len(alphas) + 1`.
# Drafting itself costs nothing.
# Which $\gamma$ from 0 to `len(alphas)` writes most tokens per time?
#
# hint:
# How many rows has the forward that tests γ drafted tokens?
# And which entry of `times` is that?
#
# hint:
# ```
# tokens of gamma drafts <- 1, and for each depth up to gamma the product of the alphas down to it
# speed <- these tokens over t(gamma + 1)
# the gamma of the largest speed, 0 among the choices
# ```

# %% answer="11.2"
def best_width(alphas, times):
    """The number of drafted tokens that writes most tokens in a time."""
    # BEGIN SOLUTION
    best, fastest, written, reached = 0, 1 / times[0], 1.0, 1.0
    for gamma, (alpha, time) in enumerate(zip(alphas, times[1:]), start=1):
        reached *= alpha
        written += reached
        if written / time > fastest:
            best, fastest = gamma, written / time
    return best
    # END SOLUTION

# %% check="11.2"
check("11.2", best_width)

# %% [markdown] question="11.3"
# title: Up to which batch?
# objective: say where speculation stops paying as the batch grows
# prerequisite: 11, "What a batch does to it"
# points: 3
# difficulty: 2
# minutes: 9
#
# $B$ sequences are decoded together.
# Without drafts a step is one forward of $B$ rows and writes one token per sequence;
# with $\gamma$ drafted tokens for every sequence it writes `tau` tokens per sequence.
# `t(q)` is a function.
# Up to which $B$, from 1 to `most`, is drafting strictly faster?
# Return the largest such $B$, or 0 if there is none.
#
# hint:
# Compare tokens over time for the whole batch.
# How many rows does one sequence bring?
#
# hint:
# ```
# for each B: without drafts B tokens in t(B); with drafts B * tau tokens in t(B * (gamma + 1))
# the largest B for which the second is faster
# ```

# %% answer="11.3"
def largest_batch(tau, gamma, t, most):
    """The largest batch for which drafting is faster."""
    # BEGIN SOLUTION
    for size in range(most, 0, -1):
        if tau / t(size * (gamma + 1)) > 1 / t(size):
            return size
    return 0
    # END SOLUTION

# %% check="11.3"
check("11.3", largest_batch)

# %% [markdown] question="11.4"
# title: Lookup first
# objective: combine two drafters so that the expensive one runs only when it is needed
# prerequisite: 11, "Lookup first, a model when it misses"
# points: 1
# difficulty: 1
# minutes: 4
#
# `lookup(context)` and `model(context)` each return a list of drafted tokens.
# The lookup costs next to nothing and may find nothing, `[]`;
# the draft model takes time and always has something to say.
# Return a draft: the lookup's if it has one, else the model's.
# The check counts how often you run the model.
#
# hint:
# Python evaluates the right side of one of its operators only if the left side is empty.
#
# hint:
# ```
# ask the lookup
# only if it has found nothing: ask the model
# ```

# %% answer="11.4"
def combine(context, lookup, model):
    """The draft of the lookup, or where it misses, of the model."""
    # BEGIN SOLUTION
    return lookup(context) or model(context)
    # END SOLUTION

# %% check="11.4"
check("11.4", combine)
