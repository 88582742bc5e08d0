"""Progress bars on stderr, shown only on a terminal or in a notebook."""

import sys
from collections.abc import Iterable, Sized
from typing import Self

from tqdm import tqdm


def is_watched(*, notebook: bool = False) -> bool:
    """Tells whether stderr is a terminal or, with `notebook`, the output of a notebook."""
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    return sys.stderr.isatty() or (notebook and in_notebook)


def bar(text: str, items: Iterable | None = None, **keywords) -> tqdm:
    """Returns a tqdm bar that fits the terminal and vanishes when it is closed."""
    total = keywords.get("total") or (len(items) if isinstance(items, Sized) else None)
    form = "{n_fmt}/{total_fmt} |{bar}| {remaining} left" if total else "{n:,}, {elapsed}"
    keywords = {"disable": None, "leave": False, "dynamic_ncols": True} | keywords
    return tqdm(items, text, bar_format="{desc}: " + form, **keywords)


class ProgressBars:
    """Progress bars, one at a time: `bars("tokenising train", 2048)` sets a bar's count.

    A new text closes the previous bar.

    Args:
        total: the final count, if it is known.
        shown: whether to show them; None shows them if stderr is a terminal.
    """

    def __init__(self, total: int | None = None, shown: bool | None = None) -> None:
        self._total = total
        self._disable = None if shown is None else not shown
        self._text = ""
        self._bar: tqdm | None = None

    def __call__(self, text: str, done: int) -> None:
        """Sets the count of the bar named `text`."""
        if self._bar is None or text != self._text:
            self.close()
            self._text = text
            self._bar = bar(text, total=self._total, disable=self._disable)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Closes the current bar."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()
