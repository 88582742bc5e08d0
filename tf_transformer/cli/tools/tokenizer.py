"""`tf-transformer tokenizer`: trains a SentencePiece model on text of both languages."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.parser import value_of
from tf_transformer.config import NORMALIZATIONS
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Trains one SentencePiece vocabulary for all the files given, for several runs to share "
    "(train.py ... --set data.tokenizer=FILE). train.py makes its own if it is given none."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="text, plain or .gz")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .model to write")
    parser.add_argument(
        "--vocab-size", type=value_of("model.vocab_size"), required=True, metavar="V"
    )
    parser.add_argument("--kind", choices=("bpe", "unigram"), default="bpe")
    parser.add_argument(
        "--normalization",
        choices=NORMALIZATIONS,
        default=NORMALIZATIONS[0],
        help="how text is rewritten before it is cut: identity (default) keeps every character "
        "and turns runs of blanks into one; nfc composes letters and marks; nfkc also replaces "
        "full-width forms, superscripts, ligatures and the ellipsis; nmt_nfkc also joiners, "
        "marks of direction and control characters",
    )
    parser.add_argument(
        "--character-coverage",
        type=value_of("data.character_coverage"),
        default=1.0,
        metavar="SHARE",
        help="of the characters in the text, counted as often as they occur, that have "
        "pieces; the others are spelled in bytes. From 0.98 to 1 (default); 0.9995 is usual "
        "for Chinese and Japanese",
    )


def command(options: argparse.Namespace) -> None:
    output = Path(options.output)
    if output.exists():
        raise UserError(f"{output} exists already. Remove it, or choose another --output.")
    from tf_transformer.cli.console import import_tensorflow_quietly

    import_tensorflow_quietly()

    from tf_transformer.data.tokenizer import train_tokenizer

    lines = (line for file in options.files for line in read_lines(Path(file)))
    train_tokenizer(
        lines,
        output,
        vocab_size=options.vocab_size,
        kind=options.kind,
        normalization=options.normalization,
        character_coverage=options.character_coverage,
    )
    logger.info("%s: %s pieces", output, f"{options.vocab_size:,}")
