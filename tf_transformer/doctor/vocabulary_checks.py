"""Checks of the tokenizer against model and text, and of the tokenised text.

They follow the conventions of `doctor.line_checks`.
"""

import difflib
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, UNK_ID, Config
from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.data.normalization import SPACE_PIECE
from tf_transformer.data.tags import symbol_pieces, symbols_of
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.doctor.findings import Count, Finding, judge, percent
from tf_transformer.doctor.survey import Pair, Survey
from tf_transformer.errors import UserError
from tf_transformer.tasks.tokenizers import train_configured_tokenizer

REWRITTEN = 0.001
UNKNOWN = 0.02
UNUSED = 0.25
DROPPED = 0.05

LINES = 5_000  # lines of each side to tokenise
SHOWN = 8  # unknown characters to name in a message
EXAMPLES = 3  # rewritings to name in a message
COMPARED = 100  # lines of each side to take them from


def check_size(tokenizer: Tokenizer, vocab_size: int) -> list[Finding]:
    """Checks that the number of pieces equals `model.vocab_size`."""
    check, pieces = "vocabulary", tokenizer.vocab_size
    if pieces > vocab_size:
        text = (
            f"the tokenizer has {pieces:,} pieces, the model only {vocab_size:,}: training "
            f"fails at the first larger id. Use --set model.vocab_size={pieces}."
        )
    elif pieces < vocab_size:
        text = (
            f"the tokenizer has {pieces:,} pieces, the model {vocab_size:,}: the rest wastes "
            f"memory and time. Use --set model.vocab_size={pieces}."
        )
    else:
        return [Finding(check, f"{pieces:,} pieces, as in the model")]
    return [Finding(check, text, warning=True)]


def check_trainable(
    config: Config, train: Survey, text_sides: Sequence[SideName] = SIDES, *, prose: bool = True
) -> list[Finding]:
    """Checks that a tokenizer of the configured size can be trained on the text, by doing so.

    Args:
        config: configuration of the training.
        train: survey of its text; the sample is used.
        text_sides: sides that the task tokenises; see `TaskRecord`.
        prose: whether both sides are natural-language sentences; see `TaskRecord`.
    """
    sources, targets = ([pair.text(side) for pair in train.sample] for side in SIDES)
    lines = sources + targets if prose else sources
    # Tokenised targets that are not prose consist of symbols, each a piece of its own.
    is_symbolic = "target" in text_sides and not prose
    words = {token for line in targets for token in line.split()} if is_symbolic else ()
    symbols = {f"{SPACE_PIECE}{word}" for word in words} | symbol_pieces(
        symbols_of(config.data)
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = Path(folder, "tokenizer.model")
            train_configured_tokenizer(config, lines, path, symbols)
        except UserError as error:
            sampled = len(train.sample) < train.pairs
            where = f" (tried on {len(train.sample):,} pairs)" if sampled else ""
            return [Finding("vocabulary", f"{error}{where}", warning=True)]
    size = config.model.vocab_size
    return [Finding("vocabulary", f"the text is enough for {size:,} pieces")]


def check_unknown(
    tokenizer: Tokenizer, surveys: Sequence[Survey], sides: Sequence[SideName] = SIDES
) -> list[Finding]:
    """Checks for lines with characters that the tokenizer encodes as <unk> or as bytes.

    Args:
        tokenizer: the run's tokenizer.
        surveys: surveys of its text.
        sides: the sides that the tokenizer handles; class labels are not tokenised.
    """
    counts: list[Count] = []
    tokenizers = {side: tokenizer.of(side) for side in sides}
    characters: dict[SideName, set[str]] = {side: set() for side in sides}
    for survey in surveys:
        sample = _sample(survey)
        for side, side_tokenizer in tokenizers.items():
            lines = [pair.text(side) for pair in sample]
            bad = np.flatnonzero(_has_unknown(side_tokenizer, lines)).tolist()
            numbers = [sample[row].number for row in bad]
            counts.append(survey.count(numbers, len(sample), f"{side} lines", side))
            characters[side].update(*(lines[row] for row in bad))
    unknown = {
        char for side in sides for char in _unknown(tokenizers[side], sorted(characters[side]))
    }
    shown = " ".join(_shown(char) for char in sorted(unknown)[:SHOWN])
    shown += " ..." if len(unknown) > SHOWN else ""
    message = (
        f"have characters that the tokenizer does not know ({shown}). The model sees <unk> or "
        "single bytes: train the tokenizer on text that has them, with a larger "
        "data.character_coverage if it is below 1, or clean the text."
    )
    return judge("unknown characters", counts, UNKNOWN, message)


def check_round_trip(
    tokenizer: Tokenizer, surveys: Sequence[Survey], sides: Sequence[SideName] = SIDES
) -> list[Finding]:
    """Checks for lines that change when they are tokenised and detokenised.

    The arguments are those of `check_unknown`. Leading, trailing and repeated spaces are
    ignored, since every normalisation rule removes them.
    """
    counts: list[Count] = []
    rewritings: Counter[tuple[str, str]] = Counter()
    for survey in surveys:
        sample = _sample(survey)
        for side in sides:
            lines = [_single_blanks(pair.text(side)) for pair in sample]
            ids = tokenizer.of(side).tokenize(tf.constant(lines, tf.string))
            texts = tokenizer.detokenize(ids, side).numpy()
            after = [text.decode("utf-8") for text in texts]
            bad = [row for row, line in enumerate(lines) if line != after[row]]
            numbers = [sample[row].number for row in bad]
            counts.append(survey.count(numbers, len(sample), f"{side} lines", side))
            for row in bad[:COMPARED]:
                rewritings.update(_rewritings(lines[row], after[row]))
    shown = ", ".join(
        f"{_visible(old)} becomes {_visible(new)}"
        for (old, new), _ in rewritings.most_common(EXAMPLES)
    )
    message = (
        f"are rewritten by the tokenizer ({shown}). The model can never write such a line "
        "exactly: train a tokenizer with data.normalization=identity."
    )
    return judge("round trip", counts, REWRITTEN, message)


def check_unused(tokenizer: Tokenizer, train: EncodedCorpus) -> list[Finding]:
    """Checks for pieces that the training text never uses, whose embeddings stay random."""
    counts = train.piece_counts(tokenizer.vocab_size)
    counts[_fallback_ids(tokenizer)] = 1  # meant for other text
    counts[: EOS_ID + 1] = 1
    unused = np.flatnonzero(counts == 0)
    pieces = [
        piece.decode() for piece in tokenizer.pieces(tf.constant(unused, tf.int32)).numpy()
    ]
    count = Count(len(unused), tokenizer.vocab_size, "pieces")
    message = (
        f"never occur in train, such as {' '.join(pieces[:SHOWN])}. The tokenizer was made for "
        "other text, or is too large for this: train another, or lower model.vocab_size."
    )
    return judge("unused pieces", [count], UNUSED, message)


def check_filters(corpora: Mapping[str, EncodedCorpus]) -> list[Finding]:
    """Checks the share of pairs that the length filters dropped; reports other lengths."""
    findings, kept = [], []
    for name, corpus in corpora.items():
        report = corpus.report
        dropped = (report.read - report.kept) / report.read
        if dropped > DROPPED:
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


def _sample(survey: Survey) -> list[Pair]:
    """Returns `LINES` to twice as many evenly spread pairs, or all if they are fewer."""
    return survey.sample[:: max(1, len(survey.sample) // LINES)]


def _single_blanks(line: str) -> str:
    return " ".join(word for word in line.split(" ") if word)


def _rewritings(before: str, after: str) -> set[tuple[str, str]]:
    """Returns the substrings of `before` that differ in `after`, with their replacements."""
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return {(before[a:b], after[c:d]) for kind, a, b, c, d in changes if kind != "equal"}


def _visible(text: str) -> str:
    """Formats a few characters in quotation marks, or as code points if one is invisible."""
    if not text:
        return "nothing"
    text = text[:SHOWN]
    if text == " ":
        return "a blank"
    shown = [_shown(character) for character in text]
    return f"'{text}'" if "".join(shown) == text else " ".join(map(_code_point, text))


def _shown(character: str) -> str:
    """Returns the character, or its code point if it is invisible on its own."""
    visible = character.isprintable() and not unicodedata.combining(character)
    return character if visible else _code_point(character)


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def _fallback_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Returns the ids of <unk> and of the byte pieces, such as <0xE4>."""
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    is_byte = [piece.startswith(b"<0x") and piece.endswith(b">") for piece in pieces]
    return np.append(np.flatnonzero(is_byte), UNK_ID)


def _has_unknown(tokenizer: Tokenizer, lines: Sequence[str]) -> np.ndarray:
    """Tells which lines contain <unk> or byte pieces: bool [lines]."""
    ids = tokenizer.tokenize(tf.constant(lines, tf.string))
    hits = np.isin(ids.values.numpy(), _fallback_ids(tokenizer)).astype(np.int64)
    ends = np.cumsum(np.append(0, hits))[ids.row_splits.numpy()]
    return np.diff(ends) > 0


def _known_character(tokenizer: Tokenizer) -> str:
    """Returns a letter or digit that is a piece; "" if there is none."""
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    texts = (piece.decode("utf-8") for piece in pieces)
    return next((text for text in texts if len(text) == 1 and text.isalnum()), "")


def _unknown(tokenizer: Tokenizer, characters: Sequence[str]) -> list[str]:
    if not characters:
        return []
    known = _known_character(tokenizer)  # so that an invisible character is not blank text
    is_unknown = _has_unknown(tokenizer, [known + char for char in characters])
    return [characters[row] for row in np.flatnonzero(is_unknown).tolist()]
