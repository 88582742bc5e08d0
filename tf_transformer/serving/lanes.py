"""Two lanes for requests, by length in tokens: short ones never wait for long ones."""

import contextlib
import dataclasses
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece

from tf_transformer.config import DecodingConfig
from tf_transformer.errors import UserError
from tf_transformer.serving.batcher import Batcher, BatchLimits, Observer
from tf_transformer.serving.session import BadRequestError, SavedModelSession
from tf_transformer.serving.versions import read_card

SHORT = 128  # tokens; few sentences have more
_TRANSLATIONS = ("translation", "translations")  # names of outputs
_LARGE = 4_096  # bytes of text: larger requests are tokenised one at a time


@dataclass(frozen=True)
class Size:
    """The size of a request in tokens, EOS included: of its longest row, and of all rows."""

    longest: int
    total: int


@dataclass(frozen=True)
class TokenLimits:
    """Limits of an exported model, in tokens.

    Attributes:
        target: maximum tokens in a translation, EOS included.
        group: maximum positions computed together, see `in_groups`.
    """

    target: int
    group: int


def token_limits(path: Path) -> TokenLimits:
    """Reads the limits from the model card of the SavedModel in `path`.

    Limits missing from the card are those of a default export.
    """
    card = read_card(path)
    try:
        names = {field.name for field in dataclasses.fields(DecodingConfig)}
        known = {name: value for name, value in card["decoding"].items() if name in names}
        decoding, model = DecodingConfig(**known), card["config"]["model"]
        positions = model["max_length"] if model["positions"] == "learned" else None
    except (ValueError, LookupError, TypeError, AttributeError):
        decoding, positions = DecodingConfig(), None
    target = decoding.max_source_length + decoding.max_extra_length
    group = decoding.batch_tokens // decoding.beam_size
    return TokenLimits(min(target, positions or target), max(group, 1))


class Meter:
    """Counts the tokens of requests as the graph does, with the tokenizer stored in it.

    Args:
        session: holds the tokenizer; without one, only ids are counted.
        limits: limits of the model.

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

    def size(self, inputs: Mapping[str, np.ndarray]) -> Size:
        """Counts the tokens of texts, prefixes and rows of ids, each row up to the limit.

        Args:
            inputs: arrays that passed `session.checked`.

        Raises:
            BadRequestError: if a prefix is longer than any translation may be.
        """
        texts = [values for values in inputs.values() if values.dtype == object]
        large = sum(len(text) for values in texts for text in values) > _LARGE
        with self._large if large else contextlib.nullcontext():
            sizes = {name: self._sizes(values) for name, values in inputs.items()}
        if (prefix := max(sizes.get("prefix", ()), default=0)) > self.limits.target:
            raise BadRequestError(
                f"`prefix` must have at most {self.limits.target - 1} tokens, since a "
                f"translation has at most {self.limits.target}, EOS included. Received: "
                f"{prefix - 1} tokens. Give a shorter one."
            )
        rows = [min(size, self.limits.target) for column in sizes.values() for size in column]
        return Size(max(rows, default=1), sum(rows))

    def written(self, outputs: Mapping[str, np.ndarray]) -> int:
        """Counts the tokens of an answer's translations, or of the texts it scored."""
        if "num_tokens" in outputs:
            return int(outputs["num_tokens"].sum())
        texts = [outputs[name].ravel() for name in _TRANSLATIONS if name in outputs]
        return sum(sum(self._sizes(text)) for text in texts)

    def _sizes(self, values: np.ndarray) -> list[int]:
        """Returns the number of tokens in each row; [] for numbers, such as options."""
        if values.dtype == object:
            return [1 + self._count(text) for text in values]
        return [values.shape[1]] * len(values) if values.ndim == 2 else []

    def _count(self, text: bytes) -> int:
        # With a tokenizer for each language, the one of the text's language needs the fewest.
        return min((len(tokenizer.encode(text)) for tokenizer in self._tokenizers), default=0)


class Lanes:
    """Two batchers that share the cores, each with its own queue.

    Short requests are computed in as many streams as the session allows, long ones in one. A
    request is long if a row has more than `SHORT` tokens, or if all rows together have more
    positions than the model computes at a time.

    Args:
        session: runs the batches.
        meter: measures the length of a request, and of its answer.
        limits: limits of each lane.
        observer: notified of each queued request and each batch.
    """

    def __init__(
        self,
        session: SavedModelSession,
        meter: Meter,
        limits: BatchLimits,
        observer: Observer | None = None,
    ) -> None:
        self.meter = meter
        self._limits = limits
        self._observer = observer or Observer()
        self._short = Batcher(session, limits, self._observer, session.streams)
        self._long = Batcher(session, limits, self._observer)

    @property
    def alive(self) -> bool:
        """True while both batchers are running."""
        return self._short.alive and self._long.alive

    def submit(self, signature: str, inputs: Mapping[str, np.ndarray]) -> Future:
        """Queues a request in the lane for its length; see `Batcher.submit`.

        Raises:
            BadRequestError: if the inputs have different numbers of rows, or too many, or a
                prefix is longer than any translation may be.
        """
        counts = {len(values) for values in inputs.values()}
        if len(counts) != 1:
            raise BadRequestError("All inputs must have the same number of rows.")
        (rows,) = counts
        if rows > (most := self._limits.rows):
            raise BadRequestError(f"A request must have at most {most} rows. Received: {rows}.")
        size = self.meter.size(inputs)
        is_short = size.longest <= SHORT and rows * size.longest <= self._limits.positions
        lane = self._short if is_short else self._long
        answer = lane.submit(signature, inputs, size.longest)
        self._observer.queued(size.total)
        return answer

    def waiting(self) -> dict[str, int]:
        """Returns the rows in each queue."""
        return {"short": self._short.waiting, "long": self._long.waiting}

    def refuse(self) -> None:
        """Stops accepting requests; queued ones are still computed."""
        self._short.refuse()
        self._long.refuse()

    def close(self, seconds: float | None = None) -> None:
        """Cancels queued requests; waits at most `seconds` for the batches of each lane."""
        self._short.close(seconds)
        self._long.close(seconds)
