"""`tf-transformer shortlist RUN`: learns which tokens a sentence may be translated with."""

import argparse
import contextlib
import logging
from contextlib import AbstractContextManager

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import open_run
from tf_transformer.cli.parser import int_from
from tf_transformer.cli.progress import Progress
from tf_transformer.config import SHORTLIST_FREQUENT, SHORTLIST_PAIRS, SHORTLIST_TRANSLATIONS

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Learns from parallel text which tokens translate which (IBM Model 1), and writes "
    "RUN/shortlist.npz for the --shortlist of translate, evaluate, export and serve. See "
    "docs/decoding.md."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run directory of train.py")
    parser.add_argument(
        "--train",
        nargs="+",
        metavar="PREFIX",
        help="text to learn from, PREFIX.LANG or PREFIX.LANG.gz (default: the run's own)",
    )
    parser.add_argument(
        "--pairs",
        type=int_from(2),
        default=SHORTLIST_PAIRS,
        metavar="N",
        help=f"learn from at most N pairs, evenly spaced (default: {SHORTLIST_PAIRS:,})",
    )
    parser.add_argument(
        "--translations",
        type=int_from(1),
        default=SHORTLIST_TRANSLATIONS,
        metavar="K",
        help=f"the K most probable of each source token (default: {SHORTLIST_TRANSLATIONS})",
    )
    parser.add_argument(
        "--frequent",
        type=int_from(0),
        default=SHORTLIST_FREQUENT,
        metavar="F",
        help="the F most frequent target tokens, for every sentence "
        f"(default: {SHORTLIST_FREQUENT})",
    )


def command(options: argparse.Namespace) -> None:
    run = open_run(options.run)
    import_tensorflow_quietly()

    from tf_transformer.tasks.translation.shortlist import coverage, learn

    vocab_size = run.config.model.vocab_size
    with Progress() as progress, _pairs(options, run, progress) as (train, held_out):
        logger.info(
            "learning from %s pairs, %s links",
            f"{len(train.rows):,}",
            f"{train.num_links:,}",
        )
        sizes = (options.translations, options.frequent)
        shortlist = learn(train, vocab_size, *sizes, progress)
        found = coverage(shortlist, held_out)
    shortlist.write(run.shortlist)
    run.checksums.keep(run.shortlist)
    logger.info("%s", run.shortlist)
    logger.info(
        "%s: %.0f of %s tokens for a sentence in the mean",
        "held-out pairs" if options.train else "dev set",
        found.mean_candidates,
        f"{vocab_size:,}",
    )
    logger.info("covered: %.2f%% of %s target tokens", 100 * found.share, f"{found.tokens:,}")


def _pairs(options: argparse.Namespace, run, progress: Progress) -> AbstractContextManager:
    """What to learn from, and what to measure on."""
    from tf_transformer.tasks.translation.shortlist import own_pairs, pairs_of_files

    if options.train:
        return pairs_of_files(run, options.train, options.pairs, progress)
    return contextlib.nullcontext(own_pairs(run, options.pairs))
