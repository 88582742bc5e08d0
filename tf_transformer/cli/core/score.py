"""`tf-transformer score RUN`: log-probabilities of translations, by forced decoding."""

import argparse
import sys

from tf_transformer.cli.lines import read_some_pairs
from tf_transformer.cli.options import (
    add_decoding_options,
    add_run_options,
    add_shared_options,
    open_translator,
)
from tf_transformer.cli.scores import seen_before
from tf_transformer.progress import ProgressBars

STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_run_options(parser)
    add_shared_options(parser, "--ensemble", "--tag")
    parser.add_argument("--source", metavar="FILE", required=True, help="source text")
    parser.add_argument("--target", metavar="FILE", required=True, help="its translations")
    add_decoding_options(parser, ["alpha"])


def command(options: argparse.Namespace) -> None:
    """Prints log-probability, score and number of tokens of each pair, tab-separated.

    The log-probability is the natural logarithm of P(target | source). The score is normalised
    by length, as in beam search. The number of tokens includes EOS. Sources are cut at the
    run's decoding.max_source_length tokens, targets at decoding.max_extra_length more. A line
    on stderr counts the sentences that RUN has seen in its training or dev text.
    """
    pairs = read_some_pairs(options.source, options.target)
    translator = open_translator(options)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    with ProgressBars(len(pairs)) as bars:
        scores = translator.score(sources, targets, progress=lambda done: bars("scored", done))
    for score in scores:
        sys.stdout.write(f"{score.log_prob:.5f}\t{score.score:.5f}\t{score.num_tokens}\n")
    seen_before([options.run, *options.ensemble], sources, [targets], options.tag)
