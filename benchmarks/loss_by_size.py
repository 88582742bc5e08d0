"""A small scaling curve: dev loss against the size of the model and the pairs of training.

    python benchmarks/loss_by_size.py --train multi30k/train --valid multi30k/val --source en \\
        --target de --output runs/loss-by-size

Trains each size on the first pairs of a corpus, all for the same number of updates and with one
tokenizer, and takes the best dev loss (nats per piece, without label smoothing). Fits
loss = c N^-a P^-b to all of them, N the parameters and P the pairs (Kaplan et al. 2020, arXiv
2001.08361, fit each by itself). The same command resumes.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from harness.chart import Series, draw_lines
from harness.options import make_parser, positive, run
from harness.report import Report, table

from tf_transformer.base.errors import UserError
from tf_transformer.config.presets import preset
from tf_transformer.data.text import read_pairs, resolve_prefix, write_pairs
from tf_transformer.reports.cost import parameter_count
from tf_transformer.run import Run
from tf_transformer.training.sessions import DONE, train_in_turn

SIZES = {"1 x 32": (1, 32), "1 x 64": (1, 64), "2 x 96": (2, 96)}  # layers x d_model
SETTINGS = {
    "model.vocab_size": 2_000, "model.positions": "sinusoidal",
    "model.dropout": 0.1, "model.attention_dropout": 0,
    "model.activation_dropout": 0, "training.batch_tokens": 1_024, "training.warmup_steps": 300,
    "training.learning_rate_scale": 1, "training.ema_decay": 0, "training.keep_last": 1,
    "training.average_last": 1, "training.best_by": "perplexity", "decoding.beam_size": 1,
    "decoding.max_extra_length": 5,
}  # fmt: skip
Losses = Mapping[tuple[int, int], float]  # by parameters and pairs


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    runs = _train(options)
    losses = {
        (parameter_count(each.config.model), pairs): _loss(each)
        for (_, pairs), each in runs.items()
    }
    names = {parameter_count(each.config.model): name for (name, _), each in runs.items()}
    c, a, b = fit(losses)
    fitted = {(n, pairs): c * n**-a * pairs**-b for n, pairs in losses}
    report = Report("loss_by_size", vars(options), options.output)
    report.add("losses", [[*key, loss] for key, loss in losses.items()])
    report.add("fit", {"c": c, "a": a, "b": b})
    counts = [f"{pairs:,} pairs" for pairs in options.pairs]
    rows = [
        [name, f"{n:,}", *(f"{losses[n, pairs]:.3f}" for pairs in options.pairs)]
        for n, name in names.items()
    ]
    print(f"\n{table(['layers x d_model', 'parameters', *counts], rows)}")
    print(f"\nloss = {c:.2f} N^-{a:.3f} P^-{b:.3f}")
    misses = [abs(fitted[key] - loss) for key, loss in losses.items()]
    print(f"misses by {np.mean(misses):.3f} on average, {max(misses):.3f} at most")
    print(report.say_machine())
    print("wrote", report.write(), *_draw(losses, fitted, names, options.output / report.name))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=None)
    for name in ("train", "valid", "source", "target"):
        parser.add_argument(f"--{name}", required=True, help="as for `tf-transformer train`")
    pairs = [500, 2_000, 8_000]
    parser.add_argument("--pairs", type=positive, nargs="+", default=pairs, help="P")
    parser.add_argument("--updates", type=positive, default=600)
    options = parser.parse_args(arguments)
    options.pairs.sort()
    return options


def _train(options: argparse.Namespace) -> dict[tuple[str, int], Run]:
    """Trains what is not trained yet; returns the runs by size and pairs."""
    languages = options.source, options.target
    files = [resolve_prefix(options.train, language) for language in languages]
    for pairs in options.pairs:
        prefix = options.output / "text" / str(pairs)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        write_pairs(prefix, languages, islice(read_pairs(*files), pairs))
    keys = [(size, pairs) for pairs in reversed(options.pairs) for size in SIZES]
    folders = {options.output / f"{size.replace(' ', '')}-{pairs}": (size, pairs)
               for size, pairs in keys}  # fmt: skip
    first = next(iter(folders))  # on all of the text, so that its tokenizer serves all

    def words(folder: Path, _) -> list[str]:
        size, pairs = folders[folder]
        layers, width = SIZES[size]
        settings = SETTINGS | {
            "model.num_layers": layers, "model.d_model": width, "model.d_ff": 2 * width,
            "training.steps": options.updates, "training.evaluate_every": options.updates // 4,
            "data.tokenizer": "" if folder == first else first / "tokenizer.model",
        }  # fmt: skip
        given = [word for each in settings.items() for word in ("--set", "{}={}".format(*each))]
        return [
            "--model", "multi30k", "--train", str(options.output / "text" / str(pairs)),
            "--valid", options.valid, "--source", options.source, "--target", options.target,
            *given,
        ]  # fmt: skip

    config = preset("multi30k").replace({"training.steps": options.updates})
    if train_in_turn(dict.fromkeys(folders, config), words) != DONE:
        raise UserError("Not every run was trained. Run the same command again to resume.")
    return {key: Run.open(folder) for folder, key in folders.items()}


def _loss(run: Run) -> float:
    """Returns the best dev loss of a run."""
    return min(math.log(record["valid_perplexity"]) for record in run.history())


def fit(losses: Losses) -> tuple[float, float, float]:
    """Fits c, a and b of loss = c N^-a P^-b by least squares of the logarithms."""
    sizes = np.log([[*key] for key in losses])
    columns = np.column_stack([np.ones(len(sizes)), -sizes])
    c, a, b = np.linalg.lstsq(columns, np.log([*losses.values()]), rcond=None)[0]
    return float(np.exp(c)), float(a), float(b)


def _draw(losses: Losses, fitted: Losses, names: Mapping[int, str], stem: Path) -> list[Path]:
    """Draws the loss against parameters and against pairs, over thin lines of the fit."""
    panels: dict[str, list[Series]] = {}
    for axis, panel in enumerate(("parameters N", "pairs P")):
        for value in sorted({key[1 - axis] for key in losses}):
            label = f"{value:,} pairs" if axis == 0 else names[value]
            for source, title in ((losses, label), (fitted, "")):
                points = sorted((key[axis], loss) for key, loss in source.items()
                                if key[1 - axis] == value)  # fmt: skip
                panels.setdefault(panel, []).append(Series(title, points, source is fitted))
    return draw_lines(panels, "", ["dev loss, nats per piece"] * 2, stem)


if __name__ == "__main__":
    run(main)
