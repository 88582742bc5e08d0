"""Planted terms, tags, numbers and addresses: which come out once, and the BLEU of the rest.

    python benchmarks/kept_spans.py runs/mine --train multi30k/train \\
        --text test_2016=multi30k/test_2016_flickr --only-source laws=laws/dev.en.gz

Plants one to four spans in each line of a text: terms, whose translation is the reference's
word; a word between two tags; a number after a word; an address at the end. Words are of four
letters and more, which IBM Model 1 aligns in --train and the text. The translation of a term
stands once in the reference and in the translation without spans, that of the kind "other" in
the reference alone; with --only-source, it is the word backwards. Counts the lines in whose
translation every span stands once and unchanged, and those that have the words of the
translation without spans, but for the terms ("same words"). "rest" is the BLEU without the
spans, "rest without" that of the translation of the text without spans; both, and the
reference, without the terms. Of the kind "other", the translation without spans has another
word, which stays in its rest.

The same run with --protect none, and with --plain another one that was trained without
data.slots, get the spans as text, and the translation of a term in its place. "CPU" is the time
for the text with spans divided by that for the text without, in turn.
"""

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from harness.options import make_parser, positive, run
from harness.report import Report, shown, table
from harness.rounds import Spread
from harness.sentences import evenly_spaced

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.data.encoded_corpus import encode_corpus
from tf_transformer.data.text import SIDES, read_lines, read_pairs, resolve_prefix
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.evaluation import bleu
from tf_transformer.terms.alignment_model import mined_spans
from tf_transformer.terms.glossary import Glossary
from tf_transformer.terms.protection import Protection
from tf_transformer.terms.spans import Span

USUAL = ("term", "tag", "number", "address")
KINDS = (*USUAL, "other")
_MOST = 4  # spans of a line
_LIKELY = 3  # times that a word of a lexicon is aligned with its translation, at least
_LETTERS = 4  # of a word that is a term, or has a tag or a number
_TAGS = ("b", "i", "em", "a")
Pairs = list[tuple[str, str]]


class Planted(NamedTuple):
    """A line with spans.

    Attributes:
        text: the source with its spans; terms are as they were.
        copied: the same with the translations of terms in their places.
        spans: what the translation must have once.
        terms: words of the source and their translations.
    """

    text: str
    copied: str
    spans: list[str]
    terms: dict[str, str]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    translator = load(options.run)
    if not translator.engine.has_slots:
        raise UserError(f"RUN must be trained with data.slots. Received: {options.run}.")
    plain = load(options.plain) if options.plain else None
    texts = {name: _read(prefix, options) for name, prefix in map(_named, options.text)}
    for name, file in map(_named, options.only_source):
        texts[name] = [(line, "") for line in read_lines(Path(file)) if line.strip()]
    learned = _read(options.train, options)
    report = Report("kept_spans", vars(options), options.output)
    rows = []
    for name, pairs in texts.items():
        words: dict[str, set[str]] = {}
        if pairs[0][1]:
            words = lexicon(pairs + learned, translator.engine.tokenizer, options.terms)
        pairs = evenly_spaced(pairs, min(options.lines, len(pairs)))
        systems = [("slots", translator), ("--protect none", translator)]
        for system, model in [*systems, *([("plain", plain)] if plain else [])]:
            result = _measured(pairs, words, model, system == "slots", options)
            report.add(f"{name}, {system}", result)
            rows.append([name, system, *_cells(result)])
    columns = ["spans", "lines with all", "same words", "BLEU without", "rest without", "rest"]
    columns.append("CPU")
    print(f"\n{table(['text', '', *columns], rows)}\n\n{report.say_machine()}")
    print("wrote", report.write())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=2)
    add = parser.add_argument
    add("run", metavar="RUN", help="a run trained with data.slots")
    add("--plain", metavar="RUN", help="one trained without")
    add("--text", nargs="*", default=[], metavar="NAME=PREFIX", help="parallel text")
    add("--only-source", nargs="*", default=[], metavar="NAME=FILE", help="text alone")
    add("--train", required=True, metavar="PREFIX", help="text whose words are aligned")
    add("--source", default="en", metavar="LANG")
    add("--target", default="de", metavar="LANG", help="suffix of the references' files")
    text = "what begins the translations of terms, such as [A-ZÄÖÜ] for German nouns"
    add("--terms", default="", metavar="REGEX", help=text)
    add("--lines", type=positive, default=1_000, help="of each text; default: 1,000")
    add("--kinds", nargs="+", choices=KINDS, default=list(USUAL),
        help=f"default: {' '.join(USUAL)}")  # fmt: skip
    add("--beam-size", type=positive, default=4)
    add("--show", type=int, default=0, metavar="N", help="print N lines of each text")
    return parser.parse_args(arguments)


def _named(text: str) -> tuple[str, str]:
    """Splits NAME=PATH."""
    name, equal, path = text.partition("=")
    if not equal:
        raise UserError(f"Each text must be NAME=PATH. Received: {text}.")
    return name, path


def _read(prefix: str, options: argparse.Namespace) -> Pairs:
    files = [resolve_prefix(prefix, each) for each in (options.source, options.target)]
    return [pair for pair in read_pairs(*files) if all(map(str.strip, pair))]


# --- Planting ----------------------------------------------------------------------------


def lexicon(pairs: Pairs, tokenizer: Any, begins: str = "") -> dict[str, set[str]]:
    """Returns the words that IBM Model 1 aligns with each word, several times.

    They begin with a regular expression.
    """
    with tempfile.TemporaryDirectory() as folder:
        limits = {"max_length": 200, "max_ratio": 4.0}
        corpus = encode_corpus([pairs], tokenizer, Path(folder) / "c", **limits)
        starts, spans = mined_spans(corpus, tokenizer.models)
        found: Counter[tuple[str, str]] = Counter()
        pieces = [tokenizer.vocabulary(side) for side in SIDES]
        for row, (a, b, c, d, _) in zip(
            np.repeat(np.arange(len(corpus)), np.diff(starts)).tolist(),
            spans.tolist(),
            strict=True,
        ):
            ids = corpus.source(row)[a:b], corpus.target(row)[c:d]
            source, target = (
                "".join(some[i] for i in side).replace(SPACE_PIECE, "")
                for some, side in zip(pieces, ids, strict=True)
            )
            found[source, target] += 1
    words: dict[str, set[str]] = {}
    for (source, target), count in found.items():
        are_words = source.isalpha() and target.isalpha()
        if count >= _LIKELY and are_words and re.match(begins, target):
            words.setdefault(source, set()).add(target)
    return words


def planted(
    source: str,
    target: str,
    translation: str,
    words: dict[str, set[str]],
    random: Random,
    kinds: Sequence[str] = USUAL,
) -> Planted:
    """Plants one to `_MOST` spans in a line; see the head of the file.

    `translation` is that of the source without spans.
    """
    tokens = source.split()
    copied = list(tokens)
    bare = [token.strip(".,;:!?") for token in tokens]
    free = [i for i, word in enumerate(bare) if word.isalpha() and len(word) >= _LETTERS]
    if target:
        free = [i for i in free if bare[i] in words]
    random.shuffle(free)
    spans: list[str] = []
    terms: dict[str, str] = {}
    wanted = random.randint(1, _MOST)
    while len(spans) < wanted:
        kind, room = random.choice(list(kinds)), wanted - len(spans)
        if kind in ("term", "other") and (
            place := _term(tokens, target, translation, kind == "term", words, terms, free)
        ):
            index, term, by = place
            free.remove(index)
            copied[index] = copied[index].replace(term, by)
            terms[term] = by
            spans.append(by)
        elif kind == "tag" and free and room > 1:
            name, index = f"{random.choice(_TAGS)}{len(spans)}", free.pop()
            for side in (tokens, copied):
                end = len(side[index].rstrip(".,;:!?"))
                side[index] = f"<{name}>{side[index][:end]}</{name}>{side[index][end:]}"
            spans += [f"<{name}>", f"</{name}>"]
        elif kind == "number" and free:
            index, number = free.pop(), str(random.randint(10_000, 49_999))
            for side in (tokens, copied):
                end = len(side[index].rstrip(".,;:!?"))
                side[index] = f"{side[index][:end]} {number}{side[index][end:]}"
            spans.append(number)
        elif kind == "address" or not free or set(kinds) <= {"term", "other", "tag"}:
            address = f"https://example.org/{random.randint(50_000, 99_999)}"
            for side in (tokens, copied):
                end = len(side[-1].rstrip(".!?"))
                side[-1] = f"{side[-1][:end]} {address}{side[-1][end:]}"
            spans.append(address)
    return Planted(" ".join(tokens), " ".join(copied), spans, terms)


def _term(
    tokens: Sequence[str],
    target: str,
    translation: str,
    stands: bool,
    words: dict[str, set[str]],
    terms: dict[str, str],
    free: Sequence[int],
) -> tuple[int, str, str] | None:
    """Returns a word of a line that can be a term, and its translation; None without one.

    `stands` tells whether the translation without spans has that of the term.
    """
    counts = Counter(re.findall(r"\w+", " ".join(tokens).casefold()))
    both = [Counter(re.findall(r"\w+", text)) for text in (target, translation)]
    for index in free:
        word = tokens[index].strip(".,;:!?")
        invented = not target and word[::-1]
        for by in [invented] if invented else sorted(words.get(word, ())):
            once = [each[by] for each in both] == [1, int(stands)] or not target
            if once and counts[word.casefold()] == 1 and by not in terms.values():
                return index, word, by
    return None


# --- Measuring ---------------------------------------------------------------------------


def _measured(
    pairs: Pairs,
    words: dict[str, set[str]],
    model: Any,
    slots: bool,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Translates the lines with and without spans; returns counts, BLEU and CPU times."""

    def translate(texts: list[str], protect: Any = "none") -> tuple[list[str], float]:
        begun = time.process_time()
        found = model.translate(texts, beam_size=options.beam_size, protect=protect)
        return list(map(str, found)), time.process_time() - begun

    sources = [source for source, _ in pairs]
    without, _ = translate(sources)
    random = Random(1)
    lines = [
        planted(*pair, translation, words, random, options.kinds)
        for pair, translation in zip(pairs, without, strict=True)
    ]
    texts = [line.text if slots else line.copied for line in lines]
    kept = Protection(glossary=_OfEachLine(lines)) if slots else "none"
    translate(texts, kept)  # traces the searches
    times, found = [], list[str]()
    for _ in range(options.rounds):
        _, before = translate(sources)
        found, after = translate(texts, kept)
        times.append(after / before)
    targets = [target for _, target in pairs]
    for line, text, plain, target in islice(
        zip(lines, found, without, targets, strict=True), options.show
    ):
        print("", line.text, text, plain, target, sep="\n  ")
    spans, terms = [line.spans for line in lines], [[*line.terms.values()] for line in lines]
    result = {
        "spans": sum(map(len, spans)),
        "lines with all": sum(map(has_each_once, found, spans)),
        "same words": sum(map(_has_same_words, found, without, spans, terms)),
        "CPU": Spread.of(times),
    }
    if not any(targets):
        return result
    references = list(map(rest, targets, terms))
    return result | {
        "BLEU without": bleu(without, targets).value,
        "rest without": bleu(list(map(rest, without, terms)), references).value,
        "rest": bleu(list(map(rest, found, spans)), references).value,
    }


def _cells(result: dict[str, Any]) -> list[str]:
    counts = [f"{result[name]:,}" for name in ("spans", "lines with all", "same words")]
    names = ("BLEU without", "rest without", "rest")
    scores = [f"{result[name]:.2f}" if name in result else "" for name in names]
    return [*counts, *scores, shown(result["CPU"], 2)]


class _OfEachLine(Glossary):
    """The terms of each line alone."""

    def __init__(self, lines: Sequence[Planted]) -> None:
        super().__init__(())
        self._of = {line.text: Glossary(line.terms.items()) for line in lines}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def spans(self, text: str) -> Iterator[Span]:
        """Yields the terms of a line."""
        return self._of[text].spans(text) if text in self._of else iter(())


def _has_same_words(
    text: str, without: str, spans: Sequence[str], terms: Sequence[str]
) -> bool:
    """Tells whether a translation has the words of that without spans, but for the terms."""
    both = rest(text, spans), rest(without, terms)
    return _words(both[0]) == _words(both[1])


def _words(text: str) -> list[str]:
    """Returns words and punctuation; where a span stood may be a blank more or less."""
    return re.findall(r"\w+|[^\w\s]", text)


def has_each_once(text: str, spans: Sequence[str]) -> bool:
    """Tells whether each span stands once in a text, unchanged."""
    return all(len(re.findall(_expression(span), text)) == 1 for span in spans)


def rest(text: str, spans: Sequence[str]) -> str:
    """Returns a text without the first occurrence of each span."""
    for span in spans:
        text = re.sub(_expression(span), " ", text, count=1)
    return " ".join(text.split())


def _expression(span: str) -> str:
    """Returns the regular expression of a span; a word does not stand inside another."""
    return rf"\b{span}\b" if span.isalpha() else re.escape(span)


if __name__ == "__main__":
    run(main)
