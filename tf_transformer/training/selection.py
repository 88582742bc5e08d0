"""The best weights of a run, best.npz: chosen by scores on one dev set, restored if damaged."""

import logging
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.run import Run
from tf_transformer.run.checkpoints import CheckpointFolder, is_valid
from tf_transformer.run.records import Record, comparable, score_of
from tf_transformer.run.weight_files import best_dev_set, best_scores, read_record, save_best

logger = logging.getLogger(__name__)

NOT_EVALUATED = "its average.npz is not evaluated"


class BestWeights:
    """The file best.npz, and the scores that decide its content.

    Args:
        folder: the checkpoints of the run.
        best_by: name of the deciding score; higher is better.
        dev_set: name of the current dev set; scores on others do not count.
    """

    def __init__(self, folder: CheckpointFolder, best_by: str, dev_set: str) -> None:
        self.folder = folder
        self.best_by = best_by
        self.dev_set = dev_set

    def offer(self, path: Path, record: Record, history: Sequence[Record]) -> bool:
        """Keeps weights if they are better than the best so far; returns whether they are.

        Args:
            path: file of the weights.
            record: record of their evaluation.
            history: records of earlier evaluations.
        """
        self.mend(history)
        best, score = self._score(), score_of(record, self.best_by)
        if best is not None and best >= score:
            return False
        save_best(path, self.folder.best, {self.best_by: score}, self.dev_set)
        return True

    def mend(self, history: Sequence[Record]) -> None:
        """Restores best.npz from the best step kept, if it is damaged or worse than that."""
        records = comparable(history, self.dev_set)
        if not records:
            return
        records = sorted(records, key=self._score_of, reverse=True)
        best, problem = self._score(), self._problem()
        better = [record for record in records if best is None or self._score_of(record) > best]
        kept = next((record for record in better if is_valid(self._path(record))), None)
        path = None
        if kept:
            path, score = self._path(kept), self._score_of(kept)
            save_best(path, self.folder.best, {self.best_by: score}, self.dev_set)
        if path and path == self._path(records[0]):
            logger.warning("%s %s: restored from %s", self.folder.best, problem, path.name)
        elif path or best is None:
            logger.warning(
                "%s %s, and the weights of step %s, the best, are no longer kept, so they are "
                "lost. %s",
                self.folder.best, problem, f"{records[0]['step']:,}",
                f"{path.name}, the best of those kept, takes its place" if path else
                "The next evaluation replaces it",
            )  # fmt: skip

    def patience_used_up(self, history: Sequence[Record], patience: int) -> bool:
        """Tells whether the last `patience` evaluations brought no better score; False if 0."""
        scores = [self._score_of(record) for record in comparable(history, self.dev_set)]
        return 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience])

    def _path(self, record: Record) -> Path:
        return self.folder.step_path(record["step"])

    def _score_of(self, record: Record) -> float:
        return score_of(record, self.best_by)

    def _score(self) -> float | None:
        """Returns the score of best.npz on the current dev set; None if there is none."""
        if best_dev_set(self.folder.best) != self.dev_set:
            return None
        return best_scores(self.folder.best).get(self.best_by)

    def _problem(self) -> str:
        if not self.folder.best.exists():
            return "is gone"
        if not is_valid(self.folder.best):
            return "is damaged"
        return "does not hold the best weights on this dev set"


def what_is_unfinished(run: Run, steps: int) -> str:
    """Returns why a run is not finished, for a message; "" if it is.

    Training ends at `steps` or when patience runs out; last, the average is evaluated.
    """
    average = run.checkpoints.average
    evaluated = read_record(average)
    records = [evaluated] if evaluated else run.history()
    reached = max((record["step"] for record in records), default=0)
    if reached < steps and not _is_out_of_patience(run):
        return "its training has not ended"
    if evaluated:
        return ""
    return NOT_EVALUATED if average.exists() else "its average.npz is missing"


def _is_out_of_patience(run: Run) -> bool:
    """Tells whether a run has no better score in its last `training.patience` evaluations."""
    training, history = run.config.training, run.history()
    # Without files it is the built-in dev set, which only the records name.
    dev_set = run.texts.get("valid") or (history[-1]["dev_set"] if history else "")
    best = BestWeights(run.checkpoints, training.best_by, dev_set)
    return best.patience_used_up(history, training.patience)
