"""Constituency trees: Penn brackets, as sequences and back.

Sequences follow Vinyals et al. 2015 (paper 6.3).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from experiments.text import read_lines, shortened
from tf_transformer import UserError

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

    Raises UserError if the file cannot be read, has no tree, or has one that is not
    well-formed, with its line and column.
    """
    tree = None
    for tree in read_trees(read_lines(path), str(path)):
        yield rooted(tree)
    if tree is None:
        raise UserError(
            f"{path} has no tree. Expected trees in Penn brackets, such as (S ...)."
        )


def check_treebank(path: Path) -> None:
    """Reads a file to its end to find errors, such as no word at all; see `read_treebank`."""
    trees = read_treebank(path)
    if not any(normalise(tree).words() for tree in trees):
        raise UserError(f"{path} has no tree with a word: leave it out.")
    for _ in trees:
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

    Blank lines are ignored. Raises UserError if a tree is not well-formed, with `name`, the
    number of its line, of which the first is `start`, and column.
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


# --- Sequences ----------------------------------------------------------------------------

UNKNOWN = "XX"  # tag of a word without a usable tag
PUNCTUATION = frozenset((",", ".", ":", "``", "''"))  # see `leaf_tag`
# Words that practically always have the tag in the GUM and CRAFT treebanks.
_WORDS_OF = {",": ",", ".": ". ? !", ":": "; -- ... … —", "``": "`` “ ‘", "''": "'' ”"}
_TAG_OF = {word: tag for tag, words in _WORDS_OF.items() for word in words.split()}


def strip_label(label: str) -> str:
    """Returns the bare category: NP for NP-SBJ-1 and NP=2. A leading - or = belongs to it."""
    return label[:1] + re.split("[-=]", label[1:], maxsplit=1)[0]


def leaf_tag(word: str, tag: str) -> str:
    """Returns the tag that represents a word in a sequence.

    Vinyals et al. write XX for every word, since tags do not affect the F1 score. Here each
    word keeps its part-of-speech tag: this ties leaves to words, so that the search notices if
    the model skips one (see `TreeGrammar`).

    The five punctuation tags do affect the score: Collins's rules delete words with these tags
    before trees are compared, and the sentence is an error unless gold tree and output delete
    the same words. So the tag of unambiguous punctuation marks follows from the word, and
    other words keep a punctuation tag only if they have no letter or digit.
    """
    if word in _TAG_OF:
        return _TAG_OF[word]
    if tag in PUNCTUATION and not any(map(str.isalnum, word)):
        return tag
    if word == '"':
        return "''"
    return UNKNOWN if tag in PUNCTUATION else tag


def normalise(tree: Tree) -> Tree:
    """Returns the form of a tree that a sequence can express.

    Traces, constituents with nothing else, function tags and indices are removed; tags become
    those of `leaf_tag`; the root is renamed to TOP, or added if it is missing.
    """
    return Tree(ROOT, tuple(_parts(tree)))


def _parts(tree: Tree) -> list[Tree]:
    """Returns the normalised tree, the children of a root, or nothing if no word is left."""
    if tree.word is not None:
        tag = leaf_tag(tree.word, tree.label)
        return [] if tree.label == TRACE else [Tree(tag, word=tree.word)]
    parts = [part for child in tree.children for part in _parts(child)]
    label = strip_label(tree.label)
    return parts if label in ROOTS or not parts else [Tree(label, tuple(parts))]


def linearise(tree: Tree) -> list[str]:
    """Returns the tokens of a normalised tree: (NP and )NP for brackets, a tag for each word.

    (TOP (S (NP (PRP We)) (VP (VBD won)) (. .))) becomes (S (NP PRP )NP (VP VBD )VP . )S. A tree
    without words has no tokens.
    """
    return _inner_tokens(normalise(tree))


def _inner_tokens(tree: Tree) -> list[str]:
    return [token for child in tree.children for token in _tokens(child)]


def _tokens(tree: Tree) -> list[str]:
    if tree.word is not None:
        return [tree.label]
    return [f"({tree.label}", *_inner_tokens(tree), f"){tree.label}"]


def linearised(tree: Tree) -> tuple[str, str]:
    """Returns the words and the tokens of a tree, each joined by spaces."""
    normalised = normalise(tree)
    return " ".join(normalised.words()), " ".join(_inner_tokens(normalised))


def read_linearised(path: Path) -> Iterator[tuple[str, str]]:
    """Yields `linearised` of each tree of a file; UserError as in `read_treebank`."""
    return map(linearised, read_treebank(path))


class Parse(str):
    """A parsed sentence: a `str`, its tree in Penn brackets, or "" for a blank sentence.

    Attributes:
        tree: a tree over exactly the words of the sentence; None for a blank sentence.
        repairs: number of repairs to the model's output; 0 if it was well-formed.
        cut: whether the output was cut off at the length limit.
    """

    tree: Tree | None
    repairs: int
    cut: bool

    def __new__(cls, tree: Tree | None, repairs: int, cut: bool = False) -> Self:
        """Returns the tree in Penn brackets, with these attributes."""
        self = super().__new__(cls, tree or "")
        self.tree, self.repairs, self.cut = tree, repairs, cut
        return self

    def __getnewargs__(self):
        """Returns the arguments to copy and unpickle it with."""
        return self.tree, self.repairs, self.cut


def delinearise(tokens: Sequence[str], words: Sequence[str], cut: bool = False) -> Parse:
    """Returns the tree over exactly `words` that the tokens express, repaired if necessary.

    Each of these repairs counts as one:

    - A closing bracket also closes constituents left open inside its own; if its label is not
      open, it closes the innermost constituent; if nothing is open, it is dropped.
    - Malformed tokens, tags beyond the last word, constituents without words and brackets
      nested deeper than MAX_DEPTH are dropped.
    - Missing words are added under the tag XX, at the end of the outermost open constituent,
      or else of the last one closed.
    - Constituents still open at the end are closed.

    A tag that the word cannot have (see `leaf_tag`) is replaced without being counted, as no
    bracket depends on it. `cut` tells whether the tokens were cut off at the length limit.
    """
    builder = _Builder(words)
    for token in tokens:
        builder.add(token)
    return builder.finish(cut)


@dataclass
class _Node:
    """A constituent under construction."""

    label: str
    children: list[Tree] = field(default_factory=list)


class _Builder:
    """Builds a tree token by token, repairing it on the way."""

    def __init__(self, words: Sequence[str]):
        self._words = words
        self._next = 0
        self._repairs = 0
        self._stack = [_Node(ROOT)]

    def add(self, token: str) -> None:
        """Adds a token, with repairs if necessary."""
        if token in ("", "(", ")") or {"(", ")"} & {*token[1:]}:
            self._repairs += 1
        elif token[0] == "(":
            self._open(token[1:])
        elif token[0] == ")":
            self._close_by(token[1:])
        elif self._next < len(self._words):
            self._add_word(token)
        else:
            self._repairs += 1

    def finish(self, cut: bool) -> Parse:
        """Adds missing words, closes open constituents and returns the parse."""
        missing = len(self._words) - self._next
        self._repairs += len(self._stack) - 1 + missing
        if missing:
            self._reopen_outermost()
        for _ in range(missing):
            self._add_word(UNKNOWN)
        while len(self._stack) > 1:
            self._close()
        return Parse(Tree(ROOT, tuple(self._stack[0].children)), self._repairs, cut)

    def _add_word(self, tag: str) -> None:
        word = self._words[self._next]
        self._stack[-1].children.append(Tree(leaf_tag(word, tag), word=word))
        self._next += 1

    def _open(self, label: str) -> None:
        if len(self._stack) < MAX_DEPTH - 1:
            self._stack.append(_Node(label))
        else:
            self._repairs += 1

    def _close_by(self, label: str) -> None:
        """Closes the innermost constituent with this label and everything open inside it."""
        depths = [depth for depth, node in enumerate(self._stack) if node.label == label]
        if len(self._stack) == 1:
            self._repairs += 1
        elif not depths or depths[-1] == 0:
            self._repairs += 1
            self._close()
        else:
            self._repairs += len(self._stack) - 1 - depths[-1]
            while len(self._stack) > depths[-1]:
                self._close()

    def _close(self) -> None:
        node = self._stack.pop()
        if node.children:
            self._stack[-1].children.append(Tree(node.label, tuple(node.children)))
        else:
            self._repairs += 1

    def _reopen_outermost(self) -> None:
        """Closes or reopens constituents until only the last child of the root is open."""
        while len(self._stack) > 2:
            self._close()
        root = self._stack[0]
        if len(self._stack) == 1 and root.children and root.children[-1].word is None:
            last = root.children.pop()
            self._stack.append(_Node(last.label, list(last.children)))
