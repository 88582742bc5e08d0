"""Users' mistakes give one line of error and status 1 or 2, and lose no files."""

import io
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from command_line import assert_refused

from tf_transformer.base.files import LOCK_FILE
from tf_transformer.cli.main import main
from tools.storm.lab import stdin_of


def train(train: str = "train", valid: str = "dev", output: str = "new", target="de") -> str:
    """Returns a valid training command line, except for the arguments."""
    data = f"--train {train} --valid {valid} --source en --target {target}"
    return f"train {data} --output {output} --set model.vocab_size=400"


NEW = train()


TRAINING = [
    # Contradictions on the command line.
    ("train --train train --output new", "Received: train"),
    ("train --train train --valid dev --source en --output new", "needs all of"),
    ("train --source en --target de --output new", "Your own data needs"),
    (train(target="en"), "must differ. Received: 'en' twice"),
    ("train --model tinny --output new", "Did you mean 'tiny'"),
    ("train --config nowhere.yaml --output new", "nowhere.yaml cannot be read"),
    (f"{NEW} --set model.droput=0.3", "Did you mean 'model.dropout'"),
    (f"{NEW} --set model.d_model=wide", "must be an int from 1 to 65536. Received: 'wide'"),
    # Bad text.
    (train("nowhere"), r"There is no nowhere.en and no nowhere.en.gz"),
    (train(target="fr"), "There is: train.de, train.en"),
    (train("train.en"), "give its name without the language"),
    (train("cut"), "cut.en.gz is not a complete gzip file"),
    (train("uneven"), "uneven.en with 300 and uneven.de with 299"),
    (train("empty"), "no pair with text on both sides in empty.en and empty.de"),
    (train("blank"), "no pair with text on both sides in blank.en and blank.de"),
    (train(valid="empty"), "no pair with text on both sides in empty.en and empty.de"),
    (f"{NEW} --train blank", "no pair with text on both sides in blank.en and blank.de"),
    ("doctor --train dev --train no.tsv --valid dev --source en --target de", "in no.tsv: "),
    (f"{NEW} --train no.tsv", "no pair with text on both sides in no.tsv: leave it out"),
    (f"{NEW} --valid no.tsv.gz", "no pair with text on both sides in no.tsv.gz: leave"),
    (train("latin1"), r"latin1.de:2: text must be UTF-8.*byte 0xfc"),
    (f"{NEW} --set model.vocab_size=50000", r"must be at most \d+, .* vocab_size=50000"),
    (f"{NEW} --set model.vocab_size=100", r"must be at least \d+, .* vocab_size=100"),
    (f"{NEW} --set training.batch_tokens=8", r"`batch_tokens` must be at least \d+"),
    (f"{NEW} --set model.vocab_size=600 --init-from run --set data.slots=1", "<1> .* quotes"),
    (f"{NEW} --set data.tokenizer=no.model", "no.model cannot be read: No such file"),
    (f"{NEW} --set data.tokenizer=train.en", "train.en is not a SentencePiece model"),
    # Obstacles in the file system.
    (train(output="thesis"), "thesis exists but was not created by"),
    (train(output="train.en"), "--output must be a folder. Received: train.en"),
    (train(output="train.en/run"), "--output must be in a writable folder"),
    (f"{train(output='run')} --set model.d_model=32", "model.d_model was 64, now 32"),
]
COMMANDS = [
    ("translate thesis", "thesis is not a run directory"),
    ("translate nowhere", "nowhere is not a run directory"),
    ("translate begun", "no checkpoint 'best'. There is none yet"),
    ("translate run --checkpoint 200", "'200'. There are: best, average, 80, 160"),
    ("translate run --beam 2 --n-best 3", "must be between 1 and the beam size, 2"),
    ("translate run --max-length 5 --min-length 6", r"at least min_length \(6\)"),
    ("translate run --prefix-file no.de", "no.de cannot be read: No such file"),
    ("translate run --file in.docx --output out", r"must end in .po, .*Received: in.docx"),
    ("translate run --glossary nowhere.tsv", "nowhere.tsv cannot be read: No such file"),
    ("translate run --glossary train.en", "Each line of train.en must have a term, a tab"),
    ("translate run --protect no", "must be none, default or a file .* no, which does not"),
    ("translate run --ensemble run thesis", "thesis is not a run directory"),
    ("translate nowhere --alignments thesis", "must not be a folder or a device"),
    ("evaluate --reference dev.de", "takes either RUN and --source"),
    ("evaluate --hypothesis empty.en --reference empty.de", "Received: empty.en with 0"),
    ("evaluate --hypothesis dev.en --reference no.de", "no.de cannot be read: No such file"),
    ("score run --source empty.en --target empty.de", "must have at least one sentence"),
    ("score run --source uneven.en --target uneven.de", "uneven.de with 299"),
    ("curves begun --output curves.png", "begun has no evaluations yet"),
    ("curves run --output curves.txt", "must end in .png, .svg or .pdf. Received: curves.txt"),
    ("curves run --output train.en/curves.png", "must be in a writable folder"),
    ("tokenizer train.en --vocab-size 300 --output train.de", "train.de exists already"),
    ("tokenizer train.en --vocab-size 300 --output train.de/new.model", "writable folder"),
    ("tokenizer no.txt --vocab-size 300 --output new.model", "no.txt cannot be read"),
    ("tokenizer train.en --vocab-size 400 --symbols </s> --output n", "words than .*'</s>'"),
    ("tokenizer train.en --vocab-size 9000 --output new.model", "`vocab_size` must be at most"),
    ("export run --output models --version 3", "models/3 exists already. Choose another"),
    ("export run --output train.en", "--output must be a folder. Received: train.en"),
    ("export nowhere --output v[1]", r"must not contain \[\.\.\.\] or a backslash"),
]
# Refused by the argument parser.
OPTIONS = [
    (f"{NEW} --set model.dropout", "--set must be SECTION.FIELD=VALUE, such as model.dr"),
    ("translate run --beam 0", "--beam must be an int from 1 to 1000. Received: 0"),
    ("translate run --alpha -1", "--alpha must be from 0 to 10.0. Received: -1"),
    ("translate run --alpha nan", "--alpha must be from 0 to 10.0. Received: nan"),
    ("translate run --sample --temperature 0", "must be from 0.01 to 100.0. Rec"),
    (
        "tokenizer train.en --vocab-size 300 --character-coverage 95 --output new.model",
        "--character-coverage must be from 0.98 to 1.0. Received: 95.0",
    ),
    (
        "export run --output models --average last5",
        "--average is no longer there. Type: tf-transformer average RUN --last N, then",
    ),
    ("translate", "the following arguments are required: RUN"),
    ("doctor --train dev --source en --target de --numbers", "--numbers needs --clean"),
    ("export run --output models --version 0", "--version must be an int from 1 to "),
]


MISTAKES = [(1, *case) for case in TRAINING + COMMANDS] + [(2, *case) for case in OPTIONS]
# What the tokenizer's training or the run that is there refuses, after TensorFlow's import.
LATE = ("vocab_size=50000", "vocab_size=100", "batch_tokens=8", "d_model=32", "--version 3")
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None  # an import of it fails
from tf_transformer.cli.main import main
for line in sys.argv[1:]:
    try:
        print(main(line.split()), line)
    except SystemExit as exit:
        print(exit.code, line)
"""


def test_what_arguments_and_files_tell_is_refused_before_tensorflow_is_imported(workplace):
    early = [(status, line) for status, line, _ in MISTAKES if not line.endswith(LATE)]
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *(line for _, line in early)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert [*done.stdout.splitlines()] == [f"{status} {line}" for status, line in early]


@pytest.mark.parametrize(("status", "line", "expected"), MISTAKES)
def test_a_mistake_is_refused(workplace, capsys, status, line, expected):
    assert_refused(capsys, line.split(), expected, status=status)
    if line.endswith(LATE[:3]):  # the last of them after tokenising
        assert not {path.name for path in Path("new").glob("*")} - {LOCK_FILE}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["translate", "run\udcff"], r"must be UTF-8. Received: b'run\\xff'"),
        (["score", "", "--source=a", "--target=b"], "RUN must not be empty"),
        (["tokenizer", "a", "--output="], "--output must not be empty"),
    ],
)
def test_arguments_are_utf8_and_not_empty(workplace, capsys, arguments, expected):
    assert_refused(capsys, arguments, expected, status=2)


def test_text_that_cannot_be_read_is_refused(workplace, capsys):
    memory = Path("/proc/self/mem")  # its beginning is unreadable even to root
    if not memory.exists():
        pytest.skip("needs a file that nobody can read")
    Path("locked.en").symlink_to(memory)
    assert main(train("locked").split()) == 1
    assert "There is no locked.de" in capsys.readouterr().err
    Path("locked.de").symlink_to(memory)
    assert main(["evaluate", "--hypothesis", "locked.de", "--reference", "dev.de"]) == 1
    assert capsys.readouterr().err == "error: locked.de cannot be read: Input/output error.\n"


def test_stdin_that_is_not_utf8_is_refused_with_its_line(workplace, capsys):
    with stdin_of(Path("latin1.de")):
        assert_refused(
            capsys, ["translate", "run"], r"stdin:2: text must be UTF-8.*0xfc", status=1
        )
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("prefixes", "longer"), [("one\n", "stdin"), ("one\n" * 9, "prefixes.de")]
)
def test_the_prefix_file_must_have_a_line_for_each_line_of_stdin(
    workplace, capsys, prefixes, longer
):
    Path("prefixes.de").write_text(prefixes)
    command = ["translate", "run", "--prefix-file", "prefixes.de"]
    with stdin_of(Path("dev.en")):
        assert_refused(capsys, command, rf"more than \d lines in {longer}", status=1)
    assert capsys.readouterr().out == ""


def test_an_ensemble_with_another_tokenizer_is_refused(workplace, capsys):
    shutil.copytree("run", "other")
    tokenizer = Path("other/tokenizer.model")
    trained = tokenizer.read_bytes()
    tokenizer.write_bytes(trained + b"\x28\x00")  # the same pieces, in other bytes
    for command in ("translate run", "evaluate run --source dev.en --reference dev.de"):
        assert_refused(
            capsys,
            [*command.split(), "--ensemble", "other"],
            "must have the same tokenizer. Received: different ones in run and other",
            status=1,
        )


@pytest.mark.parametrize(
    "line", ["", "transalte run", "translate", "translate run --beam four", "evaluate run"]
)
def test_a_wrong_command_line_gives_one_line_that_points_to_help(workplace, capsys, line):
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    assert stopped.value.code == 2
    line = capsys.readouterr().err
    assert re.fullmatch(r"error: [^\n]+[.?] See tf-transformer( \w+)? --help\.\n", line), line
    assert os.listdir() == os.listdir(workplace)


def test_a_command_runs_in_a_notebook_whose_streams_have_no_encoding(workplace):
    """A notebook calls `main` with streams that are not files."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert main(["curves", "nowhere", "--output", "curves.png"]) == 1
    assert (out.getvalue(), err.getvalue()[:7]) == ("", "error: ")
