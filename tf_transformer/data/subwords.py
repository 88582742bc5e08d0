"""SentencePiece subwords in Python (paper 5.1): what needs no TensorFlow."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import replacing
from tf_transformer.config import EOS_ID
from tf_transformer.data.text import SideName, is_visible, utf8
from tf_transformer.data.vocabulary import SPECIAL_IDS, read_model, slot_ids


class Subwords:
    """A SentencePiece model in Python: text to ids and back.

    `tf_transformer.Tokenizer` is the same with TensorFlow's operations besides, and names
    arguments, attributes and errors.
    """

    def __init__(self, path: str | Path, tag: str = "") -> None:
        self.path, self.tag = Path(path), tag
        self.model_bytes = _read_model(self.path)
        self.models = {"source": self.model_bytes}
        target = target_model_path(self.path)
        if target.exists():
            self.models["target"] = _read_model(target)
        self._processors = {
            side: sentencepiece.SentencePieceProcessor(model_proto=model)
            for side, model in self.models.items()
        }
        self.vocab_size, *other = (each.vocab_size() for each in self._processors.values())
        if other and other != [self.vocab_size]:
            raise UserError(
                f"{target} must have as many pieces as {self.path.name}, {self.vocab_size}. "
                f"Received: {other[0]}."
            )

    def in_python(self) -> "Subwords":
        """Returns one without TensorFlow, which can be sent to another process."""
        made = Subwords.__new__(Subwords)
        for name in ("path", "tag", "model_bytes", "models", "_processors", "vocab_size"):
            setattr(made, name, getattr(self, name))
        return made

    def copy(self, path: Path) -> None:
        """Writes the model to `path`, and the target model, if there is one, beside it."""
        paths = {"target": target_model_path(path), "source": path}
        for side, file in paths.items():  # source last: once it exists, so does the other
            if side in self.models:
                with replacing(file) as temporary:
                    temporary.write_bytes(self.models[side])

    def ids(self, texts: Sequence[str | bytes], side: SideName = "source") -> list[list[int]]:
        """Returns the ids that `tokenize` or `tokenize_target` returns.

        A lone surrogate, which Python's strings may hold, counts as invalid UTF-8.
        """
        encode = self._processor(side).encode
        tag = f"{self.tag} ".encode() if self.tag and side == "source" else b""
        lines = [utf8(text) for text in texts]
        shown = [is_visible(line.decode("utf-8", "replace")) for line in lines]
        return [
            encode(tag + line) if show else [] for line, show in zip(lines, shown, strict=True)
        ]

    def texts(self, rows: Iterable[np.ndarray]) -> list[str]:
        """Returns the texts that `detokenize` returns for rows of target ids."""
        decode, texts = self._processor("target").decode, []
        for row in rows:
            self._require_known(row)
            ids = row.tolist()
            texts.append(decode(ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids))
        return texts

    def vocabulary(self, side: SideName = "source") -> list[str]:
        """Returns all pieces of a side, by id."""
        return self._processor(side).id_to_piece([*range(self.vocab_size)])

    def slots(self, side: SideName = "source") -> np.ndarray:
        """Returns the ids of the slots of a side, int32 [9, 2]; see `vocabulary.slot_ids`."""
        return slot_ids(self.vocabulary(side))

    @property
    def spelt_pieces(self) -> np.ndarray:
        """Which pieces of targets are neither unknown nor single bytes: bool [V]."""
        model = self._processor("target")
        others = (model.is_unknown, model.is_byte)
        return np.array([not any(f(i) for f in others) for i in range(self.vocab_size)])

    def _require_known(self, ids: Any) -> None:
        """Raises ValueError for ids out of range, at which the library ends the process."""
        wrong = [
            each
            for each in (np.min(ids, initial=0), np.max(ids, initial=0))
            if not 0 <= each < self.vocab_size
        ]
        if wrong:
            raise ValueError(
                f"`ids` must be from 0 to {self.vocab_size - 1}, the tokenizer's last. "
                f"Received: {wrong[0]}."
            )

    def _processor(self, side: SideName) -> sentencepiece.SentencePieceProcessor:
        return self._processors.get(side, self._processors["source"])


def target_model_path(path: Path) -> Path:
    """Returns tokenizer.target.model for tokenizer.model; see docs/guides/conversion.md."""
    return path.with_name(f"{path.stem}.target{path.suffix}")


def _read_model(path: Path) -> bytes:
    model = read_model(path)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    received = {name: getattr(processor, name)() for name in SPECIAL_IDS}
    if received != SPECIAL_IDS:
        raise UserError(
            f"The special ids of the tokenizer {path} must be {SPECIAL_IDS}. "
            f"Received: {received}. Train it with these, or leave `data.tokenizer` empty."
        )
    return model
