"""`draw`: a parse below the correct tree."""

from pathlib import Path

import pytest
from command_line import assert_refused

from tf_transformer.cli.main import main

pytest.importorskip("matplotlib")


@pytest.fixture
def trees(empty_folder) -> None:
    """Writes gold and parsed: two trees and a blank line each."""
    Path("gold").write_text("(S (NP (PRP We)) (VP (VBD won)))\n(S (VP (VB Go)))\n\n")
    Path("parsed").write_text("(S (NP (PRP We)) (VP (VBD won)))\n(S (NP (VB Go)))\n\n")


@pytest.mark.parametrize(("line", "word", "differs"), [(1, "won", False), (2, "Go", True)])
def test_draw_draws_the_trees_on_a_line(trees, capsys, line, word, differs):
    options = ["--line", str(line), "--output", "new/tree.svg"]
    assert main(["draw", "gold", "parsed", *options]) == 0
    assert capsys.readouterr().out == "new/tree.svg\n"
    text = Path("new/tree.svg").read_text("utf-8")
    assert f"<!-- {word} -->" in text
    assert ("#d55e00" in text) == differs


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--output tree.txt", "must end in .png, .svg or .pdf. Received: tree.txt"),
        ("--output tree.svg --line 4", "--line must be from 1 to 3, the lines of gold"),
        ("--output tree.svg --line 0", "--line must be from 1 to 3, the lines of gold"),
        ("--output tree.svg --line 3", "gold:3: expected one tree. Received: 0"),
    ],
)
def test_bad_input_of_draw_is_refused(trees, capsys, options, expected):
    assert_refused(capsys, ["draw", "gold", "parsed", *options.split()], expected, status=1)
