"""Predictor: classes of sentences by a trained model."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.batches import by_length, padded
from tf_transformer.models.classifier import Classifier
from tf_transformer.tasks.classification.labelled_corpus import sentence_ids


class Predictor:
    """Classifies sentences with a model, its tokenizer and the names of its classes.

    Args:
        model: a trained `Classifier`.
        tokenizer: the one it was trained with.
        labels: what its classes are called, in order.
        max_length: of a sentence in tokens with EOS; a longer one is cut, as in training.
        batch_tokens: positions of a batch.

    Raises:
        ValueError: if there are not as many labels as classes.
    """

    def __init__(
        self,
        model: Classifier,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        *,
        max_length: int,
        batch_tokens: int = 4_096,
    ) -> None:
        if len(labels) != model.output_shape[-1]:
            raise ValueError(
                f"`labels` must be {model.output_shape[-1]}, the model's classes. "
                f"Received: {len(labels)}."
            )
        self.labels = list(labels)
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._batch_tokens = batch_tokens
        self._probabilities = tf.function(
            lambda source: tf.nn.softmax(model({"source": source}, training=False)),
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
        )

    def probabilities(
        self, sentences: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Returns the probability of each class for each sentence: float32 [sentences, C].

        Args:
            sentences: any number of them.
            progress: called with the number of sentences done so far.
        """
        probabilities = np.zeros((len(sentences), len(self.labels)), np.float32)
        if not sentences:
            return probabilities
        ids, lengths, _ = sentence_ids(self._tokenizer, sentences, self._max_length)
        texts = np.split(ids, np.cumsum(lengths)[:-1])
        done = 0
        for rows in by_length(lengths.tolist(), self._batch_tokens):
            probabilities[rows] = self._probabilities(padded([texts[row] for row in rows]))
            done += len(rows)
            if progress:
                progress(done)
        return probabilities

    def classify(
        self, sentences: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[str]:
        """Returns the most probable label of each sentence."""
        best = self.probabilities(sentences, progress).argmax(axis=1)
        return [self.labels[index] for index in best]
