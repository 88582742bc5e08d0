"""A tiny model must learn to copy and to reverse sequences that it has never seen."""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.models.losses import LabelSmoothedCrossEntropy, TransformerSchedule
from tf_transformer.models.transformer import Transformer

# The first token of a source tells whether to copy or to reverse the others.
COPY, REVERSE, FIRST_ORDINARY = range(EOS_ID + 1, EOS_ID + 4)
VOCAB_SIZE = 18
LONGEST = 8
NUM_TRAINING, NUM_UNSEEN = 28_000, 500
Sequences = list[tuple[int, ...]]


def random_sources(number: int, seed: int) -> Sequences:
    """Returns distinct sequences of a task token and 4 to 8 ordinary tokens."""
    random = np.random.default_rng(seed)
    sources: set[tuple[int, ...]] = set()
    while len(sources) < number:
        task, length = random.integers([COPY, 4], [FIRST_ORDINARY, LONGEST + 1]).tolist()
        sources.add((task, *random.integers(FIRST_ORDINARY, VOCAB_SIZE, length).tolist()))
    return sorted(sources, key=lambda _: random.random())


def answer(source: tuple[int, ...]) -> tuple[int, ...]:
    task, *tokens = source
    return tuple(tokens if task == COPY else reversed(tokens))


def padded(sequences: Sequences, before: tuple[int, ...], after: tuple[int, ...]) -> np.ndarray:
    """int32 [B, LONGEST + 2]."""
    batch = np.full((len(sequences), LONGEST + 2), PAD_ID, "int32")
    for row, sequence in zip(batch, sequences, strict=True):
        framed = before + sequence + after
        row[: len(framed)] = framed
    return batch


def trained_model(sources: Sequences) -> Transformer:
    keras.utils.set_random_seed(1)
    model = Transformer(
        VOCAB_SIZE, num_layers=1, d_model=64, d_ff=128, num_heads=4, dropout=0.0
    )
    schedule = TransformerSchedule(d_model=64, warmup_steps=200, scale=0.5)
    model.compile(keras.optimizers.Adam(schedule), LabelSmoothedCrossEntropy())
    answers = [answer(source) for source in sources]
    inputs = {
        "source": padded(sources, (), (EOS_ID,)),
        "target": padded(answers, (BOS_ID,), ()),
    }
    labels = padded(answers, (), (EOS_ID,))
    model.fit(inputs, labels, batch_size=64, epochs=1, verbose=0)
    return model


def greedy_translations(model: Transformer, sources: Sequences) -> Sequences:
    @tf.function
    def search(source: tf.Tensor) -> tf.Tensor:
        limits = tf.fill([tf.shape(source)[0]], LONGEST + 1)
        cache = model.initial_cache(source)
        return beam_search(model.step_function(), cache, limits, beam_size=1).tokens[:, 0]

    rows = search(tf.constant(padded(sources, (), (EOS_ID,)))).numpy()
    return [tuple(row[(row != PAD_ID) & (row != EOS_ID)].tolist()) for row in rows]


def test_unseen_sequences_are_solved_exactly():
    sources = random_sources(NUM_TRAINING + NUM_UNSEEN, seed=1)
    unseen = sources[NUM_TRAINING:]
    outputs = greedy_translations(trained_model(sources[:NUM_TRAINING]), unseen)
    for task in (COPY, REVERSE):
        pairs = [pair for pair in zip(unseen, outputs, strict=True) if pair[0][0] == task]
        assert len(pairs) > 200
        assert np.mean([tokens == answer(source) for source, tokens in pairs]) >= 0.98
