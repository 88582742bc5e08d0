"""Classifier that runs an exported SavedModel, for users."""

from pathlib import Path

import numpy as np

from tf_transformer.decoding.batches import Progress
from tf_transformer.serving.exported import ExportedModel, column, needs_run
from tf_transformer.strings import Strings, strings
from tf_transformer.tasks.classification.predictor import BaseClassifier


class ExportedClassifier(BaseClassifier):
    """Classifies sentences with an exported SavedModel, without Keras.

    Args:
        path: the folder of the SavedModel.

    Raises:
        UserError: if it cannot be loaded, or is not a classifier.
    """

    export = needs_run("be exported")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._model = ExportedModel(path, "label")
        (answer,) = self._model.answers("serving_default", {"text": column(["a"])})
        self.labels = [label.decode() for label in answer["labels"][0]]

    def probabilities(self, sentences: Strings, progress: Progress | None = None) -> np.ndarray:
        """Returns the probability of each class for each sentence: float32 [sentences, C]."""
        rows = {"text": column(strings("sentences", sentences))}
        batches = [np.zeros((0, len(self.labels)), np.float32)]
        for answer in self._model.answers("serving_default", rows, progress):
            batches.append(answer["probabilities"])
        return np.concatenate(batches)
