"""What the tests of model-free drafters share: small language models, and checks that fit every drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core.base.errors import ContextLimitError
from specdec_core.core.contract import Budget, Drafter
from specdec_core.core.engine import Run, generate, stream
from specdec_core.core.rng import Rng, enumerate_law, total_variation
from specdec_core.core.sampling import Sampling
from specdec_core.core.stopping import Stop
from specdec_core.core.toy import TableLM
from specdec_core.model.lm import CachedLM

Make = Callable[[], Drafter]

# Arguments of `assert_greedy_identity`, for hypothesis.
SMALL_RUNS = {
    "seed": st.integers(0, 10**6),
    "vocab": st.integers(2, 5),
    "order": st.integers(1, 3),
    "length": st.integers(0, 24),
    "prompt": st.lists(st.integers(0, 1), min_size=1, max_size=9),
    "max_nodes": st.integers(0, 64),
}


class FullContextLM(TableLM):
    """Logits that depend on every token of the context, so that one wrong row of a mask shows."""

    def __init__(self, vocab_size: int = 5, seed: int = 0):
        super().__init__(np.zeros((vocab_size, vocab_size)))
        self.seed = seed

    def row(self, context: Sequence[int]) -> np.ndarray:
        rng = np.random.default_rng([self.seed, len(context), *context])
        return rng.normal(scale=1.5, size=self.vocab_size)


class Letters:
    """A tokenizer for stop strings: id i is the i-th letter."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(ord("a") + i) for i in ids)


def tiny_llama(vocab_size: int = 11, seed: int = 0) -> CachedLM:
    """A random float64 Llama whose greedy continuations run into short cycles, as drafts need."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3,
    )  # fmt: skip
    return CachedLM(LlamaForCausalLM(config).double().eval())


def assert_greedy_identity(drafter: Drafter, seed, vocab, order, length, prompt, max_nodes) -> None:
    lm = TableLM.random(vocab, order, seed)
    run = generate(lm, prompt, drafter, max_new_tokens=length, max_nodes=max_nodes)
    assert run.tokens == generate(lm, prompt, max_new_tokens=length).tokens


def exact_law(lm: TableLM, prompt: list[int], length: int, sampling: Sampling) -> dict[tuple, float]:
    """The law of ``length`` autoregressive tokens, by multiplying the table's laws."""
    law = {(): 1.0}
    for _ in range(length):
        grown = {}
        for tokens, weight in law.items():
            for token, p in enumerate(sampling.law(lm.row(prompt + list(tokens)))):
                if p > 0:
                    grown[(*tokens, token)] = weight * p
        law = grown
    return law


def assert_exact_law(make: Make, prompts: list[list[int]], length: int = 4, max_nodes: int = 64) -> None:
    """Output law == the target's, total variation <= 1e-12, with drafts accepted on the way."""
    for seed, sampling in enumerate([Sampling(temperature=1.0), Sampling(temperature=0.8, top_k=2)]):
        for prompt in prompts:
            lm, accepted = TableLM.random(3, order=2, seed=seed), set()

            def run(rng, lm=lm, prompt=prompt, sampling=sampling, accepted=accepted, seed=seed):
                options = {"max_new_tokens": length, "sampling": sampling, "max_nodes": max_nodes}
                steps = Run(lm, prompt, make(), rngs=(Rng(seed), rng), **options)
                accepted.update(step.verdict.accepted for step in steps)
                return steps.result().tokens

            distance = total_variation(enumerate_law(run), exact_law(lm, prompt, length, sampling))
            assert distance <= 1e-12, (prompt, sampling, distance)
            assert max(accepted) >= 1, f"no draft was ever accepted after {prompt}: nothing was tested"


def assert_stops_alike(make: Make, lm: TableLM, prompt: list[int], length: int = 14) -> None:
    """Stop tokens, stop strings and length limits end a run where they end an autoregressive one."""
    plain = generate(lm, prompt, max_new_tokens=length).tokens
    drafted = generate(lm, prompt, make(), max_new_tokens=length)
    assert drafted.tokens == plain
    assert drafted.finish_reason == "length"
    assert drafted.trace.accepted > 0, "no draft was accepted, so no stop could fall inside one"
    for limit in range(length):
        run = generate(lm, prompt, make(), max_new_tokens=limit)
        assert (run.tokens, run.finish_reason) == (plain[:limit], "length")
    for token in set(plain):
        run = generate(lm, prompt, make(), max_new_tokens=length, stop=Stop(tokens=[token]))
        assert (run.tokens, run.finish_reason) == (plain[: plain.index(token) + 1], "stop_token")
    for at in range(length - 1):
        stop = Stop(strings=Letters().decode(plain[at : at + 2]), tokenizer=Letters())
        expected = generate(lm, prompt, max_new_tokens=length, stop=stop)
        run = generate(lm, prompt, make(), max_new_tokens=length, stop=stop)
        assert (run.tokens, run.text) == (expected.tokens, expected.text)
        assert run.finish_reason == expected.finish_reason == "stop_string"


def assert_edges(make: Make) -> None:
    """Short prompts, the context limit, a drafter used twice, token 0, statistics without any draft."""
    table = TableLM(np.eye(4)[[1, 2, 3, 0]] * 3.0)  # 0 1 2 3 0 1 2 3 ...
    for prompt in ([0], [0, 1], [3, 3]):
        plain = generate(table, prompt, max_new_tokens=12).tokens
        assert generate(table, prompt, make(), max_new_tokens=12).tokens == plain
        assert 0 in plain
    with pytest.raises(ValueError, match="beginning-of-sequence"):
        generate(table, [], make())
    table.bos_id = 2
    assert generate(table, [], make(), max_new_tokens=3).tokens == (3, 0, 1)

    small = TableLM(table.table, max_length=9)
    for length in range(1, 9):
        run = generate(small, [0] * length, make())
        assert (len(run.tokens), run.finish_reason) == (9 - length, "context")
    with pytest.raises(ContextLimitError, match="at most 8 tokens"):
        generate(small, [0] * 9, make())

    drafter, sampling = make(), Sampling(temperature=1.0)
    twice = [generate(table, [1, 2], drafter, max_new_tokens=9, sampling=sampling, seed=4) for _ in range(2)]
    assert twice[0].tokens == twice[1].tokens
    assert [s.tree.tokens.tolist() for s in twice[0].trace.steps] == [
        s.tree.tokens.tolist() for s in twice[1].trace.steps
    ]

    nothing = generate(table, [0], make(), max_new_tokens=5, max_nodes=0).trace
    assert (nothing.drafted, nothing.acceptance_rate, nothing.hit_rate) == (0, 0, 0)
    assert nothing.tokens_per_call == 1


def assert_within_budget(make: Make, lm: TableLM, prompt: list[int]) -> None:
    """Every tree fits every budget, and the tokens do not depend on it."""
    plain = generate(lm, prompt, max_new_tokens=12).tokens
    for max_nodes in (0, 1, 2, 3, 5, 8, 13, 63):
        run = stream(lm, prompt, make(), max_new_tokens=12, max_nodes=max_nodes)
        assert all(step.tree.size <= max_nodes for step in run)
        assert run.result().tokens == plain
    for depth in range(6):
        drafter = make()
        drafter.reset(prompt)
        assert drafter.propose(prompt, Budget(40, depth), Rng(0)).depths.max() <= depth


class CountingList(list):
    """A history that counts how many of its tokens are read."""

    read = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self):
        self.read += len(self)
        return super().__iter__()


def tokens_read(drafter: Drafter, history: Sequence[int], pattern: Sequence[int] = (1, 2, 3)) -> int:
    """How many tokens of a long history one more step of ``drafter`` reads."""
    context = CountingList(history)
    drafter.reset(context)
    drafter.propose(context, Budget(16, 16), Rng(0))
    context.extend(pattern)
    context.read = 0
    drafter.propose(context, Budget(16, 16), Rng(0))
    return context.read
