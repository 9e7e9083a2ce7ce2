"""The order of the rooms: an import goes down the list or stays in its room, lazy ones included, in no circle."""

import ast
import graphlib
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "specdec_core"
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
