"""BLEU by source length: measurements, table and picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common import new_figure, table
from tf_transformer import Run, Translator, evaluation

_SHIFT = 0.01  # between runs, as a share of the longest source, so that no interval is hidden

# One per run, distinct in marker, line and grey; the colours are Okabe and Ito's.
_STYLES: list[dict[str, Any]] = [
    {"color": "black", "marker": "o", "linestyle": "-"},
    {"color": "#d55e00", "marker": "s", "linestyle": "--"},
    {"color": "#0072b2", "marker": "^", "linestyle": "-."},
    {"color": "#009e73", "marker": "D", "linestyle": ":"},
    {"color": "#cc79a7", "marker": "v", "linestyle": "-"},
    {"color": "#e69f00", "marker": "P", "linestyle": "--"},
]


@dataclass(frozen=True)
class Bucket:
    """Sentences with `first` to `last` source pieces; `rows` are their indices."""

    first: int
    last: int
    rows: list[int]

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True)
class LengthCurve:
    """A run's BLEU by source length."""

    label: str  # name of the run
    intervals: Sequence[evaluation.Interval]  # BLEU of each bucket
    longest: int | None  # pieces of the longest source in training; None if unknown
    limit: int  # pieces at which sources are cut

    @property
    def reach(self) -> str:
        """Formats `longest`."""
        return f"up to {'an unknown length' if self.longest is None else self.longest}"


def buckets(lengths: Sequence[int], width: int, least: int) -> list[Bucket]:
    """Groups sentences by length in pieces: 1 to width, width + 1 to 2 width, and so on.

    A bucket of fewer than `least` sentences is merged with the next, the last with the previous
    one. Edges stay multiples of the width, except the last, which is the length of the longest
    sentence. Lengths are at least 1.
    """
    result: list[Bucket] = []
    first, rows, longest = 1, [], max(lengths)
    for last in range(width, longest + width, width):
        rows += [row for row, length in enumerate(lengths) if last - width < length <= last]
        if len(rows) >= least:
            result.append(Bucket(first, min(last, longest), rows))
            first, rows = last + 1, []
    if rows and result:
        before = result.pop()
        first, rows = before.first, [*before.rows, *rows]
    if rows:
        result.append(Bucket(first, longest, rows))
    return result


def measure_lengths(
    runs: Sequence[Run],
    translators: Sequence[Translator],
    sources: list[str],
    references: list[str],
    *,
    width: int = 8,
    least: int = 20,
) -> tuple[list[Bucket], list[LengthCurve]]:
    """Translates a test set with the translators of runs and scores it by length of the source.

    Lengths are in pieces of the first one's tokenizer, its tag included; BLEU has the tokens of
    its run. References must not be blank. For `width` and `least` see `buckets`.
    """
    first, *others = [translator.tokenizer for translator in translators]
    if any(other.vocabulary() != first.vocabulary() for other in others):
        print(f"the tokenizers differ: lengths are in pieces of {runs[0].path}")
    groups = buckets([len(ids) + 1 for ids in first.ids(sources)], width, least)  # EOS
    tokenize = evaluation.tokenizer_for(runs[0].config.data.bleu_tokenizer, references)
    curves = []
    for run, translator in zip(runs, translators, strict=True):
        hypotheses = translator.translate(sources)
        intervals = [
            evaluation.bleu_interval(
                [hypotheses[row] for row in group.rows],
                [references[row] for row in group.rows],
                tokenize,
            )
            for group in groups
        ]
        model: Any = translator.model
        limit = translator.decoding.max_source_length
        limit = min(limit, model.longest_source or limit)
        curves.append(LengthCurve(str(run.path), intervals, run.longest_source, limit))
    return groups, curves


def lengths_table(groups: Sequence[Bucket], curves: Sequence[LengthCurve]) -> str:
    """Returns a row per bucket, with three columns for each run."""
    header = ["pieces", "sentences", *["BLEU", "95 % interval", "output / ref."] * len(curves)]
    rows = []
    for number, group in enumerate(groups):
        rows.append([str(group), f"{len(group.rows):,}"])
        for bleu in (curve.intervals[number] for curve in curves):
            interval = f"[{bleu.low:.1f}, {bleu.high:.1f}]"
            rows[-1] += [f"{bleu.value:.2f}", interval, f"{bleu.length_ratio:.2f}"]
    return table(header, rows, "r")


def lengths_figure(groups: Sequence[Bucket], curves: Sequence[LengthCurve]) -> Any:
    """Returns a figure of BLEU with 95 % intervals above, and output / reference below.

    All curves share the buckets `groups`.
    """
    figure = new_figure(max(6.5, 0.95 * len(groups) + 1.5), 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    centres = [(group.first + group.last) / 2 for group in groups]
    shift = _SHIFT * groups[-1].last
    names = [Path(curve.label).name for curve in curves]
    if len({*names}) < len(names):
        names = [curve.label for curve in curves]
    for number, (curve, name) in enumerate(zip(curves, names, strict=True)):
        label = f"{name}, trained {curve.reach}"
        positions = [centre + shift * (number - (len(curves) - 1) / 2) for centre in centres]
        style = _STYLES[number % len(_STYLES)]
        _draw_curve(above, below, positions, curve, label, style)
    reached = {curve.longest for curve in curves if curve.longest is not None}
    for length in sorted(length for length in reached if length <= groups[-1].last):
        for axes in (above, below):
            axes.axvline(length + 0.5, color="0.4", linewidth=1)
        above.annotate(
            "longest in training", (length + 0.5, 0), xycoords=("data", "axes fraction"),
            xytext=(-3, 4), textcoords="offset points", ha="right", fontsize="small",
            rotation=90, color="0.3",
        )  # fmt: skip
    below.axhline(1, color="0.5", linewidth=0.8)
    above.set(ylabel="BLEU, with 95 % interval", title="BLEU by length of the source")
    below.set(ylabel="tokens of output\n/ of reference")
    signature = curves[0].intervals[0].signature
    name = f"pieces of the source, including EOS; number of sentences\n{signature}"
    below.set_xlabel(name, fontsize="small")
    labels = [f"{group.first}–{group.last}\n{len(group.rows):,}" for group in groups]
    below.set_xticks(centres, labels, fontsize="small")
    for axes in (above, below):
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # room for the markers
        axes.grid(alpha=0.3, axis="y")
    above.legend(fontsize="small")
    return figure


def _draw_curve(
    above: Any, below: Any, positions: Any, curve: LengthCurve, label: str, style: Any
) -> None:
    values = [bleu.value for bleu in curve.intervals]
    errors = [
        [max(0.0, bleu.value - bleu.low) for bleu in curve.intervals],
        [max(0.0, bleu.high - bleu.value) for bleu in curve.intervals],
    ]
    above.errorbar(positions, values, yerr=errors, capsize=3, label=label, **style)
    below.plot(positions, [bleu.length_ratio for bleu in curve.intervals], **style)
