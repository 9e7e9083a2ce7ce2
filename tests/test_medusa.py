"""Medusa: the heads and their counts, the tree of ranks, the drafter's laws, and the rule that is not lossless."""

from itertools import combinations, pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from drafters_for_tests import Drawing
from laws import EXACT, PLAIN, WRONG, Draw, completed, law_error
from tiny_models import VOCAB, tiny

from specdec_core.base.errors import ModelError
from specdec_core.core.contract import Budget
from specdec_core.core.engine import generate, stream
from specdec_core.core.rng import Rng, total_variation
from specdec_core.core.rules import verify
from specdec_core.core.sampling import Sampling
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.core.typical import Typical, distance, generation_law, threshold
from specdec_core.drafters import Medusa, methods, weights
from specdec_core.drafters.feature_net import Frozen
from specdec_core.drafters.medusa import Heads
from specdec_core.drafters.medusa_net import MedusaHeads
from specdec_core.model.invariance import Shape
from specdec_core.model.lm import CachedLM
from specdec_core.training.corpus import Batch, Corpus
from specdec_core.training.medusa import DECAY, MedusaObjective
from specdec_core.training.selfchat import ANSWER, USER

PROMPT = (0, 1)
FALLING = np.array([[0.5, 0.3, 0.1], [0.4, 0.2, 0.1], [0.3, 0.1, 0.05]])
SAMPLINGS = [
    PLAIN,
    Sampling(temperature=0.7, top_k=2),
    Sampling(temperature=1.2, top_p=0.9, repetition_penalty=1.5, presence_penalty=0.4),
]


def randomized(frozen, seed=0, **options):
    """Heads that guess anything."""
    module = MedusaHeads(frozen, **options)
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return module.requires_grad_(False)


def toy_drafter(target, ids=(0, 1, 2), kind=Medusa, **options):
    """Random heads over a table's states."""
    states, ids = len(target.state([])), np.array(ids)
    table = torch.randn(len(FALLING), len(ids), states, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    accuracy = FALLING[:, : len(ids)]
    return kind(lambda state: 1.5 * table @ state, ids, accuracy, target.vocab_size, **options)


# The heads in training.


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(2)
    roles = torch.randint(0, 3, (4, 14), generator=generator).to(torch.uint8)
    return Batch(
        torch.randint(0, 9, (4, 14), generator=generator), roles, torch.randn(4, 14, 6, generator=generator),
        torch.tensor([True, False, True, True]),
    )  # fmt: skip


@pytest.fixture
def objective():
    generator = torch.Generator().manual_seed(3)
    ids = torch.tensor([8, 0, 3, 5, 2])
    frozen = Frozen(torch.zeros(9, 6), torch.randn(5, 6, generator=generator), ids, None)
    return MedusaObjective(randomized(frozen, heads=3, blocks=2))


def places(batch, head, roles=(ANSWER,), greedy=True):
    """(row, place, place of the token that is guessed) wherever a head is tested, one by one."""
    for row, place in product(range(4), range(14)):
        at = place + head + 2
        if at < 14 and int(batch.roles[row, at]) in roles and (batch.greedy[row] or not greedy):
            yield row, place, at


def test_new_heads_are_the_targets_own_projection(objective):
    module, states = MedusaHeads(objective.module.frozen), torch.randn(2, 6)
    assert all(torch.equal(logits, states @ module.frozen.head.T) for logits in module(states))
    plain = MedusaHeads(module.frozen, turn=False)
    assert len(plain.state_dict()) == 4 and torch.equal(torch.stack(plain(states)), torch.stack(module(states)))
    with pytest.raises(ValueError, match="heads=0, blocks=1"):
        MedusaHeads(module.frozen, heads=0)


def test_the_loss_is_the_mean_over_places_taken_one_by_one(objective, batch):
    module, head_rows = objective.module, objective.module.frozen.head
    for head, found in enumerate(objective.losses(batch).values()):
        total = weight = 0.0
        for row, place, at in places(batch, head, (ANSWER, USER), greedy=False):
            law = (head_rows @ batch.hidden[row, at - 1]).softmax(-1)  # of the target, for the token at `at`
            share = 1.0 if int(batch.roles[row, at]) == ANSWER else 0.25
            total -= share * float((law * module.logits(head, batch.hidden[row, place]).log_softmax(-1)).sum())
            weight += share
        assert found.item() == pytest.approx(DECAY**head * total / weight, rel=1e-5)


def test_counts_on_held_out_text_are_those_of_a_slow_count(objective, batch):
    ids = objective.module.frozen.ids
    ranked = torch.zeros(3, 5)
    for head in range(3):
        for row, place, at in places(batch, head):
            order = ids[objective.module.logits(head, batch.hidden[row, place]).argsort(descending=True)].tolist()
            answer = int(batch.tokens[row, at])
            rank = order.index(answer) if answer in order[:4] else 4
            ranked[head, rank] += 1
    assert torch.equal(objective.ranked_hits(batch, 3, 4), ranked) and ranked[:, :4].sum() > 10

    chain = torch.zeros(2, 4)
    for row, place, _ in places(batch, 0):
        for head in range(3):
            if (row, place, place + head + 2) not in places(batch, head):
                break
            chain[0, head] += 1
            guess = ids[objective.module.logits(head, batch.hidden[row, place]).argmax()]
            if guess != batch.tokens[row, place + head + 2]:
                break
            chain[1, head] += 1
    assert torch.equal(objective.hits(batch, 4), chain) and chain[1, 0] > 0

    corpus = SimpleNamespace(held_out=np.arange(4), temperature=torch.tensor([0.0, 0.8, 0.0, 0.0]),
                             batch=lambda rows, device: batch)  # fmt: skip
    corpus.measured = Corpus.measured.func(corpus)  # the warm conversation is left out
    assert corpus.measured.tolist() == [0, 2, 3]
    accuracy = objective.tables(corpus)["accuracy"]
    assert accuracy.shape == (3, 5)  # of all five tokens, where ten ranks were asked for
    # It reads in half precision, in which two guesses may change places.
    assert (accuracy[:, 0] - ranked[:, 0] / ranked.sum(1)).abs().max() < 0.1


# The tree.


@pytest.mark.parametrize("nodes", range(1, 7))
def test_no_tree_of_ranks_is_worth_more(nodes):
    """Against every tree of so many nodes; the best paths of ranks, best first, are the tree's nodes in order."""
    accuracy = np.array([[0.5, 0.3], [0.45, 0.2]])
    paths = [path for depth in (1, 2) for path in product(range(2), repeat=depth)]
    worth = {path: np.prod([accuracy[depth, rank] for depth, rank in enumerate(path)]) for path in paths}
    trees = [set(chosen) for chosen in combinations(paths, nodes)]
    best = max(sum(worth[path] for path in tree) for tree in trees if all(path[:1] in tree for path in tree))
    shape = Medusa(None, np.arange(2), accuracy, 2, nodes).shape(nodes, 9)
    found = [()]
    for node in range(1, nodes + 1):
        found.append((*found[shape.parents[node]], int(shape.tokens[node])))
    assert sum(worth[path] for path in found[1:]) == pytest.approx(best, abs=1e-12)
    assert [worth[path] for path in found[1:]] == sorted((worth[path] for path in found[1:]), reverse=True)


def test_trees_keep_to_their_budget_and_hold_each_heads_best_guesses():
    target = TableLM.random(5, seed=1)
    drafter = toy_drafter(target, (4, 0, 2), nodes=12)
    drafter.reset(PROMPT)
    assert drafter.propose(PROMPT, Budget(12, 9), Rng(0)).size == 0  # nothing has been read yet
    state = torch.from_numpy(target.state([3]))
    drafter.read_prompt(state[None])
    for nodes, depth in product((0, 1, 4, 12, 50), (0, 1, 2, 9)):
        tree = drafter.propose(PROMPT, Budget(nodes, depth), Rng(0))
        limits = (0, 3, 12, 12)  # a head has three ranks
        assert tree.size == min(nodes, limits[min(depth, 3)]) and tree.depths.max() <= depth
    order = np.array([4, 0, 2])[drafter.heads(state).argsort(descending=True).numpy()]
    for node in range(1, tree.size + 1):
        siblings = tree.children(int(tree.parents[node]))
        assert tree.tokens[siblings].tolist() == order[tree.depths[node] - 1][: len(siblings)].tolist()
    with pytest.raises(ValueError, match="nodes must be at least 1; got 0"):
        toy_drafter(target, nodes=0)
    with pytest.raises(ValueError, match="got 'iid'"):
        toy_drafter(target, draw="iid")
    with pytest.raises(ValueError, match="3 ranks was given for 2 tokens"):
        Medusa(None, np.arange(2), FALLING, 5)


# What is emitted.


class Block:
    """One tree of a drafter, as `laws.law_error` asks for it."""

    def __init__(self, drafter, target):
        self.drafter, self.target, self.depth = drafter, target, len(FALLING)

    def __call__(self, prompt, rng):
        self.drafter.reset(prompt)
        self.drafter.read_prompt(self.target.prefill(prompt[:-1], needs_hidden=True))
        return self.drafter.propose(prompt, Budget(9, self.depth), rng)


@pytest.mark.parametrize("draw", ["without_replacement", "point"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["T=1", "top-k", "penalties"])
@pytest.mark.parametrize("nodes, ids", [(2, (0, 1, 2)), (4, (0, 1, 2)), (5, (2, 0))])
def test_a_block_has_the_target_law(nodes, ids, sampling, draw):
    target = TableLM.random(3, seed=1)
    drafter = toy_drafter(target, ids, nodes=nodes, draw=draw, sampling=sampling)
    assert law_error(verify, Block(drafter, target), target, sampling, PROMPT) <= EXACT


@pytest.mark.parametrize("draw", ["without_replacement", "point"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["T=1", "top-k", "penalties"])
def test_the_law_of_whole_answers_is_the_targets(sampling, draw):
    """Several steps through the loop, clipped at the limit."""
    target = TableLM.random(3, seed=1)
    for nodes, length in ((1, 3), (2, 2)):
        drafter = toy_drafter(target, nodes=nodes, draw=draw, sampling=sampling)
        law = generation_law(target, PROMPT, length, sampling, drafter)
        assert total_variation(law, completed({(): 1.0}, target, PROMPT, length, sampling)) <= EXACT
        assert distance(target, PROMPT, length, sampling, drafter) <= EXACT


def test_laws_that_were_not_drawn_from_are_noticed():
    class Wrong(Medusa):
        """Says that all heads drew from the law of the first."""

        def propose(self, context, budget, rng):
            tree = super().propose(context, budget, rng)
            q = np.where(tree.q.sum(1, keepdims=True) > 0, tree.q[0], 0.0)
            return DraftTree(tree.tokens, tree.parents, tree.draw, q)

    target = TableLM.random(3, seed=1)
    wrong = toy_drafter(target, kind=Wrong, nodes=3, sampling=PLAIN)
    assert law_error(verify, Block(wrong, target), target, PLAIN, PROMPT) > WRONG


def test_heads_read_the_state_of_the_last_token_that_the_target_has_read():
    """From the prompt's end on, whatever was accepted in between."""
    target = TableLM.random(4, order=2, seed=3)
    seen = []

    class Watched(Medusa):
        def propose(self, context, budget, rng):
            seen.append((torch.from_numpy(target.state(context[:-1])), self._state))
            return super().propose(context, budget, rng)

    drafter = toy_drafter(target, (0, 1, 2), kind=Watched, nodes=12)
    run = generate(target, (0, 1, 2), drafter, max_new_tokens=30)
    assert run.tokens == generate(target, (0, 1, 2), max_new_tokens=30).tokens
    assert len(seen) == run.trace.target_calls and all(torch.equal(expected, state) for expected, state in seen)
    assert len({step.verdict.accepted for step in run.trace.steps}) > 1


def test_heads_that_know_the_text_draft_all_of_it():
    circle = TableLM(5.0 * np.roll(np.eye(6), 1, axis=1))
    accuracy = np.full((4, 2), 0.4)
    knows = lambda state: torch.stack([state.roll(2 + head) for head in range(4)])  # noqa: E731
    drafter = Medusa(knows, np.arange(6), accuracy, 6, nodes=16)
    run = generate(circle, [3, 4], drafter, max_new_tokens=20)
    assert run.tokens == tuple((5 + i) % 6 for i in range(20))
    assert [step.verdict.accepted for step in run.trace.steps] == [4] * 4
    # Of a prompt of one token no state is known at first.
    alone = generate(circle, [4], drafter, max_new_tokens=20)
    assert [step.verdict.accepted for step in alone.trace.steps] == [0, 4, 4, 4, 4] and alone.tokens == run.tokens


# Weights from a file, with a real stack.


@pytest.fixture
def stored(tmp_path):
    """A weight file for `tiny_models.tiny`, of random heads; and the heads."""
    ids = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(0))[:40]
    head = tiny("llama").get_output_embeddings().weight.detach()[ids].float()
    module = randomized(Frozen(head[:0], head, ids, None), heads=3, blocks=2)
    card = weights.Card("medusa", "tiny", "abc", VOCAB, {"options": {"heads": 3, "blocks": 2}})
    accuracy = torch.tensor(FALLING)
    path = tmp_path / "heads.safetensors"
    weights.write(path, {**module.state_dict(), "ids": ids, "accuracy": accuracy}, card)
    return path, module


def built(path, lm, sampling=PLAIN, known="abc", settings=""):
    context = methods.Context(lm, sampling=sampling, weights_hash=known and (lambda: known))
    return methods.build(f"medusa:weights={path}{settings}", context)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_greedy_tokens_are_the_targets(stored, name, dtype):
    model = tiny(name)
    if dtype == "float32":
        model = type(model)(model.config).eval()
        model.load_state_dict(tiny(name).state_dict())
    lm = CachedLM(model)
    drafter = built(stored[0], lm, Sampling(), settings=",nodes=9")
    expected = generate(lm, [5, 6, 7], max_new_tokens=40)
    run = generate(lm, [5, 6, 7], drafter, max_new_tokens=40)
    assert run.tokens == expected.tokens and run.trace.steps[0].tree.size == drafter.max_nodes == 9
    penalized = Sampling(repetition_penalty=1.3)
    expected = generate(lm, [5, 6], max_new_tokens=12, sampling=penalized)
    assert generate(lm, [5, 6], drafter, max_new_tokens=12, sampling=penalized).tokens == expected.tokens


@pytest.mark.parametrize("shape", [Shape(32, 512), Shape(32, 512, 32), Shape(4, 8)], ids=str)
def test_invariant_logits_are_the_same_bits_with_drafts_and_without(stored, shape):
    lm = CachedLM(tiny("llama"), numerics="invariant", shape=shape)
    forward, outputs = lm.forward, []
    lm.forward = lambda *args: outputs.append(forward(*args)) or outputs[-1]

    def rows(drafter):
        found = [outputs.pop().logits[list(step.emitted.path)] for step in stream(lm, [5, 6, 7], drafter,
                                                                                max_new_tokens=16)]  # fmt: skip
        return torch.cat(found)

    assert torch.equal(rows(built(stored[0], lm, Sampling())), rows(None))


def test_heads_from_the_file_say_what_the_trained_ones_say(stored):
    path, module = stored
    lm = CachedLM(tiny("llama"))
    state = torch.randn(32, generator=torch.Generator().manual_seed(1))
    expected = torch.stack(module(state))
    drafter = built(path, lm)
    assert np.array_equal(drafter.draft_ids, module.frozen.ids) and np.array_equal(drafter.accuracy, FALLING)
    half = expected.abs().max() / 50  # they were stored in half precision
    assert (drafter.heads(state.double()) - expected).abs().max() < half
    packed = Heads(module, module.frozen.head)  # float32, so packed where that is possible
    assert (packed(state) - expected).abs().max() < 1e-4


def test_a_wrong_target_is_refused_and_so_are_other_weights(stored, tmp_path):
    path, module = stored
    lm = CachedLM(tiny("llama"))
    with pytest.raises(ModelError, match="was trained for tiny .*, not for this target"):
        built(path, lm, known="another")
    with pytest.raises(ModelError, match="it is not known which weights this one has"):
        built(path, lm, known=None)
    with pytest.raises(ModelError, match="a vocabulary of 61 tokens .* this target has 60"):
        built(path, CachedLM(tiny("llama", vocab_size=60)))
    other = tmp_path / "other.safetensors"
    weights.write(other, {"ids": module.frozen.ids}, weights.Card("mtp", "tiny", "abc", VOCAB, {"options": {}}))
    with pytest.raises(ModelError, match=r"\(mtp\) holds no Medusa heads"):
        built(other, lm)


# Typical acceptance.


def test_the_threshold_falls_with_entropy_and_is_bounded():
    for size in (2, 4, 50):
        assert threshold(np.full(size, 1 / size)) == pytest.approx(min(0.09, 0.3 / size))
    assert threshold(np.array([1.0, 0.0]), epsilon=0.5, delta=0.2) == 0.2


def test_the_walk_keeps_the_deepest_then_likeliest_path_of_likely_tokens():
    rng, rule = np.random.default_rng(0), Typical(0.2, 0.6)
    depths = set()
    for _ in range(200):
        size = int(rng.integers(0, 9))
        parents = np.array([-1, *(int(rng.integers(0, i)) for i in range(1, size + 1))])
        laws = rng.dirichlet(np.full(4, 0.5), size + 1)
        tree = DraftTree(rng.integers(0, 4, size + 1), parents)
        paths = []
        for leaf in range(size + 1):
            path = tree.path_to(leaf)
            steps = [(laws[above], laws[above][tree.tokens[node]]) for above, node in pairwise(path)]
            if all(p > threshold(law, 0.2, 0.6) for law, p in steps):
                paths.append((len(path), np.prod([p for _, p in steps]), path))
        verdict = rule(laws, tree, Rng(0))
        longest, mass, _ = max(paths, key=lambda entry: entry[:2])
        chosen = [path for length, p, path in paths if length == longest and np.isclose(p, mass)]
        assert list(verdict.path) in chosen and verdict.next_token == laws[verdict.path[-1]].argmax()
        assert verdict.tokens == (*tree.tokens[list(verdict.path[1:])], verdict.next_token)
        depths.add(verdict.accepted)
    assert depths >= {0, 1, 2}


@pytest.mark.parametrize("draw", ["point", "without_replacement"])
def test_typical_acceptance_has_another_law_at_every_temperature(draw, record_property):
    target = TableLM.random(3, seed=1)
    for temperature in (0.3, 0.7, 1.0, 1.5):
        sampling = Sampling(temperature=temperature)
        drafter = toy_drafter(target, nodes=3, draw=draw, sampling=sampling)
        away = distance(target, PROMPT, 2, sampling, drafter, Typical())
        record_property(f"distance at T={temperature}", away)
        print(f"{draw}, T = {temperature}: TV(typical, p) = {away:.3f}")
        assert 0.01 < away <= 1
    # Without a draft it is greedy decoding: also not the law.
    greedy = generation_law(target, PROMPT, 2, PLAIN, rule=Typical())
    assert greedy == {generate(target, PROMPT, max_new_tokens=2).tokens: 1.0}


def test_at_temperature_0_typical_acceptance_is_greedy_decoding_and_a_trace_names_it():
    target, draft = TableLM.random(5, order=2, seed=3), TableLM.random(5, seed=4)
    drafter = Drawing(Draw(draft, (2, 2, 1), "point"))
    expected = generate(target, PROMPT, drafter, max_new_tokens=20)
    run = generate(target, PROMPT, drafter, max_new_tokens=20, rule=Typical())
    assert run.tokens == expected.tokens and expected.trace.drafter == "drawing"
    assert run.trace.drafter == "drawing (typical acceptance, not lossless)"
