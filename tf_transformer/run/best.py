"""The best weights of a run, and what stands beside them in their file: scores and dev set."""

import logging
import math
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
from tf_transformer.run.records import Record, comparable, rank_of, score_of

logger = logging.getLogger(__name__)

# Entries of best.npz and of averages beside the weights.
_DEV_SET = "dev_set"
_BEST, _RECORD = "best/", "record/"

Rank = tuple[float, float]  # of `rank_of`


@dataclass(frozen=True)
class Marks:
    """Entries beside the weights in their file."""

    # Evaluation of averaged or another run's weights; empty for others, which the history has.
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


def record_in(path: Path) -> Record:
    """Reads the evaluation of averaged weights, or of another run's; empty without one."""
    return (read_marks(path) or Marks()).record


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
        self._said = False  # that perplexity decides

    def offer(self, path: Path, record: Record, history: Sequence[Record]) -> bool:
        """Keeps weights if they are better than the best so far; returns whether they are.

        They are in `path`; `record` is of their evaluation, and `history` of earlier ones.
        """
        best, rank = self.mend(history), self._rank_of(record)
        if rank[1] and not self._said:
            self._said = True
            text = "dev %s is too low to compare: perplexity decides which weights are best"
            logger.info(text, self.best_by)
        if best is not None and best >= rank:
            return False
        self._save(path, record)
        return True

    def corrected(self, history: Sequence[Record]) -> list[Record]:
        """Returns the records with the scores in the steps' files, which have checksums."""
        text = "metrics.jsonl has %s %s for %s, whose checkpoint has %s, which counts"
        records = []
        for record in history:
            path, scores = self._path(record), {}
            with suppress(UserError):  # not kept, or damaged
                scores = {name: s.item() for name, s in read_named(path, SCORE).items()}
            for name in scores:
                if scores[name] != record[name]:
                    logger.warning(text, name, record[name], path.stem, scores[name])
            records.append(record | scores)
        return records

    def mend(self, history: Sequence[Record]) -> Rank | None:
        """Restores best.npz from the best step kept, if it is damaged or worse than that.

        Weights of another run, with which training began, count like those of a step.

        Returns the rank of best.npz on the current dev set; None if there is none.
        """
        marks = read_marks(self.folder.best)
        best = self._known_rank(marks, history) if marks else None
        start = record_in(self.folder.step_path(0))
        records = comparable([*filter(None, [start]), *history], self.dev_set)
        records.sort(key=self._rank_of, reverse=True)
        better = [record for record in records if best is None or self._rank_of(record) > best]
        if not better:
            return best
        problem = "does not hold the best weights on this dev set"
        if marks is None:
            problem = "is damaged" if self.folder.best.exists() else "is gone"
        kept = next((record for record in better if is_valid(self._path(record))), None)
        if kept:
            path, best = self._path(kept), self._rank_of(kept)
            self._save(path, kept)
            lost = f"; better ones, of step {records[0]['step']:,}, are no longer kept"
            lost = "" if kept is records[0] else lost
            text = "%s %s: restored from %s%s"
            if history:  # before the first evaluation the start is the best
                logger.warning(text, self.folder.best, problem, path.name, lost)
        elif best is None:
            text = "%s %s, and its weights are no longer kept: the next evaluation replaces it"
            logger.warning(text, self.folder.best, problem)
        return best

    def patience_used_up(self, history: Sequence[Record], patience: int) -> bool:
        """Tells whether the last `patience` evaluations brought no better score; False if 0."""
        ranks = [self._rank_of(record) for record in comparable(history, self.dev_set)]
        return 0 < patience < len(ranks) and max(ranks[-patience:]) <= max(ranks[:-patience])

    def _path(self, record: Record) -> Path:
        return self.folder.step_path(record["step"])

    def _rank_of(self, record: Record) -> Rank:
        return rank_of(record, self.best_by)

    def _save(self, path: Path, record: Record) -> None:
        scores = {name: score_of(record, name) for name in (self.best_by, "perplexity")}
        save_best(path, self.folder.best, scores, self.dev_set)

    def _known_rank(self, marks: Marks, history: Sequence[Record]) -> Rank | None:
        """Returns the rank of the best weights; None if they are of another dev set."""
        score = marks.scores.get(self.best_by)
        if score is None or marks.dev_set != self.dev_set:
            return None
        # 1.0.0 wrote no perplexity beside the score.
        same = [r for r in (marks.record, *history) if r and score_of(r, self.best_by) == score]
        known = {"perplexity": score_of(same[0], "perplexity") if same else -math.inf}
        known |= marks.scores
        known["perplexity"] = -known["perplexity"]  # back from `score_of`
        return self._rank_of({f"valid_{name}": value for name, value in known.items()})
