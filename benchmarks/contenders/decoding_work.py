"""Writes the sentences to decode, and the same weights for every library.

The folder contains weights.npz (the package's), ct2/ (CTranslate2), model.json, pieces.json and
sentences.json.
"""

import json
from dataclasses import asdict
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from harness.child import serve
from harness.sentences import evenly_spaced

from tf_transformer.base.files import new_folder
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.conversion.to_ctranslate2 import to_ctranslate2
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.text import read_lines
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.models.transformer import Transformer, build_model
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights, save_weights

_NEVER = -1e4  # logit of pad and BOS, which the package's search never chooses


def setup(corpus: str, model: dict, run: str | None, number: int) -> dict:
    """Args:
    corpus: a folder written by corpus.py.
    model: arguments of Transformer, for random weights.
    run: a run directory, whose best weights and tokenizer are used instead.
    number: number of sentences, at evenly spaced quantiles of the corpus's lengths.
    """

    def write(path: str) -> dict:
        transformer, tokenizer = _trained(run) if run else _random(model)
        ids = _sentences(Path(corpus), tokenizer if run else None)
        chosen = evenly_spaced(ids, number)
        with new_folder(Path(path)) as folder:
            save_weights(folder / "weights.npz", transformer)
            to_ctranslate2(transformer, tokenizer, folder / "ct2")
            _write(folder / "pieces.json", tokenizer.vocabulary("source"))
            _write(folder / "model.json", asdict(transformer.config))
            _write(folder / "sentences.json", chosen)
        return {}

    return {"write": write}


def _sentences(corpus: Path, tokenizer: Tokenizer | None) -> list[list[int]]:
    """Returns all source sentences as ids without EOS, shortest first.

    Without a tokenizer these are the ids of the encoded corpus.
    """
    if tokenizer is None:
        encoded = EncodedCorpus.open(corpus / "encoded")
        ids = [encoded.source(index)[:-1].tolist() for index in range(len(encoded))]
    else:
        lines = list(read_lines(corpus / "source.txt"))
        ids = tokenizer.tokenize(tf.constant(lines)).to_list()
    return sorted((row for row in ids if row), key=len)


def _write(path: Path, what) -> None:
    path.write_text(json.dumps(what), "utf-8")


def _trained(folder: str) -> tuple[Transformer, Tokenizer]:
    run = Run.open(folder)
    transformer = build_model(run.config, "float32")
    load_weights(run.checkpoints.find("best"), transformer)
    return transformer, Tokenizer(run.tokenizer)


def _random(model: dict) -> tuple[Transformer, "NumberedPieces"]:
    keras.utils.set_random_seed(1)
    transformer = Transformer(**model, output_bias=True, name="transformer")
    bias = np.zeros(model["vocab_size"], "float32")
    bias[[PAD_ID, BOS_ID]] = _NEVER
    transformer.projection.output_bias.assign(bias)
    return transformer, NumberedPieces(model["vocab_size"])


class NumberedPieces:
    """A substitute for a tokenizer: as many meaningless pieces as the model needs."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def copy(self, path: Path) -> None:
        """Writes nothing: no contender reads the tokenizer."""

    def vocabulary(self, side: str) -> list[str]:
        special = ["<pad>", "<unk>", "<s>", "</s>"]
        return [*special, *(f"t{i}" for i in range(len(special), self.vocab_size))]

    def slots(self, side: str = "source") -> tuple[int, ...]:
        return ()


assert EOS_ID == 3  # contenders in other environments rely on the ids 0 to 3
if __name__ == "__main__":
    serve(setup)
