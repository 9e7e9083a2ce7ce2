"""One memory, several users: a run that lost its text to another is told so, and no user gets a wrong token."""

import copy
import subprocess
import sys
import threading

import numpy as np
import pytest
from tiny_models import tiny

from specdec_core.base.errors import SharedCacheError
from specdec_core.core import NullDrafter, Recorded, Run, TableLM, generate, one_by_one, stream, together
from specdec_core.drafters import Cascade, DraftModel, PromptLookup
from specdec_core.model.batch import forward_together
from specdec_core.model.lm import CachedLM

A, B = [3, 4, 5, 3], [9, 8, 7, 6]  # as long as each other: a length would not tell them apart
LIMIT = 8


def float_llama():
    return copy.deepcopy(tiny("llama")).float()


MAKE = {
    "table": lambda: TableLM.random(11, order=2, seed=4),
    "eager": lambda: CachedLM(tiny("llama")),
    "packed": lambda: CachedLM(float_llama()),
}
every_model = pytest.mark.parametrize("lm", [make() for make in MAKE.values()], ids=MAKE)
# What somebody else does with the same model while a run waits.
OTHERS = {
    "another answer": lambda lm: generate(lm, B, max_new_tokens=3),
    "the same answer": lambda lm: generate(lm, A, max_new_tokens=3),
    "a stream that waits too": lambda lm: next(iter(stream(lm, B, max_new_tokens=3))),
    "a prompt read": lambda lm: lm.prefill(A + [1, 2]),
    "tokens taken back": lambda lm: lm.rewind(lm.length),
    "a copy of the object": lambda lm: generate(copy.copy(lm), B, max_new_tokens=3),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@every_model
def test_a_run_whose_text_was_replaced_is_told_so_at_its_next_step(lm, other):
    expected = generate(lm, A, max_new_tokens=LIMIT).tokens
    run = stream(lm, A, PromptLookup(), max_new_tokens=LIMIT)
    steps = iter(run)
    next(steps)
    other(lm)
    with pytest.raises(SharedCacheError, match=r"another text was read .* lm\.with_own_cache\(\)"):
        next(steps)
    assert run.result().tokens == expected[: len(run.result().tokens)]
    assert generate(lm, A, max_new_tokens=LIMIT).tokens == expected


def test_a_recorded_answer_and_several_in_one_forward_are_held_to_the_same():
    record = Recorded([1, 2, 3, 1], [2, 3, 1, 2, 9, 9])
    steps = iter(stream(record, [1, 2, 3, 1], max_new_tokens=6))
    next(steps)
    record.replay(PromptLookup())
    with pytest.raises(SharedCacheError):
        next(steps)

    lm = CachedLM(float_llama())
    runs = [Run(one, prompt, max_new_tokens=LIMIT) for one, prompt in ((lm.with_own_cache(), A), (lm, B))]
    for run in runs:
        run.begin()
    together(runs, forward_together)
    lm.prefill(B)
    with pytest.raises(SharedCacheError):
        together(runs, forward_together)
    shared = [Run(lm, prompt, max_new_tokens=LIMIT) for prompt in (A, B)]
    for run in shared:
        run.begin()
    with pytest.raises(SharedCacheError):
        together(shared, one_by_one)


@every_model
def test_streams_with_caches_of_their_own_take_turns(lm):
    expected = [generate(lm, prompt, max_new_tokens=LIMIT).tokens for prompt in (A, B)]
    runs = [stream(lm.with_own_cache(), prompt, max_new_tokens=LIMIT) for prompt in (A, B)]
    for _ in zip(*runs, strict=True):
        pass
    assert [run.result().tokens for run in runs] == expected


@every_model
def test_the_target_may_be_its_own_draft_model(lm):
    """As it is, as a copy that shares the cache, and behind a lookup; again, and while another run waits."""
    expected = generate(lm, A, max_new_tokens=LIMIT).tokens
    waiting = iter(stream(other := lm.with_own_cache(), B, max_new_tokens=LIMIT))
    next(waiting)
    for drafter in (
        DraftModel(lm, 3),
        DraftModel(copy.copy(lm), 3),
        Cascade(PromptLookup(), DraftModel(lm, 3)),
        DraftModel(other, 2),
    ):
        for _ in range(2):
            run = generate(lm, A, drafter, max_new_tokens=LIMIT)
            assert run.tokens == expected and (run.trace.acceptance_rate == 1.0 or drafter.name != "draft_model")
    assert len(list(waiting)) == LIMIT - 1


def test_two_drafters_with_one_model_and_a_draft_model_used_meanwhile():
    target = TableLM.random(6, order=2, seed=1)
    draft = TableLM(target.table + np.random.default_rng(0).normal(size=target.table.shape) / 2)
    alone = generate(target, [0, 1], DraftModel(draft, 2), max_new_tokens=30).trace
    expected = generate(target, [0, 1], max_new_tokens=30).tokens
    streams = [stream(target.with_own_cache(), [0, 1], DraftModel(draft, 2), max_new_tokens=30) for _ in range(2)]
    for _ in zip(*streams, strict=True):
        draft.prefill([5, 5, 5])
    for run in streams:
        assert run.result().tokens == expected and run.trace.accepted == alone.accepted > 0


@pytest.mark.parametrize("name", MAKE)
def test_threads_with_one_cache_are_right_or_told_so(name):
    lm = MAKE[name]()
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 11, 4).tolist() for _ in range(4)]
    expected = [generate(lm, prompt, max_new_tokens=LIMIT).tokens for prompt in prompts]
    came, start = [], threading.Barrier(len(prompts))

    def work(prompt, right, lm):
        start.wait()
        for _ in range(5):
            try:
                came.append(generate(lm, prompt, NullDrafter(), max_new_tokens=LIMIT).tokens == right)
            except SharedCacheError:
                came.append(None)

    for lms in ([lm] * len(prompts), [lm.with_own_cache() for _ in prompts]):
        came.clear()
        jobs = zip(prompts, expected, lms, strict=True)
        threads = [threading.Thread(target=work, args=job) for job in jobs]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-4)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        assert len(came) == 5 * len(prompts) and False not in came and True in came
        assert lms[0] is lms[1] or None not in came


def test_it_does_not_rest_on_assertions():
    code = (
        "from specdec_core import TableLM, generate, stream\n"
        "from specdec_core.base.errors import SharedCacheError\n"
        "lm = TableLM.random(5)\n"
        "steps = iter(stream(lm, [1, 2], max_new_tokens=4)); next(steps); generate(lm, [3, 4], max_new_tokens=1)\n"
        "try: next(steps)\n"
        "except SharedCacheError: print('told', __debug__)\n"
    )
    run = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "told False", run.stderr


def test_a_language_model_without_a_memory_runs_all_the_same():
    class Bare:
        """Only what checks a draft."""

        def __init__(self, lm):
            self.vocab_size, self.max_length, self.bos_id = lm.vocab_size, lm.max_length, lm.bos_id
            self.prefill, self.forward, self.commit, self.rewind = lm.prefill, lm.forward, lm.commit, lm.rewind
            self._lm = lm

        @property
        def length(self):
            return self._lm.length

    expected = generate(TableLM.random(5), [1, 2], max_new_tokens=8).tokens
    for drafter in (None, DraftModel(Bare(TableLM.random(5, seed=1)))):
        assert generate(Bare(TableLM.random(5)), [1, 2], drafter, max_new_tokens=8).tokens == expected
