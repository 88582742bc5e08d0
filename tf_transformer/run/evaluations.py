"""Evaluations of a run: their records, which one is best, and the line that tells of each."""

from collections.abc import Sequence
from typing import Any

from tf_transformer.errors import UserError

Record = dict[str, Any]


def score_of(record: Record, best_by: str) -> float:
    """What `training.best_by` compares; higher is better."""
    value = record[f"valid_{best_by}"]
    return -value if best_by == "perplexity" else value


def comparable(history: Sequence[Record], dev_set: str | None = None) -> list[Record]:
    """The records of evaluations on one dev set.

    Args:
        history: of a run. A record that names no dev set is of an earlier version, and of the
            present one: when the text changes, training names it in the records so far.
        dev_set: which; by default that of the last record.
    """
    if dev_set is None:
        dev_set = history[-1].get("dev_set", "") if history else ""
    return [record for record in history if record.get("dev_set", dev_set) == dev_set]


def line(record: Record, headline: str, is_best: bool, unit: str = "tokens") -> str:
    """An evaluation for the console; `unit` is what has a label of its own."""
    mark = "  best" if is_best else ""
    return (
        f"step {record['step']:>6,}  loss {record['loss']:.3f}  "
        f"perplexity {record['perplexity']:.2f}  dev perplexity "
        f"{record['valid_perplexity']:.2f}  dev {headline}  "
        f"{record['tokens_per_second']:,.0f} {unit}/s{mark}"
    )


def write_tensorboard(folder: str, record: Record) -> None:
    """Appends to the TensorBoard logs in `folder`."""
    import tensorflow as tf  # commands that only read records do not wait for it

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
