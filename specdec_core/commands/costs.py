"""`specdec costs`: measure t(q) and t(q, B) on this machine, print them, and keep them beside the models."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .options import add_model_arguments, natural, open_model, positive

if TYPE_CHECKING:
    from ..measure.costs import Costs
    from ..model.lm import CachedLM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    widths, batches = "1,2,4,8,16,32,64,128", "1,2,4,8"
    text = f"rows of a forward, separated by commas (default: {widths})"
    parser.add_argument("--widths", default=widths, type=_numbers, metavar="LIST", help=text)
    text = f"sequences in a forward; 1 for t(q) alone (default: {batches}, where the model runs several at once)"
    parser.add_argument("--batches", type=_numbers, metavar="LIST", help=text)
    parser.add_argument("--context", type=natural, default=256, metavar="N", help="tokens in the cache (default: 256)")
    parser.add_argument("--repeats", type=positive, default=7, metavar="N", help="of each width (default: 7)")
    add_model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    import torch

    from ..measure import costs, kept_costs, machine

    loaded, lm = open_model(arguments)
    measured = _measure(arguments, lm)
    uncached = costs.measure_uncached(loaded.model, [max(1, arguments.context)], arguments.repeats)
    path = kept_costs.keep(measured, lm, uncached=uncached)
    threads = torch.get_num_threads()
    print(f"{loaded.label}, {lm.execution.name}, {threads} thread{'s' * (threads != 1)}")
    print(machine.in_words(machine.describe(loaded.device)))
    print(f"{measured.context} tokens in the cache; median of {measured.repeats}, quartiles in brackets; a forward")
    print("that took longer than a wider one counts as the wider one\n")
    print(table(measured))
    if measured.larger:
        print(f"\n{batch_table(measured)}")
    print(f"\na token without a cache ({uncached.widths[0]} tokens read again): {1e3 * uncached.median[0]:.1f} ms")
    print(f"wrote {path}")
    return 0


def _measure(arguments: argparse.Namespace, lm: CachedLM) -> Costs:
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


def table(costs: Costs) -> str:
    """t(q) in milliseconds; in each row the tokens that a forward must yield, and the least time per token.

    Example:
        >>> from specdec_core.measure.costs import Costs
        >>> print(table(Costs(256, 5, (1, 8), (0.010, 0.016), (0.010, 0.015), (0.011, 0.020))))
          q       t(q), ms                must yield   ms per token, all accepted
          1      10.00 [10.00, 11.00]        1.00        10.00
          8      16.00 [15.00, 20.00]        1.60         2.00
    """
    lines = ["  q       t(q), ms                must yield   ms per token, all accepted"]
    for q in costs.widths:
        middle, low, high = (1e3 * costs.t(q, level=level) for level in ("median", "low", "high"))
        times = f"{middle:.2f} [{low:.2f}, {high:.2f}]"
        lines.append(f"{q:3}      {times:24} {costs.break_even(q):7.2f} {middle / q:12.2f}")
    return "\n".join(lines)


def batch_table(costs: Costs) -> str:
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
    for q in costs.widths:
        cells = [f"{1e3 * part.t(q):.1f} ({part.break_even(q):.2f})" if q in part.widths else "-" for part in parts]
        lines.append(f"{q:3}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def _numbers(text: str) -> list[int]:
    """An argparse type: whole numbers of at least 1, separated by commas."""
    return [positive(part) for part in text.split(",")]
