"""The table of options that exclude or need each other, for the command line and Python.

A term is an option that was given, such as "sample", or one of its values, such as
"format=litert". Names are those of the arguments in Python: `beam_size` is --beam.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.config.config import SAMPLING, SEARCH


@dataclass(frozen=True)
class Condition:
    """Demands of an option or value, the term, on what else is given."""

    term: str
    excludes: tuple[str, ...] = ()  # terms that must not be given
    only: tuple[str, ...] = ()  # the options that may be given; empty for any
    needs: tuple[str, ...] = ()  # terms of which one must be given
    why: str = ""  # the reason, in a few words


CONDITIONS = (
    # translate, generate
    Condition(
        "sample",
        excludes=tuple(name for name, setting in SEARCH.items() if setting.of_search),
        why="it does not search",
    ),
    *(Condition(name, needs=("sample",)) for name in SAMPLING),
    Condition(
        "text",
        excludes=("n_best", "prefix_file", "alignments", "line_buffered"),
        why="they are for lines",
    ),
    Condition(
        "file",
        excludes=("text", "n_best", "prefix_file", "alignments", "line_buffered", "context"),
        needs=("output",),
        why="they are for text on stdin",
    ),
    *(Condition(name, needs=("file",)) for name in ("output", "force", "fuzzy")),
    Condition("language", needs=("text", "file")),
    Condition("context", needs=("text",)),
    Condition("word_probs", needs=("n_best",)),
    Condition("alignments", excludes=("ensemble",), why="attention is that of a single model"),
    Condition(
        "litert",
        excludes=("ensemble", "precision=bfloat16", "sample"),
        why="LiteRT is for one model in float32 or int8, and does not sample",
    ),
    Condition("litert", excludes=("jit_compile",), why="XLA compiles nothing in LiteRT"),
    # doctor
    Condition("clean", excludes=("checked_run",), why="give `train`, `source` and `target`"),
    Condition("numbers", needs=("clean",)),
    Condition("checked_run", only=("test",), why="a run has its settings"),
    # evaluate
    Condition(
        "hypothesis",
        only=("reference", "output", "report", "lowercase", "tokenize"),
        why="it scores a file, without a run",
    ),
    Condition("report", excludes=("lowercase", "tokenize"), why="it prints every kind of BLEU"),
    # attention, convert
    Condition("head", needs=("layer",)),
    Condition("head", needs=("kind=encoder", "kind=decoder", "kind=cross")),
    Condition("origin=marian", excludes=("checkpoint",), why="it is for --to"),
    *(
        Condition(each, excludes=("quantization",), why="it is for --to ctranslate2")
        for each in ("origin=marian", "to=marian")
    ),
    # export
    Condition("better_than", needs=("reference",)),
    Condition("better_than", needs=("source",)),
    *(Condition(name, needs=("better_than",)) for name in ("source", "reference", "margin")),
    Condition("no_text", excludes=("tag", "better_than"), why="they are for a model of text"),
    Condition(
        "format=litert",
        excludes=("precision=bfloat16", "no_text", "tag", "better_than"),
        why="they are for a SavedModel",
    ),
    Condition("fixed_length", needs=("format=litert",)),
)


def conflict(
    given: Mapping[str, Any],
    written: Callable[[str], str],
    known: Collection[str] | None = None,
) -> str:
    """Describes the first condition that options break; "" if there is none.

    `written` returns an option or value as the user writes it, such as "--beam". A condition
    that needs none of the `known` options, None for any, is not for this command.
    """

    def holds(term: str) -> bool:
        name, _, value = term.partition("=")
        return name in given and value in ("", str(given[name]))

    for each in filter(lambda each: holds(each.term), CONDITIONS):
        others = [name for name in given if each.only and name not in (each.term, *each.only)]
        for other in (*filter(holds, each.excludes), *others):
            return f"{written(each.term)} excludes {written(other)}: {each.why}."
        there = [term for term in each.needs if not known or term.partition("=")[0] in known]
        if there and not any(map(holds, there)):
            return f"{written(each.term)} needs {' or '.join(map(written, there))}."
    return ""


def check(given: Mapping[str, Any]) -> None:
    """Raises UserError if arguments of a Python function break a condition."""
    if message := conflict(given, _argument):
        raise UserError(message)


# Terms that look different in Python.
_ARGUMENTS = {
    "sample": "`sample=True`", "litert": "`litert=True`", "no_text": "`text=False`",
    "better_than": "`gate`", "tag": "a tag",
}  # fmt: skip


def _argument(term: str) -> str:
    """Returns a term as an argument in Python, such as "`format='litert'`"."""
    if term in _ARGUMENTS:
        return _ARGUMENTS[term]
    name, _, value = term.partition("=")
    return f"`{name}={value!r}`" if value else f"`{name}`"
