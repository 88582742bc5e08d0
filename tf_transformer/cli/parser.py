"""The parser of every command: UTF-8 alone, numbers with bounds, errors of one line."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tf_transformer.config import MAX_COUNT, SAMPLING, SETTINGS
from tf_transformer.config.settings import Bounds, Setting
from tf_transformer.errors import one_line, quoted

Reader = Callable[[str], Any]


# Seconds to wait for an answer: more than a day is a mistake.
DEADLINES = (0.001, 86_400.0)


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that refuses what no file of a run could hold, in one line.

    Every argument is UTF-8, as all text of a run is, and none is empty where a text is
    expected: an empty path would be the current folder.
    """

    def __init__(self, *args, **keywords) -> None:
        super().__init__(*args, **keywords)
        self.register("type", None, _text)

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):
        args = sys.argv[1:] if args is None else args
        for argument in args:
            if any("\ud800" <= char <= "\udfff" for char in argument):
                received = quoted(os.fsencode(argument))
                self.error(f"arguments must be UTF-8. Received: {received}.")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Prints `message` and where to read on; status 2."""
        argument, colon, wrong = message.removeprefix("argument ").partition(": must ")
        if colon:  # from a reader below
            message = f"{argument} must {wrong}"
        end = "" if message.endswith(".") else "."
        self.exit(2, f"error: {one_line(message)}{end} See {self.prog} --help.\n")


def int_from(low: int, high: int = MAX_COUNT) -> Reader:
    """Reads an int within bounds, for the `type` of an argument."""
    return _reader(Setting(int, Bounds(low=low, high=high)))


def integer(text: str) -> int:
    """Reads an int whose bounds depend on a run or a file, where the command checks them."""
    return _reader(Setting(int))(text)


def float_from(low: float, high: float) -> Reader:
    """Reads a number within bounds, for the `type` of an argument."""
    return _reader(Setting(float, Bounds(low=low, high=high)))


def value_of(name: str) -> Reader:
    """Reads what a setting may be, such as "decoding.beam_size" or "temperature"."""
    return _reader((SETTINGS | SAMPLING)[name])


def _reader(allowed: Setting) -> Reader:
    number = int if int in allowed.types else float

    def read(text: str) -> Any:
        try:
            value = number(text)
        except ValueError:  # also of thousands of digits
            value = text
        if not allowed.fits(value):
            raise argparse.ArgumentTypeError(f"must be {allowed}. Received: {quoted(value)}.")
        return value

    return read


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty.")
    return text
