"""Ctrl-C: pressed by a drafter, at any instruction of an answer, or as `timeout` does it.

`PYTHONPATH=.:tests python tests/interrupts.py 1000` interrupts 1,000 eager and 1,000 packed answers.
"""

import os
import random
import signal
import sys
from contextlib import suppress

import tiny_model
import torch

from specdec_core.base.errors import SpecdecError
from specdec_core.core.contract import DrafterBase
from specdec_core.core.engine import generate
from specdec_core.core.tree import DraftTree
from specdec_core.drafters import REGISTRY
from specdec_core.model.lm import CachedLM


def ctrl_c():
    raise KeyboardInterrupt


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


def register(monkeypatch, nth, press=ctrl_c):
    """Make `interrupts` a method that is interrupted in its nth answer; a race warms up with the first."""
    answers = iter(range(1, 1000))

    class Interrupts(DrafterBase):
        name = "interrupts"

        def reset(self, context):
            if next(answers) == nth:
                press()

        def propose(self, context, budget, rng):
            return DraftTree.empty(context[-1])

    monkeypatch.setitem(REGISTRY, "interrupts", Interrupts)


def at_instruction(number, operation):
    """Run an operation that is interrupted at an instruction, counted from 0; gives how many there were."""
    seen = 0

    def trace(frame, event, arg):
        nonlocal seen
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == number + 1:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return seen


def survived(execution, count, seed=0):
    """How many of so many interrupts, at random instructions, left a model that answers as before, ours and its own."""
    model, prompt, rng = tiny_model.model(), [3, 4, 5, 6], random.Random(seed)
    lm = CachedLM(model, execution)

    def ours():
        return generate(lm, prompt, max_new_tokens=2).tokens

    def theirs():
        return model.generate(torch.tensor([prompt]), max_new_tokens=3, do_sample=False)[0].tolist()

    expected, sound = (ours(), theirs(), model.config._attn_implementation), 0
    instructions = at_instruction(-1, ours)
    for _ in range(count):
        if rng.random() < 0.2:
            lm = lm.with_own_cache()  # whose buffers are made in the interrupted answer
        at_instruction(rng.randrange(instructions), ours)
        torch.set_grad_enabled(True)  # which torch.no_grad does not do when it is interrupted itself
        own = model.config._attn_implementation  # before anything of ours could mend it
        with suppress(SpecdecError):  # our attention, in transformers' own generate
            sound += expected == (theirs() and ours(), theirs(), own)
    return sound


if __name__ == "__main__":
    for execution in ("eager", "packed"):
        print(f"{execution}: {survived(execution, int(sys.argv[1]))} of {sys.argv[1]}")
