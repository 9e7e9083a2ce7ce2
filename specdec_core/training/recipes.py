"""The recipes: what each drafter is made of and how long it is trained. ``specdec train NAME`` runs one.

The ablations are recipes too: EAGLE without the token that was sampled, EAGLE on tokens alone, and EAGLE trained on
true states only.
"""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ..base.errors import SpecdecError
from ..drafters.feature_net import FeatureDraft, Frozen
from ..drafters.medusa_net import MedusaHeads
from ..drafters.shallow_net import ShallowDraft
from ..drafters.weights import Card, read, write
from ..measure import machine
from ..model.loaded import LoadedModel
from .corpus import Corpus
from .feature_draft import FeatureObjective
from .loop import Objective, Schedule, train
from .medusa import MedusaObjective
from .shallow import ShallowObjective


@dataclass(frozen=True)
class Recipe:
    """One drafter and its training.

    Attributes:
        kind: "feature" (MTP and EAGLE), "medusa" or "shallow".
        options: of the module.
        objective: further arguments of the objective.
        vocabulary: K, the most frequent tokens of the training text; the others are never drafted (FR-Spec,
            arXiv:2502.14856).
        about: one sentence for a list.
    """

    name: str
    kind: str
    about: str
    options: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    schedule: Schedule = Schedule(updates=1000)
    vocabulary: int = 8192


_EAGLE_ABOUT = "feature autoregression with the sampled token fed back, trained on its own states too"
_EAGLE = Recipe("eagle", "feature", _EAGLE_ABOUT, {"normed": False}, {"steps": 3, "regression": 1.0})
_MTP_ABOUT = "DeepSeek-V3's multi-token prediction module, used recursively"
_MTP = Recipe("mtp", "feature", _MTP_ABOUT, {"normed": True}, {"steps": 1, "regression": 0.0})


def _ablation(name: str, about: str, **changes: dict[str, Any]) -> Recipe:
    return replace(_EAGLE, name=name, about=f"ablation: EAGLE {about}", **changes)


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _MTP,
        _EAGLE,
        Recipe("medusa", "medusa", "independent heads for the places ahead", {"heads": 4}),
        Recipe("draft_model", "shallow", "two of the target's layers with its embeddings, distilled"),
        _ablation("eagle_blind", "without the sampled token", options={"normed": False, "token": False}),
        _ablation("eagle_tokens", "from tokens alone, without states", options={"normed": False, "feature": False}),
        _ablation("eagle_true", "trained on the target's states only", objective={"steps": 1, "regression": 1.0}),
    )
}


def frozen_of(model: PreTrainedModel, corpus: Corpus, size: int) -> Frozen:
    """What a drafter shares with a target: the embedding, and the head's rows of the ``size`` most frequent tokens."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    counts = corpus.frequencies(len(head))
    ids = torch.from_numpy((-counts).argsort(kind="stable")[:size].copy()).to(head.device)
    return Frozen(embedding.detach(), head.detach()[ids].clone(), ids, model.config)


def objective_of(recipe: Recipe, model: PreTrainedModel, frozen: Frozen) -> Objective:
    """The module with its first weights, drawn from the schedule's seed, and what trains it."""
    torch.manual_seed(recipe.schedule.seed)
    device = frozen.head.device
    if recipe.kind == "feature":
        return FeatureObjective(FeatureDraft(frozen, **recipe.options).to(device), **recipe.objective)
    if recipe.kind == "medusa":
        return MedusaObjective(MedusaHeads(frozen, **recipe.options).to(device), **recipe.objective)
    return ShallowObjective(ShallowDraft(frozen, model, **recipe.options).to(device), **recipe.objective)


def cook(
    recipe: Recipe,
    loaded: LoadedModel,
    corpus: Corpus,
    folder: Path,
    out: Path,
    stop_after: int | None = None,
    start: Path | None = None,
) -> None:
    """Train by a recipe and write the weights with their card; an interrupted run in ``folder`` is continued.

    Args:
        loaded: the target, whose model still has its own matrices.
        start: weights of the same recipe to begin with; the card then tells of both trainings.
        stop_after: stop at this update; no weights are written then.

    Raises:
        SpecdecError: if the vocabulary is larger than the target's.
    """
    if recipe.vocabulary > loaded.model.config.vocab_size:
        most = loaded.model.config.vocab_size
        raise SpecdecError(
            f"expected a draft vocabulary of at most the target's {most} tokens, got {recipe.vocabulary}"
        )
    frozen = frozen_of(loaded.model, corpus, recipe.vocabulary)
    objective = objective_of(recipe, loaded.model, frozen)
    before = None
    if start:
        tensors, before = read(start, loaded.weights_hash, len(frozen.embedding))
        if not torch.equal(tensors.pop("ids"), frozen.ids.cpu()):
            raise SpecdecError(f"{start} drafts other tokens than this recipe with this text; begin without it")
        objective.module.load_state_dict({name: tensors[name] for name in objective.module.state_dict()})
    log = train(objective, corpus, recipe.schedule, folder, str(loaded.device), stop_after)
    if stop_after and stop_after < recipe.schedule.updates:
        return
    made = {**asdict(recipe), "waves": len(corpus.paths)}
    tensors = {**objective.module.state_dict(), "ids": frozen.ids.cpu()}
    if recipe.kind == "feature":
        made["scale"] = objective.module.scale
    if before:
        made["before"] = before.recipe
    if recipe.kind == "medusa":
        tensors |= objective.tables(corpus, str(loaded.device))
    write(out, tensors, _card(recipe.name, made, loaded, corpus, log, before))


def _card(name: str, made: dict, loaded: LoadedModel, corpus: Corpus, log: list[dict], before: Card | None) -> Card:
    seen, seconds, curve = (before.tokens, before.seconds, before.curve) if before else (0, 0.0, [])
    target = loaded.path.name, loaded.weights_hash, loaded.model.config.vocab_size
    return Card(
        name,
        *target,
        made,
        corpus.statistics(),
        acceptance=_rounded(log[-1]),
        curve=[*curve, *([seen + line["tokens"], *_rounded(line)] for line in log)],
        tokens=seen + log[-1]["tokens"],
        seconds=round(seconds + sum(line["seconds"] for line in log), 1),
        machine=machine.in_words(machine.describe(loaded.device)),
        date=datetime.date.today().isoformat(),
    )


def _rounded(line: dict) -> list[float]:
    return [round(share, 4) for share in line["acceptance"]]
