"""`tf-transformer serve RUN_OR_SAVEDMODEL`: an HTTP server with TF Serving's REST paths."""

import argparse
import contextlib
import logging
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.core.export import export_run
from tf_transformer.cli.options import add_shortlist_option
from tf_transformer.cli.parser import DEADLINES, float_from, int_from
from tf_transformer.errors import UserError
from tf_transformer.serving.versions import is_version, versions

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Serves a run or a SavedModel over HTTP, with the REST paths of TF Serving and a page to "
    "try it; a run is exported first. See docs/serving.md."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="RUN_OR_SAVEDMODEL",
        help="run directory of train.py, or a folder that export.py wrote",
    )
    parser.add_argument("--name", help="of the model in the paths (default: its folder's)")
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    parser.add_argument(
        "--port", type=int_from(0, 65_535), default=8501, help="0 for any that is free"
    )
    parser.add_argument(
        "--deadline",
        type=float_from(*DEADLINES),
        default=30.0,
        metavar="SECONDS",
        help="for one request",
    )
    parser.add_argument(
        "--max-body",
        type=int_from(1, 1 << 30),
        default=1 << 20,
        metavar="BYTES",
        help="of one request",
    )
    parser.add_argument(
        "--max-waiting",
        type=int_from(1, 1 << 20),
        default=256,
        metavar="ROWS",
        help="in the queue of short requests, and in that of long ones",
    )
    parser.add_argument(
        "--grace",
        type=float_from(0.0, DEADLINES[1]),
        default=10.0,
        metavar="SECONDS",
        help="to answer what was taken, when told to stop",
    )
    add_shortlist_option(parser)


def command(options: argparse.Namespace) -> None:
    import_tensorflow_quietly()

    from tf_transformer.serving import server
    from tf_transformer.serving.batcher import BatchLimits
    from tf_transformer.serving.lanes import Lanes, Meter, token_limits
    from tf_transformer.serving.session import SavedModelSession, try_signatures

    with saved_model(Path(options.model), options.shortlist) as path:
        name = _checked_name(options.name or _name(Path(options.model), path))
        limits = server.Limits(body_bytes=options.max_body, deadline=options.deadline)
        version = int(path.name) if is_version(path.name) else 1
        with SavedModelSession(path) as session:
            _require_text(session, path)
            meter = Meter(session, token_limits(path))
            batches = BatchLimits(
                positions=meter.limits.group,
                waiting=options.max_waiting,
                deadline=options.deadline,
            )
            with contextlib.closing(Lanes(session, meter, batches)) as lanes:
                app = server.make_app(session, lanes, name, version, limits)
                listener = server.make_server(app, options.host, options.port, limits)
                try_signatures(session, path)
                place = f"http://{options.host}:{listener.effective_port}/"
                logger.info(
                    "serving %s version %d on %s (Ctrl-C ends it)", name, version, place
                )
                _serve(listener, lanes, session, options.grace)


def _serve(listener, lanes, session, grace: float) -> None:
    """Serves until a signal; then answers what was taken, for at most `grace` seconds.

    Raises:
        UserError: if nothing is computed any more.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: _stop(listener, number))
    listener.serve(lambda: lanes.alive)
    failed = not lanes.alive
    lanes.refuse()
    if listener.unanswered:
        logger.info("stopping: requests to answer: %d", listener.unanswered)
    listener.drain(grace)
    if listener.unanswered:
        logger.warning("requests not answered in %g s: %d", grace, listener.unanswered)
    session.close()  # ends what is computed still
    listener.drain(1.0)
    lanes.close(1.0)
    if failed:
        raise UserError("Nothing is computed any more, see above. Start the server again.")


def _stop(listener, number: int) -> None:
    """Ends serving; a second signal of the same kind ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    listener.stop()


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise UserError(
            f"A model's name must be of letters, digits, '_', '.' and '-'. Received: "
            f"{name!r}. Give another with --name."
        )
    return name


@contextlib.contextmanager
def saved_model(path: Path, shortlist: bool = False) -> Iterator[Path]:
    """The folder of a SavedModel: `path`, its newest version, or an export of the run.

    Raises:
        UserError: if a shortlist is wanted of a SavedModel, or as `export_run` raises it.
    """
    found = {number: part for number, part in versions(path).items() if part.is_dir()}
    if shortlist and (found or (path / "saved_model.pb").exists()):
        raise UserError(
            f"--shortlist is for a run. Received: {path}, a SavedModel. Give it to export.py."
        )
    if (path / "saved_model.pb").exists():
        yield path
    elif found:
        yield found[max(found)]
    else:
        with tempfile.TemporaryDirectory() as folder:
            options = argparse.Namespace(
                run=str(path),
                checkpoint=None,
                average=None,
                precision="float32",
                shortlist=shortlist,
            )
            yield export_run(options, Path(folder) / "model")


def _require_text(session, path: Path) -> None:
    """UserError for an export whose page and REST paths would have nothing to ask."""
    if set(session.signatures) == {"tokens"}:
        raise UserError(
            f"`serve` needs a model that takes text. Received: {path}, exported with "
            "--no-text. Export it without that option, or serve it with TF Serving."
        )


def _name(given: Path, path: Path) -> str:
    """Of MODELS/NAME/VERSION or RUN: NAME or RUN."""
    own = given.resolve()
    return own.parent.name if own == path.resolve() and is_version(own.name) else own.name
