"""`tf-transformer recipe diff RUN paper`: what departs from the paper's recipe, or another."""

import argparse

from tf_transformer.cli.options import open_run
from tf_transformer.config.recipes import RECIPES
from tf_transformer.data.normalization import settings_of
from tf_transformer.studies.departures import describe_departures

DESCRIPTION = (
    "Prints in what a run departs from a recipe, one setting a line: the run's value, the "
    "recipe's and where it is from; for the paper also what the paper has no setting for."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("diff",), help="the comparison")
    parser.add_argument("run", metavar="RUN", help="run directory of train.py")
    parser.add_argument(
        "recipe", nargs="?", default="paper", metavar="RECIPE", help=f"{', '.join(RECIPES)}"
    )


def command(options: argparse.Namespace) -> None:
    run = open_run(options.run, None)
    own = settings_of(run.tokenizer)
    print("\n".join(describe_departures(run.config, options.recipe, own)))
