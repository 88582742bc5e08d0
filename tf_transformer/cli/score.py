"""The command `score`."""

import argparse
import sys

from tf_transformer.base.output import ProgressBars
from tf_transformer.cli.options import (
    MODEL_HELP,
    WORD_PROBS_HELP,
    add_run_options,
    add_search_options,
    open_model,
    seen_before,
    spaced_probs,
)
from tf_transformer.data.text import read_some_pairs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `score`, whose output is data."""
    parser.set_defaults(stdout_is_data=True)
    add_run_options(parser, "--ensemble", "--tag", help=MODEL_HELP)
    parser.add_argument("--source", metavar="FILE", required=True, help="source text")
    parser.add_argument("--target", metavar="FILE", required=True, help="its translations")
    parser.add_argument("--word-probs", action="store_true", help=WORD_PROBS_HELP)
    add_search_options(parser, ["alpha"])


def run(options: argparse.Namespace) -> None:
    """Prints log-probability, score and number of tokens of each pair, tab-separated.

    The log-probability is the natural logarithm of P(target | source). The score is normalised
    by length, as in beam search. The number of tokens includes EOS. Sources are cut at the
    run's decoding.max_source_length tokens, targets at decoding.max_extra_length more. A line
    on stderr counts the sentences that RUN has seen in its training or dev text.
    """
    pairs = read_some_pairs(options.source, options.target)
    translator = open_model(options)
    if options.word_probs and not translator.engine.gives_word_probs:
        translator.engine.refuse("give the probabilities of words")
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    with ProgressBars(len(pairs)) as bars:
        scores = translator.score(sources, targets, progress=lambda done: bars("scored", done))
    for score in scores:
        end = spaced_probs(score) if options.word_probs else ""
        sys.stdout.write(f"{score.log_prob:.5f}\t{score.score:.5f}\t{score.num_tokens}{end}\n")
    seen_before([options.run, *options.ensemble], sources, [targets], options.tag)
