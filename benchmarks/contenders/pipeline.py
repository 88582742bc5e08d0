"""The data pipeline of tf_transformer, alone and feeding a model in training."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from corpus import LIMITS
from harness.child import serve

from tf_transformer.config import Config, ModelConfig, TrainingConfig
from tf_transformer.data.batches import make_dataset, without_tuner
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.plan import BatchPlan
from tf_transformer.data.text import read_pairs
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.models.transformer import build_model
from tf_transformer.training.trainer import compile_model


def setup(
    kind: str, corpus: str, model: dict, precision: str, batch_tokens: int, steps: int
) -> dict:
    """Args:
    kind: "encode", "batches", "train-disk" or "train-memory".
    corpus: a folder written by corpus.py.
    model: arguments of ModelConfig.
    precision: precision of training.
    batch_tokens: positions on each side of a batch.
    steps: steps in a round.
    """
    encoded = EncodedCorpus.open(Path(corpus) / "encoded")
    plan = BatchPlan(
        encoded.source_lengths,
        encoded.target_lengths,
        batch_tokens=batch_tokens,
        max_length=LIMITS["max_length"],
        seed=1,
    )
    from_disk = functools.partial(make_dataset, encoded, plan, num_steps=steps)
    if kind == "train-disk":
        work = _training(model, precision, from_disk())
    elif kind == "train-memory":
        work = _training(model, precision, _in_memory(from_disk()))
    elif kind == "batches":
        # Enough batches to take longer than starting an iterator.
        work = lambda: {"tokens": _tokens(from_disk(num_steps=100 * steps))}  # noqa: E731
    else:
        work = _encoding(Path(corpus))
    return {"work": work}


def _encoding(corpus: Path) -> Callable[[], dict]:
    files = [corpus / f"{side}.txt" for side in ("source", "target")]
    pairs = list(read_pairs(*files))
    tokenizer = Tokenizer(corpus / "tokenizer.model")

    def work() -> dict:
        with tempfile.TemporaryDirectory() as folder:
            made = encode_corpus([pairs], tokenizer, Path(folder) / "encoded", **LIMITS)
        return {"tokens": int(np.sum(made.target_lengths))}

    return work


def _training(model: dict, precision: str, dataset: tf.data.Dataset) -> Callable[[], dict]:
    config = Config(model=ModelConfig(**model), training=TrainingConfig(precision=precision))
    transformer = build_model(config)
    compile_model(transformer, config)
    tokens = _tokens(dataset)

    def work() -> dict:
        transformer.fit(dataset, epochs=1, shuffle=False, verbose=0)
        return {"tokens": tokens}

    return work


def _tokens(dataset: tf.data.Dataset) -> int:
    """Counts target tokens, without padding."""
    return sum(int(np.count_nonzero(labels)) for _, labels in dataset.as_numpy_iterator())


def _in_memory(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the same batches as constants, with the same signature."""
    batches = [tf.data.Dataset.from_tensors(batch) for batch in dataset]
    return without_tuner(functools.reduce(tf.data.Dataset.concatenate, batches))


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
