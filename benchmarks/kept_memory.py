"""Memory that processes keep: what it gives and costs in training, decoding and serving.

    python benchmarks/kept_memory.py --corpus PREFIX --source en --target de --run RUN

The same work is done in turn by a process whose C library returns freed memory to the system,
and by one that keeps it, as the package's commands do: processor time, page faults and peak
memory, without starting and the first round. --run is for the server, in whose rounds clients
send requests of one to four sentences at the same time; an export starts sooner.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace

from harness.contender import Spec, make_file
from harness.options import add_corpus, make_parser, model_sizes, positive, prepared_corpus, run
from harness.report import Report, shown, table
from harness.rounds import Measured, Spread, measure, times_as_fast

from tf_transformer.base.errors import UserError
from tf_transformer.config.presets import preset

RETURNED, KEPT = "returned", "kept"
PARTS = ("training", "decoding", "litert", "peers", "server")
# Preset, precision, positions of a batch and pieces of its text.
TRAINING = (
    ("multi30k", "float32", 4_096, 8_000),
    ("small", "float32", 2_048, 16_000),
    ("base", "float32", 2_048, 32_000),
    ("base", "mixed_bfloat16", 2_048, 32_000),
)
HEADER = (
    "", "CPU s: returned", "kept", "times as fast", "page faults: returned", "kept",
    "peak MB: returned", "kept", "growth",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    report, rows = Report("kept_memory", vars(options), options.output), []
    for spec, cases in _work(options):
        both = [replace(spec, name=RETURNED, keep_memory=False), replace(spec, name=KEPT)]
        for case, results in measure(both, cases, options):
            title = f"{spec.name}{case}"
            report.add(title, results)
            report.write()
            rows.append(_row(title, results))
            print(table(HEADER, rows[-1:]), flush=True)
    print(f"\n{table(HEADER, rows)}\n\n{report.say_machine()}\nwrote {report.write()}")


def _work(options: argparse.Namespace) -> Iterator[tuple[Spec, dict[str, dict]]]:
    """Yields contenders with the arguments of their work by case."""
    if "training" in options.parts:
        corpus = prepared_corpus(options)
        for name, precision, positions, pieces in TRAINING:
            if name not in options.models:
                continue
            given = {"batch_tokens": positions, "number": options.batches}
            batches = make_file("batches", corpus=corpus, **given)
            model = asdict(preset(name).model) | {"vocab_size": pieces}
            given = {"batches": batches, "model": model, "precision": precision}
            title = f"training {name}, {precision.removeprefix('mixed_')}"
            yield Spec(title, "training_ours", options=given), {"": {}}
    work = ""
    if {"decoding", "litert", "peers"} & {*options.parts}:
        sizes, corpus = model_sizes("base", 32_000), prepared_corpus(options)
        work = make_file("decoding_work", corpus=corpus, model=sizes, run=None, number=64)
    search = {"beam": 4, "forced": 32, "batches": 1}
    if "decoding" in options.parts:
        given = {"work": work, "precision": "float32"}
        cases = {f", {n} sentences": search | {"batch": n} for n in (1, 8, 32)}
        yield Spec("decoding base", "decoding_ours", options=given), cases
    if "litert" in options.parts:
        given = {"work": work, "precision": "litert-int8"}
        cases = {f", {n} sentences": search | {"batch": n} for n in (1, 8)}
        yield Spec("decoding base, LiteRT int8", "decoding_ours", options=given), cases
    if "peers" in options.parts:
        cases = {f", {n} sentences": search | {"batch": n} for n in (8, 32)}
        for precision in ("float32", "int8"):
            title, given = f"CTranslate2, {precision}", {"work": work, "precision": precision}
            yield Spec(title, "decoding_ctranslate2", "ctranslate2", given), cases
    if "server" in options.parts:
        given = {"run": options.run, "clients": options.clients}
        cases = {f", {options.requests:,} requests": {"requests": options.requests}}
        yield Spec("serving", "server_load", options=given), cases


def _row(title: str, results: Mapping[str, Measured]) -> list[str]:
    both = [results[name] for name in (RETURNED, KEPT)]
    peaks = [each.peak_bytes() for each in both]
    faults = [Spread.of(answer.faults for answer in each.answers) for each in both]
    return [
        title,
        *(shown(each.cpu_seconds(), 2) for each in both),
        shown(times_as_fast(results[KEPT], results[RETURNED], cpu=True), 2),
        *(f"{each.median:,.0f}" for each in faults),
        *(f"{peak / 1e6:,.0f}" for peak in peaks),
        f"{peaks[1] / peaks[0] - 1:+.0%}",
    ]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=2)
    add_corpus(parser)
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    models = sorted({name for name, *_ in TRAINING})
    add("--models", nargs="+", choices=models, default=models, help="training: presets")
    add("--batches", type=positive, default=4, help="training: updates in a round")
    add("--run", metavar="RUN_OR_SAVEDMODEL", help="the model to serve, from English")
    text = "server: requests in a round, clients at the same time"
    add("--requests", type=positive, default=5_000, help=text)
    add("--clients", type=positive, default=4, help=text)
    options = parser.parse_args(arguments)
    if "server" in options.parts and not options.run:
        raise UserError("The server needs --run RUN. To measure without it, use --parts.")
    return options


if __name__ == "__main__":
    run(main)
