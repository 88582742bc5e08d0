"""Trees survive conversion to tokens and back; any tokens give a tree over the words."""

import random
import re
from collections.abc import Iterator

import pytest
from helpers import lines_of, shared_data, snippets

from experiments.parsing.brackets import score_sentence, summarise
from experiments.parsing.trees import (
    MAX_DEPTH,
    Tree,
    delinearise,
    leaf_tag,
    linearise,
    normalise,
    read_line,
    strip_label,
)

RAW = (
    "( (S (NP-SBJ-1 (PRP We)) (VP (VBD saw) (NP (NP (-NONE- *)) (NN fire)) "
    "(S (NP-SBJ (-NONE- *-1)))) (. .)))"
)
TOKENS = "(S (NP PRP )NP (VP VBD (NP NN )NP )VP . )S"
WORDS = ["We", "saw", "fire", "."]
CORPORA = [("random", "")]
CORPORA += [
    (name, part) for name in ("gum-const", "craft-treebank") for part in ("dev", "train")
]
SMALL_CORPORA = [(name, part) for name, part in CORPORA if part != "train"]


def read(text: str) -> Tree:
    return read_line(text)[0]


def trees_of(name: str, part: str) -> Iterator[Tree]:
    """Yields a treebank's trees (a quarter of a train file, for speed), or 500 random ones."""
    if name == "random":
        chance = random.Random(0)
        yield from (
            Tree("TOP", (random_tree(chance, 6), Tree(".", word="."))) for _ in range(500)
        )
    else:
        lines = lines_of(shared_data(name) / f"{part}.ptb.gz")
        for line in lines[:: 4 if part == "train" else 1]:
            yield from read_line(line)


def random_tree(chance: random.Random, depth: int) -> Tree:
    if depth == 0 or chance.random() < 0.2:
        return Tree(chance.choice(["NN", "-NONE-", ",", "HYPH"]), word=chance.choice("ab,-"))
    children = [random_tree(chance, depth - 1) for _ in range(chance.randint(1, 4))]
    return Tree(chance.choice(["S", "NP", "NP-SBJ-1", "VP=2"]), tuple(children))


def test_normalising_removes_traces_and_function_tags():
    assert str(normalise(read(RAW))) == (
        "(TOP (S (NP (PRP We)) (VP (VBD saw) (NP (NN fire))) (. .)))"
    )


def test_the_sequence_is_brackets_and_parts_of_speech():
    assert " ".join(linearise(read(RAW))) == TOKENS


def test_the_page_about_trees_says_what_they_become():
    (snippet,) = snippets("docs/explanation/trees.md")
    statements, _, repaired = snippet.rpartition("\n# its tree is ")
    *before, sequence, parsed = statements.splitlines()
    expression, _, shown = sequence.partition("  # ")
    names = {}
    exec("\n".join(before), names)
    assert str(eval(expression, names)) == shown
    result = eval(parsed, names)
    tree, repairs = re.match(r"(.*), its repairs (\d)", repaired).groups()
    assert (str(result.tree), result.repairs) == (tree, int(repairs))


@pytest.mark.parametrize("root", ["", "TOP", "ROOT", "S1"])
def test_the_name_of_the_root_does_not_matter(root):
    tokens = linearise(read(f"({root} (S (A a)) (S (B b)))"))
    assert " ".join(tokens) == "(S A )S (S B )S"
    assert normalise(read("(S (A a))")) == normalise(read(f"({root} (S (A a)))"))
    assert linearise(read(f"({root} (UH oh))")) == ["UH"]


@pytest.mark.parametrize(
    ("label", "category"),
    [("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("NP", "NP"), ("-LRB-", "-LRB"), ("-", "-")],
)
def test_function_tags_and_indices_are_cut_off(label, category):
    assert strip_label(label) == category


@pytest.mark.parametrize(
    ("word", "tag", "kept"),
    [
        ("dog", "NN", "NN"),
        ("dog", ",", "XX"),  # a mistake of the model
        (",", "XX", ","),
        ("?", "NN", "."),
        ("-", ":", ":"),
        ("-", "HYPH", "HYPH"),
        ("'", "''", "''"),
        ("'", "POS", "POS"),
        ('"', "``", "``"),
        ('"', "XX", "''"),
        ("-LRB-", "-LRB-", "-LRB-"),
    ],
)
def test_a_leaf_keeps_its_tag_unless_the_word_determines_another(word, tag, kept):
    assert leaf_tag(word, tag) == kept


@pytest.mark.parametrize(
    ("tokens", "tree", "repairs"),
    [
        ("(S (NP XX )NP XX )S", "(S (NP (XX a)) (XX b))", 0),
        ("XX XX", "(XX a) (XX b)", 0),
        ("(S XX )S (X XX )X", "(S (XX a)) (X (XX b))", 0),
        ("(S (NP XX )NP XX", "(S (NP (XX a)) (XX b))", 1),
        ("(S (NP XX XX )S", "(S (NP (XX a) (XX b)))", 1),
        ("(S (NP XX )VP XX )S", "(S (NP (XX a)) (XX b))", 1),
        ("(S (NP XX )TOP XX )S", "(S (NP (XX a)) (XX b))", 1),
        ("(S XX XX )S )S", "(S (XX a) (XX b))", 1),
        ("(S XX XX XX )S", "(S (XX a) (XX b))", 1),
        ("(S (NP )NP XX XX )S", "(S (XX a) (XX b))", 1),
        ("(S NN ( ) what )S", "(S (NN a) (what b))", 2),
        ("(S NN a(b (N)P )S", "(S (NN a) (XX b))", 3),
        ("(S (NP XX )NP )S", "(S (NP (XX a)) (XX b))", 1),
        ("(S (NP XX", "(S (NP (XX a)) (XX b))", 3),
        ("NN", "(NN a) (XX b)", 1),
        ("", "(XX a) (XX b)", 2),
        ("(S (NP", "(S (XX a) (XX b))", 5),
    ],
)
def test_tokens_that_are_not_a_tree_are_repaired_and_repairs_are_counted(tokens, tree, repairs):
    parse = delinearise(tokens.split(), ["a", "b"])
    assert (str(parse.tree), parse.repairs) == (f"(TOP {tree})", repairs)


def test_nesting_is_limited_to_the_depth_that_can_be_read():
    parse = delinearise([*["(X"] * 5000, "XX"], ["a"])
    assert read(str(parse.tree)) == parse.tree  # the reader's limit holds
    assert str(parse.tree).count("(") == MAX_DEPTH


@pytest.mark.parametrize(("name", "part"), CORPORA)
def test_every_tree_is_restored_exactly(name, part):
    for tree in trees_of(name, part):
        expected = normalise(tree)
        parse = delinearise(linearise(tree), expected.words())
        assert parse.tree == expected and parse.repairs == 0


@pytest.mark.parametrize("name", ["gum-const", "craft-treebank"])
def test_normalised_trees_score_100_against_the_gold_trees(name):
    scores = []
    for tree in trees_of(name, "dev"):
        gold = Tree("TOP", tree.children)
        scores.append(score_sentence([gold], [normalise(tree)]))
    summary = summarise(scores)
    assert summary.f1 == summary.complete_match == 100
    assert summary.errors <= 0.002 * summary.sentences  # unusual tags of punctuation marks


def corrupted(tokens: list[str], chance: random.Random) -> list[str]:
    """The tokens after up to ten random changes."""
    tokens = list(tokens)
    for _ in range(chance.randint(1, 10)):
        at, end = sorted(chance.choices(range(len(tokens) + 1), k=2))
        match chance.randrange(5):
            case 0:
                del tokens[at : at + 1]
            case 1:
                tokens.insert(
                    at, chance.choice(["(NP", ")NP", ")S", "XX", ",", "dog", "(", ""])
                )
            case 2:
                tokens[at:end] = tokens[at:end][::-1]
            case 3:
                tokens[at:end] = tokens[at:end] * 2
            case 4:
                del tokens[end:]
    return tokens


def shape(tokens: list[str]) -> list[str]:
    """The tokens, with all tags replaced by "leaf"."""
    return [token if token[:1] in ("", "(", ")") else "leaf" for token in tokens]


@pytest.mark.parametrize(("name", "part"), SMALL_CORPORA)
def test_any_tokens_give_a_tree_over_exactly_the_words(name, part):
    chance = random.Random(0)
    for tree in trees_of(name, part):
        words = normalise(tree).words()
        tokens = corrupted(linearise(tree), chance)
        parse = delinearise(tokens, words)
        again = linearise(parse.tree)
        assert parse.tree.words() == words
        parse_again = delinearise(again, words)
        assert (parse_again.tree, parse_again.repairs) == (parse.tree, 0)
        assert (parse.repairs == 0) == (shape(again) == shape(tokens))
