"""`specdec train`: the target's own conversations, and the weights of the drafters that learn from them."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .options import load_model, positive

if TYPE_CHECKING:
    from ..model.loaded import LoadedModel

_TEXT = ("selfchat", "states", "pack")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a recipe (mtp, eagle, medusa, draft_model, ...); selfchat: let the target write the training text; "
    text += "states: read the text that comes with the package again; pack: that text from a folder of conversations; "
    text += "list: all recipes; cards: what the weights that come with the package say about themselves"
    parser.add_argument("name", metavar="NAME", help=text)
    parser.add_argument("--folder", type=Path, help="of the conversations (default: in the cache, by the model's name)")
    parser.add_argument("--model", default="default", help="the target: default, a folder, or a hub name")
    parser.add_argument("--dtype", default="auto", help="of the target (default: what is fast and correct here)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default: auto)")
    parser.add_argument("--threads", type=positive, help="CPU threads of torch (default: torch's choice)")
    text = parser.add_argument_group("selfchat and states")
    text.add_argument("--answer-tokens", type=positive, default=1_500_000, metavar="N", help="default: 1500000")
    text.add_argument("--rows", type=positive, default=256, metavar="B", help="conversations at a time (default: 256)")
    text.add_argument("--length", type=positive, default=384, metavar="L", help="tokens of each (default: 384)")
    text.add_argument("--part", type=_part, default=(0, 1), metavar="I/N", help="process I of N side by side")
    text.add_argument("--seed", type=int, default=0, help="of the text, or of a recipe's order and first weights")
    recipe = parser.add_argument_group("recipes")
    recipe.add_argument("--out", type=Path, metavar="FILE", help="default: NAME.safetensors in the cache")
    recipe.add_argument("--waves", type=positive, metavar="N", help="read the first N waves only")
    recipe.add_argument("--updates", type=positive, metavar="N", help="of the weights (default: the recipe's)")
    recipe.add_argument("--batch", type=positive, metavar="B", help="conversations an update (default: the recipe's)")
    recipe.add_argument("--rate", type=float, help="highest learning rate (default: the recipe's)")
    recipe.add_argument("--optimizer", choices=("muon", "adamw"), help="default: the recipe's, muon")
    recipe.add_argument("--vocabulary", type=positive, metavar="K", help="tokens drafted (default: the recipe's)")
    recipe.add_argument("--start", type=Path, metavar="FILE", help="go on from these weights, with another --seed")
    recipe.add_argument("--stop-after", type=positive, metavar="N", help="interrupt at update N, to go on later")


def _part(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 0 <= int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r}; expected I/N with 0 <= I < N, such as 0/2")
    return int(index), int(count)


def run(arguments: argparse.Namespace) -> int:
    from ..drafters import weights
    from ..training import recipes, waves

    if arguments.name == "list":
        for recipe in recipes.RECIPES.values():
            print(f"{recipe.name:14} {recipe.about}")
        return 0
    if arguments.name == "cards":
        for path in sorted(weights.SHIPPED.glob("*.safetensors")):
            print(f"{path.name}, {path.stat().st_size / 1e6:.1f} MB: {weights.read_card(path)}")
        print("ablations, whose weights are not kept:\n")
        for card in weights.ablations():
            print(card)
        return 0
    loaded = load_model(arguments)
    print(f"{loaded.label}: {loaded.why}", file=sys.stderr)
    folder = arguments.folder or waves.folder_for(loaded.path.name)
    if arguments.name == "selfchat":
        sizes = arguments.answer_tokens, arguments.rows, arguments.length
        waves.write(loaded, folder, *sizes, arguments.seed, arguments.part)
    elif arguments.name == "states":
        waves.states(loaded, folder, rows=arguments.rows)
    elif arguments.name == "pack":
        waves.pack(folder, arguments.out or folder / "selfchat.npz", loaded.tokenizer)
    else:
        return _cook(arguments, loaded, folder)
    print(folder)
    return 0


def _cook(arguments: argparse.Namespace, loaded: LoadedModel, folder: Path) -> int:
    from ..base.errors import SpecdecError
    from ..drafters import weights
    from ..training import recipes
    from ..training.corpus import Corpus

    if arguments.name not in recipes.RECIPES:
        raise SpecdecError(f"no recipe {arguments.name!r}; choose from: {', '.join((*recipes.RECIPES, *_TEXT))}.")
    recipe = recipes.RECIPES[arguments.name]
    asked = {name: getattr(arguments, name) for name in ("updates", "rate", "seed", "optimizer")}
    asked |= {"rows": arguments.batch}
    schedule = replace(recipe.schedule, **{name: value for name, value in asked.items() if value is not None})
    recipe = replace(recipe, schedule=schedule, vocabulary=arguments.vocabulary or recipe.vocabulary)
    work = folder / (f"{recipe.name}-{schedule.seed}" if arguments.start else recipe.name)
    out = arguments.out or work / f"{recipe.name}.safetensors"
    corpus = Corpus(folder, arguments.waves)
    recipes.cook(recipe, loaded, corpus, work, out, arguments.stop_after, arguments.start)
    if out.exists():
        print(f"{out.name}, {out.stat().st_size / 1e6:.1f} MB: {weights.read_card(out)}")
    else:
        print(f"interrupted as asked; more in {work}")
    return 0
