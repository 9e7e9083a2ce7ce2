"""Whatever a drafter proposes, greedy output does not change: on tables, on tiny models, and on a real one."""

import numpy as np
import pytest
from drafters_for_tests import KINDS, Adversary
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import plain_logits, tiny

from specdec_core.base.errors import DraftError
from specdec_core.core.contract import DrafterBase
from specdec_core.core.engine import generate
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import Stop
from specdec_core.core.toy import TableLM
from specdec_core.core.tree import DraftTree
from specdec_core.model.lm import CachedLM

every_kind = pytest.mark.parametrize("kind", KINDS)


def check(lm, prompt, right, kind, seed, nodes=12, max_nodes=64, **options):
    """The run's tokens are ``right``, and its drafts were as good as their kind; returns how many were accepted."""
    text = [*prompt, *right]
    drafter = Adversary(kind, text, lm.vocab_size, seed, nodes, stops=right)
    run = generate(lm, prompt, drafter, max_new_tokens=len(right), max_nodes=max_nodes, seed=seed, **options)
    assert run.tokens == tuple(right)
    if kind == "oracle":  # the last block only may be cut, so every other one is a whole draft and a bonus token
        depth = min(nodes, max_nodes)
        assert run.trace.target_calls == -(-len(right) // (depth + 1))
    if kind == "always wrong":
        assert run.trace.target_calls == len(right)
        assert sum(len(step.emitted.path) - 1 for step in run.trace.steps) == 0
    for step in run.trace.steps:
        assert step.tree.candidate[list(step.verdict.path)].all()
    for token in dict.fromkeys(right):  # and where it is a stop token, the run ends with it
        stopped = generate(lm, prompt, drafter, max_new_tokens=len(right), max_nodes=max_nodes, seed=seed,
                           stop=Stop(tokens=token), **options)  # fmt: skip
        assert stopped.tokens == tuple(right[: right.index(token) + 1]) and stopped.finish_reason == "stop_token"
        assert lm.length == len(prompt) + len(stopped.tokens) - 1
    return run.trace.accepted


def continued(next_token, prompt, length):
    """``length`` tokens, each asked for with the whole text before it."""
    text = list(prompt)
    for _ in range(length):
        text.append(int(next_token(text)))
    return text[len(prompt) :]


@every_kind
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), vocab_size=st.integers(2, 6), order=st.integers(1, 3), length=st.integers(1, 20),
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=6), nodes=st.integers(1, 20), max_nodes=st.integers(0, 20),
)  # fmt: skip
def test_no_greedy_output_of_a_table_changes(kind, seed, vocab_size, order, length, prompt, nodes, max_nodes):
    lm = TableLM.random(vocab_size, order, seed)
    right = continued(lambda text: lm.row(text).argmax(), prompt, length)
    check(lm, prompt, right, kind, seed, nodes, max_nodes)


@every_kind
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 16), presence=st.sampled_from([0.0, 2.0]))
def test_no_greedy_output_with_penalties_changes(kind, seed, length, presence):
    """A row's law then depends on the drafted path to it, siblings and scratch rows aside."""
    lm, prompt = TableLM.random(5, 1, seed), [0, 1]
    sampling = Sampling(repetition_penalty=1.5, presence_penalty=presence)
    right = continued(lambda text: sampling.penalize(lm.row(text), text, text[2:]).argmax(), prompt, length)
    check(lm, prompt, right, kind, seed, sampling=sampling)


@every_kind
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), room=st.integers(1, 8))
def test_no_greedy_output_changes_at_the_end_of_the_context(kind, seed, room):
    lm = TableLM(TableLM.random(4, 2, seed).table, max_length=10)
    prompt = [seed % 4] * (10 - room)
    right = continued(lambda text: lm.row(text).argmax(), prompt, room)
    drafter = Adversary(kind, [*prompt, *right], 4, seed)
    run = generate(lm, prompt, drafter, max_new_tokens=100)
    assert (list(run.tokens), run.finish_reason) == (right, "context")


@every_kind
def test_an_adversary_is_what_its_kind_says(kind):
    """So that the properties are not true of drafts that never were what they are called."""
    lm, prompt, accepted, trees = TableLM.random(5, 2, 1), [0, 1], 0, []
    right = continued(lambda text: lm.row(text).argmax(), prompt, 30)
    for seed in range(10):
        drafter = Adversary(kind, [*prompt, *right], 5, seed, stops=[3])
        run = generate(lm, prompt, drafter, max_new_tokens=30, seed=seed)
        accepted += run.trace.accepted
        trees += [step.tree for step in run.trace.steps]
    children = [tree.tokens[tree.children(row)].tolist() for tree in trees for row in range(len(tree.tokens))]
    repeated = any(len(set(tokens)) < len(tokens) for tokens in children)
    branched = any(len(set(tokens)) > 1 for tokens in children)
    scratch = any(not tree.candidate.all() for tree in trees)
    assert (accepted == 0) == (kind == "always wrong")
    assert branched == (kind not in ("always wrong", "oracle"))
    assert repeated == (branched and kind != "without replacement")
    assert scratch == (kind == "scratch rows")
    assert kind != "stops inside" or any(3 in tree.tokens[1:] for tree in trees)


@pytest.fixture(scope="module", params=["llama", "qwen2", "gpt2"])
def small(request):
    """A tiny random float64 model in our loop, and a prompt with its continuation by whole forwards of the text."""
    model, prompts = tiny(request.param), ([7], [3, 9, 3, 9, 3], list(range(20, 40)))
    rights = [continued(lambda text: plain_logits(model, text).argmax(), prompt, 10) for prompt in prompts]
    return CachedLM(model), list(zip(prompts, rights, strict=True))


@every_kind
def test_no_greedy_output_of_a_tiny_model_changes(small, kind):
    lm, answers = small
    for seed, (prompt, right) in enumerate(answers):
        accepted = check(lm, prompt, right, kind, seed)
        assert (accepted == 0) == (kind == "always wrong")


@pytest.fixture(scope="module")
def real(default_model):
    """The real model in float32, and the beginnings of two prompts, continued without any draft."""
    from specdec_core.race.workloads import encode, own

    lm = CachedLM(default_model.model)
    questions = own(["edit_code", "write"], limit=1)
    prompts = [encode(question.turns[0], default_model.tokenizer)[:48] for question in questions]
    return lm, [(prompt, generate(lm, prompt, max_new_tokens=16).tokens) for prompt in prompts]


@every_kind
def test_no_greedy_output_of_the_real_model_changes(real, kind):
    lm, answers = real
    for seed, (prompt, right) in enumerate(answers):
        drafter = Adversary(kind, [*prompt, *right], lm.vocab_size, seed, nodes=8, stops=right)
        run = generate(lm, prompt, drafter, max_new_tokens=16, seed=seed)
        assert run.tokens == right
        assert (run.trace.accepted == 0) == (kind == "always wrong")


class Fixed(DrafterBase):
    name = "fixed"

    def __init__(self, tree):
        self.tree = tree

    def propose(self, context, budget, rng):
        return self.tree


@pytest.mark.parametrize(
    "tree, says",
    [
        (DraftTree.chain(2, [1]), "is rooted at token 2, not at the last token 1"),
        (DraftTree.chain(1, [0] * 9), "has 9 nodes and depth 9"),
        (DraftTree.chain(1, [0] * 7), "has 7 nodes and depth 7"),
        (DraftTree.chain(1, [0, 4]), r"holds token ids outside 0 ... 3"),
        (DraftTree.chain(1, [0, -1]), r"holds token ids outside 0 ... 3"),
        (DraftTree.chain(1, [0], np.ones((1, 5)) / 5, "iid"), "has laws q over 5 tokens; the target has 4"),
    ],
)
def test_a_tree_that_breaks_the_contract_is_refused_by_the_drafters_name(tree, says):
    """Eight nodes are allowed, and six tokens fit into the context, the last of which needs no row."""
    lm = TableLM(TableLM.random(4).table, max_length=9)
    with pytest.raises(DraftError, match=f"proposed by 'fixed' {says}"):
        generate(lm, [0, 3, 1], Fixed(tree), max_nodes=8)


def test_no_tree_at_all_is_refused_in_words():
    class Nothing(DrafterBase):
        name = "nothing"

        def propose(self, context, budget, rng):
            return None

    with pytest.raises(DraftError, match="'nothing' proposed None; expected a tree, `DraftTree.empty"):
        generate(TableLM.random(4), [0], Nothing())
