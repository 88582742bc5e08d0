"""The command `serve`."""

import argparse
import contextlib
import functools
import logging
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tf_transformer.base.errors import UserError
from tf_transformer.base.system import ending_signals
from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import (
    add_model_options,
    add_search_options,
    advise_litert,
    decoding_config,
    open_source,
    refuse_unsuited,
)
from tf_transformer.cli.parser import float_from, given_options, int_from
from tf_transformer.decoding.streams import use_threads
from tf_transformer.export.versions import is_lite, is_version
from tf_transformer.loading.load import Source
from tf_transformer.run import Run

logger = logging.getLogger(__name__)

_DAY = 86_400.0  # seconds; waiting for longer is a mistake
_ENDING = (signal.SIGTERM, signal.SIGHUP)  # the latter when a terminal closes


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `serve`."""
    add, seconds = parser.add_argument, float_from(0.001, _DAY)
    model = "run directory, or a folder that `export` wrote; several for several languages"
    add("models", metavar="RUN_OR_EXPORT", nargs="+", help=model)
    add("--name", help="the model's name in URLs (default: the name of its folder)")
    text = "languages of the models, such as en:de,de:en (default: data.source, data.target)"
    add("--languages", metavar="SOURCE:TARGET", help=text)
    text = "address to listen on (default: 127.0.0.1, for this machine only)"
    add("--host", default="127.0.0.1", help=text)
    text = "port to listen on, 0 for any free one (default: 8501)"
    add("--port", type=int_from(0, 65_535), default=8501, help=text)
    text = "time limit per request (default: 30)"
    add("--deadline", type=seconds, default=30.0, metavar="SECONDS", help=text)
    text = "size limit of a request (default: 1 MiB)"
    add("--max-body", type=int_from(1, 1 << 30), default=1 << 20, metavar="BYTES", help=text)
    text = "maximum rows waiting in the queue (default: 256)"
    add("--max-waiting", type=int_from(1, 1 << 20), default=256, metavar="ROWS", help=text)
    text = "time for answering accepted requests at shutdown (default: 10)"
    add("--grace", type=float_from(0.0, _DAY), default=10.0, metavar="SECONDS", help=text)
    text = "responses to log, each as a line of JSON (default: errors)"
    add("--access-log", choices=("off", "errors", "all"), default="errors", help=text)
    add_model_options(parser, "--threads", "--precision", "--litert", "--tag")
    add_search_options(parser, ["jit_compile"])


def run_serve(options: argparse.Namespace) -> None:
    """Serves runs or exports over HTTP, with the REST paths of TF Serving.

    LibreTranslate's paths choose a model by its languages. The page at / lets you try the
    first. A run is first exported to a temporary folder. See
    docs/guides/serving.md.
    """
    models = [(path, open_source(path)) for path in options.models]
    languages = _languages(options)
    for _, source in models:
        refuse_unsuited(options, source, "precision", "litert", "tag", "jit_compile")
        source.require_files(None, options.tag)
    names = [_name(options.name, path, source) for path, source in models]
    if len({*names}) < len(names):
        raise UserError(f"Each model must have its own name. Received: {', '.join(names)}.")
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(bound_socket(options.host, options.port))
        for _, source in models:
            text = "loading %s"
            if source.run:
                text = "exporting %s and testing the export: about a minute"
            logger.info(text, source.path)
        if not all(is_lite(source.path) for _, source in models):
            import_tensorflow_quietly()
            use_threads(options.threads)
        sys.setswitchinterval(0.001)  # other requests soon run beside a thread that computes

        from tf_transformer.serving.server import Listener, make_app  # isort: skip, extras first
        from tf_transformer.serving.queue import Telemetry
        from tf_transformer.serving.served_model import LoadedVersion, ServedModel

        stack.enter_context(_on_signals(_ENDING, _exit))
        telemetry, served = Telemetry(), list[ServedModel]()
        url = f"http://{host_and_port(*bound.getsockname()[:2])}/"
        for name, pair, (_, source) in zip(names, languages, models, strict=True):
            folder, translator = source.path, None
            if source.run:
                folder, translator = stack.enter_context(_temporary_export(source.run, options))
            load = functools.partial(
                LoadedVersion,
                folder,
                telemetry,
                options.max_waiting,
                translator,
                options.threads,
                pair,
            )
            number = int(folder.name) if is_version(folder.name) else 1
            served.append(ServedModel(name, number, load, telemetry, url))
            stack.callback(served[-1].close)
        first, *others = served
        app = make_app(first, telemetry, options.deadline, options.access_log, others)
        listener = Listener(app, bound, options.max_body)
        for model in served:
            model.start()
        _serve(listener, served, options.grace)


def _languages(options: argparse.Namespace) -> list[tuple[str, ...]]:
    """Returns the pair of languages of each model, () for those in its settings."""
    if not options.languages:
        return [()] * len(options.models)
    pairs = [tuple(pair.split(":")) for pair in options.languages.split(",")]
    good = all(len(pair) == 2 and all(map(str.strip, pair)) for pair in pairs)
    if not good or len(pairs) != len(options.models):
        raise UserError(
            f"--languages must have SOURCE:TARGET of each model, {len(options.models)}, with "
            f"commas between. Received: {options.languages!r}."
        )
    return pairs


def _name(given: str | None, path: str, source: Source) -> str:
    """Returns --name, by default the run's name or, for MODELS/NAME/VERSION, NAME."""
    model = Path(path).resolve()
    is_of_version = not source.run and source.path == Path(path)
    folder = model.parent if is_of_version and is_version(model.name) else model
    name = given or folder.name
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise UserError(
            f"A model's name must consist of letters, digits, '_', '.' and '-'. Received: "
            f"{name!r}. Choose another with --name."
        )
    return name


def bound_socket(host: str, port: int) -> socket.socket:
    """Returns a socket with an address, which does not accept connections yet.

    A name stands for its first IPv4 address, and port 0 for any free one. Raises UserError if
    there is no such address, or the port is taken.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        text = f"Cannot listen on {host_and_port(host, port)}: {reason}."
        raise UserError(text) from None
    return bound


def host_and_port(host: str, port: int) -> str:
    """Returns HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _serve(listener, models, grace: float) -> None:
    """Serves until a signal, then answers accepted requests for at most `grace` seconds.

    Raises UserError if a model cannot be loaded, or has stopped computing.
    """
    with _on_signals((*_ENDING, signal.SIGINT), lambda number: listener.stop()):
        listener.serve(lambda: all(model.alive for model in models))
    failed = [model for model in models if not model.alive]
    for model in models:
        model.refuse()
    if listener.unanswered:
        logger.info("stopping: requests to answer: %d", listener.unanswered)
    listener.drain(grace)
    if listener.unanswered:
        logger.warning("requests not answered in %g s: %d", grace, listener.unanswered)
    for model in models:
        model.close()  # ends computations that are still running
    listener.drain(1.0)
    if failed:
        raise failed[0].failure or UserError(
            "The model has stopped computing; see above. Start the server again."
        )
    logger.info("stopped")


@contextlib.contextmanager
def _on_signals(numbers: Sequence[int], handler: Callable[[int], object]) -> Iterator[None]:
    """Calls `handler` on these signals until the block ends; under nohup, SIGHUP is ignored."""
    numbers = [number for number in numbers if number in ending_signals()]
    before = {n: signal.signal(n, lambda number, _: handler(number)) for n in numbers}
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
def _temporary_export(run: Run, options: argparse.Namespace) -> Iterator[tuple[Path, Any]]:
    """Exports a run; yields the folder, and the run's translator if it is to search."""
    from tf_transformer.loading.translators import load_translator

    loading = given_options(options, "precision", "litert", "tag", "threads")
    with tempfile.TemporaryDirectory() as parent:
        decoding = decoding_config(options, run)
        translator: Any = load_translator(run, decoding=decoding, **loading)
        in_lite = translator.engine if options.litert else None
        if in_lite:
            translator.engine = in_lite.graph  # what a SavedModel can hold
        folder = translator.export(Path(parent) / "model")
        if in_lite:
            translator.engine = in_lite
        elif not translator.engine.compiles(decoding):
            advise_litert(options, run)
            translator = None  # the export has its weights too
        yield folder, translator
