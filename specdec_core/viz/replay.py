"""Replay a run token by token, from its trace: what was drafted, what the target kept, and what it wrote itself.

No model takes part, so the slider answers at once. Accepted draft tokens are underlined on a colored ground;
the target's own token after a rejection is boxed, the bonus token after a full acceptance has a double underline,
and a rejected draft is struck through: each can be told apart without color.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from itertools import accumulate, groupby
from typing import Any

from ..core.trace import Step, Trace
from .fallback import show, stepped

_ACCEPTED = "text-decoration:none;background:#BFE3F5;border-bottom:2px solid #0072B2"
_UNTESTED = "font-size:100%;color:#6B6B6B;border-bottom:1px dotted"
_BONUS = "font-style:normal;background:#EAF6E9;border-bottom:4px double #009E73"
# kind: (what the legend says, element, style). The elements alone still mark where a page drops the styles.
LOOKS = {
    "accepted": ("drafted and accepted", "u", _ACCEPTED),
    "correction": ("the target's correction after a rejection", "b", "font-weight:normal;outline:1.5px solid #D55E00"),
    "bonus": ("the bonus token after a full acceptance", "em", _BONUS),
    "plain": ("written with no draft to check", "span", ""),
    "rejected": ("drafted and rejected", "s", "color:#6B6B6B"),
    "untested": ("drafted, never tested: behind a rejection", "small", _UNTESTED),
}
_PAGE = (
    "margin:3px 0;background:#FFFFFF;color:#1A1A1A;border:1px solid #CCCCCC;border-radius:4px;padding:8px 10px;"
    "font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:13px;line-height:1.65;white-space:pre-wrap"
)
_FRAME = "box-shadow:0 0 0 2px #E69F00"
_SMALL = "font-family:sans-serif;font-size:12px;line-height:1.7;white-space:normal"


def kinds(step: Step) -> list[str]:
    """What became of each emitted token of a step.

    Example:
        >>> from ..core.rng import Rng
        >>> from ..core.rules import Greedy, verify
        >>> from ..core.tree import DraftTree
        >>> tree = DraftTree.chain(7, [1, 2])
        >>> for best in ([1, 5, 9], [1, 2, 5]):  # the target's best token after each row
        ...     verdict = verify(Greedy(best), tree, Rng(0))
        ...     print(kinds(Step(1, tree, verdict, verdict, {})))
        ['accepted', 'correction']
        ['accepted', 'accepted', 'bonus']
    """
    if step.tree.candidate.sum() == 1:
        own = "plain"
    else:
        own = "correction" if step.tree.children(step.verdict.path[-1]) else "bonus"
    return [*["accepted"] * step.verdict.accepted, own][: len(step.tokens)]


def pieces(tokens: list[int], tokenizer: Any) -> list[str]:
    """The text that each token adds; a character spread over several tokens belongs to the last of them.

    Example:
        >>> class Bytes:
        ...     def decode(self, ids, skip_special_tokens=False):
        ...         return bytes(ids).decode("utf-8", errors="replace")
        >>> pieces([104, 195, 169], Bytes())
        ['h', '', 'é']
    """
    texts = [tokenizer.decode(tokens[:n], skip_special_tokens=False) for n in range(1, len(tokens) + 1)]
    shown = list(accumulate((text.rstrip("\ufffd") for text in texts), lambda old, new: max(old, new, key=len)))
    return [new[len(old) :] for old, new in zip(["", *shown], shown, strict=False)]


def replay_html(trace: Trace, tokenizer: Any, step: int | None = None) -> str:
    """The answer with every token marked by what became of it.

    Args:
        trace: of the run.
        tokenizer: anything with ``decode(ids, skip_special_tokens=...)``.
        step: show the run up to this step, 1 ... number of steps, and that step's draft; None for all of it.

    Raises:
        ValueError: for a step that the run does not have.
    """
    steps = trace.steps
    if step is not None and not 1 <= step <= len(steps):
        raise ValueError(f"the run has steps 1 ... {len(steps)}; got {step}")
    shown = steps if step is None else steps[:step]
    texts = iter(pieces([token for one in shown for token in one.tokens], tokenizer))
    marks, parts = [kinds(one) for one in shown], []
    for number, marked in enumerate(marks, start=1):
        spans = [(kind, "".join(next(texts) for _ in run)) for kind, run in groupby(marked)]
        text = "".join(_span(text, kind) for kind, text in spans)
        parts.append(f'<span style="{_FRAME}">{text}</span>' if number == step else text)
    used = {kind for marked in marks for kind in marked}
    if step is None:
        head, draft = _summary(trace, len(steps)), ""
    else:
        head, (draft, looks) = _summary(trace, step), _draft(steps[step - 1], tokenizer)
        used |= looks
    legend = " &nbsp; ".join(_span(what, kind) for kind, (what, *_) in LOOKS.items() if kind in used)
    if step is not None:
        legend += f' &nbsp; <span style="{_FRAME}">the tokens of this step</span>'
    answer = f'<pre style="{_PAGE}">{"".join(parts)}</pre>'
    return f'<div><div style="{_SMALL}">{head}</div>{draft}{answer}<div style="{_SMALL}">{legend}</div></div>'


def replay(trace: Trace, tokenizer: Any) -> None:
    """Show a slider over the steps of a run; without a kernel, the whole run marked.

    Raises:
        ValueError: for a run without steps.
    """
    count = len(trace.steps)
    if not count:
        raise ValueError("there is nothing to replay: the run has no steps")
    widget = stepped(lambda t: replay_html(trace, tokenizer, t), "step", 1, count, min(2, count), interval=500)
    show(widget, replay_html(trace, tokenizer), f"Replay of {count} steps of {trace.drafter}")


def _span(text: str, kind: str) -> str:
    if not text:
        return ""
    _, element, style = LOOKS[kind]
    shown = escape(text)
    if kind != "plain" and not text.strip():
        shown = shown.replace("\n", "↵\n", 1)  # a mark on a line break alone would be invisible
    return f'<{element} title="{kind}" style="{style}">{shown}</{element}>'


def _beyond(step: Step) -> int:
    """Accepted tokens that a stop token or the length limit has cut off."""
    return max(step.verdict.accepted - len(step.tokens), 0)


def _summary(trace: Trace, count: int) -> str:
    part = replace(trace, steps=trace.steps[:count])
    beyond = sum(map(_beyond, part.steps))
    note = f" ({beyond} more accepted beyond the end of the answer)" if beyond else ""
    return (
        f"<b>{escape(part.drafter)}</b>: {count} target calls, {part.emitted} tokens, "
        f"{part.accepted - beyond} of them drafted{note}; "
        f"{part.tokens_per_call:.2f} tokens per call; {part.decode_seconds:.2f} s of decoding. "
        f"Autoregression would have written {count} token{'s' * (count != 1)} in as many calls."
    )


def _draft(step: Step, tokenizer: Any) -> tuple[str, set[str]]:
    """What this step drafted, a tree in the order of its rows, each node marked; and the kinds of mark used."""
    tokens = step.tree.tokens.tolist()
    tested, accepted = {trial.node for trial in step.verdict.trials}, set(step.verdict.path[1:])
    rows = [i for i in range(1, len(tokens)) if step.tree.candidate[i]]
    if not rows:
        return f'<div style="{_SMALL}">This step had no draft.</div>', set()
    look = ["accepted" if i in accepted else "rejected" if i in tested else "untested" for i in rows]
    texts = pieces([tokens[i] for i in rows], tokenizer)
    spans = "".join(_span(text, kind) for kind, text in zip(look, texts, strict=True))
    kept = f"{len(accepted)} of {len(rows)} accepted"
    if beyond := _beyond(step):
        kept += f", {beyond} of them beyond the end of the answer"
    html = f'<div style="{_SMALL}">The draft of this step, {kept}:</div><pre style="{_PAGE}">{spans}</pre>'
    return html, set(look)
