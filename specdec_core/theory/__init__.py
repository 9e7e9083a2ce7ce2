"""The closed formulas of the chapters: pure functions of numbers, callable with two of them.

======  ============  ========================================================================
symbol  in code       meaning and unit
======  ============  ========================================================================
β       `beta`        probability that one draft token is accepted in one context
α       `alpha`       the mean of β; by depth: P(token i accepted | tokens 1 ... i-1 accepted)
γ       `gamma`       draft tokens on one path
b       `b`           drafts checked in one step
c       `c`           time of a draft call / time of a target call
τ       `tau`         output tokens a target call, the bonus or correction included
f       `f`           one step in f finds a good draft (lookahead decoding)
S       `S`           autoregressive steps / steps of the method, which is τ
W N G   `W N G`       lookahead's window columns, n-gram length, candidates
t(q)    `t`           time of one target forward over q rows, any unit as long as it is one unit
======  ============  ========================================================================

*Accepted* tokens are draft tokens kept; *output* tokens are those and the one the target adds in every step.
"""

from .acceptance import (
    acceptance_rate,
    alpha_for,
    expected_accepted,
    expected_tokens,
    expected_tokens_by_depth,
    residual_denominators,
)
from .hit_rate import break_even_hit_rate, conditional_alphas, hit_rate_speedup, hit_rate_tokens
from .lookahead import (
    PAPER_ALPHA,
    PAPER_F,
    AlphaF,
    expected_tokens_b,
    fit_alpha_f,
    lookahead_step_tokens,
    step_compression,
)
from .roofline import ridge, roofline
from .rounding import (
    BITS,
    flip_rate,
    identical_probability,
    law_shift_bound,
    near_tie_density,
    rounded,
    spacing,
)
from .speed import best_gamma, best_gamma_measured, speedup, speedup_measured
from .trees import BestTree, best_tree, expected_tokens_tree, grow_tree

__all__ = [
    "BITS",
    "PAPER_ALPHA",
    "PAPER_F",
    "AlphaF",
    "BestTree",
    "acceptance_rate",
    "alpha_for",
    "best_gamma",
    "best_gamma_measured",
    "best_tree",
    "break_even_hit_rate",
    "conditional_alphas",
    "expected_accepted",
    "expected_tokens",
    "expected_tokens_b",
    "expected_tokens_by_depth",
    "expected_tokens_tree",
    "fit_alpha_f",
    "flip_rate",
    "grow_tree",
    "hit_rate_speedup",
    "hit_rate_tokens",
    "identical_probability",
    "law_shift_bound",
    "lookahead_step_tokens",
    "near_tie_density",
    "residual_denominators",
    "ridge",
    "roofline",
    "rounded",
    "spacing",
    "speedup",
    "speedup_measured",
    "step_compression",
]
