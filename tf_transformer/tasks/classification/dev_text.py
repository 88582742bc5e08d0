"""Dev text of a classifier: labelled sentences."""

from collections.abc import Sequence
from pathlib import Path

from tf_transformer.evaluation.comparison import DevText
from tf_transformer.evaluation.metrics import Ratio
from tf_transformer.run import Run
from tf_transformer.tasks.classification.labelled import read_examples, require_labels


def read_dev_text(run: Run, source: None, reference: Path) -> DevText:
    """Reads dev text to be scored by accuracy.

    Args:
        run: the run to export.
        source: None, since `reference` has the sentences as well.
        reference: file with a label, a TAB and a sentence on each line.

    Raises:
        UserError: see `read_examples`.
    """
    sentences, labels = zip(*read_examples(reference, require_labels(run)), strict=True)

    def parts(predicted: Sequence[str]) -> list[tuple[int, int]]:
        pairs = zip(predicted, labels, strict=True)
        return [(100 * (label == correct), 1) for label, correct in pairs]

    return DevText(sentences, Ratio("accuracy", "exact", parts), "label")
