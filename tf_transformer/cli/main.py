"""`tf-transformer COMMAND`: the table of commands and the program."""

import argparse
import importlib
import itertools
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from tf_transformer import __version__
from tf_transformer.base import former
from tf_transformer.base.errors import quoted
from tf_transformer.cli.console import run_command, width, wrapped
from tf_transformer.cli.parser import CommandParser, actions, usage
from tf_transformer.cli.process import run_process
from tf_transformer.config.settings import nearest


class Command(NamedTuple):
    """A command NAME; its module is imported when it is chosen.

    There, `add_NAME` adds the arguments to a parser, and `run_NAME` is called with the options;
    its docstring is the help.
    """

    heading: str  # of `--help`
    module: str  # in `tf_transformer.cli`
    help: str


COMMANDS = {
    "train": Command("train", "train", "train on parallel text"),
    "doctor": Command("train", "preparation", "check text and vocabulary before training"),
    "tokenizer": Command("train", "preparation", "train a vocabulary that runs can share"),
    "curves": Command("train", "runs", "print or draw the learning curves of runs"),
    "card": Command("train", "runs", "write and print a run's settings, scores, cost"),
    "average": Command("train", "runs", "average the weights of checkpoints"),
    "translate": Command("translate", "translate",
        "translate stdin to stdout, one sentence per line"),
    "generate": Command("translate", "translate", "translate text to create training pairs"),
    "attention": Command("translate", "translate", "draw the attention weights of a run"),
    "evaluate": Command("evaluate", "evaluation", "print BLEU and chrF of translations"),
    "score": Command("evaluate", "evaluation", "print the log-probability of translations"),
    "compare": Command("evaluate", "evaluation",
        "compare systems on a test set, with significance tests"),
    "tune": Command("evaluate", "evaluation",
        "choose length penalty, beam size and weights on dev text"),
    "export": Command("export", "export",
        "write a SavedModel for TF Serving, after a self-test"),
    "serve": Command("export", "serve", "serve a run or a SavedModel over HTTP"),
    "convert": Command("export", "export", "convert to CTranslate2 or Marian, or from Marian"),
}  # fmt: skip


def command_parser(name: str, prog: str | None = None) -> CommandParser:
    """Builds the parser of a command, whose module is imported only now."""
    module = importlib.import_module(f"tf_transformer.cli.{COMMANDS[name].module}")
    run = getattr(module, f"run_{name}")
    parser = CommandParser(prog=prog or f"tf-transformer {name}", description=run.__doc__)
    parser.set_defaults(command=run, stdout_is_data=False)
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
    for heading, group in itertools.groupby(COMMANDS.items(), lambda item: item[1].heading):
        lines += [f"{heading}:", *(f"    {name:<12}{it.help}" for name, it in group)]
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
    if name in former.COMMANDS:
        experiment = former.COMMANDS[name]
        parser.error(
            f"The command {name} is that of 1.1.0. In the repository of this version: "
            f"python -m experiments.{experiment}"
        )
    if name not in COMMANDS:
        parser.error(f"There is no command {quoted(name)}.{nearest(name, COMMANDS)}")
    return run_command(command_parser(name).parse(arguments[1:]))


def main_of(name: str, prog: str) -> int:
    """Runs a command as the program `prog`, such as train.py; returns its exit status."""
    return run_command(command_parser(name, prog).parse(sys.argv[1:]))


if __name__ == "__main__":
    run()
