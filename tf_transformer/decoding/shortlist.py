"""A shortlist of the vocabulary: a sentence is translated with tokens that are likely for it.

B batch, S source length, P longest prefix, V vocabulary, K translations of a token, F frequent
tokens, C tokens that any sentence of a batch may have. The search works with places among these
C; a place becomes an id before the embedding and in what is found.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.errors import UserError
from tf_transformer.files import replacing
from tf_transformer.models.transformer import Transformer

SPECIAL_IDS = (PAD_ID, UNK_ID, BOS_ID, EOS_ID)  # 0 to 3, so that their places are their ids


class Choice(NamedTuple):
    """What the sentences of a batch may be translated with."""

    ids: tf.Tensor  # int32 [C], ascending, then PAD; the special ids are at their own places
    allowed: tf.Tensor  # bool [B, C], what each sentence's own shortlist has
    places: tf.Tensor  # int32 [V], where each id is among `ids`; UNK's place if it is not


class Shortlist:
    """The special ids, frequent tokens, translations of the source tokens, and these too.

    Args:
        table: int32 [V, K], translations of each token, PAD where there are fewer.
        frequent: int32 [F], tokens that every sentence may have.

    Raises:
        ValueError: if an id is not in the vocabulary, or PAD has translations.
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
        """The shortlist of a file.

        Raises:
            UserError: if the file is missing, damaged, or of another vocabulary.
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
                f"{path} must be of the model's {vocab_size:,} tokens. Received: one of "
                f"{shortlist.vocab_size:,}."
            )
        return shortlist

    def write(self, path: Path) -> None:
        """Writes a file, whole or not at all; UserError if it cannot be."""
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, table=self.table, frequent=self.frequent)

    # --- In the graph ----------------------------------------------------------------------

    def members(self, source: tf.Tensor, prefix: tf.Tensor | None = None) -> tf.Tensor:
        """bool [B, V]: what each sentence may be translated with.

        Args:
            source: int32 [B, S], ids with padding.
            prefix: int32 [B, P], tokens that the translations begin with, or PAD.
        """
        batch, length = tf.unstack(tf.shape(source))
        translations = tf.gather(self._table, source)  # [B, S, K]
        own = [source, tf.reshape(translations, [batch, length * self.table.shape[1]])]
        own = tf.concat(own if prefix is None else [*own, prefix], axis=1)
        rows = tf.broadcast_to(tf.range(batch)[:, tf.newaxis], tf.shape(own))
        entries = tf.reshape(tf.stack([rows, own], axis=-1), [-1, 2])
        members = tf.tile(self._common[tf.newaxis], [batch, 1])
        present = tf.fill([tf.shape(entries)[0]], True)
        return tf.tensor_scatter_nd_update(members, entries, present)

    def choose(
        self, source: tf.Tensor, prefix: tf.Tensor | None = None, least: int = 0
    ) -> Choice:
        """What a batch may be translated with; `source` and `prefix` as for `members`.

        Args:
            source, prefix: see `members`.
            least: the smallest C; places beyond the ids are no sentence's.
        """
        members = self.members(source, prefix)
        union = tf.reduce_any(members, axis=0) | self._common
        ids = tf.cast(tf.where(union)[:, 0], tf.int32)
        count = tf.size(ids)
        ids = tf.pad(ids, [[0, tf.maximum(least - count, 0)]], constant_values=PAD_ID)
        return Choice(
            ids=ids,
            allowed=tf.gather(members, ids, axis=1) & (tf.range(tf.size(ids)) < count),
            places=tf.where(union, tf.cumsum(tf.cast(union, tf.int32)) - 1, UNK_ID),
        )


class _Restricted:
    """What a search asks of a model, with places in a choice in place of tokens.

    What is not allowed has no share of the probability, whatever else is in the batch.
    """

    def __init__(self, model: Transformer, choice: Choice) -> None:
        self._model = model
        self._choice = choice
        self.vocab_size = model.vocab_size
        self.longest_source = model.longest_source
        self.longest_target = model.longest_target

    def initial_cache(self, source: tf.Tensor) -> dict:
        """The model's cache, and what each sentence of it may have."""
        own = self._model.initial_cache(source)
        return {"model": own, "allowed": self._choice.allowed}

    def step_function(self):
        """The step that a search calls; see `Transformer.step_function`."""
        ids = self._choice.ids
        own_step = self._model.step_function(ids)

        def step(places, index, ancestry, cache):
            tokens = tf.gather(ids, places)
            logits, own = own_step(tokens, index, ancestry, cache["model"])
            logits = tf.where(cache["allowed"][:, tf.newaxis], logits, -float("inf"))
            return logits, {**cache, "model": own}

        return step


def restricted(model: Transformer | Ensemble, choice: Choice) -> _Restricted | Ensemble:
    """What a search asks of a model, or of each of an ensemble, for places in the choice."""
    if isinstance(model, Ensemble):
        return Ensemble([_Restricted(one, choice) for one in model.models])
    return _Restricted(model, choice)
