"""The argument parser of every command: UTF-8 only, bounded numbers, errors in one line."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

from tf_transformer.config import MAX_COUNT, SAMPLING, SETTINGS
from tf_transformer.config.combinations import conflict
from tf_transformer.config.settings import Bounds, Setting
from tf_transformer.errors import one_line, quoted

Reader = Callable[[str], Any]


class _HelpFormatter(argparse.HelpFormatter):
    """Formats help with a usage line that names only the required arguments."""

    def add_usage(self, usage, actions, groups, prefix=None) -> None:
        """Adds the usage."""
        options = argparse.Action(["OPTIONS"], dest="options", nargs=0)
        required = [each for each in actions if each.required or not each.option_strings]
        super().add_usage(usage, [options, *required], [], prefix)


class _RawHelpFormatter(_HelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Like `_HelpFormatter`, but keeps the line breaks of description and epilog."""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` with one-line errors.

    Arguments must be UTF-8, like all text of a run, and not empty: an empty path would mean the
    current folder.
    """

    def __init__(self, *, raw_epilog: bool = False, **keywords) -> None:
        formatter = _RawHelpFormatter if raw_epilog else _HelpFormatter
        super().__init__(formatter_class=formatter, **keywords)
        self.register("type", None, _text)

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parses arguments, by default the process's; refuses those that are not UTF-8."""
        arguments = sys.argv[1:] if arguments is None else arguments
        for argument in arguments:
            if any("\ud800" <= char <= "\udfff" for char in argument):
                received = quoted(os.fsencode(argument))
                self.error(f"arguments must be UTF-8. Received: {received}.")
        options = self.parse_args(arguments)
        names = {action.dest: _flag(action) for action in options.parser._actions}
        message = conflict(given(options), lambda term: _written(term, names), names)
        if message:
            options.parser.error(message)
        return options

    def error(self, message: str) -> NoReturn:
        """Prints `message` and the command for help; exits with status 2."""
        argument, colon, wrong = message.removeprefix("argument ").partition(": must ")
        if colon:  # raised by one of the readers below
            message = f"{argument} must {wrong}"
        end = "" if message.endswith(".") else "."
        self.exit(2, f"error: {one_line(message)}{end} See {self.prog} --help.\n")


def add_command(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """Adds a command's help and arguments, and --traceback; stores `module` and `parser`."""
    parser.description = module.command.__doc__
    module.add_arguments(parser)
    text = "show where in the program an error arose"
    parser.add_argument("--traceback", action="store_true", help=text)
    parser.set_defaults(module=module, parser=parser)


class Once(argparse.Action):
    """Stores a value; refuses a second one instead of replacing the first."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        """Stores `values`."""
        if (first := getattr(namespace, self.dest)) is not None:
            received = f"{quoted(first)} and {quoted(values)}"
            raise argparse.ArgumentError(self, f"must be given once. Received: {received}.")
        setattr(namespace, self.dest, values)


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Returns the options whose values are not the defaults: all, or those of `names`."""
    values = vars(options)
    return {
        action.dest: values[action.dest]
        for action in options.parser._actions
        if action.option_strings
        and (not names or action.dest in names)
        and values.get(action.dest, action.default) != action.default
    }


def given_except(options: argparse.Namespace, *names: str) -> str:
    """Lists the options with non-default values, except `names`, such as "--beam, --alpha"."""
    flags = {action.dest: _flag(action) for action in options.parser._actions}
    return ", ".join(flags[name] for name in given(options) if name not in names)


def _flag(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar)


def _written(term: str, flags: Mapping[str, str]) -> str:
    """Returns a term of `config.combinations` as it is typed, such as "--format litert"."""
    name, _, value = term.partition("=")
    return f"{flags[name]} {value}".rstrip()


def int_from(low: int, high: int = MAX_COUNT) -> Reader:
    """Returns an argument `type`: an int within bounds."""
    return _reader(Setting(int, Bounds(low=low, high=high)))


def integer(text: str) -> int:
    """Reads an int whose bounds depend on a run or a file, so that the command checks them."""
    return _reader(Setting(int))(text)


def float_from(low: float, high: float) -> Reader:
    """Returns an argument `type`: a number within bounds."""
    return _reader(Setting(float, Bounds(low=low, high=high)))


def assignment(text: str) -> str:
    """Reads SECTION.FIELD=VALUE, which `parse_assignments` splits."""
    if "=" not in text:
        message = "must be SECTION.FIELD=VALUE, such as model.dropout=0.3. Received: "
        raise argparse.ArgumentTypeError(f"{message}{quoted(text)}.")
    return text


def value_of(name: str) -> Reader:
    """Returns an argument `type`: the value of a setting, such as "decoding.beam_size"."""
    return _reader((SETTINGS | SAMPLING)[name])


def _reader(allowed: Setting) -> Reader:
    number = int if int in allowed.types else float

    def read(text: str) -> Any:
        try:
            value: float | str = number(text)
        except ValueError:  # also for thousands of digits
            value = text
        if not allowed.fits(value):
            raise argparse.ArgumentTypeError(f"must be {allowed}. Received: {quoted(value)}.")
        return value

    return read


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty.")
    return text
