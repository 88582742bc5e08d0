"""`tf-transformer doctor`: a line for each check, a count, and status 0."""

import re

import pytest
from command_line import assert_refused, tree

from tf_transformer.cli.main import main
from tf_transformer.config import Config

TEXT = [
    "encoding", "control characters", "HTML entities", "empty lines", "length", "length ratio",
    "copies", "overlap", *["variety"] * 2,
]  # fmt: skip
OPTIONS = "--train train --valid fresh --source en --target de"


@pytest.fixture
def texts(workplace):
    """The workplace with a new dev set, "fresh", taken from the end of the training text."""
    for language in ("en", "de"):
        lines = (workplace / f"train.{language}").read_text("utf-8").splitlines(keepends=True)
        (workplace / f"train.{language}").write_text("".join(lines[:250]), "utf-8")
        (workplace / f"fresh.{language}").write_text("".join(lines[250:]), "utf-8")
    return workplace


def doctor(capsys, arguments: str) -> list[tuple[str, str, str]]:
    """Returns (verdict, check, text) of each line; checks the count on the last line."""
    assert main(["doctor", *arguments.split()]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    if lines[0].startswith("classes: "):
        assert re.fullmatch(r"classes: animal \d+, colour \d+, number \d+", lines.pop(0))
    found = [re.fullmatch(r"(ok|warning) +([^:]+): (.+)", line).groups() for line in lines]
    warnings = sum(verdict == "warning" for verdict, _, _ in found)
    assert last == f"{warnings} warning{'' if warnings == 1 else 's'}"
    return found


def test_text_is_checked_without_a_run_and_nothing_is_written(texts, capsys):
    before = tree(texts)
    found = doctor(capsys, OPTIONS)
    assert [check for _, check, _ in found] == [*TEXT, "vocabulary"]
    assert {check for verdict, check, _ in found if verdict != "ok"} == {"variety"}
    assert tree(texts) == before


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (f"{OPTIONS} --model small", r"`vocab_size` must be at most \d+, .*vocab_size=16000"),
        (f"{OPTIONS} --set model.vocab_size=270", "`vocab_size` must be at least"),
    ],
)
def test_a_vocabulary_that_train_would_refuse_is_a_warning(texts, capsys, options, expected):
    (text,) = [
        text
        for verdict, check, text in doctor(capsys, options)
        if (verdict, check) == ("warning", "vocabulary")
    ]
    assert re.match(expected, text)


@pytest.mark.parametrize("task", ["parsing", "classification"])
def test_the_test_files_of_other_tasks_are_read_like_their_training_files(
    task, request, capsys
):
    run = request.getfixturevalue(f"{task}_run")
    name = {"parsing": "train.ptb", "classification": "train.tsv"}[task]
    found = doctor(capsys, f"{' '.join(run.options)} --test {run.corpus / name}")
    texts = [text for _, check, text in found if check == "overlap"]
    (overlap,) = [text for text in texts if "of test (100%)" in text]
    assert f"First: {run.corpus / name}, pair 1" in overlap


@pytest.mark.parametrize("task", ["parsing", "classification"])
def test_the_vocabulary_of_other_tasks_is_checked_too(task, request, capsys):
    """It is trained on the sentences, and for trees also on brackets and tags."""
    run = request.getfixturevalue(f"{task}_run")
    size = Config.from_json((run.path / "config.json").read_text()).model.vocab_size
    found = doctor(capsys, " ".join(run.options))
    assert ("ok", "vocabulary", f"the text is enough for {size} pieces") in found


def test_a_run_is_checked_with_its_tokenizer_and_corpora(workplace, capsys):
    before = tree(workplace / "run")
    found = doctor(capsys, "run")
    checks = [*TEXT, "vocabulary", "unknown characters", "filters"]
    assert [check for _, check, _ in found] == checks
    warned = [check for verdict, check, _ in found if verdict == "warning"]
    assert warned == ["overlap", "variety", "variety"]
    assert tree(workplace / "run") == before


def test_an_existing_tokenizer_is_checked_against_the_text(texts, capsys):
    (texts / "fresh.de").write_text("Łódź.\n" * 50, "utf-8")
    found = doctor(capsys, f"{OPTIONS} --set data.tokenizer=run/tokenizer.model")
    (text,) = [text for _, check, text in found if check == "unknown characters"]
    assert "50 of 50 target lines of dev" in text


def test_test_text_is_compared_with_train(texts, capsys):
    found = doctor(capsys, f"{OPTIONS} --test train --set data.join=0.1 --set data.caps=0.1")
    assert [(check, text) for verdict, check, text in found if verdict == "warning"] == [
        ("overlap", found[7][2])
    ]
    assert found[7][2].startswith("250 of 250 pairs of test (100%)")


def test_without_any_option_the_built_in_corpus_is_checked(workplace, capsys):
    found = doctor(capsys, "")
    assert {check for verdict, check, _ in found if verdict != "ok"} == {"variety"}


@pytest.mark.parametrize(
    ("arguments", "expected", "status"),
    [
        ("thesis", "thesis is not a run directory", 1),
        ("--train uneven --valid dev --source en --target de", "300 and uneven.de with 299", 1),
        (f"{OPTIONS} --test nowhere", "There is no nowhere.en", 1),
        (f"{OPTIONS} --test dev --test blank", "both sides in blank.en and blank.de", 1),
        (f"{OPTIONS} --devices 0", "--devices must be an int from 1 to 128", 2),
        ("--train train", "Your own data needs", 1),
    ],
)
def test_mistakes_give_one_line(texts, capsys, arguments, expected, status):
    assert_refused(capsys, ["doctor", *arguments.split()], expected, status=status)
