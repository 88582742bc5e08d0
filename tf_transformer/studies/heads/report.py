"""Results for heads, as tables for the console and as JSON."""

import json
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from tf_transformer.studies.heads.masks import KINDS
from tf_transformer.studies.heads.pruning import Importance, Point


def importance_table(importances: Sequence[Importance]) -> str:
    """The change in loss by layer and head, a block for each kind."""
    number = max(each.head.number for each in importances)
    rows = []
    for kind, name in KINDS.items():
        rows.append([name, *(f"head {head}" for head in range(1, number + 1))])
        for layer in sorted({each.head.layer for each in importances}):
            changes = [
                f"{each.loss_change:+z.4f}"
                for each in importances
                if (each.head.kind, each.head.layer) == (kind, layer)
            ]
            rows.append([f"layer {layer}", *changes])
    align = ["left", *["right"] * number]
    table = tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=align)
    return f"change in loss (nats per piece) with one head masked\n{table}"


def curve_table(points: Sequence[Point]) -> str:
    """Heads kept, loss and BLEU, a line for each point."""
    with_bleu = points[0].bleu is not None
    header = ["heads kept", "loss", *["BLEU"] * with_bleu]
    rows = [[each.kept, each.loss, *[each.bleu] * with_bleu] for each in points]
    return tabulate(rows, header, "plain", floatfmt=("", ".4f", ".2f"))


def to_json(
    settings: dict[str, Any],
    importances: Sequence[Importance],
    points: Sequence[Point],
    iterative: bool,
) -> str:
    """The JSON that docs/heads.md describes."""
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
            for each in importances
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
