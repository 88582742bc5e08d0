"""Picture of a predicted tree and the gold tree, with differences marked."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_transformer.errors import UserError
from tf_transformer.plots.figure import families_for, missing_glyphs_logged, new_figure, save
from tf_transformer.tasks.parsing.bracket_rules import Line, matches
from tf_transformer.tasks.parsing.linearisation import TRACE
from tf_transformer.tasks.parsing.trees import Tree

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
    """A constituent of a picture.

    Attributes:
        label: as written in the tree.
        x: inches from the left.
        level: distance from the words in rows, greater than that of its children.
        below: (x, level) of its children, to which lines are drawn; words are at level 0.
        same: whether the other tree has the same bracket, or the rules ignore it.
    """

    label: str
    x: float
    level: int
    below: tuple[tuple[float, int], ...]
    same: bool


def draw_trees(gold: Tree, output: Tree, path: Path) -> None:
    """Draws the gold tree above the words and the output below, upside down.

    Brackets that the other tree lacks are boxed, with dashed lines, in vermilion.

    Args:
        gold: the gold tree; its traces are left out.
        output: the predicted tree.
        path: the picture's file, a .png, .svg or .pdf.

    Raises:
        UserError: if the words differ, matplotlib is missing or the file cannot be written.
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
    top, bottom = (max(node.level for node in half) for half in (above, below))
    width = max(centres[-1] + _width(words[-1]) / 2 + _MARGIN, _NARROWEST)
    figure = new_figure(width, (top + bottom + 2.2) * _LEVEL, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(-(bottom + 1.6), top + 0.6))
    axes.set_axis_off()
    families = families_for([*words, *(node.label for node in (*above, *below))])
    font = {"fontfamily": families, "parse_math": False, "ha": "center", "va": "center"}
    for x, word in zip(centres, words, strict=True):
        axes.text(x, 0, word, style="italic", **font)
    for half, direction in ((above, 1), (below, -1)):
        for node in half:
            _draw(axes, node, direction, font)
    note = "above: gold; below: output; boxed, dashed: not in the other tree"
    axes.text(_MARGIN, -(bottom + 1.2), note, fontsize="small", va="center")
    with missing_glyphs_logged():
        save(figure, path, dpi=150)


def nodes(gold: Tree, output: Tree) -> tuple[list[Node], list[Node]]:
    """Returns the constituents of both trees, in preorder."""
    lines = Line([gold]), Line([output])
    pairs = matches(*lines)
    nodes = []
    for side, (tree, line) in enumerate(zip((gold, output), lines, strict=True)):
        counted = {bracket.index for bracket in line.brackets()}
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
    return Tree(tree.label, tuple(_kept(tree)))


def _kept(tree: Tree) -> Iterator[Tree]:
    """Yields the children of a tree that have words other than traces."""
    for child in tree.children:
        if child.word is not None and child.label != TRACE:
            yield child
        elif child.word is None and any(leaf.label != TRACE for leaf in child.leaves()):
            yield _without_traces(child)
