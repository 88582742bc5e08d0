"""`tf-transformer recipe diff RUN paper`: departures from the paper or another recipe."""

import argparse

from tf_transformer.cli.options import RUN_HELP, open_run
from tf_transformer.cli.terminal import print_report
from tf_transformer.config.recipes import RECIPES
from tf_transformer.data.normalization import settings_of
from tf_transformer.studies.departures import describe_departures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("action", choices=("diff",), help="compare RUN with RECIPE")
    add("run", metavar="RUN", help=RUN_HELP)
    recipes = f"{', '.join(RECIPES)} (default: paper)"
    add("recipe", nargs="?", default="paper", metavar="RECIPE", help=recipes)


def command(options: argparse.Namespace) -> None:
    """Prints how a run departs from a recipe, one setting per line.

    A line has the run's value, the recipe's value and its source. For the recipe `paper`,
    settings that the paper does not have follow.
    """
    run = open_run(options.run, None)
    tokenizer = settings_of(run.tokenizer)
    print_report("\n".join(describe_departures(run.config, options.recipe, tokenizer)) + "\n")
