"""Labelled text (a label, a TAB and a sentence on each line), a run's labels, and scores.

Nothing here imports TensorFlow.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tf_transformer.base.errors import UserError, quoted, shortened
from tf_transformer.base.files import parse_json, write_text
from tf_transformer.base.output import Table
from tf_transformer.data.text import blank_line, read_lines
from tf_transformer.run import Run

LABELS_FILE = "labels.json"  # in the run directory

logger = logging.getLogger(__name__)


class Example(NamedTuple):
    """A sentence and its label, both stripped of surrounding white space."""

    sentence: str
    label: str


def read_examples(path: Path, labels: Sequence[str] | None = None) -> Iterator[Example]:
    """Yields the examples of a file, one per line.

    Raises UserError if the file cannot be read or is empty, or a line lacks a TAB, a label or a
    sentence, or has a label that is not in `labels`, if given; it names file and line.
    """
    number, lines = 0, read_lines(path)
    for number, line in enumerate(lines, start=1):
        label, tab, sentence = line.partition("\t")
        label, sentence = label.strip(), sentence.strip()
        if not (tab and label and sentence):
            missing = ("sentence" if label else "label") if tab else f"TAB: {quoted(line)}"
            raise UserError(
                f"{path}:{number}: expected a label, a TAB and a sentence. Received: "
                f"{blank_line(line, lines) or f'no {missing}.'}"
            )
        if labels is not None and label not in labels:
            raise UserError(
                f"{path}:{number}: the training files do not have the label "
                f"{quoted(label)}. They have: {shortened(', '.join(labels))}."
            )
        yield Example(sentence, label)
    if not number:
        raise UserError(f"{path} is empty. Expected lines of a label, a TAB and a sentence.")


def labels_of(paths: Sequence[str | Path], *, log: bool = False) -> list[str]:
    """Collects the labels of training files, sorted by code point.

    With `log`, their counts are logged, and a warning of those that occur once. Raises
    UserError if there is only one label, or as `read_examples` does.
    """
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}  # of the first line of each
    for path in paths:
        for number, example in enumerate(read_examples(Path(path)), start=1):
            counts[example.label] += 1
            places.setdefault(example.label, f"{path}:{number}")
    labels = sorted(counts)
    if len(labels) < 2:
        raise UserError(
            f"{', '.join(map(str, paths))}: expected at least two labels. Received: every line "
            f"has {quoted(labels[0])}."
        )
    if log:
        listed = ", ".join(f"{label} {counts[label]:,}" for label in labels)
        logger.info("classes: %s", shortened(listed, 1_000))
    once = [f"{quoted(each)} ({places[each]})" for each in labels if counts[each] == 1]
    if log and once:
        logger.warning(
            "classes that occur once, such as a header or a misspelt label: %s",
            shortened(", ".join(once), 500),
        )
    return labels


def read_labels(run: Run) -> list[str]:
    """Reads a run's labels, in class order; UserError if they are missing or damaged."""
    file = run.path / LABELS_FILE
    try:
        return [str(label) for label in parse_json(file.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        raise UserError(
            f"{run.path} has no labels in {LABELS_FILE}. Expected a run of --task "
            "classification."
        ) from None
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{file} is damaged: {error}. Expected a JSON list of labels."
        ) from None


def write_labels(run: Run, labels: list[str]) -> None:
    """Writes a run's labels; UserError if training has begun with others, or they are gone."""
    file = run.path / LABELS_FILE
    old = read_labels(run) if file.exists() else []
    begun = bool(run.checkpoints.state_steps())
    if begun and not old:  # the text may have changed
        raise UserError(f"{file} is gone. Restore it from a copy of the run.")
    if begun and old != labels:
        missing, new = sorted({*old} - {*labels}), sorted({*labels} - {*old})
        raise UserError(
            f"The training files must have the labels that {run.path} has learned. New: "
            f"{', '.join(new) or 'none'}; missing: {', '.join(missing) or 'none'}. Give the "
            "same files to resume, or another --output."
        )
    if old != labels:
        write_text(file, json.dumps(labels, ensure_ascii=False, indent=0) + "\n")


# --- Scores -----------------------------------------------------------------------------


class ClassScore(NamedTuple):
    """Precision, recall and F1 of one class, from 0 to 1, and its number of sentences."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, repr=False)
class ClassScores:
    """Scores of a set of sentences, from 0 to 1, computed from its confusion matrix."""

    labels: tuple[str, ...]  # of all classes
    counts: np.ndarray  # int [C, C]: correct class (row) by predicted class

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return int(self.counts.sum())

    @property
    def right(self) -> int:
        """Number of correctly classified sentences."""
        return int(np.trace(self.counts))

    @property
    def accuracy(self) -> float:
        """Share of correctly classified sentences."""
        return self.right / self.sentences

    @property
    def macro_f1(self) -> float:
        """Unweighted mean of F1 over the classes that occur, as labels or as predictions.

        F1 of a class is 2 tp / (2 tp + fp + fn): 0 if it is never predicted correctly.
        """
        f1, occur = self._f1()
        return float(f1[occur].mean())

    def summary(self) -> str:
        """Formats a line such as "accuracy 90.00 (9 of 10)  macro F1 88.31"."""
        return (
            f"accuracy {100 * self.accuracy:.2f} ({self.right:,} of {self.sentences:,})  "
            f"macro F1 {100 * self.macro_f1:.2f}"
        )

    def __repr__(self) -> str:
        """Formats a table of the scores of each class and overall, in percent."""
        rows = [
            [row.label, *(f"{100 * share:.2f}" for share in row[1:4]), f"{row.support:,}"]
            for row in self.rows()
        ]
        table = Table(["", "precision", "recall", "F1", "sentences"], rows, "lr")
        return f"{table.text('plain')}\n{self.summary()}"

    def rows(self) -> list[ClassScore]:
        """Returns the scores of each class; 0 where a class never occurs."""
        right, predicted, gold = np.diag(self.counts), self.counts.sum(0), self.counts.sum(1)
        precision, recall = right / np.maximum(predicted, 1), right / np.maximum(gold, 1)
        columns = precision, recall, self._f1()[0], gold
        rows = zip(self.labels, *(column.tolist() for column in columns), strict=True)
        return [ClassScore(*row) for row in rows]

    def _f1(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns F1 of each class, and whether the class occurs, [C] each."""
        occurrences = self.counts.sum(0) + self.counts.sum(1)  # 2 tp + fp + fn
        return 2 * np.diag(self.counts) / np.maximum(occurrences, 1), occurrences > 0


def score_classes(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> ClassScores:
    """Scores the predicted label of each sentence, at least one, against the correct one."""
    index_of = {label: index for index, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for row, column in zip(gold, predicted, strict=True):
        counts[index_of[row], index_of[column]] += 1
    return ClassScores(tuple(labels), counts)
