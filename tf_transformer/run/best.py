"""The best weights of a run, and what stands beside them in their file: scores and dev set."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.run.checkpoints import (
    SCORE,
    Arrays,
    CheckpointFolder,
    is_valid,
    read_arrays,
    read_if_valid,
    read_named,
    write_arrays,
)
from tf_transformer.run.records import Record, comparable, score_of

logger = logging.getLogger(__name__)

# Entries of best.npz and of averages beside the weights.
_DEV_SET = "dev_set"
_BEST, _RECORD = "best/", "record/"


@dataclass(frozen=True)
class Marks:
    """Entries beside the weights in their file."""

    # Evaluation of averaged weights; empty for others, which the history has.
    record: Record = field(default_factory=dict)
    # The scores that chose the best weights, by name, and their dev set; empty for others.
    scores: dict[str, float] = field(default_factory=dict)
    dev_set: str | None = None


def read_marks(path: Path) -> Marks | None:
    """Reads what stands beside weights; None if the file is missing or damaged."""
    marks = read_if_valid(path, _RECORD, _BEST, _DEV_SET)
    if marks is None:
        return None
    values = {name: value.item() for name, value in marks.items()}
    record, scores = (
        {name.removeprefix(kind): values[name] for name in values if name.startswith(kind)}
        for kind in (_RECORD, _BEST)
    )
    return Marks(record, scores, values.get(_DEV_SET))


def add_record(path: Path, record: Record) -> None:
    """Adds the evaluation of averaged weights to their file; a step's is in the history."""
    values = {f"{_RECORD}{name}": np.array(value) for name, value in record.items()}
    write_arrays(path, read_arrays(path, prefix="model/") | values)


def save_best(source: Path, best: Path, scores: dict[str, float], dev_set: str) -> None:
    """Copies weights to best.npz, with the scores that chose them and their dev set."""
    marks: Arrays = {f"{_BEST}{name}": np.array(score, float) for name, score in scores.items()}
    marks[_DEV_SET] = np.array(dev_set)
    write_arrays(best, read_arrays(source, prefix=("model/", _RECORD)) | marks)


class BestWeights:
    """The file best.npz, and the scores that decide its content.

    `best_by` names the deciding score; scores on others than the current dev set do not count.
    """

    def __init__(self, folder: CheckpointFolder, best_by: str, dev_set: str) -> None:
        self.folder = folder
        self.best_by = best_by
        self.dev_set = dev_set

    def offer(self, path: Path, record: Record, history: Sequence[Record]) -> bool:
        """Keeps weights if they are better than the best so far; returns whether they are.

        They are in `path`; `record` is of their evaluation, and `history` of earlier ones.
        """
        best, score = self.mend(history), score_of(record, self.best_by)
        if best is not None and best >= score:
            return False
        save_best(path, self.folder.best, {self.best_by: score}, self.dev_set)
        return True

    def corrected(self, history: Sequence[Record]) -> list[Record]:
        """Returns the records with the scores in the steps' files, which have checksums."""
        name, records = f"valid_{self.best_by}", []
        for record in history:
            path, score = self._path(record), record[name]
            with suppress(UserError, KeyError):  # not kept, damaged or without a score
                score = read_named(path, SCORE)[name].item()
            if score != record[name]:
                text = "metrics.jsonl has %s %s for %s, whose checkpoint has %s, which counts"
                logger.warning(text, name, record[name], path.stem, score)
            records.append(record | {name: score})
        return records

    def mend(self, history: Sequence[Record]) -> float | None:
        """Restores best.npz from the best step kept, if it is damaged or worse than that.

        Returns the score of best.npz on the current dev set; None if there is none.
        """
        marks = read_marks(self.folder.best)
        same_text = marks is not None and marks.dev_set == self.dev_set
        best = marks.scores.get(self.best_by) if marks and same_text else None
        records = sorted(comparable(history, self.dev_set), key=self._score_of, reverse=True)
        better = [record for record in records if best is None or self._score_of(record) > best]
        if not better:
            return best
        problem = "does not hold the best weights on this dev set"
        if marks is None:
            problem = "is damaged" if self.folder.best.exists() else "is gone"
        kept = next((record for record in better if is_valid(self._path(record))), None)
        if kept:
            path, best = self._path(kept), self._score_of(kept)
            save_best(path, self.folder.best, {self.best_by: best}, self.dev_set)
            lost = f"; better ones, of step {records[0]['step']:,}, are no longer kept"
            lost = "" if kept is records[0] else lost
            text = "%s %s: restored from %s%s"
            logger.warning(text, self.folder.best, problem, path.name, lost)
        elif best is None:
            text = "%s %s, and its weights are no longer kept: the next evaluation replaces it"
            logger.warning(text, self.folder.best, problem)
        return best

    def patience_used_up(self, history: Sequence[Record], patience: int) -> bool:
        """Tells whether the last `patience` evaluations brought no better score; False if 0."""
        scores = [self._score_of(record) for record in comparable(history, self.dev_set)]
        return 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience])

    def _path(self, record: Record) -> Path:
        return self.folder.step_path(record["step"])

    def _score_of(self, record: Record) -> float:
        return score_of(record, self.best_by)
