"""The exception for mistakes a user can make, a single line, and quoting what they gave."""

import reprlib
import unicodedata

# Characters that a terminal takes for the end of a line or a command, or UTF-8 cannot hold.
_ESCAPED = {"Cc", "Cs", "Zl", "Zp"}
_LONGEST_LINE = 2_000

_QUOTES = reprlib.Repr()
_QUOTES.maxstring = _QUOTES.maxlong = _QUOTES.maxother = 80


class UserError(Exception):
    """A user's mistake: what was wrong, expected and received, and what to do, in one line.

    Attributes:
        status: exit status of a command that it ends.
    """

    status = 1


def missing_extra(user: str, package: str | None, extra: str) -> UserError:
    """Returns the error of a package that only an extra of `setup.cfg` installs.

    Args:
        user: the feature that needs it, as a sentence begins.
        package: its name.
        extra: such as "plot".
    """
    return UserError(
        f'{user} needs {package}, which is not installed: pip install "tf-transformer[{extra}]"'
    )


def quoted(value: object) -> str:
    """The value as Python writes it, 80 characters at most of a string or number in it."""
    return shortened(_QUOTES.repr(value), 200)


def shortened(text: str, most: int = 80) -> str:
    """The text itself if it has at most `most` characters, else its beginning and "..."."""
    return text if len(text) <= most else f"{text[:most]}..."


def one_line(message: object) -> str:
    """A message as a line of UTF-8: control characters escaped, its middle left out if long."""
    line = "".join(map(_escaped, str(message)))
    if len(line) <= _LONGEST_LINE:
        return line
    half = _LONGEST_LINE // 2
    return f"{line[:half]} ... {line[-half:]}"


def _escaped(char: str) -> str:
    if unicodedata.category(char) in _ESCAPED:
        return char.encode("unicode_escape").decode()
    return char
