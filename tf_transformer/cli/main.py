"""`tf-transformer COMMAND`: the list of commands and the program.

The command NAME is the module NAME: `add_NAME` declares its arguments, `run_NAME` does the
work, and its docstring is the help.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from tf_transformer import __version__
from tf_transformer.base.errors import quoted
from tf_transformer.cli.console import run_command, width, wrapped
from tf_transformer.cli.parser import CommandParser, actions, usage
from tf_transformer.cli.process import run_process
from tf_transformer.config.settings import nearest

# By heading of `--help`: a line for each command.
GROUPS = {
    "train": {
        "train": "train on parallel text, trees or labelled sentences",
        "doctor": "check text and vocabulary before training",
        "tokenizer": "train a vocabulary for several runs to share",
        "curves": "print or draw the learning curves of runs",
        "card": "write and print a run's settings, scores and cost",
        "average": "average the weights of checkpoints",
    },
    "translate": {
        "translate": "translate stdin to stdout, one sentence per line",
        "generate": "translate text to create training pairs",
        "attention": "draw the attention weights of a run",
    },
    "evaluate": {
        "evaluate": "print BLEU and chrF of translations",
        "score": "print the log-probability of translations",
        "compare": "compare systems on a test set, with significance tests",
        "tune": "choose length penalty, beam size and weights on dev text",
    },
    "export": {
        "export": "write a SavedModel for TF Serving, after a self-test",
        "serve": "serve a run or a SavedModel over HTTP",
        "convert": "convert to CTranslate2 or Marian, or from Marian",
    },
    "parse": {
        "parse": "parse stdin to stdout, one tree per line, or score trees",
        "draw": "draw a parse below the correct tree",
        "classify": "label stdin to stdout, one sentence per line",
    },
    "paper": {
        "ablate": "train the rows of the paper's Table 3, scaled down",
        "heads": "measure which heads a run needs and prune the others",
        "lengths": "draw BLEU against source length",
    },
}
COMMANDS = [name for commands in GROUPS.values() for name in commands]


def command_parser(name: str, prog: str | None = None) -> CommandParser:
    """Builds the parser of a command, whose module is imported only now."""
    module = importlib.import_module(f"tf_transformer.cli.{name}")
    command = getattr(module, f"run_{name}")
    parser = CommandParser(prog=prog or f"tf-transformer {name}", description=command.__doc__)
    parser.set_defaults(command=command, stdout_is_data=False)
    getattr(module, f"add_{name}")(parser)
    text = "show where in the program an error arose"
    parser.add_argument("--traceback", action="store_true", help=text)
    if not parser.usage:
        needed = [each for each in actions(parser) if each.required or not each.option_strings]
        parser.usage = " ".join(["%(prog)s [OPTIONS]", *map(usage, needed)])
    return parser


def main_parser() -> CommandParser:
    """Builds the parser of the command's name, whose help lists all commands."""
    lines = []
    for heading, commands in GROUPS.items():
        lines += [f"{heading}:", *(f"    {name:<12}{line}" for name, line in commands.items())]
    parser = CommandParser(
        prog="tf-transformer",
        usage="%(prog)s COMMAND ...",
        description="The Transformer in TensorFlow and Keras.",
        epilog=wrapped("\n".join(lines), width(), hanging=12 * " "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", help="see COMMAND --help")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def run() -> NoReturn:
    """Runs the program `tf-transformer`."""
    run_process(main)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line, by default the process's; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = main_parser()
    name = parser.parse(arguments[:1]).command
    if name not in COMMANDS:
        parser.error(f"There is no command {quoted(name)}.{nearest(name, COMMANDS)}")
    return run_command(command_parser(name).parse(arguments[1:]))


def main_of(name: str, prog: str) -> int:
    """Runs a command as the program `prog`, such as train.py; returns its exit status."""
    return run_command(command_parser(name, prog).parse(sys.argv[1:]))


if __name__ == "__main__":
    run()
