"""GGUF files, for engines that read no others: how a file is quantised, and its weights in floating point."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ..base.errors import ModelError
from ..base.files import whole
from ..model.gguf_file import read

FLOATS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}  # torch's name of a dtype -> GGUF's


def quantisation(path: Path) -> str:
    """How most weights of a file are stored, in llama.cpp's words: "Q4_1", "Q4_K_M", "BF16", ...

    Raises:
        ModelError: there is no such file, or it is not GGUF.
    """
    from gguf import LlamaFileType

    reader, _ = read(path)
    field = reader.fields.get("general.file_type")
    if field is not None and field.contents() in iter(LlamaFileType):
        return LlamaFileType(field.contents()).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    sizes: Counter[str] = Counter()
    for tensor in reader.tensors:
        sizes[tensor.tensor_type.name] += int(tensor.n_elements)
    return sizes.most_common(1)[0][0]


def dequantised(path: Path, kind: str) -> Path:
    """The same model with its weights in a floating-point format, beside the file; made once.

    Its weights are those that `convert` takes from the same file, rounded as torch rounds them to ``kind``. Vectors
    (norms) are rounded too, but stored in float32, which is all that llama.cpp takes.

    Args:
        path: ``model.Q4_1.gguf`` becomes ``model.Q4_1.BF16.gguf``; a file of that kind is left as it is.
        kind: a value of `FLOATS`.

    Raises:
        ModelError: it cannot be read, or there is no room.
    """
    new = path.with_suffix(f".{kind}.gguf")
    if quantisation(path) == kind:
        return path
    if new.is_file() and new.stat().st_mtime >= path.stat().st_mtime:
        return new
    try:
        with whole(new) as unfinished:
            _rewrite(path, unfinished, kind)
    except OSError as error:
        words = f"{new} cannot be written ({error}). Make room there, or set SPECDEC_HOME to another folder."
        raise ModelError(words) from error
    return new


def _rewrite(path: Path, new: Path, kind: str) -> None:
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import dequantize, quantize

    (reader, _), to = read(path), GGMLQuantizationType[kind]
    writer = GGUFWriter(new, reader.fields["general.architecture"].contents())
    file_type = LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"]
    writer.add_key_value("general.file_type", int(file_type), GGUFValueType.UINT32)
    for name, field in reader.fields.items():
        if name not in ("general.architecture", "general.file_type") and not name.startswith("GGUF."):
            writer.add_key_value(name, field.contents(), field.types[0], *field.types[1:2])
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype("float32", copy=False)
        weight = weight if kind == "F32" else quantize(weight, to)
        if kind != "F32" and len(tensor.shape) == 1:
            weight = dequantize(weight, to)
        writer.add_tensor(tensor.name, weight, raw_dtype=to if weight.dtype != "float32" else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
