"""Two models and one text: what the caches of target and draft model hold, step by step.

The draft model never reads the last token that it drafted. After a step its cache may hold rejected tokens, which are
taken back, or lack the last draft, if all were accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import style

# kind of a cell -> (face, hatch, words of the legend)
LOOKS = {
    "text": ("#FFFFFF", "", "text"),
    "held": ("#56B4E9", "", "in the cache, and of the text"),
    "stale": ("#D55E00", "xxx", "in the cache, rejected: to be cut"),
    "read": ("#F0E442", "///", "of the text, not in the cache: to be read next"),
}


@dataclass(frozen=True)
class Moment:
    """Both caches after one step, before the draft model is brought up to date.

    Attributes:
        text: the tokens written so far, those of the step included.
        drafts: (γ,) what was drafted in the step.
        accepted: k, how many of them were.
        target: tokens in the target's cache.
        draft: tokens in the draft model's cache.
    """

    text: Sequence[int]
    drafts: Sequence[int]
    accepted: int
    target: int
    draft: int

    @property
    def before(self) -> int:
        """n, tokens of the text before the step."""
        return len(self.text) - self.accepted - 1

    @property
    def valid(self) -> int:
        """Tokens in the draft model's cache that are the text's.

        Example:
            >>> Moment([5, 6, 7, 9], [7, 8, 8], accepted=1, target=3, draft=4).valid
            3
        """
        return min(self.draft, self.before + self.accepted)

    def kinds(self) -> tuple[list[str], list[str]]:
        """Kinds of the cells of each cache, place by place from 0; "" where the cache has none.

        Example:
            >>> Moment([5, 6, 7, 9], [7, 8, 8], accepted=1, target=3, draft=4).kinds()
            (['held', 'held', 'held', 'read'], ['held', 'held', 'held', 'read+stale'])
        """
        end, target, draft = len(self.text), [], []
        for place in range(max(end, self.draft)):
            target.append("held" if place < self.target else "read" if place < end else "")
            stale = self.valid <= place < self.draft
            missing = self.valid <= place < end
            draft.append("held" if place < self.valid else "+".join(["read"] * missing + ["stale"] * stale))
        return target, draft

    def words(self) -> str:
        """What has to be done to the draft model's cache.

        Example:
            >>> Moment([5, 6, 7, 9], [7, 8, 8], accepted=1, target=3, draft=4).words()
            'cut 1, read 1'
        """
        return f"cut {self.draft - self.valid}, read {len(self.text) - self.valid}"


def draw(moments: Sequence[Moment], word: Callable[[int], str], shown: int = 2) -> Any:
    """A panel for each moment: the text, of which ``shown`` tokens before the step, and both caches."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    with style.used():
        fig, panels = plt.subplots(len(moments), 1, figsize=(7.6, 1.62 * len(moments) + 0.5), squeeze=False)
        for axes, moment in zip(panels[:, 0], moments, strict=True):
            _panel(axes, moment, word, moment.before - shown)
        width = max(panel.get_xlim()[1] for panel in panels[:, 0])
        for axes in panels[:, 0]:
            axes.set_xlim(-2.6, width)
        handles = [
            Patch(facecolor=face, hatch=hatch, edgecolor="black", label=words) for face, hatch, words in LOOKS.values()
        ]
        fig.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=8)  # the caption stands below
    return fig


def _panel(axes: Any, moment: Moment, word: Callable[[int], str], first: int) -> None:
    from matplotlib.patches import Rectangle

    drafted = {moment.before + i: token for i, token in enumerate(moment.drafts)}
    target, draft = moment.kinds()
    for row, kinds in enumerate((["text"] * len(moment.text), target, draft)):
        for place in range(first, len(kinds)):
            token = moment.text[place] if place < len(moment.text) else drafted.get(place, 0)
            for i, kind in enumerate(filter(None, kinds[place].split("+"))):
                several = "+" in kinds[place]
                face, hatch, _ = LOOKS[kind]
                shown = drafted[place] if kind == "stale" else token
                box = {"width": 0.46 if several else 0.94, "height": 0.8, "facecolor": face, "hatch": hatch}
                left = place - first + 0.03 + 0.48 * i
                axes.add_patch(Rectangle((left, 2.1 - row), edgecolor="black", linewidth=0.8, **box))
                font = {"ha": "center", "va": "center", "fontsize": 8}
                ground = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"}
                axes.text(left + box["width"] / 2, 2.5 - row, word(shown), bbox=ground, **font)
    for row, name in enumerate(("text", "target's cache", "draft model's cache")):
        axes.text(-0.1, 2.5 - row, name, ha="right", va="center", fontsize=8)
    axes.axvline(moment.before - first, color="black", linestyle="--", linewidth=1)
    k, gamma = moment.accepted, len(moment.drafts)
    how = "all accepted" if k == gamma else "none accepted" if k == 0 else f"{k} of {gamma} accepted"
    axes.set_title(f"{how}: {moment.words()}", fontsize=9)
    axes.set(xlim=(-2.6, len(draft) - first + 0.2), ylim=(0, 3.05))
    axes.axis("off")
