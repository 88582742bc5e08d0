"""Treebanks are read as trees and as pairs; malformed ones are refused."""

import gzip

import pytest

from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.treebank import (
    check_treebank,
    read_pairs,
    read_treebank,
    words_of,
)

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
    assert list(read_pairs(treebank(name, WE_WON))) == [("We won .", WE_WON_SEQUENCE)]


def test_a_tree_over_several_lines_is_one_pair(treebank):
    pairs = read_pairs(treebank("t.ptb", WE_WON.replace(" (", "\n  (") + "\n\n" + WE_WON))
    assert list(pairs) == [("We won .", WE_WON_SEQUENCE)] * 2


def test_a_tree_without_words_becomes_an_empty_pair(treebank):
    pairs = read_pairs(treebank("t.ptb", f"(TOP (NP (-NONE- *)))\n{WE_WON}"))
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
    ],
)
def test_text_that_is_not_a_tree_is_refused_with_its_position(treebank, text, message):
    with pytest.raises(UserError, match=message):
        check_treebank(treebank("t.ptb", text))


def test_brackets_among_the_words_are_escaped_as_in_treebanks():
    assert words_of(" a (b)  c\t( ") == ["a", "-LRB-b-RRB-", "c", "-LRB-"]
