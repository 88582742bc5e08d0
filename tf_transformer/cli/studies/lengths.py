"""`tf-transformer lengths RUN...`: BLEU by the length of the source, also beyond training."""

import argparse
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.cli.options import (
    add_decoding_options,
    decoding_config,
    load_translator,
    open_run,
    picture,
)
from tf_transformer.cli.parser import int_from
from tf_transformer.cli.progress import Progress
from tf_transformer.data.corpus import read_pairs
from tf_transformer.errors import UserError
from tf_transformer.files import write_text

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Translates a test set with one or more runs and draws BLEU against the length of the "
    "source; lengths beyond those of the training are marked."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument(
        "--checkpoint", default="best", metavar="WHICH", help="best (default), average, last"
    )
    add_decoding_options(parser)
    parser.add_argument("--source", metavar="FILE", required=True)
    parser.add_argument("--reference", metavar="FILE", required=True)
    parser.add_argument(
        "--width",
        type=int_from(1),
        default=8,
        metavar="N",
        help="pieces in a bucket (default: 8)",
    )
    parser.add_argument(
        "--least",
        type=int_from(1),
        default=20,
        metavar="N",
        help="sentences in a bucket, or it is joined with the next (default: 20)",
    )
    parser.add_argument(
        "--output", default="lengths.png", metavar="FILE", help="a .png or .svg"
    )
    parser.add_argument("--data", metavar="FILE", help="write the figures as JSON")


def command(options: argparse.Namespace) -> None:
    path, pairs = _check(options)
    sources, references = map(list, zip(*pairs, strict=True))

    from tf_transformer.cli.console import import_tensorflow_quietly
    from tf_transformer.plots.figure import save
    from tf_transformer.studies.lengths.plot import lengths_figure

    import_tensorflow_quietly()
    groups = _buckets(options, sources)
    curves = [_curve(options, name, sources, references, groups) for name in options.runs]
    if options.data:
        write_text(Path(options.data), _json(options, groups, curves))
        logger.info("%s", options.data)
    save(lengths_figure(groups, curves), path)
    logger.info("%s", path)
    print(_table(groups, curves), end="")


def _check(options: argparse.Namespace) -> tuple[Path, list[tuple[str, str]]]:
    """Refuses what cannot be done, before anything slow; returns picture and pairs."""
    from tf_transformer.plots.figure import new_figure

    path = picture(options.output)
    new_figure(1, 1)  # whether there is matplotlib
    for name in options.runs:
        run = open_run(name)
        run.checkpoints.find(options.checkpoint)
        decoding_config(options, run)
    for name, file in (("--output", path), ("--data", options.data)):
        if file:
            require_writable(name, Path(file))
    pairs = list(read_pairs([Path(options.source)], [Path(options.reference)]))
    if not pairs:
        raise UserError(f"{options.source} must have a sentence. Received: none.")
    for number, (_, reference) in enumerate(pairs, start=1):
        if not reference.strip():
            place = f"{options.reference}:{number}"
            raise UserError(f"{place}: a reference must have a word. Received: a blank line.")
    return path, pairs


def require_writable(name: str, path: Path) -> None:
    """Refuses a file or folder to write, given by option `name`, if it cannot be written."""
    if path.is_dir():
        raise UserError(f"{name} must not be a folder that exists. Received: {path}.")
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise UserError(f"{name} must be where files can be written. Received: {path}.")


def _buckets(options: argparse.Namespace, sources: Sequence[str]) -> list:
    """By pieces of the first run's tokenizer; says so if the others have another."""
    import tensorflow as tf

    from tf_transformer.data.tokenizer import Tokenizer
    from tf_transformer.studies.lengths.measurements import buckets

    first, *others = [Tokenizer(open_run(run).require_tokenizer()) for run in options.runs]
    if any(other.models != first.models for other in others):
        logger.warning("the tokenizers differ: lengths are in pieces of %s", options.runs[0])
    pieces = first.tokenize(tf.constant(sources)).row_lengths().numpy() + 1  # and EOS
    return buckets(pieces.tolist(), options.width, options.least)


def _curve(options, name: str, sources: list[str], references: list[str], groups: list):
    """Translates with a run, and scores each bucket."""
    from tf_transformer.studies.lengths.measurements import bleu_by_bucket
    from tf_transformer.studies.lengths.plot import LengthCurve

    run = open_run(name)
    one = argparse.Namespace(**{**vars(options), "run": name})
    translator = load_translator(one)
    with Progress(len(sources)) as progress:
        found = translator.translate(
            sources, lambda done: progress(f"{name}: translated", done)
        )
    hypotheses = [best.text for best, *_ in found]
    intervals = bleu_by_bucket(groups, hypotheses, references)
    return LengthCurve(
        name, intervals, _longest_in_training(run), translator.codec.source_limit
    )


def _longest_in_training(run) -> int | None:
    """Pieces of the longest source; None if the tokenised corpus is not there to tell."""
    from tf_transformer.data.encoded import EncodedCorpus

    try:
        return int(EncodedCorpus.open(run.data / "train").source_lengths.max())
    except UserError:
        return None


def _table(groups: Sequence, curves: Sequence) -> str:
    """A line for each bucket, a column for each run."""
    lines = []
    for curve in curves:
        limits = f"trained up to {curve.reach}, cuts at {curve.limit:,}"
        lines.append(f"{curve.label}: {limits} pieces")
    lines.append(f"{'pieces':>9}{'sentences':>11}   BLEU [95 % interval], output / reference")
    for number, group in enumerate(groups):
        cells = ""
        for curve in curves:
            one = curve.intervals[number]
            cells += (
                f"{one.value:8.2f} [{one.low:5.1f}, {one.high:5.1f}]{one.length_ratio:6.2f}"
            )
        lines.append(f"{group!s:>9}{len(group.rows):11,}{cells}")
    return "\n".join(lines) + "\n"


def _json(options: argparse.Namespace, groups: list, curves: list) -> str:
    """What docs/lengths.md describes."""
    content = {
        "source": options.source,
        "reference": options.reference,
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
                        "bleu": one.value,
                        "low": one.low,
                        "high": one.high,
                        "length_ratio": one.length_ratio,
                    }
                    for group, one in zip(groups, curve.intervals, strict=True)
                ],
            }
            for curve in curves
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
