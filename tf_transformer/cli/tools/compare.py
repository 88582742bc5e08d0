"""`tf-transformer compare A B...`: which system translates a test set better."""

import argparse
import logging
import sys
from pathlib import Path

from tf_transformer.api.compare import compare_systems
from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.lines import require_equal_lengths
from tf_transformer.cli.options import add_shared_options, open_run, picture
from tf_transformer.cli.parser import int_from
from tf_transformer.cli.scores import seen_before
from tf_transformer.cli.terminal import print_report
from tf_transformer.config.data import BLEU_TOKENIZERS
from tf_transformer.data.corpus import read_lines
from tf_transformer.decoding.threads import use_threads
from tf_transformer.errors import UserError
from tf_transformer.evaluation.metrics import SACREBLEU
from tf_transformer.export.versions import find_export
from tf_transformer.run import Run
from tf_transformer.studies.comparison.report import FORMATS, draw_comparison, parts, sections
from tf_transformer.studies.comparison.results import members
from tf_transformer.tables import joined

logger = logging.getLogger(__name__)

STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    systems = "run, export, output of `train --seeds` or file of translations; baseline first"
    add("systems", nargs="+", metavar="SYSTEM", help=systems)
    reference = "reference translations; repeatable"
    add("--reference", metavar="FILE", required=True, action="append", help=reference)
    text = "text to translate; not needed to compare files of translations"
    add("--source", metavar="FILE", help=text)
    add_shared_options(parser, "--tag")
    metric = "score to compare; repeatable (default: bleu and chrf)"
    add("--metric", choices=[*SACREBLEU], action="append", help=metric)
    tokenize = "sacreBLEU's tokeniser (default: that of the first run or export; 13a for files)"
    add("--tokenize", choices=BLEU_TOKENIZERS, help=tokenize)
    add(
        "--sentences",
        type=int_from(0, 1_000),
        default=5,
        metavar="N",
        help="show at most N sentences that are better and N that are worse (default: 5)",
    )
    text = "format of the report (default: text)"
    add("--format", choices=[*FORMATS], default="text", help=text)
    add("--output", metavar="FILE", help="draw the scores as .png, .svg or .pdf")


def command(options: argparse.Namespace) -> None:
    """Compares each system with the first on one test set, and prints a report.

    The report has scores with confidence intervals, tests of their differences by paired
    bootstrap and approximate randomisation, the sentences that differ most, lengths, settings
    and cost.
    """
    paths: list[str] = options.systems
    if len(set(paths)) < max(2, len(paths)):
        raise UserError(f"compare takes two different systems or more. Received: {paths}.")
    output = picture(options.output) if options.output else None
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
    compared = compare_systems(
        paths,
        finished,
        runs,
        sources,
        references,
        tag=options.tag,
        metrics=options.metric or [*SACREBLEU],
        tokenize=options.tokenize,
        most=options.sentences,
    )
    # All seeds of `train --seeds` have seen the same text, so the first represents them.
    if trained := [str(seeds[0].path) for seeds in runs.values() if seeds]:
        seen_before(trained, sources, references, options.tag)
    report, style = parts(sections(compared), options.format), FORMATS[options.format][0]
    if options.format == "text":
        print_report(*report)
    else:  # for pasting
        sys.stdout.write(joined(report, style))
    if output:
        draw_comparison(compared, output)
        logger.info("%s", output)


def _lines(path: str) -> list[str]:
    return list(read_lines(Path(path)))


def _open(path: str) -> list[Run]:
    """Opens a run, or every run in a folder of seeds; returns none for an export."""
    is_run = (Path(path) / "config.json").exists()
    runs = [open_run(str(folder)) for folder in ([path] if is_run else members(Path(path)))]
    for run in runs:
        run.weights()  # before anything is translated
    if not runs and not find_export(Path(path)):
        raise UserError(
            "A system must be a run, an export, a folder of `train --seeds` or a file of "
            f"translations. Received: {path}."
        )
    return runs
