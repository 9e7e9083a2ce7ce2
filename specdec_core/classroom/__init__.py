"""Exercises: what a student's notebook checks itself with, and what `specdec grade` grades it with.

The design, from the author to the mark:

1. ``solutions/exNN_name.py`` is the one thing that is edited. `sheets` makes of it the solution notebook, the
   exercise notebook (solutions replaced by stubs) and ``sheets.json``: the cells that a grader needs, no
   solution among them.
2. `questions` holds an *examiner* for each question: inputs by seed, the right value by definition, and the usual
   slips, each with its message. Examiners are written against ``ask(*arguments) -> value``, a plain function.
3. In a student's notebook ``check("01.2", residual)`` runs the cell of the answer by itself (`alone`), as the grader
   will, and examines it in the same process. Arguments and answers pass through `wire` even then, so that what is
   judged is a value and never an object with opinions of its own.
4. At grading the *same* examiner sits in another process. The answer cells are lifted by id (`lift`) into the
   notebook of ``sheets.json``, nbval runs it, and ``check`` is only a messenger: it takes inputs from the
   examiner and brings back what the function returned. No right value and no verdict is ever computed in the
   process that the submission controls, so there is nothing in it to patch: the only way to a pass is to return
   the right answers for inputs nobody knew. A pass yields a receipt that did not exist before; points are given
   where the examiner passed the answer, the cell passed, *and* the receipt is in its output.
5. `handin` finds all that was handed in, and `lift` reads it, by a process with bounds (`apart`). `grader` gives each
   submission a process group and a scratch folder (`scratch`), with limits of time, memory and files (`watch`);
   `fence` keeps the notebook's kernel from other files, other processes and the network: by `walls` where Linux has
   them, by an audit hook elsewhere, and the difference is reported.
6. `layouts` says whose a file is, `reports` tells the teacher, and `handback` the students and their system.

What this does not do is said in exercises/README.md, for teachers.
"""

from .client import CheckFailed, check

__all__ = ["CheckFailed", "check"]
