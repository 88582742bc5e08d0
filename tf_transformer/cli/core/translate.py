"""`tf-transformer translate RUN < in > out`: one sentence a line."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tf_transformer.cli.options import (
    add_decoding_options,
    add_ensemble_option,
    add_run_options,
    add_shortlist_option,
    load_translator,
)
from tf_transformer.cli.parser import int_from, integer, value_of
from tf_transformer.cli.progress import Progress
from tf_transformer.cli.stdin import add_line_buffered_option, stdin_chunks
from tf_transformer.config import MAX_BEAM_SIZE, SamplingConfig
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError
from tf_transformer.files import replacing

DESCRIPTION = "Translates stdin to stdout, one sentence a line; empty lines stay empty."
STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    add_ensemble_option(parser)
    add_decoding_options(parser)
    add_shortlist_option(parser)
    add_line_buffered_option(parser)
    parser.add_argument(
        "--n-best",
        type=int_from(1, MAX_BEAM_SIZE),
        default=1,
        metavar="N",
        help="N translations of each sentence, as lines of: number, score, text, tab-separated",
    )
    parser.add_argument(
        "--prefix-file",
        metavar="FILE",
        help="how each translation begins, a line for each sentence, cut at its length limit; "
        "an empty line leaves it free",
    )
    parser.add_argument(
        "--alignments",
        metavar="FILE",
        help="write which words of sentence and best translation belong together: 0-0 1-2 ...",
    )
    parser.add_argument(
        "--alignment-layer",
        type=integer,
        metavar="N",
        help="decoder layer to read them from, counted from 1 (default: 5 of 6, and alike)",
    )
    _add_sampling_options(parser)


def _add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--sample",
        action="store_true",
        help="draw translations (--n-best of them) instead of searching for the best",
    )
    group.add_argument(
        "--temperature",
        type=value_of("temperature"),
        metavar="T",
        help="sharper below 1, flatter above, from 0.01 to 100 (default: 1)",
    )
    group.add_argument(
        "--top-k",
        type=value_of("top_k"),
        metavar="K",
        help="draw from the K most probable tokens",
    )
    group.add_argument(
        "--top-p",
        type=value_of("top_p"),
        metavar="P",
        help="draw from the fewest tokens of probability P",
    )
    group.add_argument(
        "--seed",
        type=value_of("seed"),
        metavar="N",
        help="of the random numbers (default: 1)",
    )


def command(options: argparse.Namespace) -> None:
    sampling = _sampling(options)
    if options.alignments and options.ensemble:
        raise UserError("--alignments needs a single model. Received: --ensemble.")
    translator = load_translator(options, options.n_best, sampled=sampling is not None)
    layer = _alignment_layer(options, translator)
    number = 0
    with Progress() as progress, _alignment_file(options.alignments) as alignments:
        for texts, prefixes in _chunks(options):
            before = number
            found = translator.translate(
                texts,
                lambda done, before=before: progress("translated", before + done),
                prefixes=prefixes,
                sampling=sampling,
            )
            for hypotheses in found:
                number += 1
                sys.stdout.writelines(_format(number, hypotheses, options.n_best))
            sys.stdout.flush()
            if alignments:
                best = [one_line(hypotheses[0].text) for hypotheses in found]
                found_pairs = translator.align(texts, best, layer=layer)
                alignments.writelines(map(pharaoh, found_pairs))


def _sampling(options: argparse.Namespace) -> SamplingConfig | None:
    names = ("temperature", "top_k", "top_p", "seed")
    given = {name: getattr(options, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    if options.sample and (options.beam, options.alpha) != (None, None):
        raise UserError("--sample draws and does not search: leave out --beam and --alpha.")
    if options.sample and options.shortlist:
        raise UserError("--shortlist is for the search. Received: --sample as well.")
    if options.sample:
        return SamplingConfig(**given)
    if given:
        first = next(iter(given)).replace("_", "-")
        raise UserError(f"--{first} needs --sample. Received: --{first} alone.")
    return None


def _alignment_layer(options: argparse.Namespace, translator) -> int | None:
    """Counted from 0, as Python has it."""
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
    """The file to write to, which appears when all is done."""
    if path is None:
        yield None
        return
    with replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


def _chunks(options: argparse.Namespace) -> Iterator[tuple[list[str], list[str] | None]]:
    """Texts and, if there is a file of them, prefixes."""
    chunks = stdin_chunks(options.line_buffered)
    if options.prefix_file is None:
        return ((texts, None) for texts in chunks)
    return _with_prefixes(chunks, options.prefix_file)


def _with_prefixes(
    chunks: Iterator[list[str]], prefix_file: str
) -> Iterator[tuple[list[str], list[str]]]:
    prefixes, number = read_lines(Path(prefix_file)), 0
    for texts in chunks:
        begun = list(itertools.islice(prefixes, len(texts)))
        number += len(begun)
        if len(begun) < len(texts):
            raise _uneven_prefixes(number, "stdin")
        yield texts, begun
    if next(prefixes, None) is not None:
        raise _uneven_prefixes(number, prefix_file)


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


def pharaoh(pairs: list[tuple[int, int]]) -> str:
    """A line such as "0-0 1-2 2-1": source word, target word, counted from 0."""
    return " ".join(f"{source}-{target}" for source, target in pairs) + "\n"


def one_line(text: str) -> str:
    """Byte pieces can spell a line end; the output must stay aligned with the input."""
    return text.replace("\r", " ").replace("\n", " ")
