"""Commands for training, before and after: train, doctor, tokenizer, curves, card, average."""

import argparse
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.output import MARKDOWN
from tf_transformer.cli.console import import_tensorflow_quietly, print_line, print_report
from tf_transformer.cli.options import RUN_HELP, open_run, picture, require_writable
from tf_transformer.cli.parser import float_from, integer, value_of
from tf_transformer.cli.process import must_end
from tf_transformer.cli.training_options import (
    add_run_settings,
    config_of,
    options_of_rows,
    seconds_of,
    sets,
)
from tf_transformer.config import NORMALIZATIONS, Config
from tf_transformer.config.settings import require_words
from tf_transformer.data.text import read_lines
from tf_transformer.data.vocabulary import VocabularyTooLarge, symbol_pieces, train_tokenizer
from tf_transformer.plots import LearningCurve, draw_curves, short_names
from tf_transformer.reports.cost import SUSTAINED_TFLOPS
from tf_transformer.reports.run_card import write_run_card
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import average_checkpoints
from tf_transformer.run.records import comparable, score_of
from tf_transformer.tasks.registry import check_training, task_named
from tf_transformer.training.sessions import Budget, Interrupted

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.training.trainer import Result

logger = logging.getLogger(__name__)

_BLOCKS = "▁▂▃▄▅▆▇█"


def add_train(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `train`."""
    add_run_settings(parser)
    parser.add_argument(
        "--seeds",
        type=_seeds,
        metavar="N,N,...",
        help="train a run with each seed in OUTPUT/seed-N, and print the mean and standard "
        "deviation of their scores",
    )


def run_train(options: argparse.Namespace) -> int:
    """Trains a Transformer, by default on the built-in English-German corpus.

    With --train it learns from parallel text or, with --task, from trees in Penn brackets or
    from lines of a label, a TAB and a sentence. Run the same command again to resume.
    """
    config = config_of(options)
    output = Path(options.output or f"runs/{config.preset or 'tiny'}")
    if options.seeds:
        return _train_seeds(options, config, output)
    budget = Budget.parse(options.stop_after) if options.stop_after else None
    import_tensorflow_quietly()

    from tf_transformer.api.training_session import train_run
    from tf_transformer.training import devices

    if not devices.is_chief():
        logging.getLogger("tf_transformer").setLevel("ERROR")  # the chief logs for all workers
    try:
        run, result = train_run(
            config,
            output,
            budget,
            num_devices=options.devices,
            accept_new_data=options.accept_new_data,
        )
        if result:
            _print_next(run, result)
    except Interrupted as stop:
        logger.info("%s; run the same command again to resume", stop)
        must_end(stop.status)
        return stop.status
    must_end(0)
    return 0


def _seeds(text: str) -> list[int]:
    """Reads a list such as "1,2,3"; an argument `type`."""
    seeds = [value_of("training.seed")(seed) for seed in text.split(",")]
    if len(set(seeds)) < max(2, len(seeds)):
        raise argparse.ArgumentTypeError(
            f"must be different seeds such as 1,2,3. Received: {quoted(text)}."
        )
    return seeds


def _train_seeds(options: argparse.Namespace, config: Config, output: Path) -> int:
    from tf_transformer.api.experiments import train_seeds
    from tf_transformer.training.sessions import DONE, FAILED, STOPPED

    if sets(options, "training.seed"):
        raise UserError("Give --seeds or --set training.seed, not both.")
    seconds = seconds_of(options.stop_after, "--seeds")
    more = [word for setting in options.set for word in ("--set", setting)]
    more += options_of_rows(options) + ["--accept-new-data"] * options.accept_new_data
    status, table = train_seeds(config, output, options.seeds, seconds=seconds, more=more)
    if table:
        print_report(table, style=MARKDOWN)
    elif status != FAILED:
        logger.info("run the same command again to resume")
    return DONE if status == STOPPED else status


def _print_next(run: Run, result: "Result") -> None:
    """Logs the run's path and prints commands that use it, unwrapped for pasting."""
    logger.info("\nThe run is in %s. Next:", run.path)
    program, path = _program(), str(run.path)
    use = shlex.join([program, task_named(run.config.task).command, path])
    print(f"  echo {shlex.quote(result.example)} | {use}")
    print(f"  {shlex.join([program, 'export', path, '--output', f'exported/{run.path.name}'])}")


def _program() -> str:
    """Returns `tf-transformer` as the user can type it, even if it is not on the PATH."""
    name = "tf-transformer"
    here = Path(sys.executable).with_name(name)
    return name if shutil.which(name) == str(here) else os.path.relpath(here)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `doctor`."""
    add = parser.add_argument
    add("checked_run", metavar="RUN", nargs="?", help=RUN_HELP)
    text = "test text, in the form of --train; repeatable"
    add("--test", action="append", metavar="PREFIX", default=[], help=text)
    add_run_settings(parser)


def run_doctor(options: argparse.Namespace) -> None:
    """Checks text and vocabulary before training.

    Prints a line for each check, ok or warning; the exit status is 0 even with warnings. Takes
    a run directory or the options of `train`, of which --output, --devices, --stop-after
    and --accept-new-data have no effect here.
    """
    run = open_run(options.checked_run, None) if options.checked_run else None
    if run and run.has_no_text:
        raise UserError(f"doctor checks text. Received: {run.path}, which has none.")
    config = run.config if run else config_of(options)
    import_tensorflow_quietly()

    from tf_transformer.api.training_session import examine

    check_training(config)
    with tempfile.TemporaryDirectory() as folder:
        if run:
            _link(run.path, Path(folder))
        findings = examine(Run(Path(folder), config), options.test)
    for finding in findings:
        print_line(str(finding), 9 * " ", finding.warning)
    warnings = sum(finding.warning for finding in findings)
    print(f"{warnings} {'warning' if warnings == 1 else 'warnings'}")


def _link(run: Path, folder: Path) -> None:
    """Fills a folder with links to a run's files, so that nothing is written into the run."""
    shutil.copytree(
        run.resolve(),
        folder,
        copy_function=os.symlink,
        ignore=shutil.ignore_patterns("checkpoints", "logs"),
        dirs_exist_ok=True,
    )


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tokenizer`."""
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="text, plain or .gz")
    add("--output", required=True, metavar="FILE", help="the .model to write")
    size = value_of("model.vocab_size")
    add("--vocab-size", type=size, required=True, metavar="V", help="number of pieces")
    add("--kind", choices=("bpe", "unigram"), default="bpe", help="algorithm (default: bpe)")
    text = "how to rewrite text first (default: identity); see docs/guides/vocabulary.md"
    add("--normalization", choices=NORMALIZATIONS, default=NORMALIZATIONS[0], help=text)
    coverage = value_of("data.character_coverage")
    text = (
        "share of all characters that have pieces, from 0.98 to 1 (default); others are bytes"
    )
    add("--character-coverage", type=coverage, default=1.0, metavar="SHARE", help=text)
    text = "words that are never split, such as the tags '<2de>' '<2fr>'"
    add("--symbols", nargs="+", action="extend", default=[], metavar="WORD", help=text)


def run_tokenizer(options: argparse.Namespace) -> None:
    """Trains a SentencePiece vocabulary on all files, for several runs to share.

    Use it with `train --set data.tokenizer=FILE`; without it, every run trains its own.
    """
    output = Path(options.output)
    if output.exists():
        raise UserError(f"{output} exists already. Remove it, or choose another --output.")
    require_writable("--output", output)
    require_words("--symbols", options.symbols)
    lines = (line for file in options.files for line in read_lines(Path(file)))
    try:
        train_tokenizer(
            lines,
            output,
            vocab_size=options.vocab_size,
            kind=options.kind,
            normalization=options.normalization,
            character_coverage=options.character_coverage,
            symbols=symbol_pieces(options.symbols),
        )
    except VocabularyTooLarge as error:
        raise UserError(
            f"--vocab-size must be at most {error.largest}, the number of pieces that this "
            f"text has. Received: {options.vocab_size}."
        ) from None
    logger.info("%s: %s pieces", output, f"{options.vocab_size:,}")


def add_curves(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `curves`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    text = "draw the curves as .png, .svg or .pdf"
    parser.add_argument("--output", metavar="FILE", help=text)


def run_curves(options: argparse.Namespace) -> None:
    """Prints the dev scores of runs, one run per line.

    With --output, also draws perplexity and dev score against the step.
    """
    output = picture(options.output) if options.output else None
    runs = [open_run(path, None) for path in options.runs]
    for run in runs:
        if not run.history():
            raise UserError(f"The run {run.path} has no evaluations yet.")
    labels = short_names([run.path for run in runs])
    curves = [_curve(run, label) for run, label in zip(runs, labels, strict=True)]
    if output:
        draw_curves(curves, output)
    for curve in curves:
        highest, step = curve.best
        logger.info(
            f"{curve.label}  dev {curve.score_name}  {sparkline(curve.scores)}  "
            f"last {curve.scores[-1]:.4g}, highest {highest:.4g} at step {step:,}"
        )
    if output:
        logger.info("%s", output)


def _curve(run: Run, label: str) -> LearningCurve:
    task = task_named(run.config.task)
    score, old = f"valid_{task.main_score}", f"valid_old_{task.main_score}"
    records = run.history("perplexity", score)
    has_old = all(old in record for record in records)
    # The first of the highest on this dev set, like the trainer's choice.
    best = max(comparable(records), key=lambda record: record[score])
    return LearningCurve(
        label=label,
        steps=[record["step"] for record in records],
        train=[record["perplexity"] for record in records],
        dev=[record["valid_perplexity"] for record in records],
        scores=[record[score] for record in records],
        score_name=task.scores[task.main_score],
        best=(best[score], best["step"]),
        old_scores=[record[old] for record in records] if has_old else (),
    )


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draws numbers as a line of blocks, scaled from the smallest number to the largest.

    Args:
        values: at least one number; if they exceed `width`, a sample that includes the last.
        width: maximum number of blocks.
    """
    number = min(len(values), width)
    shown = [values[(index + 1) * len(values) // number - 1] for index in range(number)]
    low, high = min(shown), max(shown)
    if low == high:
        return _BLOCKS[0] * number
    return "".join(_BLOCKS[round(7 * (value - low) / (high - low))] for value in shown)


def add_card(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `card`."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    rate = parser.add_mutually_exclusive_group()
    text = "also estimate FLOPs as time x devices x this sustained rate of a device, in TFLOP/s"
    rate.add_argument("--sustained-tflops", type=float_from(1e-6, 1e6), metavar="X", help=text)
    text = "also estimate FLOPs at the rate that the paper assumes for this GPU"
    rate.add_argument("--gpu", choices=[*SUSTAINED_TFLOPS], help=text)


def run_card(options: argparse.Namespace) -> None:
    """Writes RUN/card.md and prints it, even during training.

    The card describes the model, its departures from the paper, data with hashes, dev scores
    with their signature, the cost beside the paper's Table 2, and versions.
    """
    run = open_run(options.run, None)
    rate = SUSTAINED_TFLOPS[options.gpu] if options.gpu else options.sustained_tflops
    print_report(*write_run_card(run, rate), style=MARKDOWN)


def add_average(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `average`."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    which = parser.add_mutually_exclusive_group()
    text = "average the newest N (default: 5, or all if fewer are kept)"
    which.add_argument("--last", type=integer, metavar="N", help=text)
    text = "average the N best by training.best_by among those kept"
    which.add_argument("--best", type=integer, metavar="N", help=text)


def run_average(options: argparse.Namespace) -> None:
    """Averages the weights of the last or the best checkpoints (paper 6.1).

    Writes average.npz, which other commands use with --checkpoint average.
    """
    run = open_run(options.run, None)
    checkpoints, by_score = run.checkpoints, options.best is not None
    kept = _best_first(run) if by_score else checkpoints.steps()[::-1]
    if not checkpoints.steps():
        raise UserError(
            f"{run.path} has no checkpoints to average. Expected the weights of steps, as "
            "training writes them."
        )
    number = options.best if by_score else options.last
    number = min(5, len(kept)) if number is None else number
    if not 1 <= number <= len(kept):
        scored = ", with a score on its latest dev set" if by_score else ""
        raise UserError(
            f"The number of checkpoints must be between 1 and {len(kept)}, as many as "
            f"{run.path} has kept (see training.keep_last){scored}. Received: {number}."
        )
    steps = sorted(kept[:number])
    files = [checkpoints.step_path(step) for step in steps]
    used = average_checkpoints(files, checkpoints.average)
    names = ", ".join(f"{step:,}" for step in steps if checkpoints.step_path(step) in used)
    logger.info("%s: mean of %d checkpoints, steps %s", checkpoints.average, len(used), names)


def _best_first(run: Run) -> list[int]:
    """Lists the steps with weights and a comparable score, best first."""
    kept = set(run.checkpoints.steps())
    records = [record for record in comparable(run.history()) if record["step"] in kept]
    by = run.config.training.best_by
    records.sort(key=lambda record: score_of(record, by), reverse=True)
    return [record["step"] for record in records]
