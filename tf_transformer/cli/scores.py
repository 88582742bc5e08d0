"""Output that several commands share: tree and label scores, sentences seen in training."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tf_transformer.cli.terminal import print_report
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tables import Table
from tf_transformer.tasks.parsing.bracket_rules import CUTOFF, DELETED
from tf_transformer.tasks.parsing.brackets import SentenceScore, Status, score_lines, summarise
from tf_transformer.tasks.parsing.linearisation import ROOTS
from tf_transformer.tasks.parsing.trees import read_line

logger = logging.getLogger(__name__)

_COUNTS = ("sentences", "errors", "skipped", "valid")
_FIGURES = (
    "recall", "precision", "f1", "complete_match", "average_crossing", "no_crossing",
    "two_or_less_crossing", "tagging_accuracy",
)  # fmt: skip


def seen_before(
    runs: Sequence[str],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tag: str | None = None,
) -> dict[str, Any]:
    """Logs how many test sentences each run has seen.

    Returns:
        The counts by run; None for a run whose text cannot be read.
    """
    from tf_transformer.tasks.translation.overlap import describe, overlaps

    counts: dict[str, Any] = {}
    for path in runs:
        try:
            by_role = overlaps(Run.open(path), sources, references, tag)
        except UserError as error:
            counts[path] = None
            logger.warning(
                "caution  %s may have seen these lines; not checked: %s", path, error
            )
            continue
        counts[path] = {role: asdict(overlap) for role, overlap in by_role.items()}
        if text := describe(by_role, len(sources)):
            logger.warning("caution  %s has seen these lines: %s", path, text)
    return counts


def print_brackets(gold: Sequence[str], output: Sequence[str], gold_name: str) -> None:
    """Prints the scores of all sentences and of short ones; logs each sentence left out."""
    scores = score_lines(gold, output, gold_name=gold_name)
    for number, score in enumerate(scores, start=1):
        if score.status == Status.ERROR:
            logger.warning("sentence %d is left out: %s", number, score.problem)
    _warn_of_root(gold, gold_name)
    print_report(_bracket_table(scores), style="plain")


def _warn_of_root(gold: Sequence[str], name: str) -> None:
    """Warns if the rules count the gold trees' root as a bracket; parsers output TOP."""
    first = next((line for line in gold if line.strip()), "")
    labels = [tree.label for tree in read_line(first, name)]
    if any(label in ROOTS and label not in DELETED for label in labels):
        logger.warning(
            "warning  the root of the trees in %s is %s, which these rules count as a bracket: "
            "rename it to TOP, unless the output has it too",
            name,
            labels[0] or "a bracket without a label",
        )


def _bracket_table(scores: Sequence[SentenceScore]) -> Table:
    summaries = summarise(scores), summarise(s for s in scores if s.length <= CUTOFF)
    rows = [
        [name.replace("_", " ").replace("f1", "F1")]
        + [format(getattr(each, name), form) for each in summaries]
        for names, form in ((_COUNTS, ",d"), (_FIGURES, ".2f"))
        for name in names
    ]
    return Table(["", "all", f"<= {CUTOFF} words"], rows, "lr")
