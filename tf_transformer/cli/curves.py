"""`tf-transformer curves RUN...`: the learning curves of one or more runs as a picture."""

import argparse
import logging
from pathlib import Path
from typing import Any

from tf_transformer.errors import UserError
from tf_transformer.files import replacing
from tf_transformer.run import Run

logger = logging.getLogger(__name__)

DESCRIPTION = "Draws perplexity and dev BLEU against the step, from metrics.jsonl."
FORMATS = (".png", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--output", required=True, metavar="FILE", help="a .png or .svg")


def command(options: argparse.Namespace) -> None:
    output = Path(options.output)
    if output.suffix not in FORMATS:
        raise UserError(f"--output must end in {' or '.join(FORMATS)}. Received: {output}.")
    histories = {path: Run.open(path).history() for path in options.runs}
    for path, records in histories.items():
        if not records:
            raise UserError(f"The run {path} has no evaluations yet.")
    _draw(histories, output)
    logger.info("%s", output)


def _draw(histories: dict[str, list[dict[str, Any]]], output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("curves needs matplotlib: pip install matplotlib.") from None
    figure = Figure(figsize=(10, 4), layout="constrained")
    perplexity, bleu = figure.subplots(1, 2)
    for index, (name, records) in enumerate(histories.items()):
        steps = [record["step"] for record in records]
        color = f"C{index}"
        for key, style, label in (
            ("perplexity", ":", "train, with dropout"),
            ("valid_perplexity", "-", "dev"),
        ):
            values = [record[key] for record in records]
            perplexity.plot(steps, values, style, color=color, label=f"{name}, {label}")
        scores = [record["valid_bleu"] for record in records]
        bleu.plot(steps, scores, color=color, label=f"{name}, highest {max(scores):.1f}")
    perplexity.set(xlabel="step", ylabel="perplexity per token", yscale="log")
    bleu.set(xlabel="step", ylabel="dev BLEU")
    for axes in (perplexity, bleu):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    with replacing(output) as temporary:
        figure.savefig(temporary, dpi=120, format=output.suffix[1:])
