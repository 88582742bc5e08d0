"""SentencePiece subwords, trained once and applied inside the TensorFlow graph (paper 5.1)."""

import io
import logging
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text

from tf_transformer.config import BOS_ID, EOS_ID, NORMALIZATIONS, PAD_ID, UNK_ID
from tf_transformer.data.normalization import SPACE_PIECE, rule_arguments, with_rule_name
from tf_transformer.errors import UserError
from tf_transformer.files import replacing
from tf_transformer.strings import refuse_string

SPECIAL_IDS = {"pad_id": PAD_ID, "unk_id": UNK_ID, "bos_id": BOS_ID, "eos_id": EOS_ID}
TRAINING_LINES = 2_000_000  # a random sample of this size is ample, and bounds the memory
# SentencePiece skips longer lines and does not say so. Training on pairs would drop them too: a
# piece has at most 16 characters, so they have more tokens than `data.max_length` allows.
LINE_BYTES = 4_192

# White space, control characters, and what formats the text around it such as U+200B.
_NOTHING_VISIBLE = r"^[\p{Z}\p{Cc}\p{Cf}]+$"

MaybeRagged: TypeAlias = tf.Tensor | tf.RaggedTensor

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

    Lines of more than `LINE_BYTES` are left out, with a warning that counts them. Characters
    that `lines` lacks are spelled in bytes, so every text can be encoded. With the "identity"
    every text also comes back unchanged, except that blanks (U+0020 and U+2581) are lost at the
    ends and a run of them becomes one.

    Args:
        lines: sentences, of both languages for a shared vocabulary.
        path: the model file to write.
        vocab_size: number of pieces, with the four special ids and 256 bytes.
        kind: "bpe" (paper 5.1) or "unigram".
        normalization: one of `config.NORMALIZATIONS`.
        character_coverage: share of the characters in `lines` that have pieces; the rarest
            are spelled in bytes.
        symbols: words that are single pieces in any text.

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
                # A piece that begins a word has this in the place of the blank before it.
                user_defined_symbols=sorted({f"{SPACE_PIECE}{symbol}" for symbol in symbols}),
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
    long = 0
    for line in lines:
        if len(line.encode()) > LINE_BYTES:
            long += 1
        elif line.strip():
            yield line
    if long:
        logger.warning(
            "the tokenizer learns nothing from lines of more than %s bytes: %s",
            f"{LINE_BYTES:,}", f"{long:,}",
        )  # fmt: skip


def _sample(lines: Iterable[str], size: int) -> list[str]:
    """A uniform sample (Vitter 1985, algorithm R), with a seed, which SentencePiece lacks."""
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
    """Error of a text that has fewer pieces than requested: at most `largest`."""

    def __init__(self, largest: int, vocab_size: int) -> None:
        self.largest = largest
        super().__init__(
            f"`vocab_size` must be at most {largest}, all the pieces that this text has. "
            f"Received: vocab_size={vocab_size}. Use --set model.vocab_size={largest} or less."
        )


class Tokenizer(tf.Module):
    """A SentencePiece model as TensorFlow operations: text to ids and back.

    If `target_model_path(path)` exists, a model of the same ids, it segments text of the target
    language.

    Attributes:
        path: the model file.
        model_bytes: its content.
        models: content of the model files, by "source" and, if it has one, "target".
        vocab_size: number of ids V.

    Raises:
        UserError: if `path` is not a SentencePiece model with these special ids, or the model
            of the target language has another number of ids.
    """

    def __init__(self, path: Path):
        super().__init__(name="tokenizer")
        self.path = Path(path)
        self.model_bytes = _read_model(self.path)
        self.models = {"source": self.model_bytes}
        beside = target_model_path(self.path)
        if beside.exists():
            self.models["target"] = _read_model(beside)
        self._loaded = {side: _load(model) for side, model in self.models.items()}
        self.vocab_size, *other = (int(one.vocab_size()) for one in self._loaded.values())
        if other and other != [self.vocab_size]:
            raise UserError(
                f"{beside} must have the {self.vocab_size} pieces of {self.path.name}. "
                f"Received: {other[0]}."
            )

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings [B] to int32 ids [B, None], without BOS and EOS.

        Invalid UTF-8 becomes U+FFFD. Text without a visible character has no ids.
        """
        return self._tokenize(text, "source")

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Maps text like `tokenize`, by the model of the target language if it has one."""
        side = "target" if "target" in self.models else "source"
        return self._tokenize(text, side)

    def copy(self, path: Path) -> None:
        """Writes the model to `path`, and that of the target language, if any, beside it."""
        paths = {"target": target_model_path(path), "source": path}
        for side, file in paths.items():  # that of the source last: with it, all is there
            if side in self.models:
                with replacing(file) as temporary:
                    temporary.write_bytes(self.models[side])

    def detokenize(self, ids: MaybeRagged) -> tf.Tensor:
        """Maps int32 ids [B, T] to strings [B]: up to the first EOS, without PAD and BOS."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ended = tf.cumsum(tf.cast(ids == EOS_ID, tf.int32), axis=1) > 0
        # PAD and BOS are control symbols, which SentencePiece spells as nothing.
        return self._call("detokenize", tf.ragged.boolean_mask(ids, ~ended))

    def pieces(self, ids: MaybeRagged) -> MaybeRagged:
        """Returns the subword of each id, as strings of the shape of `ids`."""
        return self._call("id_to_string", ids)

    def _tokenize(self, text: tf.Tensor, side: str) -> tf.RaggedTensor:
        visible = tf.strings.regex_replace(text, _NOTHING_VISIBLE, "")
        return self._call("tokenize", tf.ensure_shape(visible, [None]), side)

    def _call(self, operation: str, argument: MaybeRagged, side: str = "source") -> MaybeRagged:
        """Applies an operation of SentencePiece, with the model reloaded if it is gone.

        `tf.random.set_seed` clears TensorFlow's kernels, and with them the loaded model. Only
        eager calls notice; a `tf.function` traced before keeps the lost one.
        """
        try:
            return getattr(self._loaded[side], operation)(argument)
        except tf.errors.NotFoundError:
            self._loaded[side] = _load(self.models[side])
            return getattr(self._loaded[side], operation)(argument)


def target_model_path(path: Path) -> Path:
    """Returns tokenizer.target.model for tokenizer.model; see docs/guides/conversion.md."""
    return path.with_name(f"{path.stem}.target{path.suffix}")


def _load(model: bytes) -> tf_text.SentencepieceTokenizer:
    return tf_text.SentencepieceTokenizer(model)


def _read_model(path: Path) -> bytes:
    try:
        model = path.read_bytes()
        # An empty file parses as an empty message.
        processor = sentencepiece.SentencePieceProcessor(model_proto=model or b"empty")
    except OSError as error:
        raise UserError(f"The tokenizer {path} cannot be read: {error.strerror}.") from None
    except RuntimeError:
        raise UserError(f"{path} is not a SentencePiece model.") from None
    received = {name: getattr(processor, name)() for name in SPECIAL_IDS}
    if received != SPECIAL_IDS:
        raise UserError(
            f"The special ids of the tokenizer {path} must be {SPECIAL_IDS}. "
            f"Received: {received}. Train it with these, or leave `data.tokenizer` empty."
        )
    return model
