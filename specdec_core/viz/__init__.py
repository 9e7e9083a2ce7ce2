"""Plots and widgets: functions of a trace, a record or a formula; no model is ever loaded here."""

from ..base.extras import needs
from ..base.lazy import face

needs("book", "ipywidgets", "matplotlib")

__getattr__, __dir__ = face(
    __name__,
    {
        ".": [
            "choosing", "draft_length", "dynamic_tree", "figures", "forward_cost", "hit_rate", "jacobi", "lookahead",
            "matcher", "near_tie", "race", "replay", "stepper", "style", "suffix_array", "suffix_tree", "tree_mask",
            "two_caches",
        ],
    },
)
