"""Trained weights as files: what they are, which target they belong to, and whether they are whole.

A drafter's weights mean nothing beside another target, so a file says whose they are and is refused elsewhere. They
come with the package for the default model; ``specdec train`` writes others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ..base import files
from ..base.errors import ModelError
from ..base.records import sealed, unsealed

SHIPPED = Path(__file__).parents[1] / "weights"
_KEY = "specdec"
_AGAIN = "get the file anew, or train it again."
_NUMBER = (int, float)
_CARD = {
    "name": str, "target": str, "target_hash": str, "vocab_size": int, "recipe": dict, "data": dict,
    "acceptance": [_NUMBER], "curve": [[_NUMBER]], "tokens": int, "seconds": _NUMBER, "machine": str, "date": str,
}
# Before cards were sealed, the hash was that of the tensors.
_SHAPE, _BEFORE = {"card": _CARD, "tensors": str}, {"card": _CARD, "sha256": str}


@dataclass(frozen=True)
class Card:
    """What a weight file says about itself; its `str` is a text for people.

    Attributes:
        name, target: of the drafter and the target model, for people.
        target_hash: of the target's weights; see `manifest.weights_hash`.
        vocab_size: V of the target.
        recipe: everything that a rerun needs: kind, options, schedule, seed, draft vocabulary, waves.
        data: statistics of the training text.
        acceptance: held-out share accepted at depths 1, 2, ...
        curve: the same on the way there: lists of tokens seen, then the shares.
        tokens: tokens seen in training.
        seconds, machine, date: how long training took, on what, and when it was finished.
    """

    name: str
    target: str
    target_hash: str
    vocab_size: int
    recipe: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    acceptance: list[float] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    machine: str = ""
    date: str = ""

    def __str__(self) -> str:
        recipe, schedule, data = self.recipe, self.recipe["schedule"], self.data
        optimizer = schedule.get("optimizer", "adamw")  # the first cards had no other
        accepted = ", ".join(f"{share:.3f}" for share in self.acceptance)
        curve = ", ".join(f"{line[1]:.3f} ({line[0] / 1e6:.2f} M)" for line in self.curve)
        return (
            f"{self.name} for {self.target} (weights {self.target_hash[:12]}, vocabulary {self.vocab_size})\n"
            f"  {recipe['about']}\n"
            f"  draft vocabulary {recipe['vocabulary']}; options {recipe['options']}\n"
            f"  {schedule['updates']} updates of {schedule['rows']} conversations with {optimizer}, "
            f"{self.tokens} tokens, seed {schedule['seed']}, {self.seconds:.0f} s on {self.machine}, {self.date}\n"
            f"  text: {data['answer_tokens']} answer tokens in {data['conversations']} conversations of the target\n"
            f"  held-out acceptance at depth 1, 2, ...: {accepted}\n"
            f"  at depth 1 after tokens seen: {curve}\n"
        )


def write(path: Path, tensors: dict[str, torch.Tensor], card: Card) -> None:
    """Store weights in half precision, whole or not at all, with a hash over them and the card in the header.

    Raises:
        SpecdecError: the operating system refuses.
    """
    halves = {torch.float32: torch.bfloat16}
    tensors = {name: t.to(halves.get(t.dtype, t.dtype)).contiguous().cpu() for name, t in tensors.items()}
    content = save(tensors, {_KEY: sealed({"card": card.__dict__, "tensors": _hash(tensors)})})
    with files.explained(f"writing {path}", instead="choose another --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, content)


def read(path: Path, target_hash: str, vocab_size: int) -> tuple[dict[str, torch.Tensor], Card]:
    """Weights and their card.

    Args:
        path: the file, or the name of one that comes with the package ("mtp", "eagle", ...).
        target_hash: of the target's weights that the drafter is to be used with.
        vocab_size: V of that target.

    Raises:
        ModelError: no such file; cut short or altered; trained for another target or another vocabulary.
    """
    tensors, card = _parts(path)
    if card.vocab_size != vocab_size:
        raise ModelError(
            f"{path} ({card.name}) drafts for a vocabulary of {card.vocab_size} tokens ({card.target}); "
            f"this target has {vocab_size}"
        )
    if card.target_hash != target_hash:
        raise ModelError(
            f"{path} ({card.name}) was trained for {card.target} (weights {card.target_hash[:12]}...), not for this "
            f"target (weights {target_hash[:12]}...); train one with: specdec train {card.name} --model ..."
        )
    return tensors, card


def load(
    name: str, vocab_size: int, weights_hash: Callable[[], str] | None, what: str, recipe: str,
    needs: Iterable[str] = (),
) -> tuple[torch.Tensor, dict[str, torch.Tensor], Card]:
    """What a drafter is put together from, beside the target that it was trained for.

    Args:
        name: of weights that come with the package ("mtp", "eagle", ...), or a path.
        vocab_size: V of the target.
        weights_hash: gives the hash of the target's weights; None where it is not known.
        what, recipe: what they should be, and how it is trained, for messages.
        needs: names of tensors that such weights have beside "ids".

    Returns:
        ids (K,) int64, the tokens that it drafts; its other tensors; its card.

    Raises:
        ModelError: as `read`; if it is not known which weights the target has; or if these are no such weights.
    """
    path = shipped(name)
    if weights_hash is None:
        raise ModelError(
            f"{path.stem} belongs to one target, and it is not known which weights this one has; make the target of "
            f"a loaded model, CachedLM(load(...)), or give methods.Context a weights_hash"
        )
    tensors, card = read(path, weights_hash(), vocab_size)
    if missing := {"ids", *needs} - tensors.keys():
        raise ModelError(
            f"{path} ({card.name}) holds no {what}: it lacks {', '.join(sorted(missing))}; "
            f"train some with: specdec train {recipe}"
        )
    return tensors.pop("ids"), tensors, card


def read_card(path: Path) -> Card:
    """The card alone, of whatever target.

    Raises:
        ModelError: as `read`, for a file that is missing, cut short or altered.
    """
    return _parts(path)[1]


def ablations() -> list[Card]:
    """The cards of trainings that were made only to be compared; their weights are not kept.

    >>> [card.name for card in ablations()]
    ['eagle', 'eagle_true', 'eagle_blind', 'eagle_tokens']
    """
    path = SHIPPED / "ablations.json"
    record = unsealed(path.read_bytes(), {"cards": [_CARD]}, str(path), _AGAIN, ModelError)
    return [Card(**card) for card in record["cards"]]


def shipped(name: str) -> Path:
    """Where the weights of a drafter lie that come with the package; or ``name`` itself, if it is a path."""
    path = Path(name)
    return path if path.suffix == ".safetensors" else SHIPPED / f"{name}.safetensors"


def _parts(path: Path) -> tuple[dict[str, torch.Tensor], Card]:
    if not path.is_file():
        raise ModelError(f"there are no weights {path}; train some with: specdec train {path.stem}")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is cut short, or not a weight file ({error}); {_AGAIN}") from error
    if _KEY not in metadata:
        raise ModelError(f"{path} is not a weight file of this package: its header has no card; {_AGAIN}")
    header = unsealed(metadata[_KEY], _SHAPE, f"the card of {path}", _AGAIN, ModelError, _BEFORE)
    if (found := _hash(tensors)) != (stated := header.get("tensors", header["sha256"])):
        raise ModelError(f"{path} was altered: its weights have the hash {found}, not {stated}; {_AGAIN}")
    return tensors, Card(**header["card"])


def _hash(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()
