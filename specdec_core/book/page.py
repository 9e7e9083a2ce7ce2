"""A notebook as the body of a static page: nbconvert's HTML, with formulas as MathML and links between pages."""

from __future__ import annotations

import copy
import re
from functools import lru_cache
from typing import Any

from .contents import BookError

# Commands that latex2mathml does not know, in words that it does.
_SPELLED = {r"\arg\max": r"\text{arg}\,\max", r"\arg\min": r"\text{arg}\,\min"}
_OTHER_PAGE = re.compile(r'(<a [^>]*?href=")([^":#/]+)\.ipynb(#[^"]*)?(")')
_CHECKED = "# NBVAL_CHECK_OUTPUT\n"  # has the tests compare the output of a cell; says nothing to a reader
# A function's name with its argument right behind it, as in log b: the converter leaves no space.
_NAMED = re.compile(r"(<mi>(?:log|ln|exp)</mi>)(?=<m(?:i|n|frac|sub|sup)\b)")
# A formula with what closes behind it: a browser may begin a line with a comma that follows one.
_CLOSED = re.compile(r'(\(?<math[^>]* display="inline">(?:(?!</math>).)*</math>[.,;:!?)\]’”]+)', re.DOTALL)

# Code that a notebook shows folded is folded here, too.
_TEMPLATE = """
{%- extends 'basic/index.html.j2' -%}
{%- block input_group -%}
{%- if cell.metadata.get("jupyter", {}).get("source_hidden") -%}
<details><summary>Code</summary>{{ super() }}</details>
{%- else -%}{{ super() }}{%- endif -%}
{%- endblock -%}
"""

STYLE = """\
:root { color-scheme: light; --rule: #d0d0d0; --ink: #1a1a1a; --accent: #0b5394; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); font: 17px/1.55 Georgia, "DejaVu Serif", "Noto Serif CJK SC", serif; }
nav { position: fixed; inset: 0 auto 0 0; width: 15rem; padding: 1.5rem 1rem; overflow-y: auto; background: #f6f6f4;
  border-right: 1px solid var(--rule); font: 15px/1.4 system-ui, "DejaVu Sans", "Noto Sans CJK SC", sans-serif; }
nav a { display: block; padding: .25rem .5rem; color: inherit; text-decoration: none; }
nav a:hover { text-decoration: underline; }
nav a[aria-current] { font-weight: 700; border-left: 3px solid var(--accent); }
main { margin-left: 15rem; padding: 1.5rem 2rem 4rem; max-width: 66rem; }
a { color: var(--accent); }
h1, h2, h3 { font-family: system-ui, "DejaVu Sans", sans-serif; line-height: 1.25; }
h2 { margin-top: 2.2em; padding-top: .6em; border-top: 1px solid var(--rule); }
.anchor-link { visibility: hidden; margin-left: .3em; text-decoration: none; }
:is(h1, h2, h3):hover .anchor-link { visibility: visible; }
.prompt { display: none; }
.input_area, .output_area { overflow-x: auto; margin: .5rem 0; }
pre, code { font: 14px/1.45 "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.input_area pre, .output_area pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.input_area pre { margin: 0; padding: .7rem .9rem; background: #f6f6f4; border: 1px solid var(--rule); }
summary { color: #5a5a5a; font: 14px system-ui, "DejaVu Sans", sans-serif; cursor: pointer; }
.c1 { color: #5a5a5a; font-style: italic; }
.k, .kn { font-weight: 700; }
.output_area pre { margin: 0; padding: .2rem .9rem; }
.anchor-link:focus { visibility: visible; }
blockquote { margin: 1rem 0; padding: .1rem 1rem; border-left: 4px solid var(--accent); background: #f3f6fa; }
table { display: block; max-width: 100%; overflow-x: auto; border-collapse: collapse; margin: 1rem 0; font-size: 15px; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
td code, th code { overflow-wrap: anywhere; }
code { font-weight: inherit; }
img { max-width: 100%; height: auto; }
li > sub { vertical-align: baseline; font-size: 14px; color: #5a5a5a; }
.together { white-space: nowrap; }
math[display="block"] { margin: 1rem 0; overflow-x: auto; overflow-y: hidden; }
@media (max-width: 60rem) { nav { position: static; width: auto; } main { margin: 0; padding: 1rem; } }
@media print { nav { display: none; } main { margin: 0; } }
"""


@lru_cache(maxsize=4096)
def mathml(formula: str, display: str = "inline") -> str:
    r"""A formula of LaTeX as MathML.

    Raises:
        BookError: for a command that is left over.

    Example:
        >>> mathml("a^2").startswith('<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">')
        True
        >>> mathml(r"\nosuch")
        Traceback (most recent call last):
        specdec_core.book.contents.BookError: the formula '\\nosuch' has \nosuch, which no static page can show.
    """
    from latex2mathml.converter import convert

    text = formula.strip()
    for command, words in _SPELLED.items():
        text = text.replace(command, words)
    text = re.sub(r"\\texttt\{[^}]*\}", lambda found: found[0].replace(r"\_", "_"), text)
    result = _NAMED.sub(r'\1<mspace width="0.17em"/>', convert(text, display=display))
    if left := re.search(r"\\[A-Za-z]+|\\_", re.sub(r"<[^>]+>", " ", result)):
        raise BookError(f"the formula {formula!r} has {left[0]}, which no static page can show.")
    return result


def body(notebook: Any) -> str:
    """The HTML of a notebook's cells, without head and navigation."""
    shown = copy.deepcopy(notebook)
    for cell in shown.cells:
        if cell.cell_type == "code":
            cell.source = cell.source.replace(_CHECKED, "")
    html, _ = _exporter().from_notebook_node(shown)
    html = _CLOSED.sub(r'<span class="together">\1</span>', html)
    html = _OTHER_PAGE.sub(lambda m: f"{m[1]}{m[2]}.html{m[3] or ''}{m[4]}", html)
    return html.replace('href="README.md"', 'href="index.html"')


@lru_cache(maxsize=1)
def _exporter() -> Any:
    from jinja2 import DictLoader
    from nbconvert.exporters.html import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def heading(self, text: str, level: int, **attrs: Any) -> str:
            name = re.sub(r"\W+", "-", re.sub(r"<[^>]+>", "", text)).strip("-")
            return f'<h{level} id="{name}">{text} <a class="anchor-link" href="#{name}">¶</a></h{level}>\n'

        def block_math(self, body: str) -> str:
            return mathml(body, "block")

        def inline_math(self, body: str) -> str:
            return mathml(body)

    class Exporter(HTMLExporter):
        def markdown2html(self, context: Any, source: str) -> str:
            return MarkdownWithMath(renderer=Renderer(escape=False)).render(source)

        markdown2html.jinja_pass_arg = HTMLExporter.markdown2html.jinja_pass_arg

    loaders = [DictLoader({"page.html.j2": _TEMPLATE})]
    return Exporter(template_name="basic", template_file="page.html.j2", extra_loaders=loaders)
