"""`tf-transformer translate RUN < in > out`: one sentence a line."""

import argparse
import itertools
import sys
from collections.abc import Iterator

from tf_transformer.cli.options import add_decoding_options, add_run_options, load_translator
from tf_transformer.cli.progress import Progress
from tf_transformer.data.corpus import read_lines

DESCRIPTION = "Translates stdin to stdout, one sentence a line; empty lines stay empty."
STDOUT_IS_DATA = True

CHUNK = 10_000  # sentences sorted by length together; memory does not grow beyond


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    add_decoding_options(parser)
    parser.add_argument(
        "--n-best",
        type=int,
        default=1,
        metavar="N",
        help="N translations of each sentence, as lines of: number, score, text, tab-separated",
    )


def command(options: argparse.Namespace) -> None:
    translator = load_translator(options, options.n_best)
    lines = read_lines(0)
    number = 0
    with Progress() as progress:
        for chunk in _chunks(lines):
            before = number
            found = translator.translate(
                chunk, lambda done, before=before: progress("translated", before + done)
            )
            for hypotheses in found:
                number += 1
                sys.stdout.writelines(_format(number, hypotheses, options.n_best))


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(itertools.islice(lines, CHUNK)):
        yield chunk


def _format(number: int, hypotheses, n_best: int) -> Iterator[str]:
    if n_best == 1:
        yield f"{one_line(hypotheses[0].text)}\n"
        return
    for hypothesis in hypotheses:
        yield f"{number}\t{hypothesis.score:.4f}\t{one_line(hypothesis.text)}\n"


def one_line(text: str) -> str:
    """Byte pieces can spell a line end; the output must stay aligned with the input."""
    return text.replace("\r", " ").replace("\n", " ")
