"""`tf-transformer COMMAND`: one module per command."""

import argparse
import sys
from collections.abc import Sequence

from tf_transformer.cli import (
    ablate,
    attention,
    average,
    baseline,
    card,
    classify,
    client,
    convert,
    curves,
    doctor,
    draw,
    evaluate,
    export,
    heads,
    lengths,
    parse,
    recipe,
    score,
    serve,
    tokenizer,
    train,
    translate,
)
from tf_transformer.cli.console import run_command

COMMANDS = {
    "train": train,
    "translate": translate,
    "parse": parse,
    "classify": classify,
    "baseline": baseline,
    "evaluate": evaluate,
    "score": score,
    "export": export,
    "average": average,
    "serve": serve,
    "client": client,
    "convert": convert,
    "curves": curves,
    "draw": draw,
    "attention": attention,
    "heads": heads,
    "lengths": lengths,
    "tokenizer": tokenizer,
    "doctor": doctor,
    "ablate": ablate,
    "recipe": recipe,
    "card": card,
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tf-transformer", description="The Transformer in TensorFlow and Keras."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        help_line = module.DESCRIPTION.partition(";")[0].partition(".")[0]
        subparser = commands.add_parser(name, description=module.DESCRIPTION, help=help_line)
        module.add_arguments(subparser)
        subparser.set_defaults(module=module)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    return run_command(options.module, options)


def main_of(module, prog: str, arguments: Sequence[str] | None = None) -> int:
    """The entry point of a single command, as train.py and export.py are."""
    parser = argparse.ArgumentParser(prog=prog, description=module.DESCRIPTION)
    module.add_arguments(parser)
    return run_command(module, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
