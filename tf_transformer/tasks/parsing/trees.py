"""Constituency trees in the brackets of the Penn Treebank: reading, writing, traversing."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tf_transformer.base.errors import UserError, shortened
from tf_transformer.data.text import read_lines

# Labels of the root in treebanks and parsers.
ROOTS = frozenset(("", "TOP", "ROOT", "S1"))
ROOT = "TOP"
TRACE = "-NONE-"
# Deeper nesting means a damaged file: the deepest tree of GUM and CRAFT has 34 levels. The
# limit makes recursion over trees safe.
MAX_DEPTH = 200

_TOKEN = re.compile(r"[()]|[^\s()]+")
_ONE_WORD = "a tag takes a single word, as in (NN word)"  # in messages
_ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-"})


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent with its children, or a word under its part-of-speech tag.

    Attributes:
        label: a constituent's label or a word's tag, as written; "" if it is missing.
        children: the children of a constituent, in order; empty for a word.
        word: the word under a tag; None for a constituent.
    """

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def __str__(self) -> str:
        """Formats the tree on one line: (S (NP (PRP We)) (VP (VBD saw)))."""
        content = [self.word] if self.word is not None else map(str, self.children)
        return f"({' '.join([self.label, *content])})"

    def leaves(self) -> Iterator["Tree"]:
        """Yields the tagged words, from left to right."""
        if self.word is not None:
            yield self
        for child in self.children:
            yield from child.leaves()

    def words(self) -> list[str]:
        """Returns the words, from left to right."""
        return [leaf.word or "" for leaf in self.leaves()]


def words_of(sentence: str) -> list[str]:
    """Splits a sentence at white space; its brackets become -LRB- and -RRB-."""
    return sentence.translate(_ESCAPED).split()


def read_treebank(path: Path) -> Iterator[Tree]:
    """Yields the trees of a file, plain or .gz, with the root renamed to TOP.

    Raises:
        UserError: if the file cannot be read, has no tree, or has one that is not well-formed;
            the message then names its line and column.
    """
    tree = None
    for tree in read_trees(read_lines(path), str(path)):
        yield rooted(tree)
    if tree is None:
        raise UserError(
            f"{path} has no tree. Expected trees in Penn brackets, such as (S ...)."
        )


def check_treebank(path: Path) -> None:
    """Reads a file to its end to find errors; see `read_treebank`."""
    for _ in read_treebank(path):
        pass


def rooted(tree: Tree) -> Tree:
    """Returns the tree with a root of any usual name renamed to TOP."""
    return Tree(ROOT, tree.children) if tree.label in ROOTS and tree.children else tree


def read_line(line: str, name: str = "text", number: int = 1) -> tuple[Tree, ...]:
    """Reads the trees of one line, none if it is blank; UserError as in `read_trees`."""
    return tuple(read_trees([line], name, number))


@dataclass(slots=True)
class _Open:
    """A constituent that is not closed yet; its bracket is at `place`."""

    place: str
    label: str | None = None
    word: str | None = None
    children: list[Tree] = field(default_factory=list)


def read_trees(lines: Iterable[str], name: str = "text", start: int = 1) -> Iterator[Tree]:
    """Yields all trees of a file, one per line or spread over several lines.

    Args:
        lines: the file's lines; blank ones are ignored, but count in line numbers.
        name: the file's name, for messages.
        start: the number of the first line, for messages.

    Raises:
        UserError: if a tree is not well-formed; the message names line and column.
    """
    stack: list[_Open] = []
    for number, line in enumerate(lines, start):
        for match in _TOKEN.finditer(line):
            token, place = match.group(), f"{name}:{number}:{match.start() + 1}"
            if token == "(":
                _open(stack, place)
            elif token == ")":
                tree = _close(stack, place)
                if stack:
                    stack[-1].children.append(tree)
                else:
                    yield tree
            else:
                _add_text(stack, token, place)
    if stack:
        problem = "the bracket opened here is never closed; add the missing )"
        raise _malformed(stack[0].place, problem)


def _open(stack: list[_Open], place: str) -> None:
    if stack:
        parent = stack[-1]
        if parent.word is not None:
            after = f"a bracket after the word {shortened(parent.word)}"
            raise _malformed(place, f"{after}; {_ONE_WORD}")
        parent.label = parent.label or ""
    if len(stack) == MAX_DEPTH:
        problem = f"brackets nested more than {MAX_DEPTH} deep; look for missing )"
        raise _malformed(place, problem)
    stack.append(_Open(place))


def _close(stack: list[_Open], place: str) -> Tree:
    if not stack:
        problem = "a ) that closes nothing; remove it, or add the missing ("
        raise _malformed(place, problem)
    done = stack.pop()
    if done.label is None:
        raise _malformed(place, "empty brackets (); write a label, as in (NP (NN word))")
    return Tree(done.label, tuple(done.children), done.word)


def _add_text(stack: list[_Open], text: str, place: str) -> None:
    if not stack:
        problem = "outside all brackets; put it into brackets, as in (NN word)"
        raise _malformed(place, f"{shortened(text)} {problem}")
    top = stack[-1]
    if top.label is None:
        top.label = text
    elif top.children or top.word is not None:
        problem = f"in a bracket that is already complete; {_ONE_WORD}"
        raise _malformed(place, f"{shortened(text)} {problem}")
    else:
        top.word = text


def _malformed(place: str, problem: str) -> UserError:
    return UserError(f"{place}: not a well-formed tree: {problem}.")
