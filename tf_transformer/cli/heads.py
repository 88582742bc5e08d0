"""The command `heads`."""

import argparse
import logging
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.cli.console import print_report
from tf_transformer.cli.options import (
    add_run_options,
    add_search_options,
    open_model,
    open_run,
    require_between,
    require_new,
)
from tf_transformer.cli.parser import int_from, integer
from tf_transformer.data.text import read_some_pairs
from tf_transformer.plots import new_figure
from tf_transformer.run import Run

logger = logging.getLogger(__name__)


def add_heads(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `heads`."""
    add = parser.add_argument
    add_run_options(parser, "--tag")
    add("--source", metavar="FILE", required=True, help="text to translate")
    add("--reference", metavar="FILE", required=True, help="its translations")
    add("--limit", type=int_from(1), metavar="N", help="measure on only the first N sentences")
    add("--no-bleu", action="store_true", help="measure only the loss, which is much faster")
    iterative = "measure the remaining heads again after each pruning"
    add("--iterative", action="store_true", help=iterative)
    add("--output", metavar="DIR", help="folder of the results (default: RUN/heads)")
    add("--write", metavar="RUN", help="write a new run, pruned to --keep heads")
    add("--keep", type=integer, metavar="N", help="number of heads of the pruned run")
    add_search_options(parser)


def run_heads(options: argparse.Namespace) -> None:
    """Measures loss and BLEU with one head or sublayer masked at a time, then prunes heads.

    Prunes the least important heads first. Writes pictures and data. Run the same command again
    to resume.
    """
    run = open_run(options.run)
    output = Path(options.output or run.path / "heads")
    _check_heads(options, run, output)
    pairs = read_some_pairs(options.source, options.reference)[: options.limit]
    translator = open_model(options)

    from tf_transformer.paper.heads import fitting_pairs, measure_heads, write_pruned_run

    study = measure_heads(
        translator.engine,
        translator.decoding,
        fitting_pairs(pairs, translator.codec),
        output,
        checkpoint=run.weights(options.checkpoint),
        tokenize=run.config.data.bleu_tokenizer,
        with_bleu=not options.no_bleu,
        iterative=options.iterative,
    )
    print_report(study.sublayer_table(), study.table())
    if options.write:
        number = len(study.pruning_order)
        pruned = study.pruning_order[: number - options.keep]
        write_pruned_run(run, translator.model, pruned, Path(options.write))
        logger.info("%s: %d of %d heads pruned", options.write, len(pruned), number)


def _check_heads(options: argparse.Namespace, run: Run, output: Path) -> None:
    """Refuses wrong options before anything slow."""
    model = run.config.model
    number = (model.num_layers + 2 * model.num_decoder_layers) * model.num_heads
    if options.keep is not None:
        require_between("--keep", options.keep, 0, number)
    if options.write:
        path = Path(options.write)
        require_new("--write", path)
        if path.resolve() in (output.resolve(), *output.resolve().parents):
            raise UserError(
                f"--write must not be the folder of --output or contain it. Received: {path}."
            )
    new_figure(1, 1)  # fails early without matplotlib
