"""Dev text of a classifier: labelled sentences."""

from collections.abc import Sequence
from pathlib import Path

from tf_transformer.evaluation.comparison import DevText
from tf_transformer.evaluation.metrics import Ratio
from tf_transformer.run import Run
from tf_transformer.tasks.classification.labelled import read_examples, require_labels


def read_dev_text(run: Run, source: None, reference: Path) -> DevText:
    """Reads dev text, of which accuracy is computed.

    Args:
        run: the run whose export it is for.
        source: no file, since the lines of `reference` have their sentences.
        reference: file of lines of a label, a TAB and a sentence.

    Raises:
        UserError: as `read_examples` does.
    """
    sentences, labels = zip(*read_examples(reference, require_labels(run)), strict=True)

    def parts(given: Sequence[str]) -> list[tuple[int, int]]:
        return [(100 * (one == other), 1) for one, other in zip(given, labels, strict=True)]

    return DevText(sentences, Ratio("accuracy", "exact", parts), "label")
