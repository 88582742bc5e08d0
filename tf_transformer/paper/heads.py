"""Importance of heads and sublayers, and pruning (Michel et al. 2019, arXiv 1905.10650)."""

import dataclasses
import functools
import hashlib
import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import locked, new_folder, parse_json, sha256, write_text
from tf_transformer.base.output import Table, bar
from tf_transformer.config import DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.interface import Engine
from tf_transformer.decoding.text_codec import TextCodec
from tf_transformer.evaluation import bleu, bleu_signature, tokenizer_for
from tf_transformer.models.ensemble import only_model
from tf_transformer.models.transformer import Transformer
from tf_transformer.plots import new_figure, save
from tf_transformer.run import Run, require_created_by
from tf_transformer.run.checkpoints import save_weights

logger = logging.getLogger(__name__)

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
_NETWORKS = {"encoder-ff": "encoder feed-forward", "decoder-ff": "decoder feed-forward"}
_POINTS = 24  # approximate number of points on a curve
_CELL = (0.62, 0.42)  # width and height of a cell in a picture, in inches
_WHITE_ON = 0.36  # share of the largest value above which numbers are white


# --- Masks ---------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Head:
    """One head, counted from 1, or with number 0 the whole sublayer.

    `kind` is a key of KINDS or, for a feed-forward network, "encoder-ff" or "decoder-ff";
    `layer` is counted from 1.
    """

    kind: str
    layer: int
    number: int = 0

    def __str__(self) -> str:
        """Formats it, such as "cross 2.4" for head 4 of layer 2, "cross 2" for all of it."""
        return f"{self.kind} {self.layer}" + f".{self.number}" * bool(self.number)


class HeadMasks:
    """Masks heads and sublayers of a model, in training and in any kind of decoding.

    It zeroes weights, so that functions traced earlier are affected too. Nothing else may
    change these weights in the meantime.

    A head loses its rows of W^O and its columns of W^V. Either has a gradient of zero because
    the other is zero, so training leaves the head masked. Of a masked sublayer only the
    residual connection is left.

    `apply([])` restores the model. `heads` are all heads, ordered by kind, layer and number;
    `sublayers` are in the order in which they are computed.
    """

    def __init__(self, model: Transformer) -> None:
        layers: dict[Head, Any] = {}
        for number, layer in enumerate(model.encoder.layers, start=1):
            layers[Head("encoder", number)] = layer.self_attention
            layers[Head("encoder-ff", number)] = layer.feed_forward
        for number, layer in enumerate(model.decoder.layers, start=1):
            layers[Head("decoder", number)] = layer.self_attention
            layers[Head("cross", number)] = layer.cross_attention
            layers[Head("decoder-ff", number)] = layer.feed_forward
        self._num_heads = model.config.num_heads
        # Each weight with its value and its axis of heads.
        self._weights: dict[Head, list[tuple[Any, np.ndarray, int | None]]] = {}
        for key, layer in layers.items():
            weights: list[tuple[Any, int | None]]
            if key.kind in KINDS:
                output, value = layer.output_dense, layer.value_dense
                weights = [(output.kernel, 0), (value.kernel, 1), (value.bias, 0)]
            else:
                output, weights = layer.outer, [(layer.outer.kernel, None)]
            weights.append((output.bias, None))
            self._weights[key] = [
                (weight, weight.numpy(), axis) for weight, axis in weights if weight is not None
            ]
        self.sublayers = list(layers)
        self.heads = [
            Head(kind, key.layer, number)
            for kind in KINDS
            for key in layers
            if key.kind == kind
            for number in range(1, self._num_heads + 1)
        ]

    def apply(self, masked: Collection[Head]) -> None:
        """Masks these, and unmasks all others; ValueError if the model lacks one of them."""
        if unknown := set(masked) - {*self.heads, *self.sublayers}:
            raise ValueError(
                f"`masked` must be heads of the model. Received: {min(unknown)}, of a model "
                f"whose last head is {self.heads[-1]}."
            )
        for key, weights in self._weights.items():
            same = [head for head in masked if (head.kind, head.layer) == (key.kind, key.layer)]
            for weight, before, axis in weights:
                value = before.copy()
                if key in same:
                    value[...] = 0
                elif axis is not None:
                    size = value.shape[axis] // self._num_heads
                    by_head = np.moveaxis(value, axis, 0)  # a view
                    for head in same:
                        by_head[(head.number - 1) * size : head.number * size] = 0
                weight.assign(value)


# --- Measurements --------------------------------------------------------------------------

Measure: TypeAlias = Callable[[Collection[Head]], float]
Measures: TypeAlias = Mapping[str, Measure]


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


def remembered(path: Path, functions: Measures) -> dict[str, Measure]:
    """Returns the same functions, which save to a file what they measure, and measure it once.

    The file is replaced as a whole after each measurement, so that an interruption costs at
    most one. Raises UserError if the file is damaged.
    """
    known: dict[str, dict[str, float]] = {}
    if path.exists():
        try:
            known = parse_json(path.read_text("utf-8"))
        except ValueError as error:
            raise UserError(
                f"{path} cannot be read as measurements: {error}. Delete it to measure again, "
                "or use another --output."
            ) from None
        logger.info("%s: %d masks measured before", path, len(known))

    def measure(name: str, masked: Collection[Head]) -> float:
        figures = known.setdefault(", ".join(map(str, sorted(masked))), {})
        if name not in figures:
            figures[name] = functions[name](masked)
            write_text(path, json.dumps(known))
        return figures[name]

    return {name: functools.partial(measure, name) for name in functions}


# --- Study ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Importance:
    """The change in loss (nats per piece) and BLEU when only one head or sublayer is masked."""

    head: Head
    loss_change: float
    bleu_change: float | None = None


@dataclass(frozen=True)
class Point:
    """Loss and BLEU with `kept` heads; `pruned` names the others in the order of pruning."""

    kept: int
    pruned: list[str]
    loss: float
    bleu: float | None = None


@dataclass(frozen=True)
class Study:
    """The results for the heads of a model."""

    importances: list[Importance]  # of each head by itself
    sublayers: list[Importance]  # of each whole sublayer
    pruning_order: list[Head]  # the first to be pruned first
    curve: list[Point]  # with fewer and fewer heads

    def sublayer_table(self) -> Table:
        """Returns the changes of loss and BLEU when a sublayer is masked."""
        bleu = ["BLEU"] if self.curve[0].bleu is not None else []
        rows = []
        for one in self.sublayers:
            changes = [f"{one.loss_change:+.4f}", *(f"{one.bleu_change:+.2f}" for _ in bleu)]
            rows.append([f"{one.head}", *changes])
        return Table(["sublayer masked", "loss", *bleu], rows, "lr")

    def table(self) -> Table:
        """Returns loss and BLEU by the number of heads kept."""
        bleu = ["BLEU"] if self.curve[0].bleu is not None else []
        rows = [
            [f"{point.kept}", f"{point.loss:.4f}", *(f"{point.bleu:.2f}" for _ in bleu)]
            for point in self.curve
        ]
        return Table(["heads kept", "loss", *bleu], rows, "r")


def importances(heads: Sequence[Head], functions: Measures) -> list[Importance]:
    """Measures the importance of each head by itself (Michel et al. 2019, section 3.2)."""
    whole = {name: function([]) for name, function in functions.items()}
    results = []
    for head in bar("masking one by one", heads):
        changes = {
            f"{name}_change": function([head]) - whole[name]
            for name, function in functions.items()
        }
        results.append(Importance(head, **changes))
    return results


def iterative_order(heads: Sequence[Head], loss: Measure) -> list[Head]:
    """Returns the order of backward elimination, which always prunes the cheapest head.

    The remaining heads are measured again after each pruning, so that one of two redundant
    heads is kept. n heads need n (n + 1) / 2 measurements of the loss.
    """
    pruned: list[Head] = []
    for _ in bar("pruning one by one", heads):
        left = [head for head in heads if head not in pruned]
        losses = [loss([*pruned, head]) for head in left]
        pruned.append(left[losses.index(min(losses))])
    return pruned


def pruning_curve(heads: Sequence[Head], functions: Measures) -> list[Point]:
    """Measures the model with all heads, then without the first ones, down to none.

    With up to 24 heads every number is measured, with up to 48 every second one, and so on.
    """
    step = math.ceil(len(heads) / _POINTS)
    counts = [*range(0, len(heads), step), len(heads)]
    points = []
    for count in bar("pruning", counts):
        masked = heads[:count]
        figures = {name: function(masked) for name, function in functions.items()}
        points.append(Point(len(heads) - count, list(map(str, masked)), **figures))
    return points


def fitting_pairs(pairs: Sequence[tuple[str, str]], codec: TextCodec) -> list[tuple[str, str]]:
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
    pairs: Sequence[tuple[str, str]],
    output: Path,
    *,
    checkpoint: Path,
    tokenize: str = "13a",
    with_bleu: bool = True,
    iterative: bool = False,
) -> Study:
    """Measures all heads and writes the results; the same is not measured again.

    The engine's weights are restored afterwards; `checkpoint` is their file, to identify them.
    `pairs` are from `fitting_pairs`; `iterative` chooses `iterative_order`. Raises UserError if
    the folder has other files.
    """
    require_created_by("tf-transformer heads", output, "measured-*.json")
    sources, references = map(list, zip(*pairs, strict=True))
    # The hash identifies the weights.
    search = dataclasses.replace(decoding.canonical(), checkpoint="best")
    tag = engine.tokenizer.tag
    results = repr((sha256(checkpoint), list(pairs), search, tokenize, tag))
    identity = hashlib.sha256(results.encode()).hexdigest()[:8]  # of all that determines them
    masks = HeadMasks(only_model(engine.model))
    tokenize = tokenizer_for(tokenize, references)
    functions = measures(engine, decoding, masks, sources, references, tokenize)
    if not with_bleu:
        del functions["bleu"]
    with locked(output):
        functions = remembered(output / f"measured-{identity}.json", functions)
        try:
            heads = importances(masks.heads, functions)
            pruned = sorted(heads, key=lambda each: each.loss_change)
            pruning_order = [each.head for each in pruned]
            if iterative:
                pruning_order = iterative_order(masks.heads, functions["loss"])
            sublayers = importances(masks.sublayers, functions)
            curve = pruning_curve(pruning_order, functions)
            study = Study(heads, sublayers, pruning_order, curve)
        finally:
            masks.apply([])
        content = {
            "sentences": len(pairs),
            "signature": bleu_signature(tokenize),
            "importance": _by_name("head", heads),
            "sublayers": _by_name("sublayer", sublayers),
            "order": "iterative" if iterative else "by importance",
            "curve": list(map(dataclasses.asdict, study.curve)),
        }
        write_text(output / "heads.json", json.dumps(content, indent=1) + "\n")
        logger.info("%s", output / "heads.json")
        _draw(study, output)
    return study


def _by_name(key: str, results: Sequence[Importance]) -> list[dict[str, Any]]:
    return [
        {key: str(one.head), "loss_change": one.loss_change, "bleu_change": one.bleu_change}
        for one in results
    ]


# --- Pictures -----------------------------------------------------------------------------


def _draw(study: Study, output: Path) -> None:
    points = study.curve
    rises = _by_kind(study.importances, "loss_change")
    rows = [("rise in loss\n(nats per piece)", "+z.3f", rises)]
    bars = {"rise in loss (nats per piece)": [each.loss_change for each in study.sublayers]}
    curves: dict[str, Sequence[float | None]]
    curves = {"loss (nats per piece)": [point.loss for point in points]}
    if points[0].bleu is not None:
        falls = _by_kind(study.importances, "bleu_change").items()
        rows.append(("fall in BLEU", "+z.1f", {kind: -grid for kind, grid in falls}))
        bars["fall in BLEU"] = [-(each.bleu_change or 0) for each in study.sublayers]
        curves = {"BLEU": [point.bleu for point in points], **curves}
    kept = [point.kept for point in points]
    figures = {
        "importance": importance_figure(rows, "One head masked"),
        "sublayers": sublayer_figure([each.head for each in study.sublayers], bars),
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


def importance_figure(rows: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], title: str):
    """Draws a row of grids for each measure: white is 0 and below, black the largest value.

    Shades follow the square root, because a single head often matters as much as all others
    together.

    A row is the label of its colour bar, the format of a number, and the numbers
    [layers, heads] by kind of attention; large ones mean important heads. All rows have the
    same kinds and shapes; encoder and decoder may differ in depth. Returns a matplotlib figure.
    """
    shapes = [values.shape for values in rows[0][2].values()]
    depths, heads = {layers for layers, _ in shapes}, shapes[0][1]
    kinds, layers = len(shapes), max(depths)
    width = kinds * (heads * _CELL[0] + 0.4) + 2.2
    figure = new_figure(width, 1.0 + len(rows) * (layers * _CELL[1] + 1.0))
    axes = figure.subplots(
        len(rows), kinds, squeeze=False, sharex=True, sharey=len(depths) == 1
    )
    for panels, (label, form, grids) in zip(axes, rows, strict=True):
        largest = max(1e-9, *(float(grid.max()) for grid in grids.values()))  # or 0 and less
        images = [
            _draw_grid(panel, kind, values, form, largest)
            for panel, (kind, values) in zip(panels, grids.items(), strict=True)
        ]
        figure.colorbar(images[0], ax=list(panels)).set_label(label)
    figure.suptitle(title)
    figure.supxlabel("head")
    figure.supylabel("layer")
    return figure


def _draw_grid(axes, kind: str, values: np.ndarray, form: str, largest: float):
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5, vmin=0, vmax=largest)
    image = axes.imshow(values, "Greys", norm=norm, aspect="auto")
    axes.set_title(kind, fontsize="medium")
    layers, heads = values.shape
    axes.set_xticks(range(heads), range(1, heads + 1))
    axes.set_yticks(range(layers), range(1, layers + 1))
    for (layer, head), value in np.ndenumerate(values):
        color = "white" if value > _WHITE_ON * largest else "black"
        text = format(value, form)
        axes.text(head, layer, text, color=color, ha="center", va="center", fontsize="small")
    return image


def sublayer_figure(sublayers: Sequence[Head], bars: Mapping[str, Sequence[float]]):
    """Draws a bar for each masked sublayer, feed-forward networks darker than attention.

    `bars` are keyed by the name of the horizontal axis. Returns a matplotlib figure.
    """
    figure = new_figure(3.4 * len(bars) + 1.4, 1.0 + 0.24 * len(sublayers))
    panels = figure.subplots(1, len(bars), squeeze=False, sharey=True)[0]
    names = [f"{(KINDS | _NETWORKS)[each.kind]} {each.layer}" for each in sublayers]
    colors = ["0.3" if each.kind in _NETWORKS else "0.75" for each in sublayers]
    for axes, (label, values) in zip(panels, bars.items(), strict=True):
        axes.barh(names, values, color=colors, edgecolor="black", linewidth=0.5)
        axes.set_xlabel(label)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    panels[0].invert_yaxis()
    figure.suptitle("One sublayer masked")
    return figure


def pruning_figure(
    kept: Sequence[int], curves: Mapping[str, Sequence[float | None]], title: str
):
    """Draws a panel for each curve against the number of heads kept.

    A dotted line marks the value with all heads. `curves` are keyed by the name of the vertical
    axis. Returns a matplotlib figure.
    """
    figure = new_figure(4.6 * len(curves), 3.6)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (name, values) in zip(panels, curves.items(), strict=True):
        whole = values[kept.index(max(kept))]
        axes.axhline(whole, color="0.5", linestyle=":", label="all heads")
        axes.plot(kept, values, color="black", marker="o", markersize=4, label="pruned")
        axes.set(xlabel=f"heads kept, of {max(kept)}", ylabel=name)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(title)
    return figure


# --- A pruned run -------------------------------------------------------------------------


def write_pruned_run(run: Run, model: Transformer, pruned: Sequence[Head], path: Path) -> None:
    """Writes a run with the model's weights, in which the outputs of pruned heads are zero.

    The model keeps its shape: pruned heads are still computed, but add nothing, and training
    from the run leaves them so. They are listed in pruned_heads.json. Configuration and
    tokenizer are those of `run`. Raises UserError, and writes nothing, if the folder has files
    or cannot be written.
    """
    with new_folder(path) as temporary:
        config = run.config.replace({"decoding.checkpoint": "best"})
        written = Run.create_or_resume(temporary, config)
        Tokenizer(run.require_tokenizer()).copy(written.tokenizer)
        masks = HeadMasks(model)
        masks.apply(pruned)
        save_weights(written.checkpoints.best, model)
        masks.apply([])
        names = [str(head) for head in pruned]
        write_text(written.pruned_heads, json.dumps(names, indent=2) + "\n")
