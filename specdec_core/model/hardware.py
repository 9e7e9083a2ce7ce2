"""Which device and which dtype suit this machine, and why: the choices behind "auto"."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..base.errors import ModelError

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_AS_ASKED = "as asked"
_PARITY_TOLERANCE = 1e-3  # of the largest logit: float32 sums of a few thousand terms, in another order


def choose_device(device: str | torch.device) -> tuple[torch.device, str]:
    """The device, and why: CUDA, then Apple's GPU, then the CPU; or the one that was asked for.

    Raises:
        ModelError: torch knows no such device, or cannot use it here.

    Example:
        >>> choose_device("cpu")
        (device(type='cpu'), 'as asked')
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device()), "a CUDA device"
        if torch.backends.mps.is_available():
            return torch.device("mps"), "Apple's GPU, which gives the CPU's logits"
        return torch.device("cpu"), "no GPU that torch can use"
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ModelError(f"The device {str(device)!r} cannot be used ({first}). Try device='auto'.") from error
    return chosen, _AS_ASKED


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> tuple[torch.dtype, str]:
    """The dtype, and why: bfloat16 only where `device` computes it natively; or the one asked for.

    Raises:
        ModelError: it is not one of `DTYPES`.

    Example:
        >>> choose_dtype("float64", torch.device("cpu"))
        (torch.float64, 'as asked')
    """
    if dtype != "auto":
        chosen = dtype if isinstance(dtype, torch.dtype) else DTYPES.get(dtype)
        if chosen is None or chosen not in DTYPES.values():
            raise ModelError(f"dtype {dtype!r} is unknown; expected 'auto' or one of {', '.join(DTYPES)}.")
        return chosen, _AS_ASKED
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16, "computed natively"
        return torch.float16, "no native bfloat16"
    if device.type != "cpu":
        return torch.float32, "the dtype that was compared with the CPU"
    native = native_bfloat16()
    return (torch.bfloat16, f"computed natively: {native}") if native else (torch.float32, "no native bfloat16")


def native_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU's instructions for products in bfloat16 by name, or "" if it has none.

    oneDNN is asked first, whose kernels compute the products and packed weights: it may have been told to use less
    than the CPU has, and it may have kernels that only convert to float32 and back, which is slower, and less exact,
    than float32 itself. So the CPU must have the instructions as well.

    Example:
        >>> native_bfloat16() in ("amx_bf16", "avx512_bf16", "arm bf16", "")
        True
    """
    if not torch.backends.mkldnn.is_available():
        if platform.system() != "Darwin":
            return ""
        question = ["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]
        answer = subprocess.run(question, capture_output=True, text=True).stdout
        return "arm bf16" if answer.strip() == "1" else ""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return ""
    try:
        pairs = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
    except OSError:  # Windows
        avx512 = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
        return "avx512_bf16" if avx512 and avx512() else ""
    flags = next((set(value.split()) for name, _, value in pairs if name.strip() in ("flags", "Features")), set())
    names = {"amx_bf16": "amx_bf16", "avx512_bf16": "avx512_bf16", "bf16": "arm bf16"}
    return next((name for flag, name in names.items() if flag in flags), "")


def same_logits(model: PreTrainedModel, device: torch.device) -> bool:
    """Whether `device` gives a float32 model the logits that the CPU gives it, on a fixed prompt.

    Some releases of the MPS backend computed attention wrongly without an error; a model is run on
    it only after this. The model is left on the CPU.

    Returns:
        True if the logits, (16, V), differ by at most a thousandth of the largest, and the argmax of every row agrees.
    """
    ids = torch.arange(16).unsqueeze(0) % model.config.vocab_size  # (1, 16)
    with torch.inference_mode():
        expected = model.cpu()(ids).logits[0]
        model.to(device=device)  # type: ignore[call-arg]  # transformers wraps it without its types
        found = model(ids.to(device)).logits[0].cpu()
    model.cpu()
    close = (found - expected).abs().max() <= _PARITY_TOLERANCE * expected.abs().max()
    return bool(close) and torch.equal(found.argmax(-1), expected.argmax(-1))


def give_back() -> None:
    """Return freed memory to the system. glibc keeps it, for the thread that allocated it; others return it."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
