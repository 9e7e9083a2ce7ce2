"""The folder of conversations: written wave by wave, read again from the text alone, packed to be shipped.

The text of the default model's conversations comes with the package; its hidden states, a thousand times larger, do
not. `states` computes them again by reading the text, and from then on a recipe finds what it would have found.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tqdm import tqdm

from ..base import files
from ..base.errors import SpecdecError
from ..model.chat import Tokenizer
from ..model.fetch import home
from ..model.lm import CachedLM
from ..model.loaded import LoadedModel
from ..stores import identify
from .corpus import HELD_OUT, turns
from .selfchat import ANSWER, LOOP, Template, begin, converse

TEXT = Path(__file__).parents[1] / "weights" / "selfchat.npz"  # the default model's conversations, tokens and roles
_TENSORS = {"tokens": np.int32, "roles": np.uint8, "temperature": np.float32}  # of a wave, beside the hidden states
_MATERIAL = 2  # later waves take their paragraphs from this one, so that they do not wait for each other


def folder_for(model_name: str) -> Path:
    """Where the conversations of a model are kept."""
    return home() / "training" / model_name


def path_of(folder: Path, wave: int) -> Path:
    return folder / f"wave-{wave:03d}.safetensors"


def write(
    loaded: LoadedModel,
    folder: Path,
    answer_tokens: int = 1_500_000,
    rows: int = 256,
    length: int = 384,
    seed: int = 0,
    part: tuple[int, int] = (0, 1),
    quiet: bool = False,
) -> None:
    """Let the model talk to itself until there are so many answer tokens; waves that are there already count.

    Args:
        loaded: the model.
        folder: for the waves.
        answer_tokens: how many, in all waves together.
        rows, length: conversations in a wave, and tokens in each.
        seed: of the text.
        part: (i, n) writes every n-th wave only, for n processes side by side; the first three come one by one.
        quiet: show no progress.

    Raises:
        SpecdecError: if the model cannot write both sides of a chat.
        UnsupportedModel: if it cannot be run; see `CachedLM`.
    """
    try:
        template = Template.of(loaded.tokenizer)
    except ValueError as error:
        raise SpecdecError(f"{error}; choose a chat model") from error
    folder.mkdir(parents=True, exist_ok=True)
    banned = [token for token in loaded.tokenizer.all_special_ids if token != template.end]
    lm, written, number = None, 0, 0
    while written < answer_tokens:
        path = path_of(folder, number)
        if path.exists():
            written += _answers(path)
        elif number > _MATERIAL and number % part[1] != part[0]:
            written += _answers(path_of(folder, number - 1))  # as many as its neighbour; another process writes it
        else:
            lm = lm or CachedLM(loaded)
            texts = paragraphs(path_of(folder, min(number - 1, _MATERIAL)), loaded.tokenizer) if number else []
            chats = begin(lm, loaded.tokenizer, rows, length, seed, number, texts)
            with tqdm(total=rows * length, desc=f"wave {number}", unit="tok", disable=quiet) as bar:
                _store(path, lm, converse(chats, banned, bar))
            written += _answers(path)
        number += 1


def states(loaded: LoadedModel, folder: Path, text: Path = TEXT, rows: int = 256, quiet: bool = False) -> None:
    """Read stored conversations again, to have the model's hidden states beside them; done waves are kept."""
    with np.load(text) as stored:
        whole = {name: torch.from_numpy(stored[name].astype(kind)) for name, kind in _TENSORS.items()}
    folder.mkdir(parents=True, exist_ok=True)
    lm = None
    for number, start in enumerate(tqdm(range(0, len(whole["tokens"]), rows), unit="wave", disable=quiet)):
        if not (path := path_of(folder, number)).exists():
            lm = lm or CachedLM(loaded)
            _store(path, lm, {name: tensor[start : start + rows] for name, tensor in whole.items()})


def pack(folder: Path, path: Path, tokenizer: Tokenizer) -> None:
    """The conversations of a folder without their states, compressed, in one file that says whose ids they are."""
    files_of = [safe_open(wave, "np") for wave in sorted(folder.glob("wave-*.safetensors"))]
    whole = {name: np.concatenate([file.get_tensor(name) for file in files_of]) for name in _TENSORS}
    if whole["tokens"].max() < 1 << 16:
        whole["tokens"] = whole["tokens"].astype(np.uint16)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **whole, tokenizer=np.array(identify(tokenizer)))
    files.write(path, buffer.getvalue())


def documents(tokenizer: Tokenizer, text: Path = TEXT) -> Iterator[np.ndarray]:
    """Text for a datastore of conversation: those that are trained on, without loops and the template's beginning.

    Yields:
        (n,) int64 ids, a conversation at a time.

    Raises:
        SpecdecError: if another tokenizer made the ids.
    """
    stored = np.load(text)
    (name, made), (asked, wanted) = stored["tokenizer"].tolist(), identify(tokenizer)
    if made != wanted:
        got = f"the conversations in {text.name} are ids of the tokenizer {name}, not of {asked}"
        raise SpecdecError(f"{got}; write some of that model's own with: specdec train selfchat")
    tokens, roles = stored["tokens"], stored["roles"]
    start = int((tokens == tokens[0]).all(0).argmin())  # after what the template puts in front of every one
    for row in range(len(tokens)):
        if row % HELD_OUT != HELD_OUT - 1:
            yield tokens[row, start:][roles[row, start:] != LOOP].astype(np.int64)


def paragraphs(path: Path, tokenizer: Tokenizer) -> list[str]:
    """Answers of a wave of 40 to 130 tokens without code: texts for prompts that need one."""
    with safe_open(path, "pt") as file:
        tokens, roles = file.get_tensor("tokens"), file.get_tensor("roles")
    answers = [tokens[row, start:end] for row, start, end in turns(tokens, roles, ANSWER) if 40 <= end - start <= 130]
    texts = [tokenizer.decode(answer.tolist(), skip_special_tokens=True).strip() for answer in answers]
    return [text for text in texts if "```" not in text]


def _answers(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return int((file.get_tensor("roles") == ANSWER).sum())


def _store(path: Path, lm: CachedLM, wave: dict[str, torch.Tensor]) -> None:
    """A wave's text with the hidden states (B, L, D) after each of its tokens."""
    states = [lm.prefill(row, needs_hidden=True).cpu() for row in wave["tokens"].tolist()]  # (L, D) each
    with files.whole(path) as unfinished:
        save_file({**wave, "hidden": torch.stack(states)}, unfinished)
