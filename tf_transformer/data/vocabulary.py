"""SentencePiece vocabularies (paper 5.1): training, normalization, symbols and tags.

The rule of normalization is compiled into the model file, so training, translation, exports
and converted models all apply the same one. Tags such as "<2de>" are text before a source that
tells one model what to do: Johnson et al. (2017), "Google's Multilingual Neural Machine
Translation System", choose the target language by such a token; Raffel et al. (2020), T5,
choose a task by a prefix of words. No TensorFlow.
"""

import io
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import replacing
from tf_transformer.config import (
    BOS_ID,
    EOS_ID,
    NORMALIZATIONS,
    PAD_ID,
    SLOTS,
    UNK_ID,
    DataConfig,
)
from tf_transformer.config.config import SETTINGS
from tf_transformer.config.settings import require_words, split_tags
from tf_transformer.data.text import Sample, corpora, read_errors, well_formed

SPACE_PIECE = "\u2581"  # what SentencePiece writes for a space
SPECIAL_IDS = {"pad_id": PAD_ID, "unk_id": UNK_ID, "bos_id": BOS_ID, "eos_id": EOS_ID}
TRAINING_BYTES = 1 << 28  # a random sample of so many suffices, and bounds the memory
_LINE_COST = 200  # bytes of a line in it beside its text
# SentencePiece silently skips longer lines. Training on pairs would drop them too: a piece has
# at most 16 characters, so they have more tokens than `data.max_length` usually allows.
LINE_BYTES = 4_192
_BUILT_IN_RULES = ("nfkc", "nmt_nfkc")  # names that SentencePiece knows
_RESERVED = "\N{LOWER FIVE EIGHTHS BLOCK}"  # it silently skips lines with this mark, too

logger = logging.getLogger(__name__)


def train_tokenizer(
    lines: Iterable[str],
    path: str | Path,
    *,
    vocab_size: int,
    kind: str = "bpe",
    normalization: str = NORMALIZATIONS[0],
    character_coverage: float = 1.0,
    symbols: Iterable[str] = (),
) -> None:
    """Trains a SentencePiece model on `lines` and writes it to `path`, whole or not at all.

    Lines of more than `LINE_BYTES`, or with U+2585, which SentencePiece reserves, are left out,
    with a warning that counts them; a lone surrogate counts as U+FFFD. Characters missing from
    `lines` are spelled in bytes, so every text can be encoded. With the "identity"
    normalization, every text also decodes to itself, except that spaces (U+0020 and U+2581) are
    lost at the ends and a run of them becomes one.

    Args:
        lines: sentences, of both languages for a shared vocabulary.
        path: the model file to write.
        vocab_size: number of pieces, including the four special ids and 256 bytes.
        kind: "bpe" (paper 5.1) or "unigram".
        normalization: one of `config.NORMALIZATIONS`.
        character_coverage: share of the characters in `lines` that have pieces; the rarest
            are spelled in bytes.
        symbols: strings that are always pieces of their own; U+2581 at the beginning of one
            stands for the space before it.

    Raises:
        UserError: if `path` cannot be written, a setting is out of range, or `lines` are empty,
            too few or too varied for `vocab_size`; the message gives the bound.
        TypeError: if `lines` are not strings.

    Example:
        >>> import tf_transformer
        >>> lines = ["a small text", "ein kleiner Text"]
        >>> tf_transformer.train_tokenizer(lines, "small.model", vocab_size=300)
        >>> tf_transformer.Tokenizer("small.model").vocab_size
        300
    """
    SETTINGS["model.vocab_size"].check("vocab_size", vocab_size)
    SETTINGS["data.tokenizer_kind"].check("kind", kind)
    symbols = sorted(set(symbols))
    require_words("symbols", symbols)
    sample: Sample[str] = Sample(TRAINING_BYTES)
    for number, line in enumerate(_usable(lines)):
        sample.offer(number, line, len(line.encode()) + _LINE_COST)
    chosen = sample.items()
    del sample  # its memory is for SentencePiece
    if not chosen:
        raise UserError(
            "There is no text to train a tokenizer on: every line is empty or longer than "
            f"{LINE_BYTES:,} bytes."
        )
    options = {
        "vocab_size": vocab_size,
        "model_type": kind,
        "character_coverage": character_coverage,
        "user_defined_symbols": symbols,
    }
    try:
        model = _train_model(chosen, normalization, **options)
    except RuntimeError as error:
        raise _explain(str(error), vocab_size) from None
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model)


def _train_model(lines: list[str], normalization: str, **options: object) -> bytes:
    """Trains on the lines, which are removed from the list: SentencePiece has a copy."""
    lines.reverse()
    model = io.BytesIO()
    with _rule_arguments(normalization) as rule:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(lines.pop() for _ in range(len(lines))),
            model_writer=model,
            byte_fallback=True,
            minloglevel=2,
            **options,
            **rule,
            **SPECIAL_IDS,
        )
    proto = _parsed(model.getvalue())
    proto.normalizer_spec.name = normalization
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # a temporary file's path
    return proto.SerializeToString()


@contextmanager
def _rule_arguments(name: str) -> Iterator[dict[str, str]]:
    """Yields the arguments of SentencePiece's trainer for a rule of `config.NORMALIZATIONS`."""
    if name in _BUILT_IN_RULES:
        yield {"normalization_rule_name": name}
        return
    # U+2581 in a text always decodes to a space, so it is treated as one from the start. This
    # entry also keeps the rule from being empty, about which TensorFlow Text would print a line
    # each time it loads the model.
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write(f"{ord(SPACE_PIECE):X}\t{ord(' '):X}\n")
        file.flush()
        yield {"normalization_rule_tsv": file.name}


def _usable(lines: Iterable[str]) -> Iterator[str]:
    """Drops blank lines and, with a warning, those that SentencePiece would skip."""
    skipped = {f"of more than {LINE_BYTES:,} bytes": 0, f"with {_RESERVED!r}": 0}
    long, reserved = skipped
    for line in lines:
        if isinstance(lines, str) or not isinstance(line, str):
            wrong = lines if isinstance(lines, str) else line
            raise TypeError(f"`lines` must be a list of strings. Received: {quoted(wrong)}.")
        line = well_formed(line)
        if len(line.encode()) > LINE_BYTES:
            skipped[long] += 1
        elif _RESERVED in line:
            skipped[reserved] += 1
        elif line.strip():
            yield line
    for what, count in skipped.items():
        if count:
            logger.warning("the tokenizer learns nothing from lines %s: %s", what, f"{count:,}")


def _explain(message: str, vocab_size: int) -> UserError:
    received = f"Received: vocab_size={vocab_size}."
    if match := re.search(r"too high.*<= (\d+)", message):
        largest = int(match[1])
        return UserError(
            f"`vocab_size` must be at most {largest}, all pieces that this text has, down to "
            f"those that it has once. {received} To split rare words use far fewer, such "
            f"as `model.vocab_size={max(largest // 10, min(largest, 500))}`."
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"`vocab_size` must be at least {match[1]}, for the characters of this text, the "
            f"bytes and the special ids. {received} A `data.character_coverage` below 1 leaves "
            "rare characters out: 0.9995 is usual for Chinese and Japanese."
        )
    return UserError(f"SentencePiece cannot train a tokenizer: {message}. {received}")


def tokenizer_settings(path: Path) -> dict[str, str | float]:
    """Reads the settings of `config.DataConfig` that a SentencePiece model holds.

    They are empty if `path` does not exist, as in a run without a tokenizer yet; see
    `read_model` for errors.
    """
    if not path.exists():
        return {}
    proto = read_proto(path)
    return {
        "data.normalization": proto.normalizer_spec.name,
        "data.character_coverage": round(proto.trainer_spec.character_coverage, 6),  # float32
    }


def read_model(path: Path) -> bytes:
    """Reads a SentencePiece model; UserError if `path` is not one."""
    with read_errors(path):
        model = path.read_bytes()
    try:  # an empty file would parse as an empty message
        sentencepiece.SentencePieceProcessor(model_proto=model or b"empty")
    except RuntimeError:
        raise UserError(f"{path} is not a SentencePiece model.") from None
    return model


def read_proto(path: Path) -> Any:
    """Reads the protocol buffer of a SentencePiece model; see `read_model`."""
    return _parsed(read_model(path))


def _parsed(model: bytes) -> Any:
    # Here, since it imports protobuf, for which a translation need not wait.
    from tf_transformer.data.sentencepiece_model import ModelProto

    return ModelProto.FromString(model)


def symbols_of(data: DataConfig) -> list[str]:
    """Lists the words that the tokenizer keeps whole: `data.symbols`, and tags of one word."""
    tags = split_tags(data.tag).values()
    return [*data.symbols, *(tag for tag in dict.fromkeys(tags) if " " not in tag)]


def symbol_pieces(symbols: Sequence[str]) -> set[str]:
    """Returns the pieces that keep symbols whole wherever they occur."""
    return {*symbols, *(f"{SPACE_PIECE}{symbol}" for symbol in symbols)}


def kept_whole(data: DataConfig) -> list[str]:
    """Lists what a tokenizer must not split: the symbols and, with `data.slots`, the slots."""
    return [*symbols_of(data), *(SLOTS if data.slots else ())]


def pieces_of(model: bytes) -> list[str]:
    """Returns the pieces of a SentencePiece model, by id."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return processor.id_to_piece([*range(processor.vocab_size())])


def symbols_in(model: bytes) -> frozenset[str]:
    """Returns the words that a SentencePiece model never splits."""
    from tf_transformer.data.sentencepiece_model import PieceType

    pieces = _parsed(model).pieces
    whole = (each.piece for each in pieces if each.type == PieceType.USER_DEFINED)
    return frozenset(piece.removeprefix(SPACE_PIECE) for piece in whole)


def slot_ids(pieces: Sequence[str]) -> np.ndarray:
    """Returns the ids of the slots, within a word and after a space, int32 [9, 2].

    There are none, [0, 2], if the vocabulary lacks one of them.
    """
    known = {piece: number for number, piece in enumerate(pieces)}
    forms = [(slot, f"{SPACE_PIECE}{slot}") for slot in SLOTS]
    if not known.keys() >= symbol_pieces(SLOTS):
        return np.zeros([0, 2], np.int32)
    return np.array([[known[form] for form in both] for both in forms], np.int32)


def check_tags(data: DataConfig) -> None:
    """Checks the tags against the text, and logs how many of its lines hold each symbol.

    Raises UserError if a tag belongs to no corpus, or the text already contains it.
    """
    texts = corpora((*data.train, *data.valid), data)
    for key, tag in split_tags(data.tag).items():
        if not any(tag in text.tag for text in texts if key in text.keys):
            raise UserError(
                f"`data.tag` {key}={tag} must name a target language, or one of `train` and "
                f"`valid`, or the last parts of its name. Received: {quoted(key)}. There are: "
                f"{', '.join(dict.fromkeys(key for text in texts for key in text.keys[:2]))}."
            )
    counts = dict.fromkeys(data.symbols, 0)
    tags = [symbol for symbol in symbols_of(data) if symbol not in counts]
    looks_like_slots = 0
    for text in texts if counts or tags or data.slots else []:
        for number, pair in enumerate(text.plain_pairs(), start=1):
            looks_like_slots += any(re.search("<[1-9]>", side) for side in pair)
            for symbol in counts:
                counts[symbol] += sum(symbol in side for side in pair)
            if found := [tag for tag in tags if any(tag in side for side in pair)]:
                raise UserError(
                    f"The text must not contain the tag {found[0]}. Received: line {number:,} "
                    f"of {text.name}. Choose another tag or, if the text is already tagged, "
                    f"set `data.symbols={found[0]}` instead of `data.tag`."
                )
    if data.slots and looks_like_slots:
        logger.warning(
            "lines with <1> to <9>, which look like slots and stay as they are: %s",
            f"{looks_like_slots:,}",
        )
    for symbol, count in counts.items():
        log = logger.info if count else logger.warning
        log("symbol %s: in %s lines of the text", symbol, f"{count:,}")


def require_whole(symbols: Sequence[str], tokenizer: Path) -> None:
    """Raises UserError if the tokenizer splits one of the symbols."""
    whole = symbols_in(read_model(tokenizer)) if symbols else frozenset()
    if cut := [symbol for symbol in symbols if symbol not in whole]:
        raise UserError(
            f"The tokenizer {tokenizer} must keep {' '.join(cut)} whole. Leave out "
            "`training.init_from` or `data.tokenizer`, or make one with `tf-transformer "
            "tokenizer ... --symbols`, each in quotes."
        )


def require_joinable(model: bytes) -> None:
    """Raises UserError unless a tokenizer's model encodes "A B" as the pieces of A and of B."""
    proto = _parsed(model)
    across = next((p.piece for p in proto.pieces if SPACE_PIECE in p.piece[1:]), "")
    if across or not proto.normalizer_spec.add_dummy_prefix:
        raise UserError(
            "`data.join` needs a tokenizer whose words all begin with a mark, and whose pieces "
            f"end with the word. Received: {quoted(across) if across else 'no such mark'}. "
            "Leave `data.tokenizer` out, or set `data.join=0`."
        )


def require_known(tag: str | None, data: DataConfig, tokenizer: Path) -> str:
    """Returns the tag to translate with; UserError if one of its words is in no training tag.

    `tag` is one or more of the run's tags, separated by spaces. If `data` has neither tags nor
    symbols, the tokenizer's symbols count.
    """
    if tag is None:
        return ""
    known = _known_tags(data, tokenizer)
    words = {word for each in known for word in each.split()}
    if unknown := [word for word in tag.split() if word not in words]:
        raise UserError(
            f"`tag` must consist of tags that {tokenizer.parent} was trained with: "
            f"{', '.join(known) or 'it has none'}. Received: {quoted(unknown[0])}."
        )
    return " ".join(tag.split())


def usable_tag(tag: str | None, data: DataConfig, tokenizer: Path) -> str | None:
    """Returns the tag, as `require_known`; None, with a warning, for a run without tags."""
    if tag and not _known_tags(data, tokenizer):
        text = "%s was trained without tags: `tag` has no effect on it"
        logger.warning(text, tokenizer.parent)
        return None
    return require_known(tag, data, tokenizer) or None


def _known_tags(data: DataConfig, tokenizer: Path) -> list[str]:
    tags = dict.fromkeys([*split_tags(data.tag).values(), *data.symbols])
    return list(tags) or sorted(symbols_in(read_model(tokenizer)))
