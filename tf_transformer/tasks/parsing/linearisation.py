"""Trees as target sequences and back (Vinyals et al. 2015), which section 6.3 follows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tf_transformer.strings import refuse_string
from tf_transformer.tasks.parsing.trees import MAX_DEPTH, Tree

# What treebanks and parsers call the root; it is not in the sequence.
ROOTS = frozenset(("", "TOP", "ROOT", "S1"))
ROOT = "TOP"
UNKNOWN = "XX"  # the tag of a word that has no usable one
PUNCTUATION = frozenset((",", ".", ":", "``", "''"))  # tags that count: see `leaf_tag`
TRACE = "-NONE-"

# Words of which practically all occurrences in GUM and CRAFT have one of those tags, and which.
_WORDS_OF = {",": ",", ".": ". ? !", ":": "; -- ... … —", "``": "`` “ ‘", "''": "'' ”"}
_TAG_OF = {word: tag for tag, words in _WORDS_OF.items() for word in words.split()}
SELF_TAGGED = frozenset((*_TAG_OF, '"'))  # whose tag `leaf_tag` derives from the word itself


def strip_label(label: str) -> str:
    """Returns the category alone: NP-SBJ-1 and NP=2 are NP. A first - or = belongs to it."""
    return label[:1] + re.split("[-=]", label[1:], maxsplit=1)[0]


def leaf_tag(word: str, tag: str) -> str:
    """Returns the tag that stands for a word: its part of speech, except for punctuation.

    Words are not copied. Vinyals et al. write XX for them all, since tags do not count in the
    F1 score. Here the tag is written: it ties each leaf to its word, so that the search can
    tell when the model has lost one (`tree_grammar`). The five tags of punctuation do count by
    Collins's rules: a word under one of them is taken out before trees are compared, and in
    the output it must be the same words as in the gold tree, or the sentence is an error.
    Where the word itself says what it is, the tag follows the word; else one of the five is
    kept on what has no letter or digit.
    """
    if word in _TAG_OF:
        return _TAG_OF[word]
    if tag in PUNCTUATION and not any(map(str.isalnum, word)):
        return tag
    if word == '"':
        return "''"
    return UNKNOWN if tag in PUNCTUATION else tag


def normalise(tree: Tree) -> Tree:
    """Returns the part of a tree that a sequence can express.

    Traces go, and constituents that held nothing else; function tags and indices go; tags are
    those of `leaf_tag`; the root is TOP, whatever its name, and is added where there is none.

    Raises:
        ValueError: if the tree has no words.
    """
    parts = _parts(tree)
    if not parts:
        raise ValueError(f"`tree` must have a word. Received: {tree}")
    return Tree(ROOT, tuple(parts))


def _parts(tree: Tree) -> list[Tree]:
    """Rest of a tree: nothing, itself without traces, or a root's children."""
    if tree.word is not None:
        tag = leaf_tag(tree.word, tree.label)
        return [] if tree.label == TRACE else [Tree(tag, word=tree.word)]
    parts = [part for child in tree.children for part in _parts(child)]
    label = strip_label(tree.label)
    return parts if label in ROOTS or not parts else [Tree(label, tuple(parts))]


def is_bracket(token: str) -> bool:
    """Tells whether a token opens or closes a constituent; else it is a word's tag."""
    return token[:1] in ("(", ")")


def linearise(tree: Tree) -> list[str]:
    """Returns the tokens of a normalised tree: (NP and )NP for brackets, a tag for each word.

    (TOP (S (NP (PRP We)) (VP (VBD won)) (. .))) is (S (NP PRP )NP (VP VBD )VP . )S.

    Raises:
        ValueError: if the tree has no words.
    """
    return [token for child in normalise(tree).children for token in _tokens(child)]


def _tokens(tree: Tree) -> list[str]:
    if tree.word is not None:
        return [tree.label]
    inner = [token for child in tree.children for token in _tokens(child)]
    return [f"({tree.label}", *inner, f"){tree.label}"]


@dataclass(frozen=True)
class Parse:
    """A parsed sentence; `str(parse)` is its tree in Penn brackets, "" for a blank sentence.

    Attributes:
        tree: over exactly the words of the sentence; None for a blank one.
        repairs: to the tokens that the model wrote: 0 if they were well-formed.
        cut: whether they ended at the length limit.
    """

    tree: Tree | None
    repairs: int
    cut: bool = False

    def __str__(self) -> str:
        return str(self.tree or "")

    def __repr__(self) -> str:
        return f"Parse({str(self)!r}, repairs={self.repairs}, cut={self.cut})"


def delinearise(tokens: Sequence[str], words: Sequence[str]) -> Parse:
    """Returns the tree over exactly `words` that the tokens express, or come closest to.

    Of tokens that are no tree, these are mended, each counting as one repair: a closing bracket
    closes what was opened inside its own constituent, or the innermost one if its label is
    open nowhere; one that closes nothing is dropped, and so are words beyond the last, brackets
    without a label or within one, and constituents without words; missing words go to the end
    of the outermost constituent that is open or was the last, as XX; what is open at the end is
    closed. Nesting beyond MAX_DEPTH is dropped. A tag that the word cannot have (`leaf_tag`) is
    changed without being counted, as no bracket depends on it.

    Args:
        tokens: as `linearise` gives them, or any others.
        words: the words of the sentence, at least one.

    Raises:
        ValueError: if there are no words.
    """
    refuse_string("tokens", tokens)
    refuse_string("words", words)
    if not words:
        raise ValueError("`words` must have at least one word. Received: none.")
    builder = _Builder(words)
    for token in tokens:
        builder.add(token)
    return builder.finish()


@dataclass
class _Node:
    """A constituent while it grows."""

    label: str
    children: list[Tree] = field(default_factory=list)


class _Builder:
    """Takes one token after another and always holds the beginning of a tree."""

    def __init__(self, words: Sequence[str]):
        self._words = words
        self._next = 0
        self._repairs = 0
        self._stack = [_Node(ROOT)]

    def add(self, token: str) -> None:
        """Adds a token, repaired if need be."""
        if token in ("", "(", ")") or {"(", ")"} & {*token[1:]}:
            self._repairs += 1
        elif token[0] == "(":
            self._open(token[1:])
        elif token[0] == ")":
            self._close_by(token[1:])
        else:
            self._word(token)

    def finish(self) -> Parse:
        """Closes what is open and returns the tree."""
        open_ = len(self._stack) - 1
        missing = len(self._words) - self._next
        self._repairs += open_ + missing
        if missing:
            self._reopen_outermost()
        for _ in range(missing):
            self._append_word(UNKNOWN)
        while len(self._stack) > 1:
            self._close()
        return Parse(Tree(ROOT, tuple(self._stack[0].children)), self._repairs)

    def _word(self, tag: str) -> None:
        if self._next == len(self._words):
            self._repairs += 1
        else:
            self._append_word(tag)

    def _append_word(self, tag: str) -> None:
        word = self._words[self._next]
        self._stack[-1].children.append(Tree(leaf_tag(word, tag), word=word))
        self._next += 1

    def _open(self, label: str) -> None:
        if len(self._stack) < MAX_DEPTH - 1:
            self._stack.append(_Node(label))
        else:
            self._repairs += 1

    def _close_by(self, label: str) -> None:
        """Closes the innermost constituent of this label, and with it what it holds."""
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
        """Makes the last constituent under the root the innermost that is open."""
        while len(self._stack) > 2:
            self._close()
        root = self._stack[0]
        if len(self._stack) == 1 and root.children and root.children[-1].word is None:
            last = root.children.pop()
            self._stack.append(_Node(last.label, list(last.children)))
