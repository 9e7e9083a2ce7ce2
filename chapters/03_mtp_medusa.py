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
# # 03 · Multi-token prediction and Medusa
#
# > **The question of this chapter.**
# > The state from which the target takes its next token also knows something about the tokens after it.
# > How can a small module, or a few heads, read that out, and how many of their guesses is it worth checking at once?
#
# **Afterwards you can**
#
# - build the multi-token prediction module of DeepSeek-V3 out of its weights, and use one module for several tokens;
# - say what Medusa's heads cannot know, and what that costs;
# - derive the mask and the positions by which one forward checks a whole tree;
# - compute what a tree is worth, and find the best one of a given size;
# - verify a tree, greedily and with sampling, without changing the target's distribution,
#   and say by how much *typical acceptance* changes it;
# - choose a tree's size from this machine's $t(q)$.
#
# **Taken for granted:** chapter 00 (τ, $t(q)$), chapter 01 (accept rule, residual, siblings),
# and what a Transformer's layer does.
# A *law* is the distribution of the next token after some text, as in chapter 01.
#
# **Time:** 45 minutes of reading; the cells take about two minutes on two CPU cores.

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
from specdec_core import CachedLM, load
from specdec_core.viz import style

style.use()
loaded = load("default")
lm = CachedLM(loaded)
print(loaded.why)

# %% [markdown]
# ## What one state can know
#
# The target reads tokens $t_0 \dots t_i$ and ends with a state $f_i$, a vector of $D$ numbers.
# The vocabulary projection turns it into the law $p$ of $t_{i+1}$.
# Ordinary decoding asks it for nothing else.
# But a model does not decide its text word by word:
# one that begins *on the other* is likely to go on with *hand*, and some of that is in $f_i$.
# **Multi-token prediction** asks $f_i$ for $t_{i+2}$ as well.
# There are two ways to ask:
#
# - **blind**: from $f_i$ alone, before $t_{i+1}$ is known.
#   The best answer is the mixture $m(y) = \sum_x p(x)\, p(y \mid x)$;
# - **told**: when $t_{i+1} = x$ has been chosen.
#   The best answer is $p(\cdot \mid x)$.
#
# Someone who guesses the best token is right with probability $\max_y m(y)$ if blind,
# and $\sum_x p(x) \max_y p(y \mid x)$ if told.
# The second is never smaller: *the maximum of a sum is at most the sum of the maxima*.
#
# **By hand.**
# The target goes on with *of* (0.6) or *no* (0.4); after *of* it always writes *course*, after *no* always *problem*.
# The best blind guess is *course*, right in 0.6 of the cases.
# A guesser that is told is always right.
#
# It gets worse with two blind guesses, one for each place.
# Neither guesser knows what the other guessed, so together they consider all four pairs possible:
# *of problem* gets $0.6 \cdot 0.4 = 0.24$, and *no course* as much.
# Neither pair ever occurs.

# %%
# NBVAL_CHECK_OUTPUT
import numpy as np

words = ["of", "no", "course", "problem"]
after = np.array([[0, 0, 1, 0], [0, 0, 0, 1], [0.6, 0.4, 0, 0], [0.6, 0.4, 0, 0]])  # p(y | x), a row an x
p = np.array([0.6, 0.4, 0, 0])
mixture = p @ after
print("blind:", {word: round(share, 2) for word, share in zip(words, mixture.tolist()) if share})
print(f"the best guess is right: blind {mixture.max():.2f}, told {p @ after.max(1):.2f}")
impossible = sum(p[x] * mixture[y] for x in range(2) for y in (2, 3) if not after[x, y])
print(f"weight that two blind guesses give to pairs that never occur: {impossible:.2f}")

# %% [markdown]
# **Medusa** is blind and has several guessers.
# They are cheap and answer all at once; since they do not agree with each other, their guesses are put into a tree.
# **MTP** is told, and therefore has to guess one token after the other.
# EAGLE, the next chapter, is told too.
#
# At $T = 0$ the token $t_{i+1} = \arg\max p$ is a function of $f_i$.
# Then a blind guesser lacks no information.
# But it has to work out by itself what the target would do with that token,
# and the target uses all its layers for that.
#
# ## The MTP module, in the open
#
# DeepSeek-V3 ([arXiv:2412.19437](https://arxiv.org/abs/2412.19437), section 2.2) puts one module behind the model.
# For place $i$ it takes the state $f_i$ and the token after it, $t_{i+1}$:
#
# 1. **norm** both, the state and the token's embedding $e(t_{i+1})$,
#    each by an RMSNorm of its own, since they are of different magnitude;
# 2. **concatenate** them to $2D$ numbers, and **project** to $D$:
#    $\;x_i = M\,[\,\mathrm{norm}(e(t_{i+1}));\ \mathrm{norm}(f_i)\,]$
#    (the report writes the state first; the order only permutes the columns of $M$);
# 3. **one block**, an ordinary decoder layer.
#    Its attention reads $x_0 \dots x_i$, so the module has a key-value cache of its own:
#    $\;g_i = \mathrm{block}(x_0 \dots x_i)$;
# 4. the **shared head**: a norm, then the target's own vocabulary projection, which gives a law of $t_{i+2}$.
#
# One projection turned $f_i$ into a law of $t_{i+1}$.
# The same projection turns $g_i$ into a law of $t_{i+2}$, so $g_i$ stands where the target's $f_{i+1}$ will stand.
# Embedding and projection are the target's and need no new weights.
# These are the weights that have been trained:

# %%
from safetensors.torch import load_file
from specdec_core.drafters import weights

tensors = load_file(weights.shipped("mtp"))
for name, tensor in tensors.items():
    print(f"{name:42} {' × '.join(map(str, tensor.shape))}")

# %% [markdown]
# The target was frozen, and the module was trained beside it, on conversations that the target itself wrote,
# to give the target's laws (`specdec train cards` says how).
# DeepSeek-V3 trains its module together with the model, to make the *model* better;
# that the module can also draft is a second use.
# Only the most frequent tokens can be drafted, those in `ids`:
# the projection is the most expensive part of a module as small as this (chapter 02).
#
# Now the four parts, on one text: a question and the beginning of its answer.
# First the states of the target and the pairs:

# %%
import torch

w = {name: tensor.float() for name, tensor in tensors.items()}  # on the CPU and in float32, to be looked at
eps, width = loaded.model.config.rms_norm_eps, loaded.model.config.head_dim
answer = loaded.tokenizer.encode("The capital of Italy is")
text = [*loaded.encode("What is the capital of Italy?"), *answer]
states = lm.prefill(text, needs_hidden=True)  # (L, D): f_0 ... f_{L-1}


def norm(x, weight):
    """RMSNorm."""
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


f = states.float().cpu()
embedded = lm.execution.embed(torch.tensor(text[1:])).float().cpu()  # t_1 ... t_{L-1}
pair = torch.cat([norm(embedded, w["norm_token.weight"]), norm(f[:-1], w["norm_feature.weight"])], -1)
x = pair @ w["join.weight"].T  # (L-1, 2D) -> (L-1, D)

# %% [markdown]
# Then the block: attention with rotary positions over all places up to its own, and a gated MLP.
# Each is added to its input.

# %%
def turn(heads):
    """Rotary positions: pairs of numbers turned by an angle that grows with the place. (L, H, width)"""
    frequency = loaded.model.config.rope_parameters["rope_theta"] ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(len(heads))[:, None, None] * frequency
    a, b = heads.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attention(x):
    q, k, v = ((x @ w[f"layer.self_attn.{part}_proj.weight"].T).unflatten(-1, (-1, width)) for part in "qkv")
    q, k = turn(q), turn(k)
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) / width**0.5
    later = torch.ones(len(x), len(x)).triu(1).bool()
    mixed = torch.einsum("hij,jhd->ihd", scores.masked_fill(later, -torch.inf).softmax(-1), v)
    return mixed.flatten(1) @ w["layer.self_attn.o_proj.weight"].T


def mlp(x):
    gate, up, down = (w[f"layer.mlp.{part}_proj.weight"].T for part in ("gate", "up", "down"))
    return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down

# %%
from specdec_core.drafters import Context, build

x = x + attention(norm(x, w["layer.input_layernorm.weight"]))
g = x + mlp(norm(x, w["layer.post_attention_layernorm.weight"]))  # (L-1, D): stand-ins for f_1 ... f_{L-1}
ids = tensors["ids"]  # (K,) the tokens that the module can draft
E = lm.execution.head_rows(ids).float().cpu()  # (K, D) their rows of the target's projection
ours = E @ norm(g[-1], w["norm_out.weight"])  # (K,) logits of the token after the text

context = Context(lm)
module = build("mtp", context).model  # the package's
theirs = module.logits(module.read(text[1:], states[:-1]))[0].float().cpu()
target = E @ f[-1]  # after reading one token more
print(f"largest difference of ours and the package's, {len(ids)} logits: {(ours - theirs).abs().max():.1e}", end=" ")
print(f"(numbers up to {theirs.abs().max():.0f})")
lines = {"the module, in the open": ours, "the module, package": theirs, "the target, of these": target}
for what, logits in lines.items():
    print(f"{what:24}", [loaded.decode([i]) for i in ids[logits.topk(5).indices]])

# %% [markdown]
# The difference is rounding in the number format of the model.
# Compare the last two lines.
# To get its line, the target had to read *is*, with all its layers.
# The module, right or wrong, had only the target's state *before* that token, the token's embedding, and one layer.
#
# ## One module, several depths
#
# Now the module has drafted $t_{i+2}$.
# For $t_{i+3}$ it would need the pair $(f_{i+1}, t_{i+2})$, but the target has not computed $f_{i+1}$ yet.
# There are two ways to continue.
# DeepSeek-V3's report describes a *chain of modules*, one for each depth; the model it publishes has one.
# Software that serves this model uses the one module **recursively**:
# $g_i$ stands in for $f_{i+1}$, and the pair $(g_i, t_{i+2})$ is the next input.
# So does the package:

# %%
def draft(text, states, depth):
    """Tokens drafted after a text, by one module; states (L-1, D) of all its tokens but the last."""
    module.reset()
    guess, drafted = module.read(text[1:], states), []
    while True:
        drafted.append(int(ids[module.logits(guess).argmax()]))
        if len(drafted) == depth:
            return drafted
        guess = module.draft(drafted[-1:], guess, [len(drafted) - 2])  # its own guess in place of a state


from specdec_core import Budget, Rng

mtp = build("mtp:num_tokens=4", context)
mtp.reset(text)
mtp.read_prompt(states[:-1])
print("ours:   ", draft(text, states[:-1], 4))
print("package:", mtp.propose(text, Budget(64, 64), Rng(0)).tokens[1:].tolist())

# %% [markdown]
# The module was trained on true states only, but from the second token on it reads its own.
# Errors add up: we expect the acceptance to fall with depth.
# To see it we need answers.
# Here are seven of the book's questions, answered by ordinary decoding and by each drafter of this chapter:
# one race, from which every section takes what it needs.
# (`medusa:nodes=14` drafts a tree of 14 tokens; such trees follow below.)
# Up to rounding, the greedy answer does not depend on the drafter.
# So we record the answers of ordinary decoding with their states $f_i$, and use them for all the trees of this chapter.

# %%
from specdec_core import compare
from specdec_core.race import own

wanted = ("chat-01", "chat-02", "math-01", "math-02", "write-01", "summarize-01", "complete_code-01")
prompts = [loaded.encode(question.turns[0]) for question in own() if question.id in wanted]
MTP = {count: f"mtp:num_tokens={count}" for count in (1, 2, 4)}
TREES = {nodes: f"medusa:nodes={nodes}" for nodes in (2, 14, 32)}
drafters = {name: build(name, context) for name in (*MTP.values(), *TREES.values())}
race = compare(lm, prompts, drafters, max_new_tokens=48, repeats=1)  # they take turns, each first in its turn
tau = {name: race.steps(name).tokens_per_call for name in race.methods}  # all answers together

# %%
plain = [answer.tokens for answer in race.answers("autoregressive")]
recorded = []  # (prompt's length, all tokens, their states)
for prompt, answer in zip(prompts, plain):
    tokens = [*prompt, *answer]
    recorded.append((len(prompt), tokens, lm.prefill(tokens, needs_hidden=True)))
print(f"{sum(map(len, plain))} tokens of {len(plain)} answers")

# %%
print(f"MTP, four tokens: τ = {tau[MTP[4]]:.2f}")
for depth, (accepted, tested) in enumerate(race.steps(MTP[4]).by_depth, 1):
    print(f"  depth {depth}: {accepted} of {tested} tested, α = {accepted / tested:.2f}")

# %% [markdown]
# Each α is a *conditional* rate: a depth counts as tested only if all shallower drafts were accepted.
# Text in which the first draft was right is easier than average, which works against the fall.
# DeepSeek-V3's report (section 5.4.3) gives 0.85 to 0.90 for the one token beyond the next.
# That is its own module, trained with a model of 671 billion weights.
#
# When sampling, each token is *drawn* from the module's law $q$,
# processed as the target's is, and tested by $\min(1, p/q)$.
# This is chapter 01 without a change: the module is a draft model whose input is the target's state.
#
# ## Heads on one state
#
# Medusa ([arXiv:2401.10774](https://arxiv.org/abs/2401.10774)) is blind.
# Head $k = 1, 2, \dots$ reads $f_i$ and guesses $t_{i+1+k}$.
# All heads read the same state at the same time, and none knows what another guesses.
# A head of the paper is a residual block and a vocabulary projection of its own,
#
# $$\mathrm{softmax}\big(U_k\,(f + \mathrm{SiLU}(W_k f))\big).$$
#
# The package's heads share the target's projection $E$, cut to the tokens that can be drafted,
# with a small matrix $M_k$ in front: $U_k = E M_k$.
# We compute them in the open, for the text above.
# The target has chosen the root, *is*, from $f_{L-2}$; the heads read the same state:

# %%
tensors = load_file(weights.shipped("medusa"))
ids, accuracy = tensors["ids"].numpy(), tensors["accuracy"].double().numpy()  # (K,), (heads, ranks)
accuracy /= np.maximum(1, accuracy.sum(1, keepdims=True))  # stored in 16 bits, shares may add up to more than 1
w = {name: tensor.float() for name, tensor in tensors.items()}
E, last = lm.execution.head_rows(tensors["ids"]).float().cpu(), f[-2]  # (K, D), (D,)
ours = torch.stack([
    E @ w[f"turns.{k}.weight"] @ (last + torch.nn.functional.silu(w[f"heads.{k}.0.linear.weight"] @ last))
    for k in range(len(accuracy))
])
heads = build("medusa", context).heads  # the package's
theirs = heads(states[-2]).float().cpu()
print(f"largest difference of ours and the package's: {(ours - theirs).abs().max():.1e}", end=" ")
print(f"(numbers up to {theirs.abs().max():.0f})")

# %%
from IPython.display import Markdown, display
from specdec_core import generate
from specdec_core.race import markdown


def shown(token):
    """A token as code, fit for a table: every character but letters and digits is written as an entity of HTML."""
    text = repr(loaded.decode([token]))
    return "<code>" + "".join(c if c.isalnum() else f"&#{ord(c)};" for c in text) + "</code>"


truth = generate(lm, text, max_new_tokens=len(accuracy)).tokens
rows = []
for k, law in enumerate(theirs.softmax(-1), 1):
    best = law.topk(4)
    guesses = [f"{shown(ids[i])} {share:.2f}" for share, i in zip(best.values, best.indices)]
    rows.append([f"{k}", shown(truth[k - 1]), *guesses])
display(Markdown(markdown(rows, ["head", "the target writes", "1st guess", "2nd", "3rd", "4th"])))

# %% [markdown]
# How often is each guess right?
# The weight file holds the answer, counted on conversations that were kept out of training:
# $a_{k,r}$, the share of tokens that are head $k$'s guess of rank $r$.
# The figure shows the running sum, since a head with $r$ guesses is right if one of them is.

# %%
import matplotlib.pyplot as plt
from specdec_core.viz import figures

fig, axes = plt.subplots(figsize=(7.6, 3.6))
ranks_shown = range(1, accuracy.shape[1] + 1)
for k, row in enumerate(accuracy, 1):
    axes.plot(ranks_shown, row.cumsum(), label=f"head {k}", **style.line(k - 1))
log = (0.56, 0.32, 0.20, 0.15)
look = style.QUOTED | {"linestyle": "none"}
axes.plot([1] * len(log), log, label="quoted: 7B, first guess, heads 1 to 4", **look)
axes.set(xlabel="guesses taken from the head", ylabel="share of tokens among them", ylim=(0, 1))
axes.set_xticks(ranks_shown)
axes.legend(ncols=2)
alt = "For each head the share of tokens among its first guesses: it rises with their number, falls by head."
source = "first-guess accuracy logged for a 7B model in the Medusa repository (arXiv:2401.10774)"
figures.save(fig, "03-heads", alt=alt, model=loaded, quoted=[source])

# %% [markdown]
# The figure shows two things.
# The further ahead a head guesses, the less often it is right: there are more tokens in between that it was not told.
# And the second to tenth guesses hold a good part of what the first misses: worth checking, if checking is cheap.
#
# How large are such drafters?

# %%
def size(name):
    """Trained numbers in a weight file: its matrices and norms, not the list of tokens or the counts."""
    found = load_file(weights.shipped(name))
    return sum(tensor.numel() for key, tensor in found.items() if key not in ("ids", "accuracy"))


all_weights = loaded.parameters
print(f"the target: {all_weights / 1e6:.0f} million weights")
for name in ("mtp", "medusa"):
    few = size(name)
    print(f"{name:7} {few / 1e6:5.2f} million trained weights, {few / all_weights:.1%} of the target's")
D, V = E.shape[1], lm.vocab_size
whole = len(accuracy) * (D * D + D * V)
print(f"{len(accuracy)} heads of the paper's form, each with its own projection:", end=" ")
print(f"{whole / 1e6:.0f} million, {whole / all_weights:.0%}")

# %% [markdown]
# > **The notes say …** (*a short introduction*) that such extra weights are usually below 1 % of the model's.
# > That is not so for Medusa as in its paper: each head has a whole vocabulary projection,
# > and the smaller the model, the larger its share.
# > Heads that share the target's projection have a few percent of the weights here, and so has a module of one layer.
# > The appendix counts both for a model of 7 billion weights.
#
# > **The notes say …** (*five routes*) that MTP asks for a model that provides its modules and was trained with them.
# > As its inventors use it, this is true, and a setting alone gives no model a module.
# > To *draft*, however, a module can be trained afterwards beside a frozen model, as EAGLE is.
# > The module of this chapter was.
#
# ## A tree and its mask
#
# Take the best two guesses of head 1, and after *each* of them the best two of head 2.
# That makes six nodes: 1 and 2 below the root 0, then 3 and 4 below 1, and 5 and 6 below 2.
# In general $s_1, s_2, \dots$ guesses of the heads give the **Cartesian product**,
# with $s_1 s_2 \cdots s_d$ nodes at depth $d$.
# Paths share their beginnings, so it is a tree.
# (REST gets such a tree from counts, in chapter 08; Medusa gets it from heads.)
# All nodes are rows of *one* forward.
#
# What must hold in this forward?
# Row $i$'s logits have to be those that the target would give
# after the committed tokens and the path to $i$, as if nothing else were there.
# In a Transformer a row learns of other tokens only through attention, and of its own place only through its position.
# So there are exactly two demands:
#
# 1. **Mask.**
#    Row $i$ attends to the committed tokens, to its ancestors, and to itself; to no sibling, no cousin, no descendant.
# 2. **Position.**
#    Row $i$ stands at the root's position plus its *depth*.
#    Siblings share a position.
#    The row's number has nothing to do with it.
#
# With parents $\pi(i) < i$ the mask has one rule: the row of $i$ is the row of its parent, with a one at $i$ added.
# **By hand**, for the six nodes:
#
# | row | parent | depth | sees rows |
# |--:|--:|--:|:--|
# | 0 | – | 0 | 0 |
# | 1 | 0 | 1 | 0 1 |
# | 2 | 0 | 1 | 0 2 |
# | 3 | 1 | 2 | 0 1 3 |
# | 4 | 1 | 2 | 0 1 4 |
# | 5 | 2 | 2 | 0 2 5 |
# | 6 | 2 | 2 | 0 2 6 |

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import DraftTree

parents = [-1, 0, 0, 1, 1, 2, 2]
mask = np.eye(len(parents), dtype=bool)
for i in range(1, len(parents)):
    mask[i] |= mask[parents[i]]
tree = DraftTree(np.arange(7), np.array(parents))
print(mask.astype(int))
print("the package's mask is the same:", (tree.ancestors == mask).all(), " depths:", tree.depths.tolist())

# %% [markdown]
# Now with the model.
# The heads' guesses after our text become a tree, and we compare each of its rows with a forward over its path alone.
# Beside it stands what one gets without the tree: the same tokens as one long chain, each row seeing all before it.

# %%
def medusa_tree(nodes, text=text, states=states):
    """The tree that the package's drafter proposes after a text."""
    drafter = build(f"medusa:nodes={nodes}", context)
    drafter.reset(text)
    drafter.read_prompt(states[:-1])
    return drafter.propose(text, Budget(64, 64), Rng(0))

# %%
from specdec_core.theory import BITS, spacing

tree = medusa_tree(12)
lm.prefill(text[:-1], reserve=64)  # the last token is the root
together = lm.forward(tree).logits.float()
forgotten = lm.forward(DraftTree.chain(text[-1], tree.tokens[1:])).logits.float()
alone = torch.stack([
    lm.forward(DraftTree.chain(text[-1], tree.tokens[tree.path_to(i)[1:]])).logits[-1].float()
    for i in range(len(tree.tokens))
])
for what, logits in (("tree mask and depths", together), ("forgotten: a chain", forgotten)):
    same = (logits.argmax(-1) == alone.argmax(-1)).float().mean()
    far = (logits - alone).abs().max()
    print(f"{what:22} largest difference {far:7.4f}, same best token in {same:.0%} of the rows")
dtype, top = str(loaded.dtype).removeprefix("torch."), float(alone.max())
apart = spacing(top, BITS[dtype])
print(f"the largest logit is {top:.1f}; there neighboring numbers of {dtype} are {apart:.3g} apart")

# %% [markdown]
# Up to rounding, some spacings of the model's number format (chapter 12),
# a row of the tree does not depend on the rows beside its path.
# Look at any of them: its path, what it sees, where it stands.

# %%
from specdec_core.viz import tree_mask

deepest, last = int(tree.depths.argmax()), tree.size
tree_mask.viewer(tree, lambda i: loaded.decode([i]), committed=len(text) - 1, static=[deepest, last])

# %%
big = medusa_tree(24)
fig = tree_mask.draw(big, [loaded.decode([token]) for token in big.tokens])
alt = "The mask of a Medusa tree of 24 nodes: each row is filled at itself and at the rows of its path only."
figures.save(fig, "03-mask", alt=alt, model=loaded)

# %% [markdown]
# *Rows are named by their tokens.
# The first column is full: every row sees the root.
# A chain would fill the whole lower triangle.*
#
# > **The notes say …** (*a short introduction*) that EAGLE is like Medusa with two things added,
# > a prediction tree and autoregression on features.
# > The tree is Medusa's own: its paper (section 2.1.2) joins candidates from several heads in a tree
# > and checks them by tree attention, as the note *Five routes* says too.
# > EAGLE adds only the second.
#
# ## What a tree is worth
#
# A step writes the accepted tokens and one more.
# A node is accepted exactly if the target's next tokens are its path.
# Expectations add, however the nodes depend on each other, so
#
# $$E[\text{tokens}] = 1 + \sum_{v} P(v \text{ accepted}).$$
#
# This is the sum that every tree in this book maximizes.
# Medusa needs $P(v \text{ accepted})$ before it runs, from the counts $a_{k,r}$.
# If $v$ is reached by rank $r_1$ of head 1, rank $r_2$ of head 2 and so on, it sets
#
# $$P(v \text{ accepted}) \approx a_{1,r_1}\, a_{2,r_2} \cdots a_{d,r_d},$$
#
# as if heads were right or wrong **independently** of each other.
# They are not, and we shall see by how much.
#
# **By hand.**
# Let head 1 have accuracies 0.6 and 0.2, and head 2 0.5 and 0.1.
# For the six nodes above, $E = 1 + (0.6 + 0.2) + (0.6 + 0.2)(0.5 + 0.1) = 2.28$.
# For a Cartesian product each depth is a product of sums; for any other tree one adds up the paths.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import expected_tokens_tree, grow_tree

small = [[0.6, 0.2], [0.5, 0.1]]
rates = [0.6, 0.2, 0.5, 0.1, 0.5, 0.1]  # of the nodes 1 ... 6, each given its parent
print(f"six nodes: {expected_tokens_tree(parents, rates):.2f}")
print(f"without the last, the least likely: {expected_tokens_tree(parents[:6], rates[:5]):.2f}")

# %% [markdown]
# ## Which tree?
#
# The last of those six nodes was worth 0.02 and took a row like any other.
# With a budget of $N$ rows, which nodes should we take?
# **Begin with the root alone, and always add the node of largest probability among those
# whose parent is in the tree** (the paper's section 2.3.3).
#
# > **Theorem.**
# > Under the product formula no tree of $N$ nodes has a larger expectation, for any $N$.
#
# *Proof.*
# All paths of ranks together form one large tree.
# In it a node is never likelier than its parent: its probability is the parent's times a number of at most one.
# Sort its nodes by probability, a parent before its child among equals.
# The first $N$ have the largest sum that $N$ nodes can have,
# and they contain every node's parent, so they *are* a tree.
# Greedy addition takes them in that order: the likeliest node left has its parent in the tree already. $\blacksquare$
#
# **By hand**, with $N = 3$: rank 1 of head 1 (0.6), then after it rank 1 of head 2 (0.6 · 0.5 = 0.3),
# then rank 2 of head 1 (0.2).
# Together $E = 2.1$.
# We check the theorem against *all* trees of a size, for random accuracies:

# %%
# NBVAL_CHECK_OUTPUT
from itertools import combinations, product


def worth(accuracy, path):
    return float(np.prod([accuracy[k][rank] for k, rank in enumerate(path)]))


def best_of_all(accuracy, nodes):
    """The largest expectation of any tree of so many nodes: all sets of paths that hold their parents."""
    heads, guesses = np.shape(accuracy)
    paths = [path for depth in range(1, heads + 1) for path in product(range(guesses), repeat=depth)]
    chosen = map(set, combinations(paths, nodes))
    trees = [some for some in chosen if all(len(path) == 1 or path[:-1] in some for path in some)]
    return max(1 + sum(worth(accuracy, path) for path in some) for some in trees)


print("by hand:", round(float(grow_tree(small, 3)[2].sum()), 2))
rng, gaps = np.random.default_rng(0), []
for _ in range(20):
    random = np.sort(rng.dirichlet(np.ones(4), size=2)[:, :3])[:, ::-1]  # two heads, three ranks, a rest
    gaps += [abs(best_of_all(random, nodes) - grow_tree(random, nodes)[2].sum()) for nodes in (1, 2, 3, 4)]
print("greedy addition is as good as the best of all trees:", max(gaps) < 1e-12)

# %% [markdown]
# Now the heads of our model.
# Every tree can be tried on the recorded answers without running the target:
# for each place of an answer, look up at which rank each head has the token that was really written.
# A step then goes down the tree along these ranks.

# %%
WORST = accuracy.shape[1]  # a rank that no tree has


def ranks_of(recording):
    """(places, heads) rank of the token that was written, in each head's guesses, for a root at each place."""
    length, tokens, states = recording
    found = np.full((len(tokens), len(accuracy)), WORST)
    for place in range(length - 1, len(tokens) - 1):
        best = ids[heads(states[place - 1]).topk(WORST).indices.cpu().numpy()]  # (heads, WORST)
        for k, token in enumerate(tokens[place + 1 : place + 1 + len(accuracy)]):
            found[place, k] = (*np.flatnonzero(best[k] == token), WORST)[0]
    return found[length - 1 : len(tokens) - 1]

# %%
def replay(paths, all_ranks):
    """Tokens per forward of a tree, given by its paths of ranks, over the recorded answers."""
    paths, steps = set(paths), 0
    for ranks in all_ranks:
        place = 0
        while place < len(ranks):
            row = tuple(ranks[place].tolist())
            place += 1 + next((d for d in range(len(row), 0, -1) if row[:d] in paths), 0)
            steps += 1
    return sum(map(len, all_ranks)) / steps


all_ranks = [ranks_of(recording) for recording in recorded]

# %%
def grown(nodes):
    """The best tree under the product formula, as paths of ranks, best first."""
    parents, ranks, _ = grow_tree(accuracy, nodes)
    paths = [()]
    for node in range(1, len(parents)):
        paths.append((*paths[parents[node]], int(ranks[node - 1])))
    return paths[1:]


def cartesian(*sizes):
    """A tree made by hand: so many guesses of each head, all combinations."""
    return [path for depth in range(1, len(sizes) + 1) for path in product(*map(range, sizes[:depth]))]

# %%
trees = {
    "grown from the accuracies": grown(14),
    "by hand: two guesses of three heads": cartesian(2, 2, 2),
    "by hand: one of two heads, three of two more": cartesian(1, 1, 3, 3),
    "by hand: ten of head 1, then four of head 2": [*cartesian(10), *((0, rank) for rank in range(4))],
    "for comparison, a chain": cartesian(1, 1, 1, 1),
}
rows = []
for name, paths in trees.items():
    predicted, counted = 1 + sum(worth(accuracy, path) for path in paths), replay(paths, all_ranks)
    rows.append([name, f"{len(paths)}", f"{max(map(len, paths))}", f"{predicted:.2f}", f"{counted:.2f}"])
display(Markdown(markdown(rows, ["tree", "nodes", "depth", "E, independent heads", "τ, replayed"])))

# %%
raced, best = race.answers(TREES[14]), grown(14)
print("the tree of 14 nodes by depth:", np.bincount([len(path) for path in best], minlength=5)[1:].tolist())
print(f"in the engine: τ = {tau[TREES[14]]:.3f}; replayed: {replay(best, all_ranks):.3f}")
same = [i for i, answer in enumerate(raced) if answer.tokens == plain[i]]
if same:
    ours = replay(best, [all_ranks[i] for i in same])
    theirs = sum(len(raced[i].tokens) for i in same) / sum(raced[i].calls for i in same)
    print(f"on the {len(same)} answers that are the recorded ones: {theirs:.3f} and {ours:.3f}")

# %% [markdown]
# The engine and the replay count the same steps, except where rounding decided a near tie of logits (chapter 12).
# A near tie of the target's logits changes the answer; one of the heads' changes a step.
#
# ## Are the heads independent?
#
# The predictions of the table differ from the replay for two reasons:
# the accuracies were counted on other text, and the product assumes independence.
# To judge the assumption alone we look at chains of first guesses.
# We compare the product of the heads' accuracies with how often the chain was really right,
# both counted on the same text, the recorded answers:

# %%
right = np.concatenate([ranks[: max(0, len(ranks) - len(accuracy) + 1)] == 0 for ranks in all_ranks])
for depth in range(1, right.shape[1] + 1):
    alone, together = right[:, :depth].mean(0).prod(), right[:, :depth].all(1).mean()
    times = together / max(alone, 1e-9)
    print(f"depth {depth}: product {alone:.3f}, the chain {together:.3f}: {times:.1f} times that")

# %%
so_far = [right[:, :d].all(1).sum() for d in range(right.shape[1] + 1)]  # places with the first d heads right
chain = np.array([(hits, tries) for tries, hits in zip(so_far, so_far[1:]) if tries])  # at depth 1, 2, ...
print("heads 1, 2, ... right anywhere:                ", *(f"{share:.2f}" for share in right.mean(0)))
print("and right where all heads before it were right:", *(f"{hits / tries:.2f}" for hits, tries in chain))
more = right[:, :2].all(1).mean() > right[:, :2].mean(0).prod()
print("Heads tend to be right at the same places." if more else "No sign that heads are right together, on this text.")

# %% [markdown]
# Where heads are right together, the product undervalues depth.
# A tree grown from joint counts would be deeper: with enough text one can count paths instead of heads.
# And because all nodes of a depth have the same candidates, the tree is the same in every step,
# however sure or unsure the heads are.
# EAGLE-2's dynamic tree changes that (chapter 04).
#
# ## Acceptance by depth
#
# The figure compares the two drafters of this chapter on the same questions.
# Medusa has two lines.
# One is the chain of first guesses, tried at every place of the answers.
# The other is the tree, tried where its steps began; here a depth counts as accepted if *any* of its nodes was.

# %%
lines = {
    "MTP, one module, recursively": race.steps(MTP[4]).by_depth,
    "Medusa, first guesses": chain,
    "Medusa, tree of 14 nodes": race.steps(TREES[14]).by_depth,
}
fig, axes = plt.subplots(figsize=(7.6, 3.4))
for i, (label, counts) in enumerate(lines.items()):
    a, n = np.array(counts).T  # accepted, tested
    error = np.sqrt(np.maximum(a * (n - a), 1) / n**3.0)
    axes.errorbar(range(1, len(n) + 1), a / n, yerr=error, capsize=3, label=label, **style.line(i))
axes.set(xlabel="depth", ylabel="α: accepted, given all before", ylim=(0, 1))
axes.set_xticks(range(1, len(accuracy) + 1))
axes.legend()
alt = "Conditional acceptance by depth for MTP, for Medusa's first guesses, and for its tree of 14 nodes."
figures.save(fig, "03-depth", alt=alt, model=loaded)

# %% [markdown]
# *Bars: one standard error.*
# A conditional rate may rise with depth.
# A draft that got as far as depth 3 stands in text so regular that even blind guesses are right.
# Only few places are like that, as the bars show.
# MTP gains from this too, but it loses by reading its own states.

# %%
from specdec_core.theory import alpha_for

here = tau[TREES[14]]
quoted = 2.31  # Medusa, Vicuna-7B, tokens per step: Spec-Bench (arXiv:2401.07851)
print("a constant α over four depths that gives the same τ:")
print(f"    {alpha_for(here, 4):.2f} here (tree of 14 nodes, τ = {here:.2f}),")
print(f"    {alpha_for(quoted, 4):.2f} for the τ = {quoted} that Spec-Bench lists for Medusa;")
print(f"    an α of 0.8 would give τ = {sum(0.8**k for k in range(5)):.2f}")

# %% [markdown]
# > **The notes say …** (*model-free chapter*, section 8.1)
# > that the α of repetitive tasks, 0.8 to 0.9, is near Medusa's and EAGLE's.
# > Medusa is far from it.
# > The published number, 2.31 tokens per step (Spec-Bench, [arXiv:2401.07851](https://arxiv.org/abs/2401.07851)),
# > corresponds to the α printed above.
# > And that takes a tree of dozens of nodes; a single guess is right less often still.
#
# ## Checking a tree
#
# **Greedy.**
# One forward gives the target's choice after every row.
# Walk from the root: if a child holds the choice, go there.
# If none does, the choice is the correction; after a leaf it is the bonus.
# Everything beside the path is dropped, and the path's keys and values stay in the cache.
#
# **Sampling, fixed guesses.**
# If the children of a node are fixed tokens, sample $y$ from $p$ and look whether it is among them (chapters 01, 08).
# With the $k$ likeliest tokens of a head, one of the children is accepted with probability $\sum_j p(x_j)$.
#
# **Sampling, drawn guesses.**
# Or draw the children from the head's law $q$, one after another, never the same twice.
# Then the test must match the draw:
#
# > Let $p_1 = p$, $q_1 = q$.
# > For $j = 1, 2, \dots$: accept child $x_j$ with probability $\min(1, p_j(x_j)/q_j(x_j))$.
# > If it is rejected, $p_{j+1} = r(p_j, q_j)$, the residual, and $q_{j+1}$ is $q_j$ without $x_j$, renormalized.
# > If no child is left, draw from the last $p_j$.
#
# *Proof that the token follows $p$.*
# By induction on the number of children.
# With none, it is drawn from $p$.
# Otherwise $x_1$ follows $q_1$.
# One round of rejection sampling emits the law $p_1$
# if a rejection is followed by *any* procedure that emits the residual $p_2$ (chapter 01).
# Given $x_1$, the next child follows $q_2$, and a separate uniform decided whether $x_1$ was accepted.
# So what follows is the same procedure for target $p_2$ with one child less, which emits $p_2$ by induction.
# $\blacksquare$ The same holds below an accepted child, with its own $p$ and $q$.
#
# **By hand.**
# $p = (0.4, 0.4, 0.2)$, $q = (0.5, 0.3, 0.2)$, two children.
# Token 0 comes first with probability 0.5 and is accepted with 0.8.
# Tokens 1 and 2 are accepted whenever they come first, as there $p \ge q$.
# So one child is accepted with probability $0.4 + 0.3 + 0.2 = 0.9$.
# In the remaining 0.1 token 0 was rejected: $p_2 = (0, 1, 0)$, and $q_2 = (0, 0.6, 0.4)$.
# The second child is token 1 with probability 0.6, and is accepted.
# Acceptance in all: $0.9 + 0.1 \cdot 0.6 = 0.96$.
# The law of the token: 0.4; $0.3 + 0.1 = 0.4$; 0.2.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import enumerate_law, total_variation
from specdec_core.core import Lossless, residual, verify, without

p, q = np.array([0.4, 0.4, 0.2]), np.array([0.5, 0.3, 0.2])


def two_children(rng, draw="without_replacement"):
    first = rng.pick(q)
    second = rng.pick(without(q, first))
    tree = DraftTree(np.array([9, first, second]), np.array([-1, 0, 0]), draw, np.tile(q, (3, 1)))
    verdict = verify([p, p, p], tree, rng)
    return verdict.accepted > 0, verdict.tokens[0]


law = enumerate_law(two_children)
print(f"accepted: {sum(mass for (kept, _), mass in law.items() if kept):.2f}")
print("law:     ", *(f"{sum(mass for (_, token), mass in law.items() if token == x):.2f}" for x in range(3)))

# %% [markdown]
# Now everything together: heads with random weights on a target with three tokens,
# a tree of three nodes on two levels, a text of two tokens, and every possible outcome of the draws.
# Beside it stand two rules that do not match the draw.

# %%
from specdec_core import Sampling, TableLM
from specdec_core.core import Typical, distance
from specdec_core.drafters import Medusa

toy, warm = TableLM.random(3, seed=1, scale=1.0), Sampling(temperature=1.0)
seed = torch.Generator().manual_seed(5)
table = torch.randn(2, 3, 3, generator=seed, dtype=torch.float64)  # heads, tokens, states


class NotRenormalized(Medusa):
    """Drawn without replacement, tested as if each child had been drawn from the whole of q."""

    kind = "iid"

    def propose(self, *given):
        tree = super().propose(*given)
        return DraftTree(tree.tokens, tree.parents, self.kind, tree.q) if tree.size else tree


class TestedAsFixed(NotRenormalized):
    """Drawn, tested as fixed tokens: sample from p, look among the children. Right for any children."""

    kind = "point"

# %%
def toy_medusa(cls=Medusa, sampling=warm, **options):
    guesses = np.array([[0.5, 0.3, 0.1], [0.4, 0.2, 0.1]])
    return cls(lambda state: 1.5 * table @ state, np.arange(3), guesses, 3, nodes=3, sampling=sampling, **options)

# %%
# NBVAL_CHECK_OUTPUT
def exact(distance):
    return "0 (below 1e-12)" if distance < 1e-12 else f"{distance:.4f}"


for what, drafter in {
    "fixed guesses, sample and match": toy_medusa(draw="point"),
    "drawn without replacement, tested so": toy_medusa(),
    "drawn, tested as fixed": toy_medusa(TestedAsFixed),
    "drawn without replacement, q not renormalized": toy_medusa(NotRenormalized),
}.items():
    print(f"{what:46} distance {exact(distance(toy, [0, 1], 2, warm, drafter))}")

# %% [markdown]
# The third line may be a surprise.
# Sample-and-match does not ask where the children came from, so it is lossless for every tree.
# The fourth line is the mistake: after a rejection the second child no longer comes from $q$.
#
# Which lossless rule accepts more?
# Neither always does.
# With $q = p$ one drawn child is accepted for certain, one fixed child only with probability $\max p$.
# With $q$ flat and $p$ sharp it is the other way round.
# We compute the probability that one of $k$ children is accepted, for one place, at two temperatures.
# The target's laws come from its recorded states, $q$ is the law of head 1.

# %%
def logits_at(count=40):
    """At places all over the answers: the target's logits after the root, and head 1's."""
    roots = [(states, place) for length, tokens, states in recorded for place in range(length, len(tokens))]
    whole = lm.execution.head_rows(torch.arange(lm.vocab_size)).float()
    for states, place in roots[:: max(1, len(roots) // count)]:
        both = whole @ states[place].float(), heads(states[place - 1])[0]
        yield [logits.double().cpu().numpy() for logits in both]


def laws_of(both, T):
    """(p, q), each over all tokens."""
    law, q = Sampling(temperature=T).law, np.zeros(lm.vocab_size)
    q[ids] = law(both[1])
    return law(both[0]), q


all_logits = list(logits_at())
laws = {T: [laws_of(both, T) for both in all_logits] for T in (0.3, 0.7, 1.0)}

# %%
def kept_drawn(p, q, k, rng, tries=8):
    """Acceptance by k children drawn without replacement, averaged over draws; given a draw it is exact."""
    total = 0.0
    for _ in range(tries):
        left_p, left_q, alive = p, q, 1.0
        for _ in range(k):
            child = rng.pick(left_q)
            accept = min(1.0, left_p[child] / left_q[child])
            total, alive = total + alive * accept, alive * (1 - accept)
            if alive <= 0:
                break
            left_p, left_q = residual(left_p, left_q), without(left_q, child)
    return total / tries


rows = []
for T in (0.3, 1.0):
    for k in (1, 2, 4):
        fixed = np.mean([p[np.argsort(-q)[:k]].sum() for p, q in laws[T]])
        drawn = np.mean([kept_drawn(p, q, k, Rng(k)) for p, q in laws[T]])
        rows.append([f"{T}", f"{k}", f"{fixed:.2f}", f"{drawn:.2f}"])
display(Markdown(markdown(rows, ["T", "guesses", "fixed: the likeliest", "drawn without replacement"])))

# %% [markdown]
# ## Typical acceptance is not lossless
#
# When sampling, every lossless rule rejects some perfectly plausible tokens, because something else was drawn.
# Medusa's authors propose to keep them.
# **Typical acceptance** (section 2.3.1) keeps a drafted token $x$ if
#
# $$p(x) > \min\big(\epsilon,\ \delta\, e^{-H(p)}\big), \qquad H(p) = -\textstyle\sum_y p(y) \ln p(y).$$
#
# $e^{-H}$ is the probability of each token in a uniform law of the same entropy:
# the less sure the target is, the less is asked of the token.
# Of the paths whose tokens all pass, the longest is taken; the token after it is the target's best.
# The authors' code has $\epsilon = 0.09$ and $\delta = 0.3 = \sqrt{\epsilon}$.
# The rule does not use $q$, draws nothing, and has no residual that would repair the law.
#
# **By hand.**
# $p = (0.5, 0.3, 0.2)$ has $H = 0.347 + 0.361 + 0.322 = 1.030$ and $e^{-H} = 0.357$.
# Times 0.3 that is 0.107; the smaller of the two is 0.09.
# All three tokens pass.
# A draft drawn from $q = (0.2, 0.2, 0.6)$ is kept whatever it is,
# so **what is written follows $q$**, at distance $\mathrm{TV}(p, q) = 0.4$ from $p$.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.core import threshold

p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
print(f"threshold {threshold(p):.3f}; delta exp(-H) = {threshold(p, epsilon=1.0):.3f}")


def one_draft(rng, rule):
    tree = DraftTree.chain(9, [rng.pick(q)], q[None], "iid")
    return rule([p, p], tree, rng).tokens[0]


target_law = dict(enumerate(p))
for name, rule in (("rejection sampling", verify), ("typical acceptance", Typical())):
    law = enumerate_law(lambda rng: one_draft(rng, rule))
    written, far = (f"{law.get(x, 0.0):.3f}" for x in range(3)), total_variation(law, target_law)
    print(f"{name:19} writes {', '.join(written)}, distance {exact(far)}")

# %% [markdown]
# **On the small table**, by enumeration, over two tokens:
# the heads' tree, drawn or fixed, at several temperatures and thresholds ($\delta = \sqrt\epsilon$ throughout).

# %%
# NBVAL_CHECK_OUTPUT
def toy_distance(T, draw, rule):
    sampling = Sampling(temperature=T)
    return distance(toy, [0, 1], 2, sampling, toy_medusa(draw=draw, sampling=sampling), rule)


rows = []
for T in (0.3, 0.7, 1.0, 1.5):
    cells = [exact(toy_distance(T, "without_replacement", Lossless()))]
    for draw in ("without_replacement", "point"):
        cells += [f"{toy_distance(T, draw, Typical(e, e**0.5)):.3f}" for e in (0.09, 0.3, 0.6)]
    rows.append([f"{T}", *cells])
names = [f"{draw}, ε = {e}" for draw in ("drawn", "fixed") for e in (0.09, 0.3, 0.6)]
display(Markdown(markdown(rows, ["T", "lossless rule", *names])))

# %% [markdown]
# A stricter threshold does not lead back to $p$.
# A rejected token is replaced by the target's *best* token and not by a draw.
# So a rule that keeps nothing writes greedy text, which follows yet another law.
# And with *fixed* guesses nothing in the whole procedure is random any more:
# there is only one text, and its law is a point mass, at distance $1 - p(\text{text})$.
#
# **On the model**, for one position, exactly.
# A token $x$ is drafted from $q$, head 1's law, and kept if $p(x)$ exceeds the threshold θ;
# otherwise the target's best, $x^*$, is written:
#
# $$P(y) = q(y)\,[\,p(y) > \theta\,] \;+\; [\,y = x^*\,] \sum_{x:\, p(x) \le \theta} q(x).$$

# %%
def typical_law(p, q, epsilon, fixed=False):
    """The law of one token: a draft from q (or q's best, fixed), kept by the rule or replaced by p's best."""
    if fixed:
        q = np.eye(1, len(q), int(q.argmax()))[0]
    passes = p > threshold(p, epsilon, epsilon**0.5)
    law = np.where(passes, q, 0.0)
    law[p.argmax()] += q[~passes].sum()
    return law


def tv(a, b):
    return 0.5 * np.abs(a - b).sum()

# %%
rows, epsilons = [], (0.01, 0.09, 0.3)
for T, pairs in laws.items():
    for fixed in (False, True):
        far = {e: [tv(p, typical_law(p, q, e, fixed)) for p, q in pairs] for e in epsilons}
        how = "fixed" if fixed else "drawn"
        rows.append([f"{T}", how, *(f"{np.mean(d):.2f} ({np.quantile(d, 0.9):.2f})" for d in far.values())])
display(Markdown(markdown(rows, ["T", "draft", *(f"ε = {e}: mean TV (9 of 10 below)" for e in epsilons)])))

p, q = laws[1.0][0]
q = np.where(q >= np.sort(q)[-50], q, 0) / q[q >= np.sort(q)[-50]].sum()  # 50 tokens, few enough to enumerate
law, formula = enumerate_law(lambda rng: one_draft(rng, Typical())), dict(enumerate(typical_law(p, q, 0.09)))
print(f"the formula and the package's rule at one position differ by {total_variation(law, formula):.0e}")

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.2))
for i, (T, pairs) in enumerate(laws.items()):
    far, look = sorted(tv(p, typical_law(p, q, 0.09)) for p, q in pairs), style.line(i) | {"markersize": 3}
    axes.plot(far, np.linspace(0, 1, len(pairs)), label=f"T = {T}", **look)
axes.axvline(0, color="black", linewidth=1)
axes.set(xlabel="distance of one token's law from p, at most (lossless: 0)", ylabel="share of positions")
axes.set_xlim(-0.02, 1)
axes.legend()
alt = "Share of positions by the distance of typical acceptance's law from the target's; three temperatures."
figures.save(fig, "03-typical", alt=alt, model=loaded)

# %% [markdown]
# Now whole texts: four seeds, $T = 1$, the same prompt (the shortest).
# What does the rule gain, and what is left of sampling?

# %%
def seeds(rule, draw):
    """Four answers to one question at T = 1: how many differ, and their tokens per forward."""
    options = {"sampling": warm, "rule": rule, "max_new_tokens": 32, "stop": loaded.stop}
    drafter = build(f"medusa:nodes=14,draw='{draw}'", Context(lm, sampling=warm))
    answers = [generate(lm, shortest, drafter, seed=seed, **options) for seed in range(4)]
    calls = sum(answer.trace.target_calls for answer in answers)
    return len({answer.tokens for answer in answers}), sum(answer.trace.emitted for answer in answers) / calls


shortest = min(prompts, key=len)
for name, rule in (("lossless", Lossless()), ("typical", Typical())):
    for draw in ("without_replacement", "point"):
        different, tokens = seeds(rule, draw)
        how = "fixed" if draw == "point" else "drawn"
        print(f"{name:9} {how:6} 4 seeds, distinct answers: {different}, τ = {tokens:.2f}")

# %% [markdown]
# > **The notes say …** (*five routes*) that Medusa's paper has two kinds of acceptance,
# > one that keeps the target's law and one that gives up quality for acceptance,
# > and that they must not both be called lossless.
# > That is right, but one word should be sharper: what is given up is the *law*, and how much of it is a number.
# > Whether the text is worse is another question, which no distance of laws answers.
#
# At $T = 0$ there is nothing to lose: $p$ is one-hot, only its best token passes, and the two rules are the same.
#
# ## How many nodes?
#
# So far a node was free.
# On this machine a forward with $N + 1$ rows takes $t(N + 1)$, and a tree pays if
#
# $$\tau(N) > \frac{t(N+1) + t_{\text{draft}}}{t(1)}.$$
#
# The replay gives $\tau(N)$ for every $N$ at once, as the best trees are nested; $t(q)$ we measure.

# %%
from specdec_core.measure import measure_costs

SIZES = (1, 2, 4, 8, 16, 32, 64)
costs = measure_costs(lm, widths=[1, *(nodes + 1 for nodes in SIZES)], context=160, repeats=7)
order = grown(64)
steps = {nodes: replay(order[:nodes], all_ranks) for nodes in SIZES}
independent = {nodes: 1 + sum(worth(accuracy, path) for path in order[:nodes]) for nodes in SIZES}

# %%
around = race.steps(TREES[14]).draft_seconds  # mean seconds of a step
predicted = {nodes: steps[nodes] * costs.t(1) / (costs.t(nodes + 1) + around) for nodes in SIZES}
faster = {name: race.row(name).decode_speedup for name in race.methods}
clock = {nodes: faster[name] for nodes, name in TREES.items()}

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.6))
left.plot(SIZES, list(steps.values()), label="τ, replayed", **style.line(1))
left.plot(SIZES, list(independent.values()), label="E, independent heads", **style.line(0))
needed = [costs.break_even(nodes + 1) for nodes in SIZES]
left.plot(SIZES, needed, label="needed: t(N + 1)/t(1)", **style.line(2))
left.set(title="Tokens per forward", ylim=(0, 2 * max(steps.values())))
right.plot(SIZES, list(predicted.values()), label="τ t(1)/(t(N + 1) + heads)", **style.line(2))
right.plot(list(clock), list(clock.values()), label="measured", **style.line(3) | {"linestyle": "none"})
right.axhline(1, color="black", linestyle="--", linewidth=1)
right.set(title="Times as fast, on the clock", ylim=(0, None))
for axes in (left, right):
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, SIZES)
    axes.set_xlabel("N, nodes of the tree")
    axes.legend()
alt = "Left: tokens per forward by the tree's nodes, and those needed to pay for them. Right: speed by nodes."
figures.save(fig, "03-nodes", alt=alt, model=loaded)

# %%
from specdec_core.theory import best_tree

chosen = best_tree(accuracy, lambda q: costs.t(q) + around * (q > 1), max_nodes=64)
top = max(SIZES, key=predicted.get)
gain = np.diff([steps[nodes] for nodes in SIZES])
print("tokens per forward that each doubling of the tree adds:", *(f"{more:.2f}" for more in gain))
print(f"In steps: τ = {steps[64]:.2f} with 64 nodes, {steps[8]:.2f} with 8.")
print(f"By this machine's t(q) the best of these sizes is N = {top}, {predicted[top]:.2f} times as fast as", end=" ")
print(f"autoregressive decoding; with 64 nodes it is {predicted[64]:.2f}.")
print(f"best_tree, from the heads' counts and t(q): {len(chosen.ranks)} nodes, {chosen.speedup:.2f} times.")
one = race.row("autoregressive").ms["forward"]
print(f"A forward of one row took {1e3 * costs.t(1):.1f} ms alone, {one:.1f} ms in the race:", end=" ")
print("if points on the right miss the line, look here first.")

# %% [markdown]
# Each further node adds less to τ, as it must: nodes come in the order of their probability.
# $t(N + 1)$ is flat only as long as the forward waits for its weights to be read.
# On a GPU that lasts for dozens of rows, and the published trees of 63 nodes are made for that.
# A CPU with two cores reaches its arithmetic limit after a few rows.
# In a *batch* every sequence has its own tree, and the free rows are used up sooner (chapter 11).
#
# Last, all runs of the race side by side:

# %%
rows = []
for name in race.methods:
    around, forward = 1e3 * race.steps(name).draft_seconds, race.row(name).ms["forward"]
    times = f"{around:.1f} ms", f"{forward:.1f} ms", f"{faster[name]:.2f}"
    rows.append([f"`{name}`", f"{tau[name]:.2f}", *times])
display(Markdown(markdown(rows, ["method", "τ", "drafting per step", "one forward", "times as fast"])))
by_steps, by_clock = max(tau, key=tau.get), max(faster, key=faster.get)
print(f"Most tokens per forward: {by_steps}, {tau[by_steps]:.2f}. Fastest: {by_clock}, {faster[by_clock]:.2f} times.")

# %% [markdown]
# Drafting is not free on a small target.
# A step of MTP reads one layer and a projection of some thousands of rows for *each* drafted token,
# one after the other.
# Medusa's heads share one product, however deep the tree.
#
# ## Pitfalls
#
# - **Off by one.**
#   Head 1 does not guess the next token.
#   The target's own projection does that.
#   Head 1 guesses the token after it, and reads the state of the token *before* the root.
# - **Positions by row number.**
#   Row numbers 0, 1, 2, … used as positions are right for a chain and wrong for every branch.
# - **Cache of the dropped rows.**
#   After a step only the path's keys may stay.
#   If the key of a rejected sibling stays, all later tokens see it.
# - **Accuracy is not acceptance.**
#   $a_{k,r}$ counts a head alone; a node is accepted only if its whole path is right.
#   The product of accuracies assumes independence.
# - **Children drawn without replacement, tested as independent.**
#   $q$ must be renormalized without the rejected child.
# - **"Medusa at T = 1".**
#   With typical acceptance and fixed guesses the seed has no effect.
#   Say which rule was used before comparing speeds.
# - **τ with a tree** says nothing about one guess.
#   Compare trees of equal size, or compare on the clock.
#
# ## Summary
#
# - A state knows something about the tokens after the next.
#   Blind guessers (Medusa) are bounded by $\max_y \sum_x p(x)p(y|x)$,
#   told ones (MTP, EAGLE) by $\sum_x p(x) \max_y p(y|x)$, which is never less.
# - The MTP module: norm, concatenate, project, one block, the shared head.
#   Its output stands where the next state will stand, so one module can go on by itself; acceptance falls with depth.
# - One forward checks a tree if each row sees the committed tokens, its ancestors and itself,
#   at a position given by its depth.
# - $E[\text{tokens}] = 1 + \sum_v P(v)$.
#   Greedy addition by path probability gives the best tree of every size, under the product formula;
#   where heads are right together, the product undervalues depth.
# - Sampling with a tree is lossless with fixed children (sample and match),
#   and with drawn ones (residual, and $q$ without the rejected child).
#   Typical acceptance is not: its distance from $p$ is a number far above rounding,
#   and on the model it grew with the temperature.
# - τ grows ever more slowly with the nodes; $t(N+1)$ grows in proportion to them once the forward is compute-bound.
#   The best size depends on the machine.
#
# **Can you answer these?**
# A tree has three children of the root and two below each: how many ones has its mask?
# (Ten rows: 1 + 3 · 2 + 6 · 3 = 25.)
# Which positions do the nine nodes have, with 100 tokens committed?
# (101 for the three, 102 for the six; the root stands at 100.)
# A head has accuracies 0.5 and 0.3, the next 0.4 and 0.3: which three nodes?
# (0.5; 0.3; 0.5 · 0.4 = 0.2.)
#
# ## Further reading
#
# - T. Cai and others, *Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads*,
#   ICML 2024, [arXiv:2401.10774](https://arxiv.org/abs/2401.10774)
# - DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024,
#   [arXiv:2412.19437](https://arxiv.org/abs/2412.19437): section 2.2, the module
# - F. Gloeckle and others, *Better & Faster Large Language Models via Multi-token Prediction*,
#   2024, [arXiv:2404.19737](https://arxiv.org/abs/2404.19737): several heads in pretraining
# - M. Stern, N. Shazeer, J. Uszkoreit, *Blockwise Parallel Decoding for Deep Autoregressive Models*,
#   NeurIPS 2018, [arXiv:1811.03115](https://arxiv.org/abs/1811.03115):
#   heads that guess ahead and a model that checks, before the name
# - X. Miao and others, *SpecInfer*, ASPLOS 2024,
#   [arXiv:2305.09781](https://arxiv.org/abs/2305.09781): tree verification
# - W. Jeon and others, *Recursive Speculative Decoding*,
#   2024, [arXiv:2402.14160](https://arxiv.org/abs/2402.14160): drafts without replacement
# - Z. Chen and others, *Sequoia*, 2024, [arXiv:2402.12374](https://arxiv.org/abs/2402.12374):
#   best trees, and trees for a machine
