"""Chapter 00 as on Colab: `python3.12 tools/colab.py [FOLDER]`, in a bare environment, the clone beside it.

An older torch and transformers are installed first, as Colab has its own. Prints what the first cell says; fails if a
package was replaced that it does not name, or if the chapter fails. Downloads some GB where torch comes with CUDA.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEFORE = ("torch==2.10.0", "transformers==4.57.3", "nbclient", "ipykernel", "ipywidgets", "matplotlib")
RUN = """
import nbclient, nbformat, sys
notebook = nbformat.read("00_start_here.ipynb", 4)
nbclient.NotebookClient(notebook, timeout=1200, kernel_name="python3").execute()
first = next(cell for cell in notebook.cells if cell.cell_type == "code")
print("".join(output.get("text", "") for output in first.outputs))
"""


def installed(python: Path) -> dict[str, str]:
    """Package -> version."""
    command = [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {package["name"].lower(): package["version"] for package in found}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve()
    python = folder / "env" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *BEFORE], check=True)
    shutil.rmtree(folder / "content", ignore_errors=True)
    (folder / "content").mkdir()
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", folder / "content" / "book"], check=True)
    shutil.copy(ROOT / "chapters" / "00_start_here.ipynb", folder / "content")
    before = installed(python)
    ran = subprocess.run([python, "-c", RUN], cwd=folder / "content", stdout=subprocess.PIPE, text=True, check=True)
    print(ran.stdout)
    changed = {name: (before[name], new) for name, new in installed(python).items() if before.get(name, new) != new}
    print(f"replaced: {changed or 'nothing'}; torch {before['torch']} is {installed(python)['torch']}")
    if silent := [name for name, (old, _) in changed.items() if f"{name} {old}" not in ran.stdout.lower()]:
        raise SystemExit(f"replaced without a line that says so: {', '.join(silent)}")


if __name__ == "__main__":
    main()
