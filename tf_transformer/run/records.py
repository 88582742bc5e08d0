"""Files of JSON objects, one a line: the evaluations of a run, and what changed in it."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tf_transformer.errors import UserError
from tf_transformer.files import parse_json, write_text

Record = dict[str, Any]

_LARGEST = 2**53  # whole numbers up to here are exact as floats
_SHOWN = 60  # characters of a bad line in its error


def read_history(path: Path, best_by: str, also: Sequence[str] = ()) -> list[Record]:
    """The evaluations in a metrics.jsonl, oldest first; none if there is no file.

    Args:
        path: of the file.
        best_by: the score that chooses the best weights.
        also: what each record must have besides.

    Raises:
        UserError: if a line is no JSON object with a step, finite numbers and these names.
    """
    required = ("step", "valid_perplexity", f"valid_{best_by}", *also)

    def check(record: Record) -> str:
        for name in required:
            if name not in record:
                return f"a record with {name}"
        for name, value in record.items():
            if name == "dev_set" and isinstance(value, str):
                continue
            if not _is_number(value, infinite="perplexity" in name):
                return f"a number as {name}"
        whole = isinstance(record["step"], int) and record["step"] >= 0
        return "" if whole else "a whole number as step"

    return _read_lines(path, check)


def read_changes(path: Path) -> list[Record]:
    """The changes in a changes.jsonl, oldest first; none if there is no file.

    Raises:
        UserError: if a line is no JSON object with step, what, from and to.
    """

    def check(record: Record) -> str:
        missing = [name for name in ("step", "what", "from", "to") if name not in record]
        if missing:
            return f"a record with {missing[0]}"
        return "" if _is_number(record["step"]) else "a number as step"

    return _read_lines(path, check)


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """Replaces a file: one JSON object a line."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def _is_number(value: object, infinite: bool = False) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _LARGEST
    return isinstance(value, float) and (math.isfinite(value) or (infinite and value > 0))


def _read_lines(path: Path, check: Callable[[Record], str]) -> list[Record]:
    """The objects of a file; `check` says what was expected of one that is wrong, else ""."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_json(line)
        except (ValueError, RecursionError):
            record = None
        expected = check(record) if isinstance(record, dict) else "a JSON object"
        if expected:
            shown = line.decode(errors="replace")
            shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
            raise UserError(
                f"{path}:{number}: expected {expected}. Received: {shown!r}. Restore the line, "
                "or delete it."
            )
        records.append(record)
    return records
