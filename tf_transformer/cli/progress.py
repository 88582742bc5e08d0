"""A counter on stderr for work that takes a while, only where a person is watching."""

import sys
from typing import Self


class Progress:
    """Counts what is done: `progress("tokenising train", 2048)`; a new text starts a new line."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self.text = ""
        self.done = 0

    def __call__(self, text: str, count: int) -> None:
        if text != self.text:
            self._end_line()
            self.text, self.done = text, 0
        self.done += count
        if sys.stderr.isatty():
            of = f" of {self.total:,}" if self.total else ""
            print(f"\r{self.text}: {self.done:,}{of}", end="", file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self.text and sys.stderr.isatty():
            print(file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._end_line()
