"""Trained systems side by side: how fast each translates a text, and the memory it needs.

    python benchmarks/systems.py --source test.en --best-of-threads 1 2 \\
      --system "teacher" runs/teacher 4 --system "student, int8" exported/student 1

A system is a name, a run or an export, and a size of the beam. The others are compared with the
first, on the same sentences in the same rounds; each round takes the next of the text.
A run computes in float32, an export in its own precision. Quality: `tf-transformer compare`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.contender import Spec
from harness.options import add_best_of_threads, make_parser, positive, run
from harness.report import Report, say_versions, shown, table
from harness.rounds import fastest, measure, times_as_fast, with_threads

from tf_transformer.base.errors import UserError
from tf_transformer.export.versions import find_export

HEADER = ("", "tokens/s", "times as fast", "by CPU time", "peak memory", "size on disk")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    add = parser.add_argument
    names = ("NAME", "PATH", "BEAM")
    add("--system", action="append", required=True, nargs=3, metavar=names, dest="systems")
    add("--source", type=Path, required=True, metavar="FILE", help="text to translate")
    add("--sentences", type=positive, default=128, metavar="N", help="of a round; default: 128")
    add("--batch-sizes", type=positive, nargs="+", default=[1, 8, 32])
    add_best_of_threads(parser)
    options = parser.parse_args(arguments)
    report = Report("systems", vars(options), options.output)
    cases = {f"{size} sentences at a time": {"batch": size} for size in options.batch_sizes}
    paths = {name: Path(path).absolute() for name, path, _ in options.systems}
    for title, results in measure(_specs(options), cases, options):
        report.add(title, results)
        report.write()
        results = fastest(results) if options.best_of_threads else results
        first = next(iter(results.values()))
        rows = [
            [
                name + each.note,
                shown(each.rate("tokens")),
                shown(times_as_fast(each, first), 2),
                shown(times_as_fast(each, first, cpu=True), 2),
                f"{each.peak_bytes() / 1e6:,.0f} MB",
                f"{size_on_disk(paths[name]) / 1e6:,.1f} MB",
            ]
            for name, each in results.items()
        ]
        print(f"\n{title}: {options.rounds} rounds, median (smallest-largest)\n")
        print(table(HEADER, rows), f"\n\n{say_versions(results)}", flush=True)
    print(f"\n{report.say_machine()}\nwrote {report.write()}")


def _specs(options: argparse.Namespace) -> list[Spec]:
    """Returns each system, once for each number of threads if there are several."""
    specs = []
    for name, path, beam in options.systems:
        if not Path(path).exists():
            raise UserError(f"There is no {path}.")
        if not beam.isdecimal():
            raise UserError(f"BEAM of {name} must be a number. Received: {beam}.")
        given = {"path": str(Path(path).absolute()), "source": str(options.source.absolute())}
        given |= {"beam": int(beam), "sentences": options.sentences}
        specs.append(Spec(name, "system", options=given))
    return with_threads(specs, options.best_of_threads)


def size_on_disk(path: Path) -> int:
    """Returns the bytes of the newest version of an export, or of a run's best weights."""
    if export := find_export(path):
        return sum(file.stat().st_size for file in export.rglob("*") if file.is_file())
    return (path / "checkpoints" / "best.npz").stat().st_size


if __name__ == "__main__":
    run(main)
