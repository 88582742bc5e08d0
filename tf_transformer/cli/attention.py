"""The command `attention`."""

import argparse
import json
import logging
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import write_text
from tf_transformer.cli.options import (
    add_run_options,
    open_model,
    picture,
    require_between,
    require_writable,
)
from tf_transformer.cli.parser import given_options, integer
from tf_transformer.plots import Heatmaps, draw_attention

logger = logging.getLogger(__name__)

_KINDS = ("encoder", "decoder", "cross", "alignment")


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> None:
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
    for name, number in given_options(options, "layer", "head").items():
        most = layers if name == "layer" else config.num_heads
        require_between(f"--{name}", number, 1, most)
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
