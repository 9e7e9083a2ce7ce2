"""Costs kept on this machine: measured once, read by every race and prediction after it."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import torch

from ..base import files
from ..base.errors import SpecdecError
from ..base.records import sealed, unsealed
from ..model.fetch import home
from ..model.lm import CachedLM
from ..model.loaded import LoadedModel
from . import machine
from .costs import Costs


def place(lm: CachedLM) -> Path:
    """Where costs are kept: one file for each model, dtype, device, number of threads, execution and numerics.

    Raises:
        SpecdecError: for a model that was not loaded by `load`, whose weights have no hash.
    """
    loaded = _loaded(lm)
    device = torch.cuda.get_device_name(loaded.device) if loaded.device.type == "cuda" else str(loaded.device)
    dtype, threads = str(loaded.dtype).removeprefix("torch."), f"{torch.get_num_threads()}threads"
    name = "-".join((loaded.weights_hash[:16], dtype, device, threads, lm.execution.name, lm.numerics))
    return home() / "costs" / f"{re.sub('[^A-Za-z0-9-]', '_', name)}.json"


def keep(costs: Costs, lm: CachedLM, **also: Costs) -> Path:
    """Keep the costs, and others under names of their own, with what they were measured on; returns the file."""
    loaded, path = _loaded(lm), place(lm)
    content = {
        "weights_sha256": loaded.weights_hash,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "why": loaded.why,
        "execution": lm.execution.name,
        "numerics": lm.numerics,
        "machine": machine.describe(loaded.device),
        "date": date.today().isoformat(),
        "costs": costs.to_json(),
        **{name: other.to_json() for name, other in also.items()},
    }
    with files.explained(f"keeping the costs in {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, sealed(content))
    return path


def kept(lm: CachedLM) -> Costs:
    """The costs measured earlier for what `place` tells apart.

    Raises:
        SpecdecError: if there are none, or the file cannot be read.
    """
    path, again = place(lm), "Run `specdec costs` to measure again."
    try:
        return Costs.from_json(unsealed(path.read_bytes(), {str: object}, str(path), again, SpecdecError)["costs"])
    except FileNotFoundError as error:
        raise SpecdecError(f"t(q) was not measured for this model here; run `specdec costs` ({path})") from error
    except (OSError, ValueError, KeyError) as error:
        raise SpecdecError(f"{path} cannot be read ({error}). {again}") from error


def kept_or_none(lm: CachedLM) -> Costs | None:
    """As `kept`, but None where nothing was kept or it cannot be read."""
    try:
        return kept(lm)
    except SpecdecError:
        return None


def _loaded(lm: CachedLM) -> LoadedModel:
    if lm.loaded is None:
        raise SpecdecError("costs are kept by the hash of the weights; make the model of `load()`: CachedLM(load(...))")
    return lm.loaded
