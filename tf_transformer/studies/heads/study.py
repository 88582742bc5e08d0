"""Importance of heads, and pruning by importance (Michel et al. 2019, arXiv 1905.10650)."""

import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.config import DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.engine import GraphEngine, only_model
from tf_transformer.decoding.text_codec import TextCodec
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.files import new_folder, sha256, write_text
from tf_transformer.models.transformer import Transformer
from tf_transformer.output import Part, Table, bar
from tf_transformer.plots.figure import save
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import save_weights
from tf_transformer.studies.heads import MEASUREMENTS
from tf_transformer.studies.heads.measurements import (
    KINDS,
    Head,
    HeadMasks,
    Measurements,
    measures,
)
from tf_transformer.studies.heads.plot import Row, importance_figure, pruning_figure

logger = logging.getLogger(__name__)

Pairs = Sequence[tuple[str, str]]

PRUNED_FILE = "pruned_heads.json"

POINTS = 24  # approximate number of points on a curve


@dataclass(frozen=True)
class Importance:
    """The change in loss (nats per piece) and BLEU when only one head is masked."""

    head: Head
    loss_change: float
    bleu_change: float | None


@dataclass(frozen=True)
class Point:
    """Loss and BLEU with `kept` heads; `masked` lists the others in the order of pruning."""

    kept: int
    masked: list[Head]
    loss: float
    bleu: float | None


def importances(
    heads: Sequence[Head], measurements: Measurements, with_bleu: bool
) -> list[Importance]:
    """Measures the importance of each head by itself (Michel et al. 2019, section 3.2)."""
    results = []
    for head in bar("masking one head", heads):
        loss = measurements.loss([head]) - measurements.loss([])
        score = measurements.bleu([head]) - measurements.bleu([]) if with_bleu else None
        results.append(Importance(head, loss, score))
    return results


def order_of(results: Sequence[Importance]) -> list[Head]:
    """Returns the heads in the order of pruning: the least important, by loss, first."""
    return [result.head for result in sorted(results, key=lambda result: result.loss_change)]


def iterative_order(heads: Sequence[Head], measurements: Measurements) -> list[Head]:
    """Returns the order of backward elimination, which always prunes the cheapest head.

    The remaining heads are measured again after each pruning, so that one of two redundant
    heads is kept. n heads need n (n + 1) / 2 measurements of the loss.
    """
    pruned: list[Head] = []
    for _ in bar("pruning one by one", heads):
        left = [head for head in heads if head not in pruned]
        losses = [measurements.loss([*pruned, head]) for head in left]
        pruned.append(left[losses.index(min(losses))])
    return pruned


def curve(order: Sequence[Head], measurements: Measurements, with_bleu: bool) -> list[Point]:
    """Measures the model with all heads, then with fewer and fewer in this order, down to none.

    With up to 24 heads every number is measured, with up to 48 every second one, and so on.
    """
    step = math.ceil(len(order) / POINTS)
    counts = [*range(0, len(order), step), len(order)]
    points = []
    for count in bar("pruning", counts):
        masked = list(order[:count])
        score = measurements.bleu(masked) if with_bleu else None
        loss = measurements.loss(masked)
        points.append(Point(len(order) - count, masked, loss, score))
    return points


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


def fitting_pairs(pairs: Pairs, codec: TextCodec) -> list[tuple[str, str]]:
    """Drops the pairs that the model would truncate, and logs their number."""
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
    engine: GraphEngine,
    decoding: DecodingConfig,
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
        engine: the model, whose weights are restored afterwards.
        decoding: settings of the search.
        pairs: sentences and references, from `fitting_pairs`.
        output: the folder to write.
        checkpoint: file of the model's weights, to identify them.
        tokenize: sacreBLEU's tokeniser.
        with_bleu: whether to measure BLEU as well as the loss.
        iterative: whether to measure again after each pruning; see `iterative_order`.
    """
    sources, references = map(list, zip(*pairs, strict=True))
    settings = _settings(engine, decoding, pairs, checkpoint, tokenize)
    masks = HeadMasks(only_model(engine.model))
    functions = measures(engine, decoding, masks, sources, references, tokenize)
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
    engine: GraphEngine,
    decoding: DecodingConfig,
    pairs: Pairs,
    checkpoint: Path,
    tokenize: str,
) -> dict[str, Any]:
    """Returns everything that determines the results."""
    text = "".join(f"{source}\t{reference}\n" for source, reference in pairs)
    search = dataclasses.asdict(decoding)
    del search["batch_tokens"]  # does not affect results
    del search["checkpoint"]  # the hash identifies the weights
    return {
        "checkpoint": sha256(checkpoint),
        "text": hashlib.sha256(text.encode()).hexdigest(),
        "sentences": len(pairs),
        "decoding": search,
        "signature": bleu(["a"], ["a"], tokenize=tokenize).signature,
        **({"tag": tag} if (tag := engine.tokenizer.tag) else {}),
    }


def _draw(study: Study, output: Path) -> None:
    points = study.curve
    rises = _by_kind(study.importances, "loss_change")
    rows: list[Row] = [("rise in loss (nats per piece)", "+z.3f", rises)]
    curves: dict[str, Sequence[float | None]]
    curves = {"loss (nats per piece)": [point.loss for point in points]}
    if points[0].bleu is not None:
        falls = _by_kind(study.importances, "bleu_change").items()
        rows.append(("fall in BLEU", "+z.1f", {kind: -grid for kind, grid in falls}))
        curves = {"BLEU": [point.bleu for point in points], **curves}
    kept = [point.kept for point in points]
    figures = {
        "importance": importance_figure(rows, "One head masked"),
        "pruning": pruning_figure(kept, curves, "Least important heads pruned"),
    }
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            save(figure, output / f"{name}.{suffix}")
            logger.info("%s", output / f"{name}.{suffix}")


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


def write_pruned_run(
    run: Run, model: Transformer, masks: HeadMasks, pruned: Sequence[Head], path: Path
) -> Run:
    """Writes a run with the model's weights, in which the outputs of pruned heads are zero.

    The model keeps its shape: pruned heads are still computed, but add nothing. They are listed
    in pruned_heads.json. Configuration and tokenizer are those of `run`.

    Raises:
        UserError: if the folder has files or cannot be written; then nothing is written.
    """
    with new_folder(path) as temporary:
        config = run.config.replace({"decoding.checkpoint": "best"})
        written = Run.create_or_resume(temporary, config)
        Tokenizer(run.require_tokenizer()).copy(written.tokenizer)
        masks.apply(pruned)
        save_weights(written.checkpoints.best, model)
        masks.apply([])
        names = [str(head) for head in pruned]
        write_text(temporary / PRUNED_FILE, json.dumps(names, indent=2) + "\n")
    return Run.open(path)
