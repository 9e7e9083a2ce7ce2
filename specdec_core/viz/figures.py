"""Figures that say where they come from: a caption with the hardware, alt text, and a line in the manifest.

A chapter calls `save` once per figure. The reader sees the figure in the notebook; while the book is built
(`bookbuild` sets `SPECDEC_FIGURES`) the same call also leaves an SVG and its record there. Outside a build
nothing is written, so running a chapter never touches the committed figures.
"""

from __future__ import annotations

import base64
import json
import os
import re
import textwrap
from collections.abc import Sequence
from datetime import date
from functools import partial
from html import escape
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .style import used

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

FOLDER = "SPECDEC_FIGURES"
_NAME = re.compile(r"(\d\d|appendix)(-[a-z0-9]+)+")
_WIDTH = 130  # characters of a caption line
_SCALE = 1.5  # pixels of the PNG per pixel on the page


class Measured(Protocol):
    """What a figure says of the model that was run; a `LoadedModel` has it."""

    label: str
    weights_hash: str
    dtype: torch.dtype
    device: torch.device


def save(
    fig: Figure, name: str, *, alt: str, model: Measured | None = None, quoted: Sequence[str] = (), seed: int = 0
) -> None:
    """Caption a figure, show it, and keep it if the book is being built.

    Args:
        fig: closed afterwards.
        name: chapter and subject, such as ``"00-forward-cost"``; the name of the file.
        alt: what the figure shows, for those who cannot see it.
        model: the loaded model that the run used; None for a figure computed from a formula.
        quoted: each number that was not obtained here, with its source.
        seed: of the run.

    Raises:
        ValueError: for another form of name, or an alt text that says nothing.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"a figure is named chapter-subject, such as '00-forward-cost'; got {name!r}")
    if len(alt.split()) < 4:
        raise ValueError(f"alt says in words what {name} shows, for those who cannot see it; got {alt!r}")
    about = provenance(model)
    look = {"ha": "left", "va": "top", "fontsize": 7, "color": "#404040", "linespacing": 1.35}
    fig.text(0.01, -0.01, caption(about, quoted), **look)
    _show(fig, alt)
    if folder := os.environ.get(FOLDER):
        record = {"chapter": name[: name.index("-")], "alt": alt, **about}
        record |= {"quoted": list(quoted), "seed": seed, "date": date.today().isoformat()}
        (Path(folder) / f"{name}.svg").write_text(svg(fig, alt), encoding="utf-8")
        (Path(folder) / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    import matplotlib.pyplot as plt

    plt.close(fig)


def provenance(model: Measured | None) -> dict[str, Any]:
    """Model, its weights' hash, dtype, device, threads, machine and versions; all None where no model ran.

    Example:
        >>> provenance(None)["model"] is None
        True
    """
    from ..measure import machine

    if model is None:
        about = dict.fromkeys(("model", "weights_sha256", "dtype", "device", "threads", "machine"))
        return {**about, "versions": machine.versions()}
    import torch

    return {
        "model": model.label,
        "weights_sha256": model.weights_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "threads": torch.get_num_threads(),
        "machine": machine.in_words(machine.describe(model.device)),
        "versions": machine.versions(),
    }


def caption(about: dict[str, Any], quoted: Sequence[str] = ()) -> str:
    """The small print under a figure.

    Example:
        >>> caption({"model": None})
        'Computed from the formula; nothing was measured.'
        >>> about = {"model": "m", "dtype": "float32", "device": "cpu", "threads": 1, "machine": "a machine"}
        >>> caption({**about, "versions": {"torch": "2.13.0+cpu"}})
        'Measured: m, float32 on cpu, 1 thread; a machine; torch 2.13.0.'
    """
    if about["model"] is None:
        words = "Computed from the formula; nothing was measured."
    else:
        threads = f"{about['threads']} thread{'s' * (about['threads'] != 1)}"
        words = f"Measured: {about['model']}, {about['dtype']} on {about['device']}, {threads}; {about['machine']}; "
        words += f"torch {about['versions']['torch'].partition('+')[0]}."
    if quoted:
        words += " Quoted, not measured here: " + "; ".join(quoted) + "."
    wrap = partial(textwrap.wrap, words, break_on_hyphens=False)
    count = len(wrap(_WIDTH))
    widths = range(len(words) // count, _WIDTH + 1)  # the least that does: no single word on the last line
    return next("\n".join(lines) for width in widths if len(lines := wrap(width)) == count)


def svg(fig: Figure, alt: str = "") -> str:
    """The figure as SVG text: the same bytes for the same figure, with ``alt`` as its title."""
    buffer = StringIO()
    with used():
        fig.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    head, rest = buffer.getvalue().split("<metadata>", 1)
    return f"{head}<title>{escape(alt)}</title>\n <metadata>{rest}"


def png(fig: Figure) -> tuple[bytes, int]:
    """The figure as PNG bytes, and the width in pixels at which to show it."""
    buffer = BytesIO()
    fig.savefig(buffer, format="png", dpi=96 * _SCALE, bbox_inches="tight")
    content = buffer.getvalue()
    return content, round(int.from_bytes(content[16:20], "big") / _SCALE)  # the width in the IHDR chunk


def page(words: str, fig: Figure) -> str:
    """Words, and the figure that they describe, as HTML that needs no file; for widgets."""
    content, width = png(fig)
    data = base64.b64encode(content).decode()
    return f'<p><b>{words}</b></p><img src="data:image/png;base64,{data}" width="{width}" alt="{escape(words)}">'


def _show(fig: Figure, alt: str) -> None:
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is None:  # a script has no page to show it on
        return
    content, width = png(fig)
    bundle = {"image/png": base64.b64encode(content).decode(), "text/plain": f"Figure: {alt}"}
    display(bundle, raw=True, metadata={"image/png": {"alt": alt, "width": width}})
