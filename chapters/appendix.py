# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: all
#     formats: ipynb,py:percent
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
# # Appendix
#
# Here are four lists to look things up in: the **glossary** with the Chinese terms of the notes,
# the **symbols** with the names that each paper gives them, the **errata** of the notes, and the **bibliography**.
# The cells below compute the numbers in the errata with the formulas of the chapters.
# Where a claim needed a run, the entry names the chapter and section that has it.
#
# **Time:** no model is loaded; the cells take seconds.

# %% [markdown]
# ## Set up

# %%
import importlib.util
import pathlib
import subprocess
import sys

if importlib.util.find_spec("specdec_core") is None:
    places = [pathlib.Path(".."), *pathlib.Path(".").glob("*/")]  # beside or below this notebook
    checkouts = [place.resolve() for place in places if (place / "specdec_core" / "__init__.py").is_file()]
    if not checkouts:
        raise SystemExit("Clone the repository of this book into this folder, then run this cell again.")
    pip = [sys.executable, "-m", "pip", "install", f"{checkouts[0]}[race]"]
    lines = subprocess.run(pip, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    print("\n".join(line.strip() for line in lines if "Found existing" in line or "Successfully" in line))
    importlib.invalidate_caches()

# %%
import numpy as np
from IPython.display import Markdown, display
from specdec_core import theory

# %% [markdown]
# ## Glossary
#
# The last column is the chapter that defines the term.
# Where the notes use two Chinese words, both are given; where they keep the English word, so does the table.
#
# ### Decoding and its cost
#
# | term | 中文 | symbol | meaning | chapter |
# |:--|:--|:--|:--|:--|
# | autoregressive decoding | 自回归解码 | | one token from each forward of the target: the baseline | 00 |
# | target | 目标模型、大模型 | $p$ | the model whose text is wanted | 00 |
# | draft | 草稿、候选 | $q$ | tokens guessed cheaply, to be checked by the target | 00 |
# | drafter | 草稿来源 | | whatever makes the drafts: a model, heads, a memory | 00 |
# | speculative decoding | 投机解码、推测解码 | | draft several tokens, check them in one forward | 00 |
# | step | 步、轮 | | one turn of the loop: draft, forward of the target, check, commit | 00 |
# | forward | 前向 | | one pass of a model over one row or several | 00 |
# | row | | | one token in a forward, and the logits that follow it | 00 |
# | key-value cache | KV 缓存 | | keys and values of committed tokens, kept for later forwards | 00 |
# | memory-bound | 内存带宽受限 | | said of a forward that waits for the weights; rows are nearly free | 00 |
# | compute-bound | 算力受限 | | said of a forward that waits for arithmetic; each further row costs time | 00 |
# | cost of a forward | 前向耗时 | $t(q)$ | time of one forward of the target with $q$ rows | 00 |
# | roofline | | | the least time of a forward: reading the weights or computing, whichever takes longer | 00 |
# | tokens per step | 每步产出 | τ | output tokens per step, the bonus or correction included | 00 |
# | speedup | 加速比 | | time of autoregressive decoding over time of the method, for the same tokens | 00 |
# | greedy decoding | 贪心解码 | $T = 0$ | always the most probable token | 01 |
# | temperature, top-k, top-p | 温度、top-k/top-p | $T$ | settings that turn logits into a distribution | 01 |
#
# ### Checking
#
# | term | 中文 | symbol | meaning | chapter |
# |:--|:--|:--|:--|:--|
# | verification | 验证 | | the target's test of a draft | 01 |
# | law | 分布 | | the distribution of a token or of a text | 01 |
# | lossless | 无损 | | said of output with exactly the law that the target alone gives it | 01 |
# | rejection sampling | 拒绝采样 | | accept a token with probability $\min(1, p/q)$, else draw a correction | 01 |
# | acceptance rate | 接受率 | β, α | probability of acceptance: β in one context, α on average | 01 |
# | correction | 修正 token | | the token drawn after a rejection | 01 |
# | residual law | 残差分布 | $r$ | the law of the correction, $\max(0, p - q)$ divided by its sum | 01 |
# | bonus token | Bonus Token、奖励 token | | the target's own token after a draft that was accepted whole | 01 |
# | point mass | one-hot 分布 | | a fixed token as a draft, with $q = 1$ there: all model-free methods | 01 |
# | total variation | 全变差 | TV | half the sum of the absolute differences of two laws; 0 means lossless | 01 |
# | draft tree | 草稿树、候选树 | | drafts that share their beginnings | 01 |
# | tree attention | 树注意力 | | a mask by which each row of a forward sees its ancestors only | 03 |
# | typical acceptance | typical acceptance | | a rule of Medusa's that accepts more and is not lossless | 03 |
#
# ### Trained drafters
#
# | term | 中文 | symbol | meaning | chapter |
# |:--|:--|:--|:--|:--|
# | draft model | 草稿模型、小模型 | | a smaller model with the target's tokenizer | 02 |
# | draft length | 草稿长度 | γ | tokens drafted along one path | 02 |
# | cost ratio | | $c$ | time of a draft call over time of a target call | 02 |
# | reduced vocabulary | | | a draft that chooses among the most frequent tokens only | 02 |
# | multi-token prediction | MTP、多 token 预测 | | modules of the target that predict further tokens | 03 |
# | head | 头 | | a layer on the target's last hidden state that predicts one future token | 03 |
# | autoregression on features | 特征级自回归 | | EAGLE: the drafter continues hidden states, not tokens | 04 |
# | dynamic tree | 动态树 | | a tree whose shape follows the drafter's confidence in each step | 04 |
#
# ### Drafters without a model
#
# | term | 中文 | symbol | meaning | chapter |
# |:--|:--|:--|:--|:--|
# | model-free | 无模型路线 | | drafts come from a memory of text, by lookup | 05 |
# | n-gram | n-gram | | $n$ tokens in a row | 05 |
# | suffix match | 后缀匹配 | | a place in the memory that ends like the context does | 05 |
# | continuation | 续写 | | the tokens after a match: the draft | 05 |
# | prompt lookup | Prompt Lookup、查表 | | the memory is the context itself | 05 |
# | nonlinear system | 非线性方程组 | | greedy decoding as $m$ equations for $m$ tokens | 06 |
# | Gauss–Seidel iteration | 高斯-赛德尔迭代 | | solve the equations in turn: autoregression | 06 |
# | Jacobi iteration | Jacobi 迭代 | | renew all unknowns at once, from the old values: one *round* | 06 |
# | fixed point | 不动点 | | a guess that a round leaves as it is: the greedy answer | 06 |
# | trajectory | 轨迹 | $y^0, y^1, \dots$ | the guesses, round by round | 06 |
# | settled | | | said of tokens that are right from the left on: no later round changes them | 06 |
# | lookahead window | 2D 窗口、lookahead 分支 | $W$, $N$ | $N - 1$ remembered rounds at $W$ places | 07 |
# | level, column | | | one remembered round of the window; one of its places | 07 |
# | input token | | | the last token of the text: level 0, column 0 of the window | 07 |
# | n-gram pool | n-gram 池 | | n-grams of the window, kept under their first token | 07 |
# | verification branch | 验证分支 | $G$ | n-grams of the pool that the forward checks | 07 |
# | step compression | 步数压缩比 | $S$ | autoregressive steps over steps of the method; τ by another name | 07 |
# | lookahead parallelism | | | one forward's branches split over devices, each with a whole model | 07 |
# | datastore | datastore、外部语料库 | | a corpus, with an index of all its suffixes | 08 |
# | suffix array | 后缀数组 | | all suffixes of a text in sorted order; a search is a bisection | 08 |
# | trie | Trie、字典树 | | a tree in which equal beginnings are merged; here with counts | 08 |
# | suffix tree | 后缀树 | | a trie of all suffixes | 09 |
# | session | 会话 | | the requests that a memory has seen | 09 |
# | replay | | | a drafter run again over a recorded answer, without the target's forwards | 05 |
# | coverage, hit rate | 覆盖、命中率 | $h$ | probability that the memory has a draft for a step | 10 |
# | regularity | 规律性 | $r_i$ | probability of agreement at depth $i$, given a hit and agreement before | 10 |
#
# ### Choosing
#
# | term | 中文 | symbol | meaning | chapter |
# |:--|:--|:--|:--|:--|
# | price of a step | | ρ | mean time of a step, drafting included, over $t(1)$; the speedup is τ/ρ | 11 |
# | batch | batch | $B$ | sequences that share a forward of the target | 11 |
# | cascade | 组合 | | one drafter, and where it has no draft, another | 11 |
# | adaptive drafting | | | a draft as long as recent acceptance pays for, or none | 11 |
# | acceptance-length distribution | 接受长度分布 | | how often a step writes 1, 2, 3, … tokens | 11 |
#
# ### Rounding
#
# | term | 中文 | symbol | meaning | chapter |
# |:--|:--|:--|:--|:--|
# | spacing | | $s$ | distance between neighboring numbers of a format | 12 |
# | gap, near tie | | $g$ | largest minus second largest logit; near if rounding can turn it | 12 |
# | first divergence | | | the first token at which two runs differ; after it their contexts differ | 12 |
# | invariant numerics | | | forwards of fixed shapes: a logit has the same bits whatever else is checked | 12 |
# | ROUGE | ROUGE | | share of words, word pairs, or words in order that two texts have in common | 12 |
#
# ## Symbols
#
# These are the symbols of the book.
# $q$ has two meanings: a law, and in $t(q)$ a number of rows.
# In single chapters a few letters mean something else,
# which is defined there ($B$ in 00, $r$ in 05, $f$ in 06, $b$, $d$, $f$, $m$, $r$ in 12).
# The other columns give each paper's name for it:
# Leviathan and others ([arXiv:2211.17192](https://arxiv.org/abs/2211.17192)),
# Chen and others ([arXiv:2302.01318](https://arxiv.org/abs/2302.01318)),
# Fu and others for lookahead ([arXiv:2402.02057](https://arxiv.org/abs/2402.02057)), and software.
# **Careful:** Chen and others call the target $q$ and the draft $p$.
#
# | here | in code | meaning | Leviathan | Chen | Fu | elsewhere |
# |:--|:--|:--|:--|:--|:--|:--|
# | $p$ | `p` | law of the target's next token | $p$ | $q$ | $P_M$ | |
# | $q$ | `q` | law of the draft's next token | $q$ | $p$ | | |
# | $r$ | `residual` | law of the correction | $p'$ | $(q - p)_+$ | | |
# | β | `beta` | acceptance in one context | β | | | |
# | α | `alpha` | mean of β; by depth, given the tokens before | α | | α | vLLM: acceptance by position |
# | γ | `gamma` | tokens drafted along one path | γ | $K$ | γ $= N - 1$ | `num_speculative_tokens` |
# | $c$ | `c` | draft call / target call, in time | $c$ | | | |
# | τ | `tau` | output tokens per target call | | | $S$ | EAGLE, vLLM: average (mean) acceptance length |
# | $E$ | `expected_tokens` | expected output of a step | *E*(# generated tokens) | | $E(\#\text{tokens})$ | |
# | $b$ | `b` | drafts checked in one step | | | $b = W = G$ | |
# | $f$ | `f` | one step in $f$ finds a good draft | | | $f$ | |
# | $W$ | `W` | columns of the window | | | $W$ | `lade`: `WINDOW_SIZE` |
# | $N$ | `N` | length of lookahead's n-grams | | | $N$ | `lade`: `LEVEL` |
# | $G$ | `G` | n-grams checked in a step | | | $G$ | `lade`: `GUESS_SET_SIZE` |
# | $S$ | `S` | step compression | | | $S$ | |
# | $t(q)$ | `t` | time of a target forward over $q$ rows | | | | |
# | $h$ | `coverage` | probability of a hit | | | | |
# | $r_i$ | `regularities` | agreement at depth $i$, given a hit | | | | |
# | $A$ | `accepted` | accepted tokens, given a hit | | | | |
# | $d$ | `draft` | time of drafting in a step | | | | |
# | ρ | | price of a step: its time over $t(1)$ | | | | |
# | $B$, $q^*$ | `B`, `ridge` | sequences in a forward; rows up to which it is memory-bound | | | | |
# | $m$, $y^t$ | | tokens of an answer; the guess after $t$ Jacobi rounds | | | $m$, $\mathbf y^t$ | |
# | $V$, $D$ | | size of the vocabulary; width of a hidden state | | | | |
#
# Two conventions decide most disagreements between published numbers.
# *Tokens per step* counts the bonus or correction, *accepted tokens* does not.
# *Acceptance rate* is accepted over **tested** tokens: those after the first rejection were never tested.
#
# ## Errata of the notes
#
# The book grew out of four Chinese notes (listed at the end).
# Below is what did not survive a derivation or a run, and what decides it;
# the chapters have the same in boxes *The notes say …*.
# Claims that hold after all, or hold with a condition, are in the last list.
#
# ### Counting tokens

# %% jupyter={"source_hidden": true}
# NBVAL_CHECK_OUTPUT
alpha, gamma = 0.8, 4
output, accepted = theory.expected_tokens(alpha, gamma), theory.expected_accepted(alpha, gamma)
full = theory.expected_tokens(1.0, 5)
display(Markdown(
    "- **Equation 4 counts accepted tokens** (lookahead article). It counts *output* tokens: "
    "its sum begins with 1, the bonus or correction. "
    f"With α = {alpha} and γ = {gamma} a step outputs {output:.2f} tokens and accepts {accepted:.2f}; "
    f"the ceilings are {1 / (1 - alpha):.0f} and {alpha / (1 - alpha):.0f}. "
    "[02](02_draft_models.ipynb), *How many tokens per step?*.\n"
    "- **Five accepted tokens: the round outputs 5** (model-free chapter, section 9). "
    f"It outputs {full:.0f}, like every step that accepts all of γ = 5. "
    "[05](05_prompt_lookup.ipynb), *Why it is lossless*.\n"
    "- **The bonus token is a gain in every case** (short introduction). In tokens it is. In time it costs "
    "the row of the last draft, $t(\\gamma + 1) - t(\\gamma)$, in *every* step, and it comes only if all drafts "
    "are accepted. [01](01_rejection_sampling.ipynb), *A block of drafts, and the bonus token*."
))

# %% [markdown]
# ### Rejection sampling and greedy checking
#
# - **After a rejection the target's law at that place cannot be used, since its logits are off** (short introduction).
#   The law is exactly right.
#   It cannot be used as it is, because accepted drafts have already given out part of it.
#   [01](01_rejection_sampling.ipynb), *The two denominators*.
# - **Greedy checking compares strings, so any LLM API will do** (short introduction).
#   It needs no probabilities, but it needs the argmax *token* at every drafted place from *one* call.
#   A text-in, text-out completion does not return that, and strings do not say how they were cut into tokens.
#   [01](01_rejection_sampling.ipynb), *Is a text-only API enough?*.
# - **The loop of the short introduction**, which itself warns of its boundary conditions.
#   Its slices are right: $n - 1$ drafts after the prefix make $n$ rows, whose laws belong to the places
#   $i \dots i + n - 1$, and the last of them gives the bonus (the sentence above the loop has $n$ drafts).
#   Four things are not right.
#   The draft's laws, which the test needs, are never stored.
#   An empty text has no row for its first place.
#   Nothing stops the last step or heeds a stop token.
#   And the loop sets `i` in the body of a `for`, where the next turn overwrites it.
#   Run as it is, it has the right law and makes one target call per token.
#   [02](02_draft_models.ipynb), *Off by one*.
#
# ### Medusa and EAGLE

# %% jupyter={"source_hidden": true}
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import alpha_for

d, ffn, vocabulary, layers = 4096, 11008, 32000, 32  # a Llama of 7 billion weights
layer = 4 * d * d + 3 * d * ffn
model = layers * layer + 2 * vocabulary * d
eagle, medusa = layer + 2 * d * d, 5 * (d * d + d * vocabulary)
quoted, heads = 2.31, 4  # Spec-Bench: tokens per step of Medusa on Vicuna-7B; drafted tokens along a path
display(Markdown(
    "- **The extra weights of Medusa and EAGLE are usually below 1 %** (short introduction). Counted for a model of "
    f"{model / 1e9:.1f} billion weights: EAGLE, one decoder layer and a projection of two states to one, has "
    f"{eagle / 1e9:.2f} billion, {eagle / model:.1%} (arXiv:2401.15077 states 0.24, and 0.99 for a target of "
    "70 billion); five Medusa heads, each a residual block and a projection to the vocabulary, have "
    f"{medusa / 1e9:.2f} billion, {medusa / model:.0%}. Counted for the book's own: "
    "[03](03_mtp_medusa.ipynb), *Heads on one state*, and [04](04_eagle.ipynb), *Continue states, not tokens*.\n"
    "- **An α of 0.8 to 0.9 is near Medusa's** (model-free chapter, section 8.1). "
    f"The {quoted} tokens per step published for it (arXiv:2401.07851) correspond to a constant α of "
    f"{alpha_for(quoted, heads):.2f}, and that with a tree; α = 0.8 would give "
    f"{theory.expected_tokens(0.8, heads):.2f}. [03](03_mtp_medusa.ipynb), *Acceptance by depth*."
))

# %% [markdown]
# - **EAGLE starts from features of an intermediate layer** (five routes).
#   It starts from the last hidden state, which the vocabulary projection turns into logits;
#   the paper's "second-to-top-layer" counts that projection as the top.
#   Only EAGLE-3 reads layers from the middle.
#   [04](04_eagle.ipynb), *Continue states, not tokens*.
# - **EAGLE adds a prediction tree to what Medusa does** (short introduction),
#   and **EAGLE's candidates are a path, Medusa's a tree** (five routes, table).
#   Both have drafted trees since their first papers.
#   [03](03_mtp_medusa.ipynb), *A tree and its mask*; [04](04_eagle.ipynb), *A tree of one shape*.
# - **The acceptance rate of trained drafters is stable, EAGLE's about 0.8, in any context**
#   (model-free chapter, section 11).
#   It depends on target, training, depth, temperature and text.
#   Measured by task and depth in [04](04_eagle.ipynb), *Acceptance by depth: EAGLE, MTP, Medusa*.
#
# ### Prompt lookup and the hit-rate model

# %% jupyter={"source_hidden": true}
# NBVAL_CHECK_OUTPUT
regular, coverage = (0.8, 0.9), 0.5
once = theory.hit_rate_tokens(coverage, regular)
each = theory.expected_tokens_by_depth([coverage * r for r in regular])
slope = 0.1  # a row costs a tenth of a forward
gains = [theory.speedup_measured(theory.expected_tokens(a, 1), 1 + slope, 0, 1) for a in (0.2, 0.4)]
miss = theory.hit_rate_speedup(0.05, 1.5, t_hit=1.3, t_miss=1.0, t_1=1.0)
display(Markdown(
    "- **At every depth α is coverage × regularity** (model-free chapter, section 8.1). Coverage enters once: "
    f"if the token before was accepted, there was a draft. With coverage {coverage} and regularities "
    f"{' and '.join(map(str, regular))} a step outputs {once:.2f} tokens; the product at each depth would predict "
    f"{each:.2f}. [10](10_hit_rate.ipynb), *Two factors*.\n"
    "- **An α of 0.2 to 0.4 makes the speedup fall below 1** (the same). That does not follow. One drafted token "
    "gains exactly if $t(2) < (1 + \\alpha)\\,t(1)$: "
    f"where a row costs {slope} forwards, the speedup is {gains[0]:.2f} at α = 0.2 and {gains[1]:.2f} at 0.4. "
    "[10](10_hit_rate.ipynb), *Is an α of 0.2 to 0.4 a loss?*. "
    "What free writing reaches in a run: [00](00_start_here.ipynb), *A win that is worth nothing*.\n"
    "- **A miss has paid for a verification in vain** (section 4.3). A miss has nothing to verify and costs $t(1)$; "
    "only a *wrong draft* costs more. With hits in one step of twenty, each with 1.5 accepted tokens for 1.3 $t(1)$, "
    f"the speedup is {miss:.3f}, still above 1. "
    "[05](05_prompt_lookup.ipynb), *When does it pay? A miss is free, a wrong draft is not*; "
    "[10](10_hit_rate.ipynb), *Break-even*."
))

# %% [markdown]
# - **Summaries, code and translation have an α of 0.8 to 0.9** (sections 4.2, 8.1 and 11).
#   A translation shares names and numbers with its source, not words.
#   Which of the four tasks reach 0.8 in a run, in three readings of α:
#   [10](10_hit_rate.ipynb), *Is translation repetitive?*.
#   τ of these tasks and of the two turns of a chat:
#   [05](05_prompt_lookup.ipynb), *When does it pay? A miss is free, a wrong draft is not*.
# - **vLLM's switch is `speculative_model="[ngram]"`** (section 4.1).
#   It was, in versions 0.5 and 0.6; now it is `speculative_config={"method": "ngram", ...}`.
#   [05](05_prompt_lookup.ipynb), *The same switches elsewhere*.
#
# ### Jacobi decoding
#
# - **Later rounds overwrite tokens that are right and in place** (model-free chapter, section 5.2; lookahead article).
#   They never overwrite a settled token: if a round has $k$ right tokens from the left, the next has at least $k + 1$.
#   They overwrite only tokens after the first error.
#   [06](06_jacobi.ipynb), *At most m rounds*.
# - **Of two adjacent rounds the suffix of the earlier is the prefix of the later** (lookahead article).
#   In general they share no tokens; each token of the later round *continues* the tokens to its left in the earlier.
#   So the pair in the article's own example, *Paris* and the comma,
#   stands at two neighboring places, not at "the same relative place".
#   [06](06_jacobi.ipynb), *The 2-gram hidden between two rounds*.
# - **(on, a, rug) → (on, the, mat) yields (on, the), (the, mat) and (on, the, mat)** (model-free chapter, section 9).
#   A pair goes from one round to the next, one place to the right;
#   the same section of chapter 06 derives that and runs the example.
#   Here are the pairs, and what the note's second step makes of them:

# %%
# NBVAL_CHECK_OUTPUT
before, after, answer = ["on", "a", "rug"], ["on", "the", "mat"], ["on", "the", "mat"]
pairs = list(zip(["sat", *before], after))
claimed = [("on", "the"), ("the", "mat")]
right = next(k for k, (guess, true) in enumerate(zip(before, answer)) if guess != true)
text = ["sat", *answer[: right + 1]]
print("pairs of these rounds:", *(f"({a}, {b})" for a, b in pairs))
print("claimed and not among them:", *(f"({a}, {b})" for a, b in claimed if (a, b) not in pairs))
print(f"the guess had {right} right token, so round 1 settles {right + 1}:", end=" ")
print(f"the text ends with {text[-1]!r}, not 'sat'")
print("pairs that begin with 'sat':", *(f"({a}, {b})" for a, b in pairs if a == "sat"))

# %% [markdown]
# A 3-gram takes three rounds, so there is none yet.
# And the second step of that example does not happen.
# After round 1 of Jacobi's iteration the last token is *the*.
# In lookahead decoding a step without candidates emits one new token,
# so the last token is *on*, and the pool holds a pair for it.
# It even holds one for *sat*.
#
# ### Lookahead decoding

# %% jupyter={"source_hidden": true}
# NBVAL_CHECK_OUTPUT
a, f, N = theory.PAPER_ALPHA, theory.PAPER_F, 5
E = {b: theory.expected_tokens_b(a, N - 1, b) for b in (15, 30, 60)}
steps = [100 / theory.step_compression(f, theory.expected_tokens_b(a, 19, b)) for b in (1, 2, 4, 8, 16, 32)]  # N = 20
saved = ", ".join(f"{x:.1f}" for x in -np.diff(steps))
here = "[07](07_lookahead.ipynb), *How many tokens per step? E and S*"
display(Markdown(
    "- **$E$ grows linearly with $b = W$** (lookahead article). It grows with $\\log b$ and saturates at "
    f"$\\gamma + 1 = N$: with the paper's α = {a} and $N = {N}$, "
    f"$E$ = {E[15]:.2f}, {E[30]:.2f}, {E[60]:.2f} at $b$ = 15, 30, 60. {here}.\n"
    "- **The number of steps falls linearly with log(FLOPs)** (both, after the paper's abstract). $S$ is linear in "
    "$\\log b$ up to its ceiling, and the steps are $m/S$. From $b$ = 1 to 32, far below the ceiling ($N$ = 20), "
    f"each doubling saves fewer of 100 steps: {saved}. {here}. "
    "So a doubling of FLOPs does not save a *constant* number of steps either.\n"
    "- **Lookahead has no ceiling, where speculative decoding has $1/(1-\\alpha)$** (lookahead article). "
    "At fixed $N$ it has one, $S \\le (f - 1 + N)/f$: "
    f"{theory.step_compression(f, N):.2f} for $N = {N}$ and the paper's $f$ = {f}. {here}."
))

# %% jupyter={"source_hidden": true}
# NBVAL_CHECK_OUTPUT
W, G = 15, 15
rows = theory.lookahead_step_tokens(W, N, G)
display(Markdown(
    "- **The mask: each token sees all tokens with a larger number** (lookahead article). It is the reverse. Attention "
    "stays causal, so no row sees a larger position; of the smaller ones it sees those of its own column, and those "
    "of level 0 up to it. The red 6 of the example does see the blue 0, the input token, which the article denies. "
    "[07](07_lookahead.ipynb), *The mask*.\n"
    "- **The candidates are disjoint n-grams, so a tree cannot check them** (lookahead article). Disjoint paths from "
    "one token are a tree. [07](07_lookahead.ipynb), *One step, in the open*.\n"
    "- **The extra cost is $W(N-1)$ times a forward's FLOPs** (lookahead article, on batches). That is the window "
    f"alone, {W * (N - 1)} rows for $W = {W}$, $N = {N}$; with the candidates it is $(W + G)(N-1)$ = {rows}, "
    f"as the note says elsewhere. And {rows} rows are {rows} *times* one row, {rows - 1} more.\n"
    "- **The sliding window only drops old entries of the key-value cache and adds new ones** (lookahead article). "
    f"Then a step would compute the $W$ new tokens of its window, not {W * (N - 1)}. After each step a token of the "
    "window belongs to an older level and follows other tokens than before. Its key and value depend on what it saw, "
    "so they are of no further use: all levels go through every forward, and only accepted tokens stay in the cache."
))

# %% [markdown]
# ### Losslessness
#
# - **Jacobi decoding ends at exactly the autoregressive tokens; model-free methods are strictly lossless**
#   (lookahead article; model-free chapter, sections 6.4 and 11).
#   That is true of the law, and for real numbers.
#   On a machine the rounding of a logit depends on the number of rows in its forward,
#   and near ties may turn, in bfloat16 by orders of magnitude more often than in float32.
#   [12](12_lossless.ipynb), *First divergences*.
# - **Equal ROUGE scores verify that the law of the output is kept** (lookahead article, on the paper's Table 2).
#   Losslessness predicts them, but lossy methods can have them too, as an example with two answers shows.
#   [12](12_lossless.ipynb), *Quality beside identity*.
#
# ### Choosing
#
# - **Model-free methods for repetitive tasks, trained ones for free text because their acceptance is stable**
#   (model-free chapter, section 11).
#   That is fair as a first guess, but leaves out the price of a step.
#   A trained drafter's acceptance depends on the text as well, and it pays for a draft in every step.
#   Compared by task in [11](11_choosing.ipynb), *Model-free against trained*.
# - **Prompt lookup is a plug-in without cost, to be combined with other drafters** (section 4.3).
#   Its lookup costs nothing.
#   Its hits cost rows, and in a combination they replace the draft of the other method.
#   The combination gains where a hit writes more tokens in its time than a step of the other drafter.
#   [11](11_choosing.ipynb), *Lookup first, a model when it misses*.
# - **EAGLE and Medusa are suited to batches, lookahead to low latency** (lookahead article, at its end).
#   All of them trade idle arithmetic for steps, and a batch takes it from all.
#   On a roofline
#   whose rows are free up to $q^*$ the gain ends near $B^* = q^*\tau/q$: the tokens per row decide, whoever drafts.
#   [11](11_choosing.ipynb), *What a batch does to it*.
#
# ### References
#
# - **Lookahead decoding is arXiv:2307.09991 or 2402.02057, "Breaking the Sequential Dependency …"**
#   (model-free chapter).
#   It is [arXiv:2402.02057](https://arxiv.org/abs/2402.02057),
#   *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*.
#   We found no list of references outside that series of notes that gives this paper the other number.
# - **The paper's title trades log(FLOPs) of a step for steps** (lookahead article).
#   Its abstract does; the title is the one above.
# - **Parallel solving of nonlinear equations (Song and others) appeared at ICLR 2021** (lookahead article).
#   It appeared at ICML 2021: [arXiv:2002.03629](https://arxiv.org/abs/2002.03629).
#
# ### What holds, or holds with a condition
#
# - MTP needs a model that brings its modules and was trained with them (five routes): as published, yes.
#   To draft, a module can also be trained afterwards, beside a frozen model.
#   [03](03_mtp_medusa.ipynb), *Heads on one state*.
# - Of Medusa's two kinds of acceptance only one keeps the target's law.
#   How far the other is from it: [03](03_mtp_medusa.ipynb), *Typical acceptance is not lossless*.
# - The two denominators of the residual law are equal, if both laws sum to 1.
#   [01](01_rejection_sampling.ipynb), *The two denominators*.
# - REST corrects a rejected place by rejection sampling:
#   yes, if every rejection among siblings changes the law against which the next sibling is tested.
#   [08](08_rest.ipynb), *Why it is lossless*.
# - Retrieval takes less than 6 % of the time: a share depends on its other half, the forward.
#   Measured in [08](08_rest.ipynb), *On the clock*.
# - Suffix decoding is a better n-gram method with the session as its memory: it is the memory that counts.
#   Measured in [09](09_suffix_decoding.ipynb), *Three sessions*.
# - Long drafts, large batches and complex trees need not be faster, and four things should be recorded (five routes):
#   yes; its table of situations says what is possible, not what is fastest.
#   [11](11_choosing.ipynb), *The finalists, live*.
# - An n-gram method cuts text into a dictionary: one implementation of several.
#   [05](05_prompt_lookup.ipynb), *The same switches elsewhere*.
# - At $T = 1$ fewer drafts are accepted than at $T = 0$ (lookahead article):
#   for prompt lookup, measured in [12](12_lossless.ipynb), *Quality beside identity*.
# - A step outputs 3.36 tokens and accepts 2.36 at α = 0.8, γ = 4 (five routes): both right, computed above.

# %%
# NBVAL_CHECK_OUTPUT
p, q = np.array([0.5, 0.3, 0.1, 0.1]), np.array([0.2, 0.2, 0.2, 0.4])
print("the two denominators, sums of 1:   ", *(f"{x:.3f}" for x in theory.residual_denominators(p, q)))
short = np.where(q == q.max(), q, 0)  # the most probable token alone, not renormalized
rejected, missing = (short - np.minimum(p, short)).sum(), np.maximum(p - short, 0).sum()
print(f"and with a q that lost mass:        {rejected:.3f} {missing:.3f}")
rows = [theory.lookahead_step_tokens(W, 5, W) for W in (15, 10, 7)]
print("rows per step for W = 15, 10, 7:   ", *rows)

# %% [markdown]
# ## Bibliography
#
# Each arXiv number was checked against independent lists of references,
# or the paper's own page, for the title beside it.
#
# ### Checking and several drafts
#
# - M. Stern, N. Shazeer, J. Uszkoreit, *Blockwise Parallel Decoding for Deep Autoregressive Models*,
#   NeurIPS 2018, [arXiv:1811.03115](https://arxiv.org/abs/1811.03115)
# - Y. Leviathan, M. Kalman, Y. Matias, *Fast Inference from Transformers via Speculative Decoding*,
#   ICML 2023, [arXiv:2211.17192](https://arxiv.org/abs/2211.17192)
# - C. Chen and others, *Accelerating Large Language Model Decoding with Speculative Sampling*,
#   2023, [arXiv:2302.01318](https://arxiv.org/abs/2302.01318)
# - X. Miao and others, *SpecInfer: Accelerating Generative Large Language Model Serving with Tree-based
#   Speculative Inference and Verification*, ASPLOS 2024, [arXiv:2305.09781](https://arxiv.org/abs/2305.09781)
# - Z. Sun and others, *SpecTr: Fast Speculative Decoding via Optimal Transport*,
#   NeurIPS 2023, [arXiv:2310.15141](https://arxiv.org/abs/2310.15141)
# - W. Jeon and others, *Recursive Speculative Decoding: Accelerating LLM Inference via Sampling Without Replacement*,
#   2024, [arXiv:2402.14160](https://arxiv.org/abs/2402.14160)
# - Z. Chen and others, *Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding*,
#   2024, [arXiv:2402.12374](https://arxiv.org/abs/2402.12374)
# - H. Xia and others, *Unlocking Efficiency in Large Language Model Inference: A Comprehensive Survey
#   of Speculative Decoding*, Findings of ACL 2024, [arXiv:2401.07851](https://arxiv.org/abs/2401.07851)
#
# ### Trained drafters
#
# - F. Gloeckle and others, *Better & Faster Large Language Models via Multi-token Prediction*,
#   2024, [arXiv:2404.19737](https://arxiv.org/abs/2404.19737)
# - DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024, [arXiv:2412.19437](https://arxiv.org/abs/2412.19437)
# - T. Cai and others, *Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads*,
#   ICML 2024, [arXiv:2401.10774](https://arxiv.org/abs/2401.10774)
# - Y. Li and others, *EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty*,
#   ICML 2024, [arXiv:2401.15077](https://arxiv.org/abs/2401.15077)
# - Y. Li and others, *EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees*,
#   EMNLP 2024, [arXiv:2406.16858](https://arxiv.org/abs/2406.16858)
# - Y. Li and others, *EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test*,
#   NeurIPS 2025, [arXiv:2503.01840](https://arxiv.org/abs/2503.01840)
# - L. Zhang and others, *Learning Harmonized Representations for Speculative Sampling*,
#   ICLR 2025, [arXiv:2408.15766](https://arxiv.org/abs/2408.15766)
# - Z. Xu and others, *Magpie: Alignment Data Synthesis from Scratch by Prompting Aligned LLMs with Nothing*,
#   2024, [arXiv:2406.08464](https://arxiv.org/abs/2406.08464)
# - G. Hinton, O. Vinyals, J. Dean, *Distilling the Knowledge in a Neural Network*,
#   2015, [arXiv:1503.02531](https://arxiv.org/abs/1503.02531)
# - Y. Zhou and others, *DistillSpec: Improving Speculative Decoding via Knowledge Distillation*,
#   ICLR 2024, [arXiv:2310.08461](https://arxiv.org/abs/2310.08461)
# - W. Zhao and others,
#   *FR-Spec: Accelerating Large-Vocabulary Language Models via Frequency-Ranked Speculative Sampling*,
#   ACL 2025, [arXiv:2502.14856](https://arxiv.org/abs/2502.14856)
#
# ### Drafters without a model
#
# - A. Saxena, *Prompt Lookup Decoding*, 2023,
#   [github.com/apoorvumang/prompt-lookup-decoding](https://github.com/apoorvumang/prompt-lookup-decoding)
# - N. Yang and others, *Inference with Reference: Lossless Acceleration of Large Language Models*,
#   2023, [arXiv:2304.04487](https://arxiv.org/abs/2304.04487)
# - Y. Song and others, *Accelerating Feedforward Computation via Parallel Nonlinear Equation Solving*,
#   ICML 2021, [arXiv:2002.03629](https://arxiv.org/abs/2002.03629)
# - A. Santilli and others, *Accelerating Transformer Inference for Translation via Parallel Decoding*,
#   ACL 2023, [arXiv:2305.10427](https://arxiv.org/abs/2305.10427)
# - S. Kou and others, *CLLMs: Consistency Large Language Models*,
#   ICML 2024, [arXiv:2403.00835](https://arxiv.org/abs/2403.00835)
# - Y. Fu, P. Bailis, I. Stoica, H. Zhang, *Break the Sequential Dependency of LLM Inference Using Lookahead Decoding*,
#   ICML 2024, [arXiv:2402.02057](https://arxiv.org/abs/2402.02057)
# - Z. He, Z. Zhong, T. Cai, J. D. Lee, D. He, *REST: Retrieval-Based Speculative Decoding*,
#   NAACL 2024, [arXiv:2311.08252](https://arxiv.org/abs/2311.08252)
# - S. Ho, J. Park, P. Wang, *CREST: Effectively Compacting a Datastore For Retrieval-Based Speculative Decoding*,
#   2024, [arXiv:2408.04678](https://arxiv.org/abs/2408.04678)
# - U. Khandelwal and others, *Generalization through Memorization: Nearest Neighbor Language Models*,
#   ICLR 2020, [arXiv:1911.00172](https://arxiv.org/abs/1911.00172)
# - G. Oliaro and others, *SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications*,
#   NeurIPS 2025, [arXiv:2411.04975](https://arxiv.org/abs/2411.04975)
#
# ### Models and machines
#
# - T. Dao and others, *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*,
#   NeurIPS 2022, [arXiv:2205.14135](https://arxiv.org/abs/2205.14135)
# - R. Pope and others, *Efficiently Scaling Transformer Inference*,
#   MLSys 2023, [arXiv:2211.05102](https://arxiv.org/abs/2211.05102)
# - J. Yuan and others, *Understanding and Mitigating Numerical Sources of Nondeterminism in LLM Inference*,
#   NeurIPS 2025, [arXiv:2506.09501](https://arxiv.org/abs/2506.09501)
# - H. He and Thinking Machines Lab, *Defeating Nondeterminism in LLM Inference*, 2025,
#   [thinkingmachines.ai](https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/)
# - C.-Y. Lin, *ROUGE: A Package for Automatic Evaluation of Summaries*,
#   2004, [aclanthology.org/W04-1013](https://aclanthology.org/W04-1013/)
# - L. Ben Allal and others, *SmolLM2: When Smol Goes Big*, 2025, [arXiv:2502.02737](https://arxiv.org/abs/2502.02737)
#
# ### The notes
#
# - *Model-free chapter*:
#   LLM 推测解码精读笔记 · 05 n-gram / 检索式与无模型路线, chapter 5 of a series of reading notes
# - *A short introduction*: 简要介绍投机解码的原理, a post without a title
# - *Lookahead article*: 平昊阳, Lookahead Decoding 完全拆解, 2026,
#   [pinghaoyang.com.cn](https://pinghaoyang.com.cn/articles/insights/posts/lookahead-decoding-jacobi/)
# - *Five routes*: 投机解码的五条路线:从小模型到 Prompt Lookup, a post
