"""A parser from end to end: train, parse, score trees; what is cut or repaired is counted."""

import dataclasses
import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from helpers import made_once

import tf_transformer
from experiments.common import run
from experiments.parsing.__main__ import FOLDER, main
from experiments.parsing.brackets import score_lines, summarise
from experiments.parsing.conftest import toy_trees
from experiments.parsing.grammar import Lexicon
from experiments.parsing.parser import Counts, Parser, f1_of, train
from experiments.parsing.trees import linearised, read_line, read_treebank
from tf_transformer import Run, UserError

pytestmark = pytest.mark.slow

# Enough to get most brackets of the toy grammar right, but not all.
SETTINGS = {
    "model.vocab_size": 330, "model.num_layers": 1, "model.d_model": 64, "model.d_ff": 128,
    "model.dropout": 0.0, "model.norm_first": True, "training.steps": 400,
    "training.batch_tokens": 512, "training.warmup_steps": 100, "training.evaluate_every": 400,
    "training.average_last": 1, "training.learning_rate_scale": 1.0, "training.ema_decay": 0.0,
    "training.precision": "float32", "decoding.beam_size": 2, "decoding.max_extra_length": 40,
}  # fmt: skip
SENTENCES = ["the cat sees a dog .", "a bird likes the fish ."]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    """A folder with train.ptb, dev.ptb and a small parser; and what its training printed."""

    def make(folder: Path) -> tuple[Path, str]:
        for name, size, seed in (("train", 300, 1), ("dev", 30, 2)):
            trees = "".join(f"{tree}\n" for tree in toy_trees(size, seed))
            (folder / f"{name}.ptb").write_text(trees)
        command = ["train", "--train", str(folder / "train.ptb"), "--valid"]
        command += [str(folder / "dev.ptb"), "--output", str(folder / "parser")]
        for name, value in SETTINGS.items():
            command += ["--set", f"{name}={json.dumps(value)}"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdout", printed := io.StringIO())
            assert run(main, command) == 0
        return folder, printed.getvalue()

    return made_once(tmp_path_factory, "parser", make)


@pytest.fixture(scope="module")
def parser(trained) -> Parser:
    return Parser.load(trained[0] / "parser")


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    """The current folder, with a copy of the parser and its trees."""
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def feed(monkeypatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))


# --- Training ----------------------------------------------------------------------------


def test_training_prints_scores_and_the_next_command(trained):
    lines = trained[1].splitlines()
    assert any(re.match(r"dev F1 [\d.]+  precision .* 30 sentences, 0 err", ln) for ln in lines)
    assert any(re.match(r"30 sentences; well-formed: [\d.]+%; ", line) for line in lines)
    assert re.fullmatch(r"python -m experiments.parsing parse \S+/parser .*", lines[-1])


def test_every_token_of_a_sequence_is_one_piece_and_subwords_are_learned_from_words(trained):
    tokenizer = tf_transformer.Tokenizer(trained[0] / "parser" / "run" / "tokenizer.model")
    pairs = [*map(linearised, read_treebank(trained[0] / "train.ptb"))]
    sequences = [sequence for _, sequence in pairs]
    lengths = [len(ids) for ids in tokenizer.ids(sequences)]
    assert lengths == [len(sequence.split()) for sequence in sequences]
    assert tokenizer.vocab_size == 330


def test_the_dev_score_is_the_bracketing_score_of_the_parses(trained, parser):
    gold = [*read_treebank(trained[0] / "dev.ptb")]
    parses = parser.parse([linearised(tree)[0] for tree in gold])
    expected = summarise(score_lines([*map(str, gold)], [*map(str, parses)]))
    (record,) = Run.open(trained[0] / "parser" / "run").history()
    assert record["valid_score"] == pytest.approx(expected.f1) and expected.f1 > 50
    assert f"dev F1 {expected.f1:.2f}  precision {expected.precision:.2f}" in trained[1]
    assert Counts.of(parses).summary() in trained[1]


class Written(str):
    """What a search has written."""

    is_cut = False


def test_the_score_is_named_f1_and_takes_any_translations(capsys):
    f1 = f1_of([*map(read_one, ("(TOP (NP (DT a) (NN cat)))", "(TOP (NP (NN dog)))"))])
    assert f1.__name__ == "f1"
    found = [Written("(NP DT NN )NP"), Written("")]
    assert f1(["a cat", "dog"], found, ["unused"] * 2) == pytest.approx(200 / 3)
    assert "repaired: 1, by 1 changes" in capsys.readouterr().out


def read_one(text: str):
    return read_line(text)[0]


def options_of(folder: Path, **changes) -> dict:
    data = {"files": [folder / "train.ptb"], "dev_files": [folder / "dev.ptb"]}
    options = data | {"output": folder / "parser", "config": FOLDER / "parsing-small.yaml"}
    return options | {"settings": SETTINGS} | changes


def test_the_same_call_finds_the_training_finished(folder):
    before = (folder / "parser" / "run" / "checkpoints" / "best.npz").read_bytes()
    again = train(**options_of(folder))
    assert (folder / "parser" / "run" / "checkpoints" / "best.npz").read_bytes() == before
    assert again.parse(SENTENCES[:1])[0].repairs == 0


def test_other_trees_are_refused_for_a_parser(folder):
    before = (folder / "parser" / "lexicon.json").read_bytes()
    trees = [*toy_trees(9), "(S (NP (NN a) (DT cat)) (VP (IN sees)))"]
    (folder / "other.ptb").write_text("\n".join(trees))
    with pytest.raises(UserError, match="lexicon.json was made of other trees"):
        train(**options_of(folder, files=[folder / "other.ptb"]))
    assert (folder / "parser" / "lexicon.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("(S (UH Yes))\n(S (UH No)\n", {}, "dev.ptb:2:1"),
        ("(S (-NONE- 0))\n", {}, "The dev trees must have words"),
        ("(S (UH Yes))\n", {"data.subword_sampling": 0.1}, "brackets have one segmentation"),
        ("(S (UH Yes))\n", {"decoding.min_length": 5}, "is constrained to trees. Rec.*0 and 5"),
        ("(S (UH Yes))\n", {"decoding.no_repeat_ngram": 3}, "Received: 3 and 0"),
    ],
)
def test_bad_trees_and_settings_are_refused_before_anything_else(
    trained, tmp_path, text, changes, expected
):
    (tmp_path / "dev.ptb").write_text(text)
    options = options_of(trained[0], dev_files=[tmp_path / "dev.ptb"])
    options |= {"output": tmp_path / "new", "settings": SETTINGS | changes}
    with pytest.raises(UserError, match=expected):
        train(**options)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["parsing-small", "parsing-wsj", "parsing-semi"])
def test_files_of_settings_are_those_of_the_paper_or_smaller(name):
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    assert content["decoding"]["alpha"] == 0.3
    assert content["decoding"]["max_extra_length"] == 300
    if name != "parsing-small":  # paper 6.3
        sizes = {"vocab_size": {"wsj": 16_000, "semi": 32_000}[name[8:]]}
        assert content["model"] == sizes | {"num_layers": 4, "d_model": 1024}
        assert content["decoding"]["beam_size"] == 21


# --- Parser ------------------------------------------------------------------------------


def test_a_parse_is_a_tree_over_exactly_the_words(parser):
    texts = ["the cat sees a dog .", "", "zebra ( ünheard ) of % the", "  "]
    parses = parser.parse(texts)
    assert [parse.tree and parse.tree.words() for parse in parses] == [
        ["the", "cat", "sees", "a", "dog", "."],
        None,
        ["zebra", "-LRB-", "ünheard", "-RRB-", "of", "%", "the"],
        None,
    ]
    assert Counts.of(parses).sentences == 2
    assert parser.parse([]) == []


def test_with_the_grammar_only_sequences_cut_short_are_repaired(trained, parser):
    strange = ["zebra -LRB- ünheard -RRB- of % the", ", , , .", "the the the the the the the"]
    dev = [linearised(tree)[0] for tree in read_treebank(trained[0] / "dev.ptb")]
    parses = parser.parse([*dev, *strange, "."])
    assert all(parse.cut for parse in parses if parse.repairs)
    assert sum(parse.repairs == 0 for parse in parses) > len(dev) / 2


def test_without_it_nothing_holds_the_sequence_to_the_words(parser):
    free = Parser(parser.translator, None, {"max_length": 4, "beam_size": 1})
    parses = free.parse(["the cat sees a dog .", "", SENTENCES[1]])
    assert [parse.cut for parse in parses] == [parse.repairs > 0 for parse in parses]
    assert Counts.of(parses).cut == 2
    assert parses[0].tree.words() == ["the", "cat", "sees", "a", "dog", "."]


@pytest.mark.parametrize("rule", [{"no_repeat_ngram": 3}, {"min_length": 5}])
def test_search_rules_that_can_forbid_every_tree_are_refused(parser, rule):
    with pytest.raises(UserError, match="must be 0 .* when the search is constrained to trees"):
        Parser(parser.translator, parser.grammar, rule)
    Parser(parser.translator, None, rule)


def test_a_beam_may_be_wider_than_there_are_hypotheses(parser):
    wide = Parser(parser.translator, parser.grammar, {"beam_size": 21})
    texts = ["the cat sees a dog .", "the .", ".", "a bird"]
    assert [" ".join(parse.tree.words()) for parse in wide.parse(texts)] == texts


def test_given_trees_are_scored_and_attended_to(parser):
    text = SENTENCES[0]
    (parse,) = parser.parse([text])
    (best,) = parser.translator.translate([text], rules=[parser.grammar])
    (scored,) = parser.score([text], [parse])
    assert scored.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    (attention,) = parser.attention([text])
    assert attention.target[0].startswith("\u2581(")
    assert len(attention.target) == best.num_tokens
    with pytest.raises(UserError, match="trees:1:1: not a well-formed tree"):
        parser.score(["a dog"], ["(NP (DT a"])
    assert parser.score(["", " "], ["", "(S (-NONE- *))"])[0].num_tokens == 1


@pytest.mark.parametrize("tree", ["(NN dog) (NN dog)", "(NN cat)", "", "(S (-NONE- *))"])
def test_a_tree_over_other_words_than_its_sentence_is_refused(parser, tree):
    expected = "Tree 2 must be a single tree over the words of its sentence, 'dog'. Received: "
    with pytest.raises(UserError, match=re.escape(expected + repr(tree))):
        parser.score(["dog", "dog"], ["(S (NN dog))", tree])


def test_counts_add_up():
    both = Counts(3, 1, 4, 1) + Counts(1, 1, 5, 0)
    assert both == Counts(4, 2, 9, 1)
    assert both.summary() == (
        "4 sentences; well-formed: 50.0%; repaired: 2, by 9 changes; cut at the length limit: 1"
    )


# --- Commands ----------------------------------------------------------------------------


def test_sentences_become_trees_line_by_line(folder, capsys, monkeypatch):
    feed(monkeypatch, "the cat sees a ( dog ) .\n\n a bird  likes the fish .\n")
    assert run(main, ["parse", "parser"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 3 and lines[1] == ""
    words = [" ".join(tree.words()) for line in lines for tree in read_line(line)]
    assert words == ["the cat sees a -LRB- dog -RRB- .", "a bird likes the fish ."]
    assert re.fullmatch(r"2 sentences; well-formed: .*\n", captured.err)


def test_parsed_trees_can_be_scored_and_drawn(folder, capsys):
    (record,) = Run.open("parser/run").history()
    assert run(main, ["parse", "parser", "--words-of", "dev.ptb"]) == 0
    Path("parsed.ptb").write_text(capsys.readouterr().out)
    Path("gold.ptb").write_text(Path("dev.ptb").read_text().replace("(ROOT ", "(TOP "))
    assert run(main, ["score", "gold.ptb", "parsed.ptb"]) == 0
    captured = capsys.readouterr()
    assert re.search(rf"^\| F1 +\| +{record['valid_score']:.2f} ", captured.out, re.M)
    assert captured.err == ""
    pytest.importorskip("matplotlib")
    assert run(main, ["draw", "gold.ptb", "parsed.ptb", "--output", "new/first.svg"]) == 0
    assert Path("new/first.svg").stat().st_size > 0


def test_an_unconstrained_search_needs_no_lexicon_and_is_repaired(folder, capsys, monkeypatch):
    Path("parser/lexicon.json").unlink()
    feed(monkeypatch, "the the the the the the the\n")
    assert run(main, ["parse", "parser"]) == 1
    assert "lexicon.json cannot be read: No such file" in capsys.readouterr().err
    assert run(main, ["parse", "parser", "--constraint", "none"]) == 0
    captured = capsys.readouterr()
    assert read_line(captured.out)[0].words() == ["the"] * 7
    assert re.search(r"1 sentences; .* repaired: 1, by [1-9]", captured.err)


@pytest.mark.parametrize(("constraint", "tag"), [("tags", "DT"), ("words", "NN")])
def test_constrained_to_words_alone_a_search_may_use_any_tag(folder, constraint, tag):
    file = Path("parser/lexicon.json")
    lexicon = Lexicon.load(file)
    words = lexicon.words | {"cat": ("DT",)}
    file.write_text(dataclasses.replace(lexicon, words=words).text(), "utf-8")
    (parse,) = Parser.load(Path("parser"), constraint=constraint).parse(SENTENCES[:1])
    assert f"({tag} cat)" in parse and parse.repairs == 0


GOLD = [
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))",
    "(TOP (S (NP (PRP It)) (VP (VBZ is) (ADJP (JJ old)))))",
    "(TOP (S (VP (VB Go))))",
    "(TOP (S (VP (VB Stay))))",
]

PARSED = [
    "(TOP (S (NP (DT The)) (VP (NN dog) (VBZ barks)) (. .)))",
    "(TOP (S (NP (PRP It)) (VP (VBZ is) (ADJP (JJ old)))))",
    "",
    "(TOP (S (VP (VB Stay)))",
]


def test_trees_are_scored_and_sentences_left_out_are_named(tmp_path, capsys, monkeypatch):
    Path("gold").write_text("".join(f"{line}\n" for line in GOLD))
    feed(monkeypatch, "".join(f"{line}\n" for line in PARSED))
    assert run(main, ["score", "gold"]) == 0
    printed = capsys.readouterr()
    # By hand: in the first only S of S, NP, VP matches; in the second all of S, NP, VP, ADJP.
    cells = [[cell.strip() for cell in line.split("|")] for line in printed.out.splitlines()]
    rows = {name: figures for _, name, *figures, _ in cells}
    assert rows["valid"] == ["2", "2"]
    assert (rows["errors"], rows["skipped"]) == (["1", "1"], ["1", "1"])
    assert rows["recall"] == rows["precision"] == rows["F1"] == ["71.43", "71.43"]
    assert rows["complete match"] == ["50.00", "50.00"]
    assert "sentence 4 is left out: output:4:1: not a well-formed tree" in printed.err


def test_a_root_that_counts_as_a_bracket_gives_a_warning(tmp_path, capsys):
    Path("gold").write_text("(ROOT (S (UH Yes)))\n")
    assert run(main, ["score", "gold", "gold"]) == 0
    assert "warning: the root of the trees in gold is ROOT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("score two one", "two with 2 lines, one with 1"),
        ("score bad one", "bad:1:1: not a well-formed tree: Ein outside"),
        ("score lost one", "lost cannot be read"),
        ("draw two two --output tree.svg --line 3", "two:3: expected one tree. Received: 0"),
        ("draw two two --output tree.txt", "tree.txt cannot be written"),
        ("parse parser --words-of bad", "bad:1:1: not a well-formed tree"),
        ("train --train one --valid bad --output new", "bad:1:1: not a well-formed tree"),
        ("train --train one --valid one --output new --config lost.yaml", "read as YAML"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder, capsys, words, expected):
    Path("two").write_text("(TOP (X a))\n(TOP (X b))\n")
    Path("one").write_text("(TOP (X a))\n")
    Path("bad").write_text("Ein outside\n")
    assert run(main, words.split()) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("error: ") and stderr.count("\n") == 1 and expected in stderr
    assert not Path("new").exists()
