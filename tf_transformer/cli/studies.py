"""Commands that measure models against the paper: ablate, heads, lengths."""

import argparse
import logging
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import MARKDOWN
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import (
    add_model_options,
    add_run_options,
    add_search_options,
    decoding_config,
    open_model,
    open_run,
    picture,
    read_some_pairs,
    require_writable,
)
from tf_transformer.cli.parser import int_from, integer, value_of
from tf_transformer.cli.training_options import (
    add_training_options,
    given_settings,
    options_of_rows,
    seconds_of,
)
from tf_transformer.decoding.streams import use_threads
from tf_transformer.paper.ablation import (
    ROWS,
    parameters_table,
    plan_rows,
    select_rows,
    train_rows,
    write_report,
)
from tf_transformer.plots import new_figure, save
from tf_transformer.run import Run
from tf_transformer.training.sessions import DONE, FAILED, STOPPED

logger = logging.getLogger(__name__)


def add_ablate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `ablate`."""
    add = parser.add_argument
    rows = f"rows to train: {', '.join(ROWS)}, or a letter for all of its rows (default: all)"
    add("--rows", nargs="+", action="extend", default=[], metavar="ROW", help=rows)
    scale = "divisor of widths, steps and warm-up (default: 1, as in the paper)"
    add("--scale", type=int_from(1, 512), default=1, metavar="N", help=scale)
    steps = "steps of base (default: 100,000 / scale); big, warm-up and evaluations follow"
    add("--steps", type=value_of("training.steps"), metavar="N", help=steps)
    seed = value_of("training.seed")
    seeds = "seeds with which to train each row (default: 1)"
    add("--seeds", type=seed, nargs="+", action="extend", metavar="SEED", help=seeds)
    add("--output", metavar="DIR", help="folder of the runs (default: runs/ablate-N)")
    parameters = "print the rows' parameters beside the paper's; needs no data"
    add("--params-only", action="store_true", help=parameters)
    add("--table", action="store_true", help="print the results so far")
    add_training_options(parser)


def run_ablate(options: argparse.Namespace) -> int:
    """Trains rows of the paper's Table 3, scaled down, and prints them beside the paper's.

    Run the same command again to resume; finished rows are not trained again.
    """
    output = Path(options.output or f"runs/ablate-{options.scale}")
    if options.table:
        print_report(*write_report(output), style=MARKDOWN)
        return DONE
    rows = select_rows(options.rows)
    configs = plan_rows(
        rows, options.scale, options.steps, given_settings(options), options.set
    )
    if options.params_only:
        print_report(parameters_table(configs), style=MARKDOWN)
        return DONE
    seconds = seconds_of(options.stop_after, "ablate")
    import_tensorflow_quietly()
    status = train_rows(
        configs,
        rows,
        output,
        seeds=options.seeds or [1],
        seconds=seconds,
        more=options_of_rows(options),
    )
    if status not in (DONE, FAILED):
        logger.info("run the same command again to resume")
        return DONE if status == STOPPED else status
    print_report(*write_report(output), style=MARKDOWN)
    return status


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
        pruned = study.order[: len(study.order) - options.keep]
        write_pruned_run(run, translator.model, pruned, Path(options.write))
        logger.info("%s: %d of %d heads pruned", options.write, len(pruned), len(study.order))


def _check_heads(options: argparse.Namespace, run: Run, output: Path) -> None:
    """Refuses wrong options before anything slow."""
    model = run.config.model
    number = (model.num_layers + 2 * model.num_decoder_layers) * model.num_heads
    if options.keep is not None and not 0 <= options.keep <= number:
        raise UserError(f"--keep must be from 0 to {number}. Received: {options.keep}.")
    if options.write:
        path = Path(options.write)
        if path.exists():
            raise UserError(f"{path} exists already. Give --write a new folder.")
        if path.resolve() in (output.resolve(), *output.resolve().parents):
            raise UserError(
                f"--write must not be the folder of --output or contain it. Received: {path}."
            )
        require_writable("--write", path)
    new_figure(1, 1)  # fails early without matplotlib


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `lengths`."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run directories")
    add("--source", metavar="FILE", required=True, help="text to translate")
    add("--reference", metavar="FILE", required=True, help="its translations")
    width = "width of a length bucket, in pieces (default: 8)"
    add("--width", type=int_from(1), default=8, metavar="N", help=width)
    least = "minimum sentences per bucket; smaller ones join the next (default: 20)"
    add("--least", type=int_from(1), default=20, metavar="N", help=least)
    output = "picture to write, .png, .svg or .pdf (default: lengths.png)"
    add("--output", default="lengths.png", metavar="FILE", help=output)
    add_model_options(parser, "--checkpoint", "--tag")
    add_search_options(parser)


def run_lengths(options: argparse.Namespace) -> None:
    """Translates a test set with one or more runs and draws BLEU against source length.

    Lengths beyond those seen in training are marked.
    """
    path = picture(options.output)
    runs = [open_run(name) for name in options.runs]
    for run in runs:
        run.weights(options.checkpoint)
    decodings = [decoding_config(options, run) for run in runs]
    pairs = read_some_pairs(options.source, options.reference)
    for number, (_, text) in enumerate(pairs, start=1):
        if not text.strip():
            raise UserError(
                f"{options.reference}:{number}: a reference must have a word. Received: a "
                "blank line."
            )
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.paper.lengths import lengths_figure, lengths_table, measure_lengths

    groups, curves = measure_lengths(
        runs,
        [source for source, _ in pairs],
        [reference for _, reference in pairs],
        decodings=decodings,
        checkpoint=options.checkpoint,
        tag=options.tag,
        width=options.width,
        least=options.least,
    )
    save(lengths_figure(groups, curves), path)
    logger.info("%s", path)
    lines = [
        f"{curve.label}: trained {curve.reach}, cuts at {curve.limit:,} pieces"
        for curve in curves
    ]
    print_report("\n".join(lines), lengths_table(groups, curves))
