"""Commands that translate: translate, generate, attention."""

import argparse
import dataclasses
import functools
import itertools
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import sha256, write_text
from tf_transformer.base.output import ProgressBars
from tf_transformer.cli.options import (
    MODEL_HELP,
    WORD_PROBS_HELP,
    add_line_buffered_option,
    add_run_options,
    add_sampling_options,
    add_search_options,
    decoding_config,
    open_model,
    open_run,
    picture,
    require_writable,
    sampling_config,
    single_line,
    spaced_probs,
    stdin_bars,
    stdin_chunks,
    write_lines,
)
from tf_transformer.cli.parser import float_from, given, int_from, integer, value_of
from tf_transformer.config import MAX_BEAM_SIZE, DecodingConfig
from tf_transformer.data.text import content_hash, read_lines, read_text
from tf_transformer.plots import Heatmaps, draw_attention

logger = logging.getLogger(__name__)

_LEAST_LOG_PROB = -1_000.0  # any translation is more probable
_KINDS = ("encoder", "decoder", "cross", "alignment")


def add_translate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `translate`, whose output is data."""
    add = parser.add_argument
    parser.set_defaults(stdout_is_data=True)
    names = ("--ensemble", "--tag", "--threads", "--precision", "--litert")
    add_run_options(parser, *names, help=MODEL_HELP)
    add_line_buffered_option(parser)
    add(
        "--n-best",
        type=int_from(1, MAX_BEAM_SIZE),
        metavar="N",
        help="print the N best translations of each sentence, each on a line of sentence "
        "number, score and text, separated by tabs",
    )
    add("--word-probs", action="store_true", help=WORD_PROBS_HELP)
    add(
        "--prefix-file",
        metavar="FILE",
        help="begin each translation with the line of FILE for its sentence, cut at the "
        "sentence's length limit; an empty line prescribes nothing",
    )
    text = "translate a document, sentence by sentence: lines, space and marks stay as they are"
    add("--text", action="store_true", help=text)
    text = "language of the document, such as de (default: the run's data.source)"
    add("--language", metavar="CODE", help=text)
    text = "translate N sentences of a line together, for a run with data.join (default: 1)"
    add("--context", type=int_from(1), metavar="N", help=text)
    text = "write the translations that look wrong, as lines of JSON with the reason"
    add("--report", metavar="FILE", help=text)
    text = "write the word alignment of each sentence with its best translation: 0-0 1-2 ..."
    add("--alignments", metavar="FILE", help=text)
    add_search_options(parser)
    add_sampling_options(parser)


def run_translate(options: argparse.Namespace) -> None:
    """Translates stdin to stdout, one sentence per line; empty lines stay empty.

    With --text, stdin is a document, which is read to its end.
    """
    sampling = sampling_config(options)
    for name, file in (("--alignments", options.alignments), ("--report", options.report)):
        if file:
            require_writable(name, Path(file))
    translator = open_model(options)
    beam_size = translator.decoding.beam_size
    if not sampling and (options.n_best or 1) > beam_size:
        raise UserError(
            f"--n-best must be between 1 and the beam size, {beam_size}. "
            f"Received: {options.n_best}."
        )
    drawn = dataclasses.asdict(sampling) if sampling else {}
    if options.text:
        with stdin_bars() as bars:
            text = translator.translate_text(
                read_text(0),
                sample=options.sample,
                progress=functools.partial(bars, "translated"),
                **given(options, "language", "context"),
                **drawn,
            )
        sys.stdout.write(text)
        _report([*_suspects(text.sentences)], len(text.sentences), options.report)
        return
    done = 0
    alignments: list[str] = []
    suspects: list[dict[str, Any]] = []
    with stdin_bars() as bars:
        for texts, prefixes in _chunks(options):
            translations = translator.translate(
                texts,
                n_best=options.n_best or 1,
                prefix=prefixes,
                sample=options.sample,
                word_probs=options.word_probs,
                progress=lambda number, done=done: bars("translated", done + number),
                **drawn,
            )
            for number, ranked in enumerate(translations, start=done + 1):
                sys.stdout.writelines(_format(number, ranked, options))
            sys.stdout.flush()
            best = [ranked[0] for ranked in translations]
            suspects += _suspects(zip(texts, best, strict=True), done + 1)
            done += len(translations)
            if options.alignments:
                alignments += map(str, translator.align(texts, [*map(single_line, best)]))
    if options.alignments:
        write_lines(Path(options.alignments), alignments)
    _report(suspects, done, options.report)


def _suspects(pairs: Iterable[tuple], first: int = 1) -> Iterator[dict[str, Any]]:
    """Yields the pairs of source and translation that look wrong, as records of --report."""
    from tf_transformer.decoding.text_codec import looks_wrong

    for number, (source, found) in enumerate(pairs, start=first):
        if reason := looks_wrong(source, found):
            pair = {"source": source, "translation": found}
            yield {"number": number, "reason": reason, "log_prob": found.log_prob, **pair}


def _report(suspects: list[dict[str, Any]], seen: int, file: str | None) -> None:
    """Counts the suspects among the sentences in one line, and lists them in a file."""
    if file:
        write_lines(Path(file), (json.dumps(one, ensure_ascii=False) for one in suspects))
    if suspects:
        where = f"{file or '--report FILE'} lists them"
        logger.warning("%d of %d sentences look wrong: %s", len(suspects), seen, where)


def _chunks(options: argparse.Namespace) -> Iterator[tuple[list[str], list[str] | None]]:
    """Yields chunks of texts with their prefixes, None without --prefix-file."""
    chunks = stdin_chunks(options.line_buffered)
    if options.prefix_file is None:
        yield from ((texts, None) for texts in chunks)
        return
    lines, number = read_lines(Path(options.prefix_file)), 0
    for texts in chunks:
        prefixes = list(itertools.islice(lines, len(texts)))
        number += len(prefixes)
        if len(prefixes) < len(texts):
            raise _uneven_prefixes(number, "stdin")
        yield texts, prefixes
    if next(lines, None) is not None:
        raise _uneven_prefixes(number, options.prefix_file)


def _uneven_prefixes(number: int, longer: str) -> UserError:
    return UserError(
        "--prefix-file must have a line for each line of stdin. "
        f"Received: more than {number:,} lines in {longer}."
    )


def _format(number: int, ranked, options: argparse.Namespace) -> Iterator[str]:
    if options.n_best is None:
        yield f"{single_line(ranked[0])}\n"
        return
    for translation in ranked:
        words = spaced_probs(translation) if options.word_probs else ""
        yield f"{number}\t{translation.score:.4f}\t{single_line(translation)}{words}\n"


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `generate`."""
    add = parser.add_argument
    add_run_options(parser, "--ensemble", "--tag")
    add("--input", required=True, metavar="FILE", help="text to translate, plain or .gz")
    add("--output", required=True, metavar="FILE", help="table to write, .tsv or .tsv.gz")
    add(
        "--back",
        action="store_true",
        help="use the translations as the sources of the pairs, for back-translation (default: "
        "as the targets, for distillation)",
    )
    add(
        "--max-tokens",
        type=value_of("data.max_length"),
        metavar="N",
        help="drop pairs with more tokens on a side, including EOS (default: the run's "
        "data.max_length)",
    )
    add(
        "--max-ratio",
        type=value_of("data.max_ratio"),
        metavar="R",
        help="drop pairs with a larger length ratio in tokens (default: the run's "
        "data.max_ratio)",
    )
    add(
        "--min-log-prob",
        type=float_from(_LEAST_LOG_PROB, 0.0),
        default=_LEAST_LOG_PROB,
        metavar="P",
        help="drop translations with a lower mean log-probability per token, such as -1.5",
    )
    lines = "lines translated between saves (default: 10000)"
    add("--shard-lines", type=int_from(1), default=10_000, metavar="N", help=lines)
    add_search_options(parser)
    add_sampling_options(parser)


def run_generate(options: argparse.Namespace) -> None:
    """Translates a text and writes the pairs as a table for --train.

    Drops and counts pairs that are empty, copied, too long or too different in length. After an
    interruption, run the same command again: it resumes from the last save.
    """
    output = Path(options.output)
    if not output.name.endswith((".tsv", ".tsv.gz")):
        raise UserError(f"--output must end in .tsv or .tsv.gz. Received: {options.output}.")
    if output.exists():
        raise UserError(f"{output} exists already. Remove it, or choose another --output.")
    require_writable("--output", output)
    sampling = sampling_config(options)
    runs = [open_run(path) for path in (options.run, *options.ensemble)]
    data = runs[0].config.data
    origin = {
        "--input": content_hash(Path(options.input)),
        "run": [sha256(run.weights(options.checkpoint)) for run in runs],
        "search": search_origin(decoding_config(options, runs[0]), sampled=bool(sampling)),
        "--tag": options.tag,
    }
    translator = open_model(options)

    from tf_transformer.tasks.translation.generation import Filters, Recipe, generate, summary

    filters = Filters(
        max_tokens=options.max_tokens or data.max_length,
        max_ratio=options.max_ratio or data.max_ratio,
        min_log_prob=options.min_log_prob,
    )
    recipe = Recipe(
        filters=filters,
        back=options.back,
        sampling=sampling,
        shard_lines=options.shard_lines,
        origin=origin,
    )
    with ProgressBars() as bars:
        report = functools.partial(bars, "translated")
        lines = read_lines(Path(options.input))
        counts = generate(translator, lines, output, recipe, report)
    logger.info("%s: %s", output, summary(counts))


def search_origin(decoding: DecodingConfig, *, sampled: bool) -> dict[str, Any]:
    """Returns the settings of the search that the translations depend on."""
    without = {"batch_tokens", "checkpoint"}  # the weights are known by their hash
    without |= {"beam_size", "alpha", "lookahead"} if sampled else set()
    settings = dataclasses.asdict(decoding)
    return {name: settings[name] for name in settings.keys() - without}


def add_attention(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `attention`."""
    add_run_options(parser, "--tag")
    add = parser.add_argument
    add("sentence", metavar="TEXT", help="sentence of the source language")
    add("--target", metavar="TEXT", help="its translation (default: the model's)")
    add(
        "--kind",
        choices=_KINDS,
        default="alignment",
        help="encoder, decoder or cross: the weights of heads; alignment (default): the mean "
        "over the heads of cross-attention",
    )
    text = "layer to draw (default: layer 5 of 6, or the same relative depth in other models)"
    add("--layer", type=integer, metavar="N", help=text)
    text = "head to draw; needs --layer (default: all heads)"
    add("--head", type=integer, metavar="N", help=text)
    text = "picture to write, .png, .svg or .pdf (default: attention.png, or none with --data)"
    add("--output", metavar="FILE", help=text)
    add("--data", metavar="FILE", help="write pieces and weights as JSON")


def run_attention(options: argparse.Namespace) -> None:
    """Draws the attention of a run on a sentence and its translation.

    The picture shows one head, all heads of a layer, or the alignment: the mean of the heads,
    with aligned words in boxes. Layers and heads are counted from 1.
    """
    for name, value in (("TEXT", options.sentence), ("--target", options.target)):
        if value is not None and not value.strip():
            raise UserError(f"{name} must not be blank. Received: {value!r}.")
    if options.data:
        require_writable("--data", Path(options.data))
    output = options.output or (None if options.data else "attention.png")
    path = output and picture(output)
    translator = open_model(options)
    layer = _layer(options, translator)
    target = options.target or translator.translate(options.sentence)
    attention = translator.attention(options.sentence, target)
    head = None if options.head is None else options.head - 1
    maps = attention.heatmaps(options.kind, layer, head)
    if options.data:
        write_text(Path(options.data), _json(options, target, layer, maps))
        logger.info("%s", options.data)
    if path:
        draw_attention(maps, path)
        logger.info("%s", path)


def _layer(options: argparse.Namespace, translator) -> int:
    """Returns the layer, counted from 0; refuses a layer or head that the model lacks."""
    from tf_transformer.decoding.alignment import default_layer

    config = translator.model.config
    encoder = options.kind == "encoder"
    layers = config.num_layers if encoder else config.num_decoder_layers
    for name, number in given(options, "layer", "head").items():
        most = layers if name == "layer" else config.num_heads
        if not 1 <= number <= most:
            raise UserError(f"--{name} must be from 1 to {most}. Received: {number}.")
    return default_layer(layers) if options.layer is None else options.layer - 1


def _json(options: argparse.Namespace, target: str, layer: int, maps: Heatmaps) -> str:
    """Returns the JSON that docs/guides/attention.md describes."""
    content = {
        "sentence": options.sentence,
        "target": target,
        "kind": options.kind,
        "layer": layer + 1,
        "rows": maps.rows,
        "columns": maps.columns,
        "panels": {
            title: [[round(float(weight), 6) for weight in row] for row in weights]
            for title, weights in maps.panels.items()
        },
        "links": [
            {"rows": [rows.start, rows.stop], "columns": [columns.start, columns.stop]}
            for rows, columns in maps.links
        ],
    }
    return json.dumps(content, ensure_ascii=False) + "\n"
