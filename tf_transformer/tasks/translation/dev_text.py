"""Dev text of a translation model: sentences and their translations."""

from pathlib import Path

from tf_transformer.data.corpus import read_pairs
from tf_transformer.errors import UserError
from tf_transformer.evaluation.comparison import DevText
from tf_transformer.evaluation.metrics import make_metric
from tf_transformer.run import Run


def read_dev_text(run: Run, source: Path, reference: Path) -> DevText:
    """Reads dev text to be scored by BLEU.

    Args:
        run: the run to export.
        source: file of sentences.
        reference: file of their translations.

    Raises:
        UserError: if a file cannot be read or is empty, or they differ in length.
    """
    pairs = list(read_pairs(source, reference))
    if not pairs:
        raise UserError(f"{source} and {reference} are empty. Expected at least one line.")
    sources, references = zip(*pairs, strict=True)
    return DevText(sources, make_metric("bleu", sources, [references]), "translation")
