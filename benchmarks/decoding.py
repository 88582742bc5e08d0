"""Decoding: tokens per second of tf_transformer and its peers, with the same weights.

    python benchmarks/decoding.py --corpus PREFIX --source en --target de
    python benchmarks/decoding.py --run RUN --corpus PREFIX --source en --target de

Without --run the model is untrained and every output is forced to the same length; with it,
outputs of natural length are measured too. A round decodes eight sentences one by one, or a
batch. Before anything is measured, the translations of peers with the same weights are compared
with ours. The floor consists of only the matrix products of the search.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from harness.chart import FLOOR, OURS, Bar, draw_bars, kind_of
from harness.contender import Contender, Spec, make_file
from harness.options import (
    add_best_of_threads,
    add_corpus,
    add_peers,
    make_parser,
    model_sizes,
    positive,
    prepared_corpus,
    run,
)
from harness.report import Report, say_versions, shown, table
from harness.rounds import (
    Measured,
    Spread,
    fastest,
    measure,
    say,
    times_as_fast,
    with_threads,
)

from tf_transformer.base.errors import UserError
from tf_transformer.decoding.streams import most_streams

PEERS = ("ctranslate2", "ctranslate2-int8")
STREAMS = ("decoding_ours", "decoding_ctranslate2")
HEADER = ("", "tokens/s", "times as fast", "by CPU time", "p50", "p95", "peak memory", "same")
SINGLES = 8  # sentences in a round of batches of one


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    work = _work(options)
    report = Report("decoding", vars(options), options.output)
    same = _check(specs(options, work, natural=bool(options.run)), options)
    report.add("same output as ours", same)
    panels = {}
    for natural in (False, True) if options.run else (False,):
        numbers = options.best_of_threads
        contenders = _with_threads(specs(options, work, natural), numbers, options.gpu)
        for title, results in measure(contenders, _cases(options, natural), options):
            report.add(title, results)
            report.write()
            results = fastest(results) if options.best_of_threads else results
            _say(title, results, same, options)
            panels[title] = [Bar(n, m.rate("tokens"), kind_of(n)) for n, m in results.items()]
    print(f"\n{report.say_machine()}")
    pictures = draw_bars(panels, "output tokens a second", options.output / report.name)
    print("wrote", report.write(), *pictures)


def specs(options: argparse.Namespace, work: str, natural: bool) -> list[Spec]:
    """Returns the contenders; for natural lengths, only those with the package's weights."""
    chosen = []
    for precision in options.precisions:
        name, given = f"{OURS} {precision}".removesuffix(" float32"), _options(work, precision)
        given["lookahead"] = options.lookahead if natural else 0
        chosen.append(Spec(name, "decoding_ours", options=given))
        if options.xla and precision in ("float32", "bfloat16"):
            with_xla = given | {"jit_compile": True}
            chosen.append(Spec(f"{name}, XLA", "decoding_ours", options=with_xla))
    peers = {
        "ctranslate2": ("CTranslate2", "ctranslate2", "ctranslate2", "float32"),
        "ctranslate2-int8": ("CTranslate2 int8", "ctranslate2", "ctranslate2", "int8"),
    }
    for peer in PEERS:
        if peer in options.peers:
            name, script, environment, precision = peers[peer]
            given = _options(work, precision)
            chosen.append(Spec(name, f"decoding_{script}", environment, given))
    if not natural:
        chosen.append(Spec(FLOOR, "decoding_floor", options=_options(work, "float32")))
    return chosen


def _with_threads(specs: Sequence[Spec], numbers: Sequence[int], gpu: bool) -> list[Spec]:
    """Returns a copy of each contender for each number of threads, for `fastest`.

    Where a library supports it, cores that the threads leave idle compute another part of the
    batch.
    """
    several = []
    for spec in with_threads(specs, numbers):
        in_streams = numbers and spec.script in STREAMS and not gpu
        given = {"streams": most_streams(spec.threads)} if in_streams else {}
        several.append(replace(spec, options=spec.options | given))
    return several


def _options(work: str, precision: str) -> dict[str, str]:
    return {"work": work, "precision": precision}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add_peers(parser, PEERS)
    add_corpus(parser)
    add = parser.add_argument
    add("--model", default="base", help="a preset, without --run")
    add("--vocab-size", type=positive, default=32_000, help="without --run")
    add("--run", help="a trained run; also measures natural lengths")
    add("--batch-sizes", type=positive, nargs="+", default=[1, 8, 32, 64])
    add("--beams", type=positive, nargs="+", default=[4, 1])
    add("--length", type=positive, default=32, help="tokens of forced outputs")
    text = "precisions of tf_transformer; litert is float32 in LiteRT"
    known = ("float32", "bfloat16", "int8", "litert", "litert-int8")
    add("--precisions", nargs="+", choices=known, default=["float32"], help=text)
    text = "lookahead of tf_transformer's search, for natural lengths only"
    add("--lookahead", type=int, default=0, metavar="N", help=text)
    add_best_of_threads(parser)
    add("--xla", action="store_true", help="also measure steps that XLA compiles")
    add("--gpu", action="store_true", help="compute on the first GPU")
    options = parser.parse_args(arguments)
    if "float32" not in options.precisions:
        raise UserError(
            "--precisions must include float32, with which the others are compared. "
            f"Received: {' '.join(options.precisions)}."
        )
    return options


def _work(options: argparse.Namespace) -> str:
    run = options.run and Path(options.run).absolute()
    parts = ("config.json", "tokenizer.model", "checkpoints/best.npz")
    return make_file(
        "decoding_work",
        [run / part for part in parts] if run else [],
        corpus=prepared_corpus(options),
        model=model_sizes(options.model, options.vocab_size),
        run=run and str(run),
        number=max(*options.batch_sizes, 64),
    )


def _cases(options: argparse.Namespace, natural: bool) -> dict[str, dict]:
    """Returns the arguments of `work` by title."""
    forced = 0 if natural else options.length
    lengths = f"{forced} tokens each" if forced else "natural lengths"
    cases = {}
    for beam in options.beams:
        for batch in options.batch_sizes:
            title = f"{f'beam {beam}' if beam > 1 else 'greedy'}, batch {batch}, {lengths}"
            number = SINGLES if batch == 1 else 1
            cases[title] = dict(batch=batch, beam=beam, forced=forced, batches=number)
    return cases


def _check(contenders: Sequence[Spec], options: argparse.Namespace) -> dict[str, float]:
    """Returns the share of sentences for which each contender finds our translation."""
    work = {"batch": 16, "beam": max(options.beams), "forced": 0 if options.run else 12}
    hypotheses = {}
    for spec in contenders:
        if spec.name != FLOOR:
            say(f"checking {spec.name}")
            with Contender(spec, options.threads, options.gpu) as contender:
                contender.call("setup", **spec.options)
                hypotheses[spec.name] = contender.call("check", **work).result["hypotheses"]
    say("")
    ours = [best for (best,) in hypotheses[OURS]]
    return {
        name: float(np.mean([best in row for best, row in zip(ours, rows, strict=True)]))
        for name, rows in hypotheses.items()
    }


def _say(
    title: str,
    results: Mapping[str, Measured],
    same: Mapping[str, float],
    options: argparse.Namespace,
) -> None:
    rows = []
    for name, each in results.items():
        times = [t for answer in each.answers for t in answer.result.get("latencies", [])]
        p50, p95 = (f"{1e3 * t:.0f} ms" for t in np.percentile(times or [0], [50, 95]))
        rows.append(
            [
                name + each.note,
                shown(each.rate("tokens")),
                shown(times_as_fast(each, results[OURS]), 2),
                shown(times_as_fast(each, results[OURS], cpu=True), 2),
                *([p50, p95] if times else ["", ""]),
                f"{each.peak_bytes() / 1e9:.2f} GB",
                f"{same[name]:.0%}" if name in same else "",
            ]
        )
    print(f"\n{title}: {options.rounds} rounds, median (smallest-largest)\n")
    print(table(HEADER, rows))
    print(f"\n{say_versions(results)}")
    if FLOOR in results:
        print(_bounds(results), flush=True)


def _bounds(results: Mapping[str, Measured]) -> str:
    ours = results[OURS].seconds().median
    floor = results[FLOOR].answers
    bounds = {
        "reading_seconds": "reading the decoder's weights once a step",
        "computing_seconds": "the FLOPs at the rate of the largest product",
    }
    said = []
    for key, name in bounds.items():
        bound = Spread.of(answer.result[key] for answer in floor).median
        said.append(f"{ours / bound:.2f} x {name}")
    return f"ours takes {' and '.join(said)}"


if __name__ == "__main__":
    run(main)
