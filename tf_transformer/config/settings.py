"""A setting with all facts about it: its declaration as a field, checks, parsing of text."""

import dataclasses
import difflib
import numbers
import re
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tf_transformer.base.errors import UserError, quoted, strings
from tf_transformer.base.files import parse_json
from tf_transformer.base.former import gone

# Counts fit int32; the largest float is roughly that of float32.
MAX_COUNT, MAX_FLOAT = 1_000_000_000, 1e38
# Tokens in a text, positions in a model: a longer search would hardly ever end.
MAX_TOKENS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """An interval from `low` (inclusive) or `above` to `high` (inclusive) or `below`."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        if self.below is not None:
            return f"in [{self.low}, {self.below})"
        if self.above is not None:
            return f"above {self.above} and at most {self.high}"
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Setting:
    """A setting with all facts about it, which are arguments of its declaration by `setting`.

    Attributes:
        type: its type, possibly a union.
        bounds: bounds of a number.
        choices: the strings allowed; empty for any.
        default: the value of the paper's base model and recipe, if the paper has one.
        help: a line for --help, the reference and the docstrings of models.
        flag: its option with the name of the value, "--beam W"; empty if it has only --set.
        group: the options among which --help lists the flag: "run" and "training" (of `train`;
            experiments may have only the latter), "search" or "sampling".
        paper: the section of the paper that it is from, which the card names beside another
            value; empty if the paper lacks it.
        by_preset: whether recipes leave it to the preset, as they do the size of a model.
        card: whether the card lists it among what the paper lacks: "changed" from its default,
            "always" or, as it names files or affects no results, "never".
        resume: what becomes of another value for a begun run: it is "refused", "recorded" in
            changes.jsonl, or "ignored" because training itself sets it.
        init_from: what training on another run's weights does: it must be the "same" as there,
            is "taken" from there unless given, as a "recipe" is if no model or recipe is named,
            or stays its "own".
        former: values of 1.1.0 that are gone, with the experiment that has a successor.
        of_search: whether it belongs to beam search, so that sampling excludes it.
        same_results: whether results do not depend on it.
    """

    type: Any
    bounds: Bounds = Bounds()
    choices: Collection[str] = ()
    default: Any = None
    help: str = ""
    flag: str = ""
    group: str = ""
    paper: str = ""
    by_preset: bool = False
    card: Literal["changed", "always", "never"] = "changed"
    resume: Literal["refused", "recorded", "ignored"] = "refused"
    init_from: Literal["same", "taken", "recipe", "own"] = "recipe"
    former: Mapping[str, str] = dataclasses.field(default_factory=dict)
    of_search: bool = False
    same_results: bool = False

    @property
    def option(self) -> str:
        """The flag without the name of its value; "" if there is none."""
        return self.flag.partition(" ")[0]

    def has(self, **facts: Any) -> bool:
        """Tells whether all of these facts are true of it, such as `group="search"`."""
        return all(getattr(self, name) == value for name, value in facts.items())

    @property
    def types(self) -> tuple[type, ...]:
        """The members of a union, or the type itself."""
        return self.type.__args__ if isinstance(self.type, types.UnionType) else (self.type,)

    def __str__(self) -> str:
        """Returns the words that complete "must be ..."."""
        if self.choices:
            return f"one of {tuple(self.choices)}"
        if self.type == tuple[str, ...]:
            return "a list of strings"
        return " or ".join(map(self._named, self.types))

    def _named(self, type_: type) -> str:
        if type_ in (int, float) and self.bounds != Bounds():
            return f"an int {self.bounds}" if type_ is int else str(self.bounds)
        return {types.NoneType: "None", bool: "true or false"}.get(type_, type_.__name__)

    def check(self, name: str, value: Any) -> Any:
        """Returns the value in the setting's type: 2.0 as an int, 2 as a float and so on.

        NumPy's numbers become Python's. UserError for another type, or if it is out of range.
        """
        if isinstance(value, str) and value in self.former:
            raise UserError(gone(f"`{name}` {value!r}", self.former[value]))
        if value is None and name.endswith("jit_compile"):
            return False  # files of 1.0.0 and 1.1.0 have null, for: on a GPU
        require(self.fits(value), name, str(self), value)
        if self.type == tuple[str, ...]:
            return tuple(value)
        value = _plain(value)
        if type(value) in self.types:
            return value
        return int(value) if int in self.types else float(value)

    def fits(self, value: Any) -> bool:
        """Tells whether `check` accepts the value."""
        value = _plain(value)
        if self.type == tuple[str, ...]:
            return isinstance(value, (list, tuple)) and all(map(_is_text, value))
        if type(value) not in (int, float):
            allowed = type(value) is not str or (
                _is_text(value) and (not self.choices or value in self.choices)
            )
            return type(value) in self.types and allowed
        is_number = float in self.types or (int in self.types and value % 1 == 0)
        return is_number and value in self.bounds


def _plain(value: Any) -> Any:
    """Returns a number as Python's int or float; bool and everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def setting(
    default: Any,
    *,
    help: str,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    **facts: Any,
) -> Any:
    """Returns a dataclass field with the bounds of `Bounds` and the facts of `Setting`."""
    bounds = Bounds(low=low, high=high, above=above, below=below)
    return dataclasses.field(default=default, metadata=facts | {"help": help, "bounds": bounds})


def settings_of(section: type, prefix: str = "", **facts: Any) -> dict[str, Setting]:
    """Returns the fields of a dataclass as settings by name, prefixed with `prefix`.

    `facts` hold for each field that does not say otherwise.
    """
    return {
        f"{prefix}{field.name}": Setting(
            field.type, default=field.default, **(facts | field.metadata)
        )
        for field in dataclasses.fields(section)
    }


def convert_fields(section: Any) -> None:
    """Converts the fields of a new dataclass to their types; UserError for a wrong one."""
    for name, setting in settings_of(type(section)).items():
        value = setting.check(name, getattr(section, name))
        object.__setattr__(section, name, value)  # the dataclass is frozen


def require(condition: bool, name: str, expected: str, received: object) -> None:
    """Raises UserError unless `condition` is true: the setting must be `expected`."""
    if not condition:
        raise UserError(f"`{name}` must be {expected}. Received: {quoted(received)}.")


def parse_assignments(
    assignments: Sequence[str], settings: Mapping[str, Setting]
) -> dict[str, Any]:
    """Parses `overrides`, "section.field=value" each; the last one for a field wins.

    Raises UserError if there is no equals sign or no such setting.
    """
    values = {}
    for assignment in strings("overrides", assignments):
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(
                "`overrides` must be section.field=value, such as model.dropout=0.3. "
                f"Received: {quoted(assignment)}."
            )
        setting = find_named("setting", name.strip(), settings)
        values[name.strip()] = parse_value(setting, text.strip())
    return values


def find_named(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """Looks up a name; raises UserError, with what was perhaps meant, if it is unknown."""
    if name not in known:
        raise UserError(f"There is no {kind} {quoted(name)}.{nearest(name, known)}")
    return known[name]


# Names in other libraries.
_OF_OTHERS = {
    "batch_size": "batch_tokens", "epochs": "steps", "learning_rate": "learning_rate_scale",
    "length_penalty": "alpha", "max_new_tokens": "max_length", "max_steps": "steps",
    "num_beams": "beam_size", "num_return_sequences": "n_best",
}  # fmt: skip


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint for an unknown name.

    It names the fields of that name in any section, what other libraries call so, the nearest
    name, or all names.
    """
    known, field = list(known), name.rpartition(".")[2]
    fields = (field, _OF_OTHERS.get(field, field))
    near = [full for full in known if full.rpartition(".")[2] in fields]
    near = near or difflib.get_close_matches(name, known, n=1)
    hint = " or ".join(map(repr, near))
    return f" Did you mean {hint}?" if near else f" There are: {', '.join(known)}."


def _is_text(value: Any) -> bool:
    """Tells whether a value is a string that UTF-8 files and file names can hold."""
    return type(value) is str and not any(
        char == "\0" or "\ud800" <= char <= "\udfff" for char in value
    )


def parse_value(setting: Setting, text: str) -> Any:
    """Parses a value: comma-separated for a list, else as JSON if it is valid, else as text."""
    if setting.type == tuple[str, ...]:
        return [part for part in text.split(",") if part]
    if setting.type is str:
        return text
    try:
        return parse_json({"None": "null", "True": "true", "False": "false"}.get(text, text))
    except ValueError:  # not JSON, or too many digits
        return text


# --- Texts of a setting with a form of their own --------------------------------------------


# The names of the special ids, and of bytes, which every tokenizer has.
_RESERVED = re.compile("</?s>|<pad>|<unk>|<0x[0-9A-F]{2}>")
_NOT_RESERVED = "other words than the special ones (<pad>, <unk>, <s>, </s>, <0x00> to <0xFF>)"


def require_words(name: str, symbols: Sequence[str]) -> None:
    """Raises UserError for a symbol that is empty, has a blank or is one of SentencePiece's."""
    for symbol in symbols:
        require(not _RESERVED.fullmatch(symbol), name, _NOT_RESERVED, symbol)
        fits = bool(symbol) and not any(char.isspace() for char in symbol)
        require(fits, name, "words without blanks", symbol)


def split_tags(tags: Sequence[str]) -> dict[str, str]:
    """Parses "KEY=TAG" strings into tags by key; raises UserError for any other form."""
    by_key: dict[str, str] = {}
    for item in tags:
        key, _, tag = item.partition("=")
        fits = key and tag.split() and key not in by_key
        require(bool(fits), "data.tag", "KEY=TAG, such as de=<2de>, each key once", item)
        by_key[key] = " ".join(tag.split())
        require(not _RESERVED.fullmatch(by_key[key]), "data.tag", _NOT_RESERVED, item)
    return by_key


def mix_weights(mix: str, sizes: Sequence[int]) -> list[float]:
    """Returns the relative weight of each corpus, of these numbers of pairs.

    A mix is weights separated by colons, such as "1:4"; or "temperature=T", which gives a
    corpus of n pairs the weight n**(1/T) (Arivazhagan et al. 2019, "Massively Multilingual
    Neural Machine Translation in the Wild"). Raises UserError if it has neither form, the wrong
    number of weights, or a number that is not above 0.
    """
    name, equals, temperature = mix.partition("=")
    try:
        numbers = [float(text) for text in (temperature if equals else mix).split(":")]
    except ValueError:
        numbers = []
    by_size = equals and name == "temperature" and len(numbers) == 1
    if not (by_size or (not equals and len(numbers) == len(sizes))):
        raise UserError(
            "`data.mix` must be temperature=T, or weights separated by colons, such as 1:4, "
            f"one for each of the {len(sizes)} of `data.train`. Received: {quoted(mix)}."
        )
    if not all(0 < number <= MAX_FLOAT for number in numbers):
        raise UserError(
            f"The numbers in `data.mix` must be above 0. Received: {quoted(mix)}. To exclude "
            "a corpus, leave it out of `data.train`."
        )
    if not by_size:
        return numbers
    return [(size / max(sizes)) ** (1 / numbers[0]) for size in sizes]
