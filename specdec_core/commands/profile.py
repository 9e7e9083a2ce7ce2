"""`specdec profile`: where a step's time goes, beside the limits of the machine; or where the memory goes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .options import add_model_arguments, open_model, positive

if TYPE_CHECKING:
    from ..measure import Limits, Profile
    from ..model.lm import CachedLM

TASK = "edit_code"
METHOD = "prompt_lookup"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=positive, default=64, metavar="N", help="to decode (default: 64)")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="of every run (default: 3)")
    text = "instead: peak memory and loading time in a fresh process; both bfloat16 and float32 by default"
    parser.add_argument("--memory", action="store_true", help=text)
    add_model_arguments(parser, numerics=("fast", "invariant", "both"))


def run(arguments: argparse.Namespace) -> int:
    return _memory(arguments) if arguments.memory else _time(arguments)


def _memory(arguments: argparse.Namespace) -> int:
    from ..measure.footprint import measure_memory, table
    from ..race.workloads import own

    prompt = own(TASK, limit=1)[0].turns[0]
    dtypes = ("bfloat16", "float32") if arguments.dtype == "auto" else (arguments.dtype,)
    how = (arguments.execution, arguments.tokens)
    print(table([measure_memory(prompt, arguments.model, dtype, *how) for dtype in dtypes]))
    return 0


def _time(arguments: argparse.Namespace) -> int:
    import torch

    from ..measure import limits, machine
    from ..model import invariance
    from ..race.workloads import own

    both = arguments.numerics == "both"
    arguments.numerics = "fast" if both else arguments.numerics
    loaded, lm = open_model(arguments, release=True)
    question = own(TASK, limit=1)[0]
    prompt = loaded.encode(question.turns[0])
    measured = limits.measure_limits(loaded.device, loaded.dtype)
    profiles = _profiles(lm, prompt, arguments)
    threads, dtype = torch.get_num_threads(), str(loaded.dtype).removeprefix("torch.")
    print(f"{loaded.label}, {dtype}, {lm.execution.name}, {lm.numerics}, {threads} thread{'s' * (threads != 1)}")
    print(machine.in_words(machine.describe(loaded.device)))
    print(f"{question.id}: {len(prompt)} tokens, then {arguments.tokens} new ones; {arguments.repeats} repeats")
    print(f"limits measured just now: {measured.bandwidth / 1e9:.1f} GB/s read from memory, ", end="")
    print(f"{measured.flops / 1e9:.0f} GFLOP/s in a square product\n")
    print(table(profiles, measured), end="\n\n")
    print(words(profiles[0], measured))
    if both:
        shape = invariance.find(lm.with_own_cache)
        lm = lm.with_own_cache(shape)
        print(
            f"\nnumerics=invariant, {shape.width} rows per forward, keys in blocks of {shape.block}, "
            f"attention in tiles of {shape.tile} rows:"
        )
        for fast, exact in zip(profiles, _profiles(lm, prompt, arguments), strict=True):
            ratio = exact.seconds / fast.seconds
            print(f"  {fast.drafter}: {1e3 * exact.seconds:.2f} ms per step, {ratio:.2f} times the fast one")
    return 0


def _profiles(lm: CachedLM, prompt: Sequence[int], arguments: argparse.Namespace) -> list[Profile]:
    """Of an autoregressive step, and of a step with a draft."""
    from ..core.contract import NullDrafter
    from ..drafters.methods import Context, build
    from ..measure.profiling import profile

    lookup = build(METHOD, Context(lm))
    run = {"max_new_tokens": arguments.tokens, "repeats": arguments.repeats, "stop": lm.loaded.stop}
    return [profile(lm, prompt, NullDrafter(), **run), profile(lm, prompt, lookup, drafted=True, **run)]


def table(profiles: Sequence[Profile], limits: Limits) -> str:
    """A step by part, three columns per profile: milliseconds, the share of the step, and the part's own limit.

    Rows below "forward" are what lies outside the target's forward.
    """
    from ..core.trace import PHASES
    from ..measure.profiling import LOOP

    def line(name: str, cells: Sequence[tuple[str, str, str]]) -> str:
        return (f"{name:26}" + "".join(f"{ms:>16}{share:>8}{least:>10}" for ms, share, least in cells)).rstrip()

    def row(name: str, seconds: Sequence[float], least: Sequence[str]) -> str:
        shares = [f"{each / one.seconds:.1%}" for each, one in zip(seconds, profiles, strict=True)]
        return line(name, list(zip([f"{1e3 * each:.3f}" for each in seconds], shares, least, strict=True)))

    none = [""] * len(profiles)
    titles = [f"{one.drafter}, {one.rows:.1f} row{'s' * (one.rows != 1)}" for one in profiles]
    lines = [" " * 26 + "".join(f"{title:>34}" for title in titles)]
    lines.append(line("", [("ms", "share", "limit")] * len(profiles)))
    for part in profiles[0].parts:
        least = [f"{1e3 * one.work[part].limit(limits):.3f}" if part in one.work else "" for one in profiles]
        lines.append(row(f"  {part}", [one.parts[part] for one in profiles], least))
    whole = [f"{1e3 * one.limit(limits):.3f}" for one in profiles]
    lines.append(row("forward", [one.phases["forward"] for one in profiles], whole))
    for phase in (*(phase for phase in PHASES if phase != "forward"), LOOP):
        lines.append(row(phase, [one.phases[phase] for one in profiles], none))
    lines.append(row("step", [one.seconds for one in profiles], none))
    lines.append(row("outside the forward", [one.outside * one.seconds for one in profiles], none))
    return "\n".join(lines)


def words(one: Profile, limits: Limits) -> str:
    """How near a forward comes to the memory limit, and which parts keep it away."""
    from ..measure.profiling import ATTENTION, OTHER

    weights = sum(work.bytes for part, work in one.work.items() if part != ATTENTION)
    forward, least = one.phases["forward"], one.limit(limits)
    lines = [
        f"{weights / 1e6:.0f} MB of weights are read per forward: at least {1e3 * weights / limits.bandwidth:.2f} ms,",
        f"with keys and values {1e3 * least:.2f} ms; over {one.rows:.0f} row it takes {1e3 * forward:.2f} ms, "
        f"{least / forward:.0%} of the memory limit.",
    ]
    if one.parts:
        least = {part: work.limit(limits) for part, work in one.work.items()}
        gaps = {part: seconds - least.get(part, 0) for part, seconds in one.parts.items()}
        lines.append("Milliseconds that each part takes beyond its own limit:")
        lines += [f"  {1e3 * gaps[part]:6.2f}  {part}" for part in sorted(gaps, key=gaps.get, reverse=True)]
        lines.append("The costliest calls of torch besides products with weights, ms:")
        small = [call for call in one.calls if call[0] in (ATTENTION, OTHER)][:5]
        lines += [f"  {1e3 * spent:6.2f}  {name}, {count:.0f} calls" for _, name, count, spent in small]
    return "\n".join(lines)
