"""The order of the rooms: an import goes down the list or stays in its room, lazy ones included, in no circle."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "specdec_core"
# From the top of the house to its foundation; the README draws the same list.
ROOMS = (
    "commands", "classroom", "book", "viz", "race", "training", "measure", "drafters", "stores", "model", "core",
    "theory", "base",
)  # fmt: skip
MODULES = {path: path.relative_to(PACKAGE.parent).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
NAMES = {".".join(parts).removesuffix(".__init__") for parts in MODULES.values()}


def imported(path: Path) -> set[str]:
    """The modules of ours that a file imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = [*MODULES[path][: -node.level], *filter(None, [node.module])] if node.level else [node.module]
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                found.add(whole if whole in NAMES else ".".join(base))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.split(".")[0] == PACKAGE.name}


ARROWS = {".".join(parts).removesuffix(".__init__"): imported(path) for path, parts in MODULES.items()}


def test_imports_point_down():
    floor = {room: number for number, room in enumerate(ROOMS)}
    wrong = [
        f"{module} imports {other}"
        for module, others in ARROWS.items()
        for other in others
        if module.count(".") and other.count(".") and floor[module.split(".")[1]] > floor[other.split(".")[1]]
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_no_circles():
    assert list(graphlib.TopologicalSorter(ARROWS).static_order())


def test_every_module_has_a_room():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py"}
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)


def test_the_readme_draws_this_order():
    drawn = re.findall(r"^\| `(\w+)/` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(drawn) == ROOMS


def test_the_loop_loads_little():
    code = "import sys, specdec_core.core.engine; print(sum(m.split('.')[0] == 'specdec_core' for m in sys.modules))"
    loaded = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert loaded <= 15


CHAPTERS = sorted((ROOT / "chapters").glob("[0-9a]*.py"))
# What a chapter may import beside `specdec_core` itself: faces of rooms.
FACES = ("core", "drafters", "measure", "model", "race", "stores", "theory", "viz")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem[:2])
def test_chapters_come_in_through_the_doors(chapter):
    text = chapter.read_text(encoding="utf-8")
    tree = ast.parse(text)
    paths = {f"{node.module}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    paths |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    allowed = {"specdec_core", *(f"specdec_core.{room}" for room in FACES)}
    assert {path for path in paths if path.split(".")[0] == "specdec_core"} <= allowed
    assert "weights_hash" not in text
    assert not [line for line in text.splitlines() if len(line) > 120]


def test_nothing_is_asked_of_a_drafter_a_rule_or_a_model_that_its_contract_does_not_promise():
    asked = re.compile(r"\b(?:get|has)attr\((?:\w+\.)*(?:drafter|first|second|rule|lm|target|execution)\b")
    lines = [(path.name, line.strip()) for path in MODULES for line in path.read_text(encoding="utf-8").splitlines()]
    assert not [(name, line) for name, line in lines if asked.search(line)]
