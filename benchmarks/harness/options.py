"""The options common to all benchmarks."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.contender import make_file
from harness.environments import FOLDER
from tf_transformer.base.errors import UserError
from tf_transformer.config.presets import preset
from tf_transformer.data.text import resolve_prefix


def make_parser(description: str, rounds: int | None = 5) -> argparse.ArgumentParser:
    """Builds a parser with the common options.

    Args:
        description: the benchmark's docstring.
        rounds: default of --rounds; None leaves the option out.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if rounds is not None:
        text = f"rounds, in each of which every contender runs once; default: {rounds}"
        parser.add_argument("--rounds", type=positive, default=rounds, help=text)
    text = "threads of each contender"
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help=text)
    text = "folder for JSON and pictures; default: benchmarks/results"
    parser.add_argument("--output", type=Path, default=FOLDER / "results", help=text)
    return parser


def add_peers(parser: argparse.ArgumentParser, peers: Sequence[str]) -> None:
    """Adds `--peers`: the peers to measure; all by default."""
    text, known = f"some of: {', '.join(peers)}; or none", [*peers, "none"]
    add = parser.add_argument
    add("--peers", nargs="*", choices=known, default=list(peers), metavar="PEER", help=text)


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Adds `--corpus PREFIX --source LANG --target LANG`, the text whose lengths are used."""
    add = parser.add_argument
    add("--corpus", help="PREFIX of parallel text, as for train.py --train; default: built-in")
    add("--source", default="en", metavar="LANG")
    add("--target", default="de", metavar="LANG")
    text = "use at most N pairs; default: 20,000"
    add("--pairs", type=positive, default=20_000, metavar="N", help=text)


def add_best_of_threads(parser: argparse.ArgumentParser) -> None:
    """Adds `--best-of-threads N N`, for `rounds.with_threads` and `rounds.fastest`."""
    text = "use the fastest of these numbers of threads for each contender, and print it"
    add = parser.add_argument
    add("--best-of-threads", type=positive, nargs="+", default=[], metavar="N", help=text)


def prepared_corpus(options: argparse.Namespace) -> str:
    """Returns the folder written by `contenders/corpus.py`, which is cached.

    Raises:
        UserError: if there is no such corpus, or its files are not parallel text.
    """
    corpus, files = None, []
    if options.corpus:
        corpus = str(Path(options.corpus).absolute())
        files = [resolve_prefix(corpus, each) for each in (options.source, options.target)]
    names = {"source": options.source, "target": options.target}
    return make_file("corpus", files, corpus=corpus, pairs=options.pairs, **names)


def model_sizes(name: str, vocab_size: int) -> dict[str, float]:
    """Returns a preset's arguments of ModelConfig that all contenders support."""
    model = preset(name).model
    names = ("num_layers", "d_model", "d_ff", "num_heads", "dropout")
    return {each: getattr(model, each) for each in names} | {"vocab_size": vocab_size}


def positive(text: str) -> int:
    """Reads an integer of at least 1; an argument `type`."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, received {value}")
    return value


def run(main: Callable[[], None]) -> None:
    """Runs a benchmark; prints a UserError in one line, like the package's command line."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
