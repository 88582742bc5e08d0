"""Records of a run, one JSON object per line: evaluations, and changes between sessions."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError, shortened
from tf_transformer.base.files import parse_json, write_text
from tf_transformer.data.text import read_errors

Record = dict[str, Any]

# What readers of evaluations and of test results rely on.
_EVALUATION = ("step", "valid_perplexity", "dev_set", "train_seconds", "tokens_per_second")
_RESULT = (
    "files", "lines", "checkpoint", "ensemble", "tag", "precision", "litert", "decoding",
    "scores", "seen",
)  # fmt: skip

# Dev scores below these are noise, in which perplexity still tells better weights.
_NOISE = {"bleu": 1.0, "chrf": 1.0}

_LARGEST = 2**53  # whole numbers up to here are exact as floats


# --- Evaluations ---------------------------------------------------------------------------


def score_of(record: Record, best_by: str) -> float:
    """Returns the score that `training.best_by` compares; higher is better."""
    value = record[f"valid_{best_by}"]
    return -value if best_by == "perplexity" else value


def rank_of(record: Record, best_by: str) -> tuple[float, float]:
    """Returns what orders evaluations, better ones higher: the score, and 0.0 beside it.

    Where the score is noise it counts as 0.0, and the perplexity decides. A perplexity is none,
    nor is a score of the user's own, which may be negative.
    """
    score = score_of(record, best_by)
    if score < _NOISE.get(best_by, -math.inf):
        return 0.0, score_of(record, "perplexity")
    return score, 0.0


def comparable(history: Sequence[Record], dev_set: str | None = None) -> list[Record]:
    """Selects the records of evaluations on a dev set, by default that of the last record."""
    if dev_set is None and history:
        dev_set = history[-1]["dev_set"]
    return [record for record in history if record["dev_set"] == dev_set]


def line(record: Record, headline: str, is_best: bool) -> str:
    """Formats an evaluation for the console."""
    mark = "  best" if is_best else ""
    return (
        f"step {record['step']:>6,}  loss {record['loss']:.3f}  "
        f"perplexity {record['perplexity']:.2f}  dev perplexity "
        f"{record['valid_perplexity']:.2f}  dev {headline}  "
        f"{record['tokens_per_second']:,.0f} tokens/s{mark}"
    )


def write_tensorboard(folder: str, record: Record) -> None:
    """Appends an evaluation to the TensorBoard logs in `folder`."""
    import tensorflow as tf  # here, so that commands that only read records need not wait

    try:
        writer = tf.summary.create_file_writer(folder)
        with writer.as_default(step=record["step"]):
            for name, value in record.items():
                if name != "dev_set":
                    tf.summary.scalar(name, value)
        writer.close()
    except tf.errors.OpError as error:
        reason = str(error.message).splitlines()[0]
        raise UserError(f"Cannot write {folder}: {reason}. Free some space.") from error


# --- Files -----------------------------------------------------------------------------------


def read_history(path: Path, *required: str) -> list[Record]:
    """Reads the evaluations of a metrics.jsonl, oldest first; none if the file is missing.

    Raises UserError if a line is not a JSON object with all fields of an evaluation and the
    names that are `required`, or has a value that cannot be compared; or if steps are not in
    order.
    """
    names = (*_EVALUATION, *required)
    records = _read_lines(path, names, lambda record: record.keys() - {"dev_set"})
    for number, (before, after) in enumerate(itertools.pairwise(records), start=2):
        if after["step"] <= before["step"]:
            raise UserError(
                f"{path}:{number}: expected a step after {before['step']:,}. Received: "
                f"{after['step']:,}. Keep one line for each step, in order."
            )
    return records


def read_changes(path: Path) -> list[Record]:
    """Reads the changes of a changes.jsonl, oldest first; UserError for an invalid line."""
    return _read_lines(path, ("step", "what", "from", "to"), lambda _: {"step"})


def read_results(path: Path) -> list[Record]:
    """Reads the results of a results.jsonl, oldest first; UserError for an invalid line."""
    return _read_lines(path, _RESULT, lambda _: ())


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Replaces the content of a file by records, one JSON object per line."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def _is_number(name: str, value: object) -> bool:
    """Tells whether a value is finite, but for perplexities, and whole if it is the step."""
    if name == "step" or type(value) is int:  # not bool
        return type(value) is int and 0 <= value <= _LARGEST
    endless = "perplexity" in name and value == math.inf  # of a hopeless model
    return isinstance(value, float) and (math.isfinite(value) or endless)


def _read_lines(
    path: Path, names: Sequence[str], numbers: Callable[[Record], Iterable[str]]
) -> list[Record]:
    """Reads JSON objects with these names, one per line; some values must be `numbers`."""
    with read_errors(path):
        lines = path.read_bytes().splitlines() if path.exists() else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_json(line)
        except ValueError:
            record = None
        expected = f"a JSON object with {', '.join(names)}"
        if isinstance(record, dict) and record.keys() >= {*names}:
            wrong = [name for name in numbers(record) if not _is_number(name, record[name])]
            kinds = [f"a {'whole' if n == 'step' else 'finite'} number as {n}" for n in wrong]
            expected = " and ".join(sorted(kinds))
        if expected:
            shown = shortened(line.decode(errors="replace"), 60)
            raise UserError(
                f"{path}:{number}: expected {expected}. Received: {shown!r}. Restore the line, "
                "or delete it."
            )
        records.append(record)
    return records
