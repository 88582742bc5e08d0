"""Options and steps that several commands share."""

import argparse
import dataclasses
from pathlib import Path

from tf_transformer.cli.parser import value_of
from tf_transformer.errors import UserError
from tf_transformer.tasks.registry import check_run, task_named


def add_run_options(
    parser: argparse.ArgumentParser,
    *,
    optional: bool = False,
    metavar: str = "RUN",
    help: str = "run directory of train.py",
) -> None:
    """RUN and --checkpoint."""
    parser.add_argument("run", metavar=metavar, nargs="?" if optional else None, help=help)
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="WHICH",
        help="best (default), average, last, or a step",
    )


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """How to search; the run's own settings by default."""
    parser.add_argument(
        "--beam",
        type=value_of("decoding.beam_size"),
        metavar="W",
        help="beam size (default: the run's)",
    )
    parser.add_argument(
        "--alpha",
        type=value_of("decoding.alpha"),
        help="length penalty (default: the run's)",
    )
    parser.add_argument(
        "--batch-tokens",
        type=value_of("decoding.batch_tokens"),
        metavar="N",
        help="source tokens x beams in one batch",
    )
    parser.add_argument(
        "--max-length",
        type=value_of("decoding.max_length"),
        metavar="N",
        help="at most N tokens of output, the end counted",
    )
    parser.add_argument(
        "--min-length",
        type=value_of("decoding.min_length"),
        metavar="N",
        help="at least N tokens of output",
    )
    parser.add_argument(
        "--no-repeat-ngram",
        type=value_of("decoding.no_repeat_ngram"),
        metavar="N",
        help="no N tokens in a row come twice",
    )


def add_shortlist_option(parser: argparse.ArgumentParser) -> None:
    """--shortlist."""
    parser.add_argument(
        "--shortlist",
        action="store_true",
        help="translate each sentence with tokens that are likely for it alone; made by "
        "tf-transformer shortlist RUN",
    )


def open_run(path: str, task: str | None = "translation"):
    """A run of the task that a command is for; UserError if it is of another.

    With None it may be of any.
    """
    from tf_transformer.run import Run

    run = Run.open(path)
    check_run(run)
    if task and run.config.task != task:
        raise UserError(
            f"This command is for runs of --task {task}. Received: {path}, of --task "
            f"{run.config.task}. To use that run: tf-transformer "
            f"{task_named(run.config.task).command} {path}"
        )
    return run


def picture(output: str) -> Path:
    """The path of a picture to write, a .png or .svg."""
    path = Path(output)
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--output must end in .png or .svg. Received: {output}.")
    return path


def add_ensemble_option(parser: argparse.ArgumentParser) -> None:
    """--ensemble."""
    parser.add_argument(
        "--ensemble",
        nargs="+",
        default=(),
        metavar="RUN",
        help="more runs with the same tokenizer: decode with the mean of all probabilities",
    )


# Where the options of the command line go, if they are given.
_DECODING_FIELDS = {
    "beam": "beam_size",
    "alpha": "alpha",
    "batch_tokens": "batch_tokens",
    "max_length": "max_length",
    "min_length": "min_length",
    "no_repeat_ngram": "no_repeat_ngram",
}


def decoding_config(options: argparse.Namespace, run):
    """The run's decoding settings with the options given."""
    given = {
        field: getattr(options, name)
        for name, field in _DECODING_FIELDS.items()
        if getattr(options, name, None) is not None
    }
    return dataclasses.replace(run.config.decoding, **given)


def load_translator(
    options: argparse.Namespace,
    num_hypotheses: int = 1,
    *,
    sampled: bool = False,
    task: str = "translation",
):
    """The translator of `options.run` with the decoding options given."""
    from tf_transformer.cli.console import import_tensorflow_quietly

    run = open_run(options.run, task)
    others = [open_run(path, task) for path in getattr(options, "ensemble", ())]
    decoding = decoding_config(options, run)
    if num_hypotheses > decoding.beam_size and not sampled:
        raise UserError(
            f"--n-best must be between 1 and the beam size, {decoding.beam_size}. "
            f"Received: {num_hypotheses}."
        )
    import_tensorflow_quietly()

    from tf_transformer.tasks.models import load_translator

    return load_translator(
        run,
        options.checkpoint,
        decoding,
        num_hypotheses,
        others,
        shortlist=getattr(options, "shortlist", False),
    )
