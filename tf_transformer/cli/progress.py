"""A counter on stderr for work that takes a while, only where a person is watching."""

import sys
from typing import Self


class Progress:
    """Shows how much is done: `progress("tokenising train", 2048)`; a new text, a new line."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self.text = ""

    def __call__(self, text: str, done: int) -> None:
        if text != self.text:
            self._end_line()
            self.text = text
        if sys.stderr.isatty():
            of = f" of {self.total:,}" if self.total else ""
            print(f"\r{text}: {done:,}{of}", end="", file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self.text and sys.stderr.isatty():
            print(file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._end_line()
