"""`tf-transformer draw GOLD OUTPUT`: a picture of a gold and a predicted tree."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.options import picture
from tf_transformer.cli.parser import integer
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.plot import draw_trees
from tf_transformer.tasks.parsing.trees import Tree, read_line

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("gold", metavar="GOLD", help="file of correct trees")
    add("trees", metavar="OUTPUT", help="file of a parser's trees")
    add("--line", type=integer, default=1, metavar="N", help="line to draw (default: 1)")
    add("--output", required=True, metavar="FILE", help="picture to write, .png, .svg or .pdf")


def command(options: argparse.Namespace) -> None:
    """Draws a tree from OUTPUT below the tree on the same line of GOLD.

    Both files have one tree per line in Penn brackets. Dashed boxes mark brackets that the
    other tree lacks.
    """
    output = picture(options.output)
    gold, tree = (_tree(path, options.line) for path in (options.gold, options.trees))
    draw_trees(gold, tree, output)
    logger.info("%s", output)


def _tree(path: str, wanted: int) -> Tree:
    """Reads the tree on a line, counted from 1."""
    lines = 0
    for lines, line in enumerate(read_lines(Path(path)), start=1):
        if lines == wanted:
            trees = read_line(line, path, lines)
            if len(trees) != 1:
                raise UserError(f"{path}:{lines}: expected one tree. Received: {len(trees)}.")
            return trees[0]
    raise UserError(f"--line must be between 1 and {lines:,} for {path}. Received: {wanted}.")
