"""The command `compare`."""

import argparse
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import MARKDOWN
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import (
    add_model_options,
    require_equal_lengths,
    seen_before,
)
from tf_transformer.cli.parser import int_from
from tf_transformer.config.config import BLEU_TOKENIZERS
from tf_transformer.data.text import read_lines
from tf_transformer.decoding.streams import use_threads
from tf_transformer.export.versions import find_export
from tf_transformer.run import Run

_METRICS = ["bleu", "chrf"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `compare`, whose output is data."""
    add = parser.add_argument
    parser.set_defaults(stdout_is_data=True)
    systems = "run, export, output of `train --seeds` or file of translations; baseline first"
    add("systems", nargs="+", metavar="SYSTEM", help=systems)
    reference = "reference translations; repeatable"
    add("--reference", metavar="FILE", required=True, action="append", help=reference)
    text = "text to translate; not needed to compare files of translations"
    add("--source", metavar="FILE", help=text)
    metric = "score to compare; repeatable (default: bleu and chrf)"
    add("--metric", choices=_METRICS, action="append", help=metric)
    tokenize = "sacreBLEU's tokeniser (default: that of the first run or export; 13a for files)"
    add("--tokenize", choices=BLEU_TOKENIZERS, help=tokenize)
    text = "show at most N sentences that are better and N that are worse (default: 5)"
    add("--sentences", type=int_from(0, 1_000), default=5, metavar="N", help=text)
    add_model_options(parser, "--tag")


def run(options: argparse.Namespace) -> None:
    """Compares each system with the first on one test set, and prints a report in Markdown.

    The report has scores with confidence intervals, tests of their differences by paired
    bootstrap and approximate randomisation, the sentences that differ most, lengths and
    settings.
    """
    from tf_transformer.api.compare import compare_systems

    paths: list[str] = options.systems
    if len(set(paths)) < max(2, len(paths)):
        raise UserError(f"compare takes two different systems or more. Received: {paths}.")
    references = [_lines(path) for path in options.reference]
    sources = _lines(options.source) if options.source else []
    finished = {path: _lines(path) for path in paths if Path(path).is_file()}
    if options.source is None and len(finished) < len(paths):
        raise UserError("Runs and exports need --source.")
    texts = dict(zip(options.reference, references, strict=True)) | finished
    if options.source:
        texts[options.source] = sources
    for path, lines in texts.items():
        require_equal_lengths(options.reference[0], references[0], path, lines)
    runs = {path: _open(path) for path in paths if path not in finished}
    if runs:
        import_tensorflow_quietly()
        use_threads()
    report_parts = compare_systems(
        paths,
        finished,
        runs,
        sources,
        references,
        tag=options.tag,
        metrics=options.metric or _METRICS,
        tokenize=options.tokenize,
        most=options.sentences,
    )
    # All seeds of `train --seeds` have seen the same text, so the first represents them.
    if trained := [str(seeds[0].path) for seeds in runs.values() if seeds]:
        seen_before(trained, sources, references, options.tag)
    print_report(*report_parts, style=MARKDOWN)


def _lines(path: str) -> list[str]:
    return list(read_lines(Path(path)))


def _open(path: str) -> list[Run]:
    """Opens a run, or every run in a folder of seeds; returns none for an export."""
    from tf_transformer.reports.comparison import members

    is_run = (Path(path) / "config.json").exists()
    runs = [Run.open(str(folder)) for folder in ([path] if is_run else members(Path(path)))]
    for run in runs:
        run.weights()  # before anything is translated
    if not runs and not find_export(Path(path)):
        raise UserError(
            "A system must be a run, an export, a folder of `train --seeds` or a file of "
            f"translations. Received: {path}."
        )
    return runs
