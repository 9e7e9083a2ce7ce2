"""What a drafted token costs, split into layers and vocabulary projection, for the reduced and the full vocabulary.

    python benchmarks/draft_cost.py --dtype bfloat16
    python benchmarks/draft_cost.py --methods "draft_model:num_tokens=3,draft_model:num_tokens=3,vocabulary=full"

FR-Spec (arXiv:2502.14856) leaves out of a drafter's projection the tokens that are seldom right. The columns say what
that saves, in milliseconds on this machine and in megabytes read on any, and what it costs: the share of drafts that
are accepted at depth 1, and S, tokens a target call.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch

from specdec_core.commands import options
from specdec_core.core.stopping import Stop
from specdec_core.drafters.feature import FeatureDrafter
from specdec_core.drafters.methods import Context, build, split
from specdec_core.drafters.reduced import Reduced
from specdec_core.measure import machine
from specdec_core.measure.draft_cost import Drafting, drafting
from specdec_core.measure.profiling import HEAD, OTHER, PYTHON
from specdec_core.model.lm import CachedLM
from specdec_core.race import encode, own

METHODS = "draft_model,draft_model:vocabulary=full,mtp,eagle"
WIDTHS = {"method": 33, "K": 6, "ms/token": 12, "layers": 10, "projection": 12, "other": 8, "Python": 8,
          "MB read": 10, "of it head": 12, "accepted": 10, "S": 6}  # fmt: skip
HEADER = "".join(f"{title:>{width}}" if title != "method" else f"{title:{width}}" for title, width in WIDTHS.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_model_arguments(parser)
    parser.add_argument("--methods", default=METHODS, help=f"separated by commas (default: {METHODS})")
    parser.add_argument("--task", default="chat", help="of the project's own prompts; its first (default: chat)")
    parser.add_argument("--tokens", type=options.positive, default=96, help="to decode (default: 96)")
    parser.add_argument("--repeats", type=options.positive, default=3, help="of every run (default: 3)")
    arguments = parser.parse_args()
    loaded, lm = options.open_model(arguments, release=True)
    prompt = encode(own(arguments.task, limit=1)[0].turns[0], loaded.tokenizer)
    context = Context(lm, tokenizer=loaded.tokenizer, weights_hash=lambda: loaded.weights_hash)
    print(f"{machine.in_words(machine.describe(loaded.device))}; {torch.get_num_threads()} threads, {loaded.dtype}")
    print(HEADER)
    run = {"max_new_tokens": arguments.tokens, "repeats": arguments.repeats, "stop": Stop(loaded.stop_ids)}
    for name in split(arguments.methods):
        drafter = build(name, context)
        print(row(name, drafting(lm, prompt, drafter, **run)))
        if isinstance(drafter, FeatureDrafter):
            widen(drafter, lm)
            print(row(f"{name}, full vocabulary", drafting(lm, prompt, drafter, **run)))
    return 0


def widen(drafter: FeatureDrafter, lm: CachedLM) -> None:
    """Let MTP's or EAGLE's module project to all of the target's tokens."""
    head = lm.execution.head_rows(torch.arange(lm.vocab_size))
    layer = torch.nn.Linear(head.shape[1], len(head), bias=False, device="meta")
    layer.weight = torch.nn.Parameter(head, requires_grad=False)
    drafter.model._head = type(drafter.model._head)(layer)
    drafter.model.ids = drafter.draft_ids = np.arange(lm.vocab_size)
    drafter.reduced = Reduced(drafter.draft_ids, lm.vocab_size)


def row(name: str, one: Drafting) -> str:
    """A line of the table; "layers" are all products but the projection, with attention."""
    parts = one.parts
    layers = one.seconds - sum(parts[part] for part in (HEAD, OTHER, PYTHON))
    read = sum(work.bytes for work in one.work.values())
    times = [one.seconds, layers, parts[HEAD], parts[OTHER], parts[PYTHON]]
    cells = [name, one.vocabulary, *(f"{1e3 * seconds:.3f}" for seconds in times), f"{read / 1e6:.1f}",
             f"{one.read:.0%}", f"{one.accepted:.3f}", f"{one.tokens_per_call:.2f}"]  # fmt: skip
    first, *others = zip(cells, WIDTHS.values(), strict=True)
    return f"{first[0]:{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in others)


if __name__ == "__main__":
    sys.exit(main())
