"""Learning: loss curves of tf_transformer and of an independent Transformer in PyTorch.

    python benchmarks/peer_learning.py --corpus PREFIX --source en --target de --steps 1000

All train on the same batches in the same order, with dropout, Adam and the package's schedule.
The peer is a reimplementation of fairseq's Transformer; it trains from its own initial weights
and from ours. An interrupted command resumes; finished curves are not trained again.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.chart import OURS
from harness.contender import Contender, Spec, make_file
from harness.options import add_corpus, make_parser, positive, prepared_corpus, run
from harness.report import Report, table

from tf_transformer.config.presets import preset
from tf_transformer.files import write_text
from tf_transformer.plots.figure import STYLES, new_figure, save

PEER, FROM_OURS = "peer", "peer from our weights"
SCRIPTS = {
    OURS: ("learning_ours", "own"),
    PEER: ("learning_peer", "torch"),
    FROM_OURS: ("learning_peer", "torch"),
}
TRAINING = ("warmup_steps", "learning_rate_scale", "label_smoothing")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    config = preset(options.model).override(options.set)
    text = {"corpus": prepared_corpus(options), "batch_tokens": config.training.batch_tokens}
    batches = make_file("batches", **text, number=options.steps, in_order=True)
    setup = {
        "model": dataclasses.asdict(config.model),
        "training": {name: getattr(config.training, name) for name in TRAINING},
    }
    report = Report("peer_learning", vars(options), options.output)
    folder = options.output / report.name
    folder.mkdir(parents=True, exist_ok=True)
    curves = {}
    for seed in options.seeds:
        for name in options.series:
            curve = Curve(name, setup | {"seed": seed}, text, folder, options.every)
            curves[name, seed] = curve.train(batches, options.steps, options.threads)
    report.add("nats", {f"{name}, seed {seed}": each for (name, seed), each in curves.items()})
    print(_table(curves))
    print(report.say_machine())
    picture = options.output / f"{report.name}.png"
    _draw(curves, options.every, picture)
    print("wrote", report.write(), picture)


class Curve:
    """The training of one series with one seed, saved to files after every few steps.

    Args:
        name: a key of `SCRIPTS`.
        setup: options of the contender except its batches.
        text: options that determine the batches, whose number may grow.
        folder: for the files.
        every: steps between two points.
    """

    def __init__(
        self, name: str, setup: dict[str, Any], text: dict[str, Any], folder: Path, every: int
    ) -> None:
        self.name, self.setup, self.every = name, setup, every
        self.origin = {"setup": setup, "text": text, "every": every}
        self.stem = folder / f"{name.replace(' ', '-')}-{setup['seed']}"

    def train(self, batches: str, steps: int, threads: int) -> list[float]:
        """Trains on a file of batches; returns nats per token, averaged over `every` steps."""
        curve, setup = self._read(), self.setup | {"batches": batches}
        script, environment = SCRIPTS[self.name]
        if len(curve) * self.every < steps:
            with Contender(Spec(self.name, script, environment), threads) as contender:
                contender.call("setup", **setup)
                self._begin(contender, setup, len(curve) * self.every, threads)
                for point in self._points(contender, len(curve) * self.every, steps):
                    curve.append(point)
                    self._write(curve)
        return curve[: steps // self.every]

    def _begin(self, contender: Contender, setup: dict, step: int, threads: int) -> None:
        if step:
            contender.call("restore", path=str(self._state(step)))
        elif self.name == FROM_OURS:
            start = f"{self.stem}.npz"
            with Contender(Spec(OURS, *SCRIPTS[OURS]), threads) as ours:
                ours.call("setup", **setup)
                ours.call("start", path=start)
            contender.call("start_from", path=start)

    def _points(self, contender: Contender, first: int, steps: int) -> Iterator[float]:
        for step in range(first, steps - self.every + 1, self.every):
            nats = contender.call("train", first=step, number=self.every).result["nats"]
            reached = step + self.every
            contender.call("save", path=str(self._state(reached)))
            print(f"{self.name}, step {reached:,}: {nats:.3f}", flush=True)
            yield nats

    def _read(self) -> list[float]:
        try:
            record = json.loads(Path(f"{self.stem}.json").read_text())
        except FileNotFoundError:
            return []
        return record["nats"] if record["origin"] == self.origin else []

    def _write(self, curve: list[float]) -> None:
        """Writes the curve and deletes the previous state."""
        record = {"origin": self.origin, "nats": curve}
        write_text(Path(f"{self.stem}.json"), json.dumps(record) + "\n")
        self._state((len(curve) - 1) * self.every).unlink(missing_ok=True)

    def _state(self, step: int) -> Path:
        return Path(f"{self.stem}-{step}.state.npz")


def _table(curves: dict[tuple[str, int], list[float]]) -> str:
    """Formats the last loss of each curve, and the mean of each series."""
    rows = []
    for name in dict.fromkeys(name for name, _ in curves):
        last = [curve[-1] for (other, _), curve in curves.items() if other == name]
        each = ", ".join(f"{nats:.3f}" for nats in last)
        rows.append((name, f"{sum(last) / len(last):.3f}", each))
    return table(("", "nats a token", "by seed"), rows)


def _draw(curves: dict[tuple[str, int], list[float]], every: int, path: Path) -> None:
    figure = new_figure(6.5, 4.2)
    axes = figure.subplots()
    names = list(dict.fromkeys(name for name, _ in curves))
    for (name, seed), curve in curves.items():
        style = STYLES[names.index(name) % len(STYLES)] | {"markersize": 3}
        first = seed == min(other for other_name, other in curves if other_name == name)
        steps = range(every, every * len(curve) + 1, every)
        axes.plot(steps, curve, label=name if first else None, alpha=0.8, **style)
    axes.set(xlabel="step", ylabel="nats a token, not smoothed", title="Training loss")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save(figure, path)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=None)
    add_corpus(parser)
    parser.add_argument("--model", default="multi30k", help="preset; default: multi30k")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.FIELD=VALUE",
        help="change a setting of the preset, as in train.py; repeatable",
    )  # fmt: skip
    text = "number of updates; default: 1,000"
    parser.add_argument("--steps", type=positive, default=1_000, help=text)
    text = "updates per point of a curve; default: 50"
    parser.add_argument("--every", type=positive, default=50, help=text)
    parser.add_argument("--seeds", type=positive, nargs="+", default=[1, 2])
    parser.add_argument("--series", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
