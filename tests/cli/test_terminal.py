"""Text on a terminal is wrapped between words, coloured, and kept apart from progress bars."""

import io
import logging
import re
import sys

import pytest
from tqdm import tqdm

from tf_transformer.cli.console import (
    MessageFormatter,
    fitted,
    print_error,
    print_report,
    without_bars,
    wrapped,
)
from tf_transformer.cli.main import command_parser, main, main_parser
from tf_transformer.output import MARKDOWN, Table


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

HEADER = ["row", "change", "PPL", "to base", "BLEU"]
ROWS = [
    ["base", "", "4.92", "", "25.8"],
    ["big", "d_model 1024, d_ff 4096, h 16", "4.33", "-0.59", "26.4"],
]


@pytest.mark.parametrize("style", [MARKDOWN, "simple"])
def test_the_rows_of_a_wide_table_become_paragraphs(style):
    table = Table(HEADER, ROWS)
    assert fitted(table, 80, style) == table.text(style)
    narrower = fitted(table, 60, style).splitlines()
    assert re.split("  +", narrower[0]) == HEADER and re.split("  +", narrower[2]) == ROWS[1]
    assert fitted(table, 40, style) == (
        "base  PPL 4.92; BLEU 25.8\n"
        "big  change d_model 1024, d_ff 4096, h\n  16; PPL 4.33; to base -0.59; BLEU 26.4"
    )


def test_cells_of_a_table_are_never_confused():
    table = Table(["", "b", "c d"], [["漢字 | 漢", "--", "x"]])
    assert fitted(table, 12) == "漢字 | 漢  b\n  --; c d x"
    assert "漢字 \\| 漢" in table.text(MARKDOWN)


def test_code_is_not_wrapped():
    code = "```\ntf-transformer train --model base \\\n\n  --train path --valid another\n```"
    assert fitted(code, 12) == code
    assert fitted("## Again\n\n- a line of words", 12) == "## Again\n\n- a line of\n  words"


def test_a_report_in_a_file_is_not_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_report(f"{'word ' * 20}\n")
    assert capsys.readouterr().out == f"{'word ' * 20}\n"


@pytest.mark.parametrize("columns", [40, 80])
def test_the_table_of_ablate_fits_the_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["ablate", "--params-only"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert any(line.startswith("A-h1  change h 1, d_k 512, d_v 512;") for line in lines)
