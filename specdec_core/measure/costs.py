"""What a forward costs: t(q), the seconds that one forward takes with q new tokens in it, and t(q, B) for B sequences.

Everything that speculative decoding gains rests on t(q) being nearly flat at first. `measure_costs` measures it on the
machine at hand, `theory.roofline` says what to expect, `Costs.break_even` and `theory.alpha_for` turn it into what a
draft must earn. In a batch of B sequences a forward has q B rows, so the batch uses up the flat part: t(q, B) says how
much of it is left for drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import ContextLimitError, UnsupportedModel
from ..core.contract import LanguageModel
from ..core.tree import DraftTree

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
BATCHES = (1, 2, 4, 8)
MOST_ROWS = 256  # q B of a batched forward that is timed; beyond, time only grows in proportion
Clock = Callable[[], float]


@dataclass(frozen=True)
class Costs:
    """Times of forwards by their number of rows: as measured, and `t`, the model of t(q) made of them.

    In the model a forward takes no longer than one of more rows, since it could be padded to those: a median (or a
    quartile) above that of a wider forward counts as the wider one's. Averaging the two instead (pool adjacent
    violators) would have a disturbance, which only makes a forward longer, raise the times beside it.

    Attributes:
        context: tokens in the cache of each sequence before each forward; 0 where there was no cache.
        repeats: forwards timed at each width.
        widths: rows of each sequence, its last committed token included: 1 + the drafted tokens. Increasing.
        median, low, high: seconds at each width, as measured; low and high are the quartiles.
        batch: B, sequences that share a forward.
        larger: costs of larger batches, by increasing B; their widths are the first few of these.

    Example:
        >>> costs = Costs(256, 5, (1, 4, 8), (0.010, 0.018, 0.017), (0.010, 0.016, 0.016), (0.011, 0.021, 0.019))
        >>> costs.t(4), costs.t(4, level="high"), round(costs.break_even(8), 2)
        (0.017, 0.019, 1.7)
        >>> costs.extended(16)  # wider than was measured
        0.034
        >>> costs = Costs(256, 5, (1, 8), (0.010, 0.017), (0.010, 0.016), (0.011, 0.019), larger=(
        ...     Costs(256, 5, (1, 8), (0.012, 0.054), (0.012, 0.053), (0.013, 0.055), batch=4),))
        >>> round(costs.t(8, B=4), 4), round(costs.t(1, B=2), 4), round(costs.break_even(8, B=4), 2)
        (0.054, 0.0107, 4.5)
    """

    context: int
    repeats: int
    widths: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    batch: int = 1
    larger: tuple[Costs, ...] = ()

    @property
    def by_batch(self) -> tuple[Costs, ...]:
        """One per batch size, this one first."""
        return (replace(self, larger=()), *self.larger)

    def t(self, q: float, B: float | None = None, level: str = "median") -> float:
        """Seconds of a forward with q rows of each of B sequences: monotone in q, linear between what was measured.

        Args:
            q: rows of each sequence.
            B: sequences; the smallest batch that was measured, usually 1, if not given.
            level: "median", or a quartile, "low" or "high".

        Raises:
            ValueError: for q or B outside what was measured: nothing is known there.
        """
        sizes = [costs.batch for costs in self.by_batch]
        B = sizes[0] if B is None else B
        if not sizes[0] <= B <= sizes[-1]:
            raise ValueError(f"t(q, B) was measured for B = {', '.join(map(str, sizes))}; got B = {B}")
        above = next(i for i, size in enumerate(sizes) if size >= B)
        near = self.by_batch[above : above + 1] if sizes[above] == B else self.by_batch[above - 1 : above + 1]
        widest = min(costs.widths[-1] for costs in near)
        if not self.widths[0] <= q <= widest:
            where = f" at B = {B}" if self.larger else ""
            raise ValueError(f"t(q) was measured for q = {self.widths[0]} ... {widest}{where}; got {q}")
        at_q = [float(np.interp(q, costs.widths, costs._monotone(level))) for costs in near]
        return float(np.interp(B, [costs.batch for costs in near], at_q))

    def extended(self, q: float) -> float:
        """t(q) at B = 1 for any q from the least measured on: in proportion to q beyond the widest measured."""
        widest = self.widths[-1]
        return self.t(min(q, widest)) * max(1.0, q / widest)

    def break_even(self, q: float, B: float | None = None) -> float:
        """t(q, B) / t(1, B): the tokens that q rows must yield, in each sequence, to be worth their time."""
        return self.t(q, B) / self.t(1, B)

    def _monotone(self, level: str) -> np.ndarray:
        """(len(widths),) seconds that never fall: at each width the least of it and all wider ones."""
        measured = {"median": self.median, "low": self.low, "high": self.high}[level]
        return np.minimum.accumulate(measured[::-1])[::-1]

    def to_json(self) -> dict[str, Any]:
        record = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}
        return {**record, "larger": [costs.to_json() for costs in self.larger]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Costs:
        """The inverse of `to_json`.

        Raises:
            ValueError: if a field is missing, too many, the lists differ in length, or batches do not increase.
        """
        try:
            fields = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
            fields["larger"] = tuple(cls.from_json(other) for other in fields.get("larger", ()))
            costs = cls(**fields)
            lengths = {len(costs.widths), len(costs.median), len(costs.low), len(costs.high)}
        except (TypeError, AttributeError) as error:
            raise ValueError(f"expected a record of costs, got {record!r:.200} ({error})") from error
        if len(lengths) != 1 or list(costs.widths) != sorted(set(costs.widths)):
            raise ValueError(f"widths must increase, with one time each; got {costs}")
        sizes = [part.batch for part in costs.by_batch]
        prefix = all(part.widths == costs.widths[: len(part.widths)] for part in costs.larger)
        if sizes != sorted(set(sizes)) or not prefix:
            raise ValueError(f"batches must increase, each with the first few widths of the smallest; got {costs}")
        return costs


def measure_costs(
    lm: LanguageModel,
    widths: Sequence[int] = WIDTHS,
    context: int = 256,
    repeats: int = 7,
    clock: Clock = perf_counter,
    batches: Sequence[int] = (1,),
) -> Costs:
    """Time one forward at each width, after ``context`` committed tokens; nothing is committed in between.

    All forwards take turns, so that whatever else the machine does meanwhile falls on all of them alike. Each
    runs twice before the clock does: first calls allocate memory and choose kernels.

    Args:
        lm: the model; it forgets the sequence it was reading.
        widths: rows of a forward, each at least 1; the drafts are chains of q - 1 tokens.
        context: committed tokens, at least 0.
        repeats: at least 1.
        clock: seconds; tests give one of their own.
        batches: sequences in a forward, each at least 1; 1 is always measured. Of a larger batch only the widths
            with q B <= `MOST_ROWS`, or the first of them; every sequence has a cache of its own.

    Raises:
        ContextLimitError: if the model's context does not hold ``context`` and the widest forward.
        UnsupportedModel: for a batch, if the model runs one sequence at a time.
        ValueError: for a width, a batch or a number of repeats below 1, or a negative context.
    """
    widths, batches = tuple(sorted(set(widths))), tuple(sorted({1, *batches}))
    if not widths or min(widths[0], batches[0]) < 1 or context < 0:
        got = f"got widths={widths}, batches={batches}, context={context}"
        raise ValueError(f"widths >= 1, batches >= 1 and context >= 0 are needed; {got}")
    if context + widths[-1] > lm.max_length:
        raise ContextLimitError(
            f"{context} tokens and a forward of {widths[-1]} do not fit the model's context of {lm.max_length}; "
            f"lower the context or the widths"
        )
    ids = [i % lm.vocab_size for i in range(context + widths[-1])]
    lms = [lm]
    if len(batches) > 1:
        from ..model.batch import CachedLM, forward_together  # which loads transformers

        if not isinstance(lm, CachedLM):
            raise UnsupportedModel(f"{type(lm).__name__} runs one sequence at a time; measure B = 1 alone")
        lms += [lm.with_own_cache() for _ in range(batches[-1] - 1)]
        for one in lms[:2]:
            one.prefill([])
        forward_together(lms[:2], [DraftTree.empty(ids[0])] * 2)  # refuses, if it does, before anything is measured
    for one in lms:
        one.prefill(ids[:context], reserve=widths[-1])
    trees = {q: DraftTree.chain(ids[context], ids[context + 1 : context + q]) for q in widths}

    def job(q: int, B: int) -> Callable[[], None]:
        # Reading one number makes a device that runs ahead of the program finish first.
        if B == 1:
            return lambda: lm.forward(trees[q]).logits[0, 0].item()
        return lambda: forward_together(lms[:B], [trees[q]] * B)[0].logits[0, 0].item()

    timed = {B: [q for q in widths if B == 1 or q == widths[0] or q * B <= MOST_ROWS] for B in batches}
    times = _interleaved([job(q, B) for B in batches for q in timed[B]], repeats, clock)
    left = [iter(kind) for kind in times]
    first, *larger = (
        Costs(context, repeats, tuple(chosen), *(tuple(islice(kind, len(chosen))) for kind in left), batch=B)
        for B, chosen in timed.items()
    )
    return replace(first, larger=tuple(larger))


def measure_uncached(
    model: PreTrainedModel, lengths: Sequence[int] = (32, 64, 128, 256), repeats: int = 3, clock: Clock = perf_counter
) -> Costs:
    """Time the next token without a key-value cache: one forward over the whole context, its last logits only.

    Args:
        model: a causal language model of transformers.
        lengths: tokens of the context, each at least 1.
        repeats, clock: as for `measure_costs`.

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
