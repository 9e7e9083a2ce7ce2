"""`specdec generate`: stream one answer, the tokens that were drafted and accepted marked."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

from .options import add_model_arguments, add_sampling_arguments, natural, open_model, sampling_of

if TYPE_CHECKING:
    from ..core.engine import Run
    from ..model.chat import Tokenizer

EXAMPLE_TASK = "edit_code"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = '"-" reads it from standard input (default: an example)'
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help=text)
    parser.add_argument("--method", default="prompt_lookup", help="with settings: prompt_lookup:num_tokens=5,max_n=2")
    parser.add_argument("--raw", action="store_true", help="continue PROMPT as it is, without the chat template")
    parser.add_argument("--max-new-tokens", type=natural, default=256, metavar="N", help="default: 256")
    text = "no stop token before as many tokens (default: 0)"
    parser.add_argument("--min-new-tokens", type=natural, default=0, metavar="N", help=text)
    parser.add_argument("--seed", type=natural, default=0, help="default: 0")
    text = "after the answer, each token and its log-probability in nats"
    parser.add_argument("--logprobs", action="store_true", help=text)
    text = "end before this text; may be repeated"
    parser.add_argument("--stop", action="append", default=[], metavar="STRING", help=text)
    add_sampling_arguments(parser)
    add_model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..base.arguments import text
    from ..base.errors import SpecdecError
    from ..core.engine import stream
    from ..core.stopping import Stop
    from ..drafters import Adaptive
    from ..drafters.methods import build, check
    from ..measure.context import context_for
    from ..measure.kept_costs import kept_or_none

    check([arguments.method])
    prompt = text("the prompt", _prompt(arguments.prompt))
    loaded, lm = open_model(arguments, release=True)
    sampling = sampling_of(arguments)
    # They are found by the hash of the weights, which may take a while where it is not on record.
    costs = kept_or_none(lm) if Adaptive.name in arguments.method else None
    context = context_for(lm, sampling, costs)
    try:
        answer = stream(
            lm,
            list(loaded.tokenizer(prompt)["input_ids"]) if arguments.raw else loaded.encode(prompt),
            build(arguments.method, context),
            max_new_tokens=arguments.max_new_tokens,
            min_new_tokens=arguments.min_new_tokens,
            logprobs=arguments.logprobs,
            sampling=sampling,
            stop=Stop(loaded.stop_ids, arguments.stop, loaded.tokenizer),
            seed=arguments.seed,
        )
    except ValueError as error:  # an empty stop string, an empty prompt, a token that the model lacks
        raise SpecdecError(str(error)) from error
    return show(answer, loaded.tokenizer, sys.stdout)


def show(answer: Run, tokenizer: Tokenizer, out: TextIO) -> int:
    """Print an `engine.Run` while it runs, then one line about it; the exit status is 130 after Ctrl-C.

    Accepted tokens are underlined and colored on a terminal, in brackets elsewhere or where NO_COLOR is set.
    """
    begin, end = ("\x1b[4;36m", "\x1b[0m") if _colored(out) else ("[", "]")
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="replace")  # an old Windows console cannot print every character
    start, status = perf_counter(), 0
    try:
        for text, accepted in marked(answer, tokenizer):
            out.write(f"{begin}{text}{end}" if accepted else text)
            out.flush()
    except KeyboardInterrupt:
        status = 130
    seconds, trace, result = perf_counter() - start, answer.trace, answer.result()
    ending = "interrupted" if status else f"ended by {result.finish_reason}"
    out.write(
        f"\n\n{trace.emitted} tokens in {trace.target_calls} calls: "
        f"{trace.tokens_per_call:.2f} tokens per call, "
        f"{seconds:.2f} s (prefill {trace.prefill_seconds:.2f} s); {ending}\n"
    )
    for token, logprob in zip(result.tokens, result.logprobs or (), strict=False):
        out.write(f"{logprob:9.4f}  {tokenizer.decode([token], skip_special_tokens=False)!r}\n")
    out.flush()
    return status


def marked(answer: Run, tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
    """Pieces of text as they can be shown, each with whether it was drafted and accepted.

    Text that a stop string may still take back, or whose bytes are not complete, waits for a later step.
    Neighboring tokens of one kind within a step are one piece.
    """
    tokens: list[int] = []
    ends: list[tuple[int, bool]] = []  # where a token's text ends, and whether the token was accepted
    shown = 0
    for step in answer:
        # The bonus or correction token is the target's own; a clipped step may end before it.
        for place, token in enumerate(step.tokens):
            tokens.append(token)
            text = tokenizer.decode(tokens, skip_special_tokens=True).rstrip("\ufffd")
            ends.append((len(text), place < step.verdict.accepted))
        released = answer.watch.released()
        pieces: list[list[Any]] = []
        while ends and shown < len(released):
            place, accepted = ends[0]
            text = released[shown : min(place, len(released))]
            if text and pieces and pieces[-1][1] == accepted:
                pieces[-1][0] += text
            elif text:
                pieces.append([text, accepted])
            shown += len(text)
            if place > len(released):
                break
            ends.pop(0)
        yield from ((text, accepted) for text, accepted in pieces)


def _colored(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _prompt(given: str | None) -> str:
    from ..race.questions import WorkloadError
    from ..race.workloads import own

    if given is None:
        question = own(EXAMPLE_TASK, limit=1)[0]
        print(f"No prompt was given; this is {question.id}:\n\n{question.turns[0]}\n", file=sys.stderr)
        return question.turns[0]
    if given != "-":
        return given
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise WorkloadError(f"standard input is not text in its encoding ({error}); send UTF-8.") from error
    if not text.strip():
        raise WorkloadError("standard input is empty; expected a prompt.")
    return text.removesuffix("\n")
