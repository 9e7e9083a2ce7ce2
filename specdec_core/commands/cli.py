"""The `specdec` command: a table of subcommands, each a module of `commands` loaded when it is used.

A command module has `add_arguments(parser)` and `run(arguments) -> int`, and imports torch only
inside `run`, so that `specdec --help` and a warm `specdec model fetch` answer at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .. import __version__
from ..base.arguments import text
from ..base.errors import SpecdecError
from ..base.files import explained

# name: (module of `specdec_core.commands`, what it does)
COMMANDS = {
    "model": ("model", "fetch, check and describe the default model"),
    "datastore": ("datastore", "build, describe and search the datastores that REST retrieves from"),
    "race": ("race", "measure methods on tasks; leave a table, a figure and a record"),
    "recommend": ("recommend", "say which method to use for given prompts on this machine, and how to serve it"),
    "profile": ("profile", "say where a step's time goes, and how near the machine's limits it comes"),
    "costs": ("costs", "measure t(q), the time of a forward over q tokens, and keep it"),
    "train": ("train", "let the target write text, and train drafters on it"),
    "grade": ("grade", "score notebooks with answers to the exercises"),
    "generate": ("generate", "stream one answer with the accepted draft tokens marked"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 2 for an error the user can put right, 130 for Ctrl-C or SIGTERM.

    Example:
        >>> main(["--version"])
        Traceback (most recent call last):
        SystemExit: 0
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        for place, word in enumerate(argv, 1):
            text(f"argument {place}", word)
    except SpecdecError as error:
        print(f"specdec: {error}", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog="specdec", description="Speculative decoding, measured.")
    parser.add_argument("--version", action="version", version=f"specdec {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:  # only the command in use pays for its imports
            command = importlib.import_module(f".{module}", __package__)
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    arguments.argv = argv  # a record of a run says how it was called
    try:
        with _termination_interrupts(), explained(f"running `specdec {arguments.command}`"):
            return arguments.run(arguments)
    except SpecdecError as error:
        if arguments.debug:
            raise
        print(f"specdec: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("specdec: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `specdec ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM, which `timeout` and schedulers send, is a Ctrl-C for a command: what it has measured is kept."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
