"""Speculative decoding: one loop, one tree, one trace.

The symbols, and what others call them:

======== ================ =================================================== ===========================
symbol   name in the code meaning                                             their name
======== ================ =================================================== ===========================
p        `p`              the target's law of the next token, (V,)            p (Leviathan), q (Chen)
q        `q`              the draft's law of the next token, (V,)             q (Leviathan), p (Chen)
γ        `gamma`          tokens drafted a step, along one path               K (Chen), k, num_speculative_tokens
α        `alpha`          probability that a drafted token is accepted        acceptance rate, β for one position
c        `c`              time of a draft call over time of a target call     cost coefficient
τ        `tau`            tokens a target call, the bonus token included      S (lookahead's compression),
                                                                              mean acceptance length
W        `W`              columns of the lookahead window                     WINDOW_SIZE
N        `N`              length of lookahead's n-grams; elsewhere the nodes  LEVEL
                          of a tree besides its root
G        `G`              n-grams checked a step                              GUESS_SET_SIZE
S        `S`              autoregressive steps over steps of the method       step compression ratio
V, D     `V`, `D`         vocabulary size, hidden width
======== ================ =================================================== ===========================

Uniform numbers are `u`. Every array has its shape beside it.
"""

__version__ = "0.1.0"
