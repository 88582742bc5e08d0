"""BLEU by source length, as numbers and as a picture."""

import re
import shutil
from pathlib import Path

import pytest

from experiments.common import run
from experiments.lengths.__main__ import main
from experiments.lengths.study import Bucket, LengthCurve, buckets, lengths_figure
from tf_transformer import Run, load
from tf_transformer.evaluation import Interval, bleu, bleu_interval, score_translations


@pytest.mark.parametrize(
    ("lengths", "least", "expected"),
    [
        ([1, 8, 9, 16, 17], 1, ["1-8: 0 1", "9-16: 2 3", "17-17: 4"]),
        ([17, 1, 9], 1, ["1-8: 1", "9-16: 2", "17-17: 0"]),
        ([16, 16], 1, ["1-16: 0 1"]),  # no bucket without a sentence
        ([3, 20, 21], 1, ["1-8: 0", "9-21: 1 2"]),
        ([3, 9, 10, 30, 31], 2, ["1-16: 0 1 2", "17-31: 3 4"]),
        ([3, 4, 9, 30], 2, ["1-8: 0 1", "9-30: 2 3"]),
        ([3, 4, 30], 2, ["1-30: 0 1 2"]),  # the rest joins the previous bucket
        ([5], 9, ["1-5: 0"]),
    ],
)
def test_small_buckets_are_merged(lengths, least, expected):
    found = [
        f"{group}: {' '.join(map(str, group.rows))}" for group in buckets(lengths, 8, least)
    ]
    assert found == expected


def test_each_sentence_is_in_the_bucket_of_its_length():
    lengths = [(7 * number) % 50 + 1 for number in range(200)]
    found = buckets(lengths, 5, 10)
    assert sorted(row for group in found for row in group.rows) == list(range(200))
    for group in found:
        assert all(group.first <= lengths[row] <= group.last for row in group.rows)
    assert all(a.last + 1 == b.first for a, b in zip(found, found[1:], strict=False))


REFERENCES = [f"der kleine Hund Nummer {number} schläft im Garten ." for number in range(40)]


def test_the_interval_contains_the_score_and_narrows_with_more_sentences():
    hypotheses = [
        line.replace("Hund", "Kater") if number % 3 else line
        for number, line in enumerate(REFERENCES)
    ]
    found = bleu_interval(hypotheses, REFERENCES)
    assert found.value == bleu(hypotheses, REFERENCES).value
    assert found.low < found.value < found.high
    assert found.length_ratio == 1
    assert "bs:1000" in found.signature
    # Four times the sentences: about half the width.
    more = bleu_interval(hypotheses * 4, REFERENCES * 4)
    assert 1.5 < (found.high - found.low) / (more.high - more.low) < 2.7


def test_short_translations_have_a_low_length_ratio():
    half = [" ".join(line.split()[:4]) for line in REFERENCES]
    assert bleu_interval(half, REFERENCES).length_ratio == pytest.approx(4 / 9)


GROUPS = [Bucket(1, 8, [0] * 30), Bucket(9, 16, [1] * 1200), Bucket(17, 30, [2] * 20)]


@pytest.fixture
def needs_matplotlib() -> None:
    pytest.importorskip("matplotlib")


def curve(label: str, *values: float, longest: int = 16, limit: int = 1024) -> LengthCurve:
    intervals = [Interval(value, value - 2, value + 1, value / 50, "bs:9") for value in values]
    return LengthCurve(label, intervals, longest, limit)


@pytest.mark.usefixtures("needs_matplotlib")
def test_each_run_is_a_curve_with_its_intervals():
    figure = lengths_figure(
        GROUPS, [curve("runs/one", 40, 50, 5), curve("runs/two", 30, 20, 10)]
    )
    above, below = figure.axes
    containers = above.containers
    assert [each.get_label() for each in containers] == [
        "one, trained up to 16",
        "two, trained up to 16",
    ]
    for each, values in zip(containers, ([40, 50, 5], [30, 20, 10]), strict=True):
        line, _, [bars] = each.lines
        assert line.get_ydata().tolist() == values
        ends = [[point[1] for point in path] for path in bars.get_segments()]
        assert ends == [[value - 2, value + 1] for value in values]
    ratios = [line.get_ydata().tolist() for line in below.lines[:2]]
    assert ratios == [[0.8, 1, 0.1], [0.6, 0.4, 0.2]]
    labels = [label.get_text() for label in below.get_xticklabels()]
    assert labels == ["1–8\n30", "9–16\n1,200", "17–30\n20"]
    assert "bs:9" in below.get_xlabel()


@pytest.mark.usefixtures("needs_matplotlib")
def test_runs_are_distinguishable_without_colour():
    figure = lengths_figure(GROUPS, [curve(str(number), 4, 5, 6) for number in range(5)])
    lines = [each.lines[0] for each in figure.axes[0].containers]
    assert len({line.get_marker() for line in lines}) == 5


def marks(*curves: LengthCurve) -> list[tuple[float, str]]:
    """Returns the positions and texts of vertical lines."""
    above = lengths_figure(GROUPS, list(curves)).axes[0]
    drawn = {line.get_xdata()[0] for line in above.lines if len(set(line.get_xdata())) == 1}
    written = sorted((text.xy[0], text.get_text()) for text in above.texts)
    assert {position for position, _ in written} == drawn
    return written


@pytest.mark.usefixtures("needs_matplotlib")
@pytest.mark.parametrize(
    ("lengths", "expected"), [([16, 16], [16.5]), ([12, 20], [12.5, 20.5]), ([31, None], [])]
)
def test_longest_training_lengths_within_the_picture_are_marked_once_each(lengths, expected):
    found = marks(*(curve("a", 1, 2, 3, longest=length) for length in lengths))
    assert found == [(position, "longest in training") for position in expected]


@pytest.mark.usefixtures("needs_matplotlib")
def test_an_unknown_training_length_is_named_in_the_legend():
    legend = lengths_figure(GROUPS, [curve("a", 1, 2, 3, longest=None)]).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "a, trained up to an unknown length"
    ]


# --- The command -------------------------------------------------------------------------

LENGTHS = ["run", "--source", "test.en", "--reference", "test.de"]


def rows(printed: str) -> list[list[str]]:
    """Returns the words of each row of the table."""
    lines = [line.replace("|", " ").split() for line in printed.splitlines()]
    return [words for words in lines if words and re.fullmatch(r"\d+-\d+", words[0])]


@pytest.mark.usefixtures("needs_matplotlib")
def test_each_bucket_has_its_bleu(texts, capsys):
    assert run(main, [*LENGTHS, "--width", "6", "--least", "2"]) == 0
    printed = capsys.readouterr().out
    found = rows(printed)
    assert sum(int(row[1]) for row in found) == 18
    assert found[-1][1] == "2"  # the long ones
    longest = Run.open("run").longest_source
    assert f"run: trained up to {longest}, cuts at 1,024 pieces" in printed
    assert Path("lengths.png").read_bytes().startswith(b"\x89PNG")
    assert "lengths.png\n" in printed

    # The sentences of the last bucket, scored otherwise.
    sides = [Path(f"test.{side}").read_text("utf-8").splitlines()[-2:] for side in ("en", "de")]
    score = score_translations(load("run").translate(sides[0]), sides[1])
    assert f"{score.bleu.value:.2f}" == found[-1][2]


@pytest.mark.usefixtures("needs_matplotlib")
def test_without_the_tokenised_corpus_the_training_length_is_unknown(texts, capsys):
    no_data = shutil.ignore_patterns("data")
    copy = shutil.copytree(Path("run").resolve(), "copy", ignore=no_data)
    assert run(main, [copy, *LENGTHS[1:], "--output", "new/a.svg"]) == 0
    assert "copy: trained up to an unknown length, cuts at 1,024" in capsys.readouterr().out
    svg = Path("new/a.svg").read_text("utf-8")
    assert svg.startswith("<?xml")
    assert "longest in training" not in svg


@pytest.mark.usefixtures("needs_matplotlib")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--width 0", "expected an int from 1. Received: '0'"),
        ("--checkpoint 5", "no checkpoint '5'"),
        ("--reference short.de", "Received: test.en with 18, short.de with 7"),
        ("--source blank.en --reference blank.de", "blank.de:1: a reference must have a word"),
        ("--output a.gif", "--output must end in .png, .svg or .pdf"),
    ],
)
def test_bad_input_is_refused(texts, refused, options, expected):
    assert re.search(expected, refused(main, [*LENGTHS, *options.split()]))


@pytest.mark.usefixtures("needs_matplotlib")
def test_every_run_is_opened_before_the_first_translation(texts, refused):
    assert "nowhere is not a run directory" in refused(main, ["run", "nowhere", *LENGTHS[1:]])
