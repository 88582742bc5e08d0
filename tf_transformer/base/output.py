"""Progress bars on a terminal or in a notebook, tables of text, and single lines."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

if TYPE_CHECKING:  # its import takes a quarter of the time of `--help`
    from tqdm import tqdm

Item = TypeVar("Item")

# Takes the name of a step and the number of items done so far; `ProgressBars` is one.
NamedProgress: TypeAlias = Callable[[str, int], None]


def is_watched(*, notebook: bool = False) -> bool:
    """Tells whether stderr is a terminal or, with `notebook`, the output of a notebook."""
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    return sys.stderr.isatty() or (notebook and in_notebook)


class ProgressBars:
    """Progress bars, one at a time: `bars("tokenising train", 2048)` sets a bar's count.

    A new text closes the previous bar. `total` is the final count, if it is known. By default,
    they are shown if stderr is a terminal.
    """

    def __init__(self, total: int | None = None, shown: bool | None = None) -> None:
        self._total = total
        self._disable = None if shown is None else not shown
        self._text = ""
        self._bar: tqdm | None = None

    def __call__(self, text: str, done: int, total: int | None = None) -> None:
        """Sets the count of the bar named `text`, and its final count if that is known now."""
        if self._disable or (self._disable is None and not sys.stderr.isatty()):
            return  # and nothing waits for tqdm
        self._total = total or self._total
        if self._bar is None or text != self._text:
            self.close()
            self._text = text
            self._bar = self._new_bar(text)
        self._bar.update(done - self._bar.n)

    def _new_bar(self, text: str) -> "tqdm":
        """Returns a bar that fits the terminal and vanishes when it is closed."""
        from tqdm import tqdm

        form = "{n_fmt}/{total_fmt} |{bar}| {remaining} left"
        return tqdm(
            desc=text,
            total=self._total,
            bar_format="{desc}: " + (form if self._total else "{n:,}, {elapsed}"),
            disable=self._disable,
            leave=False,
            dynamic_ncols=True,
        )

    def close(self) -> None:
        """Closes the current bar."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def counted(items: Iterable[Item], text: str) -> Iterator[Item]:
    """Yields the items under a bar, on a terminal and in a notebook."""
    total = len(items) if isinstance(items, Sized) else None
    with ProgressBars(total, is_watched(notebook=True)) as bars:
        bars(text, 0)
        for done, item in enumerate(items, start=1):
            yield item
            bars(text, done)


MARKDOWN = "pipe"  # tabulate's name of the style


@dataclass(frozen=True)
class Table:
    """A table, whose columns may have names."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]  # the cells, shown as `str` formats them
    align: str = "l"  # or "r", for each column; the last one also serves those after it

    def text(self, style: str = "simple") -> str:
        """Formats it as "plain"; "simple", with a line below the header; or `MARKDOWN`."""
        from tabulate import tabulate  # here, so that `--help` need not wait

        rows = [[str(cell) for cell in row] for row in self.rows]
        if style == MARKDOWN:
            rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        columns = max(map(len, [self.header, *rows]))
        sides = {"l": "left", "r": "right"}
        align = [sides[letter] for letter in self.align.ljust(columns, self.align[-1])]
        return tabulate(rows, self.header, style, disable_numparse=True, colalign=align)


ReportPart: TypeAlias = str | Table  # of a report: a paragraph, code between ```, or a table


def joined(parts: Sequence[ReportPart], style: str = "simple") -> str:
    """Joins the parts of a report by empty lines; the text ends with a line break."""
    texts = [part.text(style) if isinstance(part, Table) else part for part in parts]
    return "\n\n".join(text.strip("\n") for text in texts) + "\n"


def single_line(text: str) -> str:
    """Replaces line breaks, which byte pieces can spell, so output stays aligned with input.

    A space at the end goes: in a translation that was cut off, it preceded a word.
    """
    return text.replace("\r", " ").replace("\n", " ").rstrip(" ")
