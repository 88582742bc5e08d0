"""The command `tokenizer`."""

import argparse
import logging
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.cli.options import require_new
from tf_transformer.cli.parser import add_setting
from tf_transformer.config import SETTINGS
from tf_transformer.config.settings import require_words
from tf_transformer.data.text import read_lines

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tokenizer`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="text, plain or .gz")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .model to write")

    def add(option: str, name: str, end: str = "", **how: Any) -> None:
        dest = option.partition(" ")[0].strip("-").replace("-", "_")
        add_setting(parser, dest, SETTINGS[name], end, flag=option, **how)

    add("--vocab-size V", "model.vocab_size", required=True)
    add("--kind", "data.tokenizer_kind", " (default: bpe)", default="bpe")
    end = " (default: identity); see docs/guides/vocabulary.md"
    add("--normalization", "data.normalization", end, default="identity")
    add("--character-coverage SHARE", "data.character_coverage", " (default: 1)", default=1.0)
    add("--symbols WORD", "data.symbols", nargs="+", action="extend", default=[])


def run(options: argparse.Namespace) -> None:
    """Trains a SentencePiece vocabulary on all files, for several runs to share.

    Use it with `train --set data.tokenizer=FILE`; without it, every run trains its own.
    """
    from tf_transformer.data.vocabulary import (
        VocabularyTooLarge,
        symbol_pieces,
        train_tokenizer,
    )

    output = Path(options.output)
    require_new("--output", output)
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
        message = str(error).replace("`vocab_size`", "--vocab-size")
        raise UserError(message.replace("--set model.vocab_size=", "--vocab-size ")) from None
    logger.info("%s: %s pieces", output, f"{options.vocab_size:,}")
