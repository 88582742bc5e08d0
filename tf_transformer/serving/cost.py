"""The work of a request in tokens, measured before it waits for its turn."""

import contextlib
import dataclasses
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece

from tf_transformer.config import DecodingConfig
from tf_transformer.errors import UserError
from tf_transformer.files import parse_json
from tf_transformer.serving.session import BadRequestError, SavedModelSession
from tf_transformer.serving.versions import CARD

_LARGE = 4_096  # bytes of text: a request above it is tokenised while no other such one is


@dataclass(frozen=True)
class TokenLimits:
    """Limits of an exported model, in tokens.

    Attributes:
        target: the most tokens of a translation, its end counted.
        group: the most positions that are computed together, rows times their longest; see
            `groups.in_groups`.
    """

    target: int
    group: int


def token_limits(path: Path) -> TokenLimits:
    """The limits of the SavedModel in `path`, by its model card.

    An export's defaults stand for what the card does not say.
    """
    try:
        card = parse_json((path / CARD).read_text("utf-8"))
        names = {field.name for field in dataclasses.fields(DecodingConfig)}
        known = {name: value for name, value in card["decoding"].items() if name in names}
        decoding, model = DecodingConfig(**known), card["config"]["model"]
        positions = model["max_length"] if model["positions"] == "learned" else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, UserError):
        decoding, positions = DecodingConfig(), None
    target = decoding.max_source_length + decoding.max_extra_length
    group = decoding.batch_tokens // decoding.beam_size
    return TokenLimits(min(target, positions or target), max(group, 1))


class Meter:
    """Counts the tokens of requests as the graph does, with the tokenizer stored in it.

    Args:
        session: holds the tokenizer; without one only ids are counted.
        limits: the model's.

    Raises:
        UserError: if the tokenizer is damaged.
    """

    def __init__(self, session: SavedModelSession, limits: TokenLimits) -> None:
        self.limits = limits
        try:
            self._tokenizers = [
                sentencepiece.SentencePieceProcessor(model_proto=model or b"empty")
                for model in session.tokenizers
            ]
        except RuntimeError:
            raise UserError("The tokenizer in the model is damaged: export it again.") from None
        self._large = threading.Lock()

    def longest(self, inputs: Mapping[str, np.ndarray]) -> int:
        """The tokens of the longest text, prefix or row of ids, as far as the model reads.

        Args:
            inputs: arrays as a signature takes them, see `session.checked`.

        Raises:
            BadRequestError: if a prefix is longer than any translation may be.
        """
        texts = [values for values in inputs.values() if values.dtype == object]
        large = sum(len(text) for values in texts for text in values) > _LARGE
        with self._large if large else contextlib.nullcontext():
            sizes = {name: self._size(values) for name, values in inputs.items()}
        if sizes.get("prefix", 0) > self.limits.target:
            raise BadRequestError(
                f"`prefix` must have at most {self.limits.target - 1} tokens, since a "
                f"translation has at most {self.limits.target}, the end counted. Received: "
                f"{sizes['prefix'] - 1} tokens. Give a shorter one."
            )
        return min(max(sizes.values(), default=1), self.limits.target)

    def _size(self, values: np.ndarray) -> int:
        """The most tokens of a row, its end counted."""
        if values.dtype == object:
            return 1 + max(map(self._count, values), default=0)
        return values.shape[1] if values.ndim == 2 else 1

    def _count(self, text: bytes) -> int:
        # With a tokenizer for each language, the one of this text needs the fewest.
        return min((len(one.encode(text)) for one in self._tokenizers), default=0)
