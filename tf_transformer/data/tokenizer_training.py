"""Training of a SentencePiece vocabulary (paper 5.1); no TensorFlow."""

import io
import logging
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece

from tf_transformer.config import BOS_ID, EOS_ID, NORMALIZATIONS, PAD_ID, UNK_ID
from tf_transformer.data.normalization import rule_arguments, with_rule_name
from tf_transformer.errors import UserError
from tf_transformer.files import replacing
from tf_transformer.strings import refuse_string

SPECIAL_IDS = {"pad_id": PAD_ID, "unk_id": UNK_ID, "bos_id": BOS_ID, "eos_id": EOS_ID}
TRAINING_LINES = 2_000_000  # a random sample of this size suffices, and bounds the memory
# SentencePiece silently skips longer lines. Training on pairs would drop them too: a piece has
# at most 16 characters, so they have more tokens than `data.max_length` usually allows.
LINE_BYTES = 4_192
_RESERVED = "\N{LOWER FIVE EIGHTHS BLOCK}"  # it silently skips lines with this mark, too

logger = logging.getLogger(__name__)


def train_tokenizer(
    lines: Iterable[str],
    path: Path,
    *,
    vocab_size: int,
    kind: str,
    normalization: str = NORMALIZATIONS[0],
    character_coverage: float = 1.0,
    symbols: Iterable[str] = (),
) -> None:
    """Trains a SentencePiece model on `lines` and writes it to `path`, whole or not at all.

    Lines of more than `LINE_BYTES`, or with U+2585, which SentencePiece reserves, are left out,
    with a warning that counts them. Characters missing from `lines` are spelled in bytes, so
    every text can be encoded. With the "identity" normalization, every text also decodes to
    itself, except that spaces (U+0020 and U+2581) are lost at the ends and a run of them
    becomes one.

    Args:
        lines: sentences, of both languages for a shared vocabulary.
        path: the model file to write.
        vocab_size: number of pieces, including the four special ids and 256 bytes.
        kind: "bpe" (paper 5.1) or "unigram".
        normalization: one of `config.NORMALIZATIONS`.
        character_coverage: share of the characters in `lines` that have pieces; the rarest
            are spelled in bytes.
        symbols: strings that are always pieces of their own; U+2581 at the beginning of one
            stands for the space before it.

    Raises:
        UserError: if `path` cannot be written, or `lines` are empty, too few or too varied for
            `vocab_size`; the message gives the bound.
    """
    refuse_string("lines", lines)
    sample = _sample(_usable(lines), TRAINING_LINES)
    if not sample:
        raise UserError(
            "There is no text to train a tokenizer on: every line is empty or longer than "
            f"{LINE_BYTES:,} bytes."
        )
    try:
        with rule_arguments(normalization) as rule:
            model = _train_model(
                sample,
                vocab_size=vocab_size,
                model_type=kind,
                character_coverage=character_coverage,
                user_defined_symbols=sorted(set(symbols)),
                **rule,
            )
    except RuntimeError as error:
        raise _explain(str(error), vocab_size) from None
    with replacing(path) as temporary:
        temporary.write_bytes(with_rule_name(model, normalization))


def _train_model(lines: Sequence[str], **options: object) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        byte_fallback=True,
        minloglevel=2,
        **options,
        **SPECIAL_IDS,
    )
    return model.getvalue()


def _usable(lines: Iterable[str]) -> Iterator[str]:
    """Drops blank lines and, with a warning, those that SentencePiece would skip."""
    skipped = {f"of more than {LINE_BYTES:,} bytes": 0, f"with {_RESERVED!r}": 0}
    long, reserved = skipped
    for line in lines:
        if len(line.encode()) > LINE_BYTES:
            skipped[long] += 1
        elif _RESERVED in line:
            skipped[reserved] += 1
        elif line.strip():
            yield line
    for what, count in skipped.items():
        if count:
            logger.warning("the tokenizer learns nothing from lines %s: %s", what, f"{count:,}")


def _sample(lines: Iterable[str], size: int) -> list[str]:
    """Draws a uniform sample with a fixed seed (Vitter 1985, algorithm R)."""
    rng = random.Random(1)
    sample: list[str] = []
    for index, line in enumerate(lines):
        if index < size:
            sample.append(line)
        elif (slot := int(rng.random() * (index + 1))) < size:
            sample[slot] = line
    return sample


def _explain(message: str, vocab_size: int) -> UserError:
    received = f"Received: vocab_size={vocab_size}."
    if match := re.search(r"too high.*<= (\d+)", message):
        return VocabularyTooLarge(int(match[1]), vocab_size)
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"`vocab_size` must be at least {match[1]}, for the characters of this text, the "
            f"bytes and the special ids. {received} A data.character_coverage below 1 leaves "
            "rare characters out: 0.9995 is usual for Chinese and Japanese."
        )
    return UserError(f"SentencePiece cannot train a tokenizer: {message}. {received}")


class VocabularyTooLarge(UserError):
    """Raised for a text that yields at most `largest` pieces, fewer than requested."""

    def __init__(self, largest: int, vocab_size: int) -> None:
        self.largest = largest
        super().__init__(
            f"`vocab_size` must be at most {largest}, the number of pieces that this text has. "
            f"Received: vocab_size={vocab_size}. Use --set model.vocab_size={largest} or less."
        )
