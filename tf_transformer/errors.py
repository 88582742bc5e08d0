"""The exception for user mistakes, and helpers that quote input in one-line messages."""

import reprlib
import unicodedata

# Unicode categories of line breaks, control characters and surrogates (invalid in UTF-8).
_ESCAPED = {"Cc", "Cs", "Zl", "Zp"}
_LONGEST_LINE = 2_000

_QUOTES = reprlib.Repr()
_QUOTES.maxstring = _QUOTES.maxlong = _QUOTES.maxother = 80


class UserError(ValueError):
    """A user's mistake, in one line: what was expected, what was received and what to do.

    Attributes:
        status: exit status of the command that it ends.
    """

    status = 1


def missing_extra(user: str, package: str | None, extra: str) -> UserError:
    """Returns the error for a missing package that an extra of `setup.cfg` installs.

    Args:
        user: the feature that needs the package, the subject of the message.
        package: name of the package.
        extra: name of the extra, such as "plot".
    """
    return UserError(
        f'{user} needs {package}, which is not installed: pip install "tf-transformer[{extra}]"'
    )


def quoted(value: object) -> str:
    """Returns the `repr` of a value, 200 characters at most, 80 of any string or number."""
    return shortened(_QUOTES.repr(value), 200)


def shortened(text: str, most: int = 80) -> str:
    """Returns the text; if it is longer than `most` characters, its beginning and "..."."""
    return text if len(text) <= most else f"{text[:most]}..."


def one_line(message: object) -> str:
    """Returns a message as one line: escapes control characters, cuts out a long middle."""
    line = "".join(map(_escaped, str(message)))
    if len(line) <= _LONGEST_LINE:
        return line
    half = _LONGEST_LINE // 2
    return f"{line[:half]} ... {line[-half:]}"


def _escaped(char: str) -> str:
    if unicodedata.category(char) in _ESCAPED:
        return char.encode("unicode_escape").decode()
    return char
