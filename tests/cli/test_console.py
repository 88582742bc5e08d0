"""The console stays clean, even if its reader has gone or the disk is full."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import tensorflow as tf
from command_line import environment

from tf_transformer.cli.console import import_tensorflow_quietly, run_command
from tf_transformer.errors import UserError

# A command that logs to stdout, and writes a file after its reader has gone.
WORK = """
import argparse, logging, sys
from pathlib import Path
from tf_transformer.cli.console import run_command

def command(options):
    logger = logging.getLogger("tf_transformer.test")
    logger.info("first")
    sys.stdin.read()
    logger.info("second")
    Path(sys.argv[1]).write_text("done")
    logger.info("third")

options = argparse.Namespace(command=command, traceback=False, stdout_is_data=False)
sys.exit(run_command(options))
"""


def test_a_command_finishes_quietly_after_its_reader_has_gone(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, str(tmp_path / "file")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    assert process.stdout.readline() == b"first\n"
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
    assert (tmp_path / "file").read_text() == "done"


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_command_finishes_when_its_log_cannot_be_written_and_reports_it_once(
    tmp_path, buffered
):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", WORK, str(tmp_path / "file")],
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=60,
            check=False, env=environment() | {"PYTHONUNBUFFERED": buffered},
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == b"error: cannot write the log: No space left on device\n"
    assert (tmp_path / "file").read_text() == "done"


def test_what_was_printed_before_an_impossible_file_name_is_kept(capfd):
    def command(_):
        print("printed")
        Path("x" * 300).exists()

    options = Namespace(command=command, traceback=False, stdout_is_data=False)
    assert run_command(options) == 1
    assert capfd.readouterr() == ("printed\n", f"error: {'x' * 300}: File name too long\n")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyError("x"), 70, "error: unexpected KeyError: 'x'; --traceback shows where"),
        (
            ValueError("a\nb"),
            70,
            r"error: unexpected ValueError: a\nb; --traceback shows where",
        ),
        (UserError("wrong"), 1, "error: wrong"),
    ],
)
@pytest.mark.parametrize("traceback", [False, True])
def test_any_error_ends_a_command_in_one_line_and_a_traceback_is_shown_on_demand(
    error, status, line, traceback, capsys
):
    def command(_):
        raise error

    options = Namespace(command=command, traceback=traceback, stdout_is_data=False)
    assert run_command(options) == status
    *before, last = capsys.readouterr().err.splitlines()
    assert last == line
    assert bool(before) == traceback
    assert not traceback or before[0] == "Traceback (most recent call last):"


# Keras imports these libraries if they are installed.
IMPORT = """
import sys
from tf_transformer.cli.console import import_tensorflow_quietly

import_tensorflow_quietly()
assert "keras" in sys.modules
assert not {"IPython", "matplotlib", "pandas", "scipy", "sklearn"} & sys.modules.keys()
import IPython, matplotlib.figure
"""


@pytest.mark.parametrize(("error", "shown"), [(KeyboardInterrupt, ""), (ImportError, "noise")])
def test_ctrl_c_during_the_import_prints_nothing_from_tensorflow(
    error, shown, monkeypatch, capfd
):
    def interrupted(kind: str) -> None:
        os.write(2, b"noise")
        raise error

    monkeypatch.setattr(tf.config, "list_physical_devices", interrupted)
    with pytest.raises(error):
        import_tensorflow_quietly()
    assert capfd.readouterr().err == shown


def test_optional_libraries_are_not_imported_with_tensorflow_but_can_be_later():
    for library in ("IPython", "matplotlib"):
        pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
