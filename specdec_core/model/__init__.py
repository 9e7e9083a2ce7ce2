"""The target model at work: loading, one cached forward, its executions, and forwards shared among processes."""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        ".cache": ["Flight", "attend"],
        ".invariance": ["CANDIDATES", "Shape", "mismatches"],
        ".parallel": ["ShardedLM", "shares"],
    },
)
