"""`specdec datastore`: build, describe, search and time the datastores that REST retrieves from."""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

from .options import positive

_DESCRIBED = ("created", "tokens", "documents", "vocab_size", "token_dtype", "index_dtype")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    build = actions.add_parser("build", help="build one from code, conversations, or texts of yours")
    build.add_argument("paths", nargs="*", metavar="PATH", help="text files, folders of them, or .jsonl files")
    text = "the .py files of the standard library and the installed packages"
    build.add_argument("--code", action="store_true", help=text)
    text = 'conversations: a .jsonl of strings, lists of token ids, or objects with "text" or "ids"'
    build.add_argument("--chat", type=Path, action="append", default=[], metavar="FILE", help=text)
    text = "the default model's own conversations, which come with this package (see specdec train selfchat)"
    build.add_argument("--selfchat", action="store_true", help=text)
    build.add_argument("--name", help="default: code, chat, or the name of the first PATH")
    build.add_argument("--limit", type=positive, metavar="TOKENS", help="stop after this many tokens")

    info = actions.add_parser("info", help="describe one, or list all")
    info.add_argument("name", nargs="?", help="a name, or a folder")
    info.add_argument("--verify", action="store_true", help="compare the hash of every file")

    query = actions.add_parser("query", help="look the end of a text up and show what follows it")
    query.add_argument("name", help="a name, or a folder")
    query.add_argument("text")
    query.add_argument("--max-n", type=positive, default=16, help="longest suffix looked up (default: 16)")
    query.add_argument("--min-n", type=positive, default=1, help="shortest suffix looked up (default: 1)")
    query.add_argument("--depth", type=positive, default=10, help="tokens of a continuation (default: 10)")
    query.add_argument("--nodes", type=positive, default=16, help="prefixes shown (default: 16)")

    bench = actions.add_parser("bench", help="time queries against the size of the datastore, cold and warm")
    bench.add_argument("name", help="a name, or a folder")
    sizes, text = (10**5, 10**6, 10**7), "tokens of the smaller stores built from its beginning (default: 1e5,1e6,1e7)"
    bench.add_argument("--sizes", type=_sizes, default=sizes, metavar="N,N,...", help=text)
    bench.add_argument("--queries", type=positive, default=2000, help="queries timed per size (default: 2000)")
    for parser in (build, query, bench):
        parser.add_argument("--model", default="default", help="whose tokenizer: default, a folder, or a hub name")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(float(part)) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; expected numbers of tokens such as 1e5,1e6")
    return sizes


def run(arguments: argparse.Namespace) -> int:
    return {"build": _build, "info": _info, "query": _query, "bench": _bench}[arguments.action](arguments)


def _build(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from ..measure.machine import peak_resident
    from ..stores import DatastoreError, build_store, code_files, files_under, identify, place, read_texts, tokenized

    chat = arguments.chat or arguments.selfchat
    if not (arguments.paths or arguments.code or chat):
        raise DatastoreError("Nothing to build from; expected --code, --selfchat, --chat FILE, or paths of texts.")
    first = arguments.paths[0] if arguments.paths else ""
    name = arguments.name or ("code" if arguments.code else "chat" if chat else Path(first).stem)
    tokenizer = _tokenizer(arguments.model)
    files = [*files_under(arguments.paths), *files_under(arguments.chat), *(code_files() if arguments.code else [])]
    flags = [flag for flag in ("--code", "--selfchat") if getattr(arguments, flag[2:])]
    sources = [*map(str, [*arguments.paths, *arguments.chat]), *flags]
    vocab_size = max(tokenizer.get_vocab().values()) + 1
    start = time.perf_counter()
    conversations: Any = ()
    if arguments.selfchat:
        from ..training.waves import documents as selfchat

        conversations = selfchat(tokenizer)
    with tqdm(files, desc="Reading", unit="file", file=sys.stderr) as progress:
        documents = chain(conversations, tokenized(read_texts(progress), tokenizer))
        store = build_store(name, documents, vocab_size, identify(tokenizer), sources, arguments.limit, progress.write)
    _describe(place(name), store.header)
    print(f"built in         {time.perf_counter() - start:.1f} s, peak memory {peak_resident() / 1e9:.2f} GB")
    return 0


def _info(arguments: argparse.Namespace) -> int:
    from ..model.fetch import home
    from ..stores import SuffixStore, place, read_header
    from ..stores.files import HEADER

    if arguments.name is None:
        folders = sorted(path.parent for path in (home() / "datastores").glob(f"*/{HEADER}"))
        for folder in folders:
            print(f"{folder.name:16} {read_header(folder)['tokens']:>14,} tokens  {folder}")
        if not folders:
            print(f"No datastore in {home() / 'datastores'}. Build one: `specdec datastore build --code`.")
        return 0
    store = SuffixStore.open(arguments.name, verify=arguments.verify)
    _describe(place(arguments.name), store.header)
    if arguments.verify:
        print(f"verified         {len(store.header['files'])} files, sizes and hashes as recorded")
    return 0


def _describe(folder: Path, header: dict[str, Any]) -> None:
    size = sum(file["bytes"] for file in header["files"].values())
    print(f"folder           {folder}\nbytes            {size:,}")
    for key in _DESCRIBED:
        value = header[key]
        print(f"{key:16} {value:,}" if isinstance(value, int) else f"{key:16} {value}")
    tokenizer = header["tokenizer"]
    named = f"{tokenizer['name']} ({tokenizer['fingerprint'][:12]})" if tokenizer else "-"
    print(f"tokenizer        {named}")
    print(f"sources          {', '.join(header['sources'])}")
    print("seconds          " + ", ".join(f"{key} {value:.1f}" for key, value in header["seconds"].items()))


def _query(arguments: argparse.Namespace) -> int:
    from ..drafters.rest import frequent_prefixes
    from ..stores import SuffixStore

    tokenizer = _tokenizer(arguments.model)
    store = SuffixStore.open(arguments.name, tokenizer)
    context = tokenizer.encode(arguments.text, add_special_tokens=False)
    start = time.perf_counter()
    lo, hi, length = store.find(context, arguments.max_n, arguments.min_n)
    seconds = time.perf_counter() - start
    if not length:
        print(f"no suffix of at least {arguments.min_n} tokens occurs ({1e6 * seconds:.0f} µs)")
        return 0
    matched = tokenizer.decode(context[len(context) - length :])
    print(f"{matched!r} ({length} tokens) occurs {hi - lo:,} times ({1e6 * seconds:.0f} µs)")
    ids, lengths = store.continuations(lo, hi, length, arguments.depth, k=512)
    tokens, parents, weights = frequent_prefixes(ids, lengths, arguments.nodes)
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(parents.tolist(), start=1):
        children.setdefault(parent, []).append(row)

    def show(row: int, depth: int) -> None:
        if row:
            share = weights[row - 1] / len(ids)
            print(f"{100 * share:5.1f} %  {'  ' * depth}{tokenizer.decode([tokens[row - 1]])!r}")
        for child in children.get(row, ()):
            show(child, depth + 1)

    show(0, -1)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from ..stores import SuffixStore
    from ..stores.bench import contexts_of_own_source, measure, table

    tokenizer = _tokenizer(arguments.model)
    store = SuffixStore.open(arguments.name, tokenizer)
    contexts = contexts_of_own_source(tokenizer, arguments.queries)
    rows = measure(store, arguments.sizes, contexts, lambda message: print(message, file=sys.stderr))
    print(table(rows))
    print(json.dumps(rows))
    return 0


def _tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    from ..model.fetch import fetch
    from ..stores import DatastoreError

    source = fetch() if model == "default" else model
    try:
        return AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise DatastoreError(f"The tokenizer of {model!r} cannot be loaded ({first}).") from error
