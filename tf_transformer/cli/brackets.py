"""What `tf-transformer evaluate --brackets` prints: parsing scores of two files of trees."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.data.corpus import read_lines
from tf_transformer.tasks.parsing.bracket_rules import COLLINS, Rules, read_rules
from tf_transformer.tasks.parsing.brackets import SentenceScore, Status, score_lines, summarise
from tf_transformer.tasks.parsing.linearisation import ROOTS
from tf_transformer.tasks.parsing.trees import read_line

logger = logging.getLogger(__name__)

_COUNTS = ("sentences", "errors", "skipped", "valid")
_FIGURES = (
    "recall", "precision", "f1", "complete_match", "average_crossing", "no_crossing",
    "two_or_less_crossing", "tagging_accuracy",
)  # fmt: skip


def rules_of(path: str | None) -> Rules:
    """The rules of a parameter file, Collins's without one."""
    return COLLINS if path is None else read_rules(read_lines(Path(path)), path)


def print_brackets(gold: Sequence[str], output: Sequence[str], rules: Rules, gold_name: str):
    """The scores of all sentences and of short ones; a log line for each that is left out."""
    scores = score_lines(gold, output, rules, gold_name=gold_name)
    for number, score in enumerate(scores, start=1):
        if score.status == Status.ERROR:
            logger.warning("sentence %d is left out: %s", number, score.problem)
    _warn_of_root(gold, rules, gold_name)
    sys.stdout.write(_table(scores, rules.cutoff))


def _warn_of_root(gold: Sequence[str], rules: Rules, name: str) -> None:
    """Says where the root of the gold trees, which a parser calls TOP, counts as a bracket."""
    first = next((line for line in gold if line.strip()), "")
    labels = [tree.label for tree in read_line(first, name)]
    if any(label in ROOTS and rules.counts(label) for label in labels):
        logger.warning(
            "warning  the trees in %s are under %s, which counts as a bracket by these rules: "
            "rename it to TOP, unless the output has it too",
            name,
            labels[0] or "a bracket without a label",
        )


def _table(scores: Sequence[SentenceScore], cutoff: int) -> str:
    both = summarise(scores), summarise(s for s in scores if s.length <= cutoff)
    lines = [("", "all", f"<= {cutoff} words")]
    for name in _COUNTS:
        lines.append((name, *(f"{getattr(part, name):,}" for part in both)))
    for name in _FIGURES:
        label = "F1" if name == "f1" else name.replace("_", " ")
        lines.append((label, *(f"{getattr(part, name):.2f}" for part in both)))
    return "".join(f"{name:20} {all_:>8} {short:>12}\n" for name, all_, short in lines)
