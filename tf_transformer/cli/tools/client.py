"""`tf-transformer client --grpc HOST:PORT | --rest URL < in > out`: asks a served model."""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.core.translate import one_line
from tf_transformer.cli.parser import DEADLINES, float_from, int_from
from tf_transformer.cli.stdin import add_line_buffered_option, stdin_chunks
from tf_transformer.errors import UserError

DESCRIPTION = (
    "Translates stdin to stdout by a served model, one sentence a line; several requests are "
    "under way at a time."
)
STDOUT_IS_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--grpc", metavar="HOST:PORT", help="TF Serving's gRPC port")
    where.add_argument("--rest", metavar="URL", help="TF Serving's REST port, or `serve`")
    parser.add_argument("--name", required=True, help="of the model")
    parser.add_argument(
        "--batch",
        type=int_from(1, 1_000_000),
        default=8,
        metavar="N",
        help="lines a request",
    )
    parser.add_argument(
        "--concurrency",
        type=int_from(1, 1_000),
        default=4,
        metavar="N",
        help="requests",
    )
    add_line_buffered_option(parser)
    parser.add_argument(
        "--deadline",
        type=float_from(*DEADLINES),
        default=60.0,
        metavar="SECONDS",
        help="for an answer, and to go on asking a server that is busy (503, Retry-After)",
    )


def command(options: argparse.Namespace) -> None:
    from tf_transformer.serving.client import ServerError, patiently, translate

    client = _client(options)

    def ask(batch: list[str]) -> list[str]:
        return patiently(lambda: translate(client, batch), options.deadline)

    with ThreadPoolExecutor(options.concurrency) as pool:
        for batches in _batches(options):
            try:
                answers = list(pool.map(ask, batches))
            except ServerError as error:
                raise UserError(f"The server answered {error}") from None
            for text in itertools.chain.from_iterable(answers):
                sys.stdout.write(f"{one_line(text)}\n")
            sys.stdout.flush()


def _client(options: argparse.Namespace):
    from tf_transformer.serving.client import GrpcClient, RestClient

    if options.rest is not None:
        return RestClient(options.rest, options.name, options.deadline)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # of a wrong address it writes lines
    import_tensorflow_quietly()
    return GrpcClient(options.grpc, options.name, options.deadline)


def _batches(options: argparse.Namespace) -> Iterator[list[list[str]]]:
    """The lines of stdin in batches, a few at a time for each request under way."""
    size = options.batch
    for lines in stdin_chunks(options.line_buffered, [4 * options.concurrency * size]):
        yield [lines[start : start + size] for start in range(0, len(lines), size)]
