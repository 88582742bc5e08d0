"""Trees in Penn brackets as parallel text: sentences, and sequences that a parser writes."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from tf_transformer.config import DataConfig
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError
from tf_transformer.tasks.parallel_text import write_parallel_text
from tf_transformer.tasks.parsing.linearisation import ROOT, ROOTS, TRACE, linearise
from tf_transformer.tasks.parsing.trees import Tree, read_trees

logger = logging.getLogger(__name__)

WORDS, SEQUENCES = "words", "sequences"  # the languages of the parallel text
_BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})
_FORMAT = "2"  # another number makes the text of older runs again


def words_of(sentence: str) -> list[str]:
    """Splits a sentence at blanks; brackets become those of treebanks."""
    return sentence.translate(_BRACKETS).split()


def read_treebank(path: Path) -> Iterator[Tree]:
    """Reads the trees of a file, plain or .gz, under the root TOP, whatever its name was.

    Raises:
        UserError: if it cannot be read, has no tree or one that is not well-formed: with its
            line and column.
    """
    tree = None
    for tree in rooted(read_trees(read_lines(path), str(path))):
        yield tree
    if tree is None:
        raise UserError(
            f"{path} has no tree. Expected trees in Penn brackets, such as (S ...)."
        )


def rooted(trees: Iterable[Tree]) -> Iterator[Tree]:
    """Yields the trees under the root TOP, whatever its name was."""
    for tree in trees:
        yield Tree(ROOT, tree.children) if tree.label in ROOTS and tree.children else tree


def check_treebank(path: Path) -> None:
    """Reads a file to its end; UserError as `read_treebank` has it."""
    for _ in read_treebank(path):
        pass


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Reads the words and the sequence of each tree; both are "" if it has no words.

    Raises:
        UserError: as `read_treebank` has it.
    """
    return map(pair_of, read_treebank(path))


def as_parallel_text(data: DataConfig, folder: Path) -> DataConfig:
    """Writes the trees of the data into `folder` as parallel text; returns the data with it.

    Line n is of the n-th tree of the file; a tree without words gives two blank lines. What is
    there already of the same trees is left as it is.

    Raises:
        UserError: as `read_treebank` has it.
    """
    return write_parallel_text(data, folder, (WORDS, SEQUENCES), read_pairs, _FORMAT)


def pair_of(tree: Tree) -> tuple[str, str]:
    """Returns the words and the sequence of a tree; both are "" if it has no words."""
    words = [leaf.word or "" for leaf in tree.leaves() if leaf.label != TRACE]
    return (" ".join(words), " ".join(linearise(tree))) if words else ("", "")
