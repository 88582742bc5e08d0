"""`python train.py`: trains a model, or goes on training it."""

import argparse
import logging
import os
import shlex
import shutil
import sys
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.config import Config
from tf_transformer.presets import PRESETS, preset

logger = logging.getLogger(__name__)


DESCRIPTION = (
    "Trains a Transformer on parallel text; without --train, on the built-in English-German "
    "corpus. Run the same command again to go on."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", default="tiny", metavar="NAME", help=f"one of {', '.join(PRESETS)}"
    )
    parser.add_argument(
        "--train",
        action="append",
        metavar="PREFIX",
        help="training text PREFIX.LANG or PREFIX.LANG.gz; may be given several times",
    )
    parser.add_argument("--valid", action="append", metavar="PREFIX", help="dev text, likewise")
    parser.add_argument("--source", metavar="LANG", help="language to translate from: en")
    parser.add_argument("--target", metavar="LANG", help="language to translate to: de")
    parser.add_argument("--output", metavar="DIR", help="run directory (default: runs/NAME)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="any setting of the configuration: --set model.dropout=0.3",
    )


def configure(options: argparse.Namespace) -> Config:
    """The preset with the command line's data and overrides."""
    given = {
        f"data.{name}": getattr(options, name)
        for name in ("train", "valid", "source", "target")
        if getattr(options, name)
    }
    return preset(options.model).replace(given).override(options.set)


def command(options: argparse.Namespace) -> None:
    config = configure(options)
    output = Path(options.output or f"runs/{options.model}")
    import_tensorflow_quietly()

    import keras

    from tf_transformer.cli.progress import Progress
    from tf_transformer.data.tokenizer import Tokenizer
    from tf_transformer.run import Run
    from tf_transformer.tasks.translation import TranslationTask, check_config
    from tf_transformer.training.trainer import train

    check_config(config)
    if config.data.tokenizer:
        size = Tokenizer(Path(config.data.tokenizer)).vocab_size
        config = config.replace({"model.vocab_size": size})
    run = Run.create_or_resume(output, config)
    # First of all: it clears TensorFlow's caches, and with them a tokenizer made before.
    keras.utils.set_random_seed(config.training.seed)
    with Progress() as progress:
        task = TranslationTask(run, progress)
    logger.info("%s", task.describe())
    logger.info("device: %s", _device())
    result = train(run, task, verbose=int(sys.stderr.isatty()))
    _report(run, result)


def _device() -> str:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return f"CPU ({os.cpu_count()} cores)"
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")


def _report(run, result) -> None:
    for sample in result.samples:
        logger.info("\n  source     %s", sample.source)
        logger.info("  reference  %s", sample.reference)
        logger.info("  model      %s", sample.translation)
    logger.info("\ndev %s", result.score)
    logger.info("dev sentences translated exactly: %.1f %%", 100 * result.exact)
    sentence = result.samples[0].source if result.samples else "Your sentence."
    logger.info("\nThe run is in %s. Next:", run.path)
    translate = f"{_typed('tf-transformer')} translate {run.path}"
    logger.info("  echo %s | %s", shlex.quote(sentence), translate)
    exported = f"--output exported/{run.path.name}"
    logger.info("  %s export.py %s %s", _typed("python"), run.path, exported)


def _typed(program: str) -> str:
    """How to type a program of this environment, which need not be activated."""
    here = Path(sys.executable).with_name(program)
    return program if shutil.which(program) == str(here) else os.path.relpath(here)
