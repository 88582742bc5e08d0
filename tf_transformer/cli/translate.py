"""Commands that translate: `translate`, `generate` and `attention`."""

import argparse
import dataclasses
import functools
import itertools
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import sha256, write_text
from tf_transformer.base.output import ProgressBars, single_line
from tf_transformer.cli.options import (
    MODEL_HELP,
    WORD_PROBS_HELP,
    add_line_buffered_option,
    add_protection_options,
    add_run_options,
    add_sampling_options,
    add_search_options,
    advise_litert,
    decoding_config,
    open_model,
    open_source,
    picture,
    require_new,
    require_writable,
    sampling_config,
    spaced_probs,
    stdin_bars,
    stdin_chunks,
    write_lines,
)
from tf_transformer.cli.parser import float_from, given_options, int_from, integer, value_of
from tf_transformer.config import SEARCH, DecodingConfig
from tf_transformer.data.text import content_hash, read_lines, read_text
from tf_transformer.run import Run

if TYPE_CHECKING:
    from tf_transformer.plots import Heatmaps

logger = logging.getLogger(__name__)

# --- translate -------------------------------------------------------------------------------


# Lines of HTML or XML, of PO, and of SRT.
_MARKUP = re.compile(r'^\s*(?:<[!?/]?[A-Za-z][^<>]*>|msg(?:id|str)\b.*"$|\d\d:\d\d:\S+ --> )')

Suspect: TypeAlias = dict[str, Any]  # a line of --report


def add_translate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `translate`, whose output is data."""
    add = parser.add_argument
    parser.set_defaults(stdout_is_data=True)
    names = ("--ensemble", "--tag", "--threads", "--precision", "--litert")
    add_run_options(parser, *names, help=MODEL_HELP)
    add_line_buffered_option(parser)
    text = "print the N best translations of each sentence, each on a line of sentence number, "
    text += "score and text, separated by tabs"
    add("--n-best", type=value_of("decoding.beam_size"), metavar="N", help=text)
    add("--word-probs", action="store_true", help=WORD_PROBS_HELP)
    text = "begin each translation with the line of FILE for its sentence, cut at the "
    text += "sentence's length limit; an empty line prescribes nothing"
    add("--prefix-file", metavar="FILE", help=text)
    text = "translate a document, sentence by sentence: lines, space and marks stay as they are"
    add("--text", action="store_true", help=text)
    text = (
        "translate a file of PO, XLIFF, TMX, SRT, WebVTT or HTML, entry by entry, into --output"
    )
    add("--file", metavar="FILE", help=text)
    add("--output", metavar="FILE", help="where to write the translation of --file")
    add("--force", action="store_true", help="write --output even if it exists")
    add("--fuzzy", action="store_true", help="mark the translations of a PO file as fuzzy")
    text = "language of the document, such as de (default: the run's data.source)"
    add("--language", metavar="CODE", help=text)
    text = "translate N sentences of a line together, for a run with data.join (default: 1)"
    add("--context", type=int_from(1), metavar="N", help=text)
    text = "write the translations that look wrong, as lines of JSON with the reasons"
    add("--report", metavar="FILE", help=text)
    text = "write the word alignment of each sentence with its best translation: 0-0 1-2 ..."
    add("--alignments", metavar="FILE", help=text)
    add_protection_options(parser)
    add_search_options(parser)
    add_sampling_options(parser)


def run_translate(options: argparse.Namespace) -> None:
    """Translates stdin to stdout, one sentence per line; empty lines stay empty.

    With --text, stdin is a document, which is read to its end.
    """
    sampling = sampling_config(options)
    for name in ("alignments", "report", "output"):
        if file := getattr(options, name):
            require_writable(f"--{name}", Path(file))
    if options.file:
        from tf_transformer.translation.files.translate_file import require_format

        require_format(Path(options.file))
        named = [options.file, options.report, options.glossary, options.protect]
        if Path(options.output).resolve() in [Path(name).resolve() for name in named if name]:
            raise UserError(f"--output must be another file. Received: {options.output}.")
        if options.report and Path(options.report).resolve() == Path(options.file).resolve():
            raise UserError(f"--report must be another file. Received: {options.report}.")
        if Path(options.output).exists() and not options.force:
            raise UserError(f"{options.output} exists already. Give --force to replace it.")
    if options.prefix_file:
        next(read_lines(Path(options.prefix_file)), None)  # refuses what cannot be read
    if run := open_source(options.run).run:
        _check_n_best(options, decoding_config(options, run))
    translator = open_model(options)
    _check_n_best(options, translator.decoding)
    sampled = {"sample": True} | dataclasses.asdict(sampling) if sampling else {}
    translate = _translate_document if options.text else _translate_lines
    translate = _translate_file if options.file else translate
    suspects, number = translate(translator, options, sampled)
    if (terms := translator.protection.glossary) and (line := terms.never_found()):
        logger.info(line)
    if options.report:
        lines = (json.dumps(suspect, ensure_ascii=False) for suspect in suspects)
        write_lines(Path(options.report), lines)
    if suspects:
        where = f"{options.report or '--report FILE'} lists them"
        what = "entries are left or" if options.file else "sentences"
        logger.warning("%d of %d %s look wrong: %s", len(suspects), number, what, where)
    elif options.report:
        what = "entries" if options.file else "sentences"
        logger.info("0 of %d %s look wrong: %s is empty", number, what, options.report)


def _check_n_best(options: argparse.Namespace, decoding: DecodingConfig) -> None:
    if not options.sample and (options.n_best or 1) > decoding.beam_size:
        raise UserError(
            f"--n-best must be between 1 and the beam size, {decoding.beam_size}. "
            f"Received: {options.n_best}."
        )


def _translate_document(
    translator, options: argparse.Namespace, sampled: dict[str, Any]
) -> tuple[list[Suspect], int]:
    """Translates stdin as one text; returns what looks wrong, and the number of sentences."""
    document = read_text(0)
    if lines := [line for line in document.splitlines() if _MARKUP.search(line)]:
        message = "lines that look like the markup of a file: %d, such as %s; --file keeps it"
        logger.warning(message, len(lines), quoted(lines[0].strip()))
    text = _translated(translator, document, options, sampled, stdin_bars())
    sys.stdout.write(text)
    return [*_suspects(text.sentences)], len(text.sentences)


def _translate_file(
    translator, options: argparse.Namespace, sampled: dict[str, Any]
) -> tuple[list[Suspect], int]:
    settings = given_options(options, "language", "fuzzy") | sampled
    with ProgressBars() as bars:
        report = translator.translate_file(
            options.file,
            options.output,
            progress=functools.partial(bars, "translated"),
            **settings,
        )
    counts = [f"{reason}: {number:,}" for reason, number in report.counts.items() if number]
    logger.info("%s: %s", options.output, ", ".join(counts) or "no entries")
    return report.records, sum(report.counts.values())


def _translated(
    translator, texts: Any, options: argparse.Namespace, sampled: dict[str, Any],
    bars: ProgressBars,
) -> Any:  # fmt: skip
    """Translates a document, or several, with the options for documents."""
    settings = given_options(options, "language", "context") | sampled
    with bars as shown:
        progress = functools.partial(shown, "translated")
        return translator.translate_text(texts, progress=progress, **settings)


def _translate_lines(
    translator, options: argparse.Namespace, sampled: dict[str, Any]
) -> tuple[list[Suspect], int]:
    done, alignments, suspects = 0, list[str](), list[Suspect]()
    with stdin_bars() as bars:
        for texts, prefixes in _chunks(options):
            if not done and len(texts) == 1:
                advise_litert(options, open_source(options.run).run)
            translations = translator.translate(
                texts,
                n_best=options.n_best or 1,
                prefix=prefixes,
                word_probs=options.word_probs,
                progress=lambda number, done=done: bars("translated", done + number),
                **sampled,
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
    return suspects, done


def _suspects(pairs: Iterable[tuple], first: int = 1) -> Iterator[Suspect]:
    """Yields the pairs of source and translation that look wrong, as records of --report."""
    for number, (source, found) in enumerate(pairs, start=first):
        if found.warnings:
            figures = {"score": found.score, "log_prob": found.log_prob}
            pair = {"source": source, "translation": found}
            yield {"number": number, "reasons": found.warnings, **figures, **pair}


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


# --- generate --------------------------------------------------------------------------------


_LEAST_LOG_PROB = -1_000.0  # any translation is more probable


def add_generate(parser: argparse.ArgumentParser) -> None:
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


def run_generate(options: argparse.Namespace) -> None:
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


# --- attention -------------------------------------------------------------------------------


_KINDS = ("encoder", "decoder", "cross", "alignment")


def add_attention(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `attention`."""
    add_run_options(parser, "--tag")
    add = parser.add_argument
    add("sentence", metavar="TEXT", help="sentence of the source language")
    add("--target", metavar="TEXT", help="its translation (default: the model's)")
    text = "encoder, decoder or cross: the weights of heads; alignment (default): the mean "
    text += "over the heads of cross-attention"
    add("--kind", choices=_KINDS, default="alignment", help=text)
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
        from tf_transformer.plots import draw_attention

        draw_attention(maps, path)
        logger.info("%s", path)


def _layer(options: argparse.Namespace, translator) -> int:
    """Returns the layer, counted from 0; refuses a layer or head that the model lacks."""
    from tf_transformer.decoding.attention import default_layer

    config = translator.model.config
    encoder = options.kind == "encoder"
    layers = config.num_layers if encoder else config.num_decoder_layers
    for name, number in given_options(options, "layer", "head").items():
        most = layers if name == "layer" else config.num_heads
        if not 1 <= number <= most:
            raise UserError(f"--{name} must be from 1 to {most:,}. Received: {number}.")
    return default_layer(layers) if options.layer is None else options.layer - 1


def _json(options: argparse.Namespace, target: str, layer: int, maps: "Heatmaps") -> str:
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
