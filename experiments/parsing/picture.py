"""A picture of two trees over the same words: what a parser has got wrong."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common import new_figure, save
from experiments.parsing.brackets import Line, matches
from experiments.parsing.trees import TRACE, Tree
from tf_transformer import UserError

# In inches, for 10-point text.
_CHARACTER = 0.085
_GAP = 0.14
_LEVEL = 0.36
_MARGIN = 0.15
_NARROWEST = 5.2  # room for the note
# Vermilion of Okabe and Ito's colour-blind palette; boxes and dashes show it without colour.
_DIFFERENT = "#d55e00"


@dataclass(frozen=True)
class Node:
    """A constituent of a picture."""

    label: str  # as written in the tree
    x: float  # inches from the left
    level: int  # rows from the words, more than its children
    below: tuple[tuple[float, int], ...]  # (x, level) of its children; words are at level 0
    same: bool  # whether the other tree has it too, or the rules ignore it


def draw_trees(gold: Tree, output: Tree, path: Path) -> None:
    """Draws the gold tree above the words and the output below, upside down.

    Brackets that the other tree lacks are boxed, with dashed lines, in vermilion; traces are
    left out. Raises UserError if the words differ, matplotlib is missing or the file cannot be
    written.
    """
    gold, output = _without_traces(gold), _without_traces(output)
    words = gold.words()
    if not words or words != output.words():
        raise UserError(
            "Both trees must be over the same words. Received: "
            f"{' '.join(words) or 'none'}, and {' '.join(output.words()) or 'none'}."
        )
    centres = _centres(words)
    above, below = nodes(gold, output)
    top, bottom = (max((node.level for node in half), default=0) for half in (above, below))
    width = max(centres[-1] + _width(words[-1]) / 2 + _MARGIN, _NARROWEST)
    figure = new_figure(width, (top + bottom + 2.2) * _LEVEL)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(-(bottom + 1.6), top + 0.6))
    axes.set_axis_off()
    font = {"parse_math": False, "ha": "center", "va": "center"}
    for x, word in zip(centres, words, strict=True):
        axes.text(x, 0, word, style="italic", **font)
    for half, direction in ((above, 1), (below, -1)):
        for node in half:
            _draw(axes, node, direction, font)
    note = "above: gold; below: output; boxed, dashed: not in the other tree"
    axes.text(_MARGIN, -(bottom + 1.2), note, fontsize="small", va="center")
    save(figure, path)


def nodes(gold: Tree, output: Tree) -> tuple[list[Node], list[Node]]:
    """Returns the constituents of both trees, in preorder."""
    lines = Line([gold]), Line([output])
    pairs = matches(*lines)
    nodes = []
    for side, (tree, line) in enumerate(zip((gold, output), lines, strict=True)):
        counted = {bracket.index for bracket in line.brackets}
        different = counted - {pair[side].index for pair in pairs}
        nodes.append(_nodes_of(tree, different))
    return nodes[0], nodes[1]


def _nodes_of(tree: Tree, different: set[int]) -> list[Node]:
    words = iter(_centres(tree.words()))
    nodes: list[Node | None] = []

    def add(subtree: Tree) -> tuple[float, int]:
        if subtree.word is not None:
            return next(words), 0
        index = len(nodes)
        nodes.append(None)  # filled in after its children
        below = tuple(add(child) for child in subtree.children)
        x, level = (below[0][0] + below[-1][0]) / 2, 1 + max(level for _, level in below)
        nodes[index] = Node(subtree.label, x, level, below, index not in different)
        return x, level

    add(tree)
    return [node for node in nodes if node is not None]


def _centres(words: list[str]) -> list[float]:
    """Returns the centre of each word, in inches from the left."""
    centres, left = [], _MARGIN
    for word in words:
        centres.append(left + _width(word) / 2)
        left += _width(word) + _GAP
    return centres


def _width(word: str) -> float:
    return max(len(word), 6) * _CHARACTER  # as wide as most labels


def _draw(axes, node: Node, direction: int, font: dict[str, Any]) -> None:
    color, style = ("black", "solid") if node.same else (_DIFFERENT, "dashed")
    y = direction * node.level
    line = {"color": color, "linestyle": style, "linewidth": 1, "zorder": 1}
    axes.plot((node.below[0][0], node.below[-1][0]), (y, y), **line)  # spans the children
    for x, level in node.below:
        axes.plot((x, x), (y, direction * (level or 0.35)), **line)  # down to a child
    box = {"facecolor": "white", "edgecolor": "none" if node.same else color, "pad": 2}
    weight = "normal" if node.same else "bold"
    axes.text(node.x, y, node.label, bbox=box, zorder=2, color=color, weight=weight, **font)


def _without_traces(tree: Tree) -> Tree:
    """Returns a tree without traces and without constituents of nothing else."""
    kept = (c for c in tree.children if any(leaf.label != TRACE for leaf in c.leaves()))
    return Tree(tree.label, tuple(map(_without_traces, kept)), tree.word)
