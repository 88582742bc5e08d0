"""Commands that measure: `evaluate`, `score`, `compare` and `tune`."""

import argparse
import dataclasses
import logging
import sys
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import sha256
from tf_transformer.base.output import MARKDOWN, ProgressBars
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import (
    MODEL_HELP,
    RUN_HELP,
    WORD_PROBS_HELP,
    add_model_options,
    add_run_options,
    add_search_options,
    decoding_config,
    open_model,
    open_source,
    require_equal_lengths,
    require_writable,
    seen_before,
    spaced_probs,
    write_lines,
)
from tf_transformer.cli.parser import int_from, value_of
from tf_transformer.config.config import BLEU_TOKENIZERS, DataConfig
from tf_transformer.data.text import content_hash, read_lines, read_some_pairs
from tf_transformer.decoding.streams import use_threads
from tf_transformer.export.card import config_in, read_card
from tf_transformer.export.versions import find_export
from tf_transformer.loading.load import of_run
from tf_transformer.run import Run
from tf_transformer.run.records import read_results

logger = logging.getLogger(__name__)

# --- evaluate --------------------------------------------------------------------------------


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `evaluate`."""
    add = parser.add_argument
    names = ("--ensemble", "--tag", "--precision", "--litert")
    add_run_options(parser, *names, nargs="?", help=MODEL_HELP)
    add("--source", metavar="FILE", help="text to translate with RUN")
    text = "existing translations to score, instead of RUN's"
    add("--hypothesis", metavar="FILE", help=text)
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


def run_evaluate(options: argparse.Namespace) -> None:
    """Prints sacreBLEU with its signature, chrF and the share of exact translations.

    Compares RUN's translations of --source, or those in --hypothesis, with --reference.
    --report prints every kind of BLEU. The last line counts the sentences that RUN has seen in
    its training or dev text.
    """
    from tf_transformer.api.compare import translated_lines
    from tf_transformer.evaluation import (
        format_report,
        report,
        score_translations,
        tokenizer_for,
    )

    _check_evaluation(options)
    references = [list(read_lines(Path(path))) for path in options.reference]
    file = Path(options.hypothesis or options.source)
    lines = list(read_lines(file))
    for name, reference in zip(options.reference, references, strict=True):
        require_equal_lengths(file, lines, name, reference)
    source = open_source(options.run) if options.run else None
    run = source.run if source else None
    config = run.config if run else config_in(read_card(source.path)) if source else None
    data = config.data if config else DataConfig()
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
        entries = {score.name: score for score in (scores.bleu, scores.chrf)}
        print_report(f"{scores}\n")
    if source:
        seen = seen_before([options.run, *options.ensemble], lines, references, options.tag)
        if run and options.record:
            found = {kind: dataclasses.asdict(score) for kind, score in entries.items()}
            exact = round(scores.exact * len(lines))
            figures = {"lines": len(lines), "scores": found, "exact": exact, "seen": seen}
            run.record_result(origin | figures)
            logger.info("recorded in %s", run.results)


def _check_evaluation(options: argparse.Namespace) -> None:
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


# --- score -----------------------------------------------------------------------------------


def add_score(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `score`, whose output is data."""
    parser.set_defaults(stdout_is_data=True)
    add_run_options(parser, "--ensemble", "--tag", help=MODEL_HELP)
    parser.add_argument("--source", metavar="FILE", required=True, help="source text")
    parser.add_argument("--target", metavar="FILE", required=True, help="its translations")
    parser.add_argument("--word-probs", action="store_true", help=WORD_PROBS_HELP)
    add_search_options(parser, ["alpha"])


def run_score(options: argparse.Namespace) -> None:
    """Prints log-probability, score and number of tokens of each pair, tab-separated.

    The log-probability is the natural logarithm of P(target | source). The score is normalised
    by length, as in beam search. The number of tokens includes EOS. Sources are cut at the
    run's decoding.max_source_length tokens, targets at decoding.max_extra_length more. A line
    on stderr counts the sentences that RUN has seen in its training or dev text.
    """
    pairs = read_some_pairs(options.source, options.target)
    translator = open_model(options)
    if options.word_probs and not translator.engine.gives_word_probs:
        translator.engine.refuse("give the probabilities of words")
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    with ProgressBars(len(pairs)) as bars:
        scores = translator.score(sources, targets, progress=lambda done: bars("scored", done))
    for score in scores:
        end = spaced_probs(score) if options.word_probs else ""
        sys.stdout.write(f"{score.log_prob:.5f}\t{score.score:.5f}\t{score.num_tokens}{end}\n")
    seen_before([options.run, *options.ensemble], sources, [targets], options.tag)


# --- compare ---------------------------------------------------------------------------------

_METRICS = ["bleu", "chrf"]


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `compare`, whose output is data."""
    add = parser.add_argument
    parser.set_defaults(stdout_is_data=True)
    systems = "run, export, output of `train --seeds` or file of translations; baseline first"
    add("systems", nargs="+", metavar="SYSTEM", help=systems)
    reference = "reference translations; repeatable"
    add("--reference", metavar="FILE", required=True, action="append", help=reference)
    text = "text to translate; not needed to compare files of translations"
    add("--source", metavar="FILE", help=text)
    metric = "score to compare; repeatable (default: bleu and chrf)"
    add("--metric", choices=_METRICS, action="append", help=metric)
    tokenize = "sacreBLEU's tokeniser (default: that of the first run or export; 13a for files)"
    add("--tokenize", choices=BLEU_TOKENIZERS, help=tokenize)
    text = "show at most N sentences that are better and N that are worse (default: 5)"
    add("--sentences", type=int_from(0, 1_000), default=5, metavar="N", help=text)
    add_model_options(parser, "--tag")


def run_compare(options: argparse.Namespace) -> None:
    """Compares each system with the first on one test set, and prints a report in Markdown.

    The report has scores with confidence intervals, tests of their differences by paired
    bootstrap and approximate randomisation, the sentences that differ most, lengths and
    settings.
    """
    from tf_transformer.api.compare import compare_systems

    paths: list[str] = options.systems
    if len(set(paths)) < max(2, len(paths)):
        raise UserError(f"compare takes two different systems or more. Received: {paths}.")
    references = [_lines(path) for path in options.reference]
    sources = _lines(options.source) if options.source else []
    finished = {path: _lines(path) for path in paths if Path(path).is_file()}
    if options.source is None and len(finished) < len(paths):
        raise UserError("Runs and exports need --source.")
    texts = dict(zip(options.reference, references, strict=True)) | finished
    if options.source:
        texts[options.source] = sources
    for path, lines in texts.items():
        require_equal_lengths(options.reference[0], references[0], path, lines)
    runs = {path: _open(path) for path in paths if path not in finished}
    if runs:
        import_tensorflow_quietly()
        use_threads()
    report_parts = compare_systems(
        paths,
        finished,
        runs,
        sources,
        references,
        tag=options.tag,
        metrics=options.metric or _METRICS,
        tokenize=options.tokenize,
        most=options.sentences,
    )
    # All seeds of `train --seeds` have seen the same text, so the first represents them.
    if trained := [str(seeds[0].path) for seeds in runs.values() if seeds]:
        seen_before(trained, sources, references, options.tag)
    print_report(*report_parts, style=MARKDOWN)


def _lines(path: str) -> list[str]:
    return list(read_lines(Path(path)))


def _open(path: str) -> list[Run]:
    """Opens a run, or every run in a folder of seeds; returns none for an export."""
    from tf_transformer.api.compare import members

    is_run = (Path(path) / "config.json").exists()
    runs = [Run.open(str(folder)) for folder in ([path] if is_run else members(Path(path)))]
    for run in runs:
        run.weights()  # before anything is translated
    if not runs and not find_export(Path(path)):
        raise UserError(
            "A system must be a run, an export, a folder of `train --seeds` or a file of "
            f"translations. Received: {path}."
        )
    return runs


# --- tune ------------------------------------------------------------------------------------


def add_tune(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tune`."""
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    add("--source", metavar="FILE", help="dev text to translate (default: the run's)")
    add("--reference", metavar="FILE", help="its translations")
    alphas = "exponents of the length penalty to try (default: 0, 0.1, ..., 2)"
    alpha = value_of("decoding.alpha")
    add("--alpha", nargs="+", action="extend", type=alpha, metavar="A", help=alphas)
    beam = value_of("decoding.beam_size")
    beams = "beam sizes to try in addition to the run's (default: none)"
    add("--beam", nargs="+", action="extend", type=beam, default=[], metavar="W", help=beams)
    which = "weights to try: best, average or last (default: best, and average if it exists)"
    known = ("best", "average", "last")
    add("--checkpoint", nargs="+", action="extend", choices=known, metavar="WHICH", help=which)
    add_model_options(parser, "--tag")


def run_tune(options: argparse.Namespace) -> None:
    """Chooses alpha, beam size and weights by BLEU on dev text, and writes them into the run.

    They become the defaults of translate, evaluate, export and so on. The run keeps its
    settings unless others are significantly better. See docs/guides/decoding.md.
    """
    if bool(options.source) != bool(options.reference):
        raise UserError("--source and --reference go together. Received: only one of them.")
    if options.tag and not options.source:
        raise UserError("--tag is for --source: the dev text of a run has its tags already.")
    run = Run.open(options.run)
    for name in (run.config.decoding.checkpoint, *(options.checkpoint or ())):
        of_run(run).require_files(name, options.tag)
    if options.source:
        read_some_pairs(options.source, options.reference)  # refuses what cannot be paired
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.api.tuning import ALPHAS, tune

    tuning = tune(
        run,
        text=(options.source, options.reference) if options.source else None,
        tag=options.tag,
        alphas=options.alpha or ALPHAS,
        beam_sizes=options.beam,
        checkpoints=options.checkpoint,
    )
    print_report(tuning.table())
