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
# # 04 · EAGLE
#
# > **The question of this chapter.**
# > Medusa's heads guess all places ahead from one state, none knowing what another guessed.
# > What is gained if one small layer continues the target's *states* instead, one after another,
# > and is told each time which token was drawn?
#
# **Afterwards you can**
#
# - say which state and which token the module reads together, and what comes out, in training and while drafting;
# - show with numbers why the drawn token must be fed back, and the most that a drafter can reach without it;
# - explain why such a module is trained on the target's own text and on its own states,
#   and what depths 2 to 4 lose otherwise;
# - grow EAGLE-2's dynamic tree by hand: value, expansion layer by layer, the cut through all layers;
#   and prove which trees may be drawn when sampling;
# - check whether a drafter's confidence means what it says, and find out where the time of drafting goes.
#
# **Taken for granted:** chapter 01 (rejection sampling; several drafts for one place) and chapter 03
# (heads on the last state, a candidate tree and its mask, a module that is used again and again).
# Chapter 00 for $t(q)$ and τ.
#
# **Time:** 40 minutes of reading; the cells take about two minutes on two CPU cores.

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
import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown, display
from specdec_core import CachedLM, load
from specdec_core.viz import figures, style

style.use()
loaded = load("default")
lm, tokenizer = CachedLM(loaded), loaded.tokenizer
print(loaded.why)

# %% [markdown]
# ## Continue states, not tokens
#
# After the target has read $t_1 \dots t_i$,
# its last layer and final norm leave a vector $f_i$ of $D$ numbers, the **feature** or state.
# The vocabulary projection $H$ turns it into the distribution of the next token, its **law** for short:
#
# $$p(\cdot \mid t_1 \dots t_i) = \mathrm{softmax}(H f_i).$$
#
# $H$ is known, so a guess of the next *states* is a draft.
# And the states of the text so far come for free: the target has just computed them.
# EAGLE (Li and others, 2024,
# [arXiv:2401.15077](https://arxiv.org/abs/2401.15077)) trains one decoder layer $g$ to do it,
#
# $$\hat f_{i+1} = g\big(f_1 \dots f_i;\; t_2 \dots t_{i+1}\big), \qquad
# \hat t_{i+2} \sim \mathrm{softmax}(H \hat f_{i+1}),$$
#
# and continues from its own output: $\hat f_{i+2} = g(f_1 \dots f_i, \hat f_{i+1};\; t_2 \dots t_{i+1}, \hat t_{i+2})$.
# That is **autoregression on features**.
# It is easier than predicting tokens from tokens, as a draft model does:
# $f_i$ has been through all layers of the target, and only the next state is missing.
#
# Mistakes happen in the bookkeeping.
# The state at place $i$ is read together with the token *after* it, $t_{i+1}$, which was drawn from the law of $f_i$.
# For the text *the cat sat*, with *on* just drawn:
#
# | place | 1 | 2 | 3 | 4 | 5 |
# |:--|:--|:--|:--|:--|:--|
# | state read, after | *the* | *cat* | *sat* | ~*on* | ~*a* |
# | token read with it | *cat* | *sat* | *on* | *a* (drafted) | *mat* (drafted) |
# | output stands for the state after | *cat* | *sat* | *on* | *a* | *mat* |
# | its law drafts | | | *a* | *mat* | … |
#
# A tilde marks a state that the module made itself.
# After the target's check the true states of the accepted tokens are known.
# They replace the guesses, and the module reads them again.
# So the first draft of a step always comes from true states only.
#
# > **The notes say …** (*five routes*) that EAGLE starts from features of an *intermediate* layer of the target.
# > EAGLE and EAGLE-2 start from the top: the paper's "second-to-top-layer" counts the vocabulary projection
# > as the top layer, and below it is the last hidden state.
# > Layers from the middle are used by EAGLE-3, at the end of this chapter.
# > The cell shows it: the states that our drafter is given are the vectors that the projection turns into logits.

# %%
from specdec_core import DraftTree

some = tokenizer.encode("The letters of the alphabet are")
lm.prefill(some[:-1], reserve=2)
out = lm.forward(DraftTree.empty(some[-1]), needs_hidden=True)
rows = lm.execution.head_rows(torch.arange(1000))  # of the vocabulary projection, for a thousand tokens
apart = (out.hidden.float() @ rows.float().T - out.logits[:, :1000].float()).abs().max()
print(f"D = {out.hidden.shape[1]}; largest difference between H f and the logits: {apart:.1e},", end=" ")
print(f"the rounding of {str(loaded.dtype)[6:]}")

# %% [markdown]
# **What does it cost?**
# By hand, for our target with $D = 576$, keys of $192$ and an inner width of $1536$:
# joining state and embedding $2D \cdot D = 663{,}552$; attention $2D^2 + 2 \cdot 192\,D = 884{,}736$;
# the feed-forward part $3 \cdot 1536\,D = 2{,}654{,}208$; two norms $2D = 1{,}152$.
# Together $4{,}203{,}648$ weights.
# The projection is added to that, $D$ weights for every token that can be drafted.
# Embedding and projection are the target's own and are not trained.

# %%
from safetensors.torch import load_file
from specdec_core.drafters import EAGLE, Context, build, read_card, shipped

card, tensors = read_card(shipped("eagle")), load_file(shipped("eagle"))
K, D = len(tensors.pop("ids")), out.hidden.shape[1]
layer = sum(tensor.numel() for tensor in tensors.values())
print(f"one layer: {layer:,} weights, {layer / loaded.parameters:.1%} of the target's {loaded.parameters:,}")
print(f"projection to the {K:,} tokens drafted: {K * D:,};", end=" ")
print(f"a forward of the module reads {(layer + K * D) / loaded.parameters:.1%} of the target's")
module = build("eagle", Context(lm)).model

# %% [markdown]
# > **The notes say …** (*a short introduction*)
# > that the extra weights of EAGLE and Medusa are usually below 1 % of the target's.
# > One layer's share is one over the target's number of layers:
# > some 3 % for a target with 30, as the cell prints, and by the paper's own count 0.24 of 7 billion, about 3.5 %.
# > It falls below 1 % only if a target has more than a hundred layers.
# > And each forward of the module *reads* the projection as well.
#
# The projection is about as large as the layer, although it is cut to the $K$ most frequent tokens (chapter 02;
# FR-Spec, [arXiv:2502.14856](https://arxiv.org/abs/2502.14856)).
# With all tokens it would be several times as large.
#
# **A first run.**
# A chain of four drafts per step.
# The table shows the drafts in order, those accepted in bold, then the token that the target adds:

# %%
from specdec_core import stream


def shown(tokens):
    """Tokens as code, fit for a table: what is no letter or digit is written as an entity of HTML."""
    texts = (repr(tokenizer.decode([token])) for token in tokens)
    safe = ("".join(c if c.isalnum() else f"&#{ord(c)};" for c in text) for text in texts)
    return " ".join(f"<code>{text}</code>" for text in safe)


def words(rows, columns):
    """A table of words, to the left."""
    lines = [columns, [":--"] * len(columns), *rows]
    return Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))


# %%
prompt = loaded.encode("What is the capital of France, and what is it known for?")
rows, four = [], EAGLE(module, lm.vocab_size, tree="chain", depth=4)
for step in stream(lm, prompt, four, max_new_tokens=20, stop=loaded.stop):
    draft, kept = step.tree.tokens[1:], step.verdict.accepted
    accepted = f"**{shown(draft[:kept])}** " if kept else ""
    rows.append([accepted + shown(draft[kept:]), shown([step.verdict.next_token]), str(kept + 1)])
display(words(rows, ["draft", "target adds", "tokens"]))

# %% [markdown]
# ## Why the drawn token must be fed back
#
# Chapter 03 compared two guessers of one token, a blind one and one that is told.
# EAGLE drafts from a *distribution*, so the question is how often a draft from it can be accepted.
# Suppose the module read states alone.
# $f_i$ determines the law of $t_{i+1}$, but not which token was *drawn* from it.
# But the next state, and so the law of $t_{i+2}$, depends on the draw.
#
# **By hand.**
# After *I* the target draws *am* with 0.6 and *always* with 0.4.
# After *I am* it gives *glad* 0.9 and *begin* 0.1; after *I always* the reverse.
# Both continuations start from the same state.
# A drafter that is told the token has $q = p$ in both cases and is always accepted.
# A blind one has a single $q$ for both.
# A draft drawn from $q$ is accepted with probability $\sum_x \min(p(x), q(x))$
# (chapter 01), here averaged over what was drawn before:
#
# - Training by cross-entropy on samples leads to the mixture $q = 0.6\,(0.9, 0.1) + 0.4\,(0.1, 0.9) = (0.58, 0.42)$.
#   After *am* it is accepted with $0.58 + 0.1 = 0.68$, after *always* with $0.1 + 0.42 = 0.52$:
#   on average $0.6 \cdot 0.68 + 0.4 \cdot 0.52 = 0.616$.
# - The best single $q$ is a different one.
#   Raise $q(\textit{glad})$ from zero: up to 0.1 both cases gain; from there to 0.9 only *am* does, at a rate of 0.6.
#   For *begin* the rates are 1, then 0.4.
#   Spend the total probability of one where the rate is highest:
#   $q = (0.9, 0.1)$, acceptance $0.1 + 0.8 \cdot 0.6 + 0.1 = 0.68$.
#   No blind drafter gets more.
#
# The second calculation works for any number of continuations and tokens.
# Cut each $q(x)$ into pieces at the values $p(x \mid t)$.
# The rate of a piece is the total probability of those $t$ whose $p(x \mid t)$ reaches it.
# Take the pieces from the highest rate down until a total probability of one is used up.

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core.theory import acceptance_rate


def mixture(shares, laws):
    """Acceptance, on average over t, of q = sum_t p(t) p(. | t). Shares (T,), laws (T, V)."""
    return float(shares @ np.minimum(laws, shares @ laws).sum(1))


def best_blind(shares, laws):
    """The largest acceptance, on average over t, that a single q can have."""
    order = laws.argsort(0)
    pieces = np.diff(np.take_along_axis(laws, order, 0), axis=0, prepend=0)
    rates = shares[order][::-1].cumsum(0)[::-1].ravel()
    take = np.argsort(-rates, kind="stable")
    mass = np.minimum(pieces.ravel()[take].cumsum(), 1)
    return float(np.diff(mass, prepend=0) @ rates[take])


shares, laws = np.array([0.6, 0.4]), np.array([[0.9, 0.1], [0.1, 0.9]])
print("the mixture, case by case:", *(f"{acceptance_rate(law, shares @ laws):.2f}" for law in laws))
print(f"the mixture: {mixture(shares, laws):.3f}   the best blind q: {best_blind(shares, laws):.3f}", end="   ")
print("told the token: 1.000")

# %% [markdown]
# **On the real target** the same can be computed exactly, without any drafter.
# We walk along a sampled answer ($T = 1$).
# At each state we take the eight likeliest next tokens and let one forward give the law after *each* of them:
# a tree with eight leaves.
# What is the most that a drafter can reach if it knows the state perfectly, but not which of the eight was drawn?

# %%
def walk(prompt, count, k=8, seed=0):
    """Along a sampled answer: shares (k,) of the likeliest next tokens, and the laws (k, V) after them."""
    rng, root = np.random.default_rng(seed), prompt[-1]
    lm.prefill(prompt[:-1], reserve=count + k + 2)
    law = lm.forward(DraftTree.empty(root)).logits[0].double().softmax(-1).cpu().numpy()
    for _ in range(count):
        best = np.argsort(-law)[:k]
        star = DraftTree.from_paths(root, [[token] for token in best])
        laws = lm.forward(star).logits[1:].double().softmax(-1).cpu().numpy()
        shares = law[best] / law[best].sum()
        yield shares, laws
        lm.commit([0])
        drawn = rng.choice(k, p=shares)
        root, law = int(best[drawn]), laws[drawn]


points = []  # (share of the likeliest token, acceptance of the best blind q, of the mixture)
for text in ("Write a short story about a lighthouse.", "How do bees make honey?"):
    for shares, laws in walk(loaded.encode(text), 20):
        points.append((shares[0], best_blind(shares, laws), mixture(shares, laws)))
certain, best, mixed = np.array(points).T

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.6))
axes.scatter(certain, best, marker="o", color=style.PALETTE[1], label="the best blind q")
axes.scatter(certain, mixed, marker="x", color=style.PALETTE[2], label="the mixture, as cross-entropy has it")
axes.axhline(1, color="black", linestyle="--", linewidth=1, label="told the token")
axes.set(xlabel="probability of the likeliest token at the state", ylabel="acceptance at T = 1")
axes.set_ylim(0, 1.05)
axes.legend(loc="lower right")
alt = "What a drafter can reach without the drawn token, by state: little where the target is unsure."
figures.save(fig, "04-blind", alt=alt, model=loaded)
unsure = certain < np.median(certain)
print(f"Averages over {len(points)} states: the best blind q {best.mean():.2f},", end=" ")
print(f"the mixture {mixed.mean():.2f}; told the token, up to 1.")
print(f"In the less certain half of the states: {best[unsure].mean():.2f} and {mixed[unsure].mean():.2f}.")

# %% [markdown]
# *Each point is a state of the target.*
# Where the target is certain of the next token, nothing needs to be fed back.
# Where it is not, a state without its token is a fork in the road, and there drafts are rejected more often anyway.
#
# At $T = 0$ the token is a function of the state,
# but only through the whole vocabulary projection, which one small layer would have to learn by heart.
# And a draft tree needs more than the argmax:
# siblings come from one state, so a blind module would give all of them the same children.
#
# **A training without a loop.**
# The simplest module that can be trained is a linear map from what it reads at a place to the state at the next place,
# fitted by least squares.
# We give it the state, the token, or both, on the same text:
# some of the conversations that EAGLE itself was trained on (next section), whose states the target computes now.
# Then we count, on held-out conversations, how often the map's best token is what the target really wrote next.

# %%
from specdec_core.race import ANSWER, LOOP, TEXT

L, stored = 256, np.load(TEXT)
greedy = np.flatnonzero(stored["temperature"] == 0)
held_out = greedy[greedy % 16 == 15][:10]  # these no training sees
training = greedy[greedy % 16 != 15][:40]


def read(rows):
    """Tokens (B, L), roles (B, L) and the target's states (B, L, D) of stored conversations."""
    tokens = torch.from_numpy(stored["tokens"][rows, :L].astype(np.int64))
    states = torch.stack([lm.prefill(line, needs_hidden=True).float().cpu() for line in tokens.tolist()])
    return tokens, torch.from_numpy(stored["roles"][rows, :L]), states


seen, unseen = read(training), read(held_out)
ids = torch.from_numpy(module.ids)
embedding = lm.execution.embed(torch.arange(lm.vocab_size)).float().cpu()  # (V, D)
head = lm.execution.head_rows(ids).float().cpu()  # (K, D)

# %%
def joined(tokens, states, reads):
    """What the map reads at each place, (B, L, ...): the state, the embedding of a token, a constant."""
    parts = {"state": states, "token": embedding[tokens] / embedding.std(), "1": torch.ones(*tokens.shape, 1)}
    return torch.cat([parts[name] for name in (*reads, "1")], -1)


def fit(x, y, ridge=0.1):
    """The matrix A that brings x A nearest to y; ``ridge`` keeps it small."""
    x, y = x.flatten(0, -2), y.flatten(0, -2)
    return torch.linalg.solve(x.T @ x + ridge * len(x) * torch.eye(x.shape[1]), x.T @ y)


def right(A, reads):
    """How often the map's best token is the answer's next but one, on the held-out conversations."""
    tokens, roles, states = unseen
    guesses = joined(tokens[:, 1:-1], states[:, :-2], reads) @ A
    answer = roles[:, 2:] == ANSWER
    return (ids[(guesses[answer] @ head.T).argmax(-1)] == tokens[:, 2:][answer]).float().mean().item()


tokens, _, states = seen
for reads in (("state",), ("token",), ("state", "token")):
    A = fit(joined(tokens[:, 1:], states[:, :-1], reads), states[:, 1:])
    print(f"a map that reads {' and '.join(reads):15} is right at {right(A, reads):.1%} of the places")

# %% [markdown]
# The three maps had the same text and the same closed formula.
# All of this text was written greedily, so the state determines the token,
# but only through the vocabulary projection and its argmax, which no linear map of the state contains.
# The token alone gives a table of word pairs; EAGLE reads both.
# A layer with attention and real training gets much further than any linear map,
# but that does not change what each of the three is told.
#
# ## What it learns from: the target's own text
#
# A draft is right if the *target* would have written it.
# So the module should learn from the target's own text.
# Human text goes where the target would not have gone:
# its tokens are not the target's draws, and its states are not those that decoding meets.
# Our target writes both sides of its conversations.
# After the chat template's header for a user's turn,
# a chat model continues with a question (Magpie, [arXiv:2406.08464](https://arxiv.org/abs/2406.08464)).
# Then it answers: at $T = 0$ in most conversations, because that is how it will be used most,
# and at $T = 0.8$ in the others.
# Turns that loop are cut out.
# Nothing is downloaded.

# %%
facts = {
    "conversations": f"{card.data['conversations']:,.0f}, of which {card.data['held_out']:,.0f} are held out",
    "answer tokens": f"{card.data['answer_tokens']:,.0f}",
    "user tokens": f"{card.data['user_tokens']:,.0f}",
    "tokens cut out as loops": f"{card.data['dropped_tokens']:,.0f}",
    "median length of an answer": f"{card.data['answer_length_median']:.0f} tokens",
    "w, weight of the states' loss": f"{card.recipe['objective']['regression']:g}",
    "answered greedily": f"{card.data['greedy_share']:.0%}",
    "distinct 1-, 2-, 3-grams of all": ", ".join(f"{card.data[f'distinct_{n}']:.1%}" for n in (1, 2, 3)),
}
display(words(facts.items(), ["the text", "what EAGLE's weight file says"]))
row = held_out[0]
kept = stored["tokens"][row, :L][stored["roles"][row, :L] != LOOP]
print(tokenizer.decode(kept)[:700], "…")

# %% [markdown]
# The training minimizes, at every place whose next-but-one token was written by the target,
#
# $$-\sum_x p(x)\,\log \hat p(x) \;+\; w\,\mathrm{smooth}L_1\big(\hat f_{i+1} - f_{i+1}\big),$$
#
# with $p$ the target's law of $t_{i+2}$ and $\hat p = \mathrm{softmax}(H \hat f_{i+1})$.
# The first part is about the law, from which the draft is taken; the second is about the state, which is continued.
# The first part alone would allow any $\hat f$ with the right law.
# The second part asks for the vector itself, because the module reads that vector next.
# (Smooth $L_1$ is quadratic for small errors and linear for large ones, so that no outlier dominates the sum.
# In the paper the law has a weight of 0.1 and the state a weight of 1; our weight $w$ is in the table above.)
#
# ## Depth 2 to 4: training on its own states
#
# In training each $f_i$ can be the target's.
# While drafting this holds for the first token only.
# From depth 2 on the module reads its own outputs, which are a little off in ways that it has never seen,
# and its next output is further off.
# Chapter 03 found the same with MTP.
# EAGLE-1 adds noise to the states in training.
# HASS ([arXiv:2408.15766](https://arxiv.org/abs/2408.15766)) and EAGLE-3 let the module read, already in training,
# **what it will read when it drafts**: run it, feed its outputs back as states together with the true tokens,
# and ask for the true law and state again, a few places deep.
# Our module was trained like that.
#
# **Why it matters, by hand.**
# Let $e_d$ be the distance of the state at depth $d$ from the true one.
# Reading a true state, the module errs by $\varepsilon$.
# An error in what it reads comes out multiplied by some factor $a$, and another $\varepsilon$ is added:
#
# $$e_1 = \varepsilon, \qquad e_{d+1} = a\, e_d + \varepsilon \quad\Longrightarrow\quad
# e_d = \varepsilon\,(1 + a + \dots + a^{d-1}).$$
#
# With $\varepsilon = 0.1$ and $a = 1.2$ the errors are 0.10, 0.22, 0.36, 0.54;
# with $a = 0.6$ they are 0.10, 0.16, 0.20, 0.22, and never more than $\varepsilon/(1 - a) = 0.25$.
# Training on true states shows the module $e_1$ only: it makes $\varepsilon$ small and ignores $a$.
# Training on its own states shows it the whole sum.

# %%
# NBVAL_CHECK_OUTPUT
def errors(a, epsilon=0.1, depth=4):
    found = [epsilon]
    while len(found) < depth:
        found.append(a * found[-1] + epsilon)
    return found


for a in (1.2, 0.6):
    print(f"a = {a}:", *(f"{e:.2f}" for e in errors(a)))

# %% [markdown]
# **The real modules.**
# EAGLE was trained on its own states (three places deep), MTP of chapter 03 on true states only.
# They also differ in the norms around the join and in the loss on the states, so this compares two designs;
# it does not isolate one cause.
# Each reads greedy answers of the target with all tokens true.
# From every place it goes four places deep, as if all drafts before had been right.
# If nothing were lost on the way, the lines on the right would be flat.
# (The answers are drafted with the dynamic tree of a later section, which does not change them except at near ties.
# We keep a record of how its trees grew for that section.)

# %%
def deep(module, tokens, states, start, depth=4):
    """(places, depth): whether the module's best token is the true one; how far its state is off."""
    module.reset()
    module.read(tokens[1 : start + 1], states[:start])
    hit, away = [], []
    for i in range(start, len(tokens) - depth - 1):
        guess = module.read(tokens[i + 1 : i + 2], states[i : i + 1])
        hit.append([])
        away.append([])
        for d in range(1, depth + 1):
            if d > 1:
                guess = module.draft([tokens[i + d]], guess, [d - 3])
            true = states[i + d].float()
            hit[-1].append(int(module.ids[module.logits(guess)[0].argmax()]) == tokens[i + d + 1])
            away[-1].append(float((guess[0].float() - true).norm() / true.norm()))
    return np.array(hit).reshape(-1, depth), np.array(away).reshape(-1, depth)

# %%
from specdec_core.race import markdown, own

TASKS = ("chat", "math", "write", "edit_code", "summarize", "translate")
LENGTH = 44
asked = [question for question in own(limit=1) if question.task in TASKS]
prompts = {question.task: loaded.encode(question.turns[0]) for question in asked}
drafter = EAGLE(module, lm.vocab_size, tree="dynamic", depth=4, top_k=4, total=12)
answers, growths = {}, {}  # growths: how the tree of each step grew, and what the target made of it
for task, prompt in prompts.items():
    run, growths[task] = stream(lm, prompt, drafter, max_new_tokens=LENGTH, stop=loaded.stop), []
    for step in run:
        if step.tree.size:
            growths[task].append((drafter.growth, step.verdict))
    answers[task] = run.result().tokens

# %%
modules = {"eagle": module}
if shipped("mtp").is_file():
    modules["mtp"] = build("mtp", Context(lm)).model
depths, found = range(1, 5), {name: [] for name in modules}
for task, prompt in prompts.items():
    tokens = [*prompt, *answers[task]]
    states = lm.prefill(tokens, needs_hidden=True)
    for name, each in modules.items():
        found[name].append(deep(each, tokens, states, len(prompt) - 1))
right_at = {name: np.concatenate([hit for hit, _ in pairs]).mean(0) for name, pairs in found.items()}
off_at = {name: np.concatenate([away for _, away in pairs]).mean(0) for name, pairs in found.items()}

# %%
fig, panels = plt.subplots(1, 2, figsize=(7.6, 3.4))
for i, name in enumerate(modules, 1):
    if name != "mtp":  # its outputs stand before its own norm; only their laws can be compared
        panels[0].plot(depths, off_at[name], label=name, **style.line(i))
    panels[1].plot(depths, right_at[name], label=name, **style.line(i))
panels[0].set(title="how far the states are off", xlabel="depth", ylabel="|guess − true| / |true|")
panels[0].set_ylim(0, 1.3 * max(off_at["eagle"]))
panels[1].set(title="best token right, those before true", xlabel="depth", ylabel="share", ylim=(0, 1))
for axes in panels:
    axes.set_xticks(list(depths))
    axes.legend()
alt = "Left: distance of EAGLE's states from the true ones by depth. Right: share of right tokens by depth."
figures.save(fig, "04-depth", alt=alt, model=loaded)
for name, shares in right_at.items():
    kept = shares[-1] / shares[0]
    print(f"{name:6} right at depth 1 to 4:", *(f"{share:.2f}" for share in shares), f"({kept:.0%} kept)")
e = off_at["eagle"]
print(f"EAGLE's states are off by {e[0]:.2f} at depth 1 and {e[-1]:.2f} at depth 4;", end=" ")
print(f"from the first two depths, a = {e[1] / e[0] - 1:.2f}.")

# %% [markdown]
# A state can be far off while its best token is right: the law depends on $H \hat f$ only.
# (EAGLE-3 will draw the conclusion.)
# Next comes what the training runs themselves recorded on held-out conversations,
# for all recipes whose weights come with the package.
# Here a draft counts as tested only if all shallower drafts of its chain were right,
# so these are the conditional rates of a chain:

# %%
from specdec_core.drafters import SHIPPED, ablations

cards = [read_card(path) for path in sorted(SHIPPED.glob("*.safetensors"))]
rows, kept_up = [], {}
for found in cards:
    goal, name, rates = found.recipe["objective"], found.recipe["name"], found.acceptance
    own_states = f"{goal['steps']}" if "steps" in goal else "–"
    kept_up[name] = rates[-1] / rates[0]
    rows.append([name, own_states, f"{found.tokens / 1e6:.1f} M", *(f"{rate:.3f}" for rate in rates)])
display(words(rows, ["recipe", "trained to depth", "tokens seen", *(f"depth {d}" for d in depths)]))
print("rate at depth 4 over that at depth 1:")
print("   ", ", ".join(f"{name} {kept:.2f}" for name, kept in kept_up.items()))

# %% [markdown]
# The draft model reads tokens only, and its accepted drafts are the text:
# its rate changes with depth only because some passages are easier than others (chapter 02).
# The others have the same help, but they lose by reading states that are not the target's,
# or, in Medusa's case, a state that lies further and further back.
#
# Was that enough training?
# The cards also record the rate at depth 1 during training.
# Where a curve falls back, training was resumed with a high learning rate, which is lowered towards the end:

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.2))
for i, found in enumerate(cards):
    seen, rates = zip(*((point[0] / 1e6, point[1]) for point in found.curve))
    axes.plot(seen, rates, label=found.name.replace("_", " "), **style.line(i))
    half = np.interp(seen[-1] / 2, seen, rates)
    print(f"{found.name:12} {rates[-1]:.2f} after {seen[-1]:.1f} M tokens,", end=" ")
    print(f"{rates[-1] - half:+.2f} in the second half of them")
axes.set(xlabel="tokens seen in training, millions", ylabel="accepted at depth 1", xlim=(0, None), ylim=(0, None))
axes.legend(loc="lower right")
alt = "Held-out acceptance at depth 1 against the tokens seen in training, for four drafters: rising curves."
figures.save(fig, "04-training", alt=alt, model=loaded, quoted=["rates recorded in the cards of the weights"])

# %% [markdown]
# A curve that still rises at its right end was stopped because time was up.
# `specdec train NAME --start FILE --seed 9` continues from there, and says so in its card.

# %% [markdown]
#
# ## Taken apart: one part missing at a time
#
# The papers measure what each part is worth by leaving it out.
# So do these four short trainings: the recipe of EAGLE;
# the same without the drawn token; without the state, from tokens alone; and on true states only.
# The text, the order, the seed and the number of updates are the same, so only the missing part differs.
# They are too short for use, and too long for a notebook.
# These rates were **recorded** in their cards
# (`specdec train cards`) when the commands `specdec train eagle_blind`, … were run.

# %%
cards = ablations()
parts = {"eagle": "nothing", "eagle_true": "its own states in training"}
parts |= {"eagle_blind": "the drawn token", "eagle_tokens": "the state"}
rows = [[each.name, parts[each.name], *(f"{rate:.3f}" for rate in each.acceptance)] for each in cards]
display(words(rows, ["recipe", "what is missing", *(f"depth {d}" for d in depths)]))
made = {each.recipe["schedule"]["updates"] for each in cards}
print(f"{made.pop()} updates each, {cards[0].tokens:,} tokens")
whole = cards[0].acceptance
for each in cards[1:]:
    d = [b - a for a, b in zip(whole, each.acceptance)]
    print(f"without {parts[each.name]}: {d[0]:+.3f} at depth 1, {d[2]:+.3f} at depth 3")

# %% [markdown]
# Read the two depths separately.
# A loss at depth 1 is missing knowledge.
# A module that is not told the drawn token does not know which of the two continuations of *I* it is in;
# and one without states has a single layer to make of the tokens what the target made with thirty.
# A loss that shows only further down is missing practice with its own output.

# %% [markdown]
# ## A tree of one shape
#
# A chain stops at its first wrong token.
# EAGLE drafts a **tree**: at a node the module's law is known, and its second and third token are candidates too.
# All nodes of one depth are read in one forward of the module, under a tree mask like the target's own (chapter 03).
# EAGLE-1 uses one tree of ranks for every step: the best token's best token, the second's best, and so on.
# It differs from Medusa's tree.
# Medusa's heads give the same candidates below every node of a depth;
# here each node's children come from *its* path, because the token was fed back.
#
# > **The notes say …** (table in *five routes*) that EAGLE's candidates are a recursive path
# > while Medusa has the branching tree.
# > The *short introduction* says the opposite: a tree that EAGLE adds to Medusa (chapter 03).
# > Both have trees, and both had them from their first papers on:
# > Medusa checks combinations of its heads' best tokens under a tree mask, EAGLE-1 a fixed tree of ranks.
# > What EAGLE adds is the recursion on states.
#
# What is a tree worth?
# If $c(v)$ is the probability that node $v$ is accepted given that its parent was,
# the **value** of $v$ is the product of $c$ along its path: the probability that $v$ is accepted at all.
# A step yields the accepted nodes and one more token, so
#
# $$E[\text{tokens}] = 1 + \sum_v \text{value}(v)$$
#
# (chapter 03, *What a tree is worth*: the expected number of accepted nodes is the sum of their probabilities).
# The best tree with $N$ nodes has the $N$ most valuable ones.
# A fixed tree has to choose them before it has seen the text.
#
# ## A tree that follows the confidence
#
# EAGLE-2 (Li and others, 2024, [arXiv:2406.16858](https://arxiv.org/abs/2406.16858))
# takes the module's own probability for $c(v)$, its **confidence**, and lets each step have its own tree:
#
# 1. **Expand, layer by layer.**
#    Of the nodes drafted last, the module reads the $k$ most valuable ones in one forward;
#    each gets its $k$ likeliest tokens as children.
#    A layer costs one forward of the module, however wide the tree is at other depths.
# 2. **Rerank, all layers at once.**
#    Of everything that was drafted keep the $N$ most valuable nodes.
#    A child is never worth more than its parent, so the nodes kept form a tree.
#    (A tie could break that, so the earlier node wins, and parents are earlier.)
#
# **By hand**, with a module that looks at the last word only, with $k = 2$, three layers, and six nodes to keep:
#
# | after | | | |
# |:--|:--|:--|:--|
# | . | the 0.6 | a 0.3 | cat 0.1 |
# | the | cat 0.5 | dog 0.4 | sat 0.1 |
# | a | dog 0.9 | cat 0.1 | |
# | cat | sat 0.7 | ran 0.3 | |
# | dog | ran 0.8 | sat 0.2 | |
# | sat, ran | . 0.95 | a 0.05 | |
#
# Layer 1, after ".": *the* 0.6, *a* 0.3.
# Both are read.
# Layer 2: *the cat* 0.30, *the dog* 0.24, *a dog* 0.27, *a cat* 0.03.
# The two best, *the cat* and *a dog*, are read.
# Layer 3: *the cat sat* 0.21, *the cat ran* 0.09, *a dog ran* 0.216, *a dog sat* 0.054.
# Of these ten nodes the six best are *the* 0.6,
# *a* 0.3, *the cat* 0.30, *a dog* 0.27, *the dog* 0.24, *a dog ran* 0.216.
# The cut goes across the layers: *the dog*, which was not good enough to be continued, is kept; *the cat sat* is not.
# The expected number of tokens is $1 + 1.926 = 2.926$.
# The package's drafter with this module:

# %%
WORDS = [".", "the", "a", "cat", "dog", "sat", "ran"]
SAYS = {".": "the .6 a .3 cat .1", "the": "cat .5 dog .4 sat .1", "a": "dog .9 cat .1",
        "cat": "sat .7 ran .3", "dog": "ran .8 sat .2", "sat": ". .95 a .05", "ran": ". .95 a .05"}
LAWS = np.zeros((7, 7))
for word, line in SAYS.items():
    for after, share in zip(line.split()[::2], line.split()[1::2]):
        LAWS[WORDS.index(word), WORDS.index(after)] = float(share)

# %%
class LastWord:
    """A module in place of the trained one: its states are log laws, those after the last word."""

    ids, length = np.arange(7), 0

    def reset(self):
        self.length = 0

    def drop(self):
        pass

    def read(self, tokens, states):
        self.length += len(tokens)
        return self.draft(tokens[-1:], None, None)

    def draft(self, tokens, states, parents):
        return torch.from_numpy(np.log(LAWS[list(tokens)] + 1e-12))

    def logits(self, states):
        return states

# %%
from specdec_core import Budget, Rng


def grown(word, tree):
    """The drafter's record of the tree that it grows after ``word``."""
    drafter = EAGLE(LastWord(), 7, tree=tree, depth=3, top_k=2, total=6)
    context = [WORDS.index("."), WORDS.index(word)]
    drafter.reset(context)
    drafter.read_prompt(torch.zeros(1, 7))
    drafter.propose(context, Budget(nodes=6, depth=3), Rng(0))
    return drafter.growth


def path(growth, node):
    return path(growth, growth.parents[node]) + [WORDS[growth.tokens[node]]] if node else []


# %%
# NBVAL_CHECK_OUTPUT
for word in (".", "dog"):
    for tree in ("dynamic", "static"):
        growth = grown(word, tree)
        kept = {" ".join(path(growth, node)): np.exp(growth.values[node]) for node in growth.kept}
        total, terms = 1 + sum(kept.values()), (f"+ {value:.3f}" for value in kept.values())
        print(f"after {word!r}, {tree:7}: {total:.3f} = 1", *terms)
        print("   ", ", ".join(kept))

# %% [markdown]
# After "." the fixed tree of ranks happens to be almost as good.
# After *dog* the text is predictable; there the dynamic tree becomes long and thin, and gains.
# That is all it does: it moves nodes from places where the module is unsure to places where it is sure.
#
# **On a real prompt.**
# Play the stages: each layer is drafted and its best nodes are chosen; the last stages cut and check.
# (Without a kernel: the first choice, the cut, and the target's verdict.)

# %%
from specdec_core.viz import dynamic_tree

steps = growths["chat"]  # (how the tree grew, what the target made of it)
growth, verdict = max(steps[:12], key=lambda pair: pair[1].accepted)
dynamic_tree.player(dynamic_tree.Growth.of(growth, verdict.path), lambda token: tokenizer.decode([token]))

# %% [markdown]
# How much do the trees differ from step to step?
# Each column is the tree of one step:

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.0))
base, places = np.zeros(len(steps)), range(1, len(steps) + 1)
levels = [dynamic_tree.Growth.of(growth).depths for growth, _ in steps]
for depth in range(1, 5):
    count = [sum(d[node] == depth for node in growth.kept) for d, (growth, _) in zip(levels, steps)]
    axes.bar(places, count, bottom=base, width=0.85, label=f"depth {depth}", **style.bar(depth))
    base += count
accepted = [verdict.accepted for _, verdict in steps]
axes.plot(places, accepted, "v", mfc="white", mec="black", markersize=8, label="accepted", clip_on=False)
axes.set(xlabel="step", ylabel="nodes kept", xlim=(0.4, len(steps) + 0.6), ylim=(0, None))
axes.set_xticks(places[::2])
axes.grid(axis="x", visible=False)
axes.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.18))
alt = "Stacked bars, one per step: how many of the tree's nodes lie at each depth; triangles: tokens accepted."
figures.save(fig, "04-shapes", alt=alt, model=loaded)

# %% [markdown]
# **When sampling**, the same ranking would be wrong.
# Children are then *drawn*, without replacement,
# and verification relies on the distribution that they were drawn from (chapter 01).
# Drawing several tokens and keeping the likely ones changes that distribution.
# So which rules may decide the shape of a drawn tree?
#
# > **Theorem.**
# > Verification of a drawn tree is exact if the rule decides whether a node exists *before* the node's token is drawn,
# > and then keeps the node.
#
# *Proof.*
# Take a node, and let $h$ be everything that was drawn before its token, anywhere in the tree.
# That the node exists was decided from $h$ alone.
# So given $h$, the token has the distribution $q$ at its parent, without the siblings drawn before it and renormalized:
# whatever else is in $h$, and however the rule used it.
# When verification comes to the node, it has looked at a part of $h$ only:
# the path to the node, those siblings, and that the node exists.
# The distribution is the same for every $h$ with that part, so it is also the distribution given that part.
# Hence the test of the node is one step of recursive rejection sampling (chapter 01).
# Where the rule ends a row of siblings, the correction is drawn from the residual,
# which is right after any number of siblings.
# $\blacksquare$
#
# Two rules that break the condition:
#
# - Ranking nodes whose tokens were drawn already, as EAGLE-2's cut does:
#   a node is kept *because* a likely token was drawn.
# - Cutting the finished tree, even by values that were known before each node's own draw.
#   Such a cut compares a node with the descendants of siblings drawn later.
#   Those siblings were drawn from what the node's token left over,
#   so the values of their descendants reveal something about that token.
#
# When sampling, the package's dynamic tree therefore grows by **open places**.
# A node whose $q$ is known has one: its next child.
# The place is worth the node's value times the next largest probability in $q$, whatever token is drawn there.
# The most valuable open places anywhere in the tree are filled,
# with an equal share of the nodes per layer of the depth allowed.
# Everything that was drawn is kept.
# Then the module reads the $k$ most valuable of the nodes just drawn, which opens their places, and so on.
#
# We enumerate all random choices and compute the exact distribution of two tokens at $T = 1$,
# for the package's tree of two nodes and for a drafter that draws two tokens and keeps the likelier one:

# %%
# NBVAL_CHECK_OUTPUT
from specdec_core import Sampling, TableLM, enumerate_law, generate, total_variation
from specdec_core.drafters import DrafterBase, NullDrafter

Q = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.3, 0.3, 0.4]])  # after each of three tokens


class Three(LastWord):
    ids = np.arange(3)

    def draft(self, tokens, states, parents):
        return torch.from_numpy(np.log(Q[list(tokens)]))


class KeepsTheLikelier(DrafterBase):
    def propose(self, context, budget, rng):
        q = Q[context[-1]]
        first = rng.pick(q)
        second = rng.pick(np.where(np.arange(3) == first, 0, q))  # `pick` divides by what is left
        kept = max(first, second, key=q.__getitem__)
        return DraftTree.chain(context[-1], [kept], q[None], "iid")

# %%
# NBVAL_CHECK_OUTPUT
target, warm = TableLM(np.log([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.6, 0.3, 0.1]])), Sampling(temperature=1.0)


def law(drafter):
    options = {"max_new_tokens": 2, "sampling": warm}
    return enumerate_law(lambda rng: generate(target, [0, 1], drafter, rngs=(rng, rng), **options).tokens)


plain = law(NullDrafter())
dynamic = EAGLE(Three(), 3, tree="dynamic", depth=2, top_k=2, total=2, sampling=warm)
exact = total_variation(law(dynamic), plain) < 1e-12
print("the dynamic tree: distance from ordinary sampling below 1e-12:", exact)
print(f"keeping the likelier of two draws: distance {total_variation(law(KeepsTheLikelier()), plain):.3f}")

# %% [markdown]
# ## Is confidence calibrated?
#
# All this rests on one assumption: that a token to which the module gives 0.8 is accepted 8 times in 10.
# Only then is the product along a path the probability of acceptance.
# Nothing in the loss asks for it directly, but cross-entropy with the target's laws rewards it.
# We look at every node whose parent the target accepted, whether the node was kept or not, on all our prompts:
# at its confidence, and at whether it was the target's next token.

# %%
def judged(growth, verdict):
    """(confidence, whether it was right) of all children of the root and of accepted nodes."""
    following = {0: verdict.tokens[0]}  # node -> the token that the target has after it
    for place, row in enumerate(verdict.path[1:], 1):
        following[growth.kept[row - 1]] = verdict.tokens[place]
    for node in range(1, len(growth.tokens)):
        parent = growth.parents[node]
        if parent in following:
            confidence = np.exp(growth.values[node] - growth.values[parent])
            yield confidence, growth.tokens[node] == following[parent]


pairs = [pair for steps in growths.values() for step in steps for pair in judged(*step)]
confidence, accepted = np.array(pairs, float).T
edges = np.array([0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8, 1.000001])
bins = np.digitize(confidence, edges) - 1
filled = [bins == b for b in np.unique(bins)]
stated, true, count = np.array([(confidence[b].mean(), accepted[b].mean(), b.sum()) for b in filled]).T

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.8))
axes.plot([0, 1], [0, 1], color="black", linestyle="--", linewidth=1, label="perfectly calibrated")
smooth = (true * count + 1) / (count + 2)  # so that no error is zero
error = np.sqrt(smooth * (1 - smooth) / count)
look = style.line(style.index("eagle"))
axes.errorbar(stated, true, yerr=error, capsize=3, label="measured, ± one standard error", **look)
for x, y, n in zip(stated, true, count):
    axes.annotate(f"{n:.0f}", (x, y), textcoords="offset points", xytext=(6, -11), fontsize=7.5)
axes.set(xlabel="confidence of the module", ylabel="share that the target accepts")
axes.set(xlim=(-0.02, 1.04), ylim=(-0.05, 1.08))
axes.legend(loc="upper left")
alt = "Reliability diagram: share of drafted tokens accepted by the module's confidence, beside the diagonal."
figures.save(fig, "04-calibration", alt=alt, model=loaded)

# %%
gap = (count * np.abs(stated - true)).sum() / count.sum()
print(f"{len(confidence)} nodes; average distance from the diagonal, weighted by nodes: {gap:.3f}.")
sure = confidence > 0.6
says, gets, error = confidence[sure].mean(), accepted[sure].mean(), accepted[sure].std() / sure.sum() ** 0.5
print(f"Where the module is more than 60% sure ({sure.sum()} nodes) it says {says:.2f} on average,", end=" ")
print(f"and {gets:.2f} ± {error:.2f} are accepted.")

# %% [markdown]
# *Numbers: nodes in the bin.*
# There is a reason to expect a bend.
# The module was trained on laws, so it predicts the target's *probability* of a token.
# But at $T = 0$ a token is accepted exactly if it is the target's *best* one.
# A token to which the target itself gives 0.6 is then accepted every time.
# So at $T = 0$ the likeliest tokens may be accepted more often than the module says,
# and the second and third less often.
# For the tree only the order of the values matters, not their size.
# Their sum, as a forecast of τ, does need the right size.
#
# ## Acceptance by depth: EAGLE, MTP, Medusa
#
# Now all three on the same prompts.
# For acceptance by depth each drafts a chain of four, one candidate per depth, so that trees do not blur the picture;
# Medusa's chain has the best token of each head.
# The methods answer in turn, and all answers are kept for the next section,
# which also needs EAGLE's static and dynamic tree and Medusa's tree, of at most 16 nodes each.

# %%
from specdec_core import compare
from specdec_core.drafters import MTP, Medusa
from specdec_core.measure import agreement, measure_costs

medusa, V = build("medusa:nodes=16", Context(lm)), lm.vocab_size
drafters = {
    "medusa chain": Medusa(medusa.heads, medusa.draft_ids, medusa.accuracy[:, :1], V, nodes=4),
    "medusa tree": medusa,
    "mtp chain": MTP(modules["mtp"], V, num_tokens=4),
    "eagle chain": EAGLE(module, V, tree="chain", depth=4),
    "eagle static": EAGLE(module, V, tree="static", depth=4, total=16),
    "eagle dynamic": EAGLE(module, V, tree="dynamic", depth=4, top_k=4, total=16),
}
asked = {task: [prompt] for task, prompt in prompts.items()}
race = compare(lm, asked, drafters, max_new_tokens=LENGTH, repeats=1)
print(agreement(lm, race.pairs()))

# %%
chains, fig = {}, plt.figure(figsize=(7.6, 3.6))
axes = fig.gca()
for name in ("eagle chain", "mtp chain", "medusa chain"):
    chains[name] = np.array([*race.steps(name).by_depth, *[(0, 0)] * 4])[:4]  # accepted, tested
    a, n = chains[name].T
    n = np.where(n > 0, n, np.nan)  # a depth that was never reached has no rate
    error, look = np.sqrt(np.maximum(a * (n - a), 1) / n**3), style.line(style.index(name.split()[0]))
    axes.errorbar(depths, a / n, yerr=error, capsize=3, label=name, **look)
axes.set(xlabel="depth", ylabel="accepted, of those tested there", xticks=list(depths), ylim=(0, 1))
axes.legend()
alt = "Conditional acceptance by depth of chains of four from EAGLE, MTP and Medusa on the same prompts."
figures.save(fig, "04-acceptance", alt=alt, model=loaded)

# %%
rows, first, further = [], {}, {}
for name, counts in chains.items():
    rows.append([name, *(f"{a}/{n} = {a / n:.2f}" if n else "–" for a, n in counts)])
    a, n = counts.T
    first[name], further[name] = a[0] / n[0], a[1:].sum() / max(n[1:].sum(), 1)
display(words(rows, ["accepted / tested", *(f"depth {d}" for d in depths)]))
best, deeper = max(first, key=first.get), max(further, key=further.get)
print(f"Highest at depth 1: {best}, {first[best]:.2f};", end=" ")
print(f"over depths 2 to 4 together: {deeper}, {further[deeper]:.2f}.")

# %% [markdown]
# *Bars: one standard error; few drafts reach depth 4.*
# Two effects oppose each other in such a curve.
# A draft that got to depth 3 is in an easy passage, which raises the rate.
# And the further from a true state, the worse the guess, which lowers it.
# Medusa's heads are not told the tokens in between, so for them the second effect is larger at equal skill.
# MTP is told the token but was never trained on its own states; EAGLE has both.

# %%
rows, rate = [], {}
for task in prompts:
    (a, n), *_ = race.steps("eagle chain", task).by_depth
    rate[task] = a / n
    taus = (f"{race.row(name, task).tokens_per_call:.2f}" for name in ("eagle chain", "eagle dynamic"))
    rows.append([task, f"{a}/{n} = {rate[task]:.2f}", *taus])
display(Markdown(markdown(rows, ["task", "accepted at depth 1", "τ, chain", "τ, dynamic tree"])))
low, high = min(rate, key=rate.get), max(rate, key=rate.get)
print(f"Acceptance at depth 1 goes from {rate[low]:.2f} ({low}) to {rate[high]:.2f} ({high}).")

# %% [markdown]
# > **The notes say …** (*model-free chapter*, section 11) that the trained routes have a stable acceptance rate,
# > EAGLE about 0.8, in any context.
# > There is no such constant.
# > The rate depends on the target, the module and its training, the depth, the temperature and the text:
# > the table shows our target's by task, the figure by depth.
# > What is true in the comparison: a trained drafter has a draft in *every* step, where a lookup may have none.
#
# ## Chain, static, dynamic: tokens and time
#
# The same runs on the clock.
# *Predicted* is $\tau\, t(1)/(t(1 + \text{nodes}) + \text{draft})$, with $t(q)$ measured alone
# and the draft's time taken from the run. τ and the speeds are geometric means over the tasks.

# %%
costs = measure_costs(lm, widths=(1, 5, 17), context=160, repeats=9)
rows, taus, pace = [], {}, {}
for name in race.methods:
    row, steps = race.row(name), race.steps(name)
    taus[name], pace[name] = row.tokens_per_call, row.decode_speedup
    trees = [step.tree for answer in race.answers(name) for step in answer.trace.steps]
    nodes = np.mean([tree.size for tree in trees])
    predicted = taus[name] * costs.t(1) / (costs.t(1 + nodes) + steps.seconds["draft"])
    parts = (f"{row.ms[phase]:.1f}" for phase in ("draft", "forward"))
    numbers = (f"{number:.2f}" for number in (predicted, pace[name]))
    rows.append([name, f"{nodes:.1f}", f"{taus[name]:.2f}", *parts, *numbers])
columns = ["method", "nodes", "τ", "draft, ms per step", "forward, ms per step", "predicted", "times as fast"]
display(Markdown(markdown(rows, columns)))

# %%
fig, axes = plt.subplots(figsize=(7.6, 3.4))
left, steps = np.zeros(len(race.methods)), {name: race.steps(name) for name in race.methods}
bars = {"draft": ["draft"], "forward of the target": ["forward"], "the rest": ["verify", "commit", "observe"]}
for i, (label, phases) in enumerate(bars.items(), start=1):
    spent = [sum(each.seconds[phase] for phase in phases) / each.tokens_per_call for each in steps.values()]
    axes.barh(range(len(left)), 1000 * np.array(spent), left=left, label=label, **style.bar(i))
    left += 1000 * np.array(spent)
axes.axvline(left[0], color="black", linestyle="--", linewidth=1)
axes.set_yticks(range(len(left)), race.methods)
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set(xlabel="milliseconds per token of the answer")
axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.18))
alt = "Stacked bars by method: milliseconds per token spent on drafting, on the target's forward, on the rest."
figures.save(fig, "04-clock", alt=alt, model=loaded)

# %%
most, fastest = max(taus, key=taus.get), max(pace, key=pace.get)
print(f"Most tokens per forward: {most} ({taus[most]:.2f}).", end=" ")
print(f"Fastest by the clock: {fastest}, {pace[fastest]:.2f} times as fast as autoregressive decoding.")
for scores, unit in ((taus, "tokens per forward"), (pace, "times as fast")):
    static, dynamic = scores["eagle static"], scores["eagle dynamic"]
    print(f"EAGLE's dynamic tree against the static one: {dynamic:.2f} and {static:.2f} {unit}.")
slower = [name for name in drafters if pace[name] < 0.98]
print(f"Slower than autoregressive decoding in this run: {', '.join(slower) or 'none of them'}.")

# %% [markdown]
# **Where does the draft time go?**
# A draft of depth 4 takes one forward of the layer over the new true states and three more over its own,
# each followed by the projection to the drafted vocabulary.
# These are small matrix products, and each has to wait for the one before it.
# So the time depends on the depth more than on the number of nodes.

# %%
from time import perf_counter


def clocked(call, repeats=30):
    """Median seconds of a call."""
    spans = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        spans.append(perf_counter() - start)
    return float(np.median(spans))

# %%
states = lm.prefill(prompts["chat"], needs_hidden=True)
module.reset()
guess = module.read(prompts["chat"][1:], states[:-1])
parts = {}
for width in (1, 4):
    batch, tokens = guess.repeat(width, 1), [prompts["chat"][-1]] * width

    def layer_forward():
        module.drop()
        module.draft(tokens, batch, [-1] * width)

    parts[width] = (clocked(layer_forward), clocked(lambda: module.logits(batch)))
rows = []
for width, (a, b) in parts.items():
    rows.append([str(width), f"{1000 * a:.2f}", f"{1000 * b:.2f}", f"{(a + b) / costs.t(1):.1%}"])
columns = ["nodes read", "layer, ms", f"projection to {K} tokens, ms", "both, of t(1)"]
display(Markdown(markdown(rows, columns)))

# %%
a, b = parts[4]
expected, measured = sum(parts[1]) + 3 * (a + b), steps["eagle dynamic"].seconds["draft"]
print(f"Expected of a dynamic tree of depth 4: {1000 * expected:.1f} ms per step,", end=" ")
print(f"measured: {1000 * measured:.1f} ms.")

# %% [markdown]
# What is measured beyond the parts is probably bookkeeping in Python, the reading of several true states at once,
# and weights that the target's forward has pushed out of the processor's cache in the meantime.
# A server would run such drafting from one recorded graph; ours is written to be read.
# Compared with the forward of a large target, its time nearly vanishes; compared with that of a small one, it does not.
# So the papers' speedups, measured on targets of 7 billion weights and more, do not carry over to ours.
# As in chapter 02, what counts is $c$, the cost of a forward of the drafter relative to the target's.
#
# ## What EAGLE-3 changes
#
# EAGLE-3 (Li and others, 2025, [arXiv:2503.01840](https://arxiv.org/abs/2503.01840)) starts from an observation:
# with more training data EAGLE improves little.
# It blames the second part of the loss.
# Being *near* $f_{i+1}$ is more than drafting needs, since only the drafted law is ever tested.
# Three changes:
#
# | | EAGLE, EAGLE-2 | EAGLE-3 | the module of this chapter |
# |:--|:--|:--|:--|
# | loss | law, and the state itself (smooth $L_1$) | law alone; the output is any vector | both, as EAGLE |
# | read at depth 1 | the last state $f_i$ | a low, a middle and a high layer, joined linearly | the last state |
# | from depth 2, in training | true states (with noise) | its own: *training-time test* | its own, three deep |
#
# The changes belong together.
# Once outputs need not resemble states, a module that has seen only states in training would be lost from depth 2 on.
# So training must unroll its forwards as drafting does.
# And once the output is free, the input is too:
# the target's last state serves one purpose, the next token's logits, and lower layers hold more of what comes later.
# Our module has the third change and not the first two:
# EAGLE's architecture and loss, with training-time test (as in HASS).
# Setting the weight of the states' loss to zero in its recipe would give the first as well.
# The dynamic tree is unchanged in EAGLE-3.
#
# ## Pitfalls
#
# - **The wrong token beside the state.**
#   $f_i$ is read with $t_{i+1}$, the token drawn *from* it.
#   With $t_i$, the token that made it, the module is blind.
# - **Guesses left in the cache.**
#   The module's keys of its own states must be replaced by those of the true states once these are known,
#   or errors pile up over the whole text.
# - **Comparing confidences instead of values.**
#   A confident child of an unlikely parent is unlikely.
#   Ranked by confidence, a cut can even keep nodes whose parents are gone.
# - **Ranking drawn tokens when sampling.**
#   That changes the distribution that they were drawn from.
#   Decide before drawing.
# - **A confidence that is not a probability.**
#   After a temperature, a top-k or a cut vocabulary,
#   the product of probabilities still gives an order, but no longer a forecast.
# - **Text from elsewhere.**
#   Weights belong to one target and its way of writing; another fine-tuning of the same base model is another target.
# - **Depth is time.**
#   Each layer of the tree is one more forward of the module before the target can begin.
#
# ## Summary
#
# - The next token's law depends on the last hidden state alone.
#   EAGLE continues states with one layer and borrows the target's embedding and projection.
# - A state without its token is a fork.
#   Without the drawn token a drafter is limited by $\max_q \sum_t p(t) \sum_x \min(p(x \mid t), q(x))$,
#   which is far below 1 where the target is unsure.
# - Train on what the target writes, and on the states that the module will read, which are its own.
# - A node is worth the product of confidences on its path, a tree 1 plus the sum of its nodes' values.
#   EAGLE-2 expands the best of each layer and keeps the best of all.
# - Calibration makes the forecast right; for the choice of nodes the order suffices.
# - More nodes never lower τ; the clock counts them, and the module's forwards too.
#   Which tree is best is decided by $t(q)$ and by what a layer costs.
#
# **Can you answer these?**
# Why does the first draft of a step come from true states only?
# (The target's forward has just computed the states of all tokens that were kept;
# the guesses that stood in for them are dropped.)
# A node has value 0.2 and its best child confidence 0.9: may the child be kept but not the node?
# (No: the child is worth 0.18.)
# Which of EAGLE-3's changes would hurt if made alone?
# (Dropping the states' loss without unrolling in training.)
#
# ## Further reading
#
# - Y. Li and others, *EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty*,
#   ICML 2024, [arXiv:2401.15077](https://arxiv.org/abs/2401.15077)
# - Y. Li and others, *EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees*, EMNLP 2024,
#   [arXiv:2406.16858](https://arxiv.org/abs/2406.16858): sections 3 and 4, that confidence is calibrated, and the tree
# - Y. Li and others, *EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test*,
#   NeurIPS 2025, [arXiv:2503.01840](https://arxiv.org/abs/2503.01840)
# - L. Zhang and others, *Learning Harmonized Representations for Speculative Sampling*,
#   ICLR 2025, [arXiv:2408.15766](https://arxiv.org/abs/2408.15766): HASS, training on the module's own states
# - Z. Xu and others, *Magpie: Alignment Data Synthesis from Scratch by Prompting Aligned LLMs with Nothing*,
#   [arXiv:2406.08464](https://arxiv.org/abs/2406.08464): how a chat model writes both sides
