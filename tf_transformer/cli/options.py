"""Options and steps that several commands share."""

import argparse
import dataclasses

from tf_transformer.errors import UserError


def add_run_options(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """RUN and --checkpoint."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?" if optional else None, help="run directory of train.py"
    )
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="WHICH",
        help="best (default), average, last, or a step",
    )


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """--beam, --alpha and --batch-tokens; the run's own by default."""
    parser.add_argument("--beam", type=int, metavar="W", help="beam size (default: the run's)")
    parser.add_argument("--alpha", type=float, help="length penalty (default: the run's)")
    parser.add_argument(
        "--batch-tokens", type=int, metavar="N", help="source tokens x beams in one batch"
    )


def load_translator(options: argparse.Namespace, num_hypotheses: int = 1):
    """The translator of `options.run` with the decoding options given."""
    from tf_transformer.cli.console import import_tensorflow_quietly
    from tf_transformer.run import Run

    run = Run.open(options.run)
    names = {"beam": "beam_size", "alpha": "alpha", "batch_tokens": "batch_tokens"}
    given = {
        field: getattr(options, name)
        for name, field in names.items()
        if getattr(options, name, None) is not None
    }
    decoding = dataclasses.replace(run.config.decoding, **given)
    if not 1 <= num_hypotheses <= decoding.beam_size:
        raise UserError(
            f"--n-best must be between 1 and the beam size, {decoding.beam_size}. "
            f"Received: {num_hypotheses}."
        )
    import_tensorflow_quietly()

    from tf_transformer.tasks.translation import load_translator

    return load_translator(run, options.checkpoint, decoding, num_hypotheses)
