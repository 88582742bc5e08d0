"""BLEU by length as a table for the console and as JSON."""

import json
from collections.abc import Sequence

from tabulate import tabulate

from tf_transformer.studies.lengths.measurements import Bucket, LengthCurve


def lengths_table(groups: Sequence[Bucket], curves: Sequence[LengthCurve]) -> str:
    """Formats a line per bucket, with three columns for each run."""
    lines = [
        f"{curve.label}: trained up to {curve.reach}, cuts at {curve.limit:,} pieces"
        for curve in curves
    ]
    header = ["pieces", "sentences", *["BLEU", "95 % interval", "output / ref."] * len(curves)]
    rows = []
    for number, group in enumerate(groups):
        rows.append([str(group), f"{len(group.rows):,}"])
        for each in (curve.intervals[number] for curve in curves):
            interval = f"[{each.low:.1f}, {each.high:.1f}]"
            rows[-1] += [f"{each.value:.2f}", interval, f"{each.length_ratio:.2f}"]
    align = ["right"] * len(header)
    table = tabulate(rows, header, "simple", disable_numparse=True, colalign=align)
    return "\n".join([*lines, "", table])


def to_json(
    source: str, reference: str, groups: Sequence[Bucket], curves: Sequence[LengthCurve]
) -> str:
    """Returns the JSON that docs/guides/lengths.md describes."""
    content = {
        "source": source,
        "reference": reference,
        "signature": curves[0].intervals[0].signature,
        "runs": [
            {
                "run": curve.label,
                "longest_in_training": curve.longest,
                "cut_at": curve.limit,
                "buckets": [
                    {
                        "first": group.first,
                        "last": group.last,
                        "sentences": len(group.rows),
                        "bleu": each.value,
                        "low": each.low,
                        "high": each.high,
                        "length_ratio": each.length_ratio,
                    }
                    for group, each in zip(groups, curve.intervals, strict=True)
                ],
            }
            for curve in curves
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
