"""Records of a run, one JSON object per line: evaluations, and changes between sessions."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tf_transformer.config import Config
from tf_transformer.errors import UserError, shortened
from tf_transformer.files import write_text

Record = dict[str, Any]

_LARGEST = 2**53  # whole numbers up to here are exact as floats

# What readers of evaluations and of test results rely on.
_EVALUATION = ("step", "valid_perplexity", "dev_set", "train_seconds", "tokens_per_second")
_RESULT = (
    "files", "lines", "checkpoint", "ensemble", "tag", "precision", "litert", "decoding",
    "scores", "seen",
)  # fmt: skip

# Settings, or beginnings of them, that may change between sessions: none of them affects the
# model, its loss or the state of its optimizer.
_CHANGEABLE = (
    "preset",
    "decoding.",
    "training.steps",
    "training.batch_tokens",
    "training.max_tokens_per_device",
    "training.recompute",
    "training.learning_rate_scale",
    "training.warmup_steps",
    "training.clip_norm",
    "training.evaluate_every",
    "training.keep_last",
    "training.average_last",
    "training.patience",
    "training.save_minutes",
    "training.deterministic",
)
_SET_BY_TRAINING = ("model.source_positions", "model.target_positions")


# --- Evaluations ---------------------------------------------------------------------------


def score_of(record: Record, best_by: str) -> float:
    """Returns the score that `training.best_by` compares; higher is better."""
    value = record[f"valid_{best_by}"]
    return -value if best_by == "perplexity" else value


def comparable(history: Sequence[Record], dev_set: str | None = None) -> list[Record]:
    """Selects the records of evaluations on one dev set.

    Args:
        history: records of a run.
        dev_set: identity of the dev set; by default that of the last record.
    """
    if dev_set is None and history:
        dev_set = history[-1]["dev_set"]
    return [record for record in history if record["dev_set"] == dev_set]


def line(record: Record, headline: str, is_best: bool, unit: str = "tokens") -> str:
    """Formats an evaluation for the console; `unit` is what its speed counts."""
    mark = "  best" if is_best else ""
    return (
        f"step {record['step']:>6,}  loss {record['loss']:.3f}  "
        f"perplexity {record['perplexity']:.2f}  dev perplexity "
        f"{record['valid_perplexity']:.2f}  dev {headline}  "
        f"{record['tokens_per_second']:,.0f} {unit}/s{mark}"
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

    Raises:
        UserError: if a line is not a JSON object with a step, finite numbers and the names
            that are `required`.
    """

    def check(record: Record) -> str:
        if expected := _lacking(record, *_EVALUATION, *required):
            return expected
        for name, value in record.items():
            if name == "dev_set" and isinstance(value, str):
                continue
            if not _is_number(value, infinite="perplexity" in name):
                return f"a number as {name}"
        whole = isinstance(record["step"], int) and record["step"] >= 0
        return "" if whole else "a whole number as step"

    return _read_lines(path, check)


def read_changes(path: Path) -> list[Record]:
    """Reads the changes of a changes.jsonl, oldest first; none if the file is missing.

    Raises:
        UserError: if a line is not a JSON object with step, what, from and to.
    """

    def check(record: Record) -> str:
        lacking = _lacking(record, "step", "what", "from", "to")
        return lacking or ("" if _is_number(record["step"]) else "a number as step")

    return _read_lines(path, check)


def read_results(path: Path) -> list[Record]:
    """Reads the test results of a results.jsonl, oldest first; none if the file is missing.

    Raises:
        UserError: if a line is not a JSON object with all fields of a result.
    """
    return _read_lines(path, lambda record: _lacking(record, *_RESULT))


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """Replaces the content of a file by records, one JSON object per line."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def _lacking(record: Record, *names: str) -> str:
    """Returns "a record with NAME" for the first missing name; "" if the record has all."""
    return next((f"a record with {name}" for name in names if name not in record), "")


def _is_number(value: object, infinite: bool = False) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _LARGEST
    return isinstance(value, float) and (math.isfinite(value) or (infinite and value > 0))


def _read_lines(path: Path, check: Callable[[Record], str]) -> list[Record]:
    """Reads JSON objects, one per line; `check` returns what a bad one should have been."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        expected = check(record) if isinstance(record, dict) else "a JSON object"
        if expected:
            shown = shortened(line.decode(errors="replace"), 60)
            raise UserError(
                f"{path}:{number}: expected {expected}. Received: {shown!r}. Restore the line, "
                "or delete it."
            )
        records.append(record)
    return records


# --- Changes between sessions ---------------------------------------------------------------


def forbidden_changes(stored: Config, current: Config, allowed: Iterable[str]) -> list[str]:
    """Lists changed settings that must stay the same, as "NAME was X, now Y"."""
    return differences(stored, current, lambda name: name.startswith((*_CHANGEABLE, *allowed)))


def differences(stored: Config, current: Config, ignored: Callable[[str], bool]) -> list[str]:
    """Lists the settings that differ and are not `ignored`, as "NAME was X, now Y"."""
    return [
        f"{name} was {before!r}, now {now!r}"
        for name, before, now in changed(stored, current)
        if not ignored(name)
    ]


def changed(stored: Config, current: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name and both values of each setting that differs.

    Trained positions do not count, which training sets itself, nor do decoder depths that are
    equal but written differently.
    """
    before, now = stored.flat(), current.flat()
    if stored.model.num_decoder_layers == current.model.num_decoder_layers:
        now["model.decoder_layers"] = before["model.decoder_layers"]
    for name in now:
        if name not in _SET_BY_TRAINING and now[name] != before[name]:
            yield name, before[name], now[name]
