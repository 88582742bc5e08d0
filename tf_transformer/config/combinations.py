"""The table of options that exclude or need each other, for the command line and Python.

A term is an option that was given, such as "sample", or one of its values, such as
"format=litert". Names are those of the arguments in Python: `beam_size` is --beam.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tf_transformer.base.errors import UserError


@dataclass(frozen=True)
class Rule:
    """Terms that a term excludes, and terms of which it needs at least one.

    Attributes:
        term: the option or value.
        excludes: terms that must not be given with it.
        only: the options that may be given with it; empty for any.
        needs: terms of which one must be given with it.
        why: the reason, in a few words.
    """

    term: str
    excludes: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    why: str = ""


RULES = (
    # translate, generate
    Rule("sample", excludes=("beam_size", "alpha", "lookahead"), why="it does not search"),
    *(Rule(name, needs=("sample",)) for name in ("temperature", "top_k", "top_p", "seed")),
    Rule(
        "text",
        excludes=("n_best", "prefix_file", "alignments", "line_buffered"),
        why="they are for lines",
    ),
    *(Rule(name, needs=("text",)) for name in ("language", "context")),
    Rule("word_probs", needs=("n_best",)),
    Rule("alignments", excludes=("ensemble",), why="attention is that of a single model"),
    Rule(
        "litert",
        excludes=("ensemble", "precision=bfloat16", "sample"),
        why="LiteRT is for one model in float32 or int8, and does not sample",
    ),
    # train, ablate
    Rule("checked_run", only=("test",), why="a run has its settings"),
    Rule("table", only=("output", "scale"), why="it prints every result there is"),
    Rule("params_only", only=("rows", "scale", "set"), why="it trains nothing"),
    # evaluate, classify, parse
    Rule(
        "hypothesis",
        only=("reference", "brackets", "output", "report", "lowercase", "tokenize"),
        why="it scores a file, without a run",
    ),
    Rule("brackets", only=("hypothesis", "reference"), why="it scores files of trees"),
    Rule("brackets", needs=("hypothesis",)),
    Rule("report", excludes=("lowercase", "tokenize"), why="it prints every kind of BLEU"),
    Rule("labelled", excludes=("n_best",), why="it prints scores instead of labels"),
    Rule("labelled", excludes=("line_buffered",), why="it does not read stdin"),
    Rule("words_of", excludes=("line_buffered",), why="it does not read stdin"),
    # attention, heads, convert
    Rule("head", needs=("layer",)),
    Rule("head", needs=("kind=encoder", "kind=decoder", "kind=cross")),
    Rule("write", needs=("keep",)),
    Rule("keep", needs=("write",)),
    Rule("origin=marian", excludes=("quantization", "checkpoint"), why="they are for --to"),
    # export
    Rule("average", excludes=("checkpoint",), why="it takes the run's last checkpoints"),
    Rule("better_than", needs=("reference",)),
    *(Rule(name, needs=("better_than",)) for name in ("source", "reference", "margin")),
    Rule("no_text", excludes=("tag", "better_than"), why="they are for a model of text"),
    Rule(
        "format=litert",
        excludes=("precision=bfloat16", "no_text", "tag", "better_than"),
        why="they are for a SavedModel",
    ),
    Rule("fixed_length", needs=("format=litert",)),
)


def conflict(
    given: Mapping[str, Any],
    written: Callable[[str], str],
    known: Collection[str] | None = None,
) -> str:
    """Describes the first rule that options break; "" if there is none.

    Args:
        given: the options that were given, with their values.
        written: returns an option or value as the user writes it, such as "--beam".
        known: names of all options there are; None for any. A rule that needs none of them is
            not for this command.
    """

    def holds(term: str) -> bool:
        name, _, value = term.partition("=")
        return name in given and value in ("", str(given[name]))

    for rule in filter(lambda rule: holds(rule.term), RULES):
        others = [name for name in given if rule.only and name not in (rule.term, *rule.only)]
        for other in (*filter(holds, rule.excludes), *others):
            return f"{written(rule.term)} excludes {written(other)}: {rule.why}."
        there = [term for term in rule.needs if not known or term.partition("=")[0] in known]
        if there and not any(map(holds, there)):
            return f"{written(rule.term)} needs {' or '.join(map(written, there))}."
    return ""


def check(given: Mapping[str, Any]) -> None:
    """Raises UserError if arguments of a Python function break a rule."""
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
