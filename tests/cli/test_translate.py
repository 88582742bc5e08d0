"""`translate`, `score` and `evaluate` of a run."""

import gzip
import json
import os
import re
import sys

import pytest
from command_line import (
    SIGNATURE,
    TF_TRANSFORMER,
    assert_refused,
    run_command,
    run_here,
    translated,
)
from helpers import assert_nothing_moved, hostile_lines
from sacrebleu.metrics import BLEU

from tf_transformer.cli.main import main
from tf_transformer.config import DecodingConfig
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.translation.translator import Translator
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
    run, beam = trained_run.path, ["--beam", "1"]
    options = ["--prefix-file", str(prefixes), *beam]
    begun = translated(capsys, run, four_lines, *options)
    assert begun == translated(capsys, run, four_lines, *options, "--line-buffered")
    assert begun[0].startswith("Am Montag")
    assert begun[1] == ""
    assert begun[2] == translated(capsys, run, four_lines, *beam)[2]
    assert begun[3].startswith("Die Frau")


@pytest.mark.parametrize(
    ("widest", "lines", "options", "said"),
    [
        (8, "A dog .\n", ["--line-buffered"], 1),
        (8, "A dog .\nA cat .\n", [], 0),
        (8, "A dog .\n", ["--precision", "bfloat16"], 0),
        (8, "A dog .\n", ["--sample"], 0),
        (512, "A dog .\n", [], 0),
    ],
)
def test_single_sentences_of_a_wide_model_are_said_to_be_faster_in_litert(
    trained_run, tmp_path, monkeypatch, widest, lines, options, said
):
    monkeypatch.setattr("tf_transformer.cli.options._WIDE", widest)
    (file := tmp_path / "in.txt").write_text(lines)
    with stdin_of(file):
        done = run_here(["translate", str(trained_run.path), *options])
    assert done.returncode == 0
    assert done.stderr.count("faster with --litert --precision int8") == said


def test_a_document_keeps_its_lines_and_marks(trained_run, four_lines, tmp_path, capsys):
    document, lines = tmp_path / "document.txt", four_lines.read_text().splitlines()
    document.write_bytes(f"\ufeff* {lines[0]}\r\n\n\t{lines[2]}  ".encode())
    beam = ["--beam", "1"]
    found = translated(capsys, trained_run.path, four_lines, *beam)
    command = ["translate", str(trained_run.path), *beam]
    with stdin_of(document):
        done = run_here([*command, "--text", "--language", "en", "--context", "2"])
    assert done.stdout == f"* {found[0]}\r\n\n\t{found[2]}  "
    report = tmp_path / "report.jsonl"
    report_of = ["--text", "--language", "en", "--report", str(report)]
    document.write_text(f"{' '.join([lines[0][:-1]] * 3)}.\n\n{lines[2]}\n")  # much too long
    with stdin_of(document):
        done = run_here([*command, *report_of])
    rows = [json.loads(row) for row in report.read_text().splitlines()]
    assert "too short" in rows[0]["reasons"] and rows[0]["score"] < 0
    assert rows[0]["number"] == 1 and rows[0]["source"].startswith(lines[0][:-1])
    message = f"{len(rows)} of 2 sentences look wrong: {report} lists them"
    assert message in done.stderr and done.stdout.count("\n") == 3
    message = "--text excludes --n-best: they are for lines"
    assert_refused(capsys, [*command, "--text", "--n-best", "2"], message, status=2)
    message = "--context needs --text"
    assert_refused(capsys, [*command, "--context", "2"], message, status=2)


@pytest.mark.parametrize("options", [[], ["--text", "--language", "en"]])
def test_a_report_of_nothing_is_an_empty_file_and_a_line(trained_run, tmp_path, options):
    lines, report = tmp_path / "in.txt", tmp_path / "report.jsonl"
    lines.write_text("\n")
    report.write_text("of an earlier call\n")
    with stdin_of(lines):
        command = ["translate", str(trained_run.path), "--report", str(report), *options]
        done = run_here(command)
    number = 0 if options else 1
    assert f"0 of {number} sentences look wrong: {report} is empty\n" in done.stderr
    assert (done.stdout, report.read_text()) == ("\n", "")


def test_a_hostile_document_keeps_its_lines(trained_run, tmp_path):
    document, lines = tmp_path / "document.txt", hostile_lines(150, 3)
    document.write_bytes("".join(map("".join, lines)).encode())
    options = ["--text", "--language", "en", "--beam", "1", "--max-length", "5"]
    with stdin_of(document):
        done = run_here(["translate", str(trained_run.path), *options])
    assert done.returncode == 0
    assert_nothing_moved(lines, done.stdout)
    document.write_bytes(b"A \xed\xa0\x80 dog.\n")  # a lone surrogate
    with stdin_of(document):
        done = run_here(["translate", str(trained_run.path), *options])
    assert done.returncode == 1 and "UTF-8" in done.stderr and not done.stdout


def test_the_best_n_are_fewer_where_the_search_finds_fewer(trained_run, four_lines, capsys):
    options = ["--n-best", "3", "--beam", "3", "--max-length", "1"]
    lines = translated(capsys, trained_run.path, four_lines, *options)
    numbers, scores, texts = zip(*(line.split("\t") for line in lines), strict=True)
    assert numbers == ("1", "2", "3", "4") and set(texts) == {""}
    assert all(float(score) > -1e4 for score in scores)


def test_the_best_one_has_its_number_and_score_too(trained_run, four_lines, capsys):
    plain = translated(capsys, trained_run.path, four_lines, "--beam", "1")
    options = ["--n-best", "1", "--word-probs", "--beam", "1"]
    lines = translated(capsys, trained_run.path, four_lines, *options)
    rows = [line.split("\t") for line in lines]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[2] for row in rows] == plain
    for row in rows:
        words, probs = (column.split() for column in row[2:])
        assert len(words) == len(probs) and all(0 <= float(one) <= 1 for one in probs)


def test_samples_depend_on_the_seed(trained_run, four_lines, capsys):
    run = trained_run.path
    draw = ["--sample", "--temperature", "1.5", "--top-p", "0.95", "--n-best", "6"]
    one = translated(capsys, run, four_lines, *draw, "--seed", "7")
    assert len(one) == 3 * 6 + 1  # more than the run's beam is wide; one for the empty line
    assert translated(capsys, run, four_lines, *draw, "--seed", "8") != one
    (best, *_) = translated(capsys, run, four_lines, "--sample", "--top-k", "1")
    assert best == translated(capsys, run, four_lines, "--beam", "1")[0]


def test_an_ensemble_of_a_run_and_its_copies_equals_the_run(
    trained_run, copied, four_lines, tmp_path, capsys
):
    several, rows = ["--ensemble", str(copied), str(copied)], []
    two = ["--beam", "2", "--n-best", "2"]
    for options in ([], several):
        lines = translated(capsys, trained_run.path, four_lines, *two, *options)
        rows.append([line.split("\t") for line in lines])
    texts, scores = ([[row[column] for row in found] for found in rows] for column in (2, 1))
    assert texts[0] == texts[1]
    assert list(map(float, scores[1])) == pytest.approx(list(map(float, scores[0])), abs=2e-4)


def test_an_export_translates_with_the_options_that_it_has(
    trained_run, exported, four_lines, capsys
):
    for options in ([], ["--alpha", "0", "--max-length", "6", "--n-best", "2"]):
        rows = [
            [line.split("\t") for line in translated(capsys, path, four_lines, *options)]
            for path in (trained_run.path, exported)
        ]
        texts, of_export = ([row[-1] for row in found] for found in rows)
        assert texts == of_export
    for options, expected in (
        (["--beam", "2"], "cannot search with another `beam_size`: load the run"),
        (["--alignments", "a"], "`alignments` is not for an export, but for the run it was"),
    ):
        with stdin_of(four_lines):
            command = ["translate", str(exported), *options]
            assert_refused(capsys, command, expected, status=1)


def test_evaluate_and_score_take_an_ensemble(trained_run, copied, capsys):
    source, target = (str(trained_run.corpus / f"dev.{language}") for language in ("en", "de"))
    for name, search, of in (
        ("evaluate", ["--beam", "1"], "--reference"),
        ("score", [], "--target"),
    ):
        command = [name, str(trained_run.path), *search, "--source", source, of, target]
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
    two = ["--beam", "2", "--n-best", "2"]
    translations = translated(
        capsys, trained_run.path, four_lines, *two, "--alignments", str(file)
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


@pytest.fixture(scope="module")
def n_best(trained_run) -> Translator:
    """A translator with a beam of 3."""
    run = Run.open(trained_run.path)
    return load_translator(run, "best", decoding=DecodingConfig(beam_size=3, alpha=0.8))


# --- Lines in, lines out -----------------------------------------------------------------


def test_translate_keeps_lines_in_order_and_prints_nothing_else(trained_run, n_best):
    known = trained_run.lines("train.en")[:12]
    long = " ".join(known * 20)[:10_000]
    lines = [*known[:6], "", "   ", known[6], "line\u2028separator", long, "", *known[7:], ""]
    assert len(long) == 10_000
    command = [*TF_TRANSFORMER, "translate", str(trained_run.path)]
    done = run_command(
        [*command, "--beam", "3", "--alpha", "0.8"], "".join(f"{x}\n" for x in lines).encode()
    )
    assert done.returncode == 0
    # Only lines about the sentence of 10,000 characters, whose translation is too short.
    pattern = r"texts cut at 1024 tokens: 1\n\d+ of 18 sentences look wrong: --report .*\n"
    assert re.fullmatch(pattern, done.stderr.decode())
    stdout = done.stdout.decode()
    assert stdout.endswith("\n")
    assert stdout.split("\n")[:-1] == n_best.translate(lines)


def test_n_best_prints_number_score_and_text(trained_run, n_best, tmp_path, capsys):
    lines = [trained_run.lines("train.en")[0], "", trained_run.lines("train.en")[1]]
    file = tmp_path / "in.txt"
    file.write_bytes("\r\n".join(lines).encode())  # as on Windows, without a final newline
    options = ["--beam", "3", "--alpha", "0.8", "--n-best", "2"]
    printed = translated(capsys, trained_run.path, file, *options)
    rows = [line.split("\t") for line in printed]
    assert "".join(number for number, _, _ in rows) == "11233"  # the blank line has one
    first, (blank,), last = n_best.translate(lines, n_best=2)
    expected = [*first, blank, *last]
    assert [text for _, _, text in rows] == expected
    assert all(re.fullmatch(r"-?\d+\.\d{4}", score) for _, score, _ in rows)
    assert [float(score) for _, score, _ in rows] == pytest.approx(
        [hypothesis.score for hypothesis in expected], abs=2e-4
    )


def test_a_reader_that_leaves_early_sees_no_traceback(trained_run, capsys, monkeypatch):
    references = str(trained_run.corpus / "dev.de")
    reader, writer = os.pipe()
    os.close(reader)  # as `| head -1` does, before anything is printed
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["evaluate", "--hypothesis", references, "--reference", references]) == 0
    assert capsys.readouterr().err == ""


# --- evaluate, score ---------------------------------------------------------------------


def test_evaluate_prints_the_bleu_of_the_translations_it_writes(trained_run, tmp_path, capsys):
    source, reference = (
        str(trained_run.corpus / f"dev.{language}") for language in ("en", "de")
    )
    output = tmp_path / "out" / "dev.hyp"
    run = ["evaluate", str(trained_run.path), "--source", source, "--reference", reference]
    assert main([*run, "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    translations, references = output.read_text().splitlines(), trained_run.lines("dev.de")
    bleu = BLEU().corpus_score(translations, [references]).score
    exact = sum(map(str.__eq__, translations, references))
    printed, caution, seen = printed.partition("caution")
    pattern = rf"BLEU {bleu:.2f}  {SIGNATURE}\nchrF2 [\d.]+  nrefs:1\S+\n"
    assert re.fullmatch(pattern + rf"exact {exact / 40:.1%} \({exact} of 40\)\n", printed)
    assert caution and "; 40 sources and 40 references are in the dev text" in seen
    # Training computes its dev BLEU, that of the best checkpoint, by other code.
    assert f"\ndev BLEU {bleu:.2f} " in trained_run.stdout

    scoring = ["evaluate", "--hypothesis", str(output), "--reference", reference]
    assert main(scoring) == 0
    assert capsys.readouterr().out == printed
    assert main([*scoring, "--lowercase", "--tokenize", "char"]) == 0
    assert "|case:lc|eff:no|tok:char|" in capsys.readouterr().out


def test_score_agrees_with_the_search(trained_run, n_best, capsys):
    source, target = (str(trained_run.corpus / f"dev.{language}") for language in ("en", "de"))
    arguments = ["--source", source, "--target", target, "--alpha", "0.8"]
    assert main(["score", str(trained_run.path), *arguments, "--word-probs"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 40
    # Where the search finds the reference, with the same pieces, both score the same sequence.
    best = n_best.translate(trained_run.lines("dev.en"))
    equal = [
        (row, hypothesis)
        for row, hypothesis, text in zip(rows, best, trained_run.lines("dev.de"), strict=True)
        if hypothesis == text and hypothesis.num_tokens == int(row[2])
    ]
    assert len(equal) > 5
    for (log_prob, score, _, words), hypothesis in equal:
        assert len(words.split()) == len(hypothesis.split())
        assert float(log_prob) == pytest.approx(hypothesis.log_prob, abs=1e-4)
        assert float(score) == pytest.approx(hypothesis.score, abs=1e-4)


def test_a_file_is_translated_around_what_is_no_text(trained_run, tmp_path, capsys):
    pytest.importorskip("pysubs2")
    source, output, report = (tmp_path / name for name in ("in.srt", "out.srt", "left.jsonl"))
    cue = "{}\n00:00:0{},000 --> 00:00:0{},500\n{}\n\n"
    lines = trained_run.lines("train.en")[:3]
    source.write_text("".join(cue.format(n, n, n, line) for n, line in enumerate(lines)))
    words = ["translate", str(trained_run.path), "--file", str(source), "--output", str(output)]
    words += ["--report", str(report)]
    assert main(words) == 0
    expected = load_translator(Run.open(trained_run.path)).translate_text(lines)
    texts = [block.split("\n", 2) for block in output.read_text().split("\n\n")[:3]]
    assert [number for number, *_ in texts] == ["0", "1", "2"]
    assert [" ".join(text.split()) for *_, text in texts] == [
        " ".join(t.split()) for t in expected
    ]
    assert "out.srt: translated: 3" in capsys.readouterr().err and report.exists()
    assert_refused(capsys, words, "out.srt exists already", status=1)
    assert main([*words, "--force"]) == 0
    capsys.readouterr()
    words[-1] = str(source)
    assert_refused(capsys, words, "--report must be another file", status=1)
