"""Measures loss and BLEU with one head or sublayer masked at a time, then prunes heads.

Prunes the least important heads first. Writes pictures and data. Run the same command again to
resume.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tf_transformer
from experiments.common import (
    Parser,
    add_model_options,
    fitting,
    integer,
    new_figure,
    open_translator,
    positive,
    read_pairs,
    run,
    write,
)
from experiments.heads.masks import HeadMasks
from experiments.heads.pictures import draw
from experiments.heads.study import Study, measure_heads
from tf_transformer import Translator, UserError


def main(words: Sequence[str] | None = None) -> None:
    """Runs the command with these words, by default those of the process."""
    parser = Parser("python -m experiments.heads", description=__doc__)
    add = parser.add_argument
    add("run", metavar="RUN", help="run directory")
    add("--source", metavar="FILE", required=True, help="text to translate")
    add("--reference", metavar="FILE", required=True, help="its translations")
    add("--limit", type=positive, metavar="N", help="measure on only the first N sentences")
    add("--no-bleu", action="store_true", help="measure only the loss, which is much faster")
    iterative = "measure the remaining heads again after each pruning"
    add("--iterative", action="store_true", help=iterative)
    add("--output", metavar="DIR", help="folder of the results (default: RUN/heads)")
    add("--write", metavar="DIR", help="write a model pruned to --keep heads")
    add("--keep", type=integer, metavar="N", help="number of heads of the pruned model")
    add_model_options(parser)
    options = parser.parse_args(words)
    origin = tf_transformer.Run.open(options.run)
    output = Path(options.output or origin.path / "heads")
    model = origin.config.model
    layers = model.num_layers + 2 * (model.decoder_layers or model.num_layers)
    most = layers * model.num_heads
    if options.write and options.keep not in range(most + 1):
        raise UserError(f"--write needs --keep, from 0 to {most}. Received: {options.keep}.")
    if options.write and Path(options.write).exists():
        raise UserError(f"{options.write} exists already. Choose another --write.")
    new_figure(1, 1)  # fails early without matplotlib
    sources, references = read_pairs(options.source, options.reference)
    translator = open_translator(origin, options)
    study = measure_heads(
        translator,
        *fitting(translator, sources[: options.limit], references[: options.limit]),
        output,
        tokenize=origin.config.data.bleu_tokenizer,
        with_bleu=not options.no_bleu,
        iterative=options.iterative,
    )
    draw(study, output)
    print(f"\n{study.sublayer_table()}\n\n{study.table()}")
    if options.write:
        write_pruned(translator, study, options.keep, Path(options.write))


def write_pruned(translator: Translator, study: Study, keep: int, folder: Path) -> None:
    """Writes the model with all but `keep` heads masked: model.keras and its tokenizer.

    The model keeps its shape: pruned heads are still computed, but add nothing, and training
    with `fit` leaves them so. They are listed in pruned.json.
    """
    pruned = study.pruning_order[: len(study.pruning_order) - keep]
    model: Any = translator.model
    masks = HeadMasks(model)
    write(folder / "pruned.json", json.dumps([*map(str, pruned)]) + "\n")
    translator.tokenizer.copy(folder / "tokenizer.model")
    masks.apply(pruned)
    model.save(folder / "model.keras")
    masks.apply([])
    print(f"{folder}: {len(pruned)} of {len(study.pruning_order)} heads pruned")


if __name__ == "__main__":
    sys.exit(run(main))
