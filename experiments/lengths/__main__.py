"""Translates a test set with one or more runs and draws BLEU against source length.

Lengths beyond those seen in training are marked.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.common import (
    Parser,
    add_model_options,
    new_figure,
    open_translator,
    positive,
    read_pairs,
    run,
    save,
)
from experiments.lengths.study import lengths_figure, lengths_table, measure_lengths
from tf_transformer import Run, UserError


def main(words: Sequence[str] | None = None) -> None:
    """Runs the command with these words, by default those of the process."""
    parser = Parser("python -m experiments.lengths", description=__doc__)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run directories")
    add("--source", metavar="FILE", required=True, help="text to translate")
    add("--reference", metavar="FILE", required=True, help="its translations")
    width = "width of a length bucket, in pieces (default: 8)"
    add("--width", type=positive, default=8, metavar="N", help=width)
    least = "minimum sentences per bucket; smaller ones join the next (default: 20)"
    add("--least", type=positive, default=20, metavar="N", help=least)
    output = "picture to write, .png, .svg or .pdf (default: lengths.png)"
    add("--output", default="lengths.png", metavar="FILE", help=output)
    add_model_options(parser)
    options = parser.parse_args(words)
    if Path(options.output).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--output must end in .png, .svg or .pdf. Received: {options.output}.")
    new_figure(1, 1)  # fails early without matplotlib
    runs = [Run.open(path) for path in options.runs]
    sources, references = read_pairs(options.source, options.reference)
    for number, text in enumerate(references, start=1):
        if not text.strip():
            raise UserError(f"{options.reference}:{number}: a reference must have a word.")
    translators = [open_translator(each, options) for each in runs]
    groups, curves = measure_lengths(
        runs, translators, sources, references, width=options.width, least=options.least
    )
    save(lengths_figure(groups, curves), Path(options.output))
    for curve in curves:
        print(f"{curve.label}: trained {curve.reach}, cuts at {curve.limit:,} pieces")
    print(f"\n{lengths_table(groups, curves)}")


if __name__ == "__main__":
    sys.exit(run(main))
