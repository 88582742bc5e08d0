"""`tf-transformer COMMAND`: one module per command, named after it.

A module has `add_arguments(parser)` and `command(options)`, whose docstring is the help.
"""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from tf_transformer.cli.console import run_command
from tf_transformer.cli.parser import Parser, add_command
from tf_transformer.cli.process import run_process
from tf_transformer.cli.terminal import width, wrapped

# Commands by the subpackage of their modules, in the order of `--help`.
GROUPS = {
    "core": {
        "train": "train on parallel text, trees or labelled sentences",
        "translate": "translate stdin to stdout, one sentence per line",
        "evaluate": "print BLEU and chrF of translations, or F1 of parse trees",
        "score": "print the log-probability of translations",
        "export": "write a SavedModel for TF Serving, after a self-test",
        "serve": "serve a run or a SavedModel over HTTP",
    },
    "tools": {
        "doctor": "check text and vocabulary before training",
        "tokenizer": "train a vocabulary for several runs to share",
        "compare": "compare systems on a test set, with significance tests",
        "curves": "print or draw the learning curves of runs",
        "card": "write and print a run's settings, scores and cost",
        "average": "average the weights of checkpoints",
        "tune": "choose length penalty, beam size and weights on dev text",
        "attention": "draw the attention weights of a run",
        "generate": "translate text to create training pairs",
        "convert": "convert to CTranslate2, or from Marian",
        "parse": "parse stdin to stdout, one tree per line",
        "draw": "draw a parse below the correct tree",
        "classify": "label stdin to stdout, one sentence per line",
    },
    "studies": {
        "ablate": "train the rows of the paper's Table 3, scaled down",
        "heads": "measure which heads a run needs and prune the others",
        "lengths": "draw BLEU against source length",
    },
}

GROUP_OF = {command: group for group, commands in GROUPS.items() for command in commands}


def build_parser(name: str | None = None) -> Parser:
    """Builds the parser of all commands, with the options of the command `name` only.

    Importing the modules of all commands would make `--help` slow.
    """
    parser = Parser(
        prog="tf-transformer",
        description="The Transformer in TensorFlow and Keras.",
        epilog=_list_of_commands(),
        raw_epilog=True,
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", prog=parser.prog, help="see COMMAND --help"
    )
    commands.type = str  # the command's own parser checks the rest of the line
    for command, group in GROUP_OF.items():
        subparser = commands.add_parser(command)
        if command == name:
            module = importlib.import_module(f"tf_transformer.cli.{group}.{command}")
            add_command(subparser, module)
    return parser


def _list_of_commands() -> str:
    """Formats the commands by group, one line per command if it fits."""
    lines = []
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"    {name:<12}{line}" for name, line in commands.items())]
    return wrapped("\n".join(lines), width(), hanging=12 * " ")


def run() -> NoReturn:
    """Runs the program `tf-transformer`."""
    run_process(main)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line, by default the process's; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return run_command(build_parser(*arguments[:1]).parse(arguments))


def main_of(module: ModuleType, prog: str, arguments: Sequence[str] | None = None) -> int:
    """Runs one command as the program `prog`, such as train.py; returns its exit status."""
    parser = Parser(prog=prog)
    add_command(parser, module)
    return run_command(parser.parse(arguments))


if __name__ == "__main__":
    run()
