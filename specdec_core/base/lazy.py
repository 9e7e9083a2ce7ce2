"""A package's face: names that are imported from its modules when they are first asked for.

So `import specdec_core` costs nothing, `specdec --help` answers at once, and a reader needs one import path per room.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def face(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        modules: module, relative to the package -> the names that it lends to the face; of ``"."``, whole modules.

    Example:
        >>> get, _ = face("specdec_core", {".core.rng": ["total_variation"]})
        >>> get("total_variation")({"x": 1.0}, {"x": 0.5, "y": 0.5})
        0.5
        >>> get("nothing")
        Traceback (most recent call last):
        AttributeError: specdec_core has no 'nothing'; it has: total_variation
    """
    place = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in place:
            raise AttributeError(f"{package} has no {name!r}; it has: {', '.join(sorted(place))}")
        if place[name] == ".":
            return import_module(f".{name}", package)
        value = getattr(import_module(place[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(place)
