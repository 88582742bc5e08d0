"""`tf-transformer serve RUN_OR_SAVEDMODEL`: an HTTP server with TF Serving's REST paths."""

import argparse
import contextlib
import logging
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import add_shared_options, open_run
from tf_transformer.cli.parser import float_from, int_from
from tf_transformer.config.decoding import in_litert
from tf_transformer.decoding.threads import use_threads
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.serving.addresses import check_address, host_and_port
from tf_transformer.serving.versions import find_export, is_version, versions
from tf_transformer.tasks.registry import EXPORTED, task_named

logger = logging.getLogger(__name__)

_DAY = 86_400.0  # seconds; waiting for longer is a mistake
_ENDING = (signal.SIGTERM, signal.SIGHUP)  # the latter when a terminal closes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    model = "run directory, or a folder that `export` wrote"
    add("model", metavar="RUN_OR_SAVEDMODEL", help=model)
    add("--name", help="the model's name in URLs (default: the name of its folder)")
    text = "address to listen on (default: 127.0.0.1, for this machine only)"
    add("--host", default="127.0.0.1", help=text)
    port = "port to listen on, 0 for any free one (default: 8501)"
    add("--port", type=int_from(0, 65_535), default=8501, help=port)
    seconds = float_from(0.001, _DAY)
    text = "time limit per request (default: 30)"
    add("--deadline", type=seconds, default=30.0, metavar="SECONDS", help=text)
    text = "size limit of a request (default: 1 MiB)"
    add("--max-body", type=int_from(1, 1 << 30), default=1 << 20, metavar="BYTES", help=text)
    text = "maximum rows waiting in each queue, of short and of long requests (default: 256)"
    add("--max-waiting", type=int_from(1, 1 << 20), default=256, metavar="ROWS", help=text)
    seconds = float_from(0.0, _DAY)
    text = "time for answering accepted requests at shutdown (default: 10)"
    add("--grace", type=seconds, default=10.0, metavar="SECONDS", help=text)
    text = "responses to log, each as a line of JSON (default: errors)"
    levels = ("off", "errors", "all")
    add("--access-log", choices=levels, default="errors", help=text)
    add_shared_options(parser, "--threads", "--precision", "--litert", "--tag")


def command(options: argparse.Namespace) -> None:
    """Serves a run or a SavedModel over HTTP, with the REST paths of TF Serving.

    The page at / lets you try the model. A run is first exported to a temporary folder. See
    docs/guides/serving.md.
    """
    source = _source(options)
    name = _name(options, source)
    check_address(options.host, options.port)
    if isinstance(source, Run):
        logger.info("exporting %s and testing the export: about a minute", source.path)
    else:
        logger.info("loading %s", source)
    import_tensorflow_quietly()
    use_threads(options.threads)

    from tf_transformer.serving import server  # reports a missing extra before the export
    from tf_transformer.serving.session import SavedModelSession

    with contextlib.ExitStack() as stack:
        stack.enter_context(_on_signals(_ENDING, _exit))
        open_session: Callable[[Path], SavedModelSession] = SavedModelSession
        if isinstance(source, Path):
            path = source
        else:
            if in_litert(options.precision, options.litert):
                open_session = _lite_session(source, options)
            path = stack.enter_context(_temporary_export(source, options))
        listener, loaded = _listen(server, options, name, path, open_session)
        stack.callback(loaded.close, 1.0)
        url = f"http://{host_and_port(options.host, listener.effective_port)}/"
        loaded.follow(
            lambda number: logger.info(
                "serving %s version %d on %s (Ctrl-C ends it)", name, number, url
            )
        )
        _serve(listener, loaded, options.grace)


def _listen(
    server: ModuleType,
    options: argparse.Namespace,
    name: str,
    path: Path,
    open_session: Callable,
):
    """Opens the port; returns the server and the model's versions, none of them loaded yet."""
    from tf_transformer.serving.batcher import BatchLimits
    from tf_transformer.serving.loaded import LoadedVersions, load_version
    from tf_transformer.serving.telemetry import AccessLog, Telemetry

    limits = server.Limits(body_bytes=options.max_body, deadline=options.deadline)
    batches = BatchLimits(waiting=options.max_waiting, deadline=options.deadline)
    loaded = LoadedVersions(
        _folders(Path(options.model), path),
        lambda number, folder: load_version(number, folder, batches, telemetry, open_session),
        name,
    )
    telemetry = Telemetry(loaded.waiting, loaded.numbers)
    app = server.make_app(loaded, name, limits, telemetry, AccessLog(options.access_log))
    return server.make_server(app, options.host, options.port, limits), loaded


def _source(options: argparse.Namespace) -> Path | Run:
    """Returns the export to serve, or the run to export first; refuses wrong options."""
    exported = find_export(Path(options.model))
    # By flag: its name in `registry.Entry.options`, and whether it is set.
    for_runs = {
        "--precision int8": ("int8", options.precision == "int8"),
        "--precision": ("precision", options.precision != "float32"),
        "--litert": ("litert", options.litert),
        "--tag": ("tag", options.tag),
    }
    flags = {flag: name for flag, (name, is_set) in for_runs.items() if is_set}
    if exported and flags:
        litert = in_litert(options.precision, options.litert)
        advice = "Serve the run itself." if litert else "Give it to export."
        raise UserError(
            f"{min(flags)} is for a run. Received: {options.model}, a SavedModel. {advice}"
        )
    if exported:
        return exported
    run = open_run(options.model, EXPORTED)
    supported = task_named(run.config.task).options
    if wrong := [flag for flag, name in flags.items() if name not in supported]:
        raise UserError(f"{wrong[0]} is for a run that translates. Received: {run.path}.")
    return run


def _folders(model: Path, path: Path) -> Callable[[], dict[int, Path]]:
    """Returns a function that finds the version folders: all of a model, or just `path`."""
    if path.parent == model and is_version(path.name):
        return lambda: {
            number: folder
            for number, folder in versions(model).items()
            if (folder / "saved_model.pb").exists()
        }
    return lambda: {int(path.name) if is_version(path.name) else 1: path}


def _serve(listener, loaded, grace: float) -> None:
    """Serves until a signal, then answers accepted requests for at most `grace` seconds.

    Raises:
        UserError: if no version can be loaded, or a loaded one has stopped computing.
    """
    with _on_signals((*_ENDING, signal.SIGINT), lambda number: listener.stop()):
        listener.serve(lambda: loaded.alive)
    failed = not loaded.alive
    loaded.refuse()
    if listener.unanswered:
        logger.info("stopping: requests to answer: %d", listener.unanswered)
    listener.drain(grace)
    if listener.unanswered:
        logger.warning("requests not answered in %g s: %d", grace, listener.unanswered)
    loaded.close(1.0)  # ends computations that are still running
    listener.drain(1.0)
    if failed:
        raise loaded.failure or UserError(
            "The model has stopped computing; see above. Start the server again."
        )
    logger.info("stopped")


@contextlib.contextmanager
def _on_signals(numbers: Sequence[int], handler: Callable[[int], object]) -> Iterator[None]:
    """Calls `handler` on these signals until the block ends; under nohup, SIGHUP is ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    if before.get(signal.SIGHUP) == signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        signal.signal(number, lambda number, _: handler(number))
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def _exit(number: int) -> NoReturn:
    """Ends the command, which removes the temporary export; a second signal ends it at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _temporary_export(run: Run, options: argparse.Namespace) -> Iterator[Path]:
    from tf_transformer.api.export import export_run

    precision = "float32" if options.precision == "int8" else options.precision
    with tempfile.TemporaryDirectory() as folder:
        values = {"precision": precision, "tag": options.tag}
        supported = task_named(run.config.task).options
        loading = {name: value for name, value in values.items() if name in supported}
        yield export_run(run, Path(folder) / "model", options=loading)


def _lite_session(run: Run, options: argparse.Namespace) -> Callable:
    """Returns a function that opens a SavedModel of the run with a search in LiteRT."""
    from tf_transformer.serving.lite import LiteSession
    from tf_transformer.tasks.models import load_translator

    translator = load_translator(
        run,
        None,
        run.config.decoding,
        precision=options.precision,
        litert=options.litert,
        tag=options.tag,
        threads=options.threads,
    )
    return lambda path: LiteSession(path, translator)


def _name(options: argparse.Namespace, source: Path | Run) -> str:
    """Returns --name, by default the run's name or, for MODELS/NAME/VERSION, NAME."""
    model = Path(options.model).resolve()
    is_version_folder = source == Path(options.model) and is_version(model.name)
    name = options.name or (model.parent if is_version_folder else model).name
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise UserError(
            f"A model's name must consist of letters, digits, '_', '.' and '-'. Received: "
            f"{name!r}. Choose another with --name."
        )
    return name
