"""Options of `translate`: prefixes, lengths, samples, ensembles and alignments."""

import gzip
import os
import sys

import pytest
from command_line import translated

from tf_transformer.cli.main import main
from tools.storm.lab import stdin_of


@pytest.fixture
def four_lines(trained_run, tmp_path):
    """A file of three sentences and an empty line."""
    lines = trained_run.lines("train.en")
    file = tmp_path / "in.txt"
    file.write_text("".join(f"{line}\n" for line in (lines[0], "", lines[1], lines[2])))
    return file


def test_translations_begin_with_the_lines_of_the_prefix_file(
    trained_run, four_lines, tmp_path, capsys
):
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("Am Montag\nGanz\n\nDie Frau\n")
    run, options = trained_run.path, ["--prefix-file", str(prefixes)]
    begun = translated(capsys, run, four_lines, *options)
    assert begun == translated(capsys, run, four_lines, *options, "--line-buffered")
    assert begun[0].startswith("Am Montag")
    assert begun[1] == ""
    assert begun[2] == translated(capsys, run, four_lines)[2]
    assert begun[3].startswith("Die Frau")


def test_lengths_have_a_minimum_and_a_maximum(trained_run, four_lines, capsys):
    run = trained_run.path
    plain = translated(capsys, run, four_lines)
    short = translated(capsys, run, four_lines, "--max-length", "4")
    long = translated(capsys, run, four_lines, "--min-length", "40")
    assert all(len(one.split()) <= 3 for one in short)
    for row in (0, 2, 3):
        assert len(short[row]) < len(plain[row]) < len(long[row])
    trigrams = translated(
        capsys, run, four_lines, "--min-length", "40", "--no-repeat-ngram", "1"
    )
    assert trigrams != long


def test_the_best_n_are_fewer_where_the_search_finds_fewer(trained_run, four_lines, capsys):
    options = ["--n-best", "3", "--beam", "3", "--max-length", "1"]
    lines = translated(capsys, trained_run.path, four_lines, *options)
    numbers, scores, texts = zip(*(line.split("\t") for line in lines), strict=True)
    assert numbers == ("1", "2", "3", "4") and set(texts) == {""}
    assert all(float(score) > -1e4 for score in scores)


def test_the_best_one_has_its_number_and_score_too(trained_run, four_lines, capsys):
    plain = translated(capsys, trained_run.path, four_lines)
    lines = translated(capsys, trained_run.path, four_lines, "--n-best", "1")
    assert [line.split("\t")[0] for line in lines] == ["1", "2", "3", "4"]
    assert [line.split("\t")[2] for line in lines] == plain


def test_samples_repeat_only_with_the_same_seed(trained_run, four_lines, capsys):
    run = trained_run.path
    draw = ["--sample", "--temperature", "1.5", "--top-p", "0.95", "--n-best", "6"]
    one = translated(capsys, run, four_lines, *draw, "--seed", "7")
    assert len(one) == 3 * 6 + 1  # more than the run's beam is wide; one for the empty line
    assert translated(capsys, run, four_lines, *draw, "--seed", "7") == one
    assert translated(capsys, run, four_lines, *draw, "--seed", "8") != one
    (best, *_) = translated(capsys, run, four_lines, "--sample", "--top-k", "1")
    assert best == translated(capsys, run, four_lines, "--beam", "1")[0]


def test_an_ensemble_of_a_run_and_its_copies_equals_the_run(
    trained_run, copied, four_lines, tmp_path, capsys
):
    several, rows = ["--ensemble", str(copied), str(copied)], []
    for options in ([], several):
        lines = translated(capsys, trained_run.path, four_lines, "--n-best", "2", *options)
        rows.append([line.split("\t") for line in lines])
    texts, scores = ([[row[column] for row in found] for found in rows] for column in (2, 1))
    assert texts[0] == texts[1]
    assert list(map(float, scores[1])) == pytest.approx(list(map(float, scores[0])), abs=2e-4)


def test_evaluate_and_score_take_an_ensemble(trained_run, copied, capsys):
    source, target = (str(trained_run.corpus / f"dev.{language}") for language in ("en", "de"))
    for name, of in (("evaluate", "--reference"), ("score", "--target")):
        command = [name, str(trained_run.path), "--source", source, of, target]
        assert main(command) == 0
        alone = capsys.readouterr().out
        assert main([*command, "--ensemble", str(copied)]) == 0
        together = capsys.readouterr().out
        if name == "evaluate":
            scores = [text.partition("caution")[0] for text in (together, alone)]
            assert scores[0] == scores[1]
            assert together.count("caution") == 2  # each run has seen these lines
        else:
            figures, expected = (list(map(float, text.split())) for text in (together, alone))
            assert figures == pytest.approx(expected, abs=1e-4)


def test_alignments_have_a_line_of_word_pairs_per_sentence(
    trained_run, four_lines, tmp_path, capsys
):
    file = tmp_path / "new" / "out.align.gz"
    translations = translated(
        capsys, trained_run.path, four_lines, "--n-best", "2", "--alignments", str(file)
    )
    best = {row.split("\t")[0]: row.split("\t")[2] for row in reversed(translations)}
    rows = gzip.decompress(file.read_bytes()).decode().split("\n")
    assert rows.pop() == ""
    assert rows[1] == ""
    sources = four_lines.read_text().split("\n")
    for number, row in enumerate(rows, start=1):
        source, target = sources[number - 1], best[str(number)]
        pairs = [tuple(map(int, pair.split("-"))) for pair in row.split()]
        assert {word for _, word in pairs} == set(range(len(target.split())))
        assert {word for word, _ in pairs} <= set(range(len(source.split())))
    assert len(rows) == 4


def pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize(
    ("make_stdout", "status"), [(pipe_without_reader, 0), (lambda: "/dev/full", 1)]
)
def test_an_error_of_stdout_is_not_blamed_on_the_alignments(
    trained_run, four_lines, tmp_path, capsys, monkeypatch, make_stdout, status
):
    file = tmp_path / "out.align"
    with stdin_of(four_lines), open(make_stdout(), "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        command = ["translate", str(trained_run.path), "--alignments", str(file)]
        assert main(command) == status
    assert "out.align" not in capsys.readouterr().err
    assert not file.exists()
