"""`tf-transformer translate RUN < in > out`: one sentence per line."""

import argparse
import dataclasses
import gzip
import itertools
import shutil
import sys
import tempfile
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
    add_sampling_options,
    add_shared_options,
    add_translator_options,
    open_translator,
    require_n_best,
    require_writable,
    sampling_config,
)
from tf_transformer.cli.parser import int_from, integer
from tf_transformer.config import MAX_BEAM_SIZE
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError
from tf_transformer.files import replacing

STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add_translator_options(parser, "--ensemble", "--tag")
    add_line_buffered_option(parser)
    add_shared_options(parser, "--threads", "--precision", "--litert")
    add(
        "--n-best",
        type=int_from(1, MAX_BEAM_SIZE),
        metavar="N",
        help="print the N best translations of each sentence, each on a line of sentence "
        "number, score and text, separated by tabs",
    )
    add(
        "--prefix-file",
        metavar="FILE",
        help="begin each translation with the line of FILE for its sentence, cut at the "
        "sentence's length limit; an empty line prescribes nothing",
    )
    add(
        "--alignments",
        metavar="FILE",
        help="write the word alignment of each sentence with its best translation: 0-0 1-2 ...",
    )
    add(
        "--alignment-layer",
        type=integer,
        metavar="N",
        help="decoder layer to read alignments from, counted from 1 (default: layer 5 of 6, or "
        "the same relative depth in other models)",
    )
    add_sampling_options(parser)


def command(options: argparse.Namespace) -> None:
    """Translates stdin to stdout, one sentence per line; empty lines stay empty."""
    sampling = sampling_config(options)
    if options.alignments:
        require_writable("--alignments", Path(options.alignments))
    require_n_best(options, sampled=sampling is not None)
    translator = open_translator(options)
    layer = _alignment_layer(options, translator)
    done = 0
    with stdin_bars() as bars, _alignment_file(options.alignments) as alignments:
        for texts, prefixes in _chunks(options):
            translations = translator.translate(
                texts,
                n_best=options.n_best or 1,
                prefix=prefixes,
                sample=options.sample,
                progress=lambda number, done=done: bars("translated", done + number),
                **(dataclasses.asdict(sampling) if sampling else {}),
            )
            for number, ranked in enumerate(translations, start=done + 1):
                sys.stdout.writelines(_format(number, ranked, options.n_best))
            sys.stdout.flush()
            done += len(translations)
            if alignments:
                best = [one_line(ranked[0]) for ranked in translations]
                for alignment in translator.align(texts, best, layer=layer):
                    alignments.write(f"{alignment}\n")


def _alignment_layer(options: argparse.Namespace, translator) -> int | None:
    """Returns the layer to read alignments from; None for the default."""
    layer = options.alignment_layer
    if layer is None:
        return None
    layers = translator.model.config.num_decoder_layers
    if not 1 <= layer <= layers:
        raise UserError(f"--alignment-layer must be from 1 to {layers}. Received: {layer}.")
    return layer


@contextmanager
def _alignment_file(path: str | None) -> Iterator[TextIO | None]:
    """Yields a temporary file of alignments, copied to `path` once it is complete.

    `replacing` alone would blame `path` for every error in its block, even one of stdout.
    """
    if path is None:
        yield None
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        yield file
        file.seek(0)
        with replacing(Path(path)) as temporary:
            opener = gzip.open if path.endswith(".gz") else open
            with opener(temporary, "wt", encoding="utf-8") as copy:
                shutil.copyfileobj(file, copy)


def _chunks(options: argparse.Namespace) -> Iterator[tuple[list[str], list[str] | None]]:
    """Yields chunks of texts with their prefixes, None without --prefix-file."""
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


def _format(number: int, ranked, n_best: int | None) -> Iterator[str]:
    if n_best is None:
        yield f"{one_line(ranked[0])}\n"
        return
    for translation in ranked:
        yield f"{number}\t{translation.score:.4f}\t{one_line(translation)}\n"
