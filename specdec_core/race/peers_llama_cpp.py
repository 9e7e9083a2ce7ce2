"""llama.cpp as a contestant of a race: another engine, which many take for small models on a CPU.

It runs (by the optional package ``xllamacpp``) on our token ids, greedily, with our threads and limit. Each file has a
process of its own: with its threads in our process, torch took 1.4 to 1.5 times as long. Weights come from a GGUF
file, and a contestant is named by the quantisation of that file: ``llama.cpp:Q4_1``. llama.cpp rounds in other places
than torch (activations of 8 bits against quantised weights, keys and values in float16), so its text differs where the
two best logits are close. It also ends an answer at every end-of-generation token that the file names, which may be
more than ours.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import torch

from ..base.errors import ModelError
from ..base.records import file_hash
from ..drafters import methods
from ..model import fetch
from . import gguf_files, llama_cpp_server
from .rounds import Contestant

PREFIX = "llama.cpp:"


def note(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """How to read its rows of a table, and what it was built for.

    Args:
        settings: by name, see `LlamaCppPeer.settings`; at least one.
    """
    one = next(iter(settings.values()))
    features = ", ".join(re.findall(r"(\w+) = 1", one["built_for"]))
    return (
        "llama.cpp rounds in other places (quantised weights meet activations of 8 bits), so its answers may differ "
        f"from ours; each is timed by its own tokens.\nxllamacpp {one['xllamacpp']}, built with {features}."
    )


def module() -> ModuleType:
    """The Python package of llama.cpp.

    Raises:
        ModelError: it is not installed.
    """
    try:
        import xllamacpp
    except ImportError as error:
        words = f"the peer llama.cpp needs the package xllamacpp ({error}). Run `pip install xllamacpp`."
        raise ModelError(words) from error
    return xllamacpp


def files(model: str, dtype: str, gguf: Path | None = None) -> list[Path]:
    """What to race: the given file, or the model's; for the default the file it was made from, and it in our dtype.

    Args:
        model: the model's name, as `models.load` takes it.
        dtype: torch's name of the race's dtype.

    Raises:
        ModelError: another model and no file, or one that cannot be fetched or written.
    """
    if gguf is not None or Path(model).expanduser().is_file():
        return [gguf or Path(model).expanduser()]
    if model != "default":
        raise ModelError(f"the peer llama.cpp reads GGUF files; got {model!r}; give a GGUF file of it with --gguf.")
    found = fetch.fetch_gguf(source=fetch.DEFAULT)
    return [found, *(gguf_files.dequantised(found, kind) for name, kind in gguf_files.FLOATS.items() if name == dtype)]


def contestants(paths: Sequence[Path], context: int, ours: Sequence[str] = ()) -> dict[str, LlamaCppPeer]:
    """The peer by name: greedy for every file; where our prompt lookup is raced, also with its own, `ngram_simple`.

    `ngram_simple` drafts what followed an earlier occurrence of the last n tokens. It gets our longest n-gram and our
    number of tokens (its defaults are 12 and 48); it tries no shorter n-gram, and keeps no earlier answer.

    Args:
        paths: GGUF files.
        context: tokens of the longest prompt with its answer.
        ours: the methods of ours in the race.

    Raises:
        ModelError: a file that is not GGUF.
    """
    lookup = next((methods.settings(name) for name in ours if methods.parse(name)[0] == "prompt_lookup"), None)
    found = {}
    for path in paths:
        name = PREFIX + gguf_files.quantisation(path)
        found[name] = LlamaCppPeer(path, context)
        if lookup:
            found[f"{name}:ngram_simple"] = LlamaCppPeer(path, context, (lookup["max_n"], lookup["num_tokens"]))
    return found


class LlamaCppPeer(Contestant):
    """A GGUF file in llama.cpp's server, a process that starts with the first answer and ends with this object.

    Args:
        path: the file.
        context: tokens of the longest prompt with its answer.
        lookup: n of the n-gram looked up, and tokens drafted after it; None to draft nothing.
    """

    def __init__(self, path: Path, context: int, lookup: tuple[int, int] | None = None):
        self.path, self.context, self.lookup = path, context, lookup
        self.threads = torch.get_num_threads()

    @property
    def settings(self) -> dict[str, Any]:
        """What a record says of it."""
        lookup = {"size_n": self.lookup[0], "size_m": self.lookup[1]} if self.lookup else {}
        return {
            "file": self.path.name,
            "sha256": file_hash(self.path),
            "threads": self.threads,
            **lookup,
            "xllamacpp": module().__version__,
            "built_for": module().get_system_info(),
            "other": "llama.cpp's defaults",
        }

    @cached_property
    def _server(self) -> tuple[subprocess.Popen, str]:
        """The process, and where it listens."""
        settings = {"path": str(self.path), "context": self.context + 64}
        settings |= {"threads": self.threads, "lookup": self.lookup}
        server = subprocess.Popen(
            [sys.executable, "-m", llama_cpp_server.__name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        weakref.finalize(self, _end, server)
        with suppress(BrokenPipeError):  # then it answers nothing
            server.stdin.write(json.dumps(settings) + "\n")
            server.stdin.flush()
        answer = json.loads(server.stdout.readline() or '{"error": "it ended without an answer"}')
        if "error" in answer:
            raise ModelError(f"llama.cpp cannot load {self.path} ({answer['error']}).")
        return server, answer["address"].removeprefix("http://")

    def memory_bytes(self) -> int:
        """Resident memory of its process."""
        return psutil.Process(self._server[0].pid).memory_info().rss

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[list[int], int]:
        """The new tokens (a stop token included), and the forwards that they took.

        llama.cpp counts no forwards. Each gives one token more than it accepts, and the first reads the prompt.

        Raises:
            ModelError: llama.cpp refuses.
        """
        # Over HTTP it gives token ids (the calls of ``xllamacpp`` give text). That costs a millisecond or two per
        # answer, which counts as llama.cpp's time.
        asked = {"prompt": list(prompt_ids), "n_predict": max_new_tokens, "samplers": ["top_k"], "top_k": 1}
        asked |= {"cache_prompt": False, "return_tokens": True}
        connection = HTTPConnection(self._server[1])
        try:
            connection.request("POST", "/completion", json.dumps(asked), {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if "error" in answer:
            raise ModelError(f"llama.cpp refused: {answer['error']['message']}.")
        return answer["tokens"], len(answer["tokens"]) - answer["timings"].get("draft_n_accepted", 0)


def _end(server: subprocess.Popen) -> None:
    server.kill()
    server.wait()
    for pipe in (server.stdin, server.stdout):
        with suppress(BrokenPipeError):
            pipe.close()
