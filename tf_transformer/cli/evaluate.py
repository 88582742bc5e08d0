"""The command `evaluate`."""

import argparse
import dataclasses
import logging
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import sha256
from tf_transformer.cli.console import print_report
from tf_transformer.cli.options import (
    add_run_options,
    add_search_options,
    decoding_config,
    open_model,
    require_equal_lengths,
    require_writable,
    seen_before,
    write_lines,
)
from tf_transformer.cli.parser import Once
from tf_transformer.config.config import BLEU_TOKENIZERS, DataConfig
from tf_transformer.data.text import content_hash, read_lines
from tf_transformer.run import Run
from tf_transformer.run.records import read_results

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `evaluate`."""
    add = parser.add_argument
    add_run_options(parser, "--ensemble", "--tag", "--precision", "--litert", nargs="?")
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
    text = "print all kinds of BLEU, including that of 2017 on the Moses tokens of LANGUAGE, "
    text += "such as de"
    add("--report", metavar="LANGUAGE", help=text)
    add_search_options(parser)


def run(options: argparse.Namespace) -> None:
    """Prints sacreBLEU with its signature, chrF and the share of exact translations.

    Compares RUN's translations of --source, or those in --hypothesis, with --reference.
    --report prints every kind of BLEU. The last line counts the sentences that RUN has seen in
    its training or dev text.
    """
    from tf_transformer.api.compare import translated_lines
    from tf_transformer.evaluation import (
        Variant,
        format_report,
        report,
        score_translations,
        tokenizer_for,
    )

    _check(options)
    references = [list(read_lines(Path(path))) for path in options.reference]
    file = Path(options.hypothesis or options.source)
    lines = list(read_lines(file))
    for name, reference in zip(options.reference, references, strict=True):
        require_equal_lengths(file, lines, name, reference)
    run = Run.open(options.run) if options.run else None
    data = run.config.data if run else DataConfig()
    tokenize = options.tokenize or tokenizer_for(data.bleu_tokenizer, references[0])
    # Hashed before translating, during which a training may replace the weights.
    origin = _origin(options, run) if run and options.record else {}
    hypotheses = lines if options.hypothesis else translated_lines(open_model(options), lines)
    if options.output:
        write_lines(Path(options.output), hypotheses)
    scores = score_translations(
        hypotheses, *references, lowercase=options.lowercase, tokenize=tokenize
    )
    if options.report:
        entries = report(hypotheses, *references, language=options.report, tokenize=tokenize)
        print_report(f"{format_report(entries)}{scores.exact_line}\n")
    else:
        entries = [Variant(score.name, score) for score in (scores.bleu, scores.chrf)]
        print_report(f"{scores}\n")
    if run:
        seen = seen_before([options.run, *options.ensemble], lines, references, options.tag)
        if options.record:
            found = {entry.kind: dataclasses.asdict(entry.score) for entry in entries}
            exact = round(scores.exact * len(lines))
            figures = {"lines": len(lines), "scores": found, "exact": exact, "seen": seen}
            run.record_result(origin | figures)
            logger.info("recorded in %s", run.results)


def _check(options: argparse.Namespace) -> None:
    """Refuses wrong options before anything slow."""
    if not options.hypothesis and not (options.run and options.source):
        raise UserError(
            "evaluate takes either RUN and --source, or --hypothesis. Received: "
            f"RUN {options.run}, --source {options.source}."
        )
    if options.report:
        from tf_transformer.evaluation import moses_tokenize

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
        results = Run.open(options.run).results
        require_writable("--record", results)
        read_results(results)  # refuses a damaged file


def _origin(options: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Returns what the translations are made from and compared with."""
    files = [options.source, *options.reference]
    return {
        "files": {name: content_hash(Path(name)) for name in files},
        "checkpoint": options.checkpoint or run.config.decoding.checkpoint,
        "weights": sha256(run.weights(options.checkpoint)),
        "ensemble": list(options.ensemble),
        "tag": options.tag,
        "precision": options.precision,
        "litert": options.litert,
        "decoding": dataclasses.asdict(decoding_config(options, run)),
    }
