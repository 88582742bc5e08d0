"""Draws the README's overview picture: `python -m tools.overview` (needs matplotlib)."""

from pathlib import Path

from tf_transformer.plots import new_figure, save

OUTPUT = Path(__file__).parent.parent / "docs" / "images" / "overview.png"
BOX = (1.55, 0.62)  # inches
STEP = (2.15, 1.25)  # inches between the centres of neighbouring boxes
MARGIN = 0.05

# Column, row, text and shade; the paper describes what is in grey boxes.
BOXES = {
    "text": (0, 1, "two text files\ntrain.en, train.de", "white"),
    "batches": (1, 1, "subword ids\nin batches", "white"),
    "model": (2, 1, "Transformer\nencoder, decoder", "0.85"),
    "run": (3, 1, "run directory\nweights, scores", "white"),
    "export": (4, 1, "SavedModel\ntext in, text out", "white"),
    "sentence": (2, 0, "“A dog runs.”\n“Ein Hund rennt.”", "white"),
    "search": (3, 0, "beam search\nBLEU", "0.85"),
    "server": (4, 0, "server\nHTTP, gRPC", "white"),
}
# From, to, arrow, command.
ARROWS = [
    ("text", "batches", "->", "train"),
    ("batches", "model", "->", ""),
    ("model", "run", "->", ""),
    ("run", "export", "->", "export"),
    ("run", "search", "->", "translate\nevaluate"),
    ("search", "sentence", "<->", ""),
    ("export", "server", "->", "serve"),
]


def centre(name: str) -> tuple[float, float]:
    column, row, _, _ = BOXES[name]
    return column * STEP[0] + BOX[0] / 2 + MARGIN, row * STEP[1] + BOX[1] / 2 + MARGIN


def draw(axes) -> None:
    """Draws into axes whose unit is an inch."""
    for name, (_, _, text, grey) in BOXES.items():
        x, y = centre(name)
        corner = (x - BOX[0] / 2, y - BOX[1] / 2)
        axes.bar(corner[0], BOX[1], BOX[0], corner[1], align="edge", color=grey, edgecolor="k")
        axes.text(x, y, text, ha="center", va="center", fontsize=9.5, linespacing=1.5)
    for start, end, arrow, command in ARROWS:
        (x, y), (to_x, to_y) = centre(start), centre(end)
        across, up = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        tail = (x + across * BOX[0] / 2, y + up * BOX[1] / 2)
        head = (to_x - across * BOX[0] / 2, to_y - up * BOX[1] / 2)
        axes.annotate(
            "", head, tail, arrowprops={"arrowstyle": arrow, "shrinkA": 0, "shrinkB": 0}
        )
        middle = ((tail[0] + head[0]) / 2, (tail[1] + head[1]) / 2)
        offset, side = ((0, 4), "center") if across else ((6, -3), "left")
        axes.annotate(
            command, middle, offset, textcoords="offset points", ha=side,
            va="baseline" if across else "center", family="monospace", fontsize=8.5,
        )  # fmt: skip


def main() -> None:
    width, height = (
        2 * MARGIN + step * n + box for step, n, box in zip(STEP, (4, 1), BOX, strict=True)
    )
    figure = new_figure(width, height, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    draw(axes)
    save(figure, OUTPUT)


if __name__ == "__main__":
    main()
