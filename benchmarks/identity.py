"""Are a method's tokens, and the logits behind them, the bits of autoregressive decoding?

    python benchmarks/identity.py --dtype bfloat16 --numerics invariant --methods prompt_lookup
    python benchmarks/identity.py --dtype bfloat16 --numerics fast --questions FILE --limit 4

One line a method: prompts answered, prompts whose tokens are identical, rows of logits compared and how many of
them are bit-equal; then every first divergence, with the gap between the two best autoregressive logits there. Rows
are compared up to the first divergence, after which the contexts differ.
"""

from __future__ import annotations

import argparse
import sys

import torch
from tqdm import tqdm

from specdec_core.commands import options
from specdec_core.engine import stream
from specdec_core.methods import BASELINE, Context, build, check, split
from specdec_core.stopping import Stop
from specdec_core.workloads import encode, own, read_questions


class Recorder:
    """An `lm` that keeps the logits of every committed row."""

    def __init__(self, lm):
        self._lm, self.rows = lm, []

    def __getattr__(self, name):
        return getattr(self._lm, name)

    def prefill(self, ids, reserve=0):
        self.rows = []
        self._lm.prefill(ids, reserve)

    def forward(self, tree, needs_hidden=False):
        self._out = self._lm.forward(tree, needs_hidden)
        return self._out

    def commit(self, path):
        self.rows.extend(self._out.logits[list(path)])
        self._lm.commit(path)


def answer(recorder, drafter, prompt, arguments, stop):
    run = stream(recorder, prompt, drafter, max_new_tokens=arguments.max_new_tokens, stop=stop)
    for _ in run:
        pass
    return run.result().tokens, recorder.rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_model_arguments(parser)
    parser.add_argument("--methods", default="prompt_lookup")
    parser.add_argument("--questions", help="a file of questions instead of the project's own")
    parser.add_argument("--limit", type=int, help="prompts a task")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    arguments = parser.parse_args()
    loaded, lm = options.open_model(arguments)
    recorder, stop = Recorder(lm), Stop(loaded.stop_ids)
    questions = read_questions(arguments.questions) if arguments.questions else own(limit=arguments.limit)
    if arguments.questions and arguments.limit:
        tasks = {question.task for question in questions}
        questions = [q for task in tasks for q in [q for q in questions if q.task == task][: arguments.limit]]
    methods = [name for name in check(split(arguments.methods)) if name != BASELINE]
    counts = {name: [0, 0, 0] for name in methods}  # identical prompts, rows, equal rows
    found = []
    for question in tqdm(questions):
        prompt = encode(question.turns[0], loaded.tokenizer)
        if len(prompt) + arguments.max_new_tokens >= lm.max_length:
            continue
        expected, alone = answer(recorder, None, prompt, arguments, stop)
        for name in methods:
            drafter = build(name, Context(lm, loaded.tokenizer))
            tokens, rows = answer(recorder, drafter, prompt, arguments, stop)
            same = next((i for i, (a, b) in enumerate(zip(tokens, expected, strict=False)) if a != b), len(expected))
            counts[name][0] += tokens == expected
            counts[name][1] += min(same + 1, len(rows), len(alone))
            counts[name][2] += sum(torch.equal(a, b) for a, b in zip(rows[: same + 1], alone, strict=False))
            if tokens != expected:
                best = alone[same].double().topk(2).values
                found.append(f"  {name}, {question.id}: token {same}, gap {float(best[0] - best[1]):.2g}")
    shape = f", {lm.shape}" if lm.shape else ""
    print(f"{loaded.dtype}, {lm.execution.name}, numerics={lm.numerics}{shape}, {torch.get_num_threads()} threads")
    for name, (identical, rows, equal) in counts.items():
        print(f"{name}: {identical} of {len(questions)} answers identical; {equal} of {rows} rows of logits bit-equal")
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
