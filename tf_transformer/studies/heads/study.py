"""A study of a run's heads: measurements, their order, pictures and data."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.decoding.ensemble import only_model
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.files import write_text
from tf_transformer.plots.figure import save
from tf_transformer.run.facts import sha256
from tf_transformer.studies.heads import MEASUREMENTS
from tf_transformer.studies.heads.measurements import (
    KINDS,
    Head,
    HeadMasks,
    Measurements,
    measures,
)
from tf_transformer.studies.heads.plot import Grids, importance_figure, pruning_figure
from tf_transformer.studies.heads.pruning import (
    Importance,
    Point,
    curve,
    importances,
    iterative_order,
    order_of,
)
from tf_transformer.tables import Part, Table

logger = logging.getLogger(__name__)

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Study:
    """The results for the heads of a model.

    Attributes:
        importances: importance of each head by itself.
        order: the heads in the order of pruning.
        curve: results with fewer and fewer heads.
    """

    importances: list[Importance]
    order: list[Head]
    curve: list[Point]

    def tables(self) -> list[Part]:
        """Returns the change in loss by layer and head for each kind, and the curve."""
        parts: list[Part] = ["change in loss (nats per piece) with one head masked"]
        for name, grid in _by_kind(self.importances, "loss_change").items():
            header = [name, *(f"head {head}" for head in range(1, grid.shape[1] + 1))]
            rows = [
                [f"layer {layer}", *(f"{change:+z.4f}" for change in changes)]
                for layer, changes in enumerate(grid, start=1)
            ]
            parts.append(Table(header, rows, "lr"))
        bleu = ["BLEU"] if self.curve[0].bleu is not None else []
        rows = [
            [f"{point.kept}", f"{point.loss:.4f}", *(f"{point.bleu:.2f}" for _ in bleu)]
            for point in self.curve
        ]
        return [*parts, Table(["heads kept", "loss", *bleu], rows, "r")]


def fitting_pairs(pairs: Pairs, translator: BatchTranslator) -> list[tuple[str, str]]:
    """Drops the pairs that the model would truncate, and logs their number."""
    codec = translator.codec
    texts = [tf.constant(side) for side in zip(*pairs, strict=True)]
    _, long_source = codec.encode(texts[0], codec.source_limit)
    _, long_target = codec.encode(texts[1], codec.target_limit, target=True)
    cut = (long_source | long_target).numpy()
    fitting = [pair for pair, is_cut in zip(pairs, cut, strict=True) if not is_cut]
    if len(fitting) < len(pairs):
        logger.warning("pairs left out as too long: %d", len(pairs) - len(fitting))
    if not fitting:
        raise UserError("All sentence pairs are too long for the model. Give shorter ones.")
    return fitting


def measure_heads(
    translator: BatchTranslator,
    pairs: Pairs,
    output: Path,
    *,
    checkpoint: Path,
    tokenize: str = "13a",
    with_bleu: bool = True,
    iterative: bool = False,
) -> Study:
    """Measures all heads and writes the results; earlier measurements are not repeated.

    Args:
        translator: translator of the model, whose weights are restored afterwards.
        pairs: sentences and references, from `fitting_pairs`.
        output: the folder to write.
        checkpoint: file of the model's weights, to identify them.
        tokenize: sacreBLEU's tokeniser.
        with_bleu: whether to measure BLEU as well as the loss.
        iterative: whether to measure again after each pruning; see `iterative_order`.
    """
    sources, references = map(list, zip(*pairs, strict=True))
    settings = _settings(translator, pairs, checkpoint, tokenize)
    masks = HeadMasks(only_model(translator.model))
    functions = measures(translator, masks, sources, references, tokenize)
    measurements = Measurements(output / MEASUREMENTS, settings, functions)
    if len(measurements):
        logger.info("%s: %d measured before", output / MEASUREMENTS, len(measurements))
    try:
        heads = importances(masks.heads, measurements, with_bleu)
        order = order_of(heads)
        if iterative:
            order = iterative_order(masks.heads, measurements)
        study = Study(heads, order, curve(order, measurements, with_bleu))
    finally:
        masks.apply([])
    write_text(output / "heads.json", _to_json(settings, study, iterative))
    logger.info("%s", output / "heads.json")
    _draw(study, output)
    return study


def _settings(
    translator: BatchTranslator, pairs: Pairs, checkpoint: Path, tokenize: str
) -> dict[str, Any]:
    """Returns everything that determines the results."""
    text = "".join(f"{source}\t{reference}\n" for source, reference in pairs)
    decoding = dataclasses.asdict(translator.decoding)
    del decoding["batch_tokens"]  # does not affect results
    del decoding["checkpoint"]  # the hash identifies the weights
    return {
        "checkpoint": sha256(checkpoint),
        "text": hashlib.sha256(text.encode()).hexdigest(),
        "sentences": len(pairs),
        "decoding": decoding,
        "signature": bleu(["a"], ["a"], tokenize=tokenize).signature,
        **({"tag": tag} if (tag := translator.tokenizer.tag) else {}),
    }


def _draw(study: Study, output: Path) -> None:
    points = study.curve
    grids = [_grids(study, "loss_change", "rise in loss (nats per piece)", "+z.3f", 1)]
    losses: Sequence[float | None] = [point.loss for point in points]
    curves = {"loss (nats per piece)": losses}
    if points[0].bleu is not None:
        grids.append(_grids(study, "bleu_change", "fall in BLEU", "+z.1f", -1))
        curves = {"BLEU": [point.bleu for point in points], **curves}
    kept = [point.kept for point in points]
    figures = {
        "importance": importance_figure(grids, "One head masked"),
        "pruning": pruning_figure(kept, curves, "Least important heads pruned"),
    }
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            save(figure, output / f"{name}.{suffix}")
            logger.info("%s", output / f"{name}.{suffix}")


def _grids(study: Study, field: str, title: str, form: str, sign: int) -> Grids:
    """Arranges one measure for its picture, with the sign that makes important heads large."""
    grids = _by_kind(study.importances, field)
    return Grids(title, {name: sign * grid for name, grid in grids.items()}, form)


def _by_kind(importances: Sequence[Importance], field: str) -> dict[str, np.ndarray]:
    """Returns one measure of all heads, [layers, heads] for each kind of attention."""
    grids = {}
    for kind, name in KINDS.items():
        row = [result for result in importances if result.head.kind == kind]
        layers = max(result.head.layer for result in row)
        grids[name] = np.array([getattr(result, field) for result in row]).reshape(layers, -1)
    return grids


def _to_json(settings: dict[str, Any], study: Study, iterative: bool) -> str:
    """Returns the JSON that docs/guides/heads.md describes."""
    content = {
        "settings": settings,
        "importance": [
            {
                "kind": result.head.kind,
                "layer": result.head.layer,
                "head": result.head.number,
                "loss_change": result.loss_change,
                "bleu_change": result.bleu_change,
            }
            for result in study.importances
        ],
        "order": "iterative" if iterative else "by importance",
        "curve": [
            {
                "kept": point.kept,
                "pruned": [str(head) for head in point.masked],
                "loss": point.loss,
                "bleu": point.bleu,
            }
            for point in study.curve
        ],
    }
    return json.dumps(content, indent=1) + "\n"
