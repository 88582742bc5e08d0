"""Helpers of the scripts in this folder: texts to send, and errors on one line."""

import sys
from collections.abc import Callable
from pathlib import Path

from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError, one_line


def run(main: Callable[[], None]) -> None:
    """Runs a script; a user's mistake ends it with one line and status 1."""
    try:
        main()
    except (UserError, OSError) as error:
        sys.exit(f"error: {one_line(error)}")


def sentences(path: Path) -> list[str]:
    """Returns the lines of a file that are not blank; refuses a file without any."""
    lines = [line for line in read_lines(path) if line.strip()]
    if not lines:
        raise UserError(f"{path} must have a line of text.")
    return lines
