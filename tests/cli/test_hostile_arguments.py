"""Random command lines over broken files: one line of error, quickly and without traceback."""

import contextlib
import random
import subprocess
from pathlib import Path

import pytest
from command_line import TF_TRANSFORMER, assert_refused, environment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tf_transformer.cli.main import GROUP_OF
from tools.storm.arguments import Writer, parser_of, run_here, wrong


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> tuple[Path, Writer]:
    """A folder of broken files, and a writer of command lines that use them."""
    folder = tmp_path_factory.mktemp("broken")
    return folder, Writer.over_broken_files(folder, random.Random(1))


@settings(
    max_examples=200,
    deadline=10_000,  # ms
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(randomness=st.randoms())
def test_every_command_answers_hostile_arguments_with_one_line(broken, randomness):
    folder, writer = broken
    line = writer.line(randomness)
    with contextlib.chdir(folder):
        done = run_here(line.arguments, Path("one-line"))
    assert not wrong(done, line.must_fail), line.arguments


@pytest.mark.parametrize("name", GROUP_OF)
def test_every_numeric_option_has_bounds(name):
    """With a bare int or float as `type` it would not."""
    assert not {
        action.dest for action in parser_of(name)._actions if action.type in (int, float)
    }


HOSTILE = [
    # Numbers.
    (
        ["train", "--set", "decoding.beam_size=1e30"],
        "`decoding.beam_size` must be an int from 1 to 1000. Received: 1e[+]30",
    ),
    (
        ["train", "--set", f"training.clip_norm={'9' * 400}"],
        "`training.clip_norm` must be from 0 to 1e[+]38. Received: 9999",
    ),
    (
        ["train", "--set", f"model.d_ff={'9' * 5_000}"],
        "`model.d_ff` must be an int from 1 to 1000000. Received: '9999",
    ),
    (["train", "--stop-after", f"{'9' * 5_000} steps"], "--stop-after must be"),
    (
        ["train", "--stop-after", "9" * 400 + "h"],
        "--stop-after must be a time .* at most 10000d or 1000000000 steps",
    ),
    (
        ["train", "--stop-after", "soon"],
        "--stop-after must be a time such as 2h, 90m or 45s, or '500 steps'",
    ),
    (
        ["export", "translation-begun", "--output", "new", "--average", "last" + "9" * 5_000],
        "--average must be lastN, such as last5. Received: 'last999",
    ),
    # Files.
    (["score", "run", "--source=new\nline", "--target=a\nb"], r"^error: .*a\\nb"),
    (
        ["train", f"--train={'x' * 300}", "--valid=a", "--source=en", "--target=de"],
        "x.en: File name too long$",
    ),
    (["draw", "stray.ptb", "a", "--output=a.png"], "x{80}\\.\\.\\. outside"),
    (["card", "run-digits"], "is not a valid config.json"),
    (["card", "run-surrogate"], "`data.source` must be str"),
    (["classify", "classification-garbage"], "labels.json is damaged"),
    (
        ["evaluate", "--hypothesis", "one-line", "--reference", "one-line", "--output", "null"],
        "--output must not be a folder or a device. Received: null",
    ),
]
# Refused by the argument parser.
UNREADABLE = [
    (["translate", "run\udcff"], r"must be UTF-8. Received: b'run\\xff'"),
    (["train", "--set", "\udcff"], "arguments must be UTF-8"),
    (["attention", "r", "--sentence", "\udcff"], "must be UTF-8"),
    (["score", "", "--source=a", "--target=b"], "RUN must not be empty"),
    (["tokenizer", "a", "--output="], "--output must not be empty"),
    (
        ["train", "--set", "model.dropout", "0.3"],
        "--set must be SECTION.FIELD=VALUE, such as model.dropout=0.3. Received: 'model.d",
    ),
    (
        ["evaluate", "--hypothesis=a", "--hypothesis=b", "--reference=c"],
        "--hypothesis must be given once. Received: 'a' and 'b'",
    ),
    (["score", "r", "--alpha", "9" * 400], "--alpha must be from 0 to 10.0"),
    (["translate", "r", "--beam", "9" * 5_000], "--beam must be an int from 1 "),
    (
        ["translate", "r", "--no-repeat-ngram", "2147483648"],
        "--no-repeat-ngram must be an int from 0 to 100. Received: 2147483648",
    ),
    (["translate", "r", "--min-length", "2147483648"], "from 0 to 1000000"),
    (["translate", "r", "--n-best", f"{2**63}"], "from 1 to 1000"),
    (
        ["serve", "m", "--deadline", "inf"],
        "--deadline must be from 0.001 to 86400.0. Received: inf",
    ),
]


@pytest.mark.parametrize(
    ("status", "arguments", "expected"),
    [(1, *case) for case in HOSTILE] + [(2, *case) for case in UNREADABLE],
    ids=lambda value: str(value)[:60],
)
def test_arguments_that_once_broke_a_command_are_refused(
    status, arguments, expected, broken, capsys, monkeypatch
):
    folder, _ = broken
    monkeypatch.chdir(folder)
    null = folder / "null"
    if not null.is_symlink():
        null.symlink_to("/dev/null")
    assert_refused(capsys, arguments, expected, status=status)
    assert null.is_symlink()


def test_arguments_that_are_not_utf8_are_refused_as_bytes():
    """Only a new process can receive such bytes as an argument."""
    done = subprocess.run(
        [*TF_TRANSFORMER, "translate", b"r\xffn"], capture_output=True, env=environment(),
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        b"error: arguments must be UTF-8. Received: b'r\\xffn'. See tf-transformer --help.\n"
    )
