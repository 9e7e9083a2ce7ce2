"""The first cell of every chapter where the package is not installed: the clone lies beside the notebook, or below."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from specdec_core.book.contents import chapters, read

ROOT = Path(__file__).parents[1]
SOURCES = chapters(ROOT)


SAID = """Collecting transformers>=5.3
  Attempting uninstall: transformers
    Found existing installation: transformers 4.57.3
    Uninstalling transformers-4.57.3:
Successfully installed transformers-5.24.0
"""


def set_up(source):
    return next(cell.source for cell in read(source).cells if cell.cell_type == "code")


def installed(monkeypatch, notebook_folder):
    """What the cell hands to pip, run from the notebook's folder."""
    commands = []
    monkeypatch.chdir(notebook_folder)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    def pip(command, **options):
        assert options["check"] and "-q" not in command
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=SAID)

    monkeypatch.setattr(subprocess, "run", pip)
    exec(set_up(SOURCES[0]), {})
    return commands[0][-1]


@pytest.mark.parametrize("clone", ["book", "torch", "my course/specdec"])
@pytest.mark.parametrize("inside", [True, False])
def test_pip_is_given_a_folder_never_a_name_of_the_index(clone, inside, tmp_path, monkeypatch):
    root = tmp_path / clone
    (root / "specdec_core").mkdir(parents=True)
    (root / "specdec_core" / "__init__.py").touch()
    (root / "chapters").mkdir()
    assert installed(monkeypatch, root / "chapters" if inside else root.parent) == f"{root.resolve()}[race]"


def test_what_pip_replaces_is_shown(tmp_path, monkeypatch, capsys):
    (tmp_path / "book" / "specdec_core").mkdir(parents=True)
    (tmp_path / "book" / "specdec_core" / "__init__.py").touch()
    installed(monkeypatch, tmp_path)
    shown = "Found existing installation: transformers 4.57.3\nSuccessfully installed transformers-5.24.0\n"
    assert capsys.readouterr().out == shown


def test_without_a_clone_it_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="Clone the repository"):
        installed(monkeypatch, tmp_path)


def test_every_chapter_has_the_same_cell():
    assert len({set_up(source) for source in SOURCES}) == 1
