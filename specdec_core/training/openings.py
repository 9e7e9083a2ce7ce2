"""How the conversations of the training text begin: openings for the user's turns, and prompts by task.

A model asked to write the user's turn from the bare template repeats itself over thousands of conversations; a few
words in front of it do not. The tasks are those of `workloads`, asked about other material: paragraphs that the model
wrote before, functions of Python's standard library, numbers drawn for the purpose. No prompt of a race is among them.
"""

from __future__ import annotations

import bisect
import colorsys
import heapq
import inspect
import random
import statistics
import textwrap
from collections.abc import Sequence
from functools import cache

FIRST = (
    "", "", "", "", "Write", "Write a", "Write a short", "Explain", "Explain how", "Explain why", "What is", "What are",
    "What does", "What would", "Why do", "Why is", "How do I", "How does", "How can", "How many", "Can you",
    "Could you", "Tell me", "Give me", "List", "Describe", "Compare", "Suggest", "Help me", "I want to", "I need",
    "I am", "I have", "My", "In", "Is it", "Are there", "Do you", "Should I", "Who", "When", "Where", "Which",
    "Create", "Define", "Imagine", "Let's", "Please", "Rewrite", "Summarize", "Translate", "Calculate", "Solve",
    "A train", "If", "The", "There are", "Name", "Make", "Plan", "Design", "Write a story about", "Write a poem",
    "Write an email", "Write a Python function", "What is the difference between", "Give me three", "Hello", "Thank",
)  # fmt: skip
LATER = (
    "", "", "", "Now", "Can you", "Make it", "What about", "Why", "How", "Thanks", "Give me", "And", "Write", "Explain",
    "Could you", "Is", "What if", "Please", "Which", "I", "That", "Shorten", "Add", "Tell me more",
)  # fmt: skip
_TOPICS = (
    "a lighthouse", "an old bicycle", "the first snow", "a lost letter", "a market in the morning", "a river in flood",
    "two neighbours", "a clock that runs backwards", "a garden on a roof", "the last bus", "a violin", "a ship in fog",
    "a blue door", "the night shift", "a map with a mistake", "a stray cat", "a long bridge", "an empty theatre",
)  # fmt: skip
_FORMS = ("a short story", "a poem", "a letter", "a diary entry", "a speech", "a product description", "a fable")
_LANGUAGES = ("French", "German", "Spanish", "Italian", "Portuguese")
_THINGS = ("apples", "pencils", "tickets", "books", "stamps", "eggs", "tiles", "coins", "bottles", "chairs")
_NAMES = ("Maya", "Tom", "Ines", "Ravi", "Lena", "Omar", "Sofia", "Paul", "Aiko", "Nadia")
_CHANGES = (
    "Rename the first argument to value", "Add a docstring", "Add type hints", "Add a check of the arguments",
    "Print the result before it is returned", "Rename the function to compute", "Add a comment to every line",
)  # fmt: skip
_MODULES = (textwrap, statistics, bisect, heapq, colorsys, random)


def task_prompt(task: str, paragraphs: Sequence[str], rng: random.Random) -> str:
    """A prompt of one of `workloads.TASKS`, except chat, about a random one of ``paragraphs`` where it needs a text.

    Raises:
        ValueError: for a task without a maker.

    Example:
        >>> task_prompt("write", [], random.Random(0))
        'Write a fable about a short ride on the night shift.'
    """
    if task not in _MAKERS:
        raise ValueError(f"no prompts for the task {task!r}; choose from: {', '.join(_MAKERS)}")
    return _MAKERS[task](paragraphs, rng)


def _summarize(paragraphs, rng):
    ask = rng.choice(["Summarize this text", "Summarize the text below in two sentences", "What is the main point"])
    return f"{ask}:\n\n{rng.choice(paragraphs)}"


def _quote(paragraphs, rng):
    text, which = rng.choice(paragraphs), rng.choice(["first", "second", "last"])
    return f"Copy the {which} sentence of this text word for word.\n\n{text}"


def _translate(paragraphs, rng):
    sentence = rng.choice(paragraphs).split(". ")[0]
    return f"Translate into {rng.choice(_LANGUAGES)}: {sentence}"


def _edit_code(paragraphs, rng):
    return f"{rng.choice(_CHANGES)} in this function and return all of it.\n\n```python\n{rng.choice(_functions())}```"


def _complete_code(paragraphs, rng):
    lines = rng.choice(_functions()).splitlines()
    return "Complete this Python function:\n\n```python\n" + "\n".join(lines[: max(2, len(lines) // 2)]) + "\n```"


def _math(paragraphs, rng):
    name, thing, (a, b, c) = rng.choice(_NAMES), rng.choice(_THINGS), (rng.randint(2, 60) for _ in range(3))
    questions = [
        f"{name} has {a} {thing} and buys {b} more. Then {c % a + 1} are given away. How many {thing} are left?",
        f"A box holds {a} {thing}. How many {thing} are in {b} boxes?",
        f"{name} reads {a} pages a day for {b} days. How many pages is that? Show the steps.",
        f"What is {a} times {b} plus {c}?",
        f"If {a} {thing} cost {a * b} euros, how much do {c} {thing} cost?",
    ]
    return rng.choice(questions)


def _write(paragraphs, rng):
    place = rng.choice(["", "a short ride on ", "life beside "])
    return f"Write {rng.choice(_FORMS)} about {place}{rng.choice(_TOPICS)}."


_MAKERS = {
    "summarize": _summarize, "quote": _quote, "translate": _translate, "edit_code": _edit_code,
    "complete_code": _complete_code, "math": _math, "write": _write,
}  # fmt: skip
TASKS = tuple(_MAKERS)


@cache
def _functions() -> tuple[str, ...]:
    """Short functions of the standard library, without their docstrings' length to reckon with."""
    found = []
    for module in _MODULES:
        for _, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__:
                source = textwrap.dedent(inspect.getsource(function))
                if 4 <= source.count("\n") <= 24 and len(source) < 700:
                    found.append(source)
    return tuple(sorted(found))
