"""How much memory a model takes, from loading to generating, against what it must take: weights and cache.

Measured in a fresh process, since what an earlier load left behind would count. Run as a module, this file is
that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import perf_counter

import torch

from ..base.errors import SpecdecError


@dataclass(frozen=True)
class Memory:
    """Bytes of resident memory of one process, over what it held once a tiny model had run in it.

    The interpreter, the libraries, and the code of the kernels are then in place, as for any model.

    Attributes:
        dtype, execution: as run.
        weights: the model's parameters, each once.
        cache: keys and values, as allocated.
        baseline: what the process held before; not in the others.
        loading, packing, generating: peak until the end of each stage.
        load_seconds, pack_seconds: of the first two stages, imports not included.
    """

    dtype: str
    execution: str
    weights: int
    cache: int
    baseline: int
    loading: int
    packing: int
    generating: int
    load_seconds: float
    pack_seconds: float

    @property
    def peak(self) -> int:
        return max(self.loading, self.packing, self.generating)

    @property
    def ratio(self) -> float:
        """peak / (weights + cache)."""
        return self.peak / (self.weights + self.cache)


def measure_memory(
    prompt: str, name: str = "default", dtype: str = "auto", execution: str = "auto", tokens: int = 64
) -> Memory:
    """In a new process: load, pack and release the model's own matrices, answer ``prompt`` with prompt lookup.

    Raises:
        SpecdecError: with the last line of the process's errors, if it failed.
    """
    asked = json.dumps([prompt, name, dtype, execution, tokens])
    ran = subprocess.run([sys.executable, "-m", __name__, asked], capture_output=True, text=True)
    if ran.returncode:
        error = (ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"])[-1]
        raise SpecdecError(f"measuring the memory of {name!r} failed: {error}")
    return Memory(**json.loads(ran.stdout.splitlines()[-1]))


def _measure_here(prompt: str, name: str, dtype: str, execution: str, tokens: int) -> Memory:
    import psutil

    from ..core.engine import generate
    from ..drafters import PromptLookup
    from ..model.hardware import give_back
    from ..model.lm import CachedLM
    from ..model.loading import load
    from .machine import PeakMemory

    _warm_up(dtype, execution)
    give_back()
    peak = PeakMemory("cpu")
    baseline = psutil.Process().memory_info().rss

    def stage(job):
        peak.reset()
        start = perf_counter()
        result = job()
        return result, perf_counter() - start, peak.bytes() - baseline

    loaded, load_seconds, loading = stage(lambda: load(name, dtype, device="cpu"))
    lm, pack_seconds, packing = stage(lambda: CachedLM(loaded.model, execution=execution, release=True))
    ids = loaded.encode(prompt)
    _, _, generating = stage(lambda: generate(lm, ids, PromptLookup(), max_new_tokens=tokens))
    run_as = str(loaded.dtype).removeprefix("torch."), lm.execution.name
    held = loaded.parameters * loaded.dtype.itemsize, lm.cache_bytes()  # weights, cache
    return Memory(*run_as, *held, baseline, loading, packing, generating, load_seconds, pack_seconds)


def _warm_up(dtype: str, execution: str) -> None:
    """Pack a tiny random model and generate with it, in the type that the real one will have."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig  # noqa: F401  (imported at first use)

    from ..core.engine import generate
    from ..drafters import PromptLookup
    from ..model.hardware import choose_dtype
    from ..model.lm import CachedLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=256, tie_word_embeddings=True, **sizes)
    model = AutoModelForCausalLM.from_config(config).eval().to(choose_dtype(dtype, torch.device("cpu"))[0])
    generate(CachedLM(model, execution), [1, 2, 3, 4] * 64, PromptLookup(), max_new_tokens=16)


def table(measured: Sequence[Memory]) -> str:
    """One column per measurement.

    Example:
        >>> sizes = [size << 20 for size in (200, 10, 300, 210, 250, 273)]
        >>> print(table([Memory("bfloat16", "packed", *sizes, 1.0, 0.5)]))
        MiB                                     bfloat16, packed
        weights                                            200.0
        cache                                               10.0
        the rest: tokenizer, code, kernels                  63.0
        peak                                               273.0
          while loading                                    210.0
          while packing                                    250.0
          while generating                                 273.0
        peak / (weights + cache)                            1.30
        loading and packing, seconds                         1.5
    """
    titles = ["weights", "cache", "the rest: tokenizer, code, kernels", "peak"]
    titles += ["  while loading", "  while packing", "  while generating"]
    sizes = [
        (m.weights, m.cache, m.peak - m.weights - m.cache, m.peak, m.loading, m.packing, m.generating) for m in measured
    ]
    rows = [
        ("MiB", [f"{one.dtype}, {one.execution}" for one in measured]),
        *((title, [f"{size / 2**20:.1f}" for size in row]) for title, *row in zip(titles, *sizes, strict=True)),
        ("peak / (weights + cache)", [f"{one.ratio:.2f}" for one in measured]),
        ("loading and packing, seconds", [f"{one.load_seconds + one.pack_seconds:.1f}" for one in measured]),
    ]
    return "\n".join(f"{name:36}" + "".join(f"{cell:>20}" for cell in cells) for name, cells in rows)


if __name__ == "__main__":
    print(json.dumps(asdict(_measure_here(*json.loads(sys.argv[1])))))
