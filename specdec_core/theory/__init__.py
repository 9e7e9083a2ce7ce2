"""The closed formulas of the chapters: pure functions of numbers, callable with two of them.

======  ============  ========================================================================
symbol  in code       meaning and unit
======  ============  ========================================================================
β       `beta`        probability that one draft token is accepted in one context
α       `alpha`       the mean of β; by depth: P(token i accepted | tokens 1 ... i-1 accepted)
γ       `gamma`       draft tokens on one path
b       `b`           drafts checked in one step
c       `c`           time of a draft call / time of a target call
τ       `tau`         output tokens per target call, the bonus or correction included
f       `f`           one step in f finds a good draft (lookahead decoding)
S       `S`           autoregressive steps / steps of the method, which is τ
W N G   `W N G`       lookahead's window columns, n-gram length, candidates
t(q)    `t`           time of one target forward over q rows, any unit as long as it is one unit
======  ============  ========================================================================

*Accepted* tokens are draft tokens kept; *output* tokens are those and the one the target adds in every step. Arguments
and results have these meanings; a formula raises a ValueError for a value outside the range that stands beside it.
"""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        ".acceptance": [
            "acceptance_rate", "alpha_for", "expected_accepted", "expected_tokens", "expected_tokens_by_depth",
            "residual_denominators",
        ],
        ".hit_rate": ["break_even_hit_rate", "conditional_alphas", "hit_rate_speedup", "hit_rate_tokens"],
        ".least_time": ["ridge", "roofline"],
        ".lookahead": [
            "PAPER_ALPHA", "PAPER_F", "AlphaF", "expected_tokens_b", "fit_alpha_f", "lookahead_step_tokens",
            "step_compression",
        ],
        ".rounding": [
            "BITS", "flip_rate", "identical_probability", "law_shift_bound", "near_tie_density", "rounded", "spacing",
        ],
        ".speed": ["best_gamma", "best_gamma_measured", "speedup", "speedup_measured"],
        ".trees": ["BestTree", "best_tree", "expected_tokens_tree", "grow_tree"],
    },
)
