"""A parser from end to end: train, parse, score, draw."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, tree

from tf_transformer.cli.main import main
from tf_transformer.config import Config
from tf_transformer.run import Run
from tf_transformer.tasks.parsing.trees import Lexicon, read_line
from tools.storm.lab import stdin_of


def test_training_a_parser_prints_scores_and_the_next_commands(parsing_run):
    assert parsing_run.stderr == ""
    lines = parsing_run.stdout.splitlines()
    assert any(re.fullmatch(r"step +400  .*  dev F1 [\d.]+  .*  best", line) for line in lines)
    assert any(re.match(r"dev F1 [\d.]+  precision .* 30 sentences, 0 err", ln) for ln in lines)
    assert any(re.match(r"30 sentences; well-formed: [\d.]+%; ", line) for line in lines)
    assert re.fullmatch(r"  echo '.* \.' \| \S*tf-transformer parse \S+/run", lines[-2])
    assert not any("warning  tokenised" in line for line in lines)


def test_the_run_records_its_task_and_scores(parsing_run):
    config = Config.from_json((parsing_run.path / "config.json").read_text())
    assert (config.task, config.training.best_by) == ("parsing", "f1")
    (record,) = map(json.loads, (parsing_run.path / "metrics.jsonl").read_text().splitlines())
    assert record["valid_f1"] > 50
    assert 0 < record["valid_well_formed"] <= 1


def test_sentences_become_trees_line_by_line(parser, capfd):
    Path("in").write_text("the cat sees a ( dog ) .\n\n a bird  likes the fish .\n")
    with stdin_of(Path("in")):
        assert main(["parse", "run"]) == 0
    captured = capfd.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 3 and lines[1] == ""
    words = [tree.words() for line in lines for tree in read_line(line)]
    sentences = ["the cat sees a -LRB- dog -RRB- .", "a bird likes the fish ."]
    assert list(map(" ".join, words)) == sentences
    assert re.fullmatch(r"2 sentences; well-formed: .*\n", captured.err)


def test_parsed_trees_can_be_scored_and_drawn(parser, capfd):
    record = json.loads((parser / "run" / "metrics.jsonl").read_text())
    assert main(["parse", "run", "--words-of", "dev.ptb"]) == 0
    Path("parsed.ptb").write_text(capfd.readouterr().out)
    Path("gold.ptb").write_text(Path("dev.ptb").read_text().replace("(ROOT ", "(TOP "))
    with stdin_of(Path("parsed.ptb")):
        assert main(["parse", "--score", "gold.ptb"]) == 0
    table = capfd.readouterr().out
    assert re.search(rf"^F1 +{record['valid_f1']:.2f} ", table, re.M)
    assert "counts as a bracket" not in table
    assert main(["draw", "gold.ptb", "parsed.ptb", "--output", "first.svg"]) == 0
    assert Path("first.svg").stat().st_size > 0


def test_an_unconstrained_search_needs_no_lexicon_and_is_repaired(parser, capfd):
    Path("in").write_text("the the the the the the the\n")
    (parser / "run" / "lexicon.json").unlink()
    with stdin_of(Path("in")):
        assert main(["parse", "run"]) == 1
    assert "lexicon.json cannot be read: No such file" in capfd.readouterr().err
    with stdin_of(Path("in")):
        assert main(["parse", "run", "--constraint", "none"]) == 0
    captured = capfd.readouterr()
    assert read_line(captured.out)[0].words() == ["the"] * 7
    assert re.search(r"1 sentences; .* repaired: 1, by [1-9]", captured.err)


@pytest.mark.parametrize(("constraint", "tag"), [("tags", "DT"), ("words", "NN")])
def test_constrained_to_words_alone_a_search_may_use_any_tag(parser, capfd, constraint, tag):
    file = Path("run/lexicon.json")
    lexicon = Lexicon.load(file)
    Lexicon(lexicon.tags, lexicon.words | {"cat": ("DT",)}).save(file)
    Path("in").write_text("the cat sees a dog .\n")
    with stdin_of(Path("in")):
        assert main(["parse", "run", "--constraint", constraint]) == 0
    captured = capfd.readouterr()
    assert f"({tag} cat)" in captured.out
    assert read_line(captured.out)[0].words() == ["the", "cat", "sees", "a", "dog", "."]


def test_a_root_that_counts_as_a_bracket_gives_a_warning(parser, capsys):
    with stdin_of(Path("dev.ptb")):
        assert main(["parse", "--score", "dev.ptb"]) == 0
    assert "warning  the root of the trees in dev.ptb is ROOT" in capsys.readouterr().err


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


def test_trees_are_scored_and_sentences_left_out_are_named(empty_folder, capsys):
    for name, lines in {"gold": GOLD, "parsed": PARSED}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    with stdin_of(Path("parsed")):
        assert main(["parse", "--score", "gold"]) == 0
    printed = capsys.readouterr()
    # By hand: in the first only S of S, NP, VP matches; in the second all of S, NP, VP, ADJP.
    rows = [line.rsplit(maxsplit=2) for line in printed.out.splitlines()]
    rows = {name: figures for name, *figures in rows}
    assert rows["valid"] == ["2", "2"]
    assert (rows["errors"], rows["skipped"]) == (["1", "1"], ["1", "1"])
    assert rows["recall"] == rows["precision"] == rows["F1"] == ["71.43", "71.43"]
    assert rows["complete match"] == ["50.00", "50.00"]
    assert "sentence 4 is left out: output:4:1: not a well-formed tree" in printed.err


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("(TOP (X a))\n(TOP (X b))\n", "stdin with 1, gold with 2"),
        ("Ein outside\n", "gold:1:1: not a well-formed tree: Ein outside"),
    ],
)
def test_bad_gold_trees_are_refused(empty_folder, capsys, gold, expected):
    Path("gold").write_text(gold)
    Path("parsed").write_text("(TOP (X a))\n")
    with stdin_of(Path("parsed")):
        assert_refused(capsys, ["parse", "--score", "gold"], expected, status=1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("translate run", "for runs of --task translation. .*tf-transformer parse run"),
        (
            "export run --output e",
            "for runs of --task translation or class.*: run, of --task p",
        ),
        ("serve run", "for runs of --task translation or class.*tf-transformer parse run"),
        ("parse run --words-of in", "in:1:1: not a well-formed tree"),
    ],
)
def test_unsupported_commands_and_bad_trees_are_refused(parser, capsys, line, expected):
    Path("in").write_text("a cat .\n")
    assert_refused(capsys, line.split(), expected, status=1)


def test_doctor_writes_nothing_into_a_run_whose_text_has_changed(parser, capsys):
    """Or a new tag dictionary would change the parses of a trained run."""
    trees = Path(Run.open("run").config.data.train[0])
    shutil.copy(trees, "train.ptb")
    with Path("train.ptb").open("a") as file:
        file.write("(S (NP (NN a) (DT cat)) (VP (IN sees)))\n" * 9)
    Run.open("run").change_settings({"data.train": ["train.ptb"]}, "for this test")
    before = tree(Path("run"))
    assert main(["doctor", "run"]) == 0
    assert "data/train is encoded again" in capsys.readouterr().out
    assert tree(Path("run")) == before
