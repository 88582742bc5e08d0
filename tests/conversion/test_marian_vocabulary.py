"""Marian vocabularies that SentencePiece cannot represent."""

import json

import pytest
from marian_folder import change_json
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("", "not empty, .*Received: ''"),
        ("a\0b", r"without NUL. Received: 'a\\x00b'"),
        ("\ud800", r"valid Unicode.*Received: '\\ud800'"),
        ("▁>>fra<<", "must have >>fra<< or ▁>>fra<<.*Received: both"),
    ],
)
def test_pieces_that_sentencepiece_cannot_have_are_refused(
    checkpoint, assert_refused, piece, message
):
    vocabulary = json.loads((checkpoint / "vocab.json").read_text())
    *names, _, pad = vocabulary
    vocabulary = {name: i for i, name in enumerate([*names, piece, pad])}
    (checkpoint / "vocab.json").write_text(json.dumps(vocabulary))
    assert_refused(message)


def test_an_id_that_is_a_string_is_refused(checkpoint, assert_refused):
    change_json(checkpoint / "vocab.json", {">>fra<<": "3"})
    assert_refused("ids in vocab.json must be 0 to")


def test_tokenizers_that_cannot_be_opened_are_refused(checkpoint, assert_refused):
    """The source model has a second unknown piece, under a name in vocab.json."""
    vocabulary = json.loads((checkpoint / "vocab.json").read_text())
    model = sentencepiece_proto.ModelProto.FromString((checkpoint / "source.spm").read_bytes())
    name = next(piece.piece for piece in model.pieces[3:] if piece.piece in vocabulary)
    model.pieces[0].piece = name
    model.pieces[[piece.piece for piece in model.pieces].index(name, 1)].piece = "<another>"
    (checkpoint / "source.spm").write_bytes(model.SerializeToString())
    assert_refused("must together be valid SentencePiece models")
