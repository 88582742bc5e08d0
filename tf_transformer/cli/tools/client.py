"""`tf-transformer client --grpc HOST:PORT | --rest URL < in > out`: asks a served model."""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.lines import add_line_buffered_option, one_line, stdin_chunks
from tf_transformer.cli.parser import DEADLINES, float_from, int_from
from tf_transformer.errors import UserError, shortened

STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--grpc", metavar="HOST:PORT", help="TF Serving's gRPC port")
    text = "URL of TF Serving's REST port, or of `serve`"
    where.add_argument("--rest", metavar="URL", help=text)
    add = parser.add_argument
    add("--name", required=True, help="name of the model")
    text = "lines per request (default: 8)"
    add("--batch", type=int_from(1, 1_000_000), default=8, metavar="N", help=text)
    text = "concurrent requests (default: 4)"
    add("--concurrency", type=int_from(1, 1_000), default=4, metavar="N", help=text)
    add_line_buffered_option(parser)
    add(
        "--deadline",
        type=float_from(*DEADLINES),
        default=60.0,
        metavar="SECONDS",
        help="time limit per attempt, and for retrying a busy server (default: 60)",
    )


def command(options: argparse.Namespace) -> None:
    """Sends the lines of stdin to a served model and prints its translations, trees or labels.

    Sends several requests at a time. Retries while the server is busy: 503 with Retry-After, or
    UNAVAILABLE over gRPC.
    """
    from tf_transformer.serving.client import ServerError, best_answers, patiently

    client = _client(options)

    def ask(batch: list[str]) -> list[str]:
        return patiently(lambda: best_answers(client, batch), options.deadline)

    pool = ThreadPoolExecutor(options.concurrency)
    try:
        for batches in _batches(options):
            try:
                answers = list(pool.map(ask, batches))
            except ServerError as error:
                raise UserError(f"The server answered {error}") from None
            for text in itertools.chain.from_iterable(answers):
                sys.stdout.write(f"{one_line(text)}\n")
            sys.stdout.flush()
    finally:  # an error or Ctrl-C does not wait for pending requests
        pool.shutdown(wait=False, cancel_futures=True)


def _client(options: argparse.Namespace):
    from tf_transformer.serving.client import GrpcClient, RestClient

    if options.rest is not None:
        if not options.rest.startswith(("http://", "https://")):
            raise UserError(
                "--rest must be a URL that begins with http:// or https://. Received: "
                f"{shortened(options.rest)}: give http://{shortened(options.rest)}"
            )
        return RestClient(options.rest, options.name, options.deadline)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or gRPC would log wrong addresses
    import_tensorflow_quietly()
    return GrpcClient(options.grpc, options.name, options.deadline)


def _batches(options: argparse.Namespace) -> Iterator[list[list[str]]]:
    """Yields lists of batches of lines from stdin, several batches per concurrent request."""
    size = options.batch
    for lines in stdin_chunks(options.line_buffered, [4 * options.concurrency * size]):
        yield [lines[start : start + size] for start in range(0, len(lines), size)]
