"""`specdec costs`: measure t(q) and t(q, B) on this machine, print them, and keep them beside the models."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .options import add_model_arguments, natural, open_model, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--widths", default="1,2,4,8,16,32,64,128", type=_numbers, metavar="LIST",
                        help="rows of a forward, separated by commas (default: 1,2,4,8,16,32,64,128)")  # fmt: skip
    parser.add_argument("--batches", type=_numbers, metavar="LIST",
                        help="sequences in a forward, separated by commas; 1 for t(q) alone (default: 1,2,4,8, where "
                        "the model runs several at once)")  # fmt: skip
    parser.add_argument("--context", type=natural, default=256, metavar="N", help="tokens in the cache (default: 256)")
    parser.add_argument("--repeats", type=positive, default=7, metavar="N", help="of each width (default: 7)")
    add_model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    import torch

    from ..measure import costs, kept_costs, machine

    loaded, lm = open_model(arguments)
    measured = _measure(arguments, lm)
    uncached = costs.measure_uncached(loaded.model, [max(1, arguments.context)], arguments.repeats)
    path = kept_costs.keep(measured, loaded, lm, uncached=uncached)
    threads = torch.get_num_threads()
    print(f"{loaded.label}, {lm.execution.name}, {threads} thread{'s' * (threads != 1)}")
    print(machine.in_words(machine.describe(loaded.device)))
    print(f"{measured.context} tokens in the cache; median of {measured.repeats}, quartiles in brackets\n")
    print(table(measured))
    if measured.larger:
        print(f"\n{batch_table(measured)}")
    print(f"\na token without a cache ({uncached.widths[0]} tokens read again): {1e3 * uncached.median[0]:.1f} ms")
    print(f"wrote {path}")
    return 0


def _measure(arguments: argparse.Namespace, lm: Any) -> Any:
    """Without --batches, a model that runs one sequence at a time is measured as it runs."""
    from ..base.errors import UnsupportedModel
    from ..measure import costs

    # What a width must yield is counted in forwards of one row, so that one is always measured.
    how = (lm, [1, *arguments.widths], arguments.context, arguments.repeats)
    if arguments.batches is not None:
        return costs.measure_costs(*how, batches=arguments.batches)
    try:
        return costs.measure_costs(*how, batches=costs.BATCHES)
    except UnsupportedModel as error:
        print(f"t(q, B) is left out: {error}", file=sys.stderr)
        return costs.measure_costs(*how)


def table(costs: Any) -> str:
    """t(q) in milliseconds, by row what a forward must yield, and the least time a token.

    Example:
        >>> from specdec_core.measure.costs import Costs
        >>> print(table(Costs(256, 5, (1, 8), (0.010, 0.016), (0.010, 0.015), (0.011, 0.020))))
          q       t(q), ms                must yield   ms a token, all accepted
          1      10.00 [10.00, 11.00]        1.00        10.00
          8      16.00 [15.00, 20.00]        1.60         2.00
    """
    lines = ["  q       t(q), ms                must yield   ms a token, all accepted"]
    for q, middle, low, high in zip(costs.widths, costs.median, costs.low, costs.high, strict=True):
        times = f"{1e3 * middle:.2f} [{1e3 * low:.2f}, {1e3 * high:.2f}]"
        lines.append(f"{q:3}      {times:24} {costs.break_even(q):7.2f} {1e3 * middle / q:12.2f}")
    return "\n".join(lines)


def batch_table(costs: Any) -> str:
    """t(q, B) in milliseconds: a row for each q, a column for each B, with what each sequence must yield.

    Example:
        >>> from specdec_core.measure.costs import Costs
        >>> pair = Costs(256, 5, (1,), (0.012,), (0.012,), (0.012,), batch=2)
        >>> print(batch_table(Costs(256, 5, (1, 8), (0.010, 0.016), (0.010, 0.015), (0.011, 0.020), larger=(pair,))))
        t(q, B), ms (must yield): B sequences in one forward, q rows of each
          q          B = 1          B = 2
          1    10.0 (1.00)    12.0 (1.00)
          8    16.0 (1.60)              -
    """
    parts = costs.by_batch
    lines = ["t(q, B), ms (must yield): B sequences in one forward, q rows of each"]
    lines.append("  q" + "".join(f"{f'B = {part.batch}':>15}" for part in parts))
    for i, q in enumerate(costs.widths):
        cells = [
            f"{1e3 * part.median[i]:.1f} ({part.break_even(q):.2f})" if i < len(part.widths) else "-" for part in parts
        ]
        lines.append(f"{q:3}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def _numbers(text: str) -> list[int]:
    """An argparse type: whole numbers of at least 1, separated by commas."""
    return [positive(part) for part in text.split(",")]
