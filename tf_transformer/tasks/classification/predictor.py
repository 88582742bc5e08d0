"""Classification of sentences by a trained model, and its export."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import Strings, UserError, one_or_more, pairs, quoted, strings
from tf_transformer.base.system import InOneProcess, refuse_in_fork
from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.streams import Progress, in_batches, padded
from tf_transformer.decoding.text_codec import IDS
from tf_transformer.export.publishing import Exportable, Gate, publish
from tf_transformer.export.saved_model import column, open_export
from tf_transformer.export.self_test import TEXTS, check_classifier
from tf_transformer.export.signatures import Outputs, in_groups, of_vectors
from tf_transformer.export.warm_up import Request
from tf_transformer.models.classifier import Classifier
from tf_transformer.models.transformer import arguments_of
from tf_transformer.run import Run
from tf_transformer.run.records import WithHistory
from tf_transformer.tasks.classification.labelled import ClassScores, read_labels, score_classes

logger = logging.getLogger(__name__)

SIGNATURE = "serving_default"


class Label(str):
    """The most probable label of a sentence: a `str` that carries all probabilities.

    Attributes:
        probabilities: probability of each label, the most probable first.
    """

    probabilities: dict[str, float]

    def __new__(cls, label: str, probabilities: dict[str, float]) -> Self:
        """Returns `label` with these probabilities."""
        self = super().__new__(cls, label)
        self.probabilities = probabilities
        return self

    def __getnewargs__(self):
        """Returns the arguments to copy and unpickle it with."""
        return str(self), self.probabilities


class GraphClassifier(InOneProcess):
    """Computes probabilities with a `Classifier` in TensorFlow.

    `labels` are the names of its classes, in order. Sentences longer than `max_length` tokens
    with EOS are truncated, as in training; a batch has `batch_tokens` with padding.
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
        self.model, self.tokenizer, self.labels = model, tokenizer, labels
        self.max_length, self.batch_tokens = max_length, batch_tokens
        self._compiled = tf.function(self.probabilities_of, [IDS], autograph=False)

    def probabilities_of(self, source: tf.Tensor) -> tf.Tensor:
        """Returns the class probabilities of padded ids with EOS: [B, S] -> float32 [B, C]."""
        return tf.nn.softmax(self.model({"source": source}, training=False))

    def probabilities(self, sentences: list[str], progress: Progress | None) -> np.ndarray:
        """Returns the probabilities of sentences; see `SentenceClassifier.probabilities`."""
        refuse_in_fork()
        probabilities = np.zeros((len(sentences), len(self.labels)), np.float32)
        if not sentences:
            return probabilities
        encoded = self.tokenizer.ids(sentences)
        texts = [np.array([*ids[: self.max_length - 1], EOS_ID], np.int32) for ids in encoded]
        if cut := sum(len(ids) >= self.max_length for ids in encoded):
            logger.warning("texts cut at %d tokens: %d", self.max_length, cut)

        def compute(rows: list[int]) -> tf.Tensor:
            return self._compiled(padded([texts[row] for row in rows]))

        lengths = list(map(len, texts))
        for rows, batch in in_batches(lengths, self.batch_tokens, compute, progress):
            probabilities[rows] = batch
        return probabilities


class ExportClassifier(InOneProcess):
    """Computes probabilities with a SavedModel; UserError if it is none of a classifier."""

    def __init__(self, path: Path) -> None:
        outputs = ("label", "labels", "probabilities")
        self.path, self._session = path, open_export(path, "label", serving_default=outputs)
        (answer,) = self._session.answers(SIGNATURE, {"text": column(["a"])})
        self.labels = [label.decode() for label in answer["labels"][0]]

    def probabilities(self, sentences: list[str], progress: Progress | None) -> np.ndarray:
        """Returns the probabilities of sentences; see `SentenceClassifier.probabilities`."""
        answers = self._session.answers(SIGNATURE, {"text": column(sentences)}, progress)
        empty = np.zeros((0, len(self.labels)), np.float32)
        return np.concatenate([empty, *(answer["probabilities"] for answer in answers)])


class SentenceClassifier(WithHistory):
    """Classifies sentences with a model, or with an export.

    Args:
        engine: computes the probabilities.
        card: creates the model card of its exports.

    Attributes:
        labels: names of the classes, in order.

    Example:
        >>> import tf_transformer
        >>> classifier = tf_transformer.load("runs/topics", task="classification")
        >>> classifier.classify("the cat is here .") in classifier.labels
        True
    """

    def __init__(
        self,
        engine: GraphClassifier | ExportClassifier,
        card: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.engine, self.labels, self._card = engine, engine.labels, card or dict

    def probabilities(self, sentences: Strings, progress: Progress | None = None) -> np.ndarray:
        """Returns the probability of each class for each sentence: float32 [sentences, C].

        Args:
            sentences: any number of them.
            progress: called with the number of sentences done so far.
        """
        return self.engine.probabilities(strings("sentences", sentences), progress)

    @overload
    def classify(self, sentences: str, progress: Progress | None = None) -> Label: ...
    @overload
    def classify(self, sentences: Strings, progress: Progress | None = None) -> list[Label]: ...
    def classify(self, sentences, progress=None):
        """Classifies a sentence, or each sentence of a list.

        Args:
            sentences: a string, or a list of strings.
            progress: called with the number of sentences done so far.

        Returns:
            A `Label`, a `str` with its `probabilities`; a list of them for a list.
        """
        one, texts = one_or_more("sentences", sentences)
        results = []
        for row in self.probabilities(texts, progress):
            ranked = {
                self.labels[index]: float(row[index])
                for index in np.argsort(-row, kind="stable")
            }
            results.append(Label(next(iter(ranked)), ranked))
        return results[0] if one else results

    def evaluate(
        self, sentences: Strings, labels: Strings, progress: Progress | None = None
    ) -> ClassScores:
        """Classifies sentences and scores the results.

        Args:
            sentences: at least one.
            labels: the correct label of each.
            progress: called with the number of sentences done so far.

        Raises:
            ValueError: if `sentences` and `labels` differ in length, or are empty.
            UserError: if a label is not one of the model's.
        """
        _, texts, gold = pairs(sentences=sentences, labels=labels)
        if not texts:
            raise ValueError("`sentences` must have at least one string. Received: none.")
        if unknown := sorted({*gold} - {*self.labels}):
            raise UserError(
                f"`labels` must be among {', '.join(self.labels)}. Received: "
                f"{quoted(unknown[0])}."
            )
        return score_classes(gold, self.classify(texts, progress), self.labels)

    def export(
        self, output: str | Path, *, version: int | None = None, gate: Gate | None = None
    ) -> Path:
        """Writes a SavedModel for TF Serving, after testing it; returns OUTPUT/VERSION.

        Args:
            output: the model's folder.
            version: its number; None for the next free one.
            gate: refuses an export that is worse than the published model.

        Raises:
            UserError: if the export cannot be written, or fails its test.
        """
        engine = self.engine
        if isinstance(engine, ExportClassifier):
            raise UserError(
                f"The export {engine.path} cannot be exported: load the run it was made from."
            )
        search = {"batch_tokens": engine.batch_tokens, "beam_size": 1}
        card = self._card() | {"decoding": search}
        text = {"text": np.array(TEXTS[:2], object)}
        exportable = Exportable(
            models=[engine.model],
            tokenizer=engine.tokenizer,
            functions={SIGNATURE: of_vectors(_classify(engine), text=tf.string)},
            requests=[Request(SIGNATURE, text), Request(SIGNATURE, text, ("label",))],
            checks=lambda session: check_classifier(session, self),
            sizes={"labels": len(engine.labels), "max_source_tokens": engine.max_length},
        )
        return publish(exportable, Path(output), version, card, gate=gate)


def build_classifier(run: Run, precision: str | None = None) -> Classifier:
    """Builds the model of a run, in its training precision by default."""
    config = run.config
    return Classifier(
        **arguments_of(Classifier, config.model),  # `check_config` has warned of the others
        num_classes=len(read_labels(run)),
        dtype=precision or config.training.precision,
        name="classifier",
    )


def classifier_of(run: Run, model: Classifier, tokenizer: Tokenizer) -> GraphClassifier:
    """Returns what computes with a run's model, with its labels and limits."""
    return GraphClassifier(
        model,
        tokenizer,
        read_labels(run),
        max_length=run.config.model.longest_source or run.config.data.max_length,
        batch_tokens=run.config.decoding.batch_tokens,
    )


def _classify(classifier: GraphClassifier):
    probabilities_of = in_groups(classifier.probabilities_of, [IDS], classifier.batch_tokens)

    def classify(text: tf.Tensor) -> Outputs:
        source, cut = classifier.tokenizer.encode(text, limit=classifier.max_length)
        probabilities = probabilities_of(source.to_tensor(PAD_ID))
        labels = tf.constant(list(classifier.labels))
        return {
            "label": tf.gather(labels, tf.argmax(probabilities, axis=1)),
            "labels": tf.broadcast_to(labels, tf.shape(probabilities)),
            "probabilities": probabilities,
            "source_cut": cut,
        }

    return classify
