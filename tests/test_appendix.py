"""The appendix against the chapters: every box has its entry, every pointer its box, every paper its line."""

import re
from pathlib import Path

import pytest

import specdec_core
from specdec_core.book.contents import chapters, number

ROOT = Path(__file__).parents[1]
TEXTS = {number(source): source.read_text(encoding="utf-8") for source in chapters(ROOT)}
APPENDIX = TEXTS.pop("appendix")
BOX = "> **The notes say"
POINTER = re.compile(r"\[(\d\d)\]\((\w+)\.ipynb\), \*([^*]+)\*")


def boxes(text):
    """The sections of a chapter that hold a box."""
    _, *parts = re.split(r"^# ## (.+)$", text, flags=re.MULTILINE)
    return {name.strip() for name, body in zip(parts[::2], parts[1::2], strict=True) if BOX in body}


def test_boxes_are_found_where_they_are():
    assert boxes("# # T\n# ## A\n# > **The notes say …** x\n# ## B\n# text\n# ## C\n#    '> **The notes say …**'") == {
        "A",
        "C",
    }


@pytest.mark.parametrize("chapter", TEXTS)
def test_every_box_has_an_entry_and_every_pointer_a_box(chapter):
    assert {section for place, _, section in POINTER.findall(APPENDIX) if place == chapter} == boxes(TEXTS[chapter])


def test_pointers_lead_to_the_chapter_that_they_name():
    files = {number(source): source.stem for source in chapters(ROOT)}
    assert all(files[place] == stem for place, stem, _ in POINTER.findall(APPENDIX))


def test_every_paper_that_a_chapter_names_is_in_the_bibliography():
    listed = set(re.findall(r"\[arXiv:([\d.]+\d)\]", APPENDIX.split("# ## Bibliography")[1]))
    named = set(re.findall(r"arXiv:(\d{4}\.\d{5})", "".join(TEXTS.values())))
    assert named <= listed and len(listed) > 20


def test_a_link_leads_to_the_number_that_it_shows():
    links = re.findall(r"\[arXiv:([\d.]+)\]\(https://arxiv\.org/abs/([\d.]+)\)", APPENDIX + "".join(TEXTS.values()))
    assert all(shown == address for shown, address in links)


def test_the_symbols_of_the_package_are_in_the_table():
    table = APPENDIX.split("# ## Symbols")[1].split("# ## Errata")[0]
    in_code = re.findall(r"^\S+ +`(\w+)`", specdec_core.__doc__, re.MULTILINE)
    assert len(in_code) == 10 and [name for name in in_code if f"| `{name}` |" not in table] == []
