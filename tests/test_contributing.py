"""CONTRIBUTING.md: the drafter that it adds works as it stands there, and the page's examples print what they say."""

import ast
import doctest
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from model_free import assert_exact_law, assert_greedy_identity, assert_within_budget

from specdec_core.core.toy import TableLM
from specdec_core.drafters import REGISTRY

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
FILE, LINE, *EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.fixture
def bigram(monkeypatch, tmp_path):
    """The page's module as if its file lay in the package, and its line in the registry."""
    path = tmp_path / "bigram.py"
    path.write_text(FILE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("specdec_core.drafters.bigram", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    for name, place in ast.literal_eval("{" + LINE + "}").items():
        monkeypatch.setitem(REGISTRY, name, place)
    return module


def test_its_examples_print_what_they_say(bigram):
    assert doctest.testmod(bigram) == (0, 1)
    page = doctest.DocTestParser().get_doctest("".join(EXAMPLES), {}, PAGE.name, str(PAGE), 0)
    assert doctest.DocTestRunner().run(page) == (0, len(page.examples)) and len(page.examples) == 10


def test_its_drafter_is_lossless(bigram):
    assert_exact_law(bigram.Bigram, [[0, 1, 0], [1, 1, 2, 1]])
    assert_greedy_identity(bigram.Bigram(3), seed=1, vocab=3, order=1, length=24, prompt=[0, 1, 0], max_nodes=64)
    assert_within_budget(bigram.Bigram, TableLM.random(3, seed=1), [0, 1, 0, 1, 2])


def test_every_path_that_it_names_exists():
    named = set(re.findall(r"(?:specdec_core|tests|chapters)/[\w/]+\.py", PAGE.read_text(encoding="utf-8")))
    own = {"specdec_core/drafters/bigram.py", "chapters/NN_name.py"}  # to be made
    assert own < named and all((PAGE.parent / path).is_file() for path in named - own)
