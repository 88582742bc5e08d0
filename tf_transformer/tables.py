"""Tables of text: plain, in Markdown or in LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

MARKDOWN = "pipe"  # tabulate's name of the style


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        header: the names of the columns; empty for none.
        rows: the cells, shown as `str` formats them.
        align: a letter for each column, "l" or "r"; the last one also serves those after it.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    align: str = "l"

    def text(self, style: str = "simple") -> str:
        """Formats the table, without a final line break.

        Args:
            style: "plain"; "simple", with a line below the header; `MARKDOWN`; or
                "latex_booktabs".
        """
        from tabulate import tabulate  # here, so that `--help` need not wait

        rows = [[str(cell) for cell in row] for row in self.rows]
        if style == MARKDOWN:
            rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        columns = max(map(len, [self.header, *rows]))
        sides = {"l": "left", "r": "right"}
        align = [sides[letter] for letter in self.align.ljust(columns, self.align[-1])]
        return tabulate(rows, self.header, style, disable_numparse=True, colalign=align)

    def paragraphs(self) -> list[str]:
        """Formats a line per row, such as `first cell  header cell; header cell`."""
        lines = []
        for first, *others in self.rows:
            named = zip(self.header[1:], others, strict=True)
            cells = "; ".join(f"{name} {cell}".strip() for name, cell in named if cell != "")
            lines.append(f"{first}  {cells}")
        return lines


Part: TypeAlias = str | Table  # of a report: a paragraph, code between ```, or a table


def joined(parts: Sequence[Part], style: str = "simple") -> str:
    """Joins the parts of a report by empty lines; the text ends with a line break."""
    texts = [part.text(style) if isinstance(part, Table) else part for part in parts]
    return "\n\n".join(text.strip("\n") for text in texts) + "\n"
