"""A GGUF file: what it says of itself, read with errors in words, and what transformers leaves out of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The file's names of special tokens by transformers'. The last two end a turn and a message, and so an answer.
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_SPECIAL |= {"eot_token": "eot", "eom_token": "eom"}


def read(path: Path) -> tuple[Any, dict[str, Any]]:
    """`gguf.GGUFReader` of a file, and its fields by name as Python values.

    Raises:
        ModelError: it is not there, is no GGUF file, or is cut short or damaged.
    """
    from gguf import GGUFReader

    try:
        with open(path, "rb") as file:
            start = file.read(4)
        if start != b"GGUF":
            raise ModelError(f"{path} cannot be read as a GGUF file: it begins with {start!r}, not with b'GGUF'.")
        reader = GGUFReader(path)
        return reader, {name: field.contents() for name, field in reader.fields.items()}
    except OSError as error:
        raise ModelError(f"{path} cannot be read as a GGUF file ({error}).") from error
    except ModelError:
        raise
    except Exception as error:  # whatever the reader stumbles over in a file that is not whole
        size = path.stat().st_size
        raise ModelError(
            f"{path} cannot be read as a GGUF file: it is cut short or damaged (after {size:,} bytes; "
            f"{type(error).__name__}: {error}). Fetch it again."
        ) from error


def check(path: Path) -> dict[str, Any]:
    """What `complete` needs of a file that transformers can be tried on.

    Raises:
        ModelError: as `read` does; or the file is one part of several, or holds no model, or no tokenizer.
    """
    reader, fields = read(path)
    if (parts := fields.get("split.count") or 1) > 1:
        raise ModelError(f"{path} is one of {parts} parts; join them with llama.cpp's `llama-gguf-split --merge`.")
    family = fields.get("general.architecture")
    if not family or not reader.tensors:
        raise ModelError(f"{path} holds {len(reader.tensors)} tensors of architecture {family!r}; expected a model.")
    if not (tokens := fields.get("tokenizer.ggml.tokens")):
        raise ModelError(f"{path} holds no tokenizer (tokenizer.ggml.tokens); expected a model that writes text.")
    if longer := [tensor.name for tensor in reader.tensors if tensor.name.startswith("rope_factors")]:
        raise ModelError(
            f"{path} turns positions by tables of its own ({', '.join(longer)}), which transformers does not read; "
            f"give the model's folder in transformers' format instead."
        )
    turns = [tensor.data.copy() for tensor in reader.tensors if tensor.name == "rope_freqs.weight"]
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    if beyond := {name: token for name, token in ids.items() if token is not None and token >= len(tokens)}:
        raise ModelError(f"{path} names {beyond} of {len(tokens)} tokens; it is damaged. Fetch it again.")
    special = {name: None if token is None else tokens[token] for name, token in ids.items()}
    about = {"path": path, "pre": fields.get("tokenizer.ggml.pre"), "rope_freqs": turns, "ids": ids, "special": special}
    if fields.get("tokenizer.ggml.model") == "gpt2":  # as llama.cpp reads a file that does not say it
        about["add_bos"] = bool(fields.get("tokenizer.ggml.add_bos_token", about["pre"] == "llama-bpe"))
    return about


def complete(model: PreTrainedModel, tokenizer: Any, about: dict[str, Any]) -> None:
    """Give a model that transformers read from a file what it leaves out.

    Llama 3.1 and later write the divisors of their rotary frequencies as a tensor, chat models the end of a turn
    beside that of a text, and SmolLM's tokenizer lets each digit stand alone. Special tokens are set again, because
    some versions of transformers take others than the file's.

    Raises:
        ModelError: the model has no frequencies to divide.
    """
    import torch

    for factors in about["rope_freqs"]:
        divisors = torch.from_numpy(factors).flatten()
        tables = [table for name, table in model.named_buffers() if name.endswith("inv_freq")]
        if not tables or any(len(table) != len(divisors) for table in tables):
            raise ModelError(f"{about['path']} divides {len(divisors)} rotary frequencies; its model has others.")
        for table in tables:
            table.div_(divisors)
    if about["pre"] == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = smollm_splits()
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        setattr(tokenizer, name, about["special"][name])
    if "add_bos" in about:
        tokenizer.add_bos_token = about["add_bos"]
    generation: Any = model.generation_config
    named = [generation.eos_token_id, *(about["ids"][f"{end}_token"] for end in ("eos", "eot", "eom"))]
    ends = {token for ids in named for token in (ids if isinstance(ids, list) else [ids])} - {None}
    generation.eos_token_id = sorted(ends) or None
    model.name_or_path = tokenizer.name_or_path = str(about["path"])


def smollm_splits() -> Any:
    """Byte-level pieces in which each digit stands alone (GGUF: ``pre = smollm``).

    Example:
        >>> [piece for piece, _ in smollm_splits().pre_tokenize_str("12 ab")]
        ['1', '2', 'Ġab']
    """
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
