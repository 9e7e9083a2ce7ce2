"""Speculative decoding: one loop, one tree, one trace.

The symbols, and what others call them ("L" Leviathan et al. 2023, "C" Chen et al. 2023, "F" lookahead
decoding, Fu et al. 2024, "E" EAGLE):

======  =========  ====================================================  ==============================
symbol  in code    meaning                                               their name -> ours
======  =========  ====================================================  ==============================
p       `p`        the target's law of the next token, (V,)              L: p; C: q -> p
q       `q`        the draft's law of the next token, (V,)               L: q; C: p -> q
γ       `gamma`    tokens drafted per step, along one path               C: K; num_speculative_tokens
α       `alpha`    probability that one drafted token is accepted        L: β a position, α its mean
c       `c`        time of a draft call / time of a target call          L: cost coefficient
τ       `tau`      tokens per target call, bonus token included          E: average acceptance length
W       `W`        columns of the lookahead window                       F: W, WINDOW_SIZE
N       `N`        length of lookahead's n-grams                         F: N, LEVEL
G       `G`        n-grams that lookahead checks per step                F: G, GUESS_SET_SIZE
S       `S`        autoregressive steps / steps of the method            F: step compression ratio
======  =========  ====================================================  ==============================

Shapes: V is the vocabulary, D the hidden width, and in the shape of a tree, (N+1, ...), N its nodes
besides the root. Uniform numbers are `u`.
"""

from .base.lazy import face

__version__ = "0.1.0"

__getattr__, __dir__ = face(
    __name__,
    {
        ".base.errors": ["SpecdecError"],
        ".core.contract": ["Budget"],
        ".core.engine": ["generate", "stream"],
        ".core.recorded": ["Recorded"],
        ".core.rng": ["Rng", "enumerate_law", "total_variation"],
        ".core.sampling": ["Sampling"],
        ".core.stopping": ["Stop"],
        ".core.toy": ["TableLM"],
        ".core.tree": ["DraftTree"],
        ".model.lm": ["CachedLM"],
        ".model.loading": ["load"],
        ".race.comparison": ["compare"],
    },
)
