"""Labelled text: a label, a TAB and a sentence on each line, UTF-8, plain or .gz."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError, quoted, shortened

SHOWN = 5  # labels in a message


class Example(NamedTuple):
    """A sentence and its label, both without blanks around them."""

    sentence: str
    label: str


def read_examples(path: Path, labels: Sequence[str] | None = None) -> Iterator[Example]:
    """The examples of a file, one a line.

    Args:
        path: of the file.
        labels: those that may occur; None for any.

    Raises:
        UserError: if the file cannot be read or has no line, or a line has no TAB, no label, no
            sentence or a label that is not in `labels`: with file and line.
    """
    known = None if labels is None else set(labels)
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        example = _example(line, f"{path}:{number}")
        if known is not None and example.label not in known:
            raise UserError(
                f"{path}:{number}: no line of the training files has the label "
                f"{quoted(example.label)}. They have: {_some(labels)}."
            )
        yield example
    if not number:
        raise UserError(f"{path} is empty. Expected lines of a label, a TAB and a sentence.")


def _example(line: str, place: str) -> Example:
    label, tab, sentence = line.partition("\t")
    label, sentence = label.strip(), sentence.strip()
    if not tab:
        raise UserError(
            f"{place}: expected a label, a TAB and a sentence. Received: no TAB: "
            f"{quoted(line)}."
        )
    if not label or not sentence:
        missing = "sentence" if label else "label"
        raise UserError(
            f"{place}: expected a label, a TAB and a sentence. Received: no {missing}."
        )
    return Example(sentence, label)


def labels_of(paths: Sequence[Path]) -> list[str]:
    """The labels of training files, in the order of their code points.

    Raises:
        UserError: if there is only one, or as `read_examples` has it.
    """
    labels = sorted({example.label for path in paths for example in read_examples(path)})
    if len(labels) < 2:
        raise UserError(
            f"{', '.join(map(str, paths))}: expected at least two labels. Received: every line "
            f"has {quoted(labels[0])}."
        )
    return labels


def _some(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return f"{', '.join(map(shortened, labels[:SHOWN]))}{more}"
