"""The vocabulary of a Marian checkpoint as SentencePiece models with our special ids, and back.

Marian has a SentencePiece model for each language, and one list of pieces for both, vocab.json.
Both of our models have the whole list: the pieces of a model's language segment text as before,
and the others only turn the decoder's output into text. Marian's decoder starts with <pad>, so
that this name has the weights of our BOS; those of our padding, which count in the softmax, are
named <s> where a run is written.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.data.sentencepiece_model import ModelKind, ModelProto, Piece, PieceType
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE, read_proto

# Names in vocab.json; <pad> starts the decoder. Only what `to_marian` writes has <s>, which is
# then our padding.
UNK, EOS, PAD, BOS = "<unk>", "</s>", "<pad>", "<s>"

_LANGUAGE = re.compile(r">>[^<>]+<<")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character of UTF-16, invalid in UTF-8
# SentencePiece's treatment of white space, which both models must share.
_SPACES = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")


@dataclass(frozen=True)
class MarianVocabulary:
    """Marian's vocabulary in our order.

    Attributes:
        source_model, target_model: SentencePiece models with the same V pieces, for text of the
            source and the target language.
        rows: int [V], the id of each piece in vocab.json; that of <pad> for our BOS, because
            Marian's decoder starts with <pad>, and that of <unk> for pieces that vocab.json
            lacks.
        inputs_only: bool [V], true for pieces that Marian cannot generate: padding, unless it
            has weights of its own, and pieces that vocab.json lacks.
    """

    source_model: bytes
    target_model: bytes
    rows: np.ndarray
    inputs_only: np.ndarray


def merge_vocabulary(
    vocabulary: dict[str, int], source: Path, target: Path, own_padding: bool = False
) -> MarianVocabulary:
    """Merges vocab.json, source.spm and target.spm into SentencePiece models with our ids.

    Ids 0 to 3 are our special ids. The other pieces follow in the order of vocab.json, with
    their scores in the model, or marked as unused if the model lacks them. Language tags of
    multilingual models, such as >>fra<<, are user-defined pieces. Pieces that vocab.json lacks
    come last: Marian reads them as <unk>.

    Args:
        vocabulary: ids of the pieces, which must be 0 to len(vocabulary) - 1.
        source: SentencePiece model of the source language.
        target: SentencePiece model of the target language.
        own_padding: whether <s> in `vocabulary` is our padding, as `to_marian` writes it.

    Raises:
        UserError: if a file cannot be read, or is not of the kind that OPUS-MT models have.
    """
    _check_pieces(vocabulary)
    models = read_proto(source), read_proto(target)
    for name in _SPACES:
        values = [getattr(model.normalizer_spec, name) for model in models]
        if values[0] != values[1]:
            raise UserError(
                f"source.spm and target.spm must have the same {name}. Received: {values[0]} "
                f"and {values[1]}."
            )
    special = (UNK, EOS, PAD, *([BOS] if own_padding else ()))
    specials = _special_pieces(vocabulary.keys() - {*special})
    ordinary = [piece for piece in vocabulary if piece not in special]
    ordinary.sort(key=vocabulary.__getitem__)
    unlisted = dict.fromkeys(
        piece.piece
        for model in models
        for piece in model.pieces
        if piece.type in (PieceType.NORMAL, PieceType.USER_DEFINED)
        and name_of(piece.piece) not in vocabulary
    )
    if any({*ordinary} - {name_of(piece.piece) for piece in model.pieces} for model in models):
        _check_kinds((source, target), models)
    padding = BOS if own_padding else PAD
    rows = [vocabulary[name] for name in (padding, UNK, PAD, EOS, *ordinary)]
    rows += [vocabulary[UNK]] * len(unlisted)
    inputs_only = np.arange(len(rows)) >= len(rows) - len(unlisted)
    inputs_only[PAD_ID] = not own_padding
    source_model, target_model = (
        _with_pieces(model, specials, [*ordinary, *unlisted]) for model in models
    )
    return MarianVocabulary(source_model, target_model, np.array(rows), inputs_only)


def list_vocabulary(tokenizer: Tokenizer) -> tuple[np.ndarray, dict[str, int]]:
    """Returns our id for each of Marian's, [V], and vocab.json: Marian's id of each piece."""
    source, target = map(tokenizer.vocabulary, SIDES)
    first = EOS_ID + 1
    if source[first:] != target[first:]:
        raise UserError(
            "Marian's format needs one vocabulary for both languages. Received: two "
            "(data.separate_vocabularies)."
        )
    special = {EOS_ID: EOS, UNK_ID: UNK, PAD_ID: BOS, BOS_ID: PAD}
    ids = [EOS_ID, UNK_ID, PAD_ID, *range(first, len(source)), BOS_ID]  # <pad> is the last
    names = [special.get(i) or name_of(source[i]) for i in ids]
    vocabulary = {name: i for i, name in enumerate(names)}
    if len(vocabulary) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(
            f"Marian reads {quoted(twice)} as special or as a language, so it must be one "
            "piece of the tokenizer. Received: two."
        )
    return np.array(ids), vocabulary


def _check_pieces(vocabulary: dict[str, int]) -> None:
    """Raises UserError for ids with gaps, and for pieces that SentencePiece does not allow."""
    missing = [name for name in (UNK, EOS, PAD) if name not in vocabulary]
    if missing:
        raise UserError(f"vocab.json must have {UNK}, {EOS} and {PAD}. It lacks {missing}.")
    ids = vocabulary.values()
    if {type(i) for i in ids} != {int} or sorted(ids) != list(range(len(vocabulary))):
        raise UserError(
            f"The ids in vocab.json must be 0 to {len(vocabulary) - 1}, each once. Received: "
            "other ids."
        )
    for piece in vocabulary:
        if not piece or "\0" in piece or _SURROGATE.search(piece):
            raise UserError(
                "The pieces in vocab.json must be valid Unicode, not empty, and without NUL. "
                f"Received: {quoted(piece)}."
            )
        if _LANGUAGE.fullmatch(piece) and f"{SPACE_PIECE}{piece}" in vocabulary:
            raise UserError(
                f"vocab.json must have {piece} or {SPACE_PIECE}{piece}, but not both: they are "
                "one piece in SentencePiece. Received: both."
            )


def name_of(piece: str) -> str:
    """Returns the name of a piece in vocab.json: language tags are without the space."""
    bare = piece.removeprefix(SPACE_PIECE)
    return bare if _LANGUAGE.fullmatch(bare) else piece


def _check_kinds(paths: tuple[Path, Path], models: tuple) -> None:
    """Refuses models that would segment text otherwise with the other language's pieces."""
    for path, model in zip(paths, models, strict=True):
        if model.trainer_spec.model_type != ModelKind.UNIGRAM or not model.pieces:
            raise UserError(
                f"{path} must be a unigram SentencePiece model, as OPUS-MT's are, or have all "
                "pieces of vocab.json. Received: another kind."
            )
        if any(piece.type == PieceType.BYTE for piece in model.pieces):
            raise UserError(
                f"{path} must have no byte pieces, as OPUS-MT's models have none, or have all "
                "pieces of vocab.json. Received: some."
            )


def _special_pieces(vocabulary: set[str]) -> list:
    """Returns the pieces with ids 0 to 3; BOS gets a name that `vocabulary` lacks."""
    free = (BOS, *(f"<s{i}>" for i in range(len(vocabulary))))
    bos = next(name for name in free if name not in vocabulary)
    names = {PAD_ID: PAD, UNK_ID: UNK, BOS_ID: bos, EOS_ID: EOS}
    return [
        Piece(piece=name, type=PieceType.UNKNOWN if name == UNK else PieceType.CONTROL)
        for _, name in sorted(names.items())
    ]


def _with_pieces(model, specials: list, names: list[str]) -> bytes:
    """Returns `model` with `specials` and `names` as its pieces."""
    by_name = {piece.piece: piece for piece in model.pieces}
    pieces = specials + [_ordinary_piece(name, by_name.get(name)) for name in names]
    if [piece.piece for piece in pieces] == [*by_name]:  # it was ours
        return model.SerializeToString()
    # Other fields are not copied: self-test data, for one, would have the old ids.
    merged = ModelProto(
        pieces=pieces,
        trainer_spec=model.trainer_spec,
        normalizer_spec=model.normalizer_spec,
        denormalizer_spec=model.denormalizer_spec,
    )
    spec = merged.trainer_spec
    spec.vocab_size = len(pieces)
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = (
        piece.piece for piece in specials
    )
    return merged.SerializeToString()


def _ordinary_piece(name: str, piece: Piece | None) -> Piece:
    """Returns the piece for a name: a language tag, else `piece`, else an unused piece."""
    if _LANGUAGE.fullmatch(name):
        # It includes the space that SentencePiece puts before it, as Marian does.
        return Piece(piece=f"{SPACE_PIECE}{name}", type=PieceType.USER_DEFINED)
    return piece or Piece(piece=name, type=PieceType.UNUSED)
