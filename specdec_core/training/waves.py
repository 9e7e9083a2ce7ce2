"""The folder of conversations: written wave by wave, read again from the text alone, packed to be shipped.

The text of the default model's conversations comes with the package; its hidden states, a thousand times larger, do
not. `states` computes them again by reading the text, and from then on a recipe finds what it would have found.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tqdm import tqdm

from ..base import files
from ..base.errors import SpecdecError
from ..model.fetch import home
from ..stores import identify
from .corpus import HELD_OUT
from .selfchat import ANSWER, LOOP, Template, begin, run
from .wave import Wave

TEXT = Path(__file__).parents[1] / "weights" / "selfchat.npz"  # the default model's conversations, tokens and roles
_MATERIAL = 2  # later waves take their paragraphs from this one, so that they do not wait for each other


def folder_for(model_name: str) -> Path:
    """Where the conversations of a model are kept."""
    return home() / "training" / model_name


def path_of(folder: Path, wave: int) -> Path:
    return folder / f"wave-{wave:03d}.safetensors"


def write(loaded: Any, folder: Path, answer_tokens: int = 1_500_000, rows: int = 256, length: int = 384, seed: int = 0,
          part: tuple[int, int] = (0, 1), quiet: bool = False) -> None:  # fmt: skip
    """Let the model talk to itself until there are so many answer tokens; waves that are there already count.

    Args:
        loaded: a `models.LoadedModel`.
        rows, length: conversations in a wave, and tokens in each.
        part: (i, n) writes every n-th wave only, for n processes side by side; the first three come one by one.

    Raises:
        SpecdecError: if the model cannot write both sides of a chat; and as `Wave`.
    """
    try:
        template = Template.of(loaded.tokenizer)
    except ValueError as error:
        raise SpecdecError(f"{error}; choose a chat model") from error
    folder.mkdir(parents=True, exist_ok=True)
    banned = [token for token in loaded.tokenizer.all_special_ids if token != template.end]
    runner, written, number = None, 0, 0
    while written < answer_tokens:
        path = path_of(folder, number)
        if path.exists():
            written += _answers(path)
        elif number > _MATERIAL and number % part[1] != part[0]:
            written += _answers(path_of(folder, number - 1))  # as many as its neighbour; another process writes it
        else:
            runner = runner or Wave(loaded.model, rows, length)
            material = path_of(folder, min(number - 1, _MATERIAL))
            texts = paragraphs(material, loaded.tokenizer) if number else []
            chats = begin(template, loaded.tokenizer, rows, seed, number, texts)
            generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
            with tqdm(total=rows * length, desc=f"wave {number}", unit="tok", disable=quiet) as bar:
                _store(path, run(runner, chats, generator, banned, bar))
            written += _answers(path)
        number += 1


def states(loaded: Any, folder: Path, text: Path = TEXT, rows: int = 256, quiet: bool = False) -> None:
    """Read stored conversations again, to have the model's hidden states beside them; done waves are kept."""
    stored = np.load(text)
    folder.mkdir(parents=True, exist_ok=True)
    tokens = torch.from_numpy(stored["tokens"].astype(np.int64))
    runner = None
    for number, start in enumerate(range(0, len(tokens), rows)):
        path, part = path_of(folder, number), tokens[start : start + rows]
        if path.exists():
            continue
        if runner is None or runner.rows != len(part):
            runner = Wave(loaded.model, len(part), tokens.shape[1])
        hidden = torch.empty(*part.shape, runner.dim, dtype=runner.dtype)
        with tqdm(total=part.numel(), desc=f"wave {number}", unit="tok", disable=quiet) as bar:
            for position in range(part.shape[1]):
                hidden[:, position] = runner.step(part[:, position].to(runner.device), position, logits=False)[1].cpu()
                bar.update(len(part))
        _store(path, {"tokens": part.int(), "hidden": hidden,
                      "roles": torch.from_numpy(stored["roles"][start : start + rows]),
                      "temperature": torch.from_numpy(stored["temperature"][start : start + rows])})  # fmt: skip


def pack(folder: Path, path: Path, tokenizer: Any) -> None:
    """The conversations of a folder without their states, compressed, in one file that says whose ids they are."""
    names = ("tokens", "roles", "temperature")
    parts: dict[str, list] = {name: [] for name in names}
    for wave in sorted(folder.glob("wave-*.safetensors")):
        with safe_open(wave, "np") as file:
            for name in names:
                parts[name].append(file.get_tensor(name))
    whole = {name: np.concatenate(found) for name, found in parts.items()}
    if whole["tokens"].max() < 1 << 16:
        whole["tokens"] = whole["tokens"].astype(np.uint16)
    whole |= {"tokenizer": np.array(identify(tokenizer))}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **whole)
    files.write(path, buffer.getvalue())


def documents(tokenizer: Any, text: Path = TEXT) -> Iterator[np.ndarray]:
    """Text for a datastore of conversation: those that are trained on, without loops and the template's beginning.

    Yields:
        (n,) int64 ids, a conversation at a time.

    Raises:
        SpecdecError: if another tokenizer made the ids.
    """
    stored = np.load(text)
    (name, made), (asked, wanted) = stored["tokenizer"].tolist(), identify(tokenizer)
    if made != wanted:
        raise SpecdecError(f"the conversations in {text.name} are ids of the tokenizer {name}, not of {asked}; "
                           f"write some of that model's own with: specdec train selfchat")  # fmt: skip
    tokens, roles = stored["tokens"], stored["roles"]
    start = int((tokens == tokens[0]).all(0).argmin())  # after what the template puts in front of every one
    for row in range(len(tokens)):
        if row % HELD_OUT != HELD_OUT - 1:
            yield tokens[row, start:][roles[row, start:] != LOOP].astype(np.int64)


def paragraphs(path: Path, tokenizer: Any) -> list[str]:
    """Answers of a wave of 40 to 130 tokens without code: texts for prompts that need one."""
    with safe_open(path, "pt") as file:
        tokens, roles = file.get_tensor("tokens").tolist(), file.get_tensor("roles").tolist()
    found = []
    for line, kinds in zip(tokens, roles, strict=True):
        answer: list[int] = []
        for token, kind in zip([*line, 0], [*kinds, -1], strict=True):
            if kind == ANSWER:
                answer.append(token)
                continue
            if 40 <= len(answer) <= 130:
                text = tokenizer.decode(answer, skip_special_tokens=True).strip()
                if "```" not in text:
                    found.append(text)
            answer = []
    return found


def _answers(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return int((file.get_tensor("roles") == ANSWER).sum())


def _store(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    with files.whole(path) as unfinished:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, unfinished)
