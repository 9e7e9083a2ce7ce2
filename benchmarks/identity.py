"""Are a method's tokens, and the logits behind them, the bits of autoregressive decoding?

    python benchmarks/identity.py --dtype bfloat16 --numerics invariant --methods prompt_lookup
    python benchmarks/identity.py --dtype bfloat16 --numerics fast --questions FILE --prompts 100 --out found.jsonl

The prompts are the project's own, then those of FILE, the tasks taking turns, until there are enough. One line a
method: prompts answered, prompts whose tokens are identical, rows of logits compared and how many of them are
bit-equal; then every first divergence, with the gap between the two best autoregressive logits there. Rows are
compared up to the first divergence, after which the contexts differ. With --out each prompt's result is kept as it
comes, and a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import chain, zip_longest
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_core.commands import options
from specdec_core.core.engine import generate
from specdec_core.core.stopping import Stop
from specdec_core.drafters.methods import BASELINE, Context, build, check, split
from specdec_core.race import encode, own, read_questions


class Recorder:
    """An `lm` that keeps the logits of every committed row, and reads a prompt once for all methods."""

    def __init__(self, lm):
        self._lm, self.rows, self._read, self._hidden = lm, [], None, None

    def __getattr__(self, name):
        return getattr(self._lm, name)

    def prefill(self, ids, reserve=0, needs_hidden=False):
        self.rows = []
        if ids == self._read:
            self._lm.rewind(len(ids))
        else:
            self._hidden = self._lm.prefill(ids, reserve, needs_hidden=True)  # a later method may need it
            self._read = list(ids)
        return self._hidden

    def forward(self, tree, needs_hidden=False):
        self._out = self._lm.forward(tree, needs_hidden)
        return self._out

    def commit(self, path):
        self.rows.extend(self._out.logits[list(path)].unbind())
        self._lm.commit(path)


def questions(file: str | None, count: int | None) -> list:
    """Own questions, then those of ``file``, one of each task in turn."""
    tasks: dict[str, list] = {}
    for question in read_questions(file) if file else []:
        tasks.setdefault(question.task, []).append(question)
    others = [question for question in chain(*zip_longest(*tasks.values())) if question]
    return [*own(), *others][:count]


def compare(recorder: Recorder, prompt: list[int], drafters: dict, **run) -> dict[str, dict]:
    """For each method: whether its tokens are the baseline's, and how many rows of logits are."""
    found, expected = {}, generate(recorder, prompt, **run).tokens
    alone = recorder.rows
    for name, drafter in drafters.items():
        tokens = generate(recorder, prompt, drafter, **run).tokens
        same = next((i for i, (a, b) in enumerate(zip(tokens, expected, strict=False)) if a != b), len(expected))
        rows = recorder.rows[: same + 1]
        found[name] = {
            "identical": tokens == expected,
            "rows": len(rows),
            "equal": sum(torch.equal(a, b) for a, b in zip(rows, alone, strict=False)),
        }
        if tokens != expected:
            best = alone[same].double().topk(2).values
            found[name] |= {"token": same, "gap": float(best[0] - best[1])}
    return found


def report(results: dict[str, dict[str, dict]], methods: list[str]) -> None:
    for name in methods:
        found = {prompt: result[name] for prompt, result in results.items() if name in result}
        rows, equal = (sum(one[key] for one in found.values()) for key in ("rows", "equal"))
        identical = sum(one["identical"] for one in found.values())
        print(f"{name}: {identical} of {len(found)} answers identical; {equal} of {rows} rows of logits bit-equal")
        for prompt, one in found.items():
            if not one["identical"]:
                print(f"  {prompt}: parts at token {one['token']}, where the gap is {one['gap']:.2g}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_model_arguments(parser)
    parser.add_argument("--methods", default="prompt_lookup")
    parser.add_argument("--questions", help="a file of questions to go on with after the project's own")
    parser.add_argument("--prompts", type=options.positive, help="how many (default: all)")
    parser.add_argument("--max-new-tokens", type=options.positive, default=128)
    parser.add_argument("--out", type=Path, help="keep results here, a line a prompt, and go on from them")
    arguments = parser.parse_args()
    methods = [name for name in check(split(arguments.methods)) if name != BASELINE]
    loaded, lm = options.open_model(arguments, release=True)
    recorder, stop = Recorder(lm), Stop(loaded.stop_ids)
    context = Context(lm)
    drafters = {name: build(name, context) for name in methods}
    results = {}
    if arguments.out and arguments.out.exists():
        results = dict(json.loads(line) for line in arguments.out.read_text(encoding="utf-8").splitlines())
    for question in tqdm(questions(arguments.questions, arguments.prompts)):
        prompt = encode(question.turns[0], loaded.tokenizer)
        if len(prompt) + arguments.max_new_tokens >= lm.max_length:
            print(f"{question.id}: {len(prompt)} tokens leave no room, left out", file=sys.stderr)
        missing = {name: drafters[name] for name in methods if name not in results.get(question.id, {})}
        if not missing or len(prompt) + arguments.max_new_tokens >= lm.max_length:
            continue
        length = arguments.max_new_tokens
        found = compare(recorder, prompt, missing, max_new_tokens=length, stop=stop)
        results[question.id] = {**results.get(question.id, {}), **found}
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as file:
                print(json.dumps([question.id, results[question.id]]), file=file, flush=True)
    shape = f", {lm.shape}" if lm.shape else ""
    print(f"{loaded.dtype}, {lm.execution.name}, numerics={lm.numerics}{shape}, {torch.get_num_threads()} threads")
    report(results, methods)
    return 0


if __name__ == "__main__":
    sys.exit(main())
