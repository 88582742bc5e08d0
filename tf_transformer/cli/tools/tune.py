"""`tf-transformer tune RUN`: chooses length penalty, beam size and weights on dev text."""

import argparse
import logging
from pathlib import Path

import numpy as np

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import RUN_HELP, add_shared_options, open_run, picture
from tf_transformer.cli.parser import value_of
from tf_transformer.cli.terminal import print_report
from tf_transformer.data.corpus import read_pairs
from tf_transformer.decoding.threads import use_threads
from tf_transformer.errors import UserError
from tf_transformer.files import locked
from tf_transformer.progress import ProgressBars
from tf_transformer.run import Run
from tf_transformer.run.weight_files import read_arrays
from tf_transformer.tables import Table

logger = logging.getLogger(__name__)

ALPHAS = tuple(tenths / 10 for tenths in range(21))
CHECKPOINTS = ("best", "average")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    add("--source", metavar="FILE", help="dev text to translate (default: the run's)")
    add("--reference", metavar="FILE", help="its translations")
    add_shared_options(parser, "--tag")
    alphas = "exponents of the length penalty to try (default: 0, 0.1, ..., 2)"
    alpha = value_of("decoding.alpha")
    add("--alpha", nargs="+", action="extend", type=alpha, metavar="A", help=alphas)
    beam = value_of("decoding.beam_size")
    beams = "beam sizes to try in addition to the run's (default: none)"
    add("--beam", nargs="+", action="extend", type=beam, default=[], metavar="W", help=beams)
    which = "weights to try: best, average or last (default: best, and average if it exists)"
    known = (*CHECKPOINTS, "last")
    add("--checkpoint", nargs="+", action="extend", choices=known, metavar="WHICH", help=which)
    add("--output", metavar="FILE", help="draw BLEU against alpha, as .png, .svg or .pdf")


def command(options: argparse.Namespace) -> None:
    """Chooses alpha, beam size and weights by BLEU on dev text, and writes them into the run.

    They become the defaults of translate, evaluate, export and so on. The run keeps its
    settings unless others are significantly better. See docs/guides/decoding.md.
    """
    output = picture(options.output) if options.output else None
    if bool(options.source) != bool(options.reference):
        raise UserError("--source and --reference go together. Received: only one of them.")
    if options.tag and not options.source:
        raise UserError("--tag is for --source: the dev text of a run has its tags already.")
    run = open_run(options.run)
    checkpoints = _checkpoints(options, run)
    if lookahead := run.config.decoding.lookahead:
        text = "decoding.lookahead is %d, but tuning searches exactly, as with 0"
        logger.warning(text, lookahead)
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.tasks.translation.tuning import Tuner, draw_tuning, lines

    with locked(run.path):
        name, sources, references = _dev_text(options, run)
        tag = options.tag if options.source else ""  # the run's own text has its tags
        with ProgressBars(len(sources)) as bars:
            tuner = Tuner(run, sources, references, bars, tag)
            tuning = tuner.tune(checkpoints, options.beam, options.alpha or ALPHAS)
            errors = tuner.search_errors(tuning)
        print_report(_table(tuning.candidates))
        for line in lines(tuning, errors):
            logger.info("%s", line)
        if output:
            draw_tuning(tuning, output)
            logger.info("%s", output)
        if tuning.chosen is tuning.present:
            logger.info("%s keeps its settings", run.path)
        run.change_settings(tuning.chosen.choice.settings(), f"tuned on {name}")


def _checkpoints(options: argparse.Namespace, run: Run) -> list[str]:
    """Returns the checkpoints to try; refuses missing ones before anything slow."""
    known = {"best": run.checkpoints.best, "average": run.checkpoints.average}
    existing = [name for name in CHECKPOINTS if known[name].exists()]
    if len(existing) == 2 and _same_weights(*(known[name] for name in existing)):
        existing.remove("average")  # training has chosen it as best
    checkpoints = options.checkpoint or existing
    for name in (run.config.decoding.checkpoint, *checkpoints):
        run.weights(name)
    return checkpoints


def _same_weights(*files: Path) -> bool:
    one, other = (read_arrays(file, prefix="model/") for file in files)
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def _dev_text(options: argparse.Namespace, run: Run) -> tuple[str, list[str], list[str]]:
    """Returns the name, sources and references of the dev text."""
    from tf_transformer.data.corpora import all_pairs, corpora
    from tf_transformer.tasks.translation.task import effective_data

    if not options.source and run.has_no_text:
        raise UserError(
            f"{run.path} has no record of its text, like every converted or pruned run: give "
            "--source and --reference. Received: neither."
        )
    if options.source:
        name = options.source
        pairs = list(read_pairs(Path(name), Path(options.reference)))
    else:
        data = effective_data(run)
        texts = corpora(data.valid, data)
        name = ", ".join(str(text.source) for text in texts)
        pairs = list(all_pairs(texts))
    if not pairs:
        raise UserError(f"{name} must have at least one sentence. Received: none.")
    sources, references = zip(*pairs, strict=True)
    return name, list(sources), list(references)


def _table(candidates) -> Table:
    """Tabulates BLEU and brevity penalty by alpha, a column per checkpoint and beam size."""
    from tf_transformer.tasks.translation.tuning import curves

    columns = curves(candidates)
    rows = [
        [f"{row[0].choice.alpha:g}"]
        + [f"{each.bleu.value:.2f} ({each.bleu.brevity_penalty:.3f})" for each in row]
        for row in zip(*columns.values(), strict=True)
    ]
    return Table(["alpha", *columns], rows)
