"""Reports fit the terminal, and a file has them as they are."""

import re
import sys

import pytest
from tabulate import tabulate

from tf_transformer.cli.main import main
from tf_transformer.cli.report import fitted, print_report

HEADER = ["row", "change", "PPL", "to base", "BLEU"]
ROWS = [
    ["base", "", "4.92", "", "25.8"],
    ["big", "d_model 1024, d_ff 4096, h 16", "4.33", "-0.59", "26.4"],
]


@pytest.mark.parametrize("style", ["pipe", "github", "simple", "unaligned"])
def test_the_rows_of_a_wide_table_become_paragraphs(style):
    table = tabulate(ROWS, HEADER, style.replace("unaligned", "pipe"), disable_numparse=True)
    if style == "unaligned":
        table = re.sub(" +", " ", re.sub("--+", "---", table.replace(":", "")))
    text = f"Two models\n\n{table}\n\nBLEU is of the dev set and of the last checkpoint.\n"
    assert fitted(text, 80) == text
    narrower = fitted(text, 60).splitlines()
    assert re.split("  +", narrower[2]) == HEADER and re.split("  +", narrower[4]) == ROWS[1]
    assert fitted(text, 40) == (
        "Two models\n\n"
        "base  PPL 4.92; BLEU 25.8\n"
        "big  change d_model 1024, d_ff 4096, h\n  16; PPL 4.33; to base -0.59; BLEU 26.4\n\n"
        "BLEU is of the dev set and of the last\n  checkpoint.\n"
    )


@pytest.mark.parametrize("cell", ["漢字漢字", "a | b"])
def test_a_table_whose_cells_cannot_be_told_apart_is_wrapped_alone(cell):
    style = "simple" if cell.isalpha() else "pipe"
    table = tabulate([[cell, "--", "x"]], ["", "b", "c c c c c c"], style)
    assert "".join(fitted(table, 12).split()) == "".join(table.split())


def test_code_stays_whole_for_pasting():
    code = "```\ntf-transformer train --model base \\\n\n  --train path --valid another\n```"
    assert fitted(f"## Again\n\n{code}\n\n- a line of words\n", 12) == (
        f"## Again\n\n{code}\n\n- a line of\n  words\n"
    )


def test_a_file_has_a_report_as_it_is(capsys, monkeypatch):
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
