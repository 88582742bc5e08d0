"""Dev text of a parser: trees, whose words it parses."""

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
    """Reads dev text, of which F1 is computed, by Collins's rules as in training.

    Args:
        run: the run whose export it is for.
        source: no file, since trees have their words.
        reference: file of trees in Penn brackets.

    Raises:
        UserError: as `read_treebank` does.
    """
    gold = list(read_treebank(reference))

    def parts(trees: Sequence[str]) -> list[tuple[int, int]]:
        """Returns above and below the line in F1 = 2 matched / (brackets of both)."""
        pairs = zip(gold, trees, strict=True)
        scores = [score_sentence((tree,), read_line(line), COLLINS) for tree, line in pairs]
        return [(200 * each.matched, each.gold + each.output) for each in scores]

    sentences = [pair_of(tree)[0] for tree in gold]
    return DevText(sentences, Ratio("F1", "evalb's rules COLLINS", parts), "tree")
