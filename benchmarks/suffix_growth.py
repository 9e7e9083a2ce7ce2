"""Does a token cost the same after a million tokens, and does the memory of past requests stay bounded?

    python benchmarks/suffix_growth.py

The text is the target's own conversations, which come with the package. First one request grows to a million tokens:
microseconds a token, median of blocks of 1,000 tokens with quartiles, to add it to the memory, and to make the draft
behind it as well. Then 10,000 requests of 200 tokens pass through suffix decoding with its default settings: what it
keeps, the memory that the process holds, and seconds for 1,000 requests.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from specdec_core.core.contract import Budget
from specdec_core.core.rng import Rng
from specdec_core.drafters import SuffixDecoding
from specdec_core.measure import machine
from specdec_core.training.waves import LOOP, TEXT

SIZES = (10**3, 10**4, 10**5, 10**6)
BLOCK, BLOCKS, DRAFTS = 1_000, 9, 100  # tokens timed at once; how often around each size; with a draft each
REQUESTS, LENGTH, PROMPT = 10_000, 200, 50


def text() -> list[int]:
    """The conversations one after the other, without what is said in loops."""
    stored = np.load(TEXT)
    return stored["tokens"][stored["roles"] != LOOP].tolist()


def growth(tokens: list[int]) -> None:
    """One request that grows."""
    drafter, rng, context = SuffixDecoding(max_tokens=2 * SIZES[-1]), Rng(0), tokens[:1]
    drafter.reset(context)
    print(f"{'tokens':>10}{'add, us':>22}{'draft, us':>24}{'nodes':>12}")
    for size in SIZES:
        grow(drafter, context, tokens[len(context) : size])
        adds, drafts = [], []
        for _ in range(BLOCKS):
            start = perf_counter()
            grow(drafter, context, tokens[len(context) : len(context) + BLOCK])
            adds.append(1e6 * (perf_counter() - start) / BLOCK)
            start = perf_counter()
            for token in tokens[len(context) : len(context) + DRAFTS]:
                grow(drafter, context, [token])
                drafter.propose(context, Budget(16, 64), rng)
            drafts.append(1e6 * (perf_counter() - start) / DRAFTS)
        parts = (f"{np.median(t):.1f} ({np.quantile(t, 0.25):.1f}-{np.quantile(t, 0.75):.1f})" for t in (adds, drafts))
        print(f"{size:>10,}" + "{:>22}{:>24}".format(*parts) + f"{drafter.local.nodes:>12,}", flush=True)


def grow(drafter: SuffixDecoding, context: list[int], tokens: list[int]) -> None:
    for token in tokens:
        context.append(token)
        drafter.observe(context, None, None, None)


def requests(tokens: list[int]) -> None:
    """Requests that come and go."""
    drafter, start = SuffixDecoding(), perf_counter()
    print(f"\n{'requests':>10}{'kept':>8}{'tokens':>10}{'nodes':>10}{'process, MiB':>15}{'s for 1,000':>14}")
    for request in range(1, REQUESTS + 1):
        first = request * LENGTH % (len(tokens) - LENGTH)
        context = tokens[first : first + PROMPT]
        drafter.reset(context)
        grow(drafter, context, tokens[first + PROMPT : first + LENGTH])
        if request % 1000 == 0:
            past, seconds = drafter.past, perf_counter() - start
            print(f"{request:>10,}{len(past):>8,}{past.tokens:>10,}{past.nodes:>10,}{resident():>15.0f}{seconds:>14.2f}",
                  flush=True)  # fmt: skip
            start = perf_counter()


def resident() -> float:
    """MiB that the process holds; the most that it ever held where the system does not say."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print(machine.in_words(machine.describe("cpu")))
    tokens = text()
    growth(tokens)
    requests(tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
