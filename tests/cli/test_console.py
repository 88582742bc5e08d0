"""The console stays clean, text fits a terminal, and --help lists every command."""

import io
import logging
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import tensorflow as tf
from command_line import environment
from tqdm import tqdm

import tf_transformer
from tf_transformer.base.errors import UserError
from tf_transformer.cli.console import (
    MessageFormatter,
    import_tensorflow_quietly,
    print_report,
    run_command,
    without_bars,
    wrapped,
)
from tf_transformer.cli.main import COMMANDS, command_parser, main, main_parser

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


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def formatted(stream: io.StringIO, text: str, level: int) -> str:
    return MessageFormatter(stream).format(
        logging.LogRecord("x", level, "", 0, text, None, None)
    )


TEXT = "  source     a sentence of several words, and /a/path/that/is/longer/than/a/whole/line"


def test_words_stay_whole_and_lines_fit():
    lines = wrapped(TEXT, 30, hanging="  ").split("\n")
    assert lines[0].startswith("  source     a ")
    assert all(line.startswith("    ") for line in lines[1:])
    assert " ".join(TEXT.split()) == " ".join(" ".join(lines).split())
    assert [line for line in lines if len(line) > 30] == [lines[-1]]  # the path


@pytest.mark.parametrize(
    ("stream", "no_color", "expected"),
    [
        (io.StringIO(), "", "warned of something"),
        (Terminal(), "", "\033[33mwarned of\n  something\033[0m"),
        (Terminal(), "1", "warned of\n  something"),
    ],
)
def test_a_terminal_gets_colour_unless_no_color_is_set(stream, no_color, expected, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    assert formatted(stream, "warned of something", logging.WARNING) == expected


def test_a_message_does_not_mix_with_a_progress_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with tqdm(total=2, file=terminal, desc="bar"), without_bars(terminal):
        before = terminal.getvalue()
        terminal.write("message\n")
    assert before.endswith("\r")  # the bar's line is cleared, with the cursor at its start
    assert "message\n\rbar" in terminal.getvalue()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", [None, "train", "translate", "export"])
def test_help_fits_the_terminal(command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    parser = command_parser(command) if command else main_parser()
    for line in parser.format_help().split("\n"):
        assert len(line) <= columns or " " not in line.strip()


# --- Reports -----------------------------------------------------------------------------


def test_a_report_in_a_file_is_not_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_report(f"{'word ' * 20}\n")
    assert capsys.readouterr().out == f"{'word ' * 20}\n"


_HELP = """
import sys
for name in ("numpy", "tensorflow", "keras", "matplotlib", "sacrebleu", "sentencepiece"):
    sys.modules[name] = None  # importing it raises ImportError
from tf_transformer.cli.main import COMMANDS, main
for command in [[], *([name] for name in COMMANDS)]:
    try: main([*command, "--help"])
    except SystemExit as end: assert end.code == 0
"""


def test_every_help_is_shown_without_slow_imports():
    done = subprocess.run([sys.executable, "-c", _HELP], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n    {name} " in done.stdout for name in COMMANDS)
    assert all(f"usage: tf-transformer {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("line", "status", "printed"),
    [
        ("--version", 0, f"tf-transformer {tf_transformer.__version__}\n"),
        ("translat", 2, "There is no command 'translat'. Did you mean 'translate'? See "),
        ("xyz", 2, "error: There is no command 'xyz'. There are: train, doctor, "),
        ("translate run in.en", 2, "arguments: in.en. Text is read from stdin: < FILE. See "),
        ("evaluate --reference a run b", 2, "error: unrecognized arguments: b. See "),
    ],
)
def test_the_version_and_hints_at_mistyped_command_lines(line, status, printed, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    assert stopped.value.code == status
    assert printed in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: tf-transformer {name} " in shown
    assert "--traceback" in shown
