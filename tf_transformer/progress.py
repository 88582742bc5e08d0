"""Progress bars on stderr, shown only on a terminal."""

from typing import Self

from tqdm import tqdm


class ProgressBars:
    """Shows counts as `bars("tokenising train", 2048)`; a new text closes the bar before.

    Args:
        total: the final count, if it is known.
    """

    def __init__(self, total: int | None = None) -> None:
        self._total = total
        self._text = ""
        self._bar: tqdm | None = None

    def __call__(self, text: str, done: int) -> None:
        """Sets the count of `text`."""
        if self._bar is None or text != self._text:
            self.close()
            self._text = text
            self._bar = tqdm(desc=text, total=self._total, dynamic_ncols=True, disable=None)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Ends the line of the current bar."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()
