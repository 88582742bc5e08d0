"""Commands that write models for others: `export` and `convert`."""

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_transformer.base.errors import UserError
from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import (
    RUN_HELP,
    add_run_options,
    add_search_options,
    decoding_config,
    decoding_options,
    open_model,
    refuse_unsuited,
    require_writable,
)
from tf_transformer.cli.parser import (
    RemovedOption,
    float_from,
    given_options,
    int_from,
    options_of,
)
from tf_transformer.config.config import DECODING_PRECISIONS
from tf_transformer.data.text import read_some_pairs
from tf_transformer.export.versions import check_readable, find_export, is_lite
from tf_transformer.loading.load import of_run
from tf_transformer.run import Run

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.export.publishing import Gate

logger = logging.getLogger(__name__)

# --- export ----------------------------------------------------------------------------------


def add_export(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `export`."""
    add = parser.add_argument
    runs = f"{RUN_HELP}; several form an ensemble"
    add_run_options(parser, "--tag", nargs="+", help=runs)
    average = "tf-transformer average RUN --last N, then export it with --checkpoint average"
    add("--average", action=RemovedOption, const=average)
    text = "precision of weights and computation (default: float32); bfloat16 halves the size, "
    text += "int8 quarters it; both may change translations, so evaluate them"
    add("--precision", default="float32", choices=DECODING_PRECISIONS, help=text)
    text = "a SavedModel (default), or the encoder and a decoding step for LiteRT"
    add("--format", default="savedmodel", choices=("savedmodel", "litert"), help=text)
    text = "with --format litert: fixed shapes, for one source of up to N tokens at a time"
    add("--fixed-length", type=int_from(8, 4096), metavar="N", help=text)
    text = "take and return token ids: the model then needs no SentencePiece operations, and "
    text += "can be converted to LiteRT"
    add("--no-text", action="store_true", help=text)
    add("--output", required=True, metavar="DIR", help="folder of the model's versions")
    version = int_from(1, 2**63 - 1)  # as TF Serving reads it
    text = "version number (default: the next free one)"
    add("--version", type=version, metavar="N", help=text)
    gate = parser.add_argument_group(
        "gate", "If the model fails the gate, it is not published and the exit status is 3."
    )
    text = "a published model; the new one fails if it is significantly worse"
    gate.add_argument("--better-than", metavar="SAVEDMODEL", help=text)
    gate.add_argument("--source", metavar="FILE", help="dev text to translate")
    gate.add_argument("--reference", metavar="FILE", help="its reference translations")
    points = float_from(0.0, 100.0)
    text = "allowed loss in points of BLEU (default: 0)"
    gate.add_argument("--margin", type=points, default=0.0, metavar="POINTS", help=text)
    add_search_options(parser, [name for name in options_of("search") if name != "jit_compile"])


def run_export(options: argparse.Namespace) -> None:
    """Exports a run to DIR/VERSION/, as a SavedModel or for LiteRT.

    The model maps text to translations. Several runs are exported as one ensemble.
    The files are tested against the model in Python before they are published. See
    docs/guides/exporting.md.
    """
    output = Path(options.output)
    check_readable(output)
    require_writable("--output", output, folder=True)
    runs = [*map(Run.open, options.run)]
    published = _published(options)
    decoding_config(options, runs[0])  # refuses values that do not go together
    source = of_run(runs[0])
    refuse_unsuited(options, source)
    loading = given_options(options, "precision", "tag")
    if (options.precision, options.format) == ("int8", "litert"):
        loading["litert"] = True
    if len(runs) > 1:
        loading["ensemble"] = runs[1:]
    exporting = given_options(options, "format", "fixed_length", "version")
    exporting |= decoding_options(options)
    if options.no_text:
        exporting["text"] = False
    for run in runs:
        of_run(run).require_files(options.checkpoint, options.tag)
    import_tensorflow_quietly()
    if published:
        exporting["gate"] = _gate(options, runs[0], published)
    translator = source.translator(checkpoint=options.checkpoint, **loading)
    path = translator.export(output, **exporting)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    logger.info("exported %s (%.1f MB)", path, size / 1e6)


def _published(options: argparse.Namespace) -> Path | None:
    """Returns the gate's published model, None without a gate."""
    if not options.better_than:
        return None
    published = find_export(Path(options.better_than))
    if published is None or is_lite(published):
        raise UserError(f"--better-than must be a SavedModel. Received: {options.better_than}.")
    read_some_pairs(options.source, options.reference)  # refuses what cannot be paired
    return published


def _gate(options: argparse.Namespace, run: Run, published: Path) -> "Gate":
    from tf_transformer.export.publishing import Gate
    from tf_transformer.translation.task import TranslationTask

    files = Path(options.source), Path(options.reference)
    dev = TranslationTask.read_dev_text(run, *files)
    return Gate(published, dev, options.margin)


# --- convert ---------------------------------------------------------------------------------

_QUANTIZATIONS = ("float32", "int8", "int16", "float16", "bfloat16")


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `convert`."""
    parser.usage = (
        "%(prog)s [OPTIONS] RUN --to {ctranslate2,marian} DIR\n"
        "       %(prog)s CHECKPOINT --from marian RUN"
    )
    add_run_options(
        parser,
        metavar="FROM",
        help="run directory; with --from, a checkpoint's folder as on huggingface.co: "
        "config.json, vocab.json, source.spm, target.spm, model.safetensors or "
        "pytorch_model.bin",
    )
    direction = parser.add_mutually_exclusive_group(required=True)
    direction.add_argument(
        "--to", choices=["ctranslate2", "marian"], help="the format to write"
    )
    text = "the format to read"
    direction.add_argument("--from", choices=["marian"], dest="origin", help=text)
    parser.add_argument("output", metavar="INTO", help="a new folder")
    text = f"with --to ctranslate2, type of the weights: {', '.join(_QUANTIZATIONS)} (default: "
    text += "float32); int8 may change translations, so evaluate them"
    parser.add_argument("--quantization", choices=_QUANTIZATIONS, metavar="TYPE", help=text)


def run_convert(options: argparse.Namespace) -> None:
    """Converts a run to CTranslate2 or Marian, or a Marian (OPUS-MT) checkpoint to a run.

    See docs/guides/conversion.md.
    """
    output = Path(options.output)
    if options.origin:
        import_tensorflow_quietly()

        from tf_transformer.conversion.marian import from_marian

        files = [from_marian(Path(options.run), output).checkpoints.best]
    else:
        _write(options, open_model(options), output)
        files = [*output.iterdir()]
    size = sum(file.stat().st_size for file in files)
    logger.info("converted %s to %s (%.1f MB)", options.run, output, size / 1e6)


def _write(options: argparse.Namespace, translator: Any, output: Path) -> None:
    if options.to == "marian":
        from tf_transformer.conversion.marian import to_marian

        return to_marian(translator.model, translator.tokenizer, translator.decoding, output)

    from tf_transformer.conversion.to_ctranslate2 import to_ctranslate2

    quantization = options.quantization or "float32"
    return to_ctranslate2(translator.model, translator.tokenizer, output, quantization)
