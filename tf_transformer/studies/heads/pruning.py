"""Importance of heads, and pruning by importance (Michel et al. 2019, arXiv 1905.10650)."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.files import replacing_folder, write_text
from tf_transformer.models.transformer import Transformer
from tf_transformer.progress import bar
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import save_weights
from tf_transformer.studies.heads.measurements import Head, HeadMasks, Measurements

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


def write_pruned_run(
    run: Run, model: Transformer, masks: HeadMasks, pruned: Sequence[Head], path: Path
) -> Run:
    """Writes a run with the model's weights, in which the outputs of pruned heads are zero.

    The model keeps its shape: pruned heads are still computed, but add nothing. They are listed
    in pruned_heads.json. Configuration and tokenizer are those of `run`.

    Raises:
        UserError: if the folder has files or cannot be written; then nothing is written.
    """
    with replacing_folder(path, replace=False) as temporary:
        config = run.config.replace({"decoding.checkpoint": "best"})
        written = Run.create_or_resume(temporary, config)
        if run.lengths.exists():
            written.write_trained_lengths(*run.trained_lengths())
        Tokenizer(run.require_tokenizer()).copy(written.tokenizer)
        masks.apply(pruned)
        save_weights(written.checkpoints.best, model)
        masks.apply([])
        names = [str(head) for head in pruned]
        write_text(temporary / PRUNED_FILE, json.dumps(names, indent=2) + "\n")
    return Run.open(path)
