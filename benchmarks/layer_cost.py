"""Table 1 of the paper, measured: CPU time and memory of layer types against length n.

    python benchmarks/layer_cost.py
    python benchmarks/layer_cost.py --heads 1 2 4 8 16 32 --d-model 512 --batch 16 --lengths 64

Each layer of the same width d computes its output and all gradients. The measured growth is
printed beside that of Table 1: n^2 d for self-attention, n d^2 for a recurrent layer, k n d^2
for a convolution, r n d for restricted self-attention. The projections of attention, n d^2, are
measured although they are not in Table 1, so a line approaches its theory only where n is large
compared with d.

With --heads, it measures self-attention with these numbers of heads instead, whose d_k = d_v is
d / h: the CPU time of all threads for a forward pass, and for one with its backward pass. Paper
3.2.2 expects a cost "similar to that of single-head attention with full dimensionality".
"""

import argparse
from collections.abc import Mapping, Sequence

from harness.chart import Bar, Series, draw_bars, draw_lines
from harness.contender import Spec
from harness.options import make_parser, positive, run
from harness.report import Report, say_versions, shown, table
from harness.rounds import Measured, measure
from harness.slopes import grown, slope

# The power of n in Table 1, by layer.
LAYERS = {
    "self-attention": 2,
    "restricted self-attention": 1,
    "convolution": 1,
    "LSTM": 1,
    "GRU": 1,
}
_TIMES = 20  # passes in a round, with --heads


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, rounds=3)
    lengths = [16, 64, 256, 1024, 2048]
    parser.add_argument("--lengths", type=positive, nargs="+", default=lengths, help="n")
    parser.add_argument("--d-model", type=positive, default=256)
    parser.add_argument("--num-heads", type=positive, default=4)
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--heads", type=positive, nargs="+", metavar="H")
    options = parser.parse_args(arguments)
    if options.heads:
        _compare_heads(options)
        return
    work = {name: getattr(options, name) for name in ("d_model", "num_heads", "batch")}
    specs = [Spec(kind, "layer", options=work | {"kind": kind}) for kind in options.layers]
    options.lengths.sort()  # memory left behind by long sequences would count for short ones
    cases = {f"n = {n}": {"length": n} for n in options.lengths}
    results = dict(measure(specs, cases, options))
    report = Report("layer_cost", vars(options), options.output)
    for title, measured in results.items():
        report.add(title, measured)
    by_layer = {
        kind: {n: results[f"n = {n}"][kind] for n in options.lengths} for kind in options.layers
    }
    rows = [_row(kind, measured) for kind, measured in by_layer.items()]
    header = ["", *(f"{title}, CPU ms" for title in cases), "power of n", "Table 1"]
    print(f"\nd = {options.d_model}, {options.rounds} rounds, median (smallest-largest)\n")
    print(table(header, rows))
    print(f"\n{say_versions(next(iter(results.values())))}\n{report.say_machine()}")
    print("wrote", report.write(), *_draw(by_layer, options.output / report.name))


def _compare_heads(options: argparse.Namespace) -> None:
    length = options.lengths[0]
    specs = [
        Spec(f"{heads}", "layer", options={"kind": "self-attention", "num_heads": heads,
             "d_model": options.d_model, "batch": options.batch})
        for heads in options.heads
    ]  # fmt: skip
    passes = {"forward": False, "forward and backward": True}
    cases = {
        title: {"length": length, "backward": backward, "times": _TIMES}
        for title, backward in passes.items()
    }
    results = dict(measure(specs, cases, options))
    report = Report("layer_cost_heads", vars(options), options.output)
    panels, rows = {}, []
    for title, measured in results.items():
        report.add(title, measured)
        spreads = {
            heads: each.cpu_seconds().scaled(1e3 / _TIMES) for heads, each in measured.items()
        }
        rows.append([title, *(shown(spread, 1) for spread in spreads.values())])
        panels[title] = [Bar(f"h = {heads}", each, "ours") for heads, each in spreads.items()]
    print(f"\nCPU ms a batch of {options.batch} x {length} positions, d = {options.d_model}\n")
    print(table(["", *(f"h = {heads}" for heads in options.heads)], rows))
    print(f"\n{say_versions(results['forward'])}\n{report.say_machine()}")
    pictures = draw_bars(panels, "CPU milliseconds", options.output / report.name)
    print("wrote", report.write(), *pictures)


def _row(kind: str, measured: Mapping[int, Measured]) -> list[str]:
    times = [_in_milliseconds(each) for each in measured.values()]
    power = slope(_times(measured))
    return [kind, *times, f"{power:.2f}", f"{LAYERS[kind]}"]


def _in_milliseconds(measured: Measured) -> str:
    return shown(measured.cpu_seconds().scaled(1e3), 1)


def _times(measured: Mapping[int, Measured]) -> list[tuple[float, float]]:
    return [(n, 1e3 * each.cpu_seconds().median) for n, each in measured.items()]


def _memory(measured: Mapping[int, Measured]) -> list[tuple[float, float]]:
    """Returns how much the computation adds to memory, in MB, where it is at least 1."""
    points = []
    for n, each in sorted(measured.items()):
        before = each.answers[0].result["resident_bytes"]
        used = (each.peak_bytes() - before) / 1e6
        if before and used >= 1:
            points.append((n, used))
    return points


def _draw(by_layer: Mapping[str, Mapping[int, Measured]], stem):
    times, memory = [], []
    for kind, measured in by_layer.items():
        times.append(Series(kind, _times(measured)))
        if points := _memory(measured):
            memory.append(Series(kind, points))
    panels = {"CPU time, forward and backward": [*times, *_theory(by_layer)]}
    if memory:
        panels["peak memory above the start"] = memory
    return draw_lines(panels, "sequence length n", ["milliseconds", "MB"], stem)


def _theory(by_layer: Mapping[str, Mapping[int, Measured]]) -> list[Series]:
    """Returns lines of Table 1's powers, each through the last point of its first layer."""
    lines = {}
    for kind, measured in by_layer.items():
        power, points = LAYERS[kind], _times(measured)
        name = f"n^{power}" if power > 1 else "n"
        lines.setdefault(power, Series(f"Table 1: {name}", grown(points, power), theory=True))
    return list(lines.values())


if __name__ == "__main__":
    run(main)
