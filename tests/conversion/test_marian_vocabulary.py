"""Pieces of Marian that SentencePiece cannot have."""

import json

import pytest
from marian_folder import change_json
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto

from tf_transformer.conversion.from_marian import from_marian
from tf_transformer.errors import UserError


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
    checkpoint, tmp_path, piece, message
):
    vocabulary = json.loads((checkpoint / "vocab.json").read_text())
    *names, _, pad = vocabulary
    vocabulary = {name: i for i, name in enumerate([*names, piece, pad])}
    (checkpoint / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(UserError, match=message):
        from_marian(checkpoint, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_id_that_is_a_text_is_refused(checkpoint, tmp_path):
    change_json(checkpoint / "vocab.json", {">>fra<<": "3"})
    with pytest.raises(UserError, match="ids in vocab.json must be 0 to"):
        from_marian(checkpoint, tmp_path / "run")


def test_tokenizers_that_cannot_be_opened_are_not_published(checkpoint, tmp_path):
    """A second unknown piece, under a name that vocab.json has."""
    vocabulary = json.loads((checkpoint / "vocab.json").read_text())
    model = sentencepiece_proto.ModelProto.FromString((checkpoint / "source.spm").read_bytes())
    name = next(piece.piece for piece in model.pieces[3:] if piece.piece in vocabulary)
    model.pieces[0].piece = name
    model.pieces[[piece.piece for piece in model.pieces].index(name, 1)].piece = "<another>"
    (checkpoint / "source.spm").write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="must together be valid SentencePiece models"):
        from_marian(checkpoint, tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["opus-mt"]
