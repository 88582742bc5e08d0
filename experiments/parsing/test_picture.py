"""A picture shows two trees over the same words, and marks in each what the other lacks."""

from collections import Counter

import pytest

from experiments.parsing.picture import Node, draw_trees, nodes
from experiments.parsing.trees import Tree, read_line
from tf_transformer import UserError

GOLD = "(TOP (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ sees) (NP (PRP it))) (. .)))"
OUTPUT = "(TOP (S (NP (DT The)) (VP (NN dog) (VBZ sees) (NP (PRP it))) (. .)))"


def read(text: str) -> Tree:
    return read_line(text)[0]


def different(part: list[Node]) -> list[str]:
    return [node.label for node in part if not node.same]


def test_brackets_that_only_one_tree_has_are_marked_in_it():
    gold, output = nodes(read(GOLD), read(OUTPUT))
    assert different(gold) == ["NP-SBJ", "VP"]
    assert different(output) == ["NP", "VP"]
    assert [node.label for node in output] == ["TOP", "S", "NP", "VP", "NP"]


def test_a_bracket_at_another_index_still_matches():
    gold = read("(S (NP (NML (N a))) (VP (V b)))")
    result = nodes(gold, read("(S (NP (N a)) (VP (V b)))"))
    assert (different(result[0]), different(result[1])) == (["NML"], [])


def test_one_of_two_equal_brackets_is_marked_if_the_other_tree_has_only_one():
    gold, output = nodes(read("(NP (N a))"), read("(NP (NP (N a)))"))
    assert (different(gold), different(output)) == ([], ["NP"])


def test_a_constituent_is_centred_over_its_children_and_farther_from_the_words():
    gold, _ = nodes(read(GOLD), read(OUTPUT))
    top, sentence, subject, verb, object_ = gold
    assert [node.level for node in gold] == [4, 3, 1, 2, 1]
    assert verb.below[1] == (object_.x, object_.level)
    assert subject.x == (subject.below[0][0] + subject.below[1][0]) / 2
    assert top.below == ((sentence.x, 3),)
    words = [x for node in (subject, object_) for x, level in node.below if level == 0]
    assert words == sorted(words)


def test_the_picture_shows_all_words_and_labels_and_boxes_differences(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "tree.svg"
    draw_trees(read(GOLD), read(OUTPUT), path)
    text = path.read_text("utf-8")
    written = [line.strip()[5:-4] for line in text.splitlines() if line.strip()[:4] == "<!--"]
    words = ["The", "dog", "sees", "it", "."]
    labels = ["TOP", "S", "NP-SBJ", "VP", "NP", "TOP", "S", "NP", "VP", "NP"]
    assert Counter([*words, *labels]) <= Counter(written)
    assert len(written) == 16  # and the note
    assert text.count("stroke: #d55e00; stroke-linejoin: miter") == 4  # boxes
    alike = tmp_path / "alike.svg"
    draw_trees(read(GOLD), read(GOLD), alike)
    assert "#d55e00" not in alike.read_text("utf-8")


def test_traces_are_left_out(tmp_path):
    pytest.importorskip("matplotlib")
    gold = read("(S (NP (-NONE- *)) (VP (VB go) (NP (NP (-NONE- *T*)))))")
    draw_trees(gold, read("(S (VP (VB go)))"), tmp_path / "tree.svg")
    text = (tmp_path / "tree.svg").read_text("utf-8")
    assert "<!-- NP -->" not in text and "#d55e00" not in text


def test_trees_over_different_words_are_refused(tmp_path):
    with pytest.raises(UserError, match="over the same words. Received: a, and b"):
        draw_trees(read("(S (N a))"), read("(S (N b))"), tmp_path / "tree.svg")
    with pytest.raises(UserError, match="Received: none, and none"):
        draw_trees(read("(S (NP))"), read("(S (NP))"), tmp_path / "tree.svg")
