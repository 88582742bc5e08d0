"""The command `generate`."""

import argparse
import functools
import logging
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import sha256
from tf_transformer.base.output import ProgressBars
from tf_transformer.cli.options import (
    add_protection_options,
    add_run_options,
    add_sampling_options,
    add_search_options,
    decoding_config,
    open_model,
    require_new,
    sampling_config,
)
from tf_transformer.cli.parser import float_from, int_from, value_of
from tf_transformer.config import SEARCH, DecodingConfig
from tf_transformer.data.text import content_hash, read_lines
from tf_transformer.run import Run

logger = logging.getLogger(__name__)

_LEAST_LOG_PROB = -1_000.0  # any translation is more probable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `generate`."""
    add = parser.add_argument
    add_run_options(parser, "--ensemble", "--tag")
    add("--input", required=True, metavar="FILE", help="text to translate, plain or .gz")
    add("--output", required=True, metavar="FILE", help="table to write, .tsv or .tsv.gz")
    text = "use the translations as the sources of the pairs, for back-translation (default: "
    text += "as the targets, for distillation)"
    add("--back", action="store_true", help=text)
    tokens, ratio = "data.max_length", "data.max_ratio"
    text = f"drop pairs with more tokens on a side, including EOS (default: the run's {tokens})"
    add("--max-tokens", type=value_of(tokens), metavar="N", help=text)
    text = f"drop pairs with a larger length ratio in tokens (default: the run's {ratio})"
    add("--max-ratio", type=value_of(ratio), metavar="R", help=text)
    add(
        "--min-log-prob",
        type=float_from(_LEAST_LOG_PROB, 0.0),
        default=_LEAST_LOG_PROB,
        metavar="P",
        help="drop translations with a lower mean log-probability per token, such as -1.5",
    )
    lines = "lines translated between saves (default: 10000)"
    add("--shard-lines", type=int_from(1), default=10_000, metavar="N", help=lines)
    add_protection_options(parser)
    add_search_options(parser)
    add_sampling_options(parser)


def run(options: argparse.Namespace) -> None:
    """Translates a text and writes the pairs as a table for --train.

    Drops and counts pairs that are empty, no text (with U+FFFD or control characters), copied,
    too long or too different in length. After an interruption, run the same command again: it
    resumes from the last save.
    """
    output = Path(options.output)
    if not output.name.endswith((".tsv", ".tsv.gz")):
        raise UserError(f"--output must end in .tsv or .tsv.gz. Received: {options.output}.")
    require_new("--output", output)
    sampling = sampling_config(options)
    runs = [Run.open(path) for path in (options.run, *options.ensemble)]
    data = runs[0].config.data
    origin = {
        "--input": content_hash(Path(options.input)),
        "run": [sha256(run.weights(options.checkpoint)) for run in runs],
        "search": search_origin(decoding_config(options, runs[0]), sampled=bool(sampling)),
        "--tag": options.tag,
    }
    files = {"--protect": options.protect, "--glossary": options.glossary}
    origin |= {
        name: content_hash(Path(file)) if file and Path(file).is_file() else file
        for name, file in files.items()
    }
    translator = open_model(options)

    from tf_transformer.translation.generation import (
        Filters,
        GenerationSettings,
        generate,
        summary,
    )

    filters = Filters(
        max_tokens=options.max_tokens or data.max_length,
        max_ratio=options.max_ratio or data.max_ratio,
        min_log_prob=options.min_log_prob,
    )
    settings = GenerationSettings(
        filters=filters,
        back=options.back,
        sampling=sampling,
        shard_lines=options.shard_lines,
        origin=origin,
    )
    with ProgressBars() as bars:
        report = functools.partial(bars, "translated")
        lines = read_lines(Path(options.input))
        counts = generate(translator, lines, output, settings, report)
    logger.info("%s: %s", output, summary(counts))


def search_origin(decoding: DecodingConfig, *, sampled: bool) -> dict[str, Any]:
    """Returns the settings of the search that the translations depend on."""
    return {  # but for the weights, which have a hash
        name: getattr(decoding, name)
        for name, setting in SEARCH.items()
        if not (setting.same_results or (sampled and setting.of_search))
    }
