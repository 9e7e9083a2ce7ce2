"""Packages that only some rooms need, and the words for where they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import SpecdecError


def needs(extra: str, *packages: str) -> None:
    """Refuse, before anything else is done, where a package of an extra of pyproject.toml is not installed.

    Args:
        extra: its name.
        packages: the modules to look for; nothing is imported.

    Raises:
        SpecdecError: says what is missing and how to install it.

    Example:
        >>> needs("book", "numpy")
        >>> needs("book", "numpy", "no_such_package")
        Traceback (most recent call last):
        specdec_core.base.errors.SpecdecError: no_such_package is not installed: pip install "specdec-core[book]"
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        are = "are" if len(missing) > 1 else "is"
        raise SpecdecError(f'{", ".join(missing)} {are} not installed: pip install "specdec-core[{extra}]"')
