"""llama.cpp's server, as a process of its own: `python -m specdec_core.race.llama_cpp_server`; see `peers_llama_cpp`.

It reads one line of JSON with its settings, answers with one line, {"address": ...} or {"error": ...}, and ends when
its standard input ends, so also when the process that started it has died. It ignores Ctrl-C, which is meant for that
process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any


def serve(settings: dict[str, Any]) -> Any:
    """Start the server, a thread of this process.

    Args:
        settings: ``path`` of the GGUF file, ``context`` in tokens, ``threads``, and ``lookup``: n of the n-gram looked
            up and the tokens drafted after it, or None to draft nothing.

    Raises:
        RuntimeError: llama.cpp cannot load the file.
    """
    import xllamacpp

    asked = xllamacpp.CommonParams()
    asked.model.path = settings["path"]
    asked.n_ctx, asked.n_parallel, asked.n_gpu_layers = settings["context"], 1, 0
    asked.cache_ram_mib = 0  # otherwise earlier prompts are kept
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = settings["threads"]
    asked.verbosity = -1
    if settings["lookup"]:
        asked.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        asked.speculative.ngram_simple.size_n, asked.speculative.ngram_simple.size_m = settings["lookup"]
    return xllamacpp.Server(asked)


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what llama.cpp prints is not an answer
    try:
        server = serve(json.loads(sys.stdin.readline()))
        answer = {"address": server.listening_address}
    except RuntimeError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), file=answers, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
