"""Labelled text (a label, a TAB and a sentence on each line) and the labels of a run.

The text is UTF-8, plain or .gz. Nothing here imports TensorFlow.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tf_transformer.data.text import read_lines
from tf_transformer.errors import UserError, quoted, shortened
from tf_transformer.files import write_text
from tf_transformer.run import Run

LABELS_FILE = "labels.json"  # in the run directory
SHOWN = 5  # labels in a message


class Example(NamedTuple):
    """A sentence and its label, both stripped of surrounding white space."""

    sentence: str
    label: str


def read_examples(path: Path, labels: Sequence[str] | None = None) -> Iterator[Example]:
    """Yields the examples of a file, one per line.

    Args:
        path: the file.
        labels: the labels allowed; None allows any.

    Raises:
        UserError: if the file cannot be read or is empty, or a line lacks a TAB, a label or a
            sentence, or has a label that is not in `labels`; the message names file and line.
    """
    known = set(labels or ())
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        example = _example(line, f"{path}:{number}")
        if labels is not None and example.label not in known:
            raise UserError(
                f"{path}:{number}: the training files do not have the label "
                f"{quoted(example.label)}. They have: {_some(labels)}."
            )
        yield example
    if not number:
        raise UserError(f"{path} is empty. Expected lines of a label, a TAB and a sentence.")


def _example(line: str, place: str) -> Example:
    label, tab, sentence = line.partition("\t")
    label, sentence = label.strip(), sentence.strip()
    if not (tab and label and sentence):
        missing = ("sentence" if label else "label") if tab else f"TAB: {quoted(line)}"
        raise UserError(
            f"{place}: expected a label, a TAB and a sentence. Received: no {missing}."
        )
    return Example(sentence, label)


def labels_of(paths: Sequence[str | Path]) -> list[str]:
    """Collects the labels of training files, sorted by code point.

    Raises:
        UserError: if there is only one label, or a file is bad: see `read_examples`.
    """
    labels = sorted({example.label for path in paths for example in read_examples(Path(path))})
    if len(labels) < 2:
        raise UserError(
            f"{', '.join(map(str, paths))}: expected at least two labels. Received: every line "
            f"has {quoted(labels[0])}."
        )
    return labels


def read_labels(run: Run) -> list[str]:
    """Reads a run's labels, in class order; empty if it is not a classification run."""
    file = run.path / LABELS_FILE
    try:
        return [str(label) for label in json.loads(file.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{file} is damaged: {error}. Expected a JSON list of labels."
        ) from None


def require_labels(run: Run) -> list[str]:
    """Reads a run's labels, in class order; UserError if it has none."""
    labels = read_labels(run)
    if not labels:
        raise UserError(
            f"{run.path} has no labels in {LABELS_FILE}. Expected a run of --task "
            "classification."
        )
    return labels


def write_labels(run: Run, labels: list[str]) -> None:
    """Writes the labels of a run, which must not change once training has begun.

    Raises:
        UserError: if training has begun and they differ from the run's labels, or these are
            gone; nothing is written then.
    """
    file, old = run.path / LABELS_FILE, read_labels(run)
    begun = bool(run.checkpoints.state_steps())
    if old and old != labels and begun:
        missing, new = sorted({*old} - {*labels}), sorted({*labels} - {*old})
        raise UserError(
            f"The training files must have the labels that {run.path} has learned. New: "
            f"{', '.join(new) or 'none'}; missing: {', '.join(missing) or 'none'}. Give the "
            "same files to resume, or another --output."
        )
    if begun and not old:  # the text may have changed
        raise UserError(f"{file} is gone. Restore it from a copy of the run.")
    if old != labels:
        write_text(file, json.dumps(labels, ensure_ascii=False, indent=0) + "\n")


def _some(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return f"{', '.join(map(shortened, labels[:SHOWN]))}{more}"
