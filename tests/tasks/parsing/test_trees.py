"""Trees in Penn brackets are read exactly, and errors are reported where they are."""

import re

import pytest

from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.trees import MAX_DEPTH, Tree, read_line, read_trees

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


def test_white_space_does_not_matter():
    assert read_line("( S(A(B c) )\t(D   e) )\n") == read_line("(S (A (B c)) (D e))")


def test_a_blank_line_holds_no_tree():
    assert read_line(" \n") == ()


def test_a_constituent_may_be_empty():
    assert read_line("(S (NP) (VP (VB go)))")[0].children[0] == Tree("NP")


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


def test_trees_before_an_error_are_read():
    reader = read_trees(["(A b)", ")"])
    assert next(reader) == Tree("A", word="b")
    with pytest.raises(UserError):
        next(reader)


def test_the_deepest_tree_allowed_can_be_read_written_and_compared():
    text = "(X " * (MAX_DEPTH - 1) + "(Y z)" + ")" * (MAX_DEPTH - 1)
    (tree,) = read_line(text)
    assert str(tree) == text
    assert tree == read_line(text)[0] and hash(tree) == hash(read_line(text)[0])
    assert tree.words() == ["z"]


def test_deeper_nesting_is_refused_without_a_recursion_error():
    with pytest.raises(UserError, match=re.escape(f"nested more than {MAX_DEPTH} deep")):
        read_line("(X " * 100_000)


def test_children_and_a_word_exclude_each_other():
    with pytest.raises(ValueError, match="Received: label=A, 1 children, word=b"):
        Tree("A", (Tree("C", word="d"),), "b")
