"""Ctrl-C at any instruction leaves a model that answers as before, ours and transformers' own.

`PYTHONPATH=.:tests python tests/interrupts.py 1000` does the same 1,000 times with each execution.
"""

import interrupts
import pytest
from test_execution import needs_onednn

from specdec_core.model.execution.eager import Eager


@pytest.mark.parametrize("execution", ["eager", pytest.param("packed", marks=needs_onednn)])
def test_ctrl_c_at_any_instruction_leaves_a_sound_model(execution):
    assert interrupts.survived(execution, 20) == 20


def test_a_model_that_keeps_our_attention_is_seen(monkeypatch):
    """A planted mistake: an interrupted forward leaves what it set."""
    run = Eager.run

    def careless(self, *args, **options):
        try:
            return run(self, *args, **options)
        except KeyboardInterrupt:
            self.model.config._attn_implementation = "specdec"
            raise

    monkeypatch.setattr(Eager, "run", careless)
    assert interrupts.survived("eager", 10) < 10
