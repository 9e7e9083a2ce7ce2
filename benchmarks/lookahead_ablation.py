"""The lookahead paper's ablation (arXiv:2402.02057, Table 3), in step terms and in wall time, and the fit of (α, f).

    python benchmarks/lookahead_ablation.py --dtype bfloat16
    python benchmarks/lookahead_ablation.py --questions FILE --limit 4

First the nine settings unscaled, on prompts of several turns. On a machine with little spare compute they lose
wall time; S, tokens a target call, does not depend on the machine. Then the same settings with W and G divided by
`--scale`. Then W = G = 1 ... 15 at N = 5, whose S is what the paper fits with S = (f - 1 + E)/f.
"""

from __future__ import annotations

import argparse
import sys

from specdec_core import compare, theory
from specdec_core.commands import options
from specdec_core.drafters.methods import BASELINE
from specdec_core.race import own, read_questions

# (N, W, G), whether the prompt's n-grams are pooled, and the paper's speedup and S on MT-Bench (A100, 7B).
PAPER = [
    ((10, 1, 3), True, 1.36, 1.45),
    ((5, 1, 10), True, 1.36, 1.51),
    ((5, 1, 30), False, 1.04, 1.12),
    ((5, 1, 30), True, 1.46, 1.59),
    ((5, 30, 1), False, 1.61, 1.79),
    ((5, 15, 15), False, 1.78, 1.96),
    ((5, 15, 15), True, 1.88, 2.05),
]
CURVE = (1, 2, 3, 5, 7, 10, 15)


def lookahead(N, W, G, prompt):
    return f"lookahead:W={W},N={N},G={G},prompt_ngrams={prompt}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_model_arguments(parser)
    parser.add_argument("--questions", help="a file of questions instead of the project's own chats")
    parser.add_argument("--limit", type=options.positive, default=3, help="questions (default: 3)")
    parser.add_argument("--max-new-tokens", type=options.positive, default=96)
    parser.add_argument("--repeats", type=options.positive, default=1)
    parser.add_argument("--scale", type=options.positive, default=5, help="divide W and G by this (default: 5)")
    arguments = parser.parse_args()
    _, lm = options.open_model(arguments)
    questions = read_questions(arguments.questions) if arguments.questions else own("chat")
    questions = questions[: arguments.limit]

    def measured(methods):
        options = {"max_new_tokens": arguments.max_new_tokens, "repeats": arguments.repeats, "progress": True}
        race = compare(lm, questions, methods, **options)
        return {method: race.row(method) for method in methods}

    def scaled(n):
        return max(1, round(n / arguments.scale))

    full = {lookahead(*shape, prompt): (shape, prompt, *quoted) for shape, prompt, *quoted in PAPER}
    small = {
        lookahead(N, scaled(W), scaled(G), prompt): ((N, scaled(W), scaled(G)), prompt, *quoted)
        for (N, W, G), prompt, *quoted in PAPER
    }
    for title, settings in (("unscaled", full), (f"W and G divided by {arguments.scale}", small)):
        table = measured([BASELINE, "prompt_lookup", *settings])
        print(f"\n{title}\n(N, W, G)     prompt  rows      S  speedup   (paper: S, speedup)")
        for name, label, quoted in ((BASELINE, "autoregressive", ""), ("prompt_lookup", "prompt lookup", "1.55 1.44")):
            row = table[name]
            print(f"{label:22}      {row.tokens_per_call:5.2f}  {row.speedup:7.2f}   ({quoted})")
        for name, ((N, W, G), prompt, speedup, S) in settings.items():
            row = table[name]
            forward = theory.lookahead_step_tokens(W, N, G)
            print(f"({N}, {W}, {G})".ljust(13), f"{'yes' if prompt else 'no':6} {forward:5} "
                  f"{row.tokens_per_call:6.2f}  {row.speedup:7.2f}   ({S} {speedup})")  # fmt: skip
    names = {lookahead(5, W, W, False): W for W in CURVE}
    table = measured([BASELINE, *names])
    points = [(W, 4, table[name].tokens_per_call) for name, W in names.items()]
    fit = theory.fit_alpha_f(points)
    print(f"\nS at N = 5 for W = G: {', '.join(f'{b}: {S:.2f}' for b, _, S in points)}")
    print(f"fit: α = {fit.alpha:.3f}, f = {fit.f:.2f}, rms error of S {fit.rms:.3f}; "
          f"the paper's: {theory.PAPER_ALPHA}, {theory.PAPER_F}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
