"""The command `draw`."""

import argparse
import logging
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.cli.options import picture, require_between
from tf_transformer.cli.parser import integer
from tf_transformer.data.text import read_lines
from tf_transformer.tasks.parsing.brackets import draw_trees
from tf_transformer.tasks.parsing.trees import Tree, read_line

logger = logging.getLogger(__name__)


def add_draw(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `draw`."""
    add = parser.add_argument
    add("gold", metavar="GOLD", help="file of correct trees")
    add("trees", metavar="OUTPUT", help="file of a parser's trees")
    add("--line", type=integer, default=1, metavar="N", help="line to draw (default: 1)")
    add("--output", required=True, metavar="FILE", help="picture to write, .png, .svg or .pdf")


def run_draw(options: argparse.Namespace) -> None:
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
    lines = list(read_lines(Path(path)))
    require_between("--line", wanted, 1, len(lines), f", the lines of {path}")
    trees = read_line(lines[wanted - 1], path, wanted)
    if len(trees) != 1:
        raise UserError(f"{path}:{wanted}: expected one tree. Received: {len(trees)}.")
    return trees[0]
