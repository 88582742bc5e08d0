"""Tags: text before a source that tells one model what to do, such as "<2de>" for German.

Johnson et al. (2017), "Google's Multilingual Neural Machine Translation System", choose the
target language by such a token; Raffel et al. (2020), T5, choose a task by a prefix of words.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.config import DataConfig
from tf_transformer.config.data import split_tags
from tf_transformer.data.corpora import ParallelText, corpora
from tf_transformer.data.normalization import SPACE_PIECE, read_proto
from tf_transformer.errors import UserError, quoted

_USER_DEFINED = 4  # type of a user-defined piece in a SentencePiece model

logger = logging.getLogger(__name__)


def symbols_of(data: DataConfig) -> list[str]:
    """Lists the words that the tokenizer keeps whole: `data.symbols`, and tags of one word."""
    tags = split_tags(data.tag).values()
    return [*data.symbols, *(tag for tag in dict.fromkeys(tags) if " " not in tag)]


def symbol_pieces(symbols: Sequence[str]) -> set[str]:
    """Returns the pieces that keep symbols whole wherever they occur."""
    return {*symbols, *(f"{SPACE_PIECE}{symbol}" for symbol in symbols)}


def check_tags(data: DataConfig) -> None:
    """Checks the tags against the text, and logs how many of its lines hold each symbol.

    Raises:
        UserError: if a tag belongs to no corpus, or the text already contains it.
    """
    texts = corpora((*data.train, *data.valid), data)
    for key, tag in split_tags(data.tag).items():
        if not any(tag in text.tag for text in texts if key in text.keys):
            raise UserError(
                f"--tag {key}={tag} must name a target language, or a --train or --valid. "
                f"Received: {quoted(key)}. There are: "
                f"{', '.join(dict.fromkeys(key for text in texts for key in text.keys))}."
            )
    counts = dict.fromkeys(data.symbols, 0)
    tags = [symbol for symbol in symbols_of(data) if symbol not in counts]
    for text in texts if counts or tags else []:
        _look_through(text, tags, counts)
    for symbol, count in counts.items():
        log = logger.info if count else logger.warning
        log("symbol %s: in %s lines of the text", symbol, f"{count:,}")


def _look_through(text: ParallelText, tags: Sequence[str], counts: dict[str, int]) -> None:
    """Counts the lines that contain each symbol; UserError at the first that contains a tag."""
    for number, pair in enumerate(text.plain_pairs(), start=1):
        for side in pair:
            for symbol in counts:
                counts[symbol] += symbol in side
            for tag in tags:
                if tag in side:
                    raise UserError(
                        f"The text must not contain the tag {tag}. Received: line {number:,} "
                        f"of {text.name}. Choose another tag or, if the text is already "
                        f"tagged, use --set data.symbols={tag} instead of --tag."
                    )


def require_whole(symbols: Sequence[str], tokenizer: Path) -> None:
    """Raises UserError if the tokenizer splits one of the symbols."""
    whole = _symbols_in(tokenizer) if symbols else set()
    if cut := [symbol for symbol in symbols if symbol not in whole]:
        raise UserError(
            f"The tokenizer {tokenizer} must keep {cut[0]} whole. Train one with "
            f"tf-transformer tokenizer ... --symbols '{cut[0]}', or leave data.tokenizer out."
        )


def require_known(tag: str | None, data: DataConfig, tokenizer: Path) -> str:
    """Returns the tag to translate with; UserError if one of its words is in no training tag.

    Args:
        tag: one or more of the run's tags, separated by spaces; None for none.
        data: configuration of the run; without tags and symbols, the tokenizer's symbols count.
        tokenizer: tokenizer of the run.
    """
    if tag is None:
        return ""
    known = _known_tags(data, tokenizer)
    words = {word for each in known for word in each.split()}
    if unknown := [word for word in tag.split() if word not in words]:
        raise UserError(
            f"--tag must consist of tags that {tokenizer.parent} was trained with: "
            f"{', '.join(known) or 'it has none'}. Received: {quoted(unknown[0])}."
        )
    return " ".join(tag.split())


def usable_tag(tag: str | None, data: DataConfig, tokenizer: Path) -> str | None:
    """Returns the tag, as `require_known`; None, with a warning, for a run without tags."""
    if tag and not _known_tags(data, tokenizer):
        logger.warning(
            "%s was trained without tags: --tag has no effect on it", tokenizer.parent
        )
        return None
    return require_known(tag, data, tokenizer) or None


def _known_tags(data: DataConfig, tokenizer: Path) -> list[str]:
    tags = dict.fromkeys([*split_tags(data.tag).values(), *data.symbols])
    return list(tags) or sorted(_symbols_in(tokenizer))


def _symbols_in(tokenizer: Path) -> set[str]:
    pieces = read_proto(tokenizer).pieces
    return {
        each.piece.removeprefix(SPACE_PIECE) for each in pieces if each.type == _USER_DEFINED
    }
