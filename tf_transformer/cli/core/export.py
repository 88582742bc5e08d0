"""`tf-transformer export RUN --output DIR`: a SavedModel for TF Serving."""

import argparse
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import (
    RUN_HELP,
    add_decoding_options,
    add_run_options,
    add_shared_options,
    decoding_config,
    decoding_options,
    open_run,
)
from tf_transformer.cli.parser import float_from, int_from
from tf_transformer.config.decoding import DECODING_PRECISIONS
from tf_transformer.errors import UserError, quoted
from tf_transformer.export.versions import check_readable, find_export
from tf_transformer.run import Run
from tf_transformer.tasks.registry import EXPORTED, task_named

logger = logging.getLogger(__name__)

# Names for error messages of the arguments of loading and exporting.
_OPTIONS = {
    "decoding": "An option of the search",
    "ensemble": "An ensemble",
    "format": "--format litert",
    "litert": "--format litert",
    "precision": "--precision",
    "tag": "--tag",
    "text": "--no-text",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    runs = f"{RUN_HELP}, of a translator or classifier; several form an ensemble"
    add_run_options(parser, nargs="+", help=runs)
    add_decoding_options(parser)
    add_shared_options(parser, "--tag")
    add("--average", metavar="lastN", help="export the mean of the run's last N checkpoints")
    add(
        "--precision",
        default="float32",
        choices=DECODING_PRECISIONS,
        help="precision of weights and computation (default: float32); bfloat16 halves the "
        "size, int8 (with --format litert) quarters it; both may change translations, so "
        "evaluate them",
    )
    text = "a SavedModel (default), or the encoder and a decoding step for LiteRT"
    add("--format", default="savedmodel", choices=("savedmodel", "litert"), help=text)
    text = "with --format litert: fixed shapes, for one source of up to N tokens at a time"
    add("--fixed-length", type=int_from(8, 4096), metavar="N", help=text)
    add(
        "--no-text",
        action="store_true",
        help="take and return token ids: the model then needs no SentencePiece operations, and "
        "can be converted to LiteRT",
    )
    add("--output", required=True, metavar="DIR", help="folder of the model's versions")
    version = int_from(1, 2**63 - 1)  # as TF Serving reads it
    text = "version number (default: the next free one)"
    add("--version", type=version, metavar="N", help=text)
    gate = parser.add_argument_group(
        "gate", "If the model fails the gate, it is not published and the exit status is 3."
    )
    text = "a published model; the new one fails if it is significantly worse"
    gate.add_argument("--better-than", metavar="SAVEDMODEL", help=text)
    gate.add_argument("--source", metavar="FILE", help="dev text to translate")
    text = "its reference translations; for a classifier, labelled dev sentences"
    gate.add_argument("--reference", metavar="FILE", help=text)
    points = float_from(0.0, 100.0)
    text = "allowed loss in points of BLEU or accuracy (default: 0)"
    gate.add_argument("--margin", type=points, default=0.0, metavar="POINTS", help=text)


def command(options: argparse.Namespace) -> None:
    """Exports a run to DIR/VERSION/, as a SavedModel or for LiteRT.

    The model maps text to translations or labels. Several runs are exported as one ensemble.
    The files are tested against the model in Python before they are published. See
    docs/guides/exporting.md.
    """
    output = Path(options.output)
    check_readable(output)
    run = open_run(options.run[0], EXPORTED)
    others = [open_run(path, run.config.task) for path in options.run[1:]]
    average = _average(options)
    published = _published(options, run)
    decoding_config(options, run)  # refuses values that do not go together
    loading, searching = _loading(options, others), decoding_options(options)
    exporting: dict[str, Any] = {"text": False} if options.no_text else {}
    exporting |= {"format": "litert"} if options.format == "litert" else {}
    _refuse_options(run, [*loading, *exporting, *(["decoding"] if searching else [])])
    if options.fixed_length:
        exporting["fixed_length"] = options.fixed_length
    if average is None:
        for member in (run, *others):
            member.weights(options.checkpoint)  # fails before the import of TensorFlow
    import_tensorflow_quietly()

    from tf_transformer.api.export import export_run

    if published:
        exporting["gate"] = _gate(options, run, published)
    path = export_run(
        run,
        output,
        checkpoint=options.checkpoint,
        average=average,
        options=loading,
        version=options.version,
        **exporting,
        **searching,
    )
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    logger.info("exported %s (%.1f MB)", path, size / 1e6)


def _loading(options: argparse.Namespace, others: list[Run]) -> dict[str, Any]:
    """Returns the options for loading the run that differ from the defaults."""
    values = {
        "ensemble": others,
        "precision": options.precision if options.precision != "float32" else None,
        "litert": options.precision == "int8",  # --format litert, by `_check_format`
        "tag": options.tag,
    }
    return {name: value for name, value in values.items() if value}


def _refuse_options(run: Run, names: Iterable[str]) -> None:
    supported = task_named(run.config.task).options
    if wrong := [name for name in names if name not in supported]:
        raise UserError(
            f"{_OPTIONS[wrong[0]]} is not for runs of --task {run.config.task}. Received: "
            f"{run.path}. Leave it out."
        )


def _published(options: argparse.Namespace, run: Run) -> Path | None:
    """Returns the gate's published model, None without a gate; refuses incomplete options."""
    task = task_named(run.config.task)
    if not (options.better_than or options.source or options.reference or options.margin):
        return None
    if options.source and not task.languages:
        raise UserError(
            f"--source is for runs that translate: for --task {run.config.task}, the file of "
            f"--reference contains the text too. Received: {options.source}."
        )
    required = {"--better-than": options.better_than, "--reference": options.reference}
    if task.languages:
        required["--source"] = options.source
    if not all(required.values()) or options.no_text:
        received = ", ".join(f"{name} {value}" for name, value in required.items())
        names = "--better-than, --source" if task.languages else "--better-than"
        raise UserError(
            f"{names} and --reference belong together, and are for a model that takes text. "
            f"Received: {received}{', --no-text' * options.no_text}."
        )
    published = find_export(Path(options.better_than))
    if published is None:
        raise UserError(f"--better-than must be an export. Received: {options.better_than}.")
    return published


def _gate(options: argparse.Namespace, run: Run, published: Path) -> Any:
    from tf_transformer.export.gate import Gate

    source = Path(options.source) if options.source else None
    task_class = task_named(run.config.task).task_class()
    dev = task_class.read_dev_text(run, source, Path(options.reference))
    return Gate(published, dev, options.margin)


def _average(options: argparse.Namespace) -> int | None:
    """Returns how many of the last checkpoints to average; None to export a single one."""
    if options.average is None:
        return None
    if len(options.run) > 1:
        raise UserError(
            f"--average is for one run. Received: {len(options.run)} runs. Average each with "
            "`tf-transformer average`, and export them with --checkpoint average."
        )
    match = re.fullmatch(r"last([1-9]\d{0,8})", options.average)
    if not match:
        raise UserError(
            f"--average must be lastN, such as last5. Received: {quoted(options.average)}."
        )
    return int(match[1])
