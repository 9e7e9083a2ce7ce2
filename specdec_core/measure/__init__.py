"""What this machine does: t(q), its limits, where the time of a step goes, memory, and how close two answers are."""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        ".": ["machine"],
        ".context": ["context_for"],
        ".costs": ["BATCHES", "WIDTHS", "Costs", "measure_costs", "measure_uncached"],
        ".divergence": ["agreement", "first_difference", "logit_gap", "reread"],
        ".draft_cost": ["Drafting", "draft_seconds", "drafting"],
        ".footprint": ["Memory", "measure_memory"],
        ".kept_costs": ["keep", "kept", "kept_or_none"],
        ".limits": ["Limits", "measure_limits"],
        ".profiling": ["ATTENTION", "HEAD", "LOOP", "OTHER", "PARTS", "PRODUCTS", "PYTHON", "Profile", "profile"],
    },
)
