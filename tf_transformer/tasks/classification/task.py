"""Classification: predicts a sentence's label; scored by accuracy and macro F1."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras

from tf_transformer.config import Config, DataConfig, ModelConfig
from tf_transformer.evaluation.comparison import DevText
from tf_transformer.evaluation.metrics import Ratio
from tf_transformer.models.classifier import OF_DECODERS, Classifier
from tf_transformer.run import Run
from tf_transformer.tasks.classification.labelled import (
    labels_of,
    read_examples,
    read_labels,
    require_labels,
    write_labels,
)
from tf_transformer.tasks.classification.labelled_corpus import (
    LabelledCorpus,
    encode_labelled,
    labelled_dataset,
)
from tf_transformer.tasks.classification.metrics import ClassScores, score_classes, summary
from tf_transformer.tasks.classification.predictor import (
    SentenceClassifier,
    build_classifier,
    classifier_of,
)
from tf_transformer.tasks.models import check_positions
from tf_transformer.tasks.sequences import SequenceTask, require_files, write_parallel_text

logger = logging.getLogger(__name__)

SENTENCES, LABELS = "sentences", "labels"  # the languages of the parallel text
SAMPLES = 5


@dataclasses.dataclass(frozen=True)
class DevResult:
    """Scores and samples of the classified dev set."""

    scores: ClassScores
    samples: list[tuple[str, str, str]]  # sentence, correct label, predicted label

    @property
    def metrics(self) -> dict[str, float]:
        """Scores for metrics.jsonl."""
        return {"accuracy": self.scores.accuracy, "f1": self.scores.macro_f1}

    @property
    def headline(self) -> str:
        """Main scores for the console."""
        scores = self.scores
        return f"accuracy {100 * scores.accuracy:.2f} F1 {100 * scores.macro_f1:.2f}"

    @property
    def example(self) -> str:
        """A sentence to try the model with."""
        return self.samples[0][0]

    def lines(self) -> list[str]:
        """Samples and scores, for the end of a training."""
        shown = [
            f"\n  sentence  {sentence}\n  label     {gold}\n  model     {predicted}"
            for sentence, gold, predicted in self.samples
        ]
        return [*shown, f"\ndev {summary(self.scores)}"]


class ClassificationTask(SequenceTask):
    """Data, model and dev score of a classification run."""

    corpus_class = LabelledCorpus
    make_batches = staticmethod(labelled_dataset)
    vocabulary_sides = LabelledCorpus.text_sides

    @staticmethod
    def check_config(config: Config) -> None:
        """Refuses missing or damaged files, and settings that contradict each other."""
        check_positions(config)
        if not config.training.init_from:  # the run it names may have a decoder
            for name in OF_DECODERS:
                if getattr(config.model, name) != getattr(ModelConfig, name):
                    logger.warning("model.%s has no effect: a classifier has no decoder", name)
        content = "a label, a TAB and a sentence on each line"
        require_files(config.data, "Classification", content)
        labels = labels_of(config.data.train)
        for name in config.data.valid:
            for _ in read_examples(Path(name), labels):
                pass

    @staticmethod
    def effective_data(run: Run) -> DataConfig:
        """Writes sentences and labels into the run as parallel text, and the list of labels."""
        data = run.config.data
        write_labels(run, labels_of(data.train))
        return write_parallel_text(data, run.data / "text", (SENTENCES, LABELS), read_examples)

    @staticmethod
    def read_dev_text(run: Run, source: Any, reference: Path) -> DevText:
        """Reads labelled sentences, to be scored by accuracy.

        Raises:
            UserError: see `read_examples`.
        """
        sentences, labels = zip(*read_examples(reference, require_labels(run)), strict=True)

        def parts(predicted: Sequence[str]) -> list[tuple[int, int]]:
            pairs = zip(predicted, labels, strict=True)
            return [(100 * (label == correct), 1) for label, correct in pairs]

        return DevText(sentences, Ratio("accuracy", "exact", parts), "label")

    @functools.cached_property
    def labels(self) -> list[str]:
        """The labels in the order of their numbers."""
        return read_labels(self.run)

    def _settings(self) -> str:
        return f"{self.data.max_length} {self.labels}"

    def _encoder(self) -> Callable[..., LabelledCorpus]:
        limit = self.data.max_length
        return functools.partial(encode_labelled, labels=self.labels, max_length=limit)

    def describe(self) -> str:
        """Describes labels, corpora and batches, for the console."""
        return f"{len(self.labels)} labels\n{super().describe()}"

    def _new_model(self) -> Classifier:
        return build_classifier(self.run)

    def evaluator(self, model: keras.Model) -> Callable[[], DevResult]:
        """Returns a function that classifies the dev set with the model's current weights."""
        engine = classifier_of(self.run, model, self.tokenizer)
        classifier = SentenceClassifier(engine)
        sentences, gold = ([pair[side] for pair in self.dev_pairs] for side in (0, 1))

        def evaluate() -> DevResult:
            predicted = classifier.classify(sentences)
            scores = score_classes(gold, predicted, self.labels)
            samples = zip(sentences[:SAMPLES], gold, predicted, strict=False)
            return DevResult(scores, list(samples))

        return evaluate
