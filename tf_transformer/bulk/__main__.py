"""`python -m tf_transformer.bulk translate|score|clean`: large texts on Apache Beam.

All other options go to Beam. The output appears when it is whole: a local folder gets its name
at the end, and elsewhere the file counts.json is the last one.
"""

import argparse
import glob
import json
import logging
import os
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
from tf_transformer.data.text import resolve_prefix
from tf_transformer.loading.load import find

# Unlike Beam's DirectRunner, it downloads nothing.
_LOCAL = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
_LOCAL += ["--direct_running_mode=multi_processing"]
_MAIN = {"translate": "translated", "score": "scored", "clean": "kept"}


def _run(options: argparse.Namespace) -> None:
    from tf_transformer import bulk

    read_lines = bulk.ReadLines  # first: it says which package is missing

    from apache_beam import Map, Pipeline
    from apache_beam.io import WriteToText
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.metrics import MetricsFilter
    from apache_beam.options.pipeline_options import PipelineOptions

    data = DataConfig(
        source=options.source or "", target=options.target or "", max_length=options.max_length
    )
    texts, output, main = _texts(options, data), options.output, _MAIN[options.name]
    if options.name == "clean":
        files = [text[0] for text in texts]
        transform = bulk.Clean(files, data, options.held, options.numbers)
    else:
        find(Path(options.model))  # refuses what is no model
        transform = getattr(bulk, options.name.title())(options.model, options.batch)
    is_local = any(word.startswith("--runner") for word in options.beam)
    words = [*([] if is_local else _LOCAL), *options.beam]
    tab = " " if options.name == "clean" else "\t"  # `cut -f 5-` has all of a translation
    is_remote = "://" in output
    if is_remote and FileSystems.match([f"{output}/*"])[0].metadata_list:
        raise UserError(f"{output} exists already. Choose another folder.")
    with nullcontext(output) if is_remote else new_folder(Path(output)) as folder:
        pipeline = Pipeline(options=PipelineOptions(words))
        lines = pipeline | read_lines(texts, 1 if options.name == "translate" else 2)
        tables = {"unreadable": lines["unreadable"], **(lines["main"] | transform)}
        for name, rows in tables.items():
            path = f"{folder}/{main if name == 'main' else name}"
            formatted = rows | f"format {name}" >> Map(_row, tab)
            formatted | f"write {name}" >> WriteToText(path, ".tsv")
        try:
            result = pipeline.run()
            result.wait_until_finish()
        except Exception as error:
            *_, last = [type(error).__name__, *str(error).strip().splitlines()]
            reason = last.removeprefix(f"{UserError.__module__}.{UserError.__name__}: ")
            raise UserError(f"The pipeline has failed: {one_line(reason)}") from error
        found, ours = Counter[str](), MetricsFilter().with_namespace("tf_transformer")
        for counter in result.metrics().query(ours)["counters"]:
            found[counter.key.metric.name] += counter.result
        counts = dict(sorted(found.items()))
        with FileSystems.create(f"{folder}/counts.json") as file:
            file.write(json.dumps(counts, indent=2).encode())
    report = f"{output}: {', '.join(f'{name} {number:,}' for name, number in counts.items())}"
    if counts and main not in counts:
        raise UserError(f"No line is {main}, see the reasons in {report}")
    print(report)


def _texts(options: argparse.Namespace, data: DataConfig) -> list[tuple[str, ...]]:
    """Finds the files of texts, each once: of PREFIX two, as `doctor` does, else one."""
    texts: list[tuple[str, ...]] = []
    for name in options.texts:
        if options.name == "translate" or name.endswith((".tsv", ".tsv.gz")):
            found = [(path,) for path in _matches(name)]
        elif not (data.source and data.target):
            options.parser.error(f"--source and --target are needed for a PREFIX: {name}")
        else:
            found = _pairs_of_files(name, data.source, data.target)
        if not found:
            raise UserError(f"There is no {name}.")
        texts += found
    return [*dict.fromkeys(texts)]


def _pairs_of_files(name: str, source: str, target: str) -> list[tuple[str, str]]:
    paths = [*_matches(f"{name}.{source}"), *_matches(f"{name}.{source}.gz")]
    if "://" in name:
        return [(path, f".{target}".join(path.rsplit(f".{source}", 1))) for path in paths]
    prefixes = sorted({path.rpartition(f".{source}")[0] for path in paths}) or [name]
    return [
        (str(resolve_prefix(each, source)), str(resolve_prefix(each, target)))
        for each in prefixes
    ]


def _matches(pattern: str) -> list[str]:
    from apache_beam.io.filesystems import FileSystems

    if "://" not in pattern:  # of relative names Beam matches none
        return sorted(glob.glob(pattern))
    return sorted(file.path for file in FileSystems.match([pattern])[0].metadata_list)


def _row(element: tuple, tab: str) -> str:
    """Formats a row of a table: TABs in cells become spaces, in the last one `tab`."""
    key, cells = element
    *others, last = (f"{x:.4f}" if isinstance(x, float) else str(x) for x in (*key, *cells))
    return "\t".join([*(cell.replace("\t", " ") for cell in others), last.replace("\t", tab)])


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="python -m tf_transformer.bulk", description=__doc__)
    words = DataConfig().max_length
    parser.set_defaults(source=None, target=None, max_length=words)
    commands = parser.add_subparsers(required=True, dest="name", metavar="COMMAND")
    for name in _MAIN:
        add = commands.add_parser(name, allow_abbrev=False).add_argument
        if name != "clean":
            add("model", metavar="MODEL", help="an export, at a path that all workers see")
            add("--batch", type=int_from(1), default=256, help="lines for the model at once")
        add("texts", nargs="+", metavar="TEXT", help="files, PREFIX or tables, with wildcards")
        add("--output", required=True, metavar="DIR", help="new folder for the tables")
        if name != "translate":
            add("--source", metavar="LANGUAGE", help="language of sources")
            add("--target", metavar="LANGUAGE", help="language of targets")
        if name == "clean":
            add("--max-length", type=int_from(8), default=words, metavar="WORDS", help="words")
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
    if not options.traceback:  # what Python prints is shown, not what workers and libraries do
        sys.stderr = os.fdopen(os.dup(2), "w", 1, "utf-8", "backslashreplace")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        logging.getLogger().addHandler(logging.NullHandler())
        logging.getLogger("apache_beam.options").addHandler(logging.StreamHandler(sys.stderr))
    return run_command(options)


if __name__ == "__main__":
    run_process(_main)
