"""Errors are one line, text arguments are lists of strings, progress bars vanish."""

import ast
import io
import re
import sys

import pytest
from helpers import ROOT

from tf_transformer.api.train import configure
from tf_transformer.base.errors import (
    UserError,
    one_line,
    one_or_more,
    pairs,
    quoted,
    shortened,
    strings,
)
from tf_transformer.base.output import ProgressBars
from tf_transformer.base.system import import_tensorflow


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("plain, ä, 水 and \u200c", "plain, ä, 水 and \u200c"),
        ("two\nlines\r\tand a tab", r"two\nlines\r\tand a tab"),
        ("\x1b[31m\u2028\x85", r"\x1b[31m\u2028\x85"),
        ("r\udcffn", r"r\udcffn"),
    ],
)
def test_a_message_becomes_one_line_of_utf8(message, line):
    assert one_line(message) == line
    assert line.encode()


def test_a_long_message_keeps_its_beginning_and_its_end():
    line = one_line(f"name {'x' * 100_000} what to do")
    assert len(line) < 2_100
    assert line.startswith("name xxx")
    assert line.endswith("xxx what to do")


@pytest.mark.parametrize("value", ["x" * 300_000, [["x" * 999] * 999] * 999, int("9" * 4_000)])
def test_a_quotation_is_short(value):
    assert len(quoted(value)) < 210


def test_short_values_are_quoted_whole():
    assert quoted("four") == "'four'"
    assert quoted(1e30) == "1e+30"
    assert shortened("x" * 80) == "x" * 80
    assert shortened("x" * 81) == "x" * 80 + "..."


def test_outside_the_command_line_messages_name_no_options():
    commands = {"cli", "bulk"}  # rooms with command lines
    package = (ROOT / "tf_transformer").rglob("*.py")
    files = [f for f in package if commands.isdisjoint(f.parts)]
    trees = [ast.parse(file.read_text("utf-8")) for file in files]
    for text in (ast.unparse(node) for tree in trees for node in ast.walk(tree)):
        if text.startswith(("raise ", "logger.")):
            text = re.sub("tf-transformer [^`]*", "", text)  # a command
            assert not re.search("--[a-z]", text), text


@pytest.mark.parametrize("wrong", ["ab", b"ab", None, 1, {"a": 1}, {"a"}, [1], ["a", b"b"]])
def test_anything_but_a_list_of_strings_is_refused(wrong):
    with pytest.raises(TypeError, match="`lines` must be a list of strings. Received: "):
        strings("lines", wrong)


def test_any_ordered_iterable_of_strings_counts_as_a_list():
    np = pytest.importorskip("numpy")
    for value in (("a", "b"), iter(["a", "b"]), np.array(["a", "b"])):
        assert strings("lines", value) == ["a", "b"]
    assert one_or_more("text", "ab") == (True, ["ab"])
    assert pairs(one=["a"], other=("b",)) == (False, ["a"], ["b"])


def test_an_override_is_not_split_into_characters():
    with pytest.raises(TypeError, match="`overrides` must be a list of strings. Received: "):
        configure("tiny", overrides="model.dropout=0")


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressBars(total=40) as bars:
        for text in ("reading", "writing"):
            for done in (10, 40):
                bars(text, done)
    return stream.getvalue()


def test_every_text_has_a_bar_that_vanishes_at_its_end(monkeypatch):
    output = shown(monkeypatch, Terminal())
    assert "\n" not in output
    frames = [frame for frame in output.split("\r") if frame.strip()]
    assert frames[0].startswith("reading: 0/40 |") and frames[-1].startswith("writing: ")
    assert output.split("\r")[-1].strip() == ""


@pytest.mark.parametrize(
    ("name", "value"), [("KERAS_BACKEND", "jax"), ("TF_USE_LEGACY_KERAS", "1")]
)
def test_another_keras_is_refused_with_the_variable_to_set(monkeypatch, name, value):
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"et {name}.* Received: '{value}'"):
        import_tensorflow()


def test_nothing_is_shown_elsewhere(monkeypatch):
    assert shown(monkeypatch, io.StringIO()) == ""
