"""Classification: predicts a sentence's label; scored by accuracy and macro F1."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.config import DataConfig
from tf_transformer.data.batches import dataset_of, padded_rows
from tf_transformer.data.encoded_corpus import (
    Chunk,
    EncodedCorpus,
    TextPairs,
    id_dtype,
    write_encoded,
)
from tf_transformer.data.plan import Batch, BatchPlan
from tf_transformer.data.subword_sampling import StepAndReplica, SubwordSampler
from tf_transformer.data.text import SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.evaluation import DevText, Ratio
from tf_transformer.models.classifier import Classifier
from tf_transformer.run import Run
from tf_transformer.tasks.classification.labelled import (
    labels_of,
    read_examples,
    read_labels,
    score_classes,
    write_labels,
)
from tf_transformer.tasks.classification.predictor import (
    SentenceClassifier,
    build_classifier,
    classifier_of,
)
from tf_transformer.tasks.task import SequenceTask, write_parallel_text
from tf_transformer.training.trainer import Result

logger = logging.getLogger(__name__)

SENTENCES, LABELS = "sentences", "labels"  # the languages of the parallel text
SAMPLES = 5


class LabelledCorpus(EncodedCorpus):
    """Encoded sentences, each with EOS, and their classes; written by `encode_labelled`.

    The target side of this `EncodedCorpus` holds no text: one number per sentence, its class,
    counted from 1.
    """

    text_sides: tuple[SideName, ...] = ("source",)


def encode_labelled(
    texts: Sequence[Iterable[tuple[str, str]]],
    tokenizer: Tokenizer,
    labels: Sequence[str],
    directory: Path,
    *,
    max_length: int,
    fingerprint: str = "",
    progress: Callable[[int], None] | None = None,
) -> LabelledCorpus:
    """Tokenises labelled sentences into `directory`; no sentence is dropped, long ones are cut.

    The arguments are those of `encode_corpus`, with pairs of sentence and label as text, and
    all `labels`, of which the first is class 1.
    """
    class_of = {label: index for index, label in enumerate(labels, start=1)}

    def encode(chunk: TextPairs) -> Chunk:
        texts, named = zip(*chunk, strict=True)
        ids, cut = tokenizer.encode(texts, limit=max_length)
        lengths = ids.row_lengths().numpy().astype(np.int32)
        classes = np.array([class_of[label] for label in named], np.int32)
        sides = [(ids.values.numpy(), lengths), (classes, np.ones_like(classes))]
        return Chunk(sides, {}, int(cut.numpy().sum()))

    dtype = id_dtype(max(tokenizer.vocab_size, len(labels) + 1))
    limits = {"max_length": max_length, "max_ratio": 0.0}
    write_encoded(directory, texts, encode, dtype, fingerprint, progress, limits)
    return LabelledCorpus.open(directory)


def labelled_dataset(
    corpus: EncodedCorpus, plan: BatchPlan, sampler: SubwordSampler | None = None, **options
) -> tf.data.Dataset:
    """Returns the batches of `plan`, like `batches.make_dataset`, from a `LabelledCorpus`.

    They are `({"source": [B, S]}, classes [B])`, all int32 and padded with PAD.
    """

    def arrays(batch: Batch, at: StepAndReplica) -> tuple[dict[str, np.ndarray], np.ndarray]:
        source = padded_rows(corpus, sampler, "source", batch, at)
        single = dataclasses.replace(batch, length=1)
        return {"source": source}, padded_rows(corpus, None, "target", single, at)[:, 0]

    ids, classes = (tf.TensorSpec([None] * rank, tf.int32) for rank in (2, 1))
    return dataset_of(plan, arrays, ({"source": ids}, classes), **options)


class ClassificationTask(SequenceTask):
    """Data, model and dev score of a classification run."""

    corpus_class = LabelledCorpus
    make_batches = staticmethod(labelled_dataset)
    vocabulary_sides = LabelledCorpus.text_sides

    @staticmethod
    def effective_data(run: Run, *, may_write: bool = True) -> DataConfig:
        """Writes sentences and labels into the run as parallel text, and the list of labels."""
        data = run.config.data
        if may_write:
            write_labels(run, labels_of(data.train))
        sides = SENTENCES, LABELS
        return write_parallel_text(
            data, run.data / "text", sides, read_examples, may_write=may_write
        )

    @staticmethod
    def read_dev_text(run: Run, source: Any, reference: Path) -> DevText:
        """Reads the sentences to be scored by accuracy; see `read_examples` for errors."""
        sentences, labels = zip(*read_examples(reference, read_labels(run)), strict=True)

        def parts(predicted: Sequence[str]) -> list[tuple[int, int]]:
            pairs = zip(predicted, labels, strict=True)
            return [(100 * (label == correct), 1) for label, correct in pairs]

        return DevText(sentences, Ratio("accuracy", "exact", parts), "label")

    @functools.cached_property
    def labels(self) -> list[str]:
        """The labels in the order of their numbers."""
        return read_labels(self.run)

    def _encoding_settings(self) -> str:
        return f"{self.data.max_length} {self.labels}"

    def _encoder(self) -> Callable[..., LabelledCorpus]:
        limit = self.data.max_length
        return functools.partial(encode_labelled, labels=self.labels, max_length=limit)

    def describe(self) -> str:
        """Describes labels, corpora and batches, for the console."""
        return f"{len(self.labels)} labels\n{super().describe()}"

    def _new_model(self) -> Classifier:
        return build_classifier(self.run)

    def evaluator(self, model: keras.Model) -> Callable[[], Result]:
        """Returns a function that classifies the dev set with the model's current weights."""
        engine = classifier_of(self.run, model, self.tokenizer)
        classifier = SentenceClassifier(engine)
        sentences, gold = ([pair[side] for pair in self.dev_pairs] for side in (0, 1))

        def evaluate() -> Result:
            predicted = classifier.classify(sentences)
            scores = score_classes(gold, predicted, self.labels)
            accuracy, f1 = scores.accuracy, scores.macro_f1
            shown = [
                f"\n  sentence  {sentence}\n  label     {label}\n  model     {answer}"
                for sentence, label, answer in zip(
                    sentences[:SAMPLES], gold, predicted, strict=False
                )
            ]
            return Result(
                metrics={"accuracy": accuracy, "f1": f1},
                headline=f"accuracy {100 * accuracy:.2f} F1 {100 * f1:.2f}",
                example=sentences[0],
                lines=[*shown, f"\ndev {scores.summary()}"],
            )

        return evaluate
