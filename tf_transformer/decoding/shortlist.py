"""A shortlist of the vocabulary, to restrict the search to tokens likely for a sentence.

B batch, S source length, P longest prefix, V vocabulary, K translations of a token, F frequent
tokens, C tokens on the shortlist of any sentence in a batch. The search works with indices into
these C tokens; they are mapped to ids for the embedding and in the hypotheses.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.search_loop import SearchModel, StepFunction
from tf_transformer.errors import UserError
from tf_transformer.files import replacing
from tf_transformer.models.transformer import Transformer

SPECIAL_IDS = (PAD_ID, UNK_ID, BOS_ID, EOS_ID)  # 0 to 3, so their indices equal their ids


class Choice(NamedTuple):
    """Tokens allowed in the translations of a batch."""

    ids: tf.Tensor  # int32 [C], ascending, then PAD; the special ids come first
    allowed: tf.Tensor  # bool [B, C], tokens on each sentence's shortlist
    indices: tf.Tensor  # int32 [V], index of each id in `ids`, or UNK's if it is absent


class Shortlist:
    """The tokens likely in a translation, looked up by the tokens of its source.

    They are special and frequent tokens, likely translations of the source tokens, and the
    source tokens themselves.

    Args:
        table: int32 [V, K], translations of each token, PAD where there are fewer.
        frequent: int32 [F], tokens on every sentence's shortlist.

    Raises:
        ValueError: if the shapes are wrong, an id is not in the vocabulary, or PAD has
            translations.
    """

    def __init__(self, table: np.ndarray, frequent: np.ndarray) -> None:
        self.table = np.asarray(table, np.int32)
        self.frequent = np.asarray(frequent, np.int32)
        if (self.table.ndim, self.frequent.ndim) != (2, 1):
            raise ValueError(
                "`table` must be [V, K] and `frequent` [F]. "
                f"Received: {self.table.shape} and {self.frequent.shape}."
            )
        self.vocab_size = len(self.table)
        ids = np.concatenate([self.table.ravel(), self.frequent])
        if np.any((ids < 0) | (ids >= self.vocab_size)) or np.any(self.table[PAD_ID] != PAD_ID):
            raise ValueError("`table` and `frequent` must hold ids below V, and none for PAD.")
        common = np.zeros(self.vocab_size, bool)
        common[[*SPECIAL_IDS, *self.frequent]] = True
        with tf.init_scope():
            self._table, self._common = tf.constant(self.table), tf.constant(common)

    @classmethod
    def read(cls, path: Path, vocab_size: int) -> "Shortlist":
        """Reads the file that `write` wrote.

        Raises:
            UserError: if it is missing, damaged, or made for another vocabulary.
        """
        try:
            with np.load(path) as archive:
                shortlist = cls(archive["table"], archive["frequent"])
        except FileNotFoundError:
            raise UserError(
                f"There is no {path}. Make it first: tf-transformer shortlist {path.parent}"
            ) from None
        except OSError as error:
            raise UserError(f"Cannot read {path}: {error.strerror or error}") from None
        except Exception as error:  # NumPy, zipfile and zlib raise many kinds
            raise UserError(
                f"{path} is damaged ({error}). Make it again: tf-transformer shortlist "
                f"{path.parent}"
            ) from None
        if shortlist.vocab_size != vocab_size:
            raise UserError(
                f"{path} must be for the model's vocabulary of {vocab_size:,} tokens. "
                f"Received: one for {shortlist.vocab_size:,} tokens. Make it again: "
                f"tf-transformer shortlist {path.parent}"
            )
        return shortlist

    def write(self, path: Path) -> None:
        """Writes a file atomically; raises UserError on failure."""
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, table=self.table, frequent=self.frequent)

    # --- In the graph ----------------------------------------------------------------------

    def members(self, source: tf.Tensor, prefix: tf.Tensor | None = None) -> tf.Tensor:
        """Returns bool [B, V]: the tokens on each sentence's shortlist.

        Args:
            source: int32 [B, S], ids with padding.
            prefix: int32 [B, P], tokens that the translations begin with, or PAD.
        """
        batch, length = tf.unstack(tf.shape(source))
        translations = tf.gather(self._table, source)  # [B, S, K]
        ids = [source, tf.reshape(translations, [batch, length * self.table.shape[1]])]
        ids = tf.concat(ids if prefix is None else [*ids, prefix], axis=1)
        rows = tf.broadcast_to(tf.range(batch)[:, tf.newaxis], tf.shape(ids))
        entries = tf.reshape(tf.stack([rows, ids], axis=-1), [-1, 2])
        members = tf.tile(self._common[tf.newaxis], [batch, 1])
        present = tf.fill([tf.shape(entries)[0]], True)
        return tf.tensor_scatter_nd_update(members, entries, present)

    def choose(
        self, source: tf.Tensor, prefix: tf.Tensor | None = None, least: int = 0
    ) -> Choice:
        """Returns the tokens allowed in the translations of a batch.

        Args:
            source: see `members`.
            prefix: see `members`.
            least: minimum C; `ids` is padded to it with PAD, which no sentence may use.
        """
        members = self.members(source, prefix)
        union = tf.reduce_any(members, axis=0) | self._common
        ids = tf.cast(tf.where(union)[:, 0], tf.int32)
        count = tf.size(ids)
        ids = tf.pad(ids, [[0, tf.maximum(least - count, 0)]], constant_values=PAD_ID)
        return Choice(
            ids=ids,
            allowed=tf.gather(members, ids, axis=1) & (tf.range(tf.size(ids)) < count),
            indices=tf.where(union, tf.cumsum(tf.cast(union, tf.int32)) - 1, UNK_ID),
        )


class _Restricted:
    """A model whose tokens are indices into the ids of a `Choice`.

    Tokens that are not on a sentence's shortlist get probability 0, so a sentence does not
    depend on the rest of its batch.
    """

    def __init__(self, model: Transformer, choice: Choice) -> None:
        self._model = model
        self._choice = choice
        self.vocab_size = model.vocab_size
        self.longest_source = model.longest_source
        self.longest_target = model.longest_target

    def initial_cache(self, source: tf.Tensor) -> dict:
        """Returns the model's cache with the tokens that each sentence may use."""
        cache = self._model.initial_cache(source)
        return {"model": cache, "allowed": self._choice.allowed}

    def step_function(self) -> StepFunction:
        """Returns the step that a search calls; see `Transformer.step_function`."""
        ids = self._choice.ids
        model_step = self._model.step_function(ids)

        def step(indices, index, ancestry, cache):
            tokens = tf.gather(ids, indices)
            logits, model_cache = model_step(tokens, index, ancestry, cache["model"])
            logits = tf.where(cache["allowed"][:, tf.newaxis], logits, -float("inf"))
            return logits, {**cache, "model": model_cache}

        return step


def restricted(model: Transformer | Ensemble, choice: Choice) -> SearchModel:
    """Returns the model or ensemble, with indices into the ids of a `Choice` as its tokens."""
    if isinstance(model, Ensemble):
        return Ensemble([_Restricted(member, choice) for member in model.models])
    return _Restricted(model, choice)
