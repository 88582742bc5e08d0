"""Training: tokens per second of tf_transformer and its peers on the same batches.

    python benchmarks/training_step.py --corpus PREFIX --source en --target de

A round is one update on each of a few batches of real lengths. Every contender trains a
Transformer of the same size with Adam, dropout 0.1 in at least the same places, and a
label-smoothed loss. Tokens are those of the target, without padding. The floor consists of only
the matrix products of such an update.
"""

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
from harness.arrays import load_batches
from harness.chart import FLOOR, OURS, Bar, draw_bars, kind_of
from harness.contender import Spec, make_file
from harness.options import (
    add_corpus,
    add_peers,
    make_parser,
    model_sizes,
    positive,
    prepared_corpus,
    run,
)
from harness.report import Report, say_versions, shown, table
from harness.rounds import Measured, measure, times_as_fast

from tf_transformer.config import ModelConfig
from tf_transformer.reports.cost import Lengths, training_flops

PEERS = ("marian", "marian-compiled")
PRECISIONS = ("float32", "bfloat16")
HEADER = ("", "tokens/s", "times as fast", "by CPU time", "peak memory", "first round")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    given = {"batch_tokens": options.batch_tokens, "number": options.batches}
    batches = make_file("batches", corpus=prepared_corpus(options), **given)
    report = Report("training_step", vars(options), options.output)
    panels = {}
    for name in options.models:
        model = model_sizes(name, options.vocab_size) | {"dropout": 0.1}
        for precision in options.precisions:
            title = f"{name}, {precision}"
            contenders = specs(options, batches, model, precision)
            ((_, results),) = measure(contenders, {title: {}}, options)
            report.add(title, results)
            report.write()
            _say(title, results, _flops(model, batches), options)
            panels[title] = [
                Bar(each, results[each].rate("tokens"), kind_of(each)) for each in results
            ]
    print(report.say_machine())
    pictures = draw_bars(panels, "target tokens a second", options.output / report.name)
    print("wrote", report.write(), *pictures)


def specs(options: argparse.Namespace, batches: str, model: dict, precision: str) -> list[Spec]:
    """Returns the contenders in one precision."""
    policy = precision if precision == "float32" else f"mixed_{precision}"
    work = {"batches": batches, "model": model, "precision": policy}
    ways = {"": {}}
    if options.xla:
        ways[", XLA"] = {"jit_compile": True}
    if options.parts_of:
        ways[f", parts of {options.parts_of}"] = {"max_tokens_per_device": options.parts_of}
    if options.recompute:
        ways[", recompute"] = {"recompute": True}
    chosen = [
        Spec(f"{OURS}{way}", "training_ours", options=work | more) for way, more in ways.items()
    ]
    peers = {
        "marian": ("MarianMT", "marian", "torch", {"compiled": False}),
        "marian-compiled": ("MarianMT, compiled", "marian", "torch", {"compiled": True}),
    }
    for peer in PEERS:
        if peer in options.peers:
            label, script, environment, own = peers[peer]
            chosen.append(Spec(label, f"training_{script}", environment, work | own))
    return [*chosen, Spec(FLOOR, "training_floor", options=work)]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add_peers(parser, PEERS)
    add_corpus(parser)
    add = parser.add_argument
    add("--models", nargs="+", default=["base", "small"], help="presets")
    add("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    add("--vocab-size", type=positive, default=32_000)
    add("--batch-tokens", type=positive, default=2_048)
    add("--batches", type=positive, default=4, help="batches in a round")
    add("--gpu", action="store_true", help="compute on the first GPU")
    add("--xla", action="store_true", help="also measure tf_transformer by XLA programs")
    text = "also measure tf_transformer with --max-tokens-per-device N"
    add("--parts-of", type=positive, metavar="N", help=text)
    text = "also measure tf_transformer with training.recompute"
    add("--recompute", action="store_true", help=text)
    text = "peak rate of the device, to print its utilisation"
    add("--peak-tflops", type=float, help=text)
    return parser.parse_args(arguments)


def _flops(model: dict, batches: str) -> int:
    """Returns the FLOPs of the model's products on the real tokens of a round."""
    lengths = [
        np.concatenate(
            [np.count_nonzero(getattr(b, side), axis=1) for b in load_batches(batches)]
        )
        for side in ("source", "labels")
    ]
    return training_flops(ModelConfig(**model), Lengths.of(*lengths))


def _say(
    title: str, results: Mapping[str, Measured], flops: int, options: argparse.Namespace
) -> None:
    header = [*HEADER, "TFLOP/s"] + ["utilisation"] * bool(options.peak_tflops)
    rows = []
    for name, each in results.items():
        rate = flops / each.seconds().median / 1e12
        row = [
            name,
            shown(each.rate("tokens")),
            shown(times_as_fast(each, results[OURS]), 2),
            shown(times_as_fast(each, results[OURS], cpu=True), 2),
            f"{each.peak_bytes() / 1e9:.2f} GB",
            f"{each.warm_up.seconds:.0f} s",
            f"{rate:.3f}",
        ]
        if options.peak_tflops:
            row.append(f"{rate / options.peak_tflops:.1%}")
        rows.append(row)
    print(f"\n{title}: {options.rounds} rounds, median (smallest-largest)\n")
    print(table(header, rows))
    print(f"\n{say_versions(results)}", flush=True)


if __name__ == "__main__":
    run(main)
