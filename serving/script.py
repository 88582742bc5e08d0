"""Helpers of the scripts in this folder: texts to send, a client, and errors on one line."""

import http.client
import json
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.data.text import read_lines

Answer = TypeVar("Answer")
Columns = dict[str, list]  # one value per row, by the name of an input or output


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


class ServerError(Exception):
    """No answer, or a wrong one.

    Attributes:
        code: HTTP status, or the name of another failure.
        busy: whether the server asks for another attempt.
    """

    def __init__(self, cause: Exception) -> None:
        self.code = str(getattr(cause, "code", type(cause).__name__))
        self.busy = self.code == "503"
        super().__init__(f"{self.code}: {cause}")


class Client:
    """Asks a model over REST, as TF Serving and `tf-transformer serve` offer it."""

    def __init__(self, url: str, model: str, deadline: float = 60.0) -> None:
        self._url, self._deadline = f"{url.rstrip('/')}/v1/models/{model}:predict", deadline

    def predict(self, inputs: Columns, signature: str = "serving_default") -> Columns:
        """Returns the outputs, one value per row; raises ServerError."""
        body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
        try:
            with urllib.request.urlopen(self._url, body, self._deadline) as answer:
                outputs = json.load(answer)["outputs"]
            if len({len(values) for values in (inputs | outputs).values()}) > 1:
                raise ValueError("the answer has another number of rows than the request")
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise ServerError(error) from None
        return outputs


def patiently(ask: Callable[[], Answer], seconds: float) -> Answer:
    """Returns the result of `ask`; for some seconds, asks a busy server again."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ServerError as error:
            if not error.busy or time.monotonic() > end:
                raise
        time.sleep(1.0)
