"""What a forward costs: t(q), the seconds that one forward takes with q new tokens in it.

Everything that speculative decoding gains rests on t(q) being nearly flat at first. `measure` takes it on the
machine at hand, `roofline` says what to expect, `break_even` and `alpha_for` turn it into what a draft must earn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from .errors import ContextLimitError, SpecdecError
from .interface import LanguageModel
from .tree import DraftTree

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
Clock = Callable[[], float]


@dataclass(frozen=True)
class Costs:
    """Times of forwards by their number of rows.

    Attributes:
        context: tokens in the cache before each forward; 0 where there was no cache.
        repeats: forwards timed at each width.
        widths: rows of a forward, the last committed token included: 1 + the drafted tokens. Increasing.
        median, low, high: seconds at each width; low and high are the quartiles.

    >>> costs = Costs(256, 5, (1, 8), (0.010, 0.017), (0.010, 0.016), (0.011, 0.019))
    >>> round(costs.t(4), 4), round(costs.break_even(8), 2)
    (0.013, 1.7)
    """

    context: int
    repeats: int
    widths: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def t(self, q: float) -> float:
        """Seconds of a forward with q rows, linear between the measured widths.

        Raises:
            ValueError: for q outside what was measured: nothing is known there.
        """
        if not self.widths[0] <= q <= self.widths[-1]:
            raise ValueError(f"t(q) was measured for q = {self.widths[0]} ... {self.widths[-1]}; got {q}")
        return float(np.interp(q, self.widths, self.median))

    def break_even(self, q: float) -> float:
        """t(q) / t(1): the tokens that a forward with q rows must yield to be worth its time."""
        return self.t(q) / self.t(1)

    def to_json(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Costs:
        """The inverse of `to_json`.

        Raises:
            ValueError: if a field is missing, too many, or the lists differ in length.
        """
        try:
            costs = cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()})
            lengths = {len(costs.widths), len(costs.median), len(costs.low), len(costs.high)}
        except TypeError as error:
            raise ValueError(f"this is no record of costs: {error}") from error
        if len(lengths) != 1 or list(costs.widths) != sorted(set(costs.widths)):
            raise ValueError(f"widths must increase, with one time each; got {costs}")
        return costs


def measure(
    lm: LanguageModel,
    widths: Sequence[int] = WIDTHS,
    context: int = 256,
    repeats: int = 7,
    clock: Clock = perf_counter,
) -> Costs:
    """Time one forward at each width, after ``context`` committed tokens; nothing is committed in between.

    The widths take turns, so that whatever else the machine does meanwhile falls on all of them alike. Each
    width runs twice before the clock does: first calls allocate memory and choose kernels.

    Args:
        lm: the model; it forgets the sequence it was reading.
        widths: rows of a forward, each at least 1; the drafts are chains of q - 1 tokens.
        context: committed tokens, at least 0.
        repeats: at least 1.
        clock: seconds; tests give one of their own.

    Raises:
        ContextLimitError: if the model's context does not hold ``context`` and the widest forward.
        ValueError: for a width or a number of repeats below 1, or a negative context.
    """
    widths = tuple(sorted(set(widths)))
    if not widths or widths[0] < 1 or context < 0:
        raise ValueError(f"widths >= 1 and context >= 0 are needed; got widths={widths}, context={context}")
    if context + widths[-1] > lm.max_length:
        raise ContextLimitError(
            f"{context} tokens and a forward of {widths[-1]} do not fit the model's context of {lm.max_length}; "
            f"lower the context or the widths"
        )
    ids = [i % lm.vocab_size for i in range(context + widths[-1])]
    lm.prefill(ids[:context], reserve=widths[-1])
    trees = {q: DraftTree.chain(ids[context], ids[context + 1 : context + q]) for q in widths}

    def job(q: int) -> Callable[[], None]:
        # Reading one number makes a device that runs ahead of the program finish first.
        return lambda: lm.forward(trees[q]).logits[0, 0].item()

    return Costs(context, repeats, widths, *_interleaved([job(q) for q in widths], repeats, clock))


def measure_uncached(
    model: Any, lengths: Sequence[int] = (32, 64, 128, 256), repeats: int = 3, clock: Clock = perf_counter
) -> Costs:
    """Time the next token without a key-value cache: one forward over the whole context, its last logits only.

    Args:
        model: a causal language model of transformers.
        lengths: tokens of the context, each at least 1.
        repeats, clock: as for `measure`.

    Returns:
        the `Costs` with these lengths as widths.

    Raises:
        ValueError: for a length or a number of repeats below 1.
    """
    import torch

    lengths = tuple(sorted(set(lengths)))
    if not lengths or lengths[0] < 1:
        raise ValueError(f"lengths >= 1 are needed; got {lengths}")
    ids = (torch.arange(lengths[-1], device=model.device) % model.config.vocab_size)[None]  # (1, longest)

    def job(length: int) -> Callable[[], None]:
        return lambda: model(ids[:, :length], use_cache=False, logits_to_keep=1).logits[0, 0, 0].item()

    with torch.no_grad():
        times = _interleaved([job(length) for length in lengths], repeats, clock)
    return Costs(0, repeats, lengths, *times)


def _interleaved(jobs: Sequence[Callable[[], Any]], repeats: int, clock: Clock) -> tuple[tuple[float, ...], ...]:
    """Median and quartiles of the seconds of each job, the jobs taking turns."""
    if repeats < 1:
        raise ValueError(f"at least 1 repeat is needed; got {repeats}")
    for job in jobs:
        job()
        job()
    seconds = np.empty((repeats, len(jobs)))
    for turn in range(repeats):
        for i, job in enumerate(jobs):
            start = clock()
            job()
            seconds[turn, i] = clock() - start
    return tuple(tuple(np.quantile(seconds, level, axis=0).tolist()) for level in (0.5, 0.25, 0.75))


def roofline(q: float, weight_bytes: float, parameters: float, bandwidth: float, flops: float) -> float:
    """The least seconds a forward with q rows can take: the slower of reading the weights and computing with them.

    Each weight is read once, whatever q is, and multiplied and added once per row. Attention over the cache and
    everything but matrix products are left out. (Williams, Waterman and Patterson 2009, "Roofline".)

    Args:
        q: rows.
        weight_bytes, parameters: of the matrices that a forward multiplies with.
        bandwidth: bytes a second from memory.
        flops: floating-point operations a second, a multiply-add being two.

    >>> roofline(1, 270e6, 135e6, bandwidth=20e9, flops=200e9)  # reading: 270 MB at 20 GB/s
    0.0135
    >>> roofline(40, 270e6, 135e6, bandwidth=20e9, flops=200e9)  # computing: 40 x 0.27 GFLOP at 200 GFLOP/s
    0.054
    """
    return max(weight_bytes / bandwidth, 2 * parameters * q / flops)


def ridge(bytes_per_parameter: float, bandwidth: float, flops: float) -> float:
    """The number of rows at which computing takes as long as reading: the corner of `roofline`.

    >>> ridge(2, bandwidth=20e9, flops=200e9)
    10.0
    """
    return bytes_per_parameter * flops / (2 * bandwidth)


def alpha_for(tokens: float, gamma: int) -> float:
    """The acceptance probability at which gamma drafted tokens yield so many tokens a call on average.

    Inverts 1 + alpha + ... + alpha^gamma, the expectation if every drafted token is accepted with probability
    alpha, the next one included (Leviathan et al. 2023, arXiv:2211.17192, equation 1; derived in chapter 02).

    Raises:
        ValueError: for tokens outside 1 ... gamma + 1, which no alpha gives.

    >>> round(alpha_for(3.3616, gamma=4), 6)
    0.8
    """
    if not 1 <= tokens <= gamma + 1:
        raise ValueError(f"{gamma} drafted tokens yield 1 ... {gamma + 1} tokens a call; got {tokens}")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**k for k in range(gamma + 1)) < tokens else (low, middle)
    return (low + high) / 2


def place(loaded: Any, numerics: str = "fast") -> Path:
    """Where the costs of a `models.LoadedModel` are kept: one file a device, dtype, number of threads, numerics."""
    import torch

    from .fetch import home

    device = torch.cuda.get_device_name(loaded.device) if loaded.device.type == "cuda" else str(loaded.device)
    dtype, threads = str(loaded.dtype).removeprefix("torch."), f"{torch.get_num_threads()}threads"
    name = "-".join((loaded.weights_hash[:16], dtype, device, threads, numerics))
    return home() / "costs" / f"{re.sub('[^A-Za-z0-9-]', '_', name)}.json"


def keep(costs: Costs, loaded: Any, numerics: str = "fast", **also: Costs) -> Path:
    """Keep the costs, and others under names of their own, with what they were measured on; returns the file."""
    from . import files, machine

    path = place(loaded, numerics)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "weights_sha256": loaded.weights_hash,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "why": loaded.why,
        "numerics": numerics,
        "machine": machine.describe(loaded.device),
        "date": date.today().isoformat(),
        "costs": costs.to_json(),
        **{name: other.to_json() for name, other in also.items()},
    }
    files.write(path, json.dumps(content, indent=2) + "\n")
    return path


def kept(loaded: Any, numerics: str = "fast") -> Costs:
    """The costs measured earlier for this model, dtype, device, number of threads and numerics.

    Raises:
        SpecdecError: if there are none, or the file cannot be read.
    """
    path = place(loaded, numerics)
    try:
        return Costs.from_json(json.loads(path.read_text(encoding="utf-8"))["costs"])
    except FileNotFoundError as error:
        raise SpecdecError(f"t(q) was not measured for this model here; run `specdec costs` ({path})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SpecdecError(f"{path} cannot be read ({error}); run `specdec costs` to measure again") from error
