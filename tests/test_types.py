"""Types: mypy over the rooms under the drafters, and over these; nobody hands a model on without saying what it is."""

import ast
import subprocess
import sys

from test_rooms import MODULES, PACKAGE

NAMED = {"lm", "context", "loaded", "target", "model"}
OTHERS = {PACKAGE / "book" / "page.py"}  # nbconvert has contexts of its own


def test_mypy_finds_nothing():
    run = subprocess.run([sys.executable, "-m", "mypy"], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_language_model_context_or_loaded_model_is_of_any_type():
    untyped = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.arg}: Any"
        for path in MODULES.keys() - OTHERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.arg) and node.arg in NAMED and node.annotation and ast.unparse(node.annotation) == "Any"
    ]
    assert not untyped, "\n".join(untyped)
