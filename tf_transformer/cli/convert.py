"""The command `convert`."""

import argparse
import logging
from pathlib import Path
from typing import Any

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import add_run_options, open_model

logger = logging.getLogger(__name__)

_QUANTIZATIONS = ("float32", "int8", "int16", "float16", "bfloat16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> None:
    """Converts a run to CTranslate2 or Marian, or a Marian (OPUS-MT) checkpoint to a run.

    See docs/guides/conversion.md.
    """
    output = Path(options.output)
    if options.origin:
        import_tensorflow_quietly()

        from tf_transformer.conversion.from_marian import from_marian

        files = [from_marian(Path(options.run), output).checkpoints.best]
    else:
        _write(options, open_model(options), output)
        files = [*output.iterdir()]
    size = sum(file.stat().st_size for file in files)
    logger.info("converted %s to %s (%.1f MB)", options.run, output, size / 1e6)


def _write(options: argparse.Namespace, translator: Any, output: Path) -> None:
    if options.to == "marian":
        from tf_transformer.conversion.to_marian import to_marian

        return to_marian(translator.model, translator.tokenizer, translator.decoding, output)

    from tf_transformer.conversion.to_ctranslate2 import to_ctranslate2

    quantization = options.quantization or "float32"
    return to_ctranslate2(translator.model, translator.tokenizer, output, quantization)
