"""`tf-transformer translate RUN < in > out`: one sentence per line."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tf_transformer.cli.lines import (
    add_line_buffered_option,
    one_line,
    stdin_bars,
    stdin_chunks,
)
from tf_transformer.cli.options import (
    add_precision_option,
    add_threads_option,
    add_translator_options,
    load_translator,
)
from tf_transformer.cli.parser import int_from, integer, value_of
from tf_transformer.config import MAX_BEAM_SIZE, SamplingConfig
from tf_transformer.data.corpus import read_lines
from tf_transformer.decoding.threads import MANY, ONE
from tf_transformer.errors import UserError
from tf_transformer.files import replacing

STDOUT_IS_DATA = True

# By the field of SamplingConfig: the metavar and the help of its option.
_SAMPLING = {
    "temperature": ("T", "sharper below 1, flatter above, from 0.01 to 100 (default: 1)"),
    "top_k": ("K", "draw from the K most probable tokens"),
    "top_p": ("P", "draw from the fewest tokens of total probability P"),
    "seed": ("N", "seed of the random numbers (default: 1)"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add_translator_options(parser, ensemble=True, shortlist=True, tag=True)
    add_line_buffered_option(parser)
    add_threads_option(parser)
    add_precision_option(parser)
    add(
        "--n-best",
        type=int_from(1, MAX_BEAM_SIZE),
        default=1,
        metavar="N",
        help="N translations of each sentence, as lines of: number, score, text, tab-separated",
    )
    add(
        "--prefix-file",
        metavar="FILE",
        help="beginnings of the translations, a line for each sentence, cut at its length "
        "limit; an empty line leaves it free",
    )
    add(
        "--alignments",
        metavar="FILE",
        help="write the aligned words of each sentence and its best translation: 0-0 1-2 ...",
    )
    add(
        "--alignment-layer",
        type=integer,
        metavar="N",
        help="decoder layer to read them from, counted from 1 (default: layer 5 of 6, or the "
        "same relative depth in other models)",
    )
    group = parser.add_argument_group("sampling")
    draw = "draw translations (--n-best of them) instead of searching for the best"
    group.add_argument("--sample", action="store_true", help=draw)
    for name, (metavar, text) in _SAMPLING.items():
        option = f"--{name.replace('_', '-')}"
        group.add_argument(option, type=value_of(name), metavar=metavar, help=text)


def command(options: argparse.Namespace) -> None:
    """Translates stdin to stdout, one sentence per line; empty lines stay empty."""
    sampling = _sampling(options)
    if options.alignments and options.ensemble:
        raise UserError("--alignments needs a single model. Received: --ensemble.")
    at_once = ONE if options.line_buffered else MANY
    translator = load_translator(
        options, options.n_best, sampled=sampling is not None, sentences=[at_once]
    )
    layer = _alignment_layer(options, translator)
    done = 0
    with stdin_bars() as bars, _alignment_file(options.alignments) as alignments:
        for texts, prefixes in _chunks(options):
            translations = translator.translate(
                texts,
                lambda number, done=done: bars("translated", done + number),
                prefixes=prefixes,
                sampling=sampling,
            )
            for number, hypotheses in enumerate(translations, start=done + 1):
                sys.stdout.writelines(_format(number, hypotheses, options.n_best))
            sys.stdout.flush()
            done += len(translations)
            if alignments:
                best = [one_line(hypotheses[0].text) for hypotheses in translations]
                for alignment in translator.align(texts, best, layer=layer):
                    alignments.write(f"{alignment}\n")


def _sampling(options: argparse.Namespace) -> SamplingConfig | None:
    values = {name: getattr(options, name) for name in _SAMPLING}
    values = {name: value for name, value in values.items() if value is not None}
    if options.sample:
        if (options.beam_size, options.alpha) != (None, None):
            raise UserError("--sample draws and does not search: leave out --beam and --alpha.")
        if options.shortlist:
            raise UserError("--shortlist is for the search. Received: --sample as well.")
        return SamplingConfig(**values)
    if values:
        first = next(iter(values)).replace("_", "-")
        raise UserError(f"--{first} needs --sample. Received: --{first} alone.")
    return None


def _alignment_layer(options: argparse.Namespace, translator) -> int | None:
    """The layer, counted from 0."""
    layer = options.alignment_layer
    if layer is None:
        return None
    if not options.alignments:
        raise UserError("--alignment-layer needs --alignments. Received: it alone.")
    layers = translator.model.config.num_layers
    if not 1 <= layer <= layers:
        raise UserError(f"--alignment-layer must be in 1 to {layers}. Received: {layer}.")
    return layer - 1


@contextmanager
def _alignment_file(path: str | None) -> Iterator[TextIO | None]:
    """Opens the file to write, which appears when all is done."""
    if path is None:
        yield None
        return
    with replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


def _chunks(options: argparse.Namespace) -> Iterator[tuple[list[str], list[str] | None]]:
    """Texts and, if there is a file of them, prefixes."""
    chunks = stdin_chunks(options.line_buffered)
    if options.prefix_file is None:
        yield from ((texts, None) for texts in chunks)
        return
    lines, number = read_lines(Path(options.prefix_file)), 0
    for texts in chunks:
        prefixes = list(itertools.islice(lines, len(texts)))
        number += len(prefixes)
        if len(prefixes) < len(texts):
            raise _uneven_prefixes(number, "stdin")
        yield texts, prefixes
    if next(lines, None) is not None:
        raise _uneven_prefixes(number, options.prefix_file)


def _uneven_prefixes(number: int, longer: str) -> UserError:
    return UserError(
        "--prefix-file must have a line for each line of stdin. "
        f"Received: more than {number:,} lines in {longer}."
    )


def _format(number: int, hypotheses, n_best: int) -> Iterator[str]:
    if n_best == 1:
        yield f"{one_line(hypotheses[0].text)}\n"
        return
    for hypothesis in hypotheses:
        yield f"{number}\t{hypothesis.score:.4f}\t{one_line(hypothesis.text)}\n"
