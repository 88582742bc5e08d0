"""SentencePiece subwords inside the TensorFlow graph, besides those of Python (paper 5.1)."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.subwords import Subwords
from tf_transformer.data.text import SideName, utf8

# White space, control characters, and format characters such as U+200B.
_NOTHING_VISIBLE = r"^[\p{Z}\p{Cc}\p{Cf}]+$"

MaybeRagged: TypeAlias = tf.Tensor | tf.RaggedTensor


class Tokenizer(Subwords, tf.Module):
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
        tf.Module.__init__(self, name="tokenizer")
        Subwords.__init__(self, path, tag)
        self._loaded = {side: _load(model, side) for side, model in self.models.items()}

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

    def _require_known(self, ids: MaybeRagged | np.ndarray) -> None:
        """Raises ValueError for ids out of range, at which the library ends the process."""
        values = ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids
        if not tf.is_symbolic_tensor(values):
            super()._require_known(values)

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


def _load(model: bytes, side: str) -> tf_text.SentencepieceTokenizer:
    # In a SavedModel, two models that share a name would both become the first one.
    return tf_text.SentencepieceTokenizer(model, name=side)
