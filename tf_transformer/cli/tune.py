"""The command `tune`."""

import argparse

from tf_transformer.base.errors import UserError
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import RUN_HELP, add_model_options
from tf_transformer.cli.parser import value_of
from tf_transformer.data.text import read_some_pairs
from tf_transformer.decoding.streams import use_threads
from tf_transformer.loading.load import of_run
from tf_transformer.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tune`."""
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    add("--source", metavar="FILE", help="dev text to translate (default: the run's)")
    add("--reference", metavar="FILE", help="its translations")
    alphas = "exponents of the length penalty to try (default: 0, 0.1, ..., 2)"
    alpha = value_of("decoding.alpha")
    add("--alpha", nargs="+", action="extend", type=alpha, metavar="A", help=alphas)
    beam = value_of("decoding.beam_size")
    beams = "beam sizes to try in addition to the run's (default: none)"
    add("--beam", nargs="+", action="extend", type=beam, default=[], metavar="W", help=beams)
    which = "weights to try: best, average or last (default: best, and average if it exists)"
    known = ("best", "average", "last")
    add("--checkpoint", nargs="+", action="extend", choices=known, metavar="WHICH", help=which)
    add_model_options(parser, "--tag")


def run(options: argparse.Namespace) -> None:
    """Chooses alpha, beam size and weights by BLEU on dev text, and writes them into the run.

    They become the defaults of translate, evaluate, export and so on. The run keeps its
    settings unless others are significantly better. See docs/guides/decoding.md.
    """
    if bool(options.source) != bool(options.reference):
        raise UserError("--source and --reference go together. Received: only one of them.")
    if options.tag and not options.source:
        raise UserError("--tag is for --source: the dev text of a run has its tags already.")
    run = Run.open(options.run)
    for name in (run.config.decoding.checkpoint, *(options.checkpoint or ())):
        of_run(run).require_files(name, options.tag)
    if options.source:
        read_some_pairs(options.source, options.reference)  # refuses what cannot be paired
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.api.tuning import ALPHAS, tune

    tuning = tune(
        run,
        text=(options.source, options.reference) if options.source else None,
        tag=options.tag,
        alphas=options.alpha or ALPHAS,
        beam_sizes=options.beam,
        checkpoints=options.checkpoint,
    )
    print_report(tuning.table())
