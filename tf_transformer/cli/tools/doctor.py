"""`tf-transformer doctor`: looks for mistakes before the hours of a training are spent."""

import argparse
import tempfile
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.core import train
from tf_transformer.cli.options import open_run
from tf_transformer.cli.progress import Progress
from tf_transformer.config import Config
from tf_transformer.doctor.findings import Finding
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.registry import check_config, encoder_outputs, task_named

DESCRIPTION = (
    "Checks text, vocabulary and memory before a training; prints a line for each check, ok or "
    "warning. Takes a run directory, or the command line of train, of which --output and "
    "--stop-after do nothing here. The status is 0 even if there are warnings."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="run directory of train.py")
    train.add_arguments(parser)
    parser.set_defaults(model=None)
    parser.add_argument(
        "--test", action="append", metavar="PREFIX", default=[], help="test text, likewise"
    )


def command(options: argparse.Namespace) -> None:
    _check(options)
    run = open_run(options.run, None) if options.run else None
    config = run.config if run else _configuration(options)
    import_tensorflow_quietly()
    check_config(config)
    with tempfile.TemporaryDirectory() as folder:
        findings = _examine(run or Run(Path(folder), config), options)
    for finding in findings:
        print(finding)
    warnings = sum(finding.warning for finding in findings)
    print(f"{warnings} {'warning' if warnings == 1 else 'warnings'}")


def _configuration(options: argparse.Namespace) -> Config:
    given = argparse.Namespace(**vars(options) | {"model": options.model or "tiny"})
    return train.configure(given)


def _examine(run: Run, options: argparse.Namespace) -> list[Finding]:
    """All findings; what needs a tokenizer or a tokenised corpus only where there is one."""
    from tf_transformer.data.tokenizer import Tokenizer
    from tf_transformer.doctor import diagnosis
    from tf_transformer.doctor.vocabulary_checks import check_round_trip, check_unknown

    config, task = run.config, None
    record = task_named(config.task).record()
    with Progress() as progress:
        if run.tokenizer.exists():
            task = record.prepare(run, progress)
        data = record.effective_data(run)
        surveys = diagnosis.survey_text(data, options.test, progress=progress)
    findings = diagnosis.text_findings(surveys, data.max_length, prose=record.prose)
    if task:
        findings += diagnosis.task_findings(task, surveys)
    elif data.tokenizer:
        tokenizer = Tokenizer(Path(data.tokenizer))
        config = config.replace({"model.vocab_size": tokenizer.vocab_size})
        findings += check_unknown(tokenizer, surveys, record.text_sides)
        findings += check_round_trip(tokenizer, surveys, record.text_sides)
    shapes = task.plan.shapes if task else [diagnosis.longest_shape(config)]
    replicas, outputs = _replicas(options.devices), encoder_outputs(run)
    return [*findings, diagnosis.memory_finding(config, shapes, replicas, outputs)]


def _replicas(devices: int | None) -> int:
    """As many as train would use."""
    import tensorflow as tf

    return devices or max(1, len(tf.config.list_physical_devices("GPU")))


def _check(options: argparse.Namespace) -> None:
    names = ("task", "model", "train", "valid", "source", "target", "batch_tokens",
             "max_tokens_per_device", "encoder_from", "set")  # fmt: skip
    given = [f"--{name.replace('_', '-')}" for name in names
             if getattr(options, name) not in (None, [])]  # fmt: skip
    if options.run and given:
        raise UserError(
            "doctor takes a run directory or the options of a training. Received: "
            f"{options.run} and {', '.join(given)}."
        )
