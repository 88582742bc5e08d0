"""Classes of sentences by a trained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import tensorflow as tf

from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.batches import Progress, by_length, padded
from tf_transformer.errors import UserError, quoted
from tf_transformer.models.classifier import Classifier
from tf_transformer.strings import Strings, one_or_more, pairs, strings
from tf_transformer.tasks.classification.labelled_corpus import sentence_ids
from tf_transformer.tasks.classification.metrics import ClassScores, score_classes


@dataclass(frozen=True)
class Classification:
    """A classified sentence; `str(classification)` is its label.

    Attributes:
        label: the most probable one.
        probabilities: of all labels, the most probable first.
    """

    label: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return self.label


class SentenceClassifier:
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
        labels = strings("labels", labels)
        if len(labels) != model.output_shape[-1]:
            raise ValueError(
                f"`labels` must be {model.output_shape[-1]}, the model's classes. "
                f"Received: {len(labels)}."
            )
        self.labels = labels
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._batch_tokens = batch_tokens
        self._probabilities = tf.function(
            lambda source: tf.nn.softmax(model({"source": source}, training=False)),
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
        )

    def probabilities(
        self, sentences: Sequence[str], progress: Progress | None = None
    ) -> np.ndarray:
        """Returns the probability of each class for each sentence: float32 [sentences, C].

        Args:
            sentences: any number of them.
            progress: called with the number of sentences done so far.
        """
        sentences = strings("sentences", sentences)
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

    @overload
    def classify(self, sentences: str, progress: Progress | None = None) -> Classification: ...
    @overload
    def classify(
        self, sentences: Strings, progress: Progress | None = None
    ) -> list[Classification]: ...
    def classify(self, sentences, progress=None):
        """Classifies a sentence, or each of a list.

        Args:
            sentences: a string, or a list of strings.
            progress: called with the number of sentences done so far.
        """
        one, texts = one_or_more("sentences", sentences)
        found = []
        for row in self.probabilities(texts, progress):
            ranked = {
                self.labels[index]: float(row[index])
                for index in np.argsort(-row, kind="stable")
            }
            found.append(Classification(next(iter(ranked)), ranked))
        return found[0] if one else found

    def evaluate(
        self, sentences: Strings, labels: Strings, progress: Progress | None = None
    ) -> ClassScores:
        """Classifies sentences and scores the result.

        Args:
            sentences: any number of them, at least one.
            labels: the correct label of each.
            progress: called with the number of sentences done so far.

        Raises:
            ValueError: if there are not equally many, or none.
            UserError: if the model does not know a label.
        """
        _, texts, gold = pairs(sentences=sentences, labels=labels)
        if unknown := sorted({*gold} - {*self.labels}):
            raise UserError(
                f"`labels` must be among {', '.join(self.labels)}. Received: "
                f"{quoted(unknown[0])}."
            )
        predicted = [each.label for each in self.classify(texts, progress)]
        return score_classes(gold, predicted, self.labels)
