"""translate, evaluate, score and export on a trained run."""

import json
import os
import re
import sys

import pytest
from command_line import SIGNATURE, TF_TRANSFORMER, run_command, translated
from sacrebleu.metrics import BLEU

from tf_transformer.cli.main import main
from tf_transformer.config import DecodingConfig
from tf_transformer.run import Run
from tf_transformer.tasks.translation.translator import Translator, load_translator


@pytest.fixture(scope="module")
def n_best(trained_run) -> Translator:
    """A translator with a beam of 3."""
    run = Run.open(trained_run.path)
    return load_translator(run, "best", decoding=DecodingConfig(beam_size=3, alpha=0.8))


# --- translate ---------------------------------------------------------------------------


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
    # Only a line about the sentence of 10,000 characters.
    assert done.stderr.decode() == "texts cut at 1024 tokens: 1\n"
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


def test_beam_and_alpha_change_the_search(trained_run, tmp_path, capsys):
    file = tmp_path / "in.txt"
    file.write_text("".join(f"{line}\n" for line in trained_run.lines("train.en")[-6:]))
    searches = (["--beam", "1"], ["--beam", "4", "--alpha", "3"])
    short, long = (translated(capsys, trained_run.path, file, *each) for each in searches)
    assert len(short) == len(long) == 6
    # A strong length penalty favours long translations.
    assert sum(map(len, short)) < sum(map(len, long))


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
    assert main(["score", str(trained_run.path), *arguments]) == 0
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
    for (log_prob, score, _), hypothesis in equal:
        assert float(log_prob) == pytest.approx(hypothesis.log_prob, abs=1e-4)
        assert float(score) == pytest.approx(hypothesis.score, abs=1e-4)


# --- export ------------------------------------------------------------------------------

# All that a server needs: TensorFlow, the SentencePiece operations, and the folder.
CLIENT = """
import json, sys
import tensorflow_text
from tensorflow import constant, saved_model
serve = saved_model.load(sys.argv[1]).signatures["serving_default"]
answer = serve(text=constant(json.load(sys.stdin)))
translations = [text.decode() for text in answer["translation"].numpy()]
json.dump([translations, answer["score"].numpy().tolist()], sys.stdout)
"""


def test_an_exported_model_translates_on_its_own(trained_run, exported, tmp_path):
    texts = [*trained_run.lines("train.en")[:10], "", "中文 🙂"]
    client = [sys.executable, "-c", CLIENT, str(exported)]
    done = run_command(client, json.dumps(texts).encode(), cwd=tmp_path)
    assert b"custom gradient" not in done.stderr  # TensorFlow's warning about a SavedModel
    translations, scores = json.loads(done.stdout)
    translator = load_translator(Run.open(trained_run.path), "best", decoding=DecodingConfig())
    expected = translator.translate(texts)
    assert translations == expected
    assert scores == pytest.approx([hypothesis.score for hypothesis in expected], abs=1e-4)
