"""`python -m tf_transformer.bulk translate|score|clean`: large texts on Apache Beam.

All other options go to Beam. The output appears when it is whole: a local folder gets its name
at the end, and elsewhere the file counts.json is the last one.
"""

import argparse
import glob
import json
import logging
import os
import signal
import sys
import threading
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.base.files import new_folder
from tf_transformer.cli.console import print_error, run_command
from tf_transformer.cli.parser import CommandParser, int_from
from tf_transformer.cli.process import run_process
from tf_transformer.config import DataConfig
from tf_transformer.data.text import corpora
from tf_transformer.loading.load import find

# Unless other options follow. Unlike Beam's DirectRunner, it downloads nothing.
_LOCAL = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
_LOCAL += ["--direct_running_mode=multi_processing"]
_MAIN = {"translate": "translated", "score": "scored", "clean": "kept"}


def _run(options: argparse.Namespace) -> None:
    from tf_transformer import bulk

    read_lines = bulk.ReadLines  # first: it says which package is missing

    import apache_beam as beam
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    given = {name: getattr(options, name, None) for name in ("source", "target", "max_length")}
    data = DataConfig(**{name: value for name, value in given.items() if value})
    texts, output, main = _texts(options, data), options.output, _MAIN[options.name]
    if options.name == "clean":
        transform = bulk.Clean([text[0] for text in texts], data, options.held, options.numbers)
    else:
        find(Path(options.model))  # refuses what is no model
        transform = getattr(bulk, options.name.title())(options.model, options.batch)
    tab = " " if options.name == "clean" else "\t"  # `cut -f 5-` has all of a translation
    is_remote = "://" in output
    if is_remote and FileSystems.match([f"{output}/*"])[0].metadata_list:
        raise UserError(f"{output} exists already. Choose another folder.")
    with nullcontext(output) if is_remote else new_folder(Path(output)) as folder:
        pipeline = beam.Pipeline(options=PipelineOptions([*_LOCAL, *options.beam]))
        lines = pipeline | read_lines(texts, 1 if options.name == "translate" else 2)
        tables = {"unreadable": lines["unreadable"], **(lines["main"] | transform)}
        for name, rows in tables.items():
            path = f"{folder}/{main if name == 'main' else name}"
            rows | name >> beam.Map(_row, tab) | path >> beam.io.WriteToText(path, ".tsv")
        try:
            result = pipeline.run()
            result.wait_until_finish()
        except Exception as error:
            *_, last = [type(error).__name__, *str(error).strip().splitlines()]
            reason = last.removeprefix(f"{UserError.__module__}.{UserError.__name__}: ")
            raise UserError(f"The pipeline has failed: {one_line(reason)}") from error
        found, ours = (
            Counter[str](),
            beam.metrics.MetricsFilter().with_namespace("tf_transformer"),
        )
        for counter in result.metrics().query(ours)["counters"]:
            found[counter.key.metric.name] += counter.result
        with FileSystems.create(f"{folder}/counts.json") as file:
            file.write(json.dumps(found, indent=2, sort_keys=True).encode())
    counts = ", ".join(f"{name} {number:,}" for name, number in sorted(found.items()))
    if found and main not in found:
        raise UserError(f"No line is {main}, see the reasons in {output}: {counts}")
    print(f"{output}: {counts}")


def _texts(options: argparse.Namespace, data: DataConfig) -> list[tuple[str, ...]]:
    """Finds the files of texts, each once: of PREFIX two, as `doctor` does, else one."""
    from apache_beam.io.filesystems import FileSystems

    texts, one, other = list[tuple[str, ...]](), f".{data.source}", f".{data.target}"
    for name in options.texts:
        is_pair = options.name != "translate" and not name.endswith((".tsv", ".tsv.gz"))
        if is_pair and not (data.source and data.target):
            options.parser.error(f"--source and --target are needed for a PREFIX: {name}")
        patterns = [name + one, f"{name}{one}.gz"] if is_pair else [name]
        found = sorted(path for pattern in patterns for path in glob.glob(pattern))
        if "://" in name:  # of relative names Beam matches none
            matches = FileSystems.match(patterns)
            found = sorted(file.path for match in matches for file in match.metadata_list)
        elif is_pair:
            prefixes = sorted({path.rpartition(one)[0] for path in found}) or [name]
            texts += ((str(text.source), str(text.target)) for text in corpora(prefixes, data))
            continue
        if not found:
            raise UserError(f"There is no {name}.")
        pairs = ((path, other.join(path.rsplit(one, 1))) for path in found)
        texts += pairs if is_pair else ((path,) for path in found)
    return [*dict.fromkeys(texts)]


def _row(element: tuple, tab: str) -> str:
    """Formats a row of a table: TABs in cells become spaces, in the last one `tab`."""
    key, cells = element
    *others, last = (f"{x:.4f}" if isinstance(x, float) else str(x) for x in (*key, *cells))
    return "\t".join([*(cell.replace("\t", " ") for cell in others), last.replace("\t", tab)])


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="python -m tf_transformer.bulk", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="name", metavar="COMMAND")
    for name in _MAIN:
        add = commands.add_parser(name, allow_abbrev=False).add_argument
        if name != "clean":
            add("model", metavar="MODEL", help="an export, at a path that all workers see")
            add("--batch", type=int_from(1), default=256, help="lines for the model at once")
        add("texts", nargs="+", metavar="TEXT", help="files, PREFIX or tables, with wildcards")
        add("--output", required=True, metavar="DIR", help="new folder for the tables")
        for side in () if name == "translate" else ("source", "target"):
            add(f"--{side}", metavar="LANGUAGE", help=f"language of {side}s")
        if name == "clean":
            add("--max-length", type=int_from(8), metavar="WORDS", help="length not to pass")
            add("--held", nargs="+", default=[], metavar="TEXT", help="dev and test texts")
            add("--numbers", action="store_true", help="reject pairs with other numbers")
        add("--traceback", action="store_true", help="show where an error arose, and logs")
    return parser


def _worker_lost(event: threading.ExceptHookArgs) -> None:
    """Ends the process: Beam's local runner would wait for a worker that was killed."""
    print_error(one_line(f"A worker was lost, and the pipeline with it: {event.exc_value}"))
    os._exit(1)


def _main() -> int:
    options, beam = _parser().parse_known_args()
    options.beam, options.command, options.stdout_is_data = beam, _run, False
    threading.excepthook = _worker_lost
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # or workers, which end, would be lost
    if not options.traceback:  # what Python prints is shown, not what workers and libraries do
        sys.stderr = os.fdopen(os.dup(2), "w", 1, "utf-8", "backslashreplace")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        logging.getLogger().addHandler(logging.NullHandler())
        logging.getLogger("apache_beam.options").addHandler(logging.StreamHandler(sys.stderr))
    return run_command(options)


if __name__ == "__main__":
    run_process(_main)
