"""Load a causal language model, and say what was chosen for this hardware and why.

`load()` gives the default model (fetching it once, see `fetch`), `load("folder")` or `load("file.gguf")` one of your
own, `load("org/name")` one from a hub. No other file of this package asks transformers for weights.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, modeling_utils
from transformers import __version__ as transformers_version
from transformers.utils import cached_file, logging

from ..base.errors import ModelError
from . import fetch as _fetch
from . import gguf_file, manifest
from .chat import Tokenizer
from .fetch import fetch
from .hardware import choose_device, choose_dtype, give_back, same_logits
from .loaded import LoadedModel

__all__ = ["LoadedModel", "fetch", "load"]

_ONE_THREAD = "HF_DEACTIVATE_ASYNC_LOAD"  # transformers looks here


def load(
    name: str | Path = "default", dtype: str | torch.dtype = "auto", device: str | torch.device = "auto",
    attn: str = "sdpa",
) -> LoadedModel:
    """Load a model and its tokenizer.

    Args:
        name: "default", a folder in transformers' format, a GGUF file whose architecture transformers reads, or a hub
            name such as "org/model". A hub name is looked for in the local hub cache first, so that a model once
            downloaded stays the same and needs no connection.
        dtype: "auto", or float64, float32, bfloat16, float16 (a string or a torch dtype). "auto"
            is bfloat16 only where the hardware computes it natively.
        device: "auto", or a torch device such as "cpu" or "cuda:0". "auto" takes a CUDA device,
            then Apple's GPU if its logits match the CPU's, then the CPU.
        attn: transformers' `attn_implementation`.

    Raises:
        ModelError: unknown name, offline, corrupt files, an architecture that is no causal LM of
            transformers, a device that is not there. The message says what to do.

    Example:
        >>> lm = load(dtype="float32", device="cpu")
        >>> lm.model.config.vocab_size, lm.model.config.num_hidden_layers
        (49152, 30)
        >>> lm.why
        'float32 (as asked) on cpu (as asked).'
        >>> [lm.tokenizer.decode([i]) for i in lm.stop_ids]
        ['<|im_end|>']
    """
    where, why_where = choose_device(device)
    what, why_what = choose_dtype(dtype, where)
    source = _resolve(name)
    with _failures_explained(name, source):
        if where.type == "mps" and device == "auto" and not same_logits(_read(source, torch.float32, attn)[0], where):
            where, why_where = torch.device("cpu"), "Apple's GPU gives other logits"
            what, why_what = choose_dtype(dtype, where)
        # Read in its dtype, never cast to it: a cast would round the rotary frequencies as well, which stay float32.
        model, tokenizer, path = _read(source, what, attn)
        model.to(device=where)  # type: ignore[call-arg]  # transformers wraps it without its types
        model.eval().requires_grad_(False)
        model.name_or_path = str(path)
    give_back()
    return LoadedModel(
        model=model, tokenizer=tokenizer, name=str(name), path=path, dtype=what, device=where,
        why=f"{str(what).removeprefix('torch.')} ({why_what}) on {where} ({why_where}).",
        stop_ids=_stop_ids(model, tokenizer, path), parameters=sum(weight.numel() for weight in model.parameters()),
    )


def _resolve(name: str | Path) -> str | Path:
    """A folder or a file that exists, or a hub name; the default is fetched if it is not there yet."""
    if name == "default":
        folder = _fetch.place(_fetch.DEFAULT)
        if not folder.exists():
            return fetch(source=_fetch.DEFAULT)
        if found := _fetch.problems(source=_fetch.DEFAULT):
            raise ModelError(_fetch.not_whole(found))
        return folder
    if (folder := Path(name).expanduser()).is_file():
        return folder
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            files = sorted(folder.glob("*.gguf"))
            hint = f" Or give one of its GGUF files, such as {files[0]}." if files else ""
            raise ModelError(f"{folder} has no config.json; expected a model folder in transformers' format.{hint}")
        return folder
    if folder.suffix == ".gguf":
        raise ModelError(f"There is no file {folder}; expected a GGUF file, a model folder, a hub name, or 'default'.")
    if isinstance(name, Path) or str(name).startswith((".", "/", "~")) or str(name).count("/") > 1:
        raise ModelError(f"There is no folder {folder}; expected a model folder, a hub name, or 'default'.")
    return str(name)


def _read(source: str | Path, dtype: torch.dtype, attn: str) -> tuple[PreTrainedModel, Tokenizer, Path]:
    """Model and tokenizer on the CPU, and the folder that holds their files."""
    if isinstance(source, Path) and source.is_file():
        # In an empty folder, for what lies beside the file belongs to other models.
        about, options = gguf_file.check(source), {"local_files_only": True, "gguf_file": str(source.absolute())}
        with _no_bars(), tempfile.TemporaryDirectory() as nowhere:
            model, tokenizer = _from_pretrained(Path(nowhere), dtype, attn, **options)
        gguf_file.complete(model, tokenizer, about)
        return model, tokenizer, source
    if isinstance(source, Path):
        with _no_bars():
            return *_from_pretrained(source, dtype, attn, local_files_only=True), source
    try:
        model, tokenizer = _from_pretrained(source, dtype, attn, local_files_only=True)
    except OSError:  # not in the hub cache, or not all of it
        model, tokenizer = _from_pretrained(source, dtype, attn, local_files_only=False)
    return model, tokenizer, Path(str(cached_file(source, "config.json", local_files_only=True))).parent


def _from_pretrained(
    source: str | Path, dtype: torch.dtype, attn: str, **options: Any
) -> tuple[PreTrainedModel, Tokenizer]:
    tokenizer: Any = AutoTokenizer.from_pretrained(source, **options)
    give_back()  # reading a tokenizer takes more than twice what it holds
    with _read_not_mapped():
        read: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, attn_implementation=attn, output_loading_info=True, **options
        )
    model, info = read
    if missing := sorted(info["missing_keys"]):
        # transformers would fill them with random numbers, and warn
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ModelError(f"{source} lacks {len(missing)} of its weights ({some}). Download it again.")
    return model, tokenizer


def _stop_ids(model: PreTrainedModel, tokenizer: Tokenizer, path: Path) -> frozenset[int]:
    """The ids that end an answer: of the generation config, the tokenizer, and the model's own file, all of them.

    A chat model tuned from a base model often names the chat's end in one of them only. Of ``config.json`` what is
    written counts; transformers fills in an id that is any word of another vocabulary.
    """
    generation: Any = model.generation_config
    named = [tokenizer.eos_token_id, generation and generation.eos_token_id]
    if path.is_dir():
        written = json.loads((path / "config.json").read_text(encoding="utf-8"))
        named += [part.get("eos_token_id") for part in (written, written.get("text_config") or {})]
    return frozenset(token for ids in named for token in ([ids] if isinstance(ids, int) else ids or ()))


@contextmanager
def _no_bars() -> Iterator[None]:
    """A local folder is read in a second; a progress bar for it would only litter a notebook."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _read_not_mapped() -> Iterator[None]:
    """Let transformers read weights tensor by tensor, in this thread, where its version has the choice.

    A file mapped into memory stays there whole, and what other threads freed stays with them: conversion to another
    dtype, or packing, would hold the weights twice.
    """
    modeling: Any = modeling_utils
    mapping, asked = modeling.safe_open, os.environ.get(_ONE_THREAD)

    def reading(*args: Any, **options: Any) -> Any:
        return mapping(*args, **options | ({"backend": "pread"} if "backend" in options else {}))

    modeling.safe_open = reading
    os.environ[_ONE_THREAD] = "1"
    try:
        yield
    finally:
        modeling.safe_open = mapping
        os.environ.pop(_ONE_THREAD)
        if asked is not None:
            os.environ[_ONE_THREAD] = asked


@contextmanager
def _failures_explained(name: str | Path, source: str | Path) -> Iterator[None]:
    """Turn what transformers, the hub's client, or torch says into one message with a way out."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(_explain(error, str(name), source)) from error


def _explain(error: BaseException, name: str, source: str | Path) -> str:
    chain: list[BaseException] = [error]
    while (link := chain[-1].__cause__ or chain[-1].__context__) and link not in chain:
        chain.append(link)
    kinds = {kind.__name__ for link in chain for kind in type(link).__mro__}
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "OutOfMemoryError" in kinds:
        return f"{name!r} does not fit the device's memory ({first}). Try device='cpu' or a smaller model."
    if isinstance(source, Path) and source.is_file():
        return (
            f"{source} cannot be loaded by transformers {transformers_version} ({type(error).__name__}: {first}). It "
            f"reads some architectures from GGUF files only; give the model's folder in transformers' format instead."
        )
    if isinstance(source, Path):
        if any(source.glob("*.safetensors")):
            manifest.weights_hash(source)  # names the file if one is cut short
        return f"The model in {source} cannot be loaded ({type(error).__name__}: {first})."
    if "GatedRepoError" in kinds:
        return f"{name!r} is gated: accept its terms on its page, then log in with `hf auth login`."
    if "RepositoryNotFoundError" in kinds or "HFValidationError" in kinds:
        return f"The hub knows no model {name!r} (or it is private). Check the spelling, or use 'default'."
    if kinds & {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError", "NetworkError"}:
        return (
            f"{name!r} is not in the local hub cache and the hub cannot be reached ({first}). "
            "Connect this machine, give a local folder, or use 'default', which needs no hub."
        )
    return f"{name!r} cannot be loaded ({type(error).__name__}: {first})."
