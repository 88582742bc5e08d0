"""`tf-transformer client --grpc HOST:PORT | --rest URL < in > out`: asks a served model."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.translate import one_line
from tf_transformer.data.corpus import read_lines
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
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="lines a request")
    parser.add_argument("--concurrency", type=int, default=4, metavar="N", help="requests")
    parser.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="for an answer, and to go on asking a server that is busy (503, Retry-After)",
    )


def command(options: argparse.Namespace) -> None:
    for name in ("batch", "concurrency", "deadline"):
        if getattr(options, name) <= 0:
            raise UserError(f"--{name} must be above 0. Received: {getattr(options, name)}.")
    from tf_transformer.serving.client import ServerError, patiently, translate

    client = _client(options)

    def ask(batch: list[str]) -> list[str]:
        return patiently(lambda: translate(client, batch), options.deadline)

    lines = read_lines(0)
    with ThreadPoolExecutor(options.concurrency) as pool:
        while chunk := list(_batches(lines, options.batch, 4 * options.concurrency)):
            try:
                answers = list(pool.map(ask, chunk))
            except ServerError as error:
                raise UserError(f"The server answered {error}") from None
            for text in itertools.chain.from_iterable(answers):
                sys.stdout.write(f"{one_line(text)}\n")


def _client(options: argparse.Namespace):
    from tf_transformer.serving.client import GrpcClient, RestClient

    if options.rest:
        return RestClient(options.rest, options.name, options.deadline)
    import_tensorflow_quietly()
    return GrpcClient(options.grpc, options.name, options.deadline)


def _batches(lines: Iterator[str], size: int, count: int) -> Iterator[list[str]]:
    """At most `count` batches of `size` lines."""
    for _ in range(count):
        if not (batch := list(itertools.islice(lines, size))):
            return
        yield batch
