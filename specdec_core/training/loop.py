"""The training loop, one for every drafter: seeded, resumable, with its held-out acceptance in the log.

A run's folder holds ``log.jsonl``, a line every few updates, and ``checkpoint.pt``, from which an interrupted run goes
on to the same result: nothing that is random depends on anything but the seed and the number of the update.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import nn
from tqdm import tqdm

from ..base.errors import SpecdecError
from ..base.files import whole
from .corpus import Batch, Corpus

EVALUATED = 96  # held-out conversations of one evaluation, at most
DEPTH = 4


class Objective(Protocol):
    """What a drafter contributes: its module, its loss, and its hits on held-out text."""

    module: nn.Module

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Named parts of the loss; their sum is minimized."""

    def hits(self, batch: Batch, depth: int) -> torch.Tensor:
        """(2, depth): drafts tested and accepted, by depth."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast.

    Attributes:
        updates: of the weights.
        rows: conversations in each.
        rate: the highest learning rate, reached after ``warm`` updates and lowered to a twentieth along a cosine.
        every: updates between evaluations.
        optimizer: "muon", for matrices, with AdamW for the vectors beside them; or "adamw" for all.
    """

    updates: int
    rows: int = 4
    rate: float = 2e-3
    warm: int = 50
    every: int = 200
    seed: int = 0
    optimizer: str = "muon"

    def factor(self, update: int) -> float:
        """The learning rate at an update as a share of the highest.

        Example:
            >>> schedule = Schedule(updates=100, warm=10)
            >>> [round(schedule.factor(update), 3) for update in (0, 9, 10, 55, 100)]
            [0.1, 1.0, 1.0, 0.525, 0.05]
        """
        if update < self.warm:
            return (update + 1) / self.warm
        done = (update - self.warm) / max(1, self.updates - self.warm)
        return 0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, done))) / 2


def train(
    objective: Objective,
    corpus: Corpus,
    schedule: Schedule,
    folder: Path,
    device: str = "cpu",
    stop_after: int | None = None,
    quiet: bool = False,
) -> list[dict]:
    """Train until the schedule's end; a run that was interrupted in this folder is continued.

    Args:
        stop_after: stop at this update instead, with a checkpoint to go on from.

    Returns:
        the lines of the log.

    Raises:
        SpecdecError: if the folder holds a run with another schedule.
    """
    folder.mkdir(parents=True, exist_ok=True)
    module, at, log, saved = objective.module, 0, [], folder / "checkpoint.pt"
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    optimizers = _optimizers(weights, schedule)
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        if state["schedule"] != asdict(schedule):
            held = f"{folder} holds a run with the schedule {state['schedule']}, not {asdict(schedule)}"
            raise SpecdecError(f"{held}; give that one, or another folder")
        module.load_state_dict(state["module"])
        for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        at, log = state["update"], state["log"]
    batches = itertools.islice(corpus.order(schedule.rows, schedule.seed), at, None)
    last = min(stop_after or schedule.updates, schedule.updates)
    started, sums, since = time.perf_counter(), {}, 0
    bar = tqdm(initial=at, total=schedule.updates, desc=folder.name, disable=quiet)
    while at < last:
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = schedule.rate * schedule.factor(at)
        batch = corpus.batch(next(batches), device)
        module.zero_grad(set_to_none=True)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            parts = objective.losses(batch)
        sum(parts.values()).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        at, since = at + 1, since + 1
        bar.update()
        for name, part in parts.items():
            sums[name] = sums.get(name, 0.0) + part.item()
        if at % schedule.every == 0 or at == last:
            line = {
                "update": at,
                "tokens": at * schedule.rows * corpus.tokens.shape[1],
                "seconds": time.perf_counter() - started,
                **{name: value / since for name, value in sums.items()},
                "acceptance": evaluate(objective, corpus, device),
            }
            log.append(line)
            sums, since, started = {}, 0, time.perf_counter()
            state = {"schedule": asdict(schedule), "module": module.state_dict(), "update": at, "log": log}
            with whole(saved) as unfinished:
                torch.save({**state, "optimizers": [each.state_dict() for each in optimizers]}, unfinished)
            (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
            bar.set_postfix_str(" ".join(f"{share:.3f}" for share in line["acceptance"]))
    bar.close()
    return log


def _optimizers(weights: list[nn.Parameter], schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al., 2024; arXiv:2502.16982 for the scale of its steps) orthogonalizes the step of a matrix. On
    both recipes tried it reached AdamW's acceptance with about half the tokens, at a third more time an update."""
    if schedule.optimizer not in ("muon", "adamw"):
        raise SpecdecError(f"no optimizer {schedule.optimizer!r}; choose muon or adamw")
    muon = schedule.optimizer == "muon"
    if muon and not hasattr(torch.optim, "Muon"):
        raise SpecdecError(f"torch {torch.__version__} has no Muon; take torch 2.9 or newer, or --optimizer adamw")
    matrices = [weight for weight in weights if weight.ndim == 2] if muon else []
    others = [weight for weight in weights if weight.ndim != 2] if muon else weights
    common, found = {"lr": schedule.rate, "weight_decay": 0.01}, []
    if matrices:
        found.append(torch.optim.Muon(matrices, momentum=0.95, adjust_lr_fn="match_rms_adamw", **common))
    if others:
        found.append(torch.optim.AdamW(others, betas=(0.9, 0.95), fused=True, **common))
    return found


@torch.no_grad()
def evaluate(
    objective: Objective, corpus: Corpus, device: str = "cpu", depth: int = DEPTH, limit: int = EVALUATED
) -> list[float]:
    """Share of drafts accepted at each depth among those tested, on held-out greedy answers.

    A draft is tested if all before it in its chain were accepted. What is tested at depth 1 is every answer token
    but the first: the first has the target's own place in the step that reads the prompt.
    """
    counts = torch.zeros(2, depth)
    rows = corpus.measured[:limit]
    objective.module.eval()
    for start in range(0, len(rows), 4):
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            counts += objective.hits(corpus.batch(rows[start : start + 4], device), depth).cpu()
    objective.module.train()
    return (counts[1] / counts[0].clamp(min=1)).tolist()
