"""The command `tokenizer`."""

import argparse
import logging
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.cli.options import require_writable
from tf_transformer.cli.parser import value_of
from tf_transformer.config import NORMALIZATIONS
from tf_transformer.config.settings import require_words
from tf_transformer.data.text import read_lines
from tf_transformer.data.vocabulary import VocabularyTooLarge, symbol_pieces, train_tokenizer

logger = logging.getLogger(__name__)


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
