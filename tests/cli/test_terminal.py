"""Messages on a terminal: wrapped at words, coloured, and apart from progress bars."""

import io
import logging
import sys

import pytest
from tqdm import tqdm

from tf_transformer.cli.main import build_parser
from tf_transformer.cli.terminal import MessageFormatter, print_error, without_bars, wrapped


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

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
def test_a_terminal_has_colour_unless_it_is_unwanted(stream, no_color, expected, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    assert formatted(stream, "warned of something", logging.WARNING) == expected


def test_an_error_is_one_line_in_a_file_and_red_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, expected in [
        (io.StringIO(), "error: a b c d e f\n"),
        (Terminal(), "\033[31merror: a b c\n  d e f\033[0m\n"),
    ]:
        monkeypatch.setattr(sys, "stderr", stream)
        print_error("a b c d e f")
        assert stream.getvalue() == expected


def test_a_message_does_not_run_into_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with tqdm(total=2, file=terminal, desc="bar"), without_bars(terminal):
        before = terminal.getvalue()
        terminal.write("message\n")
    assert before.endswith("\r")  # the bar's line is empty, and the cursor at its start
    assert "message\n\rbar" in terminal.getvalue()


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", [None, "train", "translate", "export"])
def test_help_fits_the_terminal(command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    parser = build_parser(command)
    if command:
        (commands,) = (
            each for each in parser._actions if hasattr(each, "choices") and each.choices
        )
        parser = commands.choices[command]
    for line in parser.format_help().split("\n"):
        assert len(line) <= columns or " " not in line.strip()
