"""One round of rejection sampling, step by step: p, q, the draft token, its test, the residual.

A round uses at most three uniforms: u1 draws the token from q, u2 tests it, u3 draws the correction from the
residual. The picture shows each as a point on a strip of length one, so that nothing is left to chance: move
a point and see what becomes of the round. Drawn as SVG by hand, which is fast enough for a slider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..core.rng import pick_at
from ..core.rules import accept_probability, residual
from . import markup
from .fallback import live, show, sliders

STEPS = ("p and q", "draw", "test", "outcome")
_P, _Q, _KEPT, _LOST = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_WIDTH, _LEFT, _STRIP, _TOP = 720, 12, 580, 190  # pixels; strips begin below the bars at _TOP


@dataclass(frozen=True)
class Round:
    """What became of one draft token: ``token`` is emitted, the draft x itself or a correction."""

    x: int
    accept_prob: float
    accepted: bool
    token: int


def play(p: np.ndarray, q: np.ndarray, u1: float, u2: float, u3: float) -> Round:
    """One round with its three uniforms given.

    Args:
        p, q: (V,) distributions of target and draft.
        u1, u2, u3: in [0, 1): draw x from q, test it, draw the correction from the residual.

    Example:
        >>> p, q = np.array([0.5, 0.3, 0.1, 0.1]), np.array([0.2, 0.2, 0.2, 0.4])
        >>> play(p, q, 0.7, 0.2, 0.5)
        Round(x=3, accept_prob=0.25, accepted=True, token=3)
        >>> play(p, q, 0.7, 0.3, 0.5)
        Round(x=3, accept_prob=0.25, accepted=False, token=0)
    """
    x = pick_at(u1, q)
    prob = float(accept_probability(p[x], q[x]))
    accepted = u2 < prob
    return Round(x, prob, accepted, x if accepted else pick_at(u3, residual(p, q)))


def words(p: np.ndarray, q: np.ndarray, names: Sequence[str], us: Sequence[float], step: int = 4) -> str:
    """What has happened up to ``step`` (1 ... 4), in words.

    Example:
        >>> p, q = np.array([0.5, 0.5]), np.array([0.2, 0.8])
        >>> words(p, q, "ab", (0.1, 0.5, 0.5))
        'P(accept) = sum of min(p, q) = 0.700. u1 draws a from q. p/q = 2.50, so a is accepted with probability \
1.00. u2 = 0.50 is below: a is kept.'
    """
    done = play(p, q, *us)
    x, token = names[done.x], names[done.token]
    kept, lost = f"below: {x} is kept.", f"not below: {x} is rejected, and u3 draws {token} from the residual."
    parts = [
        f"P(accept) = sum of min(p, q) = {np.minimum(p, q).sum():.3f}.",
        f"u1 draws {x} from q.",
        f"p/q = {p[done.x] / q[done.x]:.2f}, so {x} is accepted with probability {done.accept_prob:.2f}.",
        f"u2 = {us[1]:.2f} is {kept if done.accepted else lost}",
    ]
    return " ".join(parts[:step])


def picture(p: np.ndarray, q: np.ndarray, names: Sequence[str], us: Sequence[float], step: int = 4) -> str:
    """The round up to ``step`` (1 ... 4) as SVG text.

    Raises:
        ValueError: for another step, or p, q and names of different lengths.
    """
    if not 1 <= step <= len(STEPS) or not len(p) == len(q) == len(names):
        got = f"step {step} and lengths {len(p)}, {len(q)}, {len(names)}"
        raise ValueError(f"step is 1 ... {len(STEPS)} and p, q, names have one length; got {got}")
    done, parts = play(p, q, *us), [_bars(p, q, names)]
    if step >= 2:
        parts.append(_strip(0, "u1: draw from q", q, names, us[0], [_Q] * len(q), f"→ {names[done.x]}"))
    if step >= 3:
        split, labels = np.array([done.accept_prob, 1 - done.accept_prob]), ["accept", "reject"]
        title = f"u2: test {names[done.x]}, p/q = {p[done.x] / q[done.x]:.2f}"
        parts.append(_strip(1, title, split, labels, us[1], [_KEPT, _LOST], f"→ {labels[not done.accepted]}"))
    if step == 4 and not done.accepted:
        colors, result = ["#56B4E9"] * len(p), f"→ {names[done.token]}"
        parts.append(_strip(2, "u3: draw from the residual", residual(p, q), names, us[2], colors, result))
    elif step == 4:
        parts.append(markup.words(_LEFT, _TOP + 2 * 58 + 24, f"{names[done.x]} is kept: no third draw", 13))
    hatch = (
        '<defs><pattern id="h" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="7" height="7" fill="#D6E6F2"/><path d="M0 0V7" stroke="#000000" stroke-width="1.6"/>'
        "</pattern></defs>"
    )
    return markup.svg(_WIDTH, _TOP + 58 * 3, [hatch, *parts])


def page(p: np.ndarray, q: np.ndarray, names: Sequence[str], us: Sequence[float], step: int = 4) -> str:
    """Picture and words as HTML that needs no file."""
    text = words(p, q, names, us, step)
    return f"<p>{escape(text)}</p>{markup.image(picture(p, q, names, us, step), text)}"


def player(
    p: np.ndarray, q: np.ndarray, names: Sequence[str], rejected: Sequence[float], accepted: Sequence[float]
) -> None:
    """Show the round with sliders; without a kernel, the two rounds whose (u1, u2, u3) are given."""
    import ipywidgets as widgets

    wide = {"layout": {"width": "420px"}, "style": {"description_width": "130px"}}
    steps = [(f"{i}: {name}", i) for i, name in enumerate(STEPS, 1)]
    step = widgets.SelectionSlider(options=steps, value=4, description="step", **wide)
    draws = zip(("u1: draw", "u2: test", "u3: correct"), rejected, strict=True)
    settings = ("better draft: q → p", 0, 0, 1, 0.05), *((what, u, 0, 0.99, 0.01) for what, u in draws)
    mix, *us = sliders(420, 130, *settings)

    def drawn() -> str:
        nearer = (1 - mix.value) * np.asarray(q) + mix.value * np.asarray(p)
        return page(p, nearer, names, [u.value for u in us], step.value)

    static = f"<h4>A round that rejects</h4>{page(p, q, names, rejected)}"
    static += f"<h4>A round that accepts</h4>{page(p, q, names, accepted)}"
    box = widgets.VBox([widgets.HBox([step, mix]), widgets.HBox([us[0], us[1]]), us[2], live(drawn, step, mix, *us)])
    show(box, static, "One round of rejection sampling: p, q, the draft token, its test, the residual")


def _bars(p: np.ndarray, q: np.ndarray, names: Sequence[str]) -> str:
    """p and q side by side for each token; the excess of p, which the residual shares out, is hatched."""
    tall, ground = 120, _TOP - 28
    scale, pitch = tall / max(p.max(), q.max()), _STRIP / len(p)
    wide, parts = pitch * 0.32, []
    for i, name in enumerate(names):
        x0 = _LEFT + i * pitch + pitch * 0.14
        for x, value, color in ((x0, p[i], _P), (x0 + wide + 3, q[i], _Q)):
            parts.append(_rect(x, ground - value * scale, wide, value * scale, color))
            parts.append(markup.words(x + wide / 2, ground - value * scale - 4, f"{value:.2f}", 11, "middle"))
        if p[i] > q[i]:
            parts.append(_rect(x0, ground - p[i] * scale, wide, (p[i] - q[i]) * scale, "url(#h)"))
        parts.append(markup.words(x0 + wide + 1.5, ground + 15, name, 13, "middle"))
    legend = ((_P, "p, target"), (_Q, "q, draft"), ("url(#h)", "the part of p above q: the residual"))
    for i, (fill, what) in enumerate(legend):
        parts += [_rect(_LEFT + i * 110, 4, 14, 12, fill), markup.words(_LEFT + i * 110 + 19, 14, what, 12)]
    return "".join(parts) + f'<path d="M{_LEFT} {ground}h{_STRIP}" stroke="#000000"/>'


def _strip(
    row: int, title: str, law: np.ndarray, names: Sequence[str], u: float, colors: Sequence[str], result: str
) -> str:
    """The unit interval cut into the shares of a distribution, with a mark at u."""
    top, left = _TOP + row * 58 + 14, float(_LEFT)
    chosen, parts = pick_at(u, law), [markup.words(_LEFT, top - 4, title, 12)]
    for i, share in enumerate(law):
        if share > 0:
            parts.append(_rect(left, top, share * _STRIP, 24, colors[i], 1.0 if i == chosen else 0.3))
            if share * _STRIP > 8 * len(names[i]):
                parts.append(markup.words(left + share * _STRIP / 2, top + 16, names[i], 12, "middle"))
        left += share * _STRIP
    at = _LEFT + u * _STRIP
    parts.append(f'<path d="M{at:.1f} {top - 3}v30m-4 5l4 -5l4 5z" stroke="#000000" stroke-width="2"/>')
    parts.append(markup.words(_LEFT + _STRIP + 8, top + 16, result, 12))
    return "".join(parts)


def _rect(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> str:
    return markup.rect(x, y, width, height, fill, "#000000", 0.7, f'fill-opacity="{opacity}"')
