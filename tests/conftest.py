"""Settings that every test shares, and the default model for the few that need a real one."""

import pytest
import torch
from hypothesis import settings

# Tiny models lose more by waiting for a second thread than they gain from it, many times more on a busy machine.
torch.set_num_threads(1)

# The same examples at every run and on every machine: a failure is then a failure for everyone.
settings.register_profile("specdec", derandomize=True, deadline=None, database=None, max_examples=30)
settings.load_profile("specdec")


@pytest.fixture(scope="session")
def default_model():
    """The default model in float32, as `models.load` gives it; fetched before, not by a test."""
    from specdec_core.model import fetch, manifest
    from specdec_core.model import loading as models

    if problems := manifest.problems(fetch.place()):
        pytest.skip(f"the default model is not in the cache ({problems[0]}); run `specdec model fetch`")
    return models.load("default", dtype="float32", device="cpu")
