"""Rules by which a SentencePiece model normalizes text before segmenting it; no TensorFlow.

The rule is compiled into the model file, so training, translation, exports and converted
models all apply the same one.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2 as sentencepiece_proto

from tf_transformer.errors import UserError

SPACE_PIECE = "\u2581"  # what SentencePiece writes for a space

_BUILT_IN_RULES = ("nfkc", "nmt_nfkc")  # names that SentencePiece knows


@contextmanager
def rule_arguments(name: str) -> Iterator[dict[str, str]]:
    """Yields the arguments of SentencePiece's trainer for a rule of `config.NORMALIZATIONS`.

    Raises:
        UserError: if the temporary file that the trainer reads cannot be written.
    """
    if name in _BUILT_IN_RULES:
        yield {"normalization_rule_name": name}
        return
    # U+2581 in a text always decodes to a space, so it is treated as one from the start. This
    # entry also keeps the rule from being empty, about which TensorFlow Text would print a line
    # each time it loads the model.
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
            file.write(f"{ord(SPACE_PIECE):X}\t{ord(' '):X}\n")
            file.flush()
            yield {"normalization_rule_tsv": file.name}
    except OSError as error:
        raise UserError(
            f"The normalization rule cannot be written to {tempfile.gettempdir()}: "
            f"{error.strerror}."
        ) from None


def with_rule_name(model: bytes, name: str) -> bytes:
    """Returns a trained model with the rule's name in place of a temporary file's path."""
    proto = sentencepiece_proto.ModelProto.FromString(model)
    proto.normalizer_spec.name = name
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString()


def tokenizer_settings(path: Path) -> dict[str, str | float]:
    """Reads the settings of `config.DataConfig` that a SentencePiece model holds.

    They are empty if `path` does not exist, as in a run without a tokenizer yet.

    Raises:
        UserError: if `path` is not a SentencePiece model.
    """
    if not path.exists():
        return {}
    proto = read_proto(path)
    return {
        "data.normalization": proto.normalizer_spec.name,
        "data.character_coverage": round(proto.trainer_spec.character_coverage, 6),  # float32
    }


def read_proto(path: Path) -> sentencepiece_proto.ModelProto:
    """Reads the protocol buffer of a SentencePiece model; UserError if `path` is not one."""
    try:
        return sentencepiece_proto.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except Exception as error:  # protobuf's DecodeError, whose module depends on the version
        if type(error).__name__ != "DecodeError":
            raise
        raise UserError(f"{path} is not a SentencePiece model.") from None
