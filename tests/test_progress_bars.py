"""Progress bars: one per text on a terminal, and nothing elsewhere."""

import io
import sys

from tf_transformer.progress import ProgressBars


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


def test_nothing_is_shown_elsewhere(monkeypatch):
    assert shown(monkeypatch, io.StringIO()) == ""
