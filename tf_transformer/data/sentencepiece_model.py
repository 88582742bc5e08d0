"""Files of SentencePiece models, read and written as protocol buffers.

SentencePiece has a module for them, `sentencepiece_model_pb2`, but each of its releases demands
some version of protobuf or a later one, which it declares nowhere, and TensorFlow allows older
ones. So the messages are described here: the fields that this package uses by name, all others
of today by number, so that a message is written in the order in which SentencePiece writes it.
"""

import enum
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "tf_transformer.sentencepiece"  # a name that nobody else describes
_Fields = dict[str, tuple[int, str, Any]]  # number, type and default value by name

_PIECE: _Fields = {
    "piece": (1, "string", ""),
    "score": (2, "float", 0),
    "type": (3, "int32", 1),
}
_NORMALIZER_SPEC: _Fields = {
    "name": (1, "string", ""),
    "precompiled_charsmap": (2, "bytes", ""),
    "add_dummy_prefix": (3, "bool", "true"),
    "remove_extra_whitespaces": (4, "bool", "true"),
    "escape_whitespaces": (5, "bool", "true"),
    "normalization_rule_tsv": (6, "string", ""),
}
_TRAINER_SPEC: _Fields = {
    "model_type": (3, "int32", 1),
    "vocab_size": (4, "int32", 8000),
    "character_coverage": (10, "float", 0.9995),
    "unk_id": (40, "int32", 0),
    "bos_id": (41, "int32", 1),
    "eos_id": (42, "int32", 2),
    "pad_id": (43, "int32", -1),
    "unk_piece": (45, "string", "<unk>"),
    "bos_piece": (46, "string", "<s>"),
    "eos_piece": (47, "string", "</s>"),
    "pad_piece": (48, "string", "<pad>"),
}
_OTHER_NUMBERS = {  # of the trainer's fields, by how they are written
    "bytes": (1, 2, 5, 7, 30, 31, 36, 44, 53, 54),
    "float": (15, 51),
    "uint64": (6, *range(11, 15), *range(16, 27), *range(32, 36), 49, 50, 52, 55),
}


class ModelKind(enum.IntEnum):
    """Values of `trainer_spec.model_type` that this package knows."""

    UNIGRAM = 1
    BPE = 2


class PieceType(enum.IntEnum):
    """Values of a piece's `type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def _message_classes() -> tuple[Any, Any]:
    """Makes the classes of models and of pieces."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE)
    specs = {"Piece": _PIECE, "NormalizerSpec": _NORMALIZER_SPEC, "TrainerSpec": _TRAINER_SPEC}
    for name, fields in specs.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, default) in fields.items():
            _add_field(message, field, number, kind).default_value = str(default)
    for kind, numbers in _OTHER_NUMBERS.items():
        for number in numbers:  # as lists, they hold what is written once, too
            _add_field(message, f"field_{number}", number, kind, repeated=True)
    model = file.message_type.add(name="ModelProto")
    parts = ("trainer_spec", "TrainerSpec"), ("normalizer_spec", "NormalizerSpec")
    _add_field(model, "pieces", 1, "Piece", repeated=True)
    for number, (field, kind) in enumerate(parts, start=2):
        _add_field(model, field, number, kind)
    _add_field(model, "self_test_data", 4, "bytes")
    _add_field(model, "denormalizer_spec", 5, "NormalizerSpec")
    pool = descriptor_pool.DescriptorPool()  # of our own: it meets no one else's messages
    pool.Add(file)
    find = pool.FindMessageTypeByName
    classes = (find(f"{_PACKAGE}.{name}") for name in ("ModelProto", "Piece"))
    model_class, piece_class = map(message_factory.GetMessageClass, classes)
    return model_class, piece_class


def _add_field(message: Any, name: str, number: int, kind: str, repeated: bool = False) -> Any:
    """Adds a field of a scalar type, or of a message of this file, to a message."""
    proto = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(name=name, number=number)
    field.label = proto.LABEL_REPEATED if repeated else proto.LABEL_OPTIONAL
    if kind[0].isupper():
        field.type, field.type_name = proto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = proto.Type.Value(f"TYPE_{kind.upper()}")
    return field


ModelProto, Piece = _message_classes()
