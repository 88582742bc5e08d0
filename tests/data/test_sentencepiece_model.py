"""Model files, read and written without SentencePiece's module for them."""

import io
import os
import subprocess
import sys

import pytest
import sentencepiece
from helpers import ROOT

from tf_transformer.data.sentencepiece_model import ModelKind, ModelProto, PieceType

TEXT = ["ein kleiner Text", "a small text, and another", "1 + 1 = 2"] * 5


@pytest.fixture(scope="module")
def theirs():
    """SentencePiece's own module, where protobuf is new enough for it."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except Exception as error:  # protobuf's VersionError, and before 5.26 others
        pytest.skip(f"sentencepiece_model_pb2 cannot be imported here: {error}")
    return sentencepiece_model_pb2


def trained(kind: str) -> bytes:
    file = io.BytesIO()
    options: dict = {"byte_fallback": True} if kind in ("unigram", "bpe") else {}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=file,
        model_type=kind,
        vocab_size=290 if options else 24,
        hard_vocab_limit=False,
        control_symbols=["<c>"],
        user_defined_symbols=["<1>", "<2>"],
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
        **options,
    )
    return file.getvalue()


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
def test_a_model_is_written_byte_for_byte_as_sentencepiece_wrote_it(kind):
    model = trained(kind)
    assert ModelProto.FromString(model).SerializeToString() == model
    unknown = b"\xc2\x3e\x03abc"  # field 1000, as a later version might write it
    assert ModelProto.FromString(model + unknown).SerializeToString() == model + unknown


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_fields_are_those_of_sentencepieces_own_module(theirs, kind):
    model = trained(kind)
    mine, other = ModelProto.FromString(model), theirs.ModelProto.FromString(model)
    assert mine.trainer_spec.model_type == ModelKind[kind.upper()]
    assert [(p.piece, p.score, p.type) for p in mine.pieces] == [
        (p.piece, p.score, p.type) for p in other.pieces
    ]
    assert {p.type for p in mine.pieces} >= {*PieceType} - {PieceType.UNUSED}
    for proto in (mine, other):
        proto.normalizer_spec.name = "another"
        proto.normalizer_spec.ClearField("normalization_rule_tsv")
        proto.trainer_spec.vocab_size = 7
        proto.trainer_spec.pad_piece = "<padding>"
        proto.pieces[5].type = PieceType.UNUSED
    assert mine.SerializeToString() == other.SerializeToString()


def test_all_fields_of_sentencepiece_are_described_with_its_defaults(theirs):
    for part in ("trainer_spec", "normalizer_spec", "denormalizer_spec"):
        mine = ModelProto.DESCRIPTOR.fields_by_name[part].message_type
        other = theirs.ModelProto.DESCRIPTOR.fields_by_name[part].message_type
        assert {*mine.fields_by_number} >= {*other.fields_by_number}
        for name, field in other.fields_by_name.items():
            if name in mine.fields_by_name:
                assert mine.fields_by_name[name].number == field.number
                assert mine.fields_by_name[name].default_value == field.default_value


def test_tokenizers_are_trained_read_and_written_without_sentencepieces_module(tmp_path):
    """It demands a newer protobuf than TensorFlow does, and fails beside an older one."""
    path = tmp_path / "small.model"
    code = f"""
import sys
sys.modules["sentencepiece.sentencepiece_model_pb2"] = None  # importing it fails
import tf_transformer.conversion.marian_vocabulary, tf_transformer.terms.alignment_model
import tf_transformer.data.subword_sampling, tf_transformer.loading.load
from tf_transformer.data import vocabulary
vocabulary.train_tokenizer({TEXT!r}, {str(path)!r}, vocab_size=290, symbols=["<1>"])
tokenizer = tf_transformer.Tokenizer({str(path)!r})
assert tokenizer.ids(["a small text"]) != [[]]
assert vocabulary.tokenizer_settings(tokenizer.path)["data.normalization"] == "identity"
assert vocabulary.symbols_in(tokenizer.model_bytes) == {{"<1>"}}
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
