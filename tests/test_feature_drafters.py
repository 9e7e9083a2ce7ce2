"""MTP and EAGLE: the module at work against the module in training, states caught up, trees, laws, refusals."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from laws import EXACT, PLAIN, WRONG, completed, law_error
from model_free import assert_edges, assert_stops_alike, tiny_llama
from tiny_models import LLAMA, VOCAB, tiny
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core.base.errors import DraftError, ModelError
from specdec_core.core.contract import Budget
from specdec_core.core.engine import Run, generate, stream
from specdec_core.core.rng import Rng, enumerate_law, total_variation
from specdec_core.core.rules import verify
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import Stop
from specdec_core.core.toy import TableLM
from specdec_core.drafters import EAGLE, MTP, Cascade, PromptLookup, eagle, feature, methods, weights
from specdec_core.drafters.feature_net import FeatureDraft, Frozen
from specdec_core.model.invariance import Shape
from specdec_core.model.lm import CachedLM

HASH = "ab" * 32
WARM = Sampling(temperature=0.8, top_k=3, top_p=0.95, repetition_penalty=1.3, presence_penalty=0.5)
KINDS = [{"normed": True}, {"normed": False}, {"normed": False, "token": False}, {"normed": True, "feature": False}]


def module(config, embedding, head, ids, dtype=torch.float64, seed=0, **options):
    """A module with random weights, wide enough that every input matters."""
    torch.manual_seed(seed)
    made = FeatureDraft(Frozen(embedding, head, ids, config), **{"normed": False, **options})
    for weight in made.parameters():
        torch.nn.init.normal_(weight, 1.0 if weight.ndim == 1 else 0.0, 0.3)
    return made.to(dtype).eval().requires_grad_(False)


def beside(lm, size=7, **options):
    """A `FeatureModel` with random weights beside a tiny model."""
    ids = torch.randperm(lm.vocab_size, generator=torch.Generator().manual_seed(1))[:size]
    head, every = lm.execution.head_rows(ids), torch.arange(lm.vocab_size)
    made = module(lm.execution.facts.config, lm.execution.embed(every), head, ids, lm.execution.facts.dtype, **options)
    return feature.FeatureModel(made, lm.execution.embed)


class Toy:
    """A module over a table's states, whose guesses are the states that would come; it drafts by a table like the
    target's.

    Every state that it reads is checked: it must be the target's own after the text so far.
    """

    def __init__(self, target, ids=None, seed=9):
        self.size, self.order = target.vocab_size, target.order
        self.ids = np.arange(self.size) if ids is None else np.array(ids)
        noise = TableLM.random(self.size, self.order, seed=seed, scale=0.8).table
        self.table = torch.from_numpy((0.5 * target.table + noise).reshape(-1, self.size))
        self.reset()

    def reset(self):
        self.length, self.rows, self.text = 0, 0, []

    def read(self, tokens, states):
        assert len(tokens) == len(states) > 0
        for token, state in zip(tokens, states, strict=True):
            last = np.unravel_index(int(state.argmax()), (self.size,) * self.order)
            assert float(state.sum()) == 1.0
            seen = self.text[-self.order :]
            assert not seen or list(last[-len(seen) :]) == seen, (last, self.text)
            self.text.append(int(token))
        self.length, self.rows = self.length + len(tokens), 0
        return self._on(tokens, states)[-1:]

    def drop(self):
        self.rows = 0

    def draft(self, tokens, states, parents):
        assert len(tokens) == len(states) == len(parents) and max(parents) < self.rows
        self.rows += len(tokens)
        return self._on(tokens, states)

    def logits(self, states):
        return (states @ self.table)[:, self.ids]

    def _on(self, tokens, states):
        after = states.argmax(-1) % self.size ** (self.order - 1) * self.size + torch.tensor(tokens)
        return torch.nn.functional.one_hot(after, states.shape[1]).double()


DRAFTERS = {
    "mtp": lambda model, size, sampling=None: MTP(model, size, 2, sampling),
    "chain": lambda model, size, sampling=None: EAGLE(model, size, "chain", 2, sampling=sampling),
    "static": lambda model, size, sampling=None: EAGLE(model, size, "static", 2, total=4, sampling=sampling),
    "dynamic": lambda model, size, sampling=None: EAGLE(model, size, "dynamic", 2, 2, 4, sampling),
    "deep": lambda model, size, sampling=None: EAGLE(model, size, "dynamic", 3, 1, 3, sampling),
}
every_drafter = pytest.mark.parametrize("name", DRAFTERS)


# The module at work and the module in training.


def off(got, expected):
    """The largest difference in units of float32's rounding, in which positions are computed, of the largest number."""
    unit = torch.finfo(torch.float32).eps * expected.abs().max()
    return float((got - expected).abs().max() / unit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_rows_are_those_of_the_training_forward(options, dtype, monkeypatch):
    """Chains from three places of one text, each after its true states, read in pieces."""
    monkeypatch.setattr(feature, "_CHUNK", 4)
    generator = torch.Generator().manual_seed(3)
    embedding = torch.randn(VOCAB, LLAMA["hidden_size"], generator=generator)
    ids = torch.randperm(VOCAB, generator=generator)[:20]
    trained = module(LlamaConfig(**LLAMA), embedding.to(dtype), embedding[ids].to(dtype), ids, dtype, **options)
    text = torch.randint(0, VOCAB, (1, 14), generator=generator)
    states = torch.randn(1, 14, LLAMA["hidden_size"], generator=generator).to(dtype)
    expected = [drafted[0] for drafted in trained(text, states, 3)]
    model, tokens = feature.FeatureModel(trained, lambda ids: embedding[ids].to(dtype)), text[0].tolist()
    for start, place in ((0, 5), (6, 6), (7, 10)):  # what was read stays, what was drafted is forgotten
        guess = model.read(tokens[start + 1 : place + 2], states[0, start : place + 1])
        assert model.length == place + 1
        for step in range(3):
            assert off(guess[0], expected[step][place]) <= 16
            assert off(model.logits(guess)[0], trained.project(expected[step][place])) <= 16
            if step < 2:
                guess = model.draft([tokens[place + step + 2]], guess, [step - 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_a_tree_are_those_of_its_paths(dtype):
    """Two branches of different lengths, in the same forwards; then more rows than there was room for."""
    generator = torch.Generator().manual_seed(4)
    embedding = torch.randn(VOCAB, LLAMA["hidden_size"], generator=generator).to(dtype)
    trained = module(LlamaConfig(**LLAMA), embedding, embedding[:9], torch.arange(9), dtype, normed=True)
    model = feature.FeatureModel(trained, lambda ids: embedding[ids])
    states = torch.randn(6, LLAMA["hidden_size"], generator=generator).to(dtype)
    guess = model.read([3, 1, 4, 1, 5, 9], states)

    def along(path):
        model.drop()
        found = guess
        for depth, token in enumerate(path):
            found = model.draft([token], found, [depth - 1])
        return found[0]

    paths = {0: [7], 1: [8], 2: [7, 2], 3: [8, 3], 4: [7, 6], 5: [7, 2, 8], **{row: [row, 1] for row in range(10, 14)}}
    expected = {row: along(path) for row, path in paths.items()}
    model.drop()
    found = model.draft([7, 8], guess.expand(2, -1), [-1, -1])
    found = torch.cat([found, model.draft([2, 3, 6], found[[0, 1, 0]], [0, 1, 0])])
    found = torch.cat([found, model.draft([8, 10, 11, 12, 13], torch.cat([found[[2]], guess.expand(4, -1)]),
                                          [2, -1, -1, -1, -1])])  # fmt: skip
    found = torch.cat([found, model.draft([1] * 4, found[6:10], [6, 7, 8, 9])])
    assert len(found) == 14 and all((found[row] - state).abs().max() <= 1e-4 for row, state in expected.items())


# Losslessness.


@every_drafter
@pytest.mark.parametrize("penalized", [False, True])
def test_case_2_greedy_identity_with_true_states_at_every_step(name, penalized):
    """`Toy` refuses any state that is not the target's own after the text."""
    sampling = Sampling(repetition_penalty=1.5, presence_penalty=0.4) if penalized else Sampling()
    for order in (1, 2):
        target = TableLM.random(5, order, seed=order)
        drafter = DRAFTERS[name](Toy(target, [4, 0, 2, 1]), 5, sampling)
        options = {"max_new_tokens": 30, "sampling": sampling}
        for prompt in ([3], [0, 1], [1, 2, 3, 0, 1, 2]):
            run = generate(target, prompt, drafter, **options)
            assert run.tokens == generate(target, prompt, **options).tokens
            assert run.trace.accepted > 0 and (run.trace.steps[0].tree.size == 0) == (len(prompt) == 1)
            longest = max(len(run.tokens) + len(prompt) - 1 - drafter.model.length, 0)
            assert longest <= 5  # all but the last step's places were read


@pytest.mark.parametrize("execution", ["float64", "float32"])
@every_drafter
def test_case_1_3_greedy_identity_beside_a_llama(name, execution):
    lm = tiny_llama()
    if execution == "float32":
        model = LlamaForCausalLM(lm.execution.facts.config)
        model.load_state_dict(lm.execution.model.state_dict())
        lm = CachedLM(model.float().eval())
    drafter = DRAFTERS[name](beside(lm), lm.vocab_size)
    for prompt in ([1], [1, 2, 3]):
        plain = generate(lm, prompt, max_new_tokens=20).tokens
        runs = [generate(lm, prompt, drafter, max_new_tokens=20) for _ in range(2)]
        assert runs[0].tokens == runs[1].tokens == plain
        trees = [[(s.tree.tokens.tolist(), s.tree.parents.tolist()) for s in run.trace.steps] for run in runs]
        assert trees[0] == trees[1] and runs[0].trace.drafted > 0


def test_case_4_a_narrow_and_a_wide_tree():
    lm = tiny_llama()
    plain = generate(lm, [1, 2, 3], max_new_tokens=30).tokens
    wide = EAGLE(beside(lm), lm.vocab_size, depth=5, top_k=6, total=63)
    runs = [generate(lm, [1, 2, 3], drafter, max_new_tokens=30) for drafter in
            (EAGLE(beside(lm), lm.vocab_size, "chain", 1), wide)]  # fmt: skip
    assert all(run.tokens == plain for run in runs)
    assert max(step.tree.size for step in runs[0].trace.steps) == 1
    assert max(step.tree.size for step in runs[1].trace.steps) == 63 and runs[1].trace.accepted > 0


def test_under_invariant_numerics_every_committed_row_has_the_bits_of_decoding_alone():
    lm = tiny_llama()
    lm.shape = Shape(16, 512)

    def rows(drafter):
        run, outputs, found, forward = stream(lm, [1, 2, 3], drafter, max_new_tokens=20), [], [], lm.forward
        lm.forward = lambda *args: outputs.append(forward(*args)) or outputs[-1]
        for step in run:
            found.extend(outputs.pop().logits[list(step.emitted.path)])
        del lm.forward
        return run.result().tokens, torch.stack(found), run.trace.accepted

    (tokens, logits, _), model = rows(None), beside(lm, size=11)
    for drafter in (MTP(model, lm.vocab_size), EAGLE(model, lm.vocab_size, depth=3, top_k=6, total=24)):
        drafted = rows(drafter)
        assert drafted[0] == tokens and torch.equal(drafted[1], logits)
    assert drafted[2] > 0


# The law of what is emitted.


class Block:
    """One proposal after a prompt, as `laws.law_error` asks for it."""

    def __init__(self, drafter, target, nodes, depth):
        self.drafter, self.target, self.nodes, self.depth = drafter, target, nodes, depth

    def __call__(self, prompt, rng):
        self.drafter.reset(prompt)
        self.drafter.read_prompt(self.target.prefill(prompt[:-1], needs_hidden=True))
        return self.drafter.propose(list(prompt), Budget(self.nodes, self.depth), rng)


SHAPES = {
    "mtp": {"num_tokens": 2}, "chain": {"tree": "chain", "depth": 2}, "static": {"tree": "static", "total": 4},
    "dynamic": {"depth": 2, "top_k": 2, "total": 4}, "three rounds": {"depth": 3, "top_k": 1, "total": 3},
}  # fmt: skip


@pytest.mark.parametrize("sampling", [PLAIN, WARM], ids=["T=1", "all"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_block_has_exactly_the_targets_law(name, sampling):
    """By enumeration of all draws and all verdicts; once with a token that can never be drafted."""
    target, kind = TableLM.random(3, order=2, seed=3), MTP if name == "mtp" else EAGLE
    for ids in (None, (2, 0)):
        drafter = kind(Toy(target, ids), 3, sampling=sampling, **SHAPES[name])
        depth = 3 if name == "three rounds" else 2
        assert law_error(verify, Block(drafter, target, 4, depth), target, sampling) <= EXACT


def test_to_keep_drawn_nodes_by_their_value_is_wrong():
    """The ranking of greedy drafts, applied to draws: what `EAGLE._drawn` must not do."""

    class Ranked(EAGLE):
        def _drawn(self, sketch, nodes, depth):
            kept = self._ranked(sketch, nodes, depth)
            sketch._laws = {node: law for node, law in sketch._laws.items() if node in (0, *kept)}
            return kept

    target = TableLM.random(3, order=2, seed=3)
    for total in (1, 2, 3):
        drafter = Ranked(Toy(target), 3, depth=2, top_k=2, total=total, sampling=PLAIN)
        assert law_error(verify, Block(drafter, target, 4, 2), target) > WRONG


@every_drafter
def test_a_whole_generation_has_exactly_the_targets_law(name):
    """Several steps with states caught up between them, clipped at the limit."""
    target = TableLM.random(2, order=2, seed=5)

    def tokens(rng):
        drafter = DRAFTERS[name](Toy(target), 2, PLAIN)
        run = Run(target, (0, 1), drafter, max_new_tokens=2, max_nodes=2, sampling=PLAIN, rngs=(rng, rng))
        list(run)
        return run.result().tokens

    assert total_variation(enumerate_law(tokens), completed({(): 1.0}, target, (0, 1), 2)) <= EXACT


@every_drafter
def test_case_11_one_seed_gives_one_text(name):
    target = TableLM.random(5, seed=2)
    drafter, options = DRAFTERS[name](Toy(target), 5, PLAIN), {"max_new_tokens": 12, "sampling": PLAIN}
    texts = [generate(target, [0, 1], drafter, seed=seed, **options).tokens for seed in (*range(10), 0)]
    assert texts[0] == texts[-1] and len(set(texts)) > 1


# The shapes of trees.


def propose(drafter, target, prompt=(0, 1), nodes=64, depth=64, seed=0):
    drafter.reset(prompt)
    drafter.read_prompt(target.prefill(prompt[:-1], needs_hidden=True))
    return drafter.propose(list(prompt), Budget(nodes, depth), Rng(seed))


def test_the_dynamic_tree_is_the_best_of_all_that_was_read():
    """Against a slow growth by hand: the best two of each layer read, the best six of all kept."""
    target = TableLM.random(5, order=2, seed=1)
    drafter = EAGLE(Toy(target), 5, depth=3, top_k=2, total=6)
    tree, table = propose(drafter, target), drafter.model.table.log_softmax(-1).numpy()

    def children(path, value):
        row = table[path[-2] * 5 + path[-1]]
        return [((*path, int(x)), value + row[x]) for x in np.argsort(-row)[:2]]

    layer, everything = children((0, 1), 0.0), []
    for _ in range(3):
        everything += layer
        best = sorted(layer, key=lambda node: -node[1])[:2]
        layer = [child for node in best for child in children(*node)]
    expected = sorted(everything, key=lambda node: -node[1])[:6]
    rows = [(0, *tree.tokens[tree.path_to(row)].tolist()) for row in range(1, 7)]
    assert rows == [path for path, _ in expected] and tree.draw == "point"
    growth = drafter.growth
    assert len(growth.tokens) == 1 + 2 + 4 + 4 and [len(nodes) for nodes in growth.read] == [2, 2]
    assert [growth.values[node] for node in growth.kept] == pytest.approx([value for _, value in expected])
    assert all(growth.values[parent] >= growth.values[node] for node, parent in enumerate(growth.parents) if node)


def test_the_static_tree_has_its_ranks():
    target = TableLM.random(5, order=2, seed=1)
    drafter = EAGLE(Toy(target), 5, "static", depth=3, total=9)
    tree = propose(drafter, target)
    shape = [path for path in eagle.STATIC if len(path) <= 3][:9]
    assert tree.size == 9
    for row, path in enumerate(shape, 1):
        tokens = [0, *tree.tokens[tree.path_to(row)].tolist()]
        for at, rank in enumerate(path, 2):
            order = np.argsort(-drafter.model.table[tokens[at - 2] * 5 + tokens[at - 1]].numpy())
            assert tokens[at] == order[rank]
    for size in range(1, len(eagle.STATIC) + 1):  # every first part is a tree with consecutive ranks
        first = eagle.STATIC[:size]
        for path in first:
            assert path[:-1] in ((), *first) and all((*path[:-1], rank) in first for rank in range(path[-1]))
    assert max(path[-1] for path in eagle.STATIC) + 1 == eagle._WIDEST


def test_drawn_trees_fill_their_budget_and_keep_the_order_of_drawing():
    target = TableLM.random(6, order=1, seed=1)
    drafter = EAGLE(Toy(target), 6, depth=3, top_k=3, total=11, sampling=PLAIN)
    for seed in range(5):
        tree = propose(drafter, target, seed=seed)
        assert tree.size == 11 and tree.draw == "without_replacement" and tree.depths.max() <= 3
        assert [nodes for nodes in drafter.growth.kept] == list(range(1, 12))
        for row in range(12):
            drawn = tree.tokens[tree.children(row)]
            assert len(set(drawn.tolist())) == len(drawn) and (tree.q[row, drawn] > 0).all()
            assert not len(drawn) or tree.q[row].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("sampling", [Sampling(), PLAIN], ids=["greedy", "T=1"])
@every_drafter
def test_trees_fit_their_budget(name, sampling):
    target = TableLM.random(5, seed=1)
    drafter = DRAFTERS[name](Toy(target), 5, sampling)
    for nodes, depth in ((0, 5), (5, 0), (1, 5), (2, 2), (3, 1), (64, 64)):
        tree = propose(drafter, target, nodes=nodes, depth=depth)
        assert tree.size <= nodes and tree.depths.max() <= depth and (tree.size > 0) == (nodes * depth > 0)


# Stopping, edges, and drafters that are not asked at every step.


@every_drafter
def test_cases_13_to_18_stops_limits_and_edges(name):
    target = TableLM.random(5, order=2, seed=3)
    assert_stops_alike(lambda: DRAFTERS[name](Toy(target), 5), target, [0, 1, 2])
    circle = TableLM(np.eye(4)[[1, 2, 3, 0]] * 3.0)
    assert_edges(lambda: DRAFTERS[name](Toy(circle), 4))
    plain = generate(target, [0, 1], max_new_tokens=5).tokens
    run = generate(target, [0, 1], DRAFTERS[name](Toy(target), 5), max_new_tokens=5, stop=Stop(tokens=[plain[2]]))
    assert run.tokens == plain[: plain.index(plain[2]) + 1]


def test_states_are_kept_while_another_drafter_is_asked():
    target = TableLM.random(5, order=2, seed=3)
    prompt = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    drafter = Cascade(PromptLookup(num_tokens=2, min_n=2), MTP(Toy(target), 5))
    run = generate(target, prompt, drafter, max_new_tokens=40)
    assert run.tokens == generate(target, prompt, max_new_tokens=40).tokens
    assert drafter.needs_hidden and {2, 3} <= {step.tree.size for step in run.trace.steps}


def test_without_the_states_it_says_what_to_call():
    drafter = MTP(Toy(TableLM.random(3)), 3)
    drafter.reset([0, 1, 2])
    with pytest.raises(DraftError, match="knows the target's states after 0 tokens.* needs 2; call read_prompt"):
        drafter.propose([0, 1, 2], Budget(8, 8), Rng(0))


@pytest.mark.parametrize("wrong", [{"tree": "round"}, {"depth": 0}, {"top_k": 0}, {"total": 0}])
def test_settings_out_of_range_are_errors(wrong):
    with pytest.raises(ValueError, match="must be"):
        EAGLE(Toy(TableLM.random(3)), 3, **wrong)
    with pytest.raises(ValueError, match="num_tokens must be at least 1; got 0"):
        MTP(Toy(TableLM.random(3)), 3, 0)


# Weight files.


@pytest.fixture
def stored(tmp_path):
    """A tiny model beside which weights were written for it, all as its commands would find them."""
    model = tiny("llama", tie_word_embeddings=True)
    lm, ids = CachedLM(model), torch.tensor([5, 60, 2, 9])
    trained = module(model.config, model.get_input_embeddings().weight, lm.execution.head_rows(ids), ids, torch.float32)
    trained.scale = 2.5
    card = weights.Card("eagle", "tiny", HASH, VOCAB, {"options": {"normed": False}, "scale": 2.5})
    path = tmp_path / "mine.safetensors"
    weights.write(path, {**trained.state_dict(), "ids": ids}, card)
    context = methods.Context(lm, weights_hash=lambda: HASH)
    return SimpleNamespace(lm=lm, path=path, module=trained, context=context)


@pytest.mark.parametrize("name", ["eagle", "mtp"])
def test_it_is_built_from_a_weight_file(name, stored):
    drafter = methods.build(f"{name}:weights={stored.path}", stored.context)
    assert drafter.model.ids.tolist() == [5, 60, 2, 9] and drafter.reduced.vocab_size == VOCAB
    rounded = {key: value.bfloat16() for key, value in stored.module.state_dict().items()}
    stored.module.load_state_dict(rounded)
    stored.module.double()
    states = torch.randn(1, 4, LLAMA["hidden_size"], dtype=torch.float64)
    expected = stored.module(torch.tensor([[7, 8, 9, 1]]), states, 1)[0][0, 2]
    assert (drafter.model.read([8, 9, 1], states[0, :3])[0] - expected).abs().max() <= 1e-4
    plain = generate(stored.lm, [5, 6, 7], max_new_tokens=12).tokens
    assert generate(stored.lm, [5, 6, 7], drafter, max_new_tokens=12).tokens == plain


def test_weights_of_another_target_or_kind_are_refused(stored, tmp_path):
    def build(**changes):
        context = {"lm": stored.lm, "weights_hash": lambda: HASH, **changes}
        return methods.build(f"eagle:weights={stored.path}", methods.Context(**context))

    with pytest.raises(ModelError, match="was trained for tiny"):
        build(weights_hash=lambda: "cd" * 32)
    with pytest.raises(ModelError, match="give methods.Context a weights_hash"):
        build(weights_hash=None)
    with pytest.raises(ModelError, match="this target has 62"):
        build(lm=CachedLM(tiny("llama", vocab_size=62)))
    with pytest.raises(methods.MethodError, match="need a CachedLM as their target; got a TableLM"):
        build(lm=TableLM.random(3))
    with pytest.raises(ModelError, match="there are no weights"):
        methods.build(f"eagle:weights={tmp_path / 'none.safetensors'}", stored.context)
    heads = weights.Card("medusa", "tiny", HASH, VOCAB, {"options": {}})
    weights.write(stored.path, {"ids": torch.tensor([1]), "accuracy": torch.ones(1, 1)}, heads)
    with pytest.raises(ModelError, match="holds no module of MTP or EAGLE"):
        build()
