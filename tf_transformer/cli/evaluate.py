"""`tf-transformer evaluate`: BLEU and chrF of a run, or of a finished hypothesis file."""

import argparse
import sys
from pathlib import Path

from tf_transformer.cli.options import add_decoding_options, add_run_options, load_translator
from tf_transformer.cli.progress import Progress
from tf_transformer.cli.translate import one_line
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu, chrf
from tf_transformer.files import write_text

DESCRIPTION = (
    "Translates --source with RUN, or takes --hypothesis as it is, and prints sacreBLEU "
    "with its signature, chrF and the share of exact translations against --reference."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser, optional=True)
    add_decoding_options(parser)
    parser.add_argument("--source", metavar="FILE", help="text to translate with RUN")
    parser.add_argument("--hypothesis", metavar="FILE", help="translations made elsewhere")
    parser.add_argument("--reference", metavar="FILE", required=True)
    parser.add_argument("--output", metavar="FILE", help="where to write the translations")
    parser.add_argument("--lowercase", action="store_true", help="BLEU without case")
    parser.add_argument(
        "--tokenize",
        default="13a",
        choices=("13a", "intl", "zh", "char", "none"),
        help="sacreBLEU's tokeniser; none for text that is tokenised already",
    )


def command(options: argparse.Namespace) -> None:
    if bool(options.hypothesis) == bool(options.run and options.source):
        raise UserError(
            "evaluate takes either RUN and --source, or --hypothesis. Received: "
            f"RUN {options.run}, --source {options.source}, --hypothesis {options.hypothesis}."
        )
    references = list(read_lines(Path(options.reference)))
    file = Path(options.hypothesis or options.source)
    lines = list(read_lines(file))
    if len(lines) != len(references) or not lines:
        raise UserError(
            "Both files must have the same number of lines, at least one. Received: "
            f"{file} with {len(lines):,}, {options.reference} with {len(references):,}."
        )
    hypotheses = lines if options.hypothesis else _translate(options, lines)
    if options.output:
        write_text(Path(options.output), "".join(f"{line}\n" for line in hypotheses))
    score = bleu(hypotheses, references, lowercase=options.lowercase, tokenize=options.tokenize)
    exact = sum(map(str.__eq__, hypotheses, references))
    sys.stdout.write(
        f"{score}\n{chrf(hypotheses, references)}\n"
        f"exact {exact / len(references):.1%} ({exact:,} of {len(references):,})\n"
    )


def _translate(options: argparse.Namespace, lines: list[str]) -> list[str]:
    translator = load_translator(options)
    with Progress(len(lines)) as progress:
        found = translator.translate(lines, lambda done: progress("translated", done))
    return [one_line(hypotheses[0].text) for hypotheses in found]
