"""A parser from end to end: train, parse, evaluate, draw."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, tree

from tf_transformer.cli.main import main
from tf_transformer.config import Config
from tf_transformer.run import Run
from tf_transformer.tasks.parsing.lexicon import Lexicon
from tf_transformer.tasks.parsing.trees import read_line
from tools.storm.lab import stdin_of


def test_training_prints_scores_and_the_next_commands(parsing_run):
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


def test_the_same_command_does_not_train_a_finished_run(parsing_run, parser, capsys):
    before = (parser / "run" / "metrics.jsonl").read_text()
    assert main(["train", *parsing_run.options, "--output", "run"]) == 0
    assert "finished at step 400;" in capsys.readouterr().out
    assert (parser / "run" / "metrics.jsonl").read_text() == before


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


def test_parsed_trees_can_be_evaluated_and_drawn(parser, capfd):
    record = json.loads((parser / "run" / "metrics.jsonl").read_text())
    assert main(["parse", "run", "--words-of", "dev.ptb"]) == 0
    Path("parsed.ptb").write_text(capfd.readouterr().out)
    Path("gold.ptb").write_text(Path("dev.ptb").read_text().replace("(ROOT ", "(TOP "))
    files = ["--hypothesis", "parsed.ptb", "--reference"]
    assert main(["evaluate", "--brackets", *files, "gold.ptb"]) == 0
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
    files = ["--hypothesis", "dev.ptb", "--reference", "dev.ptb"]
    assert main(["evaluate", "--brackets", *files]) == 0
    assert "warning  the root of the trees in dev.ptb is ROOT" in capsys.readouterr().out


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


def test_curves_show_the_score_of_the_task(parser):
    assert main(["curves", "run", "--output", "c.svg"]) == 0
    assert Path("c.svg").stat().st_size > 0


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


def test_doctor_leaves_out_checks_for_prose(parser, capsys):
    assert main(["doctor", "run"]) == 0
    checks = capsys.readouterr().out
    assert "overlap" in checks and "copies" not in checks
