"""Constituency trees in the brackets of the Penn Treebank: reading, writing, traversing."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tf_transformer.errors import UserError, shortened

# Deeper nesting means a damaged file: the deepest tree of GUM and CRAFT has 34 levels. The
# limit makes recursion over trees safe.
MAX_DEPTH = 200

_TOKEN = re.compile(r"[()]|[^\s()]+")


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

    def __post_init__(self) -> None:
        if self.children and self.word is not None:
            raise ValueError(
                "A tree must have `children` or a `word`, not both. Received: "
                f"label={self.label}, {len(self.children)} children, word={self.word}."
            )

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
        return [leaf.word for leaf in self.leaves() if leaf.word is not None]


def read_trees(lines: Iterable[str], name: str = "text", start: int = 1) -> Iterator[Tree]:
    """Yields all trees of a file, one per line or spread over several lines.

    Args:
        lines: the file's lines; blank ones are ignored, but count in line numbers.
        name: the file's name, for messages.
        start: the number of the first line, for messages.

    Raises:
        UserError: if a tree is not well-formed; the message names line and column.
    """
    reader = _Reader(name)
    for number, line in enumerate(lines, start):
        yield from reader.read(line, number)
    reader.finish()


def read_line(line: str, name: str = "text", number: int = 1) -> tuple[Tree, ...]:
    """Reads the trees of one line, none if it is blank; UserError as in `read_trees`."""
    return tuple(read_trees([line], name, number))


@dataclass(slots=True)
class _Open:
    """A constituent that is not closed yet."""

    line: int
    column: int
    label: str | None = None
    word: str | None = None
    children: list[Tree] = field(default_factory=list)


class _Reader:
    """Reads trees incrementally from lines; a tree is complete when its brackets balance."""

    def __init__(self, name: str):
        self._name = name
        self._stack: list[_Open] = []
        self._line = self._column = 0

    def read(self, line: str, number: int) -> Iterator[Tree]:
        """Reads a line and yields the trees that end on it."""
        self._line = number
        for match in _TOKEN.finditer(line):
            self._column = match.start() + 1
            token = match.group()
            if token == "(":
                self._open()
            elif token == ")":
                yield from self._close()
            else:
                self._text(token)

    def finish(self) -> None:
        """Marks the end of the text; UserError if a bracket is still open."""
        if self._stack:
            first = self._stack[0]
            self._line, self._column = first.line, first.column
            raise self._error("the bracket opened here is never closed", "add the missing )")

    def _open(self) -> None:
        if self._stack:
            parent = self._stack[-1]
            if parent.word is not None:
                raise self._error(
                    f"a bracket after the word {shortened(parent.word)}",
                    "a tag takes a single word, as in (NN word)",
                )
            parent.label = parent.label or ""
        if len(self._stack) == MAX_DEPTH:
            raise self._error(
                f"brackets nested more than {MAX_DEPTH} deep", "look for missing )"
            )
        self._stack.append(_Open(self._line, self._column))

    def _close(self) -> Iterator[Tree]:
        if not self._stack:
            raise self._error("a ) that closes nothing", "remove it, or add the missing (")
        done = self._stack.pop()
        if done.label is None:
            raise self._error("empty brackets ()", "write a label, as in (NP (NN word))")
        tree = Tree(done.label, tuple(done.children), done.word)
        if self._stack:
            self._stack[-1].children.append(tree)
        else:
            yield tree

    def _text(self, text: str) -> None:
        if not self._stack:
            raise self._error(
                f"{shortened(text)} outside all brackets",
                "put it into brackets, as in (NN word)",
            )
        top = self._stack[-1]
        if top.label is None:
            top.label = text
        elif top.children or top.word is not None:
            raise self._error(
                f"{shortened(text)} in a bracket that is already complete",
                "a tag takes a single word, as in (NN word)",
            )
        else:
            top.word = text

    def _error(self, wrong: str, advice: str) -> UserError:
        return UserError(
            f"{self._name}:{self._line}:{self._column}: not a well-formed tree: {wrong}; "
            f"{advice}."
        )
