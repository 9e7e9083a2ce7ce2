"""Examine an answer: type, shape, no mutation, values; and when the values are wrong, which usual slip gives them.

An examiner never sees the function, only ``ask(*arguments) -> value``. What that crosses (nothing, or a process
boundary) is not its business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.rng import _Branching, enumerate_law
from . import messenger, reading
from .alone import OWN_CELL
from .question import Fail, Question, Slip
from .reading import Misread, same, show
from .wire import Handle, Other, decode, encode

UNANSWERED = "not answered yet."
_LEARNT = "right for the inputs that the notebook's own check uses, wrong for others: "
VISIBLE_SEED = 0  # what a student's own check uses; grading adds one that nobody knew

Ask = Callable[..., Any]
Transport = Callable[[dict[str, Any], Callable[..., dict[str, Any]]], dict[str, Any]]


@dataclass
class Exam:
    """One question put to one answer through a transport."""

    question: Question
    transport: Transport
    faults: list[str] = field(default_factory=list)

    def ask(self, *arguments: Any) -> Any:
        """What the answer returns for these arguments.

        Raises:
            Fail: if it raises, returns nothing or no plain value, or changes an argument.
        """
        question, data, targets, drawn = self.question, [], [], []
        for argument in arguments:
            if isinstance(argument, _Branching) or callable(argument):
                kind = "rng" if isinstance(argument, _Branching) else "function"
                data.append(encode(Handle(kind, len(targets))))
                targets.append(argument)
            else:
                data.append(encode(argument))
        reply = self.transport({"call": data}, lambda *what: self._serve(targets, drawn, *what))
        if self.faults:
            raise Fail(self.faults[0])
        call = f"{question.name}({shown(question, arguments)})"
        if "raise" in reply:
            name, text = (str(part) for part in reply["raise"])
            if name == "NotImplementedError":
                raise Fail(UNANSWERED)
            rule = f"; {OWN_CELL}" if name == "NameError" else ""
            raise Fail(f"{call} raised {name}{': ' + text if text else ''}{rule}.")
        if changed := [question.arguments[int(i)] for i in reply["changed"]]:
            raise Fail(f"it changes its argument {changed[0]} in place; work on a copy.")
        value = decode(reply["return"])
        if value is None:
            raise Fail(f"{call} returned None where {question.returns} is expected; is there a `return`?")
        if isinstance(value, Other):
            raise Fail(f"{call} returned an object of type {value.name}; expected {question.returns}.")
        return value

    def read(self, value: Any, like: Any) -> Any:
        """A value in the form of another one, whatever containers and number types it has."""
        try:
            return reading.read(value, like)
        except Misread as error:
            raise Fail(f"{self.question.name} should return {self.question.returns}; {error}.") from None

    def _serve(self, targets: list, drawn: list, handle: list, method: str, arguments: list) -> dict[str, Any]:
        """Answer a call that the answer makes on one of its arguments."""
        kind, number = handle
        target, given = targets[number], [decode(argument) for argument in arguments]
        try:
            if kind == "function":
                return {"result": encode(self._called(target, given))}
            if method == "uniform":
                drawn.append(target.uniform())
                return {"result": len(drawn) - 1}
            if method == "below":
                return {"result": bool(drawn[given[0]] < given[1])}
            return {"result": int(target.pick(_pickable(given[0])))}
        except Fail as fail:  # told to the answer, but not left to it: it might catch it
            self.faults.append(str(fail))
            return {"error": str(fail)}

    def _called(self, target: Callable[..., Any], given: list) -> Any:
        """What a given function returns; that it was called with something else is the answer's mistake."""
        try:
            return target(*given)
        except (TypeError, ValueError, LookupError) as error:
            shown = ", ".join(show(value) for value in given)
            raise Fail(f"it calls a function that it was given with ({shown}): {error}.") from None


def _pickable(law: Any) -> np.ndarray:
    try:
        law = reading.read(law, np.zeros(1)) if not isinstance(law, np.ndarray) else np.asarray(law, np.float64)
    except Misread:
        law = np.zeros(0)
    if law.ndim != 1 or not law.size or not np.isfinite(law).all() or law.min() < 0 or not law.sum() > 0:
        raise Fail(f"rng.pick was given {show(law)}; expected a distribution: probabilities, at least one above zero.")
    return law


def law_of(ask: Ask, *case: Any, like: Any, read: Callable[[Any, Any], Any]) -> dict[Any, float]:
    """The exact distribution of what an answer returns, its last argument being the random source."""
    try:
        return reading.Exact(enumerate_law(lambda rng: _hashable(read(ask(*case, rng), like)), limit=5_000))
    except RuntimeError as error:
        raise Fail("it draws more often than a step can need; is there a loop that does not end?") from error


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, (list, tuple)) else value


def examine(question: Question, transport: Transport, seeds: Sequence[int]) -> tuple[bool, str]:
    """Put a question's cases to an answer.

    Args:
        question: which.
        transport: carries a call to the answer and its reply back.
        seeds: of the inputs; the first one is the one that students see.

    Returns:
        whether the answer passes, and what to say.
    """
    exam = Exam(question, transport)
    cases, got, wanted, first = [], [], [], 0
    try:
        for seed in seeds:
            for case in question.cases(np.random.default_rng(seed)):
                right = question.right(*case)
                got.append(_observed(exam, case, right))
                wanted.append(right)
                cases.append(case)
            first = first or len(cases)
        wrong = [i for i in range(len(cases)) if not same(got[i], wanted[i])]
        if not wrong:
            return True, "right."
        return False, _diagnosis(question, cases, got, wanted, wrong, first)
    except Fail as fail:
        visible = first and all(same(got[i], wanted[i]) for i in range(first))
        return False, f"{_LEARNT}{fail}" if visible else str(fail)


def _observed(exam: Exam, case: tuple, right: Any) -> Any:
    question = exam.question
    like = right if question.like is None else question.like
    if question.observe is not None:
        return question.observe(exam.ask, *case, like=like, read=exam.read)
    return exam.read(exam.ask(*case), like)


def _diagnosis(question: Question, cases: list, got: list, wanted: list, wrong: list[int], first: int) -> str:
    for slip in (*question.slips, *_common(question)):
        if _agrees(slip, cases, got, wanted):
            return slip.message
    learnt = wrong[0] >= first
    at = min(wrong, key=lambda i: len(repr(wanted[i])))  # the smallest one is the easiest to read
    return (_LEARNT if learnt else "") + _example(question, cases[at], got[at], wanted[at])


def _agrees(slip: Slip, cases: list, got: list, wanted: list) -> bool:
    """Whether the answer is what the slip gives, on every case for which the slip gives anything."""
    telling = False
    for case, value, right in zip(cases, got, wanted, strict=True):
        try:
            with np.errstate(all="ignore"):
                given = slip.wrong(*case)
        except (ZeroDivisionError, ValueError, IndexError, KeyError, TypeError):
            continue
        if given is None or not same(value, given):
            return False
        telling |= not same(value, right)
    return telling


def _common(question: Question) -> list[Slip]:
    """Slips that any question knows: an argument handed back, nothing but zeros."""
    echoes = [
        Slip(f"this hands back its argument {name}.", lambda *case, i=i: case[i] if i < len(case) else None)
        for i, name in enumerate(question.arguments)
    ]
    nothing = Slip("this is nothing but zeros.", lambda *case: _zeros(question.right(*case)))
    return [*echoes, nothing]


def _zeros(like: Any) -> Any:
    if isinstance(like, np.ndarray):
        return np.zeros_like(like)
    if isinstance(like, (list, tuple)):
        return type(like)(_zeros(item) for item in like)
    return None if isinstance(like, (dict, str)) else type(like)(0)


def _example(question: Question, case: tuple, got: Any, wanted: Any) -> str:
    call = f"{question.name}({shown(question, case)})"
    if not isinstance(got, reading.Exact) and not isinstance(wanted, reading.Exact):
        place = first_difference(got, wanted)
        if len(place) > 1 or (place and len(show(wanted)) > 60):  # two large values look alike
            for index in place:
                got, wanted = got[index], wanted[index]
            return f"{call}{list(place)} is {show(got)}; expected {show(wanted)}."
        return f"{call} gave {show(got)}; expected {show(wanted)}."
    outcomes = got.keys() | wanted.keys()
    worst = max(sorted(outcomes, key=repr), key=lambda key: abs(got.get(key, 0.0) - wanted.get(key, 0.0)))
    return (
        f"for {shown(question, case)} it returns {show(worst)} with probability {got.get(worst, 0.0):.4f}; "
        f"expected {wanted.get(worst, 0.0):.4f}."
    )


def first_difference(a: Any, b: Any) -> tuple[int, ...]:
    """Where two arrays or lists of one length first differ, as indices; none where that says nothing.

    Example:
        >>> first_difference(np.eye(2), np.ones((2, 2))), first_difference([[1], [2, 3]], [[1], [2, 4]])
        ((0, 1), (1, 1))
        >>> first_difference([1], [1, 2])
        ()
    """
    if not (isinstance(a, (list, tuple, np.ndarray)) and isinstance(b, (list, tuple, np.ndarray)) and len(a) == len(b)):
        return ()
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if not same(x, y):
            return (i, *first_difference(x, y))
    return ()


def shown(question: Question, arguments: Sequence[Any]) -> str:
    """Arguments by name, short; what is called back has no value to show."""
    return ", ".join(
        name if callable(value) or isinstance(value, _Branching) else f"{name}={show(value)}"
        for name, value in zip(question.arguments, arguments, strict=False)
    )


def here(function: Callable[..., Any]) -> Transport:
    """A transport to a function in this process; arguments and answers pass through JSON all the same."""

    def carry(message: dict[str, Any], serve: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        def invoke(*what: Any) -> dict[str, Any]:
            return json.loads(json.dumps(serve(*json.loads(json.dumps(what)))))

        return json.loads(json.dumps(messenger.perform(function, json.loads(json.dumps(message)), invoke)))

    return carry


def examine_here(question: str, function: Callable[..., Any], seeds: Sequence[int] = (VISIBLE_SEED,)) -> dict[str, Any]:
    """`check` without a grader: the verdict as ``{"passed", "message"}``.

    Raises:
        SpecdecError: for a question that no sheet has.
    """
    from .questions import find
    from .sheets import described

    about = described(question)
    passed, words = examine(find(question), here(function), seeds)
    points = f" {about['points']} point{'s' * (about['points'] != 1)}." if passed else ""
    return {"passed": passed, "message": f"{question} {about['title']}: {words}{points}"}
