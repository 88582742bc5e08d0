"""Progress bars: a line for each text on a terminal, and nothing elsewhere."""

import io
import sys

from tf_transformer.progress import ProgressBars


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressBars(total=40) as bars:
        for text in ("reading", "writing"):
            for done in (10, 40):
                bars(text, done)
    return stream.getvalue()


def test_each_text_has_a_line_with_its_final_count(monkeypatch):
    output = shown(monkeypatch, Terminal())
    lines = [line.rpartition("\r")[2] for line in output.removesuffix("\n").split("\n")]
    assert [line.split(":")[0] for line in lines] == ["reading", "writing"]
    assert all("40/40" in line for line in lines)


def test_nothing_is_shown_elsewhere(monkeypatch):
    assert shown(monkeypatch, io.StringIO()) == ""
