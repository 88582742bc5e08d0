"""Loss and BLEU of a model with masked heads, each measured once and saved to a file."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.engine import Engine
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.files import write_text
from tf_transformer.models.transformer import Transformer

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}

# Settings on which BLEU depends and the loss does not.
BLEU_SETTINGS = ("decoding", "signature")


@dataclass(frozen=True, order=True)
class Head:
    """One head; `kind` is a key of KINDS, `layer` and `number` are counted from 1."""

    kind: str
    layer: int
    number: int

    def __str__(self) -> str:
        """Formats the head, such as "cross 2.4" for head 4 of layer 2."""
        return f"{self.kind} {self.layer}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the output of `str`; raises ValueError for anything else."""
        kind, _, numbers = text.partition(" ")
        layer, number = map(int, numbers.split("."))
        return cls(kind, layer, number)


class HeadMasks:
    """Masks heads of a model, in training and in any kind of decoding.

    It zeroes weights, so that functions traced earlier are affected too. Nothing else may
    change these weights in the meantime.

    Args:
        model: any `Transformer`; `apply([])` restores it.

    Attributes:
        heads: all heads, ordered by kind, layer and number.
    """

    def __init__(self, model: Transformer) -> None:
        self._num_heads = model.config.num_heads
        self._kernels = _output_kernels(model)
        self._values = {key: kernel.numpy() for key, kernel in self._kernels.items()}
        self.heads = [
            Head(kind, layer, number)
            for kind, layer in self._kernels
            for number in range(1, self._num_heads + 1)
        ]

    def apply(self, masked: Collection[Head]) -> None:
        """Masks these heads and unmasks all others.

        Raises:
            ValueError: if the model lacks one of these heads.
        """
        if unknown := set(masked) - set(self.heads):
            raise ValueError(
                f"`masked` must be heads of the model. Received: {min(unknown)}, of a model "
                f"whose last head is {self.heads[-1]}."
            )
        for key, kernel in self._kernels.items():
            value = self._values[key].copy()  # [H * value_dim, D]
            rows_of_heads = value.reshape(self._num_heads, -1, value.shape[1])
            rows = [head.number - 1 for head in masked if (head.kind, head.layer) == key]
            rows_of_heads[rows] = 0
            kernel.assign(value)


def _output_kernels(model: Transformer) -> dict[tuple[str, int], Any]:
    """Returns W^O of each attention layer, by kind and layer number."""
    layers: dict[str, list[Any]] = {
        "encoder": [layer.self_attention for layer in model.encoder.layers],
        "decoder": [layer.self_attention for layer in model.decoder.layers],
        "cross": [layer.cross_attention for layer in model.decoder.layers],
    }
    return {
        (kind, number): attention.output_dense.kernel
        for kind in KINDS
        for number, attention in enumerate(layers[kind], start=1)
    }


Measure = Callable[[Collection[Head]], float]
_Known = dict[frozenset[Head], dict[str, float]]


def measures(
    engine: Engine,
    decoding: DecodingConfig,
    masks: HeadMasks,
    sources: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
) -> dict[str, Measure]:
    """Returns functions that measure a single model while some heads are masked.

    They are "loss", the mean negative log-probability of a target piece, including EOS, in nats
    and without label smoothing; and "bleu", sacreBLEU of the best translations with its
    tokeniser `tokenize`. No sentence may exceed the length limits of `decoding`.
    """

    def loss(masked: Collection[Head]) -> float:
        masks.apply(masked)
        scored = engine.score(sources, references, decoding)
        pieces = sum(target.num_tokens for target in scored)
        return -sum(target.log_prob for target in scored) / pieces

    def score(masked: Collection[Head]) -> float:
        masks.apply(masked)
        translations = [best for best, *_ in engine.translate(sources, decoding)]
        return bleu(translations, references, tokenize=tokenize).value

    return {"loss": loss, "bleu": score}


class Measurements:
    """Measurements saved to a file, so that nothing is measured twice.

    The file has one JSON object per line, the settings first. It is replaced as a whole after
    each measurement, so that an interruption costs at most one.

    Args:
        path: the file, which may exist.
        settings: everything that determines the results. As long as the file has only losses,
            its BLEU_SETTINGS may differ, and are replaced.
        measures: functions from `measures`.

    Raises:
        UserError: if the file has other settings, or cannot be read.
    """

    def __init__(
        self, path: Path, settings: dict[str, Any], measures: Mapping[str, Measure]
    ) -> None:
        self._path = path
        self._settings = settings
        self._measures = measures
        self._known = _read(path, settings) if path.exists() else {}

    def __len__(self) -> int:
        """Returns the number of measurements."""
        return sum(map(len, self._known.values()))

    def loss(self, masked: Collection[Head]) -> float:
        """Returns the loss in nats per piece."""
        return self._figure("loss", masked)

    def bleu(self, masked: Collection[Head]) -> float:
        """Returns BLEU, from 0 to 100."""
        return self._figure("bleu", masked)

    def _figure(self, name: str, masked: Collection[Head]) -> float:
        figures = self._known.setdefault(frozenset(masked), {})
        if name not in figures:
            figures[name] = self._measures[name](masked)
            self._write()
        return figures[name]

    def _write(self) -> None:
        records: list[dict[str, Any]] = [{"settings": self._settings}]
        records += [
            {"masked": [str(head) for head in sorted(masked)], **figures}
            for masked, figures in self._known.items()
            if figures
        ]
        write_text(self._path, "".join(f"{json.dumps(record)}\n" for record in records))


def _read(path: Path, settings: dict[str, Any]) -> _Known:
    try:
        first, *records = map(json.loads, path.read_text("utf-8").splitlines())
        stored = first["settings"]
        changed = {name for name in stored | settings if stored.get(name) != settings.get(name)}
        known = {frozenset(map(Head.parse, record.pop("masked"))): record for record in records}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} cannot be read as measurements: {error}. Delete it to measure again, or "
            "use another --output."
        ) from None
    if not any("bleu" in figures for figures in known.values()):
        changed -= {*BLEU_SETTINGS}
    if changed:
        raise UserError(
            f"{path} has measurements with other settings: {', '.join(sorted(changed))} "
            "changed. Use the same settings to resume, or another --output."
        )
    return known
