"""Where the time of a decode step goes, and what each part of it has to do at least.

Two runs of the same generation take turns. One is left alone: its trace gives the phases of a step. In the other
every call of torch made during a forward is timed and counted to a part of the model. What remains of the first
run's forward after those calls is Python's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ..base.errors import SpecdecError
from ..core.contract import Drafter, LMOutput
from ..core.engine import generate, stream
from ..core.tree import DraftTree
from ..model import cache
from ..model.execution.llama import Stack
from ..model.lm import CachedLM
from ..theory import roofline
from .limits import Limits

# Parts of a forward. A product is one with weights; attention is all that `cache` calls: writes, masks, softmax.
PRODUCTS, HEAD, ATTENTION = "products with weights", "vocabulary projection", "attention and cache"
OTHER, PYTHON = "other calls of torch", "Python"
PARTS = (PRODUCTS, HEAD, ATTENTION, OTHER, PYTHON)
LOOP = "loop"  # of a step, outside the trace's clocks
_PRODUCTS = ("linear", "_linear_pointwise", "addmm", "bmm", "_grouped_mm")
_ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class Work:
    """What a part has to do in one forward at least.

    Attributes:
        bytes: to read from memory: weights, or keys and values.
        flops: operations, a multiply-add being two.
    """

    bytes: float = 0.0
    flops: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)

    def limit(self, limits: Limits) -> float:
        """The least seconds it can take.

        Example:
            >>> Work(bytes=40e9, flops=1e9).limit(Limits(bandwidth=20e9, flops=100e9))
            2.0
        """
        return roofline(1, self.bytes, self.flops / 2, limits.bandwidth, limits.flops)


@dataclass(frozen=True)
class Profile:
    """The mean step of one kind in one run.

    Attributes:
        drafter: its name.
        steps: how many steps of this kind the run had.
        rows: their mean number of rows, padding not counted.
        phases: seconds per step by phase: those of `trace.PHASES` and `LOOP`.
        parts: seconds per forward by part, `PARTS`; they add up to ``phases["forward"]``. Empty if not split.
            Timing a call slows it a little, so `PYTHON`, the remainder, is a lower bound; the others together
            are at most the forward.
        work: what the parts have to do at least.
        calls: (part, function, calls per forward, seconds per forward), the costliest first.
    """

    drafter: str
    steps: int
    rows: float
    phases: dict[str, float]
    parts: dict[str, float]
    work: dict[str, Work]
    calls: tuple[tuple[str, str, float, float], ...] = ()

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(self.phases.values())

    @property
    def outside(self) -> float:
        """The share of a step outside the target's forward; a drafter's own model would be counted in it."""
        return 1 - self.phases["forward"] / self.seconds

    def limit(self, limits: Limits) -> float:
        """The least time of a forward, in seconds: weights, keys and values read once, products computed."""
        return sum(self.work.values(), Work()).limit(limits)


def profile(
    lm: CachedLM,
    prompt: Sequence[int],
    drafter: Drafter,
    max_new_tokens: int = 64,
    repeats: int = 3,
    drafted: bool = False,
    clock: Callable[[], float] = perf_counter,
    **options: Any,
) -> Profile:
    """Decode ``prompt`` and take the mean step apart. Of each step, the median of the repeats counts.

    Args:
        lm: the target. Its forward is not split if it is compiled.
        drafter: the method; decoding is greedy unless ``options`` say otherwise.
        max_new_tokens: the first step is not counted, so at least 2.
        repeats: of each of the two runs, at least 1.
        drafted: count the steps that had a draft; otherwise those that had none.
        clock: seconds; tests give one of their own.
        options: more for `engine.stream`.

    Raises:
        ValueError: for fewer tokens or repeats.
        SpecdecError: if the run has no step of this kind.
    """
    if max_new_tokens < 2 or repeats < 1:
        raise ValueError(f"max_new_tokens >= 2 and repeats >= 1 are needed; got {max_new_tokens} and {repeats}")
    options = {**options, "max_new_tokens": max_new_tokens}
    whole = lm.execution.name == "compiled"  # a compiler would have to compile the timed calls anew
    plain, timed = [], []
    for turn in range(repeats + 1):
        steps = _plain(lm, prompt, drafter, drafted, clock, options)
        forwards = [] if whole else _timed(lm, prompt, drafter, drafted, clock, options)
        if turn:  # the first turn allocates memory and chooses kernels
            plain.append([seconds for _, seconds in steps])
            timed.append([forward.spent for forward in forwards])
    if not steps:
        kind = "with" if drafted else "without"
        raise SpecdecError(f"no step of {drafter.name} was {kind} a draft after the first one; ask for more tokens")
    rows = float(np.mean([rows for rows, _ in steps]))
    phases = _mean_of_medians(plain)
    if whole:
        return Profile(drafter.name, len(steps), rows, phases, {}, _weights_work(lm.execution.stack, rows))
    spent = _mean_of_medians(timed)
    parts = split(phases["forward"], by_part(spent))
    mean = [sum((Counter(getattr(f, what)) for f in forwards), Counter()) for what in ("bytes", "flops", "counts")]
    size, flops, counts = ({key: total / len(forwards) for key, total in counter.items()} for counter in mean)
    work = {part: Work(size.get(part, 0.0), flops.get(part, 0.0)) for part in PARTS[:-1]}
    calls = tuple((*key, counts[key], spent[key]) for key in sorted(spent, key=spent.__getitem__, reverse=True))
    return Profile(drafter.name, len(steps), rows, phases, parts, work, calls)


def by_part(spent: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Seconds by part, of seconds by (part, function)."""
    return {part: sum(seconds for key, seconds in spent.items() if key[0] == part) for part in PARTS[:-1]}


def split(whole: float, parts: Mapping[str, float]) -> dict[str, float]:
    """The seconds of a run that was left alone, by part: those of the timed calls, and Python's, which remain.

    The two runs differ by a few per cent, which may be more than Python's own share.

    Example:
        >>> split(4.0, {PRODUCTS: 2.0, HEAD: 1.0})
        {'products with weights': 2.0, 'vocabulary projection': 1.0, 'Python': 1.0}
    """
    fit = min(1.0, whole / sum(parts.values()))
    found = {part: fit * seconds for part, seconds in parts.items()}
    return found | {PYTHON: whole - sum(found.values())}


def _plain(lm, prompt, drafter, drafted, clock, options) -> list[tuple[int, dict[str, float]]]:
    """(rows, seconds by phase) of each step of the kind asked for."""
    found, before = [], clock()
    for index, step in enumerate(stream(lm, prompt, drafter, **options)):
        now = clock()
        if index and (step.tree.size > 0) == drafted:  # the first interval holds the prefill
            loop = now - before - sum(step.seconds.values())
            found.append((step.tree.size + 1, {**step.seconds, LOOP: loop}))
        before = clock()
    return found


def _timed(lm, prompt, drafter, drafted, clock, options) -> list[Calls]:
    """The calls of each forward of the kind asked for."""
    watched = _Watched(lm, clock)
    generate(watched, prompt, drafter, **options)
    return [calls for tree, calls in watched.forwards[1:] if (tree.size > 0) == drafted]


class _Watched:
    """A language model whose forwards are taken apart call by call."""

    def __init__(self, lm: CachedLM, clock: Callable[[], float]):
        self._lm, self._clock = lm, clock
        self.vocab_size, self.max_length, self.bos_id = lm.vocab_size, lm.max_length, lm.bos_id
        self.prefill, self.commit, self.rewind = lm.prefill, lm.commit, lm.rewind
        self.memory, self.with_own_cache = lm.memory, lm.with_own_cache
        self.forwards: list[tuple[DraftTree, Calls]] = []

    @property
    def length(self) -> int:
        return self._lm.length

    def forward(self, tree: DraftTree, needs_hidden: bool = False) -> LMOutput:
        calls = Calls(self._lm.vocab_size, self._lm.execution.facts.device, self._clock)
        with calls:
            out = self._lm.forward(tree, needs_hidden)
        self.forwards.append((tree, calls))
        return out


class Calls(TorchFunctionMode):
    """Times every call of torch made from Python while it is active. What such a call does inside is its own.

    Attributes:
        spent, counts: seconds and number of calls by (part, function).
        bytes, flops: by part.
    """

    def __init__(self, vocab_size: int, device: torch.device, clock: Callable[[], float]):
        super().__init__()
        self._vocab_size, self._clock = vocab_size, clock
        self._wait = torch.cuda.synchronize if device.type == "cuda" else None
        self.spent: dict[tuple[str, str], float] = {}
        self.counts: Counter = Counter()
        self.bytes, self.flops = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)
        self._overhead = min(-(clock() - clock()) for _ in range(5))  # of reading the clock

    def __torch_function__(self, function, types, args=(), kwargs=None):
        start = self._clock()
        out = function(*args, **kwargs) if kwargs else function(*args)
        if self._wait:
            self._wait()
        seconds = self._clock() - start - self._overhead
        name = function.__name__.partition(".")[0]
        part = ATTENTION if _called_by_cache() else OTHER
        if name == _ATTENTION:
            self._count_attention(part, *args[:3])
        elif part is OTHER and name in _PRODUCTS:
            part = self._count_product(args, out)
        self.spent[part, name] = self.spent.get((part, name), 0.0) + seconds
        self.counts[part, name] += 1
        return out

    def _count_product(self, args: tuple, out: torch.Tensor) -> str:
        weights = [a for a in args if isinstance(a, torch.nn.Parameter) or getattr(a, "is_mkldnn", False)]
        weight = max(weights or args[1:2], key=lambda tensor: tensor.numel())
        part = HEAD if weight.shape[0] == self._vocab_size else PRODUCTS
        self.bytes[part] += weight.numel() * weight.element_size()
        self.flops[part] += 2 * weight.numel() * (out.numel() // out.shape[-1])
        return part

    def _count_attention(self, part: str, query, keys, values) -> None:
        self.bytes[part] += sum(tensor.numel() * tensor.element_size() for tensor in (keys, values))
        each = keys.shape[-2] * (keys.shape[-1] + values.shape[-1])
        self.flops[part] += 2 * query.numel() // query.shape[-1] * each


def _called_by_cache() -> bool:
    """Whether the call being timed was made in `cache`; the frames between are torch's."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
        frame = frame.f_back
    return frame.f_globals is cache.__dict__


def _weights_work(stack: Stack, rows: float) -> dict[str, Work]:
    """The products of a `llama.Stack` for ``rows`` rows."""
    layers = [m for layer in stack.layers for m in (layer.qkv, layer.out, layer.gate, layer.up, layer.down)]
    work = {}
    for part, maps in ((PRODUCTS, layers), (HEAD, [stack.head])):
        size = sum(m.weight.numel() for m in maps)
        work[part] = Work(size * maps[0].weight.element_size(), 2 * size * rows)
    return work


def _mean_of_medians(turns: list[list[dict]]) -> dict:
    """For each key of the steps' dictionaries: the mean over steps of the median over turns."""
    steps = list(zip(*turns, strict=False))  # a GPU may round, and so decode, differently from turn to turn
    keys = dict.fromkeys(key for step in steps for turn in step for key in turn)
    return {key: float(np.mean([np.median([turn.get(key, 0.0) for turn in step]) for step in steps])) for key in keys}
