"""What was found of the heads, as a table for the console and as JSON."""

import json
from collections.abc import Sequence
from typing import Any

from tf_transformer.studies.heads.masks import KINDS
from tf_transformer.studies.heads.pruning import Importance, Point


def importance_table(found: Sequence[Importance]) -> str:
    """The change in loss by layer and head, a block for each kind."""
    number = max(each.head.number for each in found)
    heads = "".join(f"{f'head {head}':>9}" for head in range(1, number + 1))
    lines = ["change in loss (nats a piece) with one head masked"]
    for kind, name in KINDS.items():
        lines.append(f"{name:24}{heads}")
        for layer in sorted({each.head.layer for each in found}):
            row = [each for each in found if (each.head.kind, each.head.layer) == (kind, layer)]
            cells = "".join(f"{each.loss_change:>+z9.4f}" for each in row)
            lines.append(f"{f'  layer {layer}':24}{cells}")
    return "\n".join(lines) + "\n"


def curve_table(points: Sequence[Point]) -> str:
    """Heads kept, loss and BLEU, a line for each point."""
    lines = ["heads kept     loss" + ("" if points[0].bleu is None else "    BLEU")]
    for point in points:
        score = "" if point.bleu is None else f"{point.bleu:8.2f}"
        lines.append(f"{point.kept:10}{point.loss:9.4f}{score}")
    return "\n".join(lines) + "\n"


def to_json(
    settings: dict[str, Any],
    found: Sequence[Importance],
    points: Sequence[Point],
    iterative: bool,
) -> str:
    """What docs/heads.md describes."""
    content = {
        "settings": settings,
        "importance": [
            {
                "kind": each.head.kind,
                "layer": each.head.layer,
                "head": each.head.number,
                "loss_change": each.loss_change,
                "bleu_change": each.bleu_change,
            }
            for each in found
        ],
        "order": "iterative" if iterative else "by importance",
        "curve": [
            {
                "kept": point.kept,
                "pruned": [str(head) for head in point.masked],
                "loss": point.loss,
                "bleu": point.bleu,
            }
            for point in points
        ],
    }
    return json.dumps(content, indent=1) + "\n"
