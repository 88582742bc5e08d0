"""Dev text of a parser: gold trees, and the sentences of their words."""

from collections.abc import Sequence
from pathlib import Path

from tf_transformer.evaluation.comparison import DevText
from tf_transformer.evaluation.metrics import Ratio
from tf_transformer.run import Run
from tf_transformer.tasks.parsing.bracket_rules import COLLINS
from tf_transformer.tasks.parsing.brackets import score_sentence
from tf_transformer.tasks.parsing.treebank import pair_of, read_treebank
from tf_transformer.tasks.parsing.trees import read_line


def read_dev_text(run: Run, source: None, reference: Path) -> DevText:
    """Reads dev text to be scored by F1, with Collins's rules as in training.

    Args:
        run: the run to export.
        source: None, since the trees in `reference` have the words as well.
        reference: file of trees in Penn brackets.

    Raises:
        UserError: see `read_treebank`.
    """
    gold = list(read_treebank(reference))

    def parts(trees: Sequence[str]) -> list[tuple[int, int]]:
        """Returns numerators and denominators of F1, 2 matched / (gold + output), in %."""
        pairs = zip(gold, trees, strict=True)
        scores = [score_sentence((tree,), read_line(line), COLLINS) for tree, line in pairs]
        return [(200 * each.matched, each.gold + each.output) for each in scores]

    sentences = [pair_of(tree)[0] for tree in gold]
    return DevText(sentences, Ratio("F1", "evalb's rules COLLINS", parts), "tree")
