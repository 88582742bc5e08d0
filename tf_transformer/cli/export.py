"""Commands that publish a model: export, serve, convert."""

import argparse
import contextlib
import logging
import re
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tf_transformer.api.load import load_run
from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.system import ending_signals
from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import (
    RUN_HELP,
    add_model_options,
    add_run_options,
    add_search_options,
    decoding_config,
    decoding_options,
    open_model,
    open_run,
    refuse_unsupported,
)
from tf_transformer.cli.parser import float_from, given, int_from
from tf_transformer.config.config import DECODING_PRECISIONS
from tf_transformer.decoding.streams import use_threads
from tf_transformer.export.versions import check_readable, find_export, is_version, versions
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import average_checkpoints
from tf_transformer.tasks.registry import EXPORTED, task_named

logger = logging.getLogger(__name__)

_DAY = 86_400.0  # seconds; waiting for longer is a mistake
_ENDING = (signal.SIGTERM, signal.SIGHUP)  # the latter when a terminal closes
_QUANTIZATIONS = ("float32", "int8", "int16", "float16", "bfloat16")


def add_export(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `export`."""
    add = parser.add_argument
    runs = f"{RUN_HELP}, of a translator or classifier; several form an ensemble"
    add_run_options(parser, "--tag", nargs="+", help=runs)
    text = "instead of --checkpoint: the mean of the run's last N checkpoints"
    add("--average", type=_last, metavar="lastN", help=text)
    add(
        "--precision",
        default="float32",
        choices=DECODING_PRECISIONS,
        help="precision of weights and computation (default: float32); bfloat16 halves the "
        "size, int8 quarters it; both may change translations, so "
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
    add_search_options(parser)


def run_export(options: argparse.Namespace) -> None:
    """Exports a run to DIR/VERSION/, as a SavedModel or for LiteRT.

    The model maps text to translations or labels. Several runs are exported as one ensemble.
    The files are tested against the model in Python before they are published. See
    docs/guides/exporting.md.
    """
    output = Path(options.output)
    check_readable(output)
    runs = [open_run(options.run[0], EXPORTED)]
    task = runs[0].config.task
    runs += [open_run(path, task) for path in options.run[1:]]
    published = _published(options, runs[0])
    decoding_config(options, runs[0])  # refuses values that do not go together
    refuse_unsupported(options, runs[0])
    loading = given(options, "precision", "tag")
    if (options.precision, options.format) == ("int8", "litert"):
        loading["litert"] = True
    if len(runs) > 1:
        if "ensemble" not in task_named(task).options:
            raise UserError(f"An ensemble is not for runs of --task {task}.")
        loading["ensemble"] = runs[1:]
    exporting = given(options, "format", "fixed_length", "version") | decoding_options(options)
    if options.no_text:
        exporting["text"] = False
    with tempfile.TemporaryDirectory() as folder:
        weights: str | Path | None = options.checkpoint
        if options.average:
            weights = Path(folder, "average.npz")
            loading["name"] = _average(runs, options.average, weights)
        for run in runs:
            run.weights(weights)  # fails before the import of TensorFlow
        import_tensorflow_quietly()
        if published:
            exporting["gate"] = _gate(options, runs[0], published)
        path = load_run(runs[0], weights, **loading).export(output, **exporting)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    logger.info("exported %s (%.1f MB)", path, size / 1e6)


def _last(text: str) -> int:
    """Reads "last5" as 5; an argument `type`."""
    match = re.fullmatch(r"last([1-9]\d{0,8})", text)
    if not match:
        message = f"must be lastN, such as last5. Received: {quoted(text)}."
        raise argparse.ArgumentTypeError(message)
    return int(match[1])


def _average(runs: Sequence[Run], number: int, output: Path) -> str:
    """Averages the last checkpoints of a run; returns how its card names them."""
    files = runs[0].checkpoints.last(number)
    if len(runs) > 1 or len(files) < number:
        raise UserError(
            f"--average last{number} needs one run with {number} checkpoints. Received: "
            f"{len(runs)} runs, of which {runs[0].path} keeps {len(files)}."
        )
    used = average_checkpoints(files, output)
    return f"average of the last {number}: {', '.join(file.stem for file in used)}"


def _published(options: argparse.Namespace, run: Run) -> Path | None:
    """Returns the gate's published model, None without a gate."""
    task = task_named(run.config.task)
    if options.better_than and bool(options.source) != task.languages:
        needed = "is for" if options.source else "is needed for"
        raise UserError(
            f"--source {needed} runs that translate; for a classifier, the file of --reference "
            f"has the text too. Received: {run.path}, of --task {task.name}."
        )
    if not options.better_than:
        return None
    published = find_export(Path(options.better_than))
    if published is None:
        raise UserError(f"--better-than must be an export. Received: {options.better_than}.")
    return published


def _gate(options: argparse.Namespace, run: Run, published: Path) -> Any:
    from tf_transformer.export.publishing import Gate

    source = Path(options.source) if options.source else None
    task_class = task_named(run.config.task).task_class()
    dev = task_class.read_dev_text(run, source, Path(options.reference))
    return Gate(published, dev, options.margin)


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `serve`."""
    add, seconds = parser.add_argument, float_from(0.001, _DAY)
    model = "run directory, or a folder that `export` wrote"
    add("model", metavar="RUN_OR_SAVEDMODEL", help=model)
    add("--name", help="the model's name in URLs (default: the name of its folder)")
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


def run_serve(options: argparse.Namespace) -> None:
    """Serves a run or a SavedModel over HTTP, with the REST paths of TF Serving.

    The page at / lets you try the model. A run is first exported to a temporary folder. See
    docs/guides/serving.md.
    """
    source = _source(options)
    name = _name(options, source)
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(bound_socket(options.host, options.port))
        if isinstance(source, Run):
            logger.info("exporting %s and testing the export: about a minute", source.path)
        else:
            logger.info("loading %s", source)
        import_tensorflow_quietly()
        use_threads(options.threads)

        from tf_transformer.serving.server import Listener, make_app  # isort: skip, extras first
        from tf_transformer.export.saved_model import SavedModelSession
        from tf_transformer.serving.queue import Telemetry
        from tf_transformer.serving.served_model import LoadedVersion, ServedModel

        stack.enter_context(_on_signals(_ENDING, _exit))
        open_session: Callable[[Path], SavedModelSession] = SavedModelSession
        if isinstance(source, Run):
            folder, open_session = stack.enter_context(_temporary_export(source, options))
        else:
            folder = source
        telemetry = Telemetry()

        def load(number: int, path: Path) -> LoadedVersion:
            return LoadedVersion(number, path, telemetry, options.max_waiting, open_session)

        url = f"http://{host_and_port(*bound.getsockname()[:2])}/"
        find = _folders(Path(options.model), folder)
        model = ServedModel(name, find, load, telemetry, url)
        stack.callback(model.close)
        app = make_app(model, telemetry, options.deadline, options.access_log)
        listener = Listener(app, bound, options.max_body)
        model.follow()
        _serve(listener, model, options.grace)


def _source(options: argparse.Namespace) -> Path | Run:
    """Returns the export to serve, or the run to export first; refuses wrong options."""
    exported = find_export(Path(options.model))
    for_runs = given(options, "precision", "litert", "tag")
    if exported and for_runs:
        advice = "Serve the run itself." if options.litert else "Give it to export."
        raise UserError(
            f"--{min(for_runs)} is for a run. Received: {options.model}, a SavedModel. {advice}"
        )
    if exported:
        return exported
    run = open_run(options.model, EXPORTED)
    refuse_unsupported(options, run)
    return run


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


def bound_socket(host: str, port: int) -> socket.socket:
    """Returns a socket with an address, which does not accept connections yet.

    Args:
        host: an address, or the name of one; "localhost" is 127.0.0.1 only.
        port: port; 0 for any free one.

    Raises:
        UserError: if `host` resolves to no address or to several, or the port is taken.
    """
    host = "127.0.0.1" if host == "localhost" else host
    try:
        entries = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
        addresses = sorted({str(address[0]) for *_, address in entries})
        if len(addresses) > 1:  # each would need its own server
            raise UserError(
                f"Cannot listen on {host!r}: it resolves to {' and '.join(addresses)}. Give "
                "--host one of them, or 0.0.0.0 for every IPv4 address."
            )
        bound = socket.socket(entries[0][0])
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(entries[0][-1])
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        text = f"Cannot listen on {host_and_port(host, port)}: {reason}."
        raise UserError(text) from None
    return bound


def host_and_port(host: str, port: int) -> str:
    """Returns HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _folders(model: Path, folder: Path) -> Callable[[], dict[int, Path]]:
    """Returns a function that finds the version folders: all of a model, or just one."""
    if folder.parent == model and is_version(folder.name):
        return lambda: {
            number: version
            for number, version in versions(model).items()
            if (version / "saved_model.pb").exists()
        }
    return lambda: {int(folder.name) if is_version(folder.name) else 1: folder}


def _serve(listener, model, grace: float) -> None:
    """Serves until a signal, then answers accepted requests for at most `grace` seconds.

    Raises:
        UserError: if no version can be loaded, or the loaded one has stopped computing.
    """
    with _on_signals((*_ENDING, signal.SIGINT), lambda number: listener.stop()):
        listener.serve(lambda: model.alive)
    failed = not model.alive
    model.refuse()
    if listener.unanswered:
        logger.info("stopping: requests to answer: %d", listener.unanswered)
    listener.drain(grace)
    if listener.unanswered:
        logger.warning("requests not answered in %g s: %d", grace, listener.unanswered)
    model.close()  # ends computations that are still running
    listener.drain(1.0)
    if failed:
        raise model.failure or UserError(
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
def _temporary_export(run: Run, options: argparse.Namespace) -> Iterator[tuple[Path, Callable]]:
    """Exports a run; yields the folder, and a function that opens it as a session."""
    from tf_transformer.export.saved_model import SavedModelSession
    from tf_transformer.litert.engine import LiteEngine
    from tf_transformer.litert.session import LiteSession
    from tf_transformer.tasks.models import load_engine

    loading = given(options, "precision", "tag")
    if (options.precision, options.litert) == ("int8", True):  # of LiteRT alone
        del loading["precision"]
    with tempfile.TemporaryDirectory() as parent:
        folder = load_run(run, **loading).export(Path(parent) / "model")
        if not options.litert:
            yield folder, SavedModelSession
            return
        searching = given(options, "precision", "litert", "tag", "threads")
        engine = load_engine(run, None, **searching)
        assert isinstance(engine, LiteEngine)
        yield folder, lambda path: LiteSession(path, engine, run.config.decoding)


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `convert`."""
    parser.usage = (
        "%(prog)s [OPTIONS] RUN --to ctranslate2 DIR\n"
        "       %(prog)s CHECKPOINT --from marian RUN"
    )
    add_run_options(
        parser,
        metavar="FROM",
        help="run directory; with --from, a checkpoint's folder as on huggingface.co: "
        "config.json, vocab.json, source.spm, target.spm, model.safetensors or "
        "pytorch_model.bin",
    )
    direction = parser.add_mutually_exclusive_group(required=True)
    direction.add_argument("--to", choices=["ctranslate2"], help="the format to write")
    text = "the format to read"
    direction.add_argument("--from", choices=["marian"], dest="origin", help=text)
    parser.add_argument("output", metavar="INTO", help="a new folder")
    text = f"with --to, type of the weights: {', '.join(_QUANTIZATIONS)} (default: float32); "
    text += "int8 may change translations, so evaluate them"
    parser.add_argument("--quantization", choices=_QUANTIZATIONS, metavar="TYPE", help=text)


def run_convert(options: argparse.Namespace) -> None:
    """Converts a run to a CTranslate2 model, or a Marian (OPUS-MT) checkpoint to a run.

    See docs/guides/conversion.md.
    """
    output = Path(options.output)
    if options.origin:
        import_tensorflow_quietly()

        from tf_transformer.conversion.from_marian import from_marian

        files = [from_marian(Path(options.run), output).checkpoints.best]
    else:
        translator = open_model(options)

        from tf_transformer.conversion.to_ctranslate2 import to_ctranslate2

        quantization = options.quantization or "float32"
        to_ctranslate2(translator.model, translator.tokenizer, output, quantization)
        files = [*output.iterdir()]
    size = sum(file.stat().st_size for file in files)
    logger.info("converted %s to %s (%.1f MB)", options.run, output, size / 1e6)
