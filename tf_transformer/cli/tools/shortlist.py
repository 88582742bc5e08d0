"""`tf-transformer shortlist RUN`: learns the likely target tokens of each source token."""

import argparse
import contextlib
import logging
from contextlib import AbstractContextManager

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import RUN_HELP, open_run
from tf_transformer.cli.parser import int_from
from tf_transformer.config import SHORTLIST_FREQUENT, SHORTLIST_PAIRS, SHORTLIST_TRANSLATIONS
from tf_transformer.progress import ProgressBars

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    text = "text to learn from, PREFIX or PREFIX:SOURCE-TARGET (default: the run's)"
    add("--train", nargs="+", action="extend", metavar="PREFIX", help=text)
    default = SHORTLIST_PAIRS
    text = f"learn from at most N pairs, evenly spaced (default: {default:,})"
    add("--pairs", type=int_from(2), default=default, metavar="N", help=text)
    default = SHORTLIST_TRANSLATIONS
    text = f"allow the K most probable translations of each source token (default: {default})"
    add("--translations", type=int_from(1), default=default, metavar="K", help=text)
    default = SHORTLIST_FREQUENT
    text = f"allow the F most frequent target tokens in every sentence (default: {default})"
    add("--frequent", type=int_from(0), default=default, metavar="F", help=text)


def command(options: argparse.Namespace) -> None:
    """Learns from parallel text which tokens translate which (IBM Model 1).

    Writes RUN/shortlist.npz, which other commands use with --shortlist. See
    docs/guides/decoding.md.
    """
    run = open_run(options.run)
    import_tensorflow_quietly()

    from tf_transformer.tasks.translation.shortlist import coverage, learn

    vocab_size = run.config.model.vocab_size
    with ProgressBars() as bars, _pairs(options, run, bars) as (train, held_out):
        pairs, links = f"{len(train.rows):,}", f"{train.num_links:,}"
        logger.info("learning from %s pairs, %s links", pairs, links)
        shortlist = learn(train, vocab_size, options.translations, options.frequent, bars)
        covered = coverage(shortlist, held_out)
    shortlist.write(run.shortlist)
    run.checksums.keep(run.shortlist)
    logger.info("%s", run.shortlist)
    logger.info(
        "%s: %.0f of %s tokens for a sentence on average",
        "held-out pairs" if options.train else "dev set",
        covered.mean_candidates,
        f"{vocab_size:,}",
    )
    tokens = f"{covered.tokens:,}"
    logger.info("covered: %.2f%% of %s target tokens", 100 * covered.share, tokens)


def _pairs(options: argparse.Namespace, run, bars: ProgressBars) -> AbstractContextManager:
    """Returns a context with the pairs to learn from and the pairs to measure on."""
    from tf_transformer.tasks.translation.shortlist import own_pairs, pairs_of_files

    if options.train:
        return pairs_of_files(run, options.train, options.pairs, bars)
    return contextlib.nullcontext(own_pairs(run, options.pairs))
