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


def test_each_text_has_a_bar_that_vanishes_at_its_end(monkeypatch):
    output = shown(monkeypatch, Terminal())
    assert "\n" not in output
    shows = [show for show in output.split("\r") if show.strip()]
    assert shows[0].startswith("reading: 0/40 |") and shows[-1].startswith("writing: ")
    assert output.split("\r")[-1].strip() == ""


def test_nothing_is_shown_elsewhere(monkeypatch):
    assert shown(monkeypatch, io.StringIO()) == ""
