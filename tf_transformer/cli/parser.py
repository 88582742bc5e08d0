"""The argument parser of every command: UTF-8 only, bounded numbers, errors in one line."""

import argparse
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from tf_transformer.base.errors import one_line, quoted
from tf_transformer.config import MAX_COUNT, SAMPLING, SEARCH, SETTINGS
from tf_transformer.config.combinations import conflict
from tf_transformer.config.settings import Bounds, Setting, parse_value

Reader = Callable[[str], Any]


class CommandParser(argparse.ArgumentParser):
    """An `ArgumentParser` with one-line errors.

    Arguments must be UTF-8, like all text of a run, and not empty: an empty path would mean the
    current folder.
    """

    def __init__(self, **keywords) -> None:
        super().__init__(**keywords)
        self.register("type", None, _text)
        self.register("action", None, _StoreOnce)
        self.set_defaults(parser=self)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parses arguments; refuses those that are not UTF-8 or do not combine."""
        for argument in arguments:
            if any("\ud800" <= char <= "\udfff" for char in argument):
                received = quoted(os.fsencode(argument))
                self.error(f"arguments must be UTF-8. Received: {received}.")
        options, rest = self.parse_known_args(arguments)
        flags = {action.dest: flag(action) for action in actions(self)}
        if rest:
            hint = " Text is read from stdin: < FILE." if "line_buffered" in flags else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}.{hint}")

        def written(term: str) -> str:
            name, _, value = term.partition("=")
            return f"{flags[name]} {value}".rstrip()

        if message := conflict(given_options(options), written, flags):
            self.error(message)
        return options

    def error(self, message: str) -> NoReturn:
        """Prints `message` and the command for help; exits with status 2."""
        message = message.removeprefix("argument ").replace(": must ", " must ", 1)
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"error: {one_line(message)}{end} See {self.prog} --help.\n")


class _StoreOnce(argparse._StoreAction):
    """Stores a value; refuses a second one instead of replacing the first."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        if option_string and (first := getattr(namespace, self.dest)) is not self.default:
            received = f"{quoted(first)} and {quoted(values)}"
            raise argparse.ArgumentError(self, f"must be given once. Received: {received}.")
        super().__call__(parser, namespace, values, option_string)


class RemovedOption(argparse.Action):
    """An option of the release before; refuses it and says what to type: its `const`."""

    def __init__(self, option_strings, dest, const) -> None:
        hidden = argparse.SUPPRESS
        super().__init__(option_strings, hidden, "?", const, default=hidden, help=hidden)

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        """Exits with status 2."""
        parser.error(f"{option_string} is no longer there. Type: {self.const}")


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields the arguments of a parser, except --help, --version of all and --traceback."""
    for action in parser._actions:  # argparse has no public list
        if action.default != argparse.SUPPRESS and action.dest != "traceback":
            yield action


def flag(action: argparse.Action) -> str:
    """Returns the name of an argument, such as "--beam" or "RUN"."""
    return action.option_strings[-1] if action.option_strings else str(action.metavar)


def usage(action: argparse.Action) -> str:
    """Formats an argument with its value, such as "--beam W", "RUN ..." or "[RUN]"."""
    choices = f"{{{','.join(action.choices)}}}" if action.choices else ""
    value = str(action.metavar or choices or action.dest.upper())
    forms: dict[object, str] = {"+": f"{value} ...", "?": f"[{value}]", 0: ""}
    return " ".join([*action.option_strings[-1:], forms.get(action.nargs, value)]).rstrip()


def given_options(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Returns the options whose values are not the defaults: all, or those of `names`."""
    return {
        action.dest: getattr(options, action.dest)
        for action in actions(options.parser)
        if getattr(options, action.dest) != action.default
        and (not names or action.dest in names)
    }


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


def options_of(group: str) -> dict[str, Setting]:
    """Returns the settings that have an option in a group of --help, by their names."""
    known = SETTINGS | SEARCH | SAMPLING
    return {name: it for name, it in known.items() if it.flag and it.group == group}


def add_setting(group, dest: str, setting: Setting, end: str = "", **more: Any) -> None:
    """Adds the option of a setting to a group, with its bounds and help, followed by `end`.

    An option of a list may be repeated. `more` may have another flag, and arguments of
    `add_argument` that replace others.
    """
    option, _, metavar = more.pop("flag", setting.flag).partition(" ")
    how: dict[str, Any] = {"dest": dest, "help": setting.help + end}
    how |= {"choices": setting.choices} if setting.choices else {"metavar": metavar}
    if setting.type == tuple[str, ...]:
        how |= {"action": "append", "help": f"{setting.help}; repeatable{end}"}
    elif {bool, int, float} & {*setting.types}:
        how["type"] = _reader(setting)
    group.add_argument(option, **how | more)


def value_of(name: str) -> Reader:
    """Returns an argument `type`: the value of a setting, such as "decoding.beam_size"."""
    return _reader((SETTINGS | SAMPLING)[name])


def _reader(allowed: Setting) -> Reader:
    number: Reader = int if int in allowed.types else float
    if bool in allowed.types:
        number = functools.partial(parse_value, allowed)

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
