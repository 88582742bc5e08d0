"""`tf-transformer heads RUN`: the importance of heads, and pruning of the least important."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.lines import read_some_pairs
from tf_transformer.cli.options import (
    add_translator_options,
    open_run,
    open_translator,
    require_writable,
)
from tf_transformer.cli.parser import int_from, integer
from tf_transformer.cli.terminal import print_report
from tf_transformer.errors import UserError
from tf_transformer.files import locked
from tf_transformer.plots.figure import new_figure
from tf_transformer.run import Run, holds_other_files
from tf_transformer.studies.heads import MEASUREMENTS

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add_translator_options(parser, "--tag")
    add("--source", metavar="FILE", required=True, help="sentences to measure on")
    add("--reference", metavar="FILE", required=True, help="their translations")
    add("--limit", type=int_from(1), metavar="N", help="measure on only the first N sentences")
    add("--no-bleu", action="store_true", help="measure only the loss, which is much faster")
    iterative = "measure the remaining heads again after each pruning"
    add("--iterative", action="store_true", help=iterative)
    add("--output", metavar="DIR", help="folder of the results (default: RUN/heads)")
    add("--write", metavar="RUN", help="write a new run, pruned to --keep heads")
    add("--keep", type=integer, metavar="N", help="number of heads of the pruned run")


def command(options: argparse.Namespace) -> None:
    """Measures loss and BLEU with one head masked at a time, then prunes heads.

    Prunes the least important heads first. Writes pictures and data. Run the same command again
    to resume.
    """
    run = open_run(options.run)
    output = Path(options.output or run.path / "heads")
    pairs = _check(options, run, output)
    translator = open_translator(options)

    from tf_transformer.studies.heads.measurements import HeadMasks
    from tf_transformer.studies.heads.study import (
        fitting_pairs,
        measure_heads,
        write_pruned_run,
    )

    pairs = fitting_pairs(pairs, translator.codec)
    checkpoint = run.weights(options.checkpoint)
    with locked(output):
        study = measure_heads(
            translator.engine,
            translator.decoding,
            pairs,
            output,
            checkpoint=checkpoint,
            tokenize=run.config.data.bleu_tokenizer,
            with_bleu=not options.no_bleu,
            iterative=options.iterative,
        )
    print_report(*study.tables())
    if options.write:
        pruned = study.order[: len(study.order) - options.keep]
        model = translator.model
        write_pruned_run(run, model, HeadMasks(model), pruned, Path(options.write))
        logger.info("%s: %d of %d heads pruned", options.write, len(pruned), len(study.order))


def _check(options: argparse.Namespace, run: Run, output: Path) -> list[tuple[str, str]]:
    """Refuses wrong options before anything slow; returns the pairs to measure on."""
    model = run.config.model
    number = (model.num_layers + 2 * model.num_decoder_layers) * model.num_heads
    if options.keep is not None and not 0 <= options.keep <= number:
        raise UserError(f"--keep must be from 0 to {number}. Received: {options.keep}.")
    if options.write:
        _check_write(Path(options.write), output)
    if not (output / MEASUREMENTS).exists() and holds_other_files(output):
        raise UserError(
            f"{output} exists but was not created by `tf-transformer heads`. Give --output a "
            "new folder."
        )
    new_figure(1, 1)  # fails early without matplotlib
    return read_some_pairs(options.source, options.reference)[: options.limit]


def _check_write(path: Path, output: Path) -> None:
    """Refuses a folder that could not become the pruned run at the end."""
    if path.exists():
        raise UserError(f"{path} exists already. Give --write a new folder.")
    if path.resolve() in (output.resolve(), *output.resolve().parents):
        raise UserError(
            f"--write must not be the folder of --output or contain it. Received: {path}."
        )
    require_writable("--write", path)
