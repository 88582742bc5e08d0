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
from contextlib import nullcontext
from pathlib import Path

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.base.files import new_folder
from tf_transformer.cli.console import print_error, run_command
from tf_transformer.cli.process import run_process
from tf_transformer.config import DataConfig
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
    from apache_beam.options.pipeline_options import PipelineOptions

    texts = _texts(options)
    if options.name == "clean":
        languages = {"source": options.source, "target": options.target}
        data = DataConfig(**languages, max_length=options.max_length)
        files = [text[0] for text in texts]
        transform = bulk.Clean(files, data, options.held, options.numbers)
    else:
        find(Path(options.model))  # refuses what is no model
        transform = getattr(bulk, options.name.title())(options.model, options.batch)
    is_local = any(word.startswith("--runner") for word in options.beam)
    words = [*([] if is_local else _LOCAL), *options.beam]
    output = options.output
    with nullcontext(output) if "://" in output else new_folder(Path(output)) as folder:
        pipeline = Pipeline(options=PipelineOptions(words))
        lines = pipeline | read_lines(texts, 1 if options.name == "translate" else 2)
        tables = {"unreadable": lines["failed"], **(lines["main"] | transform)}
        for name, rows in tables.items():
            path = f"{folder}/{_MAIN[options.name] if name == 'main' else name}"
            written = WriteToText(path, ".tsv")
            rows | f"format {name}" >> Map(_row) | f"write {name}" >> written
        try:
            result = pipeline.run()
            result.wait_until_finish()
        except Exception as error:
            *_, last = [type(error).__name__, *str(error).strip().splitlines()]
            reason = last.removeprefix(f"{UserError.__module__}.{UserError.__name__}: ")
            raise UserError(f"The pipeline has failed: {one_line(reason)}") from error
        found = [(it.key.metric, it.committed) for it in result.metrics().query()["counters"]]
        names = sorted({key.name for key, _ in found if key.namespace == "tf_transformer"})
        counts = {name: sum(n for key, n in found if key.name == name) for name in names}
        with FileSystems.create(f"{folder}/counts.json") as file:
            file.write(json.dumps(counts, indent=2).encode())
    print(f"{output}: {', '.join(f'{name} {number:,}' for name, number in counts.items())}")


def _texts(options: argparse.Namespace) -> list[tuple[str, ...]]:
    """Finds the files of each text, sorted: of PREFIX two, of a table or a text alone one."""
    from apache_beam.io.filesystems import FileSystems

    texts = set()
    for name in options.texts:
        prefixed = options.name != "translate" and not name.endswith((".tsv", ".tsv.gz"))
        patterns = [name]
        if prefixed:
            if not (options.source and options.target):
                raise UserError(f"--source and --target are needed for a PREFIX: {name}.")
            patterns = [f"{name}.{options.source}", f"{name}.{options.source}.gz"]
        found = [path for each in patterns for path in glob.glob(each)]
        if "://" in name:  # of relative names Beam matches none
            matches = FileSystems.match(patterns)
            found = [file.path for match in matches for file in match.metadata_list]
        if not found:
            raise UserError(f"There is no {' and no '.join(patterns)}.")
        for path in found:
            prefix, _, end = (
                path.rpartition(f".{options.source}") if prefixed else (path, "", "")
            )
            texts.add((path, f"{prefix}.{options.target}{end}") if prefixed else (path,))
    return sorted(texts)


def _row(element: tuple) -> str:
    """Formats a row of a table: TABs inside of all cells but the last become spaces."""
    key, cells = element
    *others, last = (f"{x:.4f}" if isinstance(x, float) else str(x) for x in (*key, *cells))
    return "\t".join([*(cell.replace("\t", " ") for cell in others), last])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tf_transformer.bulk", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="name", metavar="COMMAND")
    for name in _MAIN:
        add = commands.add_parser(name, allow_abbrev=False).add_argument
        if name != "clean":
            add("model", metavar="MODEL", help="an export, at a path that all workers see")
            add("--batch", type=int, default=256, help="lines for the model at once")
        add("texts", nargs="+", metavar="TEXT", help="files, PREFIX or tables, with wildcards")
        add("--output", required=True, metavar="DIR", help="new folder for the tables")
        add("--source", default="", metavar="LANGUAGE", help="language of sources")
        add("--target", default="", metavar="LANGUAGE", help="language of targets")
        if name == "clean":
            add("--max-length", type=int, default=DataConfig().max_length, help="words")
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
