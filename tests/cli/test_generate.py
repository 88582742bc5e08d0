"""`generate`: translations as training pairs."""

import dataclasses

import pytest
from command_line import (
    assert_refused,
    run_here,
)

from tf_transformer.cli.translate import search_origin
from tf_transformer.config import DataConfig
from tf_transformer.data.text import corpora
from tf_transformer.run import Run


def test_the_table_can_be_trained_on(trained_run, tmp_path):
    output = tmp_path / "back.tsv.gz"
    words = ["generate", str(trained_run.path), "--input", str(trained_run.corpus / "dev.en")]
    words += ["--back", "--sample", "--seed", "3", "--output", str(output)]
    done = run_here(words)
    assert done.returncode == 0, done.stderr
    assert "back.tsv.gz: 40 lines read, " in done.stdout
    (text,) = corpora([str(output)], DataConfig(source="de", target="en"))
    sources = set(trained_run.lines("dev.en"))
    assert len(text) > 20 and all(target in sources for _, target in text.pairs())


def test_only_what_the_pairs_depend_on_must_be_the_same_to_resume(trained_run):
    decoding = Run.open(trained_run.path).config.decoding
    faster = dataclasses.replace(decoding, batch_tokens=9, checkpoint="last")
    wider = dataclasses.replace(decoding, beam_size=9)
    for sampled, other, same in (
        (False, faster, True), (True, faster, True), (False, wider, False), (True, wider, True)
    ):  # fmt: skip
        found, expected = (search_origin(each, sampled=sampled) for each in (other, decoding))
        assert (found == expected) is same


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--output out.txt", "must end in .tsv or .tsv.gz. Received: out.txt"),
        ("--output there.tsv", "there.tsv exists already"),
        ("--output o.tsv --tag <2de>", r"`tag` must consist .*it has none. Received: '<2de>'"),
    ],
)
def test_bad_options_are_refused(trained_run, words, expected, capsys, tmp_path):
    (tmp_path / "there.tsv").touch()
    text = str(trained_run.corpus / "dev.en")
    command = ["generate", str(trained_run.path), "--input", text, *words.split()]
    assert_refused(capsys, command, expected, status=1)
