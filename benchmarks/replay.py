"""What a drafter that looks its drafts up would gain: its steps on recorded answers, and t(q) by slope.

    python benchmarks/replay.py --answers answers.json --methods prompt_lookup,suffix_decoding,adaptive
    python benchmarks/replay.py --answers answers.json --slopes 0.05,0.5 --tasks session,write_code

Greedy answers do not depend on the drafter. So they are recorded once, in FILE, and each method then decodes with the
record in the target's place (`Recorded`): no forward is run, and the steps counted are those of a live run. A table
for each slope s says, by task, how many times faster that would be than autoregressive decoding if a forward of q
rows took 1 + s (q - 1), and nothing else took time. Slope 0.01 is that of a large accelerator, 0.05 of a small model
on a CPU.

Only for drafters that read tokens alone: what the target would have said after a wrong token is not in the record.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from tqdm import tqdm

from specdec_core import Recorded, generate
from specdec_core.commands import options
from specdec_core.core import Steps
from specdec_core.drafters import Jacobi, Lookahead
from specdec_core.drafters.methods import BASELINE, build, check, parse, split
from specdec_core.measure import context_for
from specdec_core.measure.costs import Costs
from specdec_core.race import TASKS, conversation, geometric_mean, own

WIDEST = 257  # rows up to which a slope is a straight line


def record(arguments) -> dict:
    """Greedy answers to the own prompts of some tasks, and V."""
    loaded, lm = options.open_model(arguments)
    answers = []

    def answer(ids):
        return generate(lm, ids, max_new_tokens=arguments.max_new_tokens, stop=loaded.stop).tokens

    for question in tqdm(own(arguments.tasks)):
        for turn, (prompt, tokens) in enumerate(conversation(question, loaded.tokenizer, answer)):
            kept = {"turn": turn, "prompt": prompt, "tokens": tokens}
            answers.append({"id": question.id, "task": question.task, **kept})
    return {"vocab_size": lm.vocab_size, "answers": answers}


def by_task(answers: list[dict], drafter) -> dict[str, Steps]:
    """task -> its steps. The drafter keeps its memory from answer to answer."""
    traces = defaultdict(list)
    for answer in answers:
        traces[answer["task"]].append(Recorded(answer["prompt"], answer["tokens"]).replay(drafter))
    return {task: Steps.of(found) for task, found in traces.items()}


def line(slope: float) -> Costs:
    """t(q) = 1 + slope (q - 1)."""
    times = (1.0, 1.0 + slope * (WIDEST - 1))
    return Costs(0, 1, (1, WIDEST), times, times, times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_model_arguments(parser)
    parser.add_argument("--answers", type=Path, required=True, metavar="FILE", help="recorded here if it is not there")
    parser.add_argument("--methods", default="prompt_lookup,ngram,suffix_decoding,cascade,adaptive")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(TASKS))
    slopes = [0.01, 0.05, 0.12, 0.5]
    parser.add_argument("--slopes", type=lambda text: [float(s) for s in text.split(",")], default=slopes)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    arguments = parser.parse_args()
    methods = [name for name in check(split(arguments.methods)) if name != BASELINE]
    if bad := [name for name in methods if parse(name)[0] in (Jacobi.name, Lookahead.name)]:
        parser.error(f"{', '.join(bad)}: reads the target's logits, which are not recorded")
    if not arguments.answers.exists():
        arguments.answers.write_text(json.dumps(record(arguments)))
    kept = json.loads(arguments.answers.read_text())
    answers = [answer for answer in kept["answers"] if answer["task"] in arguments.tasks]
    tasks = list(dict.fromkeys(answer["task"] for answer in answers))
    if missing := set(arguments.tasks) - set(tasks):
        parser.error(f"{arguments.answers} has no answers to {', '.join(sorted(missing))}; name another file")
    lm, tokenizer = SimpleNamespace(vocab_size=kept["vocab_size"], max_length=1 << 20), None
    if any("rest" in name for name in methods):
        from specdec_core.model.loading import load

        tokenizer = load(arguments.model, dtype=arguments.dtype, device=arguments.device).tokenizer
    steps = {}
    for slope in arguments.slopes:
        costs = line(slope)
        print(f"\nt(q) = 1 + {slope:g} (q - 1)\n{'':40}" + "".join(f"{task[:9]:>10}" for task in tasks) + "      mean")
        for name in methods:
            if name not in steps or parse(name)[0] == "adaptive":  # it alone depends on t(q)
                steps[name] = by_task(answers, build(name, context_for(lm, costs=costs, tokenizer=tokenizer)))
            gains = [steps[name][task].tokens_per_call / steps[name][task].mean(costs.t) for task in tasks]
            print(f"{name:40}" + "".join(f"{gain:10.2f}" for gain in [*gains, geometric_mean(gains)]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
