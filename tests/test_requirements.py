"""What an installation needs: conda's list is pip's, and what only the book needs is not needed below it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from test_rooms import PACKAGE, ROOMS

tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}  # pip's name -> conda's, where they differ

BOOK = ("bs4", "jupyterlab", "jupytext", "latex2mathml", "nbconvert")  # as modules
DRAWING = ("IPython", "ipywidgets", "matplotlib")


def bounds(lines):
    """Package -> its lower bound, or "" for none."""
    return {r.name: str(r.specifier).removeprefix(">=") for r in map(Requirement, lines)}


def needed():
    """Of the package and of its extras book, grade and test."""
    found = bounds([*PROJECT["dependencies"], *EXTRAS["book"], *EXTRAS["grade"], *EXTRAS["test"]])
    del found[PROJECT["name"]]  # `test` takes other extras in
    return found


def test_conda_has_what_pip_has():
    lines = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    by_pip = next(line["pip"] for line in lines if isinstance(line, dict))
    have = bounds(line for line in [*lines, *by_pip] if isinstance(line, str) and re.match("[a-z0-9-]+(>=|$)", line))
    want = {CONDA.get(name, name): bound for name, bound in needed().items()}
    assert {**want, "pip": ""} == have


def test_the_tested_versions_are_within_the_bounds():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    for name, bound in needed().items():
        versions = [str(one.specifier).removeprefix("==") for one in pinned if one.name.lower() == name]
        assert versions and all(Version(version) >= Version(bound or "0") for version in versions), name


def run(refused, code):
    """In a process where these packages are not installed."""
    finder = f"""
import sys, importlib.util
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {refused} else find_spec(name, package)
"""
    return subprocess.run([sys.executable, "-c", finder + code], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(("refused", "room"), [(BOOK, "book"), (BOOK + DRAWING, "viz")])
def test_the_rooms_below_need_no_package_of_the_book(refused, room):
    """The commands are above and must answer as well: they import what they need when they run."""
    rooms = ("commands", *ROOMS[ROOMS.index(room) + 1 :])
    names = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for room in rooms for path in sorted((PACKAGE / room).rglob("*.py"))
    ]  # fmt: skip
    code = f"""
from importlib import import_module
for name in {names}:
    import_module(name)
from specdec_core import TableLM, compare, generate
from specdec_core.drafters import PromptLookup
print(len(generate(TableLM.random(4), [0, 1, 2], PromptLookup(), max_new_tokens=5).tokens))
print(*compare(TableLM.random(4), [[0, 1, 2]], ["prompt_lookup"], max_new_tokens=5, repeats=1).methods)
"""
    ran = run(refused, code)
    assert ran.stdout == "5\nautoregressive prompt_lookup\n", ran.stderr


@pytest.mark.parametrize("room", ["book", "viz"])
def test_a_missing_extra_is_named(room):
    ran = run(BOOK + DRAWING, f"import specdec_core.{room}")
    assert 'not installed: pip install "specdec-core[book]"' in ran.stderr
