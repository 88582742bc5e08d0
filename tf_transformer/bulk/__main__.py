"""`python -m tf_transformer.bulk translate|score|clean`: large texts on Apache Beam.

All other options go to Beam. The output appears when it is whole: a local folder gets its name
at the end, and elsewhere the file counts.json is the last one.
"""

import argparse
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.base.files import new_folder
from tf_transformer.cli.console import print_error, run_command
from tf_transformer.cli.process import run_process
from tf_transformer.config import DataConfig

_LOCAL = ("--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",)
_PROCESSES = "--direct_running_mode=multi_processing"
_TABLES = (".tsv", ".tsv.gz")


def _translate(options: argparse.Namespace) -> None:
    """Translates each line of files."""
    _computed(options, _files(options.files, ()), "Translate")


def _score(options: argparse.Namespace) -> None:
    """Scores the pairs of texts, as PREFIX with --source and --target, or tables."""
    _computed(options, _files(options.files, _languages(options)), "Score")


def _computed(options: argparse.Namespace, files: list, name: str) -> None:
    from tf_transformer import bulk
    from tf_transformer.loading.load import find

    find(Path(options.model))  # refuses what is no model
    read = bulk.ReadLines(files, 1 if name == "Translate" else 2)
    transform = getattr(bulk, name)(options.model, options.batch)

    def apply(pipeline: Any) -> dict[str, Any]:
        lines = pipeline | read
        found = lines["main"] | transform
        return {
            "translated" if name == "Translate" else "scored": (found["main"], _figures),
            "suspect": (found["suspect"], _beside),
            "failed": (found["failed"], _beside),
            "unreadable": (lines["failed"], _beside),
        }

    _run(options, apply)


def _clean(options: argparse.Namespace) -> None:
    """Keeps the pairs of texts that `doctor --clean` keeps, each once, in tables."""
    from tf_transformer import bulk

    files = _files(options.files, _languages(options))
    data = DataConfig(
        source=options.source, target=options.target, max_length=options.max_length
    )
    first = [paths[0] for paths in files]
    transform = bulk.Clean(first, data, options.held, options.numbers)

    def apply(pipeline: Any) -> dict[str, Any]:
        lines = pipeline | bulk.ReadLines(files, 2)
        found = lines["main"] | transform
        return {
            "kept": (found["main"], _beside),
            "rejected": (found["rejected"], _beside),
            "unreadable": (lines["failed"], _beside),
        }

    _run(options, apply)


def _run(options: argparse.Namespace, apply: Any) -> None:
    """Runs a pipeline whose collections are written as tables; prints what it counted."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    words = options.beam
    if not any(word.startswith("--runner") for word in words):
        words = [*_LOCAL, _PROCESSES, *words]
    threading.excepthook = _worker_lost
    with _output(options.output) as folder:
        pipeline = beam.Pipeline(options=PipelineOptions(words))
        for name, (rows, text) in apply(pipeline).items():
            path = f"{folder}/{name}"
            write = beam.io.WriteToText(path, file_name_suffix=".tsv")
            rows | f"rows {name}" >> beam.Map(text) | f"write {name}" >> write
        try:
            result = pipeline.run()
            result.wait_until_finish()
        except Exception as error:
            if options.traceback:
                raise
            *_, last = [type(error).__name__, *str(error).strip().splitlines()]
            reason = last.removeprefix(f"{UserError.__module__}.{UserError.__name__}: ")
            raise UserError(f"The pipeline has failed: {one_line(reason)}") from error
        found = result.metrics().query()["counters"]
        counts: dict[str, int] = {}
        for each in found:
            if each.key.metric.namespace == "tf_transformer":
                name = each.key.metric.name
                counts[name] = counts.get(name, 0) + (each.committed or 0)
        with beam.io.filesystems.FileSystems.create(f"{folder}/counts.json") as file:
            file.write(json.dumps(counts, indent=2, sort_keys=True).encode())
    print(f"{options.output}: " + ", ".join(f"{k} {v:,}" for k, v in sorted(counts.items())))
    if counts.get("failed", 0) >= counts.get("lines", 0) > 0:
        raise UserError(f"All lines failed: their reasons stand in {options.output}.")


@contextmanager
def _output(folder: str) -> Iterator[str]:
    """Yields where to write: elsewhere than on local disks, the folder itself."""
    from apache_beam.io.filesystems import FileSystems

    if "://" not in folder:
        with new_folder(Path(folder)) as temporary:
            yield str(temporary)
        return
    if any(match.metadata_list for match in FileSystems.match([f"{folder}/*"])):
        raise UserError(f"{folder} must be empty or new: give another --output.")
    yield folder


def _worker_lost(event: threading.ExceptHookArgs) -> None:
    """Ends the command: Beam's local runner would wait for a worker that was killed."""
    print_error(one_line(f"a worker was lost, and the pipeline with it: {event.exc_value}"))
    os._exit(1)


def _files(names: Sequence[str], languages: Sequence[str]) -> list[tuple[str, ...]]:
    """Finds the files of names with wildcards, sorted: with languages, PREFIX or a table."""
    from apache_beam.io.filesystems import FileSystems

    found: set[tuple[str, ...]] = set()
    for name in names:
        if languages and not name.endswith(_TABLES):
            source, target = languages
            patterns = [f"{name}.{source}", f"{name}.{source}.gz"]
        else:
            source, target, patterns = "", "", [name]
        paths = [each.path for one in FileSystems.match(patterns) for each in one.metadata_list]
        if not paths:
            raise UserError(f"There is no {' and no '.join(patterns)}.")
        for path in paths:
            prefix, _, end = path.rpartition(f".{source}") if source else (path, "", "")
            found.add((path, f"{prefix}.{target}{end}") if source else (path,))
    return sorted(found)


def _languages(options: argparse.Namespace) -> tuple[str, str]:
    if not all(name.endswith(_TABLES) for name in options.files) and not (
        options.source and options.target
    ):
        raise UserError("Texts as PREFIX need --source and --target, tables end in .tsv.")
    return options.source, options.target


def _figures(element: tuple) -> str:
    key, (text, score, log_prob, _) = element
    return _row(*key, f"{score:.4f}", f"{log_prob:.4f}", text)


def _beside(element: tuple) -> str:
    key, *rest = element
    flat = [part for each in rest for part in (each if isinstance(each, tuple) else (each,))]
    return _row(*key, *flat)


def _row(*cells: Any) -> str:
    """Formats cells between TABs: those inside of all but the last one become spaces."""
    texts = [
        cell.decode("utf-8", "replace").rstrip("\r\n") if isinstance(cell, bytes) else str(cell)
        for cell in cells
    ]
    return "\t".join([*(text.replace("\t", " ") for text in texts[:-1]), texts[-1]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tf_transformer.bulk", description=__doc__, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run in (_translate, _score, _clean):
        name = run.__name__.strip("_")
        one = commands.add_parser(
            name, help=run.__doc__, description=run.__doc__, allow_abbrev=False
        )
        add = one.add_argument
        one.set_defaults(command=run, stdout_is_data=False)
        if run is not _clean:
            add("model", metavar="MODEL", help="an export, where all workers find it")
            add("--batch", type=int, default=256, metavar="N", help="lines for it at once")
        add("files", nargs="+", metavar="FILE", help="text; wildcards in quotes")
        add("--output", required=True, metavar="DIR", help="new folder for the tables")
        if run is not _translate:
            add("--source", default="", metavar="LANGUAGE", help="ending of sources' files")
            add("--target", default="", metavar="LANGUAGE", help="ending of targets' files")
        if run is _clean:
            longest = DataConfig().max_length
            add("--max-length", type=int, default=longest, metavar="N", help="words of a line")
            add("--held", nargs="+", default=[], metavar="TEXT", help="dev and test texts")
            add("--numbers", action="store_true", help="reject pairs with other numbers")
        add("--traceback", action="store_true", help="show where an error arose")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    options, others = _parser().parse_known_args(arguments)
    options.beam = others
    if not options.traceback:
        _hold_back()
    return run_command(options)


def _hold_back() -> None:
    """Discards what workers and libraries print to stderr, where Python's own lines go on.

    Of Beam's log, what it says about its options is shown.
    """
    sys.stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("apache_beam.options").addHandler(logging.StreamHandler(sys.stderr))


if __name__ == "__main__":
    run_process(main)
