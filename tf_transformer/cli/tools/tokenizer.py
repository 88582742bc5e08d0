"""`tf-transformer tokenizer`: trains a SentencePiece model on text of both languages."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.options import require_writable
from tf_transformer.cli.parser import value_of
from tf_transformer.config import NORMALIZATIONS
from tf_transformer.config.data import require_words
from tf_transformer.data.corpus import read_lines
from tf_transformer.data.tags import symbol_pieces
from tf_transformer.data.tokenizer_training import VocabularyTooLarge, train_tokenizer
from tf_transformer.errors import UserError

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="text, plain or .gz")
    add("--output", required=True, metavar="FILE", help="the .model to write")
    size = value_of("model.vocab_size")
    add("--vocab-size", type=size, required=True, metavar="V", help="number of pieces")
    add("--kind", choices=("bpe", "unigram"), default="bpe", help="algorithm (default: bpe)")
    add(
        "--normalization",
        choices=NORMALIZATIONS,
        default=NORMALIZATIONS[0],
        help="normalization of text before segmentation: identity (default) keeps every "
        "character but collapses runs of spaces; nfkc composes letters and marks, and replaces "
        "full-width forms, superscripts, ligatures and the ellipsis; nmt_nfkc also joiners, "
        "direction marks and control characters",
    )
    add(
        "--character-coverage",
        type=value_of("data.character_coverage"),
        default=1.0,
        metavar="SHARE",
        help="share of the characters in the text that pieces cover, from 0.98 to 1 (default); "
        "the rarest are encoded as bytes. 0.9995 is usual for Chinese and Japanese",
    )
    add(
        "--symbols",
        nargs="+",
        action="extend",
        default=[],
        metavar="WORD",
        help="words that are never split, such as the tags '<2de>' '<2fr>'",
    )


def command(options: argparse.Namespace) -> None:
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
