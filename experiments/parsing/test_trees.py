"""Trees in Penn brackets are read exactly, and errors are reported where they are."""

import gzip
import re

import pytest

from experiments.parsing.trees import (
    MAX_DEPTH,
    Tree,
    check_treebank,
    read_line,
    read_linearised,
    read_treebank,
    read_trees,
    words_of,
)
from tf_transformer import UserError

TEXT = "(TOP (S (NP-SBJ (PRP We)) (VP (VBD saw) (NP (-NONE- *T*-1))) (. .)))"


def test_a_tree_has_the_structure_of_its_brackets():
    (tree,) = read_line("(S (NP (PRP We)) (VP (VBD saw)))")
    subject, verb = Tree("PRP", word="We"), Tree("VBD", word="saw")
    assert tree == Tree("S", (Tree("NP", (subject,)), Tree("VP", (verb,))))


def test_a_tree_is_written_as_it_was_read_with_words_and_tags_in_order():
    (tree,) = read_line(TEXT)
    assert str(tree) == TEXT
    assert tree.words() == ["We", "saw", "*T*-1", "."]
    assert [leaf.label for leaf in tree.leaves()] == ["PRP", "VBD", "-NONE-", "."]


def test_a_tree_may_span_lines_and_a_line_may_hold_several():
    lines = ["( (S", "  (NP (PRP We))", "", "  (VP (VBD saw)) ))", "(A (B c)) (D (E f))"]
    trees = [str(tree) for tree in read_trees(lines)]
    assert trees == ["( (S (NP (PRP We)) (VP (VBD saw))))", "(A (B c))", "(D (E f))"]


def test_a_blank_line_holds_no_tree():
    assert read_line(" \n") == ()


@pytest.mark.parametrize(
    ("lines", "place", "wrong"),
    [
        (["(S (A b)", ""], "1:1", "the bracket opened here is never closed"),
        (["(S (A b)) (T", "(U v)"], "1:11", "the bracket opened here is never closed"),
        (["(S (A b))", "(S (A b)))"], "2:10", r"a \) that closes nothing"),
        (["(S (A b)) stray"], "1:11", "stray outside all brackets"),
        (["(S (A b c))"], "1:9", "c in a bracket that is already complete"),
        (["(S (A b) c)"], "1:10", "c in a bracket that is already complete"),
        (["(S (A b (C d)))"], "1:9", "a bracket after the word b"),
        (["(S ())"], "1:5", r"empty brackets \(\)"),
        (["(", ")"], "2:1", r"empty brackets \(\)"),
    ],
)
def test_an_error_is_reported_with_line_and_column(lines, place, wrong):
    with pytest.raises(UserError, match=rf"^my\.ptb:{place}: not a well-formed tree: {wrong}"):
        list(read_trees(lines, "my.ptb"))


def test_the_deepest_tree_allowed_can_be_read_written_and_compared():
    text = "(X " * (MAX_DEPTH - 1) + "(Y z)" + ")" * (MAX_DEPTH - 1)
    (tree,) = read_line(text)
    assert str(tree) == text
    assert tree == read_line(text)[0] and hash(tree) == hash(read_line(text)[0])
    assert tree.words() == ["z"]


def test_deeper_nesting_is_refused_without_a_recursion_error():
    with pytest.raises(UserError, match=re.escape(f"nested more than {MAX_DEPTH} deep")):
        read_line("(X " * 100_000)


# --- Treebanks ---------------------------------------------------------------------------

WE_WON = "(ROOT (S (NP-SBJ-1 (PRP We)) (VP (VBD won) (NP (-NONE- *))) (. .)))"
WE_WON_SEQUENCE = "(S (NP PRP )NP (VP VBD )VP . )S"


@pytest.fixture
def treebank(tmp_path):
    """`treebank(name, text)` writes a file of trees."""

    def write(name: str, text: str):
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.mark.parametrize("name", ["t.ptb", "t.ptb.gz"])
def test_a_tree_becomes_its_words_and_its_sequence(treebank, name):
    assert list(read_linearised(treebank(name, WE_WON))) == [("We won .", WE_WON_SEQUENCE)]


def test_a_tree_over_several_lines_is_one_pair(treebank):
    pairs = read_linearised(treebank("t.ptb", WE_WON.replace(" (", "\n  (") + "\n\n" + WE_WON))
    assert list(pairs) == [("We won .", WE_WON_SEQUENCE)] * 2


def test_a_tree_without_words_becomes_an_empty_pair(treebank):
    pairs = read_linearised(treebank("t.ptb", f"(TOP (NP (-NONE- *)))\n{WE_WON}"))
    assert [words for words, _ in pairs] == ["", "We won ."]


@pytest.mark.parametrize("root", ["ROOT", "TOP", "S1", ""])
def test_a_root_of_any_name_becomes_top_and_none_is_added(treebank, root):
    trees = read_treebank(treebank("t.ptb", f"({root} (S (UH Yes)))\n(S (UH Yes))"))
    assert list(map(str, trees)) == ["(TOP (S (UH Yes)))", "(S (UH Yes))"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{WE_WON}\n(TOP (S (UH Yes))", r"t.ptb:2:1: .*never closed"),
        (f"{WE_WON}\n\n(S (UH Yes)))", r"t.ptb:3:13: .*closes nothing"),
        ("We won .\n", r"t.ptb:1:1: .*We outside all brackets"),
        (" \n", "has no tree. Expected trees in Penn brackets"),
        ("(TOP (NP (-NONE- *)))\n(S (-NONE- 0))", "t.ptb has no tree with a word"),
    ],
)
def test_text_that_is_not_a_tree_is_refused_with_its_position(treebank, text, message):
    with pytest.raises(UserError, match=message):
        check_treebank(treebank("t.ptb", text))


def test_brackets_among_the_words_are_escaped_as_in_treebanks():
    assert words_of(" a (b)  c\t( ") == ["a", "-LRB-b-RRB-", "c", "-LRB-"]
