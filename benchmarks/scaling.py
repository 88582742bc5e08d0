"""Scaling: the cost of a translation as a function of each size that it depends on.

    python benchmarks/scaling.py

One size grows while the others stay fixed. The exponent of the time is fitted to the upper half
of the points. Attention may grow with the square of a length, a matrix product with the square
of the width, and everything else at most linearly; faster growth is marked.
"""

import argparse
from collections.abc import Mapping, Sequence

from harness.chart import OURS, Series, draw_lines
from harness.contender import Spec
from harness.options import make_parser, positive, run
from harness.report import Report, say_versions, table
from harness.rounds import Measured, measure
from harness.slopes import grown, slope

from tf_transformer.base.errors import UserError

START = {
    "source": 32, "output": 32, "beam": 4, "batch": 8, "vocabulary": 32_000, "width": 256,
    "layers": 4,
}  # fmt: skip
# For each size: its values, and the highest power of it that the time may grow with.
AXES = {
    "source": ([8, 32, 128, 512, 1024], 2),
    "output": ([8, 32, 128, 512], 2),
    "beam": ([1, 2, 4, 8, 16, 32], 1),
    "batch": ([1, 4, 16, 64], 1),
    "vocabulary": ([8_000, 16_000, 32_000, 64_000], 1),
    "width": ([128, 256, 512, 1024], 2),
    "layers": ([1, 2, 4, 8], 1),
}
LABELS = {
    "source": "source length", "output": "output length", "beam": "beam", "batch": "batch",
    "vocabulary": "vocabulary", "width": "d_model", "layers": "layers",
}  # fmt: skip
TOLERANCE = 0.1  # for a fitted power


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    report = Report("scaling", vars(options), options.output)
    rows, times, memory = [], {}, {}
    for axis in options.axes:
        most = AXES[axis][1]
        measured = _measure(axis, options)
        report.add(axis, {_title(axis, value): by_name for value, by_name in measured.items()})
        ours = {value: by_name[OURS] for value, by_name in measured.items()}
        times[LABELS[axis]] = _lines(_times(ours), most)
        memory[LABELS[axis]] = [Series("", _memory(ours))]
        rows.append(_row(axis, ours, most))
        print(f"{LABELS[axis]}: {rows[-1][2]}", flush=True)
    print(f"\n{options.rounds} rounds, medians; seconds a batch\n")
    print(table(("", "seconds", "power", "at most", "peak memory"), rows))
    print(f"\n{say_versions(next(iter(measured.values())))}\n{report.say_machine()}")
    stem = options.output / report.name
    pictures = draw_lines(times, "", ["seconds"] * len(times), stem)
    stem = options.output / f"{report.name}-memory"
    pictures += draw_lines(memory, "", ["peak MB"] * len(memory), stem)
    print("wrote", report.write(), *pictures)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES), metavar="AXIS",
                        help=f"some of: {', '.join(AXES)}")  # fmt: skip
    parser.add_argument("--largest", type=positive, help="omit larger values")
    parser.add_argument("--gpu", action="store_true", help="compute on the first GPU")
    options = parser.parse_args(arguments)
    for axis in options.axes:
        if len(_values(axis, options.largest)) < 2:
            raise UserError(
                f"--largest must leave two values of {axis}: {AXES[axis][0]}. "
                f"Received: {options.largest}."
            )
    return options


def _measure(axis: str, options: argparse.Namespace) -> dict[int, dict[str, Measured]]:
    """Returns the measurements by value of the axis and name of the contender."""
    values = _values(axis, options.largest)
    cases = {_title(axis, value): START | {axis: value} for value in values}
    results = measure([Spec(OURS, "scaling")], cases, options)
    return {value: by_name for value, (_, by_name) in zip(values, results, strict=True)}


def _title(axis: str, value: int) -> str:
    return f"{LABELS[axis]} {value:,}"


def _values(axis: str, largest: int | None) -> list[int]:
    return [value for value in AXES[axis][0] if not largest or value <= largest]


def _row(axis: str, measured: Mapping[int, Measured], most: int) -> list[str]:
    first, *_, last = measured
    seconds = [measured[value].seconds().median for value in (first, last)]
    power = slope(_times(measured))
    mark = " above the limit" if power > most + TOLERANCE else ""
    peaks = [f"{measured[value].peak_bytes() / 1e9:.2f}" for value in (first, last)]
    return [
        f"{LABELS[axis]} {first:,} to {last:,}",
        f"{seconds[0]:.3f} to {seconds[1]:.3f}",
        f"{power:.2f}{mark}",
        f"{most}",
        f"{' to '.join(peaks)} GB",
    ]


def _lines(points: list[tuple[float, float]], most: int) -> list[Series]:
    """Returns the time, and the fastest acceptable growth through its last point."""
    return [
        Series(f"measured: power {slope(points):.2f}", points),
        Series(f"at most: power {most}", grown(points, most), theory=True),
    ]


def _times(measured: Mapping[int, Measured]) -> list[tuple[float, float]]:
    return [(value, each.seconds().median) for value, each in measured.items()]


def _memory(measured: Mapping[int, Measured]) -> list[tuple[float, float]]:
    return [(value, each.peak_bytes() / 1e6) for value, each in measured.items()]


if __name__ == "__main__":
    run(main)
