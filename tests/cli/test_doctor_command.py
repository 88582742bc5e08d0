"""`tf-transformer doctor`: a line for each check, a count, and status 0."""

import re
from collections import Counter
from pathlib import Path

import pytest
from command_line import assert_refused, tree
from helpers import DEFECTS, dirty_pairs

from tf_transformer.cli.main import main
from tf_transformer.data.text import write_pairs

TEXT = [
    "encoding", "control characters", "HTML entities", "empty lines", "length", "length ratio",
    "copies", "languages", "duplicates", "overlap", *["variety"] * 2,
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


def lines_of(file: Path) -> list[str]:
    return file.read_text("utf-8").split("\n")[:-1]


def pairs_of(prefix: str) -> list[tuple[str, str]]:
    return [*zip(*(lines_of(Path(f"{prefix}.{side}")) for side in ("en", "de")), strict=True)]


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
        ("overlap", found[9][2])
    ]
    assert found[9][2].startswith("250 of 250 pairs of test (100%)")


def test_without_any_option_the_built_in_corpus_is_checked(workplace, capsys):
    found = doctor(capsys, "")
    assert {check for verdict, check, _ in found if verdict != "ok"} == {"variety"}


@pytest.fixture
def dirty(tmp_path, monkeypatch) -> list[tuple[str, str]]:
    """Pairs in dirty.en and dirty.de: 50 of each of `DEFECTS` among the first 1,000."""
    monkeypatch.chdir(tmp_path)
    rows = dirty_pairs()
    write_pairs(Path("dirty"), ("en", "de"), rows)
    return rows


CLEAN = "doctor --train dirty --source en --target de --set data.max_length=128"


def test_clean_writes_each_good_pair_once_and_says_why_not_the_others(dirty, capsys):
    assert main([*CLEAN.split(), "--clean", "out"]) == 0
    *_, written, rejected = capsys.readouterr().out.splitlines()
    splits = {name: pairs_of(f"out/{name}") for name in ("train", "dev", "test")}
    kept = [pair for pairs in splits.values() for pair in pairs]
    rows = [line.split("\t") for line in lines_of(Path("out/rejected.tsv"))]
    reasons, places, *sides = zip(*rows, strict=True)
    assert Counter(reasons) == dict.fromkeys(DEFECTS, 50)
    assert sorted([*kept, *zip(*sides, strict=True)]) == sorted(dirty)
    for place, *pair in zip(places, *sides, strict=True):
        file, number = place.split(":")
        assert (file, dirty[int(number) - 1]) == ("dirty.en", tuple(pair))
    size = int(0.05 * len(kept))
    assert len(splits["dev"]) == len(splits["test"]) == size
    assert written == f"out: {len(splits['train']):,} of train, {size} of dev, {size} of test"
    assert rejected.startswith(f"rejected 500 of {len(dirty):,} pairs (")
    for side in (0, 1):
        train, dev, test = ({pair[side] for pair in pairs} for pairs in splits.values())
        assert not train & dev and not train & test and not dev & test
    for seed in (1, 2):
        words = ["--clean", f"out{seed}", "--set", f"training.seed={seed}"]
        assert main([*CLEAN.split(), *words]) == 0
    assert pairs_of("out1/dev") == splits["dev"] != pairs_of("out2/dev")


def test_pairs_with_other_numbers_are_rejected_if_asked_for(dirty, capsys):
    with_number = [(f"{source} 1,000", f"{target} 100") for source, target in dirty[-20:]]
    write_pairs(Path("dirty"), ("en", "de"), [*dirty, *with_number])
    for options in ([], ["--numbers"]):
        assert main([*CLEAN.split(), "--clean", f"out{len(options)}", *options]) == 0
        assert ("numbers 20" in capsys.readouterr().out) == bool(options)


def test_clean_keeps_train_apart_from_given_sets(dirty, capsys):
    same_source = [(source, "Nein.") for source, _ in dirty[1_100:1_110]]
    same_target = [("No.", target) for _, target in dirty[1_110:1_120]]
    write_pairs(Path("dev"), ("en", "de"), same_source)
    write_pairs(Path("test"), ("en", "de"), same_target)
    assert main([*CLEAN.split(), *["--valid", "dev", "--test", "test", "--clean", "out"]]) == 0
    assert re.search(r"out: [\d,]+ of train\n.*overlap 20", capsys.readouterr().out)
    assert {file.name for file in Path("out").iterdir()} == {
        "train.en",
        "train.de",
        "rejected.tsv",
    }
    assert not {*dirty[1_100:1_120]} & {*pairs_of("out/train")}
    assert main([*CLEAN.split(), *["--valid", "dev", "--clean", "more"]]) == 0
    assert {*pairs_of("more/test")} < {*pairs_of("out/train"), *dirty[1_110:1_120]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--train dirty --clean .", "--clean must name a new folder. Received: ."),
        ("--train dirty --clean dirty", "--clean must name a new folder. Received: dirty"),
        ("--train dirty --clean dirty.en/out", "--clean must be in a writable folder"),
        ("--clean out", "--clean needs --train."),
        (
            "--train dirty --train dirty:de-en --clean out",
            "languages at a time. Received: de-en, en-de",
        ),
        (
            "--train few --clean out",
            "Cleaning needs more pairs that pass. Received: 3, of which 3",
        ),
        ("--train no --clean out", "There is no no.en"),
    ],
)
def test_clean_refuses_what_it_cannot_write_or_divide(dirty, capsys, arguments, expected):
    write_pairs(Path("few"), ("en", "de"), dirty[-3:])
    languages = "--source en --target de --set model.vocab_size=300" * ("train" in arguments)
    before = tree(Path())
    assert main(["doctor", *arguments.split(), *languages.split()]) == 1
    assert expected in capsys.readouterr().err.splitlines()[-1]
    assert tree(Path()) == before


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
