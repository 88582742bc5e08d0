"""`tf-transformer heads RUN`: which heads a run needs, and what is left without the others."""

import argparse
import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from tf_transformer.cli.options import (
    add_decoding_options,
    add_run_options,
    load_translator,
    open_run,
)
from tf_transformer.cli.parser import int_from, integer
from tf_transformer.cli.studies.lengths import require_writable
from tf_transformer.data.corpus import read_pairs
from tf_transformer.errors import UserError
from tf_transformer.files import locked, write_text
from tf_transformer.plots.figure import new_figure, save
from tf_transformer.run import holds_other_files

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Masks one head at a time and measures the change in loss and BLEU, then prunes the least "
    "important ones; writes pictures and data. The same command goes on where it was "
    "interrupted."
)
MEASUREMENTS = "measurements.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    add_decoding_options(parser)
    parser.add_argument("--source", metavar="FILE", required=True)
    parser.add_argument("--reference", metavar="FILE", required=True)
    parser.add_argument(
        "--limit", type=int_from(1), metavar="N", help="only the first N sentences"
    )
    parser.add_argument("--no-bleu", action="store_true", help="only the loss, much faster")
    parser.add_argument(
        "--iterative",
        action="store_true",
        help="measure the remaining heads again after each one pruned",
    )
    parser.add_argument("--output", metavar="DIR", help="default: RUN/heads")
    parser.add_argument("--write", metavar="RUN", help="write a run pruned to --keep heads")
    parser.add_argument("--keep", type=integer, metavar="N", help="heads kept in that run")


def command(options: argparse.Namespace) -> None:
    run = open_run(options.run)
    output = Path(options.output or run.path / "heads")
    pairs = _check(options, run, output)
    translator = load_translator(options)
    pairs = _that_fit(pairs, translator)
    with locked(output):
        order = _study(options, run, output, translator, pairs)
    if options.write:
        _write_run(options, run, translator, order)


def _check(options: argparse.Namespace, run, output: Path) -> list[tuple[str, str]]:
    """Refuses what cannot be done, before anything slow; returns the pairs to measure on."""
    if bool(options.write) != (options.keep is not None):
        raise UserError("--write and --keep go together. Received: only one of them.")
    model = run.config.model
    number = 3 * model.num_layers * model.num_heads
    if options.keep is not None and not 0 <= options.keep <= number:
        raise UserError(f"--keep must be in 0 to {number}. Received: {options.keep}.")
    if options.write:
        _check_write(Path(options.write), output)
    if options.limit is not None and options.limit < 1:
        raise UserError(f"--limit must be at least 1. Received: {options.limit}.")
    if not (output / MEASUREMENTS).exists() and holds_other_files(output):
        raise UserError(f"{output} exists and is not of heads. Give --output a new folder.")
    new_figure(1, 1)  # whether there is matplotlib
    pairs = list(read_pairs([Path(options.source)], [Path(options.reference)]))
    if not pairs:
        raise UserError(f"{options.source} must have a sentence. Received: none.")
    return pairs[: options.limit]


def _check_write(path: Path, output: Path) -> None:
    """Refuses a folder that could not become the pruned run at the end."""
    if path.exists():
        raise UserError(f"{path} exists already. Give --write a new folder.")
    if path.resolve() in (output.resolve(), *output.resolve().parents):
        raise UserError(
            f"--write must not be the folder of --output or hold it. Received: {path}."
        )
    require_writable("--write", path)


def _that_fit(pairs: Sequence[tuple[str, str]], translator) -> list[tuple[str, str]]:
    """Without pairs that the model would not read whole; says how many they are."""
    import tensorflow as tf

    texts = [tf.constant(side) for side in zip(*pairs, strict=True)]
    _, long_source = translator.codec.encode(texts[0], translator.codec.source_limit)
    _, long_target = translator.codec.encode(
        texts[1], translator.codec.target_limit, target=True
    )
    cut = (long_source | long_target).numpy()
    fitting = [pair for pair, is_cut in zip(pairs, cut, strict=True) if not is_cut]
    if len(fitting) < len(pairs):
        logger.warning("left out as too long: %d pairs", len(pairs) - len(fitting))
    if not fitting:
        raise UserError("All sentences are longer than the model can read.")
    return fitting


def _study(options, run, output: Path, translator, pairs) -> list:
    """Measures what has not been measured, writes and prints all of it.

    Returns:
        The heads in the order of pruning.
    """
    from tf_transformer.studies.heads.masks import HeadMasks
    from tf_transformer.studies.heads.measurements import Measurements, measures
    from tf_transformer.studies.heads.pruning import (
        curve,
        importances,
        iterative_order,
        order_of,
    )
    from tf_transformer.studies.heads.report import curve_table, importance_table, to_json

    sources, references = map(list, zip(*pairs, strict=True))
    settings = _settings(options, run, translator, pairs)
    masks = HeadMasks(translator.model)
    functions = measures(translator, masks, sources, references)
    measurements = Measurements(output / MEASUREMENTS, settings, functions)
    if len(measurements):
        logger.info("%s: %d measured before", output / MEASUREMENTS, len(measurements))
    with_bleu = not options.no_bleu
    try:
        found = importances(masks.heads, measurements, with_bleu, _progress)
        order = order_of(found)
        if options.iterative:
            order = iterative_order(masks.heads, measurements, _progress)
        points = curve(order, measurements, with_bleu, _progress)
    finally:
        masks.apply([])
    write_text(output / "heads.json", to_json(settings, found, points, options.iterative))
    logger.info("%s", output / "heads.json")
    _draw(found, points, output)
    print(f"\n{importance_table(found)}\n{curve_table(points)}", end="")
    return order


def _settings(options, run, translator, pairs) -> dict:
    """All that the figures depend on."""
    from tf_transformer.evaluation.bleu import bleu
    from tf_transformer.run.facts import sha256

    text = "".join(f"{source}\t{reference}\n" for source, reference in pairs)
    decoding = dataclasses.asdict(translator.decoding)
    del decoding["batch_tokens"]  # which changes no result
    return {
        "checkpoint": sha256(run.checkpoints.find(options.checkpoint)),
        "text": hashlib.sha256(text.encode()).hexdigest(),
        "sentences": len(pairs),
        "decoding": decoding,
        "signature": bleu(["a"], ["a"]).signature,
    }


def _progress(items: Sequence, text: str) -> Iterable:
    """A moving bar, where a person is watching."""
    from tqdm import tqdm

    return tqdm(items, text, leave=False, dynamic_ncols=True, disable=None)


def _draw(found: Sequence, points: Sequence, output: Path) -> None:
    from tf_transformer.studies.heads.plot import importance_figure, pruning_figure

    grids = [_grids(found, "loss_change", "rise in loss (nats a piece)", "+z.3f", 1)]
    curves = {"loss (nats a piece)": [point.loss for point in points]}
    if found[0].bleu_change is not None:
        grids.append(_grids(found, "bleu_change", "fall in BLEU", "+z.1f", -1))
        curves = {"BLEU": [point.bleu for point in points]} | curves
    kept = [point.kept for point in points]
    figures = {
        "importance": importance_figure(grids, "One head masked"),
        "pruning": pruning_figure(kept, curves, "Least important heads pruned"),
    }
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            save(figure, output / f"{name}.{suffix}")
            logger.info("%s", output / f"{name}.{suffix}")


def _grids(found: Sequence, field: str, title: str, form: str, sign: int):
    """One measure of all heads as grids, with a sign that makes large mean important."""
    import numpy as np

    from tf_transformer.studies.heads.masks import KINDS
    from tf_transformer.studies.heads.plot import Grids

    values = {}
    for kind, name in KINDS.items():
        own = [each for each in found if each.head.kind == kind]
        layers = max(each.head.layer for each in own)
        flat = np.array([sign * getattr(each, field) for each in own])
        values[name] = flat.reshape(layers, -1)
    return Grids(title, values, form)


def _write_run(options, run, translator, order: Sequence) -> None:
    from tf_transformer.studies.heads.masks import HeadMasks
    from tf_transformer.studies.heads.pruned_run import write_pruned_run

    pruned = order[: len(order) - options.keep]
    model = translator.model
    write_pruned_run(run, model, HeadMasks(model), pruned, Path(options.write))
    logger.info("%s: %d of %d heads pruned", options.write, len(pruned), len(order))
