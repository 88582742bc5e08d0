"""A tiny model must learn to copy and to reverse sequences that it has never seen."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.schedules import TransformerSchedule
from tf_transformer.models.transformer import Transformer

VOCAB_SIZE = 16
LONGEST = 10
NUM_TRAINING, NUM_UNSEEN = 32_000, 500
Sequences = list[tuple[int, ...]]


def random_sequences(number: int, seed: int) -> Sequences:
    """Distinct sequences of 4 to 10 ordinary tokens."""
    random = np.random.default_rng(seed)
    sequences: set[tuple[int, ...]] = set()
    while len(sequences) < number:
        length = random.integers(4, LONGEST + 1)
        sequences.add(tuple(random.integers(EOS_ID + 1, VOCAB_SIZE, length).tolist()))
    return sorted(sequences, key=lambda _: random.random())


def padded(sequences: Sequences, before: tuple[int, ...], after: tuple[int, ...]) -> np.ndarray:
    """int32 [B, LONGEST + 1]."""
    batch = np.full((len(sequences), LONGEST + 1), PAD_ID, "int32")
    for row, sequence in zip(batch, sequences, strict=True):
        framed = before + sequence + after
        row[: len(framed)] = framed
    return batch


def trained_model(sequences: Sequences, answers: Sequences) -> Transformer:
    keras.utils.set_random_seed(1)
    model = Transformer(
        VOCAB_SIZE, num_layers=2, d_model=64, d_ff=128, num_heads=4, dropout=0.0
    )
    schedule = TransformerSchedule(d_model=64, warmup_steps=200, scale=0.5)
    model.compile(keras.optimizers.Adam(schedule), LabelSmoothedCrossEntropy())
    inputs = {
        "source": padded(sequences, (), (EOS_ID,)),
        "target": padded(answers, (BOS_ID,), ()),
    }
    labels = padded(answers, (), (EOS_ID,))
    model.fit(inputs, labels, batch_size=64, epochs=1, verbose=0)
    return model


def greedy_translations(model: Transformer, sequences: Sequences) -> Sequences:
    @tf.function
    def search(source: tf.Tensor) -> tf.Tensor:
        limits = tf.fill([tf.shape(source)[0]], LONGEST + 1)
        cache = model.initial_cache(source)
        return beam_search(model.step_function(), cache, limits, beam_size=1).tokens[:, 0]

    rows = search(tf.constant(padded(sequences, (), (EOS_ID,)))).numpy()
    return [tuple(row[(row != PAD_ID) & (row != EOS_ID)].tolist()) for row in rows]


@pytest.mark.parametrize(
    "answer", [lambda tokens: tokens, lambda tokens: tokens[::-1]], ids=["copy", "reverse"]
)
def test_unseen_sequences_are_solved_exactly(
    answer: Callable[[tuple[int, ...]], tuple[int, ...]],
):
    sequences = random_sequences(NUM_TRAINING + NUM_UNSEEN, seed=1)
    training, unseen = sequences[:NUM_TRAINING], sequences[NUM_TRAINING:]
    model = trained_model(training, [answer(sequence) for sequence in training])
    found = greedy_translations(model, unseen)
    solved = sum(
        tokens == answer(sequence) for tokens, sequence in zip(found, unseen, strict=True)
    )
    assert solved >= 0.98 * NUM_UNSEEN
