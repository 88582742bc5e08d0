"""`tf-transformer COMMAND`: one module per command, of the command's name."""

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from tf_transformer.cli.console import run_command
from tf_transformer.cli.parser import Parser
from tf_transformer.cli.process import run_process

COMMANDS = {
    "train": "train on parallel text, on trees or on labelled sentences",
    "translate": "translate stdin to stdout, a sentence a line",
    "parse": "parse stdin to stdout, a tree a line",
    "classify": "label stdin to stdout, a sentence a line",
    "baseline": "train and score a logistic regression on labelled sentences",
    "evaluate": "print BLEU and chrF of a run or a file, or the F1 of trees",
    "score": "print the log-probability of translations",
    "export": "write a SavedModel for TF Serving, after a self-test",
    "shortlist": "learn which tokens a sentence may be translated with",
    "average": "average the weights of checkpoints",
    "serve": "serve a run or a SavedModel over HTTP",
    "client": "translate stdin to stdout by a served model",
    "convert": "convert to CTranslate2, or from Marian",
    "curves": "print or draw the learning curves of runs",
    "draw": "draw a parse below the right tree",
    "attention": "draw what a run attends to",
    "heads": "measure which heads a run needs, and prune the others",
    "lengths": "draw BLEU against the length of the source",
    "tokenizer": "train a vocabulary for several runs to share",
    "doctor": "check text, vocabulary and memory before a training",
    "ablate": "train the rows of the paper's Table 3, at a scale",
    "recipe": "print in what a run departs from the paper",
    "card": "write and print what a run is, how good, and what it cost",
}


def build_parser(name: str | None = None) -> Parser:
    """The parser of all commands, with the options of the one that is called `name`.

    No other command's module is imported: most of the time of `--help` would be theirs.
    """
    parser = Parser(
        prog="tf-transformer", description="The Transformer in TensorFlow and Keras."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.type = str  # the rest of the line is for the command's own parser to check
    for command, help_line in COMMANDS.items():
        subparser = commands.add_parser(command, help=help_line)
        if command == name:
            module = importlib.import_module(f"tf_transformer.cli.{command}")
            subparser.description = module.DESCRIPTION
            module.add_arguments(subparser)
            subparser.set_defaults(module=module)
    return parser


def run() -> NoReturn:
    """The program `tf-transformer`."""
    run_process(main)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = build_parser(*arguments[:1]).parse_args(arguments)
    return run_command(options.module, options)


def main_of(module, prog: str, arguments: Sequence[str] | None = None) -> int:
    """The entry point of a single command, as train.py and export.py are."""
    parser = Parser(prog=prog, description=module.DESCRIPTION)
    module.add_arguments(parser)
    return run_command(module, parser.parse_args(arguments))


if __name__ == "__main__":
    run()
