"""Treebanks in Penn brackets, read as trees or as pairs of words and linearised trees."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tf_transformer.data.text import read_lines
from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.linearisation import ROOT, ROOTS, TRACE, linearise
from tf_transformer.tasks.parsing.trees import Tree, read_trees

_BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})


def words_of(sentence: str) -> list[str]:
    """Splits a sentence at white space; its brackets become -LRB- and -RRB-."""
    return sentence.translate(_BRACKETS).split()


def read_treebank(path: Path) -> Iterator[Tree]:
    """Yields the trees of a file, plain or .gz, with the root renamed to TOP.

    Raises:
        UserError: if the file cannot be read, has no tree, or has one that is not well-formed;
            the message then names its line and column.
    """
    tree = None
    for tree in rooted(read_trees(read_lines(path), str(path))):
        yield tree
    if tree is None:
        raise UserError(
            f"{path} has no tree. Expected trees in Penn brackets, such as (S ...)."
        )


def rooted(trees: Iterable[Tree]) -> Iterator[Tree]:
    """Yields the trees with a root of any usual name renamed to TOP."""
    for tree in trees:
        yield Tree(ROOT, tree.children) if tree.label in ROOTS and tree.children else tree


def check_treebank(path: Path) -> None:
    """Reads a file to its end to find errors; see `read_treebank`."""
    for _ in read_treebank(path):
        pass


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the words and the linearisation of each tree of a file; see `pair_of`.

    Raises:
        UserError: see `read_treebank`.
    """
    return map(pair_of, read_treebank(path))


def pair_of(tree: Tree) -> tuple[str, str]:
    """Returns the words and the linearisation of a tree; both are "" if it has no words."""
    words = [leaf.word or "" for leaf in tree.leaves() if leaf.label != TRACE]
    return (" ".join(words), " ".join(linearise(tree))) if words else ("", "")
