"""SentencePiece subwords, inside the TensorFlow graph and outside it (paper 5.1)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import replacing
from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.text import SideName, is_visible, utf8
from tf_transformer.data.vocabulary import SPECIAL_IDS, read_model, slot_ids

# White space, control characters, and format characters such as U+200B.
_NOTHING_VISIBLE = r"^[\p{Z}\p{Cc}\p{Cf}]+$"

MaybeRagged: TypeAlias = tf.Tensor | tf.RaggedTensor


class Tokenizer(tf.Module):
    """A SentencePiece model as TensorFlow operations: text to ids and back.

    If the file `target_model_path(path)` exists, it is the model of the target language.

    Args:
        path: the model file.
        tag: text before each source that is not blank, such as "<2de>"; empty for none.

    Attributes:
        path, tag: the arguments.
        model_bytes: content of the model file.
        models: contents of the model files by side: "source" and, if there is one, "target".
        vocab_size: number of ids V.

    Raises:
        UserError: if `path` is not a SentencePiece model with the package's special ids, or
            the target model differs in its number of ids.

    Example:
        >>> import tf_transformer
        >>> tf_transformer.train_tokenizer(["a b", "c d"], "letters.model", vocab_size=268)
        >>> tokenizer = tf_transformer.Tokenizer("letters.model")
        >>> tokenizer.detokenize(tokenizer.tokenize(["a c", ""])).numpy()
        array([b'a c', b''], dtype=object)
    """

    def __init__(self, path: str | Path, tag: str = ""):
        super().__init__(name="tokenizer")
        self.path, self.tag = Path(path), tag
        self.model_bytes = _read_model(self.path)
        self.models = {"source": self.model_bytes}
        target = target_model_path(self.path)
        if target.exists():
            self.models["target"] = _read_model(target)
        self._loaded = {side: _load(model, side) for side, model in self.models.items()}
        self._processors = {
            side: sentencepiece.SentencePieceProcessor(model_proto=model)
            for side, model in self.models.items()
        }
        self.vocab_size, *other = (int(model.vocab_size()) for model in self._loaded.values())
        if other and other != [self.vocab_size]:
            raise UserError(
                f"{target} must have as many pieces as {self.path.name}, {self.vocab_size}. "
                f"Received: {other[0]}."
            )

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Maps sources, strings [B], to int32 ids [B, None], without BOS and EOS.

        Invalid UTF-8, lone surrogates included, becomes U+FFFD. Text without a
        visible character has no ids.
        """
        return self._tokenize(text, "source", self.tag)

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Maps targets like `tokenize`, but without a tag and by the target model, if any."""
        return self._tokenize(text, "target")

    def encode(
        self, text: tf.Tensor, side: SideName = "source", limit: int = 1 << 30
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Maps strings [B] to int32 ids [B, None] with EOS, cut to at most `limit` tokens.

        Returns:
            The ids, and bool [B]: whether a text was cut.
        """
        ids = self.tokenize(text) if side == "source" else self.tokenize_target(text)
        ends = tf.fill([ids.nrows(), 1], EOS_ID)
        return tf.concat([ids[:, : limit - 1], ends], axis=1), ids.row_lengths() >= limit

    def copy(self, path: Path) -> None:
        """Writes the model to `path`, and the target model, if there is one, beside it."""
        paths = {"target": target_model_path(path), "source": path}
        for side, file in paths.items():  # source last: once it exists, so does the other
            if side in self.models:
                with replacing(file) as temporary:
                    temporary.write_bytes(self.models[side])

    def detokenize(self, ids: MaybeRagged) -> tf.Tensor:
        """Maps ids of targets, int32 [B, T], to strings [B].

        Strings end before the first EOS; PAD and BOS are dropped.

        Raises:
            ValueError: as `pieces` does.
        """
        self._require_known(ids)
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ended = tf.cumsum(tf.cast(ids == EOS_ID, tf.int32), axis=1) > 0
        # PAD and BOS are control symbols, which SentencePiece decodes to nothing.
        return self._call("detokenize", tf.ragged.boolean_mask(ids, ~ended), "target")

    def pieces(self, ids: MaybeRagged, side: SideName = "source") -> MaybeRagged:
        """Returns the subword of each id, as strings with the shape of `ids`.

        Raises:
            ValueError: if an id is not below `vocab_size`, or negative. In a `tf.function`
                nothing is checked.
        """
        self._require_known(ids)
        return self._call("id_to_string", ids, side)

    # --- Outside the graph: calling a TensorFlow operation costs more than a short text -----

    def ids(self, texts: Sequence[str | bytes], side: SideName = "source") -> list[list[int]]:
        """Returns the ids that `tokenize` or `tokenize_target` returns.

        A lone surrogate, which Python's strings may hold, counts as invalid UTF-8.
        """
        encode = self._processor(side).encode
        tag = f"{self.tag} ".encode() if self.tag and side == "source" else b""
        lines = [utf8(text) for text in texts]
        shown = [is_visible(line.decode("utf-8", "replace")) for line in lines]
        return [
            encode(tag + line) if show else [] for line, show in zip(lines, shown, strict=True)
        ]

    def texts(self, rows: Iterable[np.ndarray]) -> list[str]:
        """Returns the texts that `detokenize` returns for rows of target ids."""
        decode, texts = self._processor("target").decode, []
        for row in rows:
            self._require_known(row)
            ids = row.tolist()
            texts.append(decode(ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids))
        return texts

    def vocabulary(self, side: SideName = "source") -> list[str]:
        """Returns all pieces of a side, by id."""
        return self._processor(side).id_to_piece([*range(self.vocab_size)])

    def slots(self, side: SideName = "source") -> np.ndarray:
        """Returns the ids of the slots of a side, int32 [9, 2]; see `vocabulary.slot_ids`."""
        return slot_ids(self.vocabulary(side))

    @property
    def spelt_pieces(self) -> np.ndarray:
        """Which pieces of targets are neither unknown nor single bytes: bool [V]."""
        model = self._processor("target")
        others = (model.is_unknown, model.is_byte)
        return np.array([not any(f(i) for f in others) for i in range(self.vocab_size)])

    def _require_known(self, ids: MaybeRagged | np.ndarray) -> None:
        """Raises ValueError for ids out of range, at which the library ends the process."""
        values = ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids
        if tf.is_symbolic_tensor(values):
            return
        wrong = [
            each
            for each in (np.min(values, initial=0), np.max(values, initial=0))
            if not 0 <= each < self.vocab_size
        ]
        if wrong:
            raise ValueError(
                f"`ids` must be from 0 to {self.vocab_size - 1}, the tokenizer's last. "
                f"Received: {wrong[0]}."
            )

    def _processor(self, side: SideName) -> sentencepiece.SentencePieceProcessor:
        return self._processors.get(side, self._processors["source"])

    def _tokenize(self, text: tf.Tensor, side: SideName, tag: str = "") -> tf.RaggedTensor:
        if not tf.is_tensor(text):
            text = tf.constant([utf8(each) for each in text], tf.string)
        text = tf.strings.regex_replace(text, _NOTHING_VISIBLE, "")
        if tag:
            text = tf.where(text == "", "", tf.strings.join([tag, " ", text]))
        return self._call("tokenize", tf.ensure_shape(text, [None]), side)

    def _call(self, operation: str, argument: MaybeRagged, side: str) -> MaybeRagged:
        """Applies an operation of SentencePiece, after reloading the model if it is lost.

        `tf.random.set_seed` clears TensorFlow's kernels, and with them the loaded model. Only
        eager calls notice; a `tf.function` traced earlier keeps using the lost one.
        """
        side = side if side in self.models else "source"
        try:
            return getattr(self._loaded[side], operation)(argument)
        except tf.errors.NotFoundError:
            self._loaded[side] = _load(self.models[side], side)
            return getattr(self._loaded[side], operation)(argument)


def target_model_path(path: Path) -> Path:
    """Returns tokenizer.target.model for tokenizer.model; see docs/guides/conversion.md."""
    return path.with_name(f"{path.stem}.target{path.suffix}")


def _load(model: bytes, side: str) -> tf_text.SentencepieceTokenizer:
    # In a SavedModel, two models that share a name would both become the first one.
    return tf_text.SentencepieceTokenizer(model, name=side)


def _read_model(path: Path) -> bytes:
    model = read_model(path)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    received = {name: getattr(processor, name)() for name in SPECIAL_IDS}
    if received != SPECIAL_IDS:
        raise UserError(
            f"The special ids of the tokenizer {path} must be {SPECIAL_IDS}. "
            f"Received: {received}. Train it with these, or leave `data.tokenizer` empty."
        )
    return model
