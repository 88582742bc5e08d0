"""Checks of the tokenizer against model and text, and of the tokenised text.

They follow the conventions of `doctor.line_checks`.
"""

import difflib
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from tf_transformer.doctor.survey import Survey
from tf_transformer.errors import UserError
from tf_transformer.tasks.tokenizers import train_configured_tokenizer

REWRITTEN = 0.001
UNKNOWN = 0.02
UNUSED = 0.25
DROPPED = 0.05

LINES = 5_000  # lines per side to tokenise
SHOWN = 8  # unknown characters to name in a message
EXAMPLES = 3  # rewritings to name in a message
COMPARED = 100  # rewritten lines per side to take them from


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

    The text is the sample of `train`; for `text_sides` and `prose` see `TaskRecord`.
    """
    sources, targets = map(train.texts, SIDES)
    apart = config.data.separate_vocabularies
    texts = [sources, targets] if apart else [sources + targets if prose else sources]
    # Tokenised targets that are not prose consist of symbols, each a piece of its own.
    is_symbolic = "target" in text_sides and not prose
    words = {token for line in targets for token in line.split()} if is_symbolic else ()
    symbols = {f"{SPACE_PIECE}{word}" for word in words} | symbol_pieces(
        symbols_of(config.data)
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = Path(folder, "tokenizer.model")
            for lines in texts:
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

    `sides` are those that it handles; class labels are not tokenised.
    """
    tokenizers = {side: tokenizer.of(side) for side in sides}
    characters: dict[SideName, set[str]] = {side: set() for side in sides}

    def rows_with_unknown(side: SideName, lines: list[str]) -> list[int]:
        rows = np.flatnonzero(_has_unknown(tokenizers[side], lines)).tolist()
        characters[side].update(*(lines[row] for row in rows))
        return rows

    counts = _count_lines(surveys, sides, rows_with_unknown)
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

    Leading, trailing and repeated spaces are ignored, since every normalisation rule removes
    them. For `sides` see `check_unknown`.
    """
    rewritings: Counter[tuple[str, str]] = Counter()

    def rewritten_rows(side: SideName, lines: list[str]) -> list[int]:
        before = [" ".join(filter(None, line.split(" "))) for line in lines]
        ids = tokenizer.of(side).tokenize(tf.constant(before, tf.string))
        after = [text.decode("utf-8") for text in tokenizer.detokenize(ids, side).numpy()]
        rows = [row for row, line in enumerate(before) if line != after[row]]
        for row in rows[:COMPARED]:
            rewritings.update(_rewritings(before[row], after[row]))
        return rows

    counts = _count_lines(surveys, sides, rewritten_rows)
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
    """Checks for pieces that never occur in training, whose embeddings stay random."""
    counts = train.piece_counts(tokenizer.vocab_size)
    counts[_fallback_ids(tokenizer)] = 1  # meant for other text
    counts[: EOS_ID + 1] = 1
    unused = np.flatnonzero(counts == 0)
    names = _pieces(tokenizer)
    shown = " ".join(names[row] for row in unused[:SHOWN])
    count = Count(len(unused), tokenizer.vocab_size, "pieces")
    message = (
        f"never occur in train, such as {shown}. The tokenizer was made for "
        "other text, or is too large for this: train another, or lower model.vocab_size."
    )
    return judge("unused pieces", [count], UNUSED, message)


def check_filters(corpora: Mapping[str, EncodedCorpus]) -> list[Finding]:
    """Checks the share of pairs that the length filters dropped; reports the other lengths."""
    findings, kept = [], []
    for name, corpus in corpora.items():
        report = corpus.report
        if not report.kept:
            text = f"{name} has no usable pair: {report.summary()}."
            findings.append(Finding("filters", text, warning=True))
            continue
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


def _count_lines(
    surveys: Sequence[Survey],
    sides: Sequence[SideName],
    find: Callable[[SideName, list[str]], list[int]],
) -> list[Count]:
    """Counts lines whose rows `find` returns, among `LINES` to twice as many per side."""
    counts = []
    for survey in surveys:
        sample = survey.sample[:: max(1, len(survey.sample) // LINES)]
        for side in sides:
            rows = find(side, [pair.text(side) for pair in sample])
            numbers = [sample[row].number for row in rows]
            counts.append(survey.count(numbers, len(sample), f"{side} lines", side))
    return counts


def _rewritings(before: str, after: str) -> set[tuple[str, str]]:
    """Returns the substrings of `before` that differ in `after`, with their replacements."""
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return {(before[a:b], after[c:d]) for kind, a, b, c, d in changes if kind != "equal"}


def _visible(text: str) -> str:
    """Formats a few characters: quoted, or as code points if one is invisible."""
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


def _pieces(tokenizer: Tokenizer) -> list[str]:
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    return [piece.decode("utf-8") for piece in pieces]


def _fallback_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Returns the ids of <unk> and of the byte pieces, such as <0xE4>."""
    is_byte = [piece.startswith("<0x") and piece.endswith(">") for piece in _pieces(tokenizer)]
    return np.append(np.flatnonzero(is_byte), UNK_ID)


def _has_unknown(tokenizer: Tokenizer, lines: Sequence[str]) -> np.ndarray:
    """Tells which lines contain <unk> or byte pieces: bool [lines]."""
    ids = tokenizer.tokenize(tf.constant(lines, tf.string))
    hits = np.isin(ids.values.numpy(), _fallback_ids(tokenizer)).astype(np.int64)
    ends = np.cumsum(np.append(0, hits))[ids.row_splits.numpy()]
    return np.diff(ends) > 0


def _unknown(tokenizer: Tokenizer, characters: Sequence[str]) -> list[str]:
    if not characters:
        return []
    letters = (piece for piece in _pieces(tokenizer) if len(piece) == 1 and piece.isalnum())
    known = next(letters, "")  # so that an invisible character is not blank text
    is_unknown = _has_unknown(tokenizer, [known + char for char in characters])
    return [characters[row] for row in np.flatnonzero(is_unknown).tolist()]
