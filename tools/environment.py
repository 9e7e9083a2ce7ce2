"""Build `.venv`, or see at once that it is whole. Run by `make env`; needs the standard library only.

With `--lowest` as first argument it builds `.venv-lowest`, with the oldest release that pyproject.toml admits of every
package that has a lower bound there. `.ready` in the environment is written last. It says what the environment was
built from, so an interrupted build, a changed pyproject.toml or constraints.txt, another Python, or a moved folder
never passes for ready:

- no stamp, another Python or another place: the environment is built anew;
- other requirements: what changed is installed over it.

pip keeps finished downloads in its own cache, so a second try does not fetch them again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST = sys.argv[1:2] == ["--lowest"]
VENV = ROOT / (".venv-lowest" if LOWEST else ".venv")
STAMP = VENV / ".ready"
INPUTS = ("pyproject.toml", "constraints.txt")


def wanted() -> dict[str, str]:
    """What a whole environment is built from."""
    digest = hashlib.sha256(b"\0".join((ROOT / name).read_bytes() for name in INPUTS))
    version = "{}.{}".format(*sys.version_info)
    return {"python": version, "place": str(VENV), "requirements": digest.hexdigest()}


def found() -> dict[str, str]:
    """What the existing environment was built from; nothing if its build never ended."""
    try:
        return json.loads(STAMP.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}


def lower_bounds() -> str:
    """The lines `"name>=version"` of pyproject.toml as constraints `name==version`, but for what builds the package."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project]")[2]
    return "".join(f"{name}=={bound}\n" for name, bound in sorted(set(re.findall(r'"([\w-]+)>=([\d.]+)"', text))))


def build(pip_arguments: list[str]) -> None:
    """Make the environment whole, and say so in the stamp."""
    want, have = wanted(), found()
    STAMP.unlink(missing_ok=True)
    if any(have.get(key) != want[key] for key in ("python", "place")):
        if VENV.exists():
            if any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists() and not (VENV / "bin").exists():
                raise SystemExit(f"{VENV} exists and is not a Python environment; move it away.")
            print(f"Removing {VENV}: its set-up did not end, or was for another Python or place.", flush=True)
            shutil.rmtree(VENV)
        print(f"Creating {VENV} with Python {want['python']}", flush=True)
        run([sys.executable, "-m", "venv", str(VENV)], "On Debian and Ubuntu, install python3-venv first.")
    print("Installing the package and what it needs", flush=True)
    python = str(VENV / "bin" / "python")
    constraints = "constraints.txt"
    if LOWEST:
        constraints = str(VENV / "lowest.txt")
        Path(constraints).write_text(lower_bounds(), encoding="utf-8")
    install = [python, "-m", "pip", "install", "--disable-pip-version-check", "-c", constraints]
    run([*install, *pip_arguments, "-e", ".[test]"], "See pip's message above, then run make again.")
    run([python, "-c", "import torch, transformers, specdec_core"], "Run `make clean`, then make again.")
    partial = STAMP.with_suffix(".partial")
    partial.write_text(json.dumps(want), encoding="utf-8")
    partial.replace(STAMP)


def run(command: list[str], advice: str) -> None:
    status = subprocess.run(command, cwd=ROOT).returncode
    if status:
        raise SystemExit(f"This failed with status {status}: {shlex.join(command)}\n{advice}")


def main() -> None:
    if found() == wanted():
        return
    with open(f"{VENV}.lock", "w") as lock:  # a second make waits here, then finds it ready
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found() != wanted():
            build(sys.argv[1 + LOWEST :])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("Interrupted. Run make again; it starts where that is safe.") from None
