"""The checks of text, tokenizer and encoded corpora before training.

One pass over the text takes a sample of each split in bounded memory. A check of the text takes
these surveys, train first, and the settings of the data. Every check returns its warnings, or a
single finding if there are none. A defect above its limit, a share of the lines, is a warning;
docs/guides/doctor.md lists the limits and the clean corpora that pass.
"""

import itertools
import re
import tempfile
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import NamedProgress
from tf_transformer.config import UNK_ID, Config, DataConfig
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.text import (
    SIDES,
    ParallelText,
    Sample,
    SideName,
    corpora,
    text_key,
)
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import symbol_pieces, symbols_of
from tf_transformer.quality.defects import (
    MAX_SKEW,
    SAMPLE_PAIRS,
    Languages,
    is_copy,
    is_skewed,
    line_defects,
    usual_ratio,
)
from tf_transformer.run.run_tokenizer import train_configured_tokenizer
from tf_transformer.translation.task import TranslationTask

PROGRESS_EVERY = 10_000
QUICK_PAIRS = 50_000  # training pairs to examine when training starts
BROKEN = 0.001  # share of lines without a warning, for three checks of characters
LANGUAGES = 0.005  # share of pairs with sides in the wrong language
LINES = 5_000  # lines per side to tokenise
_CLEANED = "`tf-transformer doctor ... --clean DIR` writes the text without them."
SHOWN = 8  # unknown characters to name in a message

# The end of a sentence and another one, but not "Mr. Smith."
_SENTENCES = re.compile(r"\w{4}[.!?…]\W*\s\W*\w.*[.!?…]|[。！？].*[。！？]")

_BYTE = re.compile("<0x.*>")  # a piece for a byte, such as <0xE4>

Key = str | tuple[str, str]  # a source sentence, or a pair


# --- Survey --------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A sentence pair and its index in the split, from 0."""

    source: str
    target: str
    number: int

    def text(self, side: SideName) -> str:
        """Returns the sentence of one side."""
        return self.source if side == "source" else self.target

    @property
    def keys(self) -> tuple[str, tuple[str, str]]:
        """The source and the pair, by which other splits are searched for them."""
        source = self.source.strip()
        return source, (source, self.target.strip())


@dataclass
class Survey:
    """Sample of a split."""

    name: str  # "train", "dev" or "test"
    corpora: Sequence[ParallelText]
    every: int = 1  # only every `every`-th pair of the files was examined
    pairs: int = 0  # number of examined pairs
    # A uniform sample of these in order, or all if they are few.
    sample: list[Pair] = field(default_factory=list)
    keys: array = field(default_factory=lambda: array("Q"))  # hashes of examined pairs
    # Keys of examined pairs that the samples of other splits have too.
    shared: set[Key] = field(default_factory=set)
    _starts: list[int] = field(default_factory=list)

    def location(self, index: int, side: SideName = "source") -> str:
        """Formats the location of a pair as FILE:LINE, for messages."""
        corpus = bisect_right(self._starts, index) - 1
        return f"{self.corpora[corpus].file(side)}:{index - self._starts[corpus] + 1}"

    def in_languages(self) -> dict[tuple[str, str], list[Pair]]:
        """Returns pairs of the sample by their languages, `LINES` to twice as many in all."""
        found: dict[tuple[str, str], list[Pair]] = {}
        for pair in self.sample[:: max(1, len(self.sample) // LINES)]:
            corpus = self.corpora[bisect_right(self._starts, pair.number) - 1]
            found.setdefault(corpus.languages, []).append(pair)
        return found

    def read(
        self, progress: NamedProgress, wanted: Set[Key] = frozenset(), hashed: bool = True
    ) -> None:
        """Reads the corpora, without tags; `shared` becomes the keys that are `wanted`.

        Without `hashed`, `keys` stay empty.
        """
        read, sample = 0, Sample[Pair](SAMPLE_PAIRS)
        for place, corpus in enumerate(self.corpora):
            self._starts.append(read)
            for index, texts in enumerate(corpus.plain_pairs(), read):
                read = index + 1
                if read % PROGRESS_EVERY == 0:
                    progress(f"reading {self.name}", read)
                if index % self.every == 0:
                    pair = Pair(*texts, index)
                    if wanted:
                        self.shared.update(key for key in pair.keys if key in wanted)
                    sample.offer(place << 40 | index - self._starts[-1] + 1, pair)
                    if hashed:
                        self.keys.append(text_key(" \0 ".join(texts)))
                    self.pairs += 1
        self.sample = sample.items()


Surveys = Sequence[Survey]


def take_surveys(
    texts: Mapping[str, Sequence[str]],
    data: DataConfig,
    *,
    every: int = 1,
    progress: NamedProgress = lambda step, done: None,
) -> list[Survey]:
    """Reads the text of each split once, and the training text last.

    `texts` has the names of corpora for "train", first, and for "dev" and "test"; a split
    without any is left out. Only every `every`-th training pair is examined. Raises UserError
    as `corpora` and `ParallelText.plain_pairs` do.
    """
    train, *others = surveys = [
        Survey(name, corpora(names, data)) for name, names in texts.items() if names
    ]
    train.every = every
    for other in others:
        other.read(progress)
    keys = {key for other in others for pair in other.sample for key in pair.keys}
    train.read(progress, keys)
    return surveys


# --- Findings ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A line of the report, which may be a warning."""

    check: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{'warning' if self.warning else 'ok':<9}{self.check}: {self.text}"


@dataclass(frozen=True)
class Count:
    """Number of defective units out of `total`, and the location of the first."""

    number: int
    total: int
    unit: str
    first: str = ""

    def __str__(self) -> str:
        return f"{self.number:,} of {self.total:,} {self.unit} ({percent(self.share)})"

    @property
    def share(self) -> float:
        """Share of defective units."""
        return self.number / max(1, self.total)


def percent(share: float) -> str:
    """Formats a share; a small one with two significant digits instead of as 0%."""
    return f"{share:.0%}" if share >= 0.1 or not share else f"{100 * share:.2g}%"


def judge(check: str, counts: Sequence[Count], limit: float, message: str) -> list[Finding]:
    """Returns a warning for each count whose share exceeds `limit`, or one line with the worst.

    `message` continues a warning after "12 of 100 lines of train (12%)" with the defect and the
    remedy.
    """
    bad = [count for count in counts if count.share > limit]
    if bad:
        return [Finding(check, f"{count} {message}{_first(count)}", True) for count in bad]
    worst = max(counts, key=lambda count: count.share)
    at_most = "at most " if len(counts) > 1 else ""
    return [Finding(check, f"{at_most}{worst}.{_first(worst)}" if worst.number else "none")]


def _first(count: Count) -> str:
    return f" First: {count.first}." if count.first else ""


# --- Lines -------------------------------------------------------------------------------


# By defect of a line: the largest share without a warning, and the defect and its remedy.
LINE_CHECKS = {
    "encoding": (
        BROKEN,
        'contain U+FFFD or wrongly decoded text, such as "Ã¤" for "ä". The model would learn '
        "it: convert the original to UTF-8 again.",
    ),
    "control characters": (
        BROKEN,
        "contain control characters or line separators. They come from a wrong encoding or a "
        "faulty extraction, and can shift lines in other tools: remove them.",
    ),
    "HTML entities": (
        BROKEN,
        'contain entities such as "&amp;". The model would learn to write them: unescape the '
        "text.",
    ),
    "empty lines": (
        0.01,
        "are empty. Such pairs are dropped in training and lower BLEU in a dev set: check "
        "whether the files still match line by line.",
    ),
    "length": (  # each word is at least one token, and EOS is one
        0.05,
        "have more words than data.max_length={} allows tokens, and are dropped in "
        "training: split them into sentences, or raise data.max_length.",
    ),
}


def check_lines(defect: str, surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks both sides of each survey's sample for one of `line_defects`."""
    limit, message = LINE_CHECKS[defect]
    defective, counts = line_defects(data)[defect], []
    for survey, side in itertools.product(surveys, SIDES):
        bad = [pair for pair in survey.sample if defective(pair.text(side))]
        counts.append(_count(survey, bad, len(survey.sample), f"{side} lines", side))
    return judge(defect, counts, limit, message.format(data.max_length))


def check_empty(surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks for lines without text, and for splits without any text."""
    unusable = (
        "has no pair with text on both sides and cannot be used: check whether these are the "
        "right files."
    )
    findings = [
        Finding("empty lines", f"{survey.name} {unusable}", warning=True)
        for survey in surveys
        if not any(pair.source.strip() and pair.target.strip() for pair in survey.sample)
    ]
    return findings or check_lines("empty lines", surveys, data)


def _count(
    survey: Survey, bad: Sequence[Pair], total: int, unit: str, side: SideName = "source"
) -> Count:
    """Counts the pairs `bad` out of `total`, and locates the first of them on `side`."""
    first = survey.location(bad[0].number, side) if bad else ""
    return Count(len(bad), total, f"{unit} of {survey.name}", first)


# --- Pairs -------------------------------------------------------------------------------


def check_ratio(surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks for pairs with an unusual length ratio, such as after a shift of lines."""
    usual = usual_ratio(surveys[0].sample)
    message = (
        f"have a length ratio that is off the median by a factor of {MAX_SKEW:g} or more. They "
        "are unlikely to be translations: check whether lines have shifted, or filter them."
    )
    counts = _pairs_with(surveys, lambda pair: is_skewed(pair.source, pair.target, usual))
    return judge("length ratio", counts, 0.02, message)


def check_copies(surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks for untranslated targets, equal to their source."""
    message = (
        "have the same text on both sides. A few of them teach a model to copy (Khayrallah and "
        "Koehn 2018): remove them, and check that no file was given twice."
    )
    counts = _pairs_with(surveys, lambda pair: is_copy(pair.source, pair.target))
    return judge("copies", counts, 0.01, message)


def check_languages(surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks for sides in the other one's language, as most pairs of train have them."""
    learnt = {each: Languages(pairs) for each, pairs in surveys[0].in_languages().items()}
    models = {each: model for each, model in learnt.items() if model.known}
    if not models:
        text = "not checked: words do not tell the sides apart, as in few pairs or one language"
        return [Finding("languages", text)]
    counts = []
    for survey in surveys:
        found = survey.in_languages()
        known = [(pair, models[each]) for each in models for pair in found.get(each, ())]
        wrong = [pair for pair, model in known if model.fault(pair.source, pair.target)]
        bad = sorted(wrong, key=lambda pair: pair.number)
        counts.append(_count(survey, bad, len(known), "pairs"))
    message = "have a side in the other's language, or both: " + _CLEANED
    return judge("languages", counts, LANGUAGES, message)


def check_duplicates(surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks for pairs that were there before, anywhere in their split."""
    counts = []
    for survey in surveys:
        repeated = np.ones(survey.pairs, bool)
        repeated[np.unique(survey.keys, return_index=True)[1]] = False
        first = survey.location(int(repeated.argmax()) * survey.every) if repeated.any() else ""
        total = int(repeated.sum()), survey.pairs
        counts.append(Count(*total, f"pairs of {survey.name}", first))
    message = (
        "repeat an earlier one. They count as often in training, and any that is also set "
        "aside for dev or test is known: " + _CLEANED
    )
    return judge("duplicates", counts, 0.05, message)


def check_overlap(surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks for pairs and source sentences of dev and test in the training text."""
    train, *others = surveys
    if not others:
        return []
    where = "train" if train.every == 1 else f"a sample of train (1 pair in {train.every})"
    message = (
        f"are also in {where}. The score would count memorised sentences: remove "
        "them from train, or split the text by source: " + _CLEANED
    )
    pairs = _pairs_with(others, lambda pair: pair.keys[1] in train.shared)
    findings = judge("overlap", pairs, 0.01, message)
    if findings[0].warning:
        return findings
    sources = _pairs_with(others, lambda pair: pair.keys[0] in train.shared, "source sentences")
    return judge("overlap", sources, 0.05, message)


def _pairs_with(
    surveys: Surveys, defective: Callable[[Pair], object], unit: str = "pairs"
) -> list[Count]:
    return [
        _count(survey, list(filter(defective, survey.sample)), len(survey.sample), unit)
        for survey in surveys
    ]


def check_variety(surveys: Surveys, data: DataConfig) -> list[Finding]:
    """Checks for kinds of text that train has (almost) none of, so they are not learnt."""
    train, lines = surveys[0], [pair.source for pair in surveys[0].sample]
    several = "have several sentences, so only the first of a text would be translated"
    capitals = "are in capitals, so such text would be translated badly"
    kinds: dict[str, tuple[Callable[[str], object], str, str]] = {
        "join": (_SENTENCES.search, several, "0.3` and `decoding.alpha=1"),
        # Those of a script without capitals count too.
        "caps": (lambda line: line.strip() and line == line.upper(), capitals, "0.1"),
    }
    findings = []
    for name, (is_one, effect, value) in kinds.items():
        found = [pair for pair in train.sample if is_one(pair.source)]
        count = _count(train, found, len(lines), "source lines")
        if not getattr(data, name) and count.share < BROKEN:
            text = f"only {count} {effect}. Set `data.{name}={value}`."
            findings.append(Finding("variety", text, warning=True))
    if missing := ", ".join(sorted(set("0123456789").difference(*lines))):
        text = f"no source line of train has the digits {missing}: add some, or they go wrong."
        findings.append(Finding("variety", text, warning=True))
    return findings or [Finding("variety", "several sentences, capitals and all digits")]


# --- Vocabulary --------------------------------------------------------------------------


def check_size(tokenizer: Tokenizer, size: int) -> list[Finding]:
    """Checks that the number of pieces equals `model.vocab_size`."""
    pieces, text = tokenizer.vocab_size, f"{size:,} pieces, as in the model"
    if pieces != size:
        text = f"the tokenizer has {pieces:,} pieces, and the model {size:,}. "
        text += f"Set `model.vocab_size={pieces}`."
    return [Finding("vocabulary", text, warning=pieces != size)]


def check_trainable(train: Survey, config: Config) -> list[Finding]:
    """Checks that a tokenizer of the configured size can be trained on the sample of train."""
    sources, targets = ([pair.text(side) for pair in train.sample] for side in SIDES)
    apart = config.data.separate_vocabularies
    texts = [sources, targets] if apart else [sources + targets]
    symbols = symbol_pieces(symbols_of(config.data))
    with tempfile.TemporaryDirectory() as folder:
        try:
            for lines in texts:
                path = Path(folder, "tokenizer.model")
                train_configured_tokenizer(config, lines, path, symbols)
        except UserError as error:
            sampled = len(train.sample) < train.pairs
            where = f" (tried on {len(train.sample):,} pairs)" if sampled else ""
            return [Finding("vocabulary", f"{error}{where}", warning=True)]
    return [Finding("vocabulary", f"the text is enough for {config.model.vocab_size:,} pieces")]


def check_unknown(surveys: Surveys, tokenizer: Tokenizer) -> list[Finding]:
    """Checks for lines with characters that the tokenizer encodes as <unk> or as bytes.

    It looks at every line of a small split, or else at `LINES` to twice as many.
    """
    pieces = {side: tokenizer.vocabulary(side) for side in SIDES}
    fallback = {
        side: {UNK_ID} | {id for id, piece in enumerate(pieces[side]) if _BYTE.fullmatch(piece)}
        for side in SIDES
    }

    def is_unknown(text: str, side: SideName) -> bool:
        return not fallback[side].isdisjoint(tokenizer.ids([text], side)[0])

    counts, unknown = [], set()
    for survey in surveys:
        sample = survey.sample[:: max(1, len(survey.sample) // LINES)]
        for side in SIDES:
            bad = [pair for pair in sample if is_unknown(pair.text(side), side)]
            counts.append(_count(survey, bad, len(sample), f"{side} lines", side))
            # After a letter, because an invisible character alone is blank text.
            letter = next((p for p in pieces[side] if len(p) == 1 and p.isalnum()), "")
            characters = {character for pair in bad for character in pair.text(side)}
            unknown |= {char for char in characters if is_unknown(letter + char, side)}
    shown = " ".join(_shown(char) for char in sorted(unknown)[:SHOWN])
    shown += " ..." if len(unknown) > SHOWN else ""
    message = (
        f"have characters that the tokenizer does not know ({shown}). The model sees <unk> or "
        "single bytes: train the tokenizer on text that has them, with a larger "
        "data.character_coverage if it is below 1, or clean the text."
    )
    return judge("unknown characters", counts, 0.02, message)


def _shown(character: str) -> str:
    """Returns the character, or its code point if it is invisible on its own."""
    visible = character.isprintable() and not unicodedata.combining(character)
    return character if visible else f"U+{ord(character):04X}"


def check_filters(corpora: Mapping[str, EncodedCorpus]) -> list[Finding]:
    """Checks the share of pairs that the length filters dropped; reports the other lengths."""
    findings, kept = [], []
    for name, corpus in corpora.items():
        report = corpus.report
        dropped = (report.read - report.kept) / report.read
        if dropped > 0.05:
            text = (
                f"{percent(dropped)} of {name} is not used: {report.summary()}. Split long "
                "lines into sentences, or raise data.max_length and data.max_ratio."
            )
            findings.append(Finding("filters", text, warning=True))
        longer = np.maximum(corpus.source_lengths, corpus.target_lengths)
        usual = int(np.percentile(longer, 99))
        kept.append(f"{percent(dropped)} of {name} dropped, 99% of the rest up to {usual} "
                    f"tokens long, the longest {longer.max()}")  # fmt: skip
    return findings or [Finding("filters", "; ".join(kept))]


# --- All of them -------------------------------------------------------------------------

TEXT_CHECKS: tuple[Callable[[Surveys, DataConfig], list[Finding]], ...] = (
    partial(check_lines, "encoding"),
    partial(check_lines, "control characters"),
    partial(check_lines, "HTML entities"),
    check_empty,
    partial(check_lines, "length"),
    check_ratio,
    check_copies,
    check_languages,
    check_duplicates,
    check_overlap,
    check_variety,
)


def diagnose(
    config: Config,
    data: DataConfig,
    task: TranslationTask | None = None,
    *,
    test: Sequence[str] = (),
    every: int = 1,
    progress: NamedProgress = lambda step, done: None,
) -> list[Finding]:
    """Reads the text and runs the checks.

    `data` is the run's, with the files of the built-in corpus, and `test` names test corpora.
    The task is that of a run with a tokenizer. `every` and errors are those of `take_surveys`.
    """
    texts = {"train": data.train, "dev": data.valid, "test": test}
    surveys = take_surveys(texts, data, every=every, progress=progress)
    findings = [finding for check in TEXT_CHECKS for finding in check(surveys, data)]
    if task:
        findings += check_size(task.tokenizer, config.model.vocab_size)
        findings += check_unknown(surveys, task.tokenizer)
        findings += check_filters({"train": task.train, "dev": task.valid})
    elif data.tokenizer:
        findings += check_unknown(surveys, Tokenizer(Path(data.tokenizer)))
    elif config.data.train:  # for the built-in corpus `train` lowers an excessive size
        findings += check_trainable(surveys[0], config)
    return findings


def quick_findings(task: TranslationTask) -> list[str]:
    """Returns the warnings for the start of training, one line each.

    Examines the whole dev set and `QUICK_PAIRS` evenly spaced training pairs, which takes 1 s
    on Multi30k. Skipping the rest of a larger corpus takes about 1 s per million pairs. Too
    little variety may be intended, so only `doctor` warns of it.
    """
    every = -(-task.train.report.read // QUICK_PAIRS)
    findings = diagnose(task.run.config, task.data, task, every=every)
    warnings = [each for each in findings if each.warning and each.check != "variety"]
    return [f"{each.check}: {each.text}" for each in warnings]
