"""Every score that `evaluate` prints is sacreBLEU's, to the last digit, with its signature.

sacreBLEU's own command judges the same files. Fails when BLEU is computed on translations in
lower case: the signature stays the same, but not the figure.
"""

import json
import subprocess
import sys

import pytest

HYPOTHESES = """\
Der Preis betrug 3,50 € (statt 4.20 $) am 1. Mai.
„Das ist nicht wahr“, sagte er - und ging.
A dog   runs & barks; it's 5% faster!

Ein Hund rennt über die Straße.
""".splitlines()
REFERENCES = """\
Der Preis betrug am 1. Mai 3,50 € (statt 4,20 $).
"Das ist nicht wahr", sagte er und ging.
A Dog runs & barks; it's 5 % faster!
Hier fehlt die Übersetzung.
Ein Hund rennt über die Strasse.
""".splitlines()
OTHERS = ["der Preis war 3,50 €.", *HYPOTHESES[1:3], "Hier fehlt sie.", "EIN HUND RENNT."]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def scores_of(printed):
    """The printed lines that end in a signature, as [name, figure, signature]."""
    return [line.split() for line in printed.splitlines() if "|version:" in line]


def sacrebleus(output, references, *options):
    """The same of sacreBLEU's command, which prints JSON."""
    command = [sys.executable, "-m", "sacrebleu", *references, "-i", output, "--force"]
    command += ["--metrics", "bleu", "chrf", "--width", "2", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    scores = json.loads(done.stdout)
    return [[score["name"], f"{score['score']:.2f}", score["signature"]] for score in scores]


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (1, []),
        (2, []),
        (2, ["--lowercase"]),
        (1, ["--tokenize", "intl"]),
        (1, ["--tokenize", "char"]),
        (2, ["--tokenize", "none"]),
    ],
)
def test_the_score_of_files_is_sacrebleus(number, options, run, tmp_path):
    output = write(tmp_path / "out.de", HYPOTHESES)
    files = [write(tmp_path / f"{len(t[0])}.de", t) for t in (REFERENCES, OTHERS)[:number]]
    references = [word for file in files for word in ("--reference", file)]
    printed = run("tf-transformer", "evaluate", "--hypothesis", output, *references, *options)
    assert scores_of(printed) == sacrebleus(output, files, *options)


def test_the_score_of_a_run_is_that_of_the_translations_it_writes(run, trained, text, tmp_path):
    output, reference = tmp_path / "out.de", text / "dev.de"
    options = ["--source", text / "dev.en", "--reference", reference, "--output", output]
    printed = run("tf-transformer", "evaluate", trained, *options, "--beam", "2")
    assert scores_of(printed) == sacrebleus(output, [reference])
