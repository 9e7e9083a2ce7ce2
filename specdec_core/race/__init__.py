"""Races: prompts by task, methods that answer them in turns, what each gained, and which one to use.

Example:
    >>> from specdec_core.race import own
    >>> own("math", limit=1)[0].task
    'math'
"""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        "..training.selfchat": ["ANSWER", "LOOP"],
        "..training.waves": ["TEXT", "documents"],
        ".advice": ["ADVICE_COLUMNS", "advice_rows", "paragraph"],
        ".comparison": ["compare"],
        ".gains": ["best_length", "measure", "predict"],
        ".questions": ["Question", "read_questions"],
        ".recommendation": ["recommend"],
        ".results": ["ALL", "Race", "Row", "geometric_mean"],
        ".summaries": ["references", "rouge"],
        ".rounds": ["Answer", "Contestant", "Divergence", "Round"],
        ".serving": ["ENGINES", "WHERE", "switches"],
        ".tables": ["cells", "markdown"],
        ".workloads": ["FURTHER", "TASKS", "conversation", "encode", "own"],
    },
)
