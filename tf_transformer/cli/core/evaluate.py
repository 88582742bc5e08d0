"""`tf-transformer evaluate`: scores a run or a file of translations."""

import argparse
import dataclasses
import gzip
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tf_transformer.cli.lines import one_line, require_equal_lengths
from tf_transformer.cli.options import (
    add_translator_options,
    decoding_config,
    open_run,
    open_translator,
    require_writable,
)
from tf_transformer.cli.parser import Once, given_except
from tf_transformer.cli.scores import print_brackets, seen_before
from tf_transformer.cli.terminal import print_report
from tf_transformer.config.data import BLEU_TOKENIZERS, DataConfig
from tf_transformer.data.corpus import read_lines
from tf_transformer.data.texts import content_hash
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import Scores, score_translations
from tf_transformer.evaluation.report import Entry, format_report, moses_tokenize, report
from tf_transformer.files import replacing, sha256
from tf_transformer.progress import ProgressBars
from tf_transformer.run.records import read_results

logger = logging.getLogger(__name__)

# The options allowed with --brackets, and with --hypothesis.
_TREES = ("hypothesis", "reference", "brackets")
_FILES = (*_TREES, "output", "report", "lowercase", "tokenize")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    shared = ("--ensemble", "--tag", "--precision", "--litert")
    add_translator_options(parser, *shared, nargs="?")
    add("--source", metavar="FILE", help="text to translate with RUN")
    text = "existing translations to score, instead of RUN's"
    add("--hypothesis", metavar="FILE", action=Once, help=text)
    reference = "reference translations; repeatable"
    add("--reference", metavar="FILE", required=True, action="append", help=reference)
    add("--output", metavar="FILE", help="write the translations to FILE, plain or .gz")
    record = "append the scores to RUN/results.jsonl, for `tf-transformer card`"
    add("--record", action="store_true", help=record)
    add("--lowercase", action="store_true", help="case-insensitive BLEU")
    tokenize = "sacreBLEU's tokeniser (default: RUN's data.bleu_tokenizer; 13a for files)"
    add("--tokenize", choices=BLEU_TOKENIZERS, help=tokenize)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--report",
        metavar="LANGUAGE",
        help="print all kinds of BLEU, including that of 2017 on the Moses tokens of LANGUAGE, "
        "such as de",
    )
    kinds.add_argument(
        "--brackets",
        action="store_true",
        help="score the files as trees in Penn brackets by labelled precision, recall and more",
    )


def command(options: argparse.Namespace) -> None:
    """Prints sacreBLEU with its signature, chrF and the share of exact translations.

    Compares RUN's translations of --source, or those in --hypothesis, with --reference.
    --report prints every kind of BLEU; --brackets scores trees. The last line counts the
    sentences that RUN has seen in its training or dev text.
    """
    _check(options)
    references = [list(read_lines(Path(path))) for path in options.reference]
    file = Path(options.hypothesis or options.source)
    lines = list(read_lines(file))
    for name, reference in zip(options.reference, references, strict=True):
        require_equal_lengths(file, lines, name, reference)
    if options.brackets:
        print_brackets(references[0], lines, options.reference[0])
        return
    origin = _origin(options) if options.record else {}  # before training replaces the weights
    hypotheses = lines if options.hypothesis else _translate(options, lines)
    if options.output:
        _write(Path(options.output), hypotheses)
    scores = score_translations(
        hypotheses, *references, lowercase=options.lowercase, tokenize=_tokenizer(options)
    )
    if options.report:
        entries = report(
            hypotheses, *references, language=options.report, tokenize=_tokenizer(options)
        )
        print_report(f"{format_report(entries)}{scores.exact_line}\n")
    else:
        entries = [Entry(score.name, score) for score in (scores.bleu, scores.chrf)]
        print_report(f"{scores}\n")
    if options.run:
        seen = seen_before([options.run, *options.ensemble], lines, references, options.tag)
        if options.record:
            _record(options, origin, entries, scores, seen)


def _check(options: argparse.Namespace) -> None:
    is_file, named = bool(options.hypothesis), (options.run, options.source)
    if any(named) if is_file else not all(named):
        raise UserError(
            "evaluate takes either RUN and --source, or --hypothesis. Received: "
            f"RUN {options.run}, --source {options.source}, --hypothesis {options.hypothesis}."
        )
    if is_file and (others := given_except(options, *_FILES)):
        raise UserError(f"For RUN and --source only: {others}. Received: --hypothesis.")
    others = given_except(options, *_TREES)
    if options.brackets and (others or len(options.reference) > 1):
        raise UserError(
            "--brackets compares one --hypothesis with one --reference, both files of trees. "
            f"Received: {others or 'several references'}."
        )
    if options.report:
        moses_tokenize([], options.report)  # refuses unknown languages
    if options.output:
        output = Path(options.output)
        inputs = (options.source, options.hypothesis, *options.reference)
        if any(name and output.resolve() == Path(name).resolve() for name in inputs):
            raise UserError(
                f"--output must not be a file that is read. Received: {options.output}."
            )
        require_writable("--output", output)
    if options.record:
        results = open_run(options.run).results
        require_writable("--record", results)
        read_results(results)  # refuses a damaged file


def _tokenizer(options: argparse.Namespace) -> str:
    """Returns the name of sacreBLEU's tokeniser: the chosen one, or that of the run."""
    data = open_run(options.run).config.data if options.run else DataConfig()
    return options.tokenize or data.bleu_tokenizer


def _origin(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what the translations are made from."""
    run = open_run(options.run)
    return {
        "checkpoint": options.checkpoint or run.config.decoding.checkpoint,
        "weights": sha256(run.weights(options.checkpoint)),
        "ensemble": list(options.ensemble),
        "tag": options.tag,
        "precision": options.precision,
        "litert": options.litert,
        "decoding": dataclasses.asdict(decoding_config(options, run)),
    }


def _record(
    options: argparse.Namespace,
    origin: dict[str, Any],
    entries: Sequence[Entry],
    scores: Scores,
    seen: dict[str, Any],
) -> None:
    """Appends the result to the run's results.jsonl."""
    run = open_run(options.run)
    files = [options.source, *options.reference]
    run.record_result(
        {
            "files": {name: content_hash(Path(name)) for name in files},
            "lines": scores.sentences,
            **origin,
            "scores": {entry.kind: dataclasses.asdict(entry.score) for entry in entries},
            "exact": round(scores.exact * scores.sentences),
            "seen": seen,
        }
    )
    logger.info("recorded in %s", run.results)


def _write(path: Path, lines: Sequence[str]) -> None:
    """Writes lines to a file, compressed if its name ends in .gz."""
    text = "".join(f"{line}\n" for line in lines).encode()
    with replacing(path) as temporary:
        # No timestamp in the header, so that the same lines give the same bytes.
        temporary.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _translate(options: argparse.Namespace, lines: list[str]) -> list[str]:
    translator = open_translator(options)
    with ProgressBars(len(lines)) as bars:
        translations = translator.translate(
            lines, progress=lambda done: bars("translated", done)
        )
    return [one_line(translation) for translation in translations]
