"""A tiny model must learn to copy and to reverse sequences that it has never seen."""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.transformer import Transformer

# The first token of a source tells whether to copy or to reverse the others.
COPY, REVERSE, FIRST_ORDINARY = range(EOS_ID + 1, EOS_ID + 4)
VOCAB_SIZE = 14
LONGEST = 6
BATCH_SIZE, STEPS, NUM_UNSEEN = 64, 400, 500
Sequences = list[tuple[int, ...]]


def random_sources(number: int, seed: int) -> Sequences:
    """Returns distinct sequences of a task token and 4 to 6 ordinary tokens."""
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
    # A rate that ends at 0 makes the result nearly the same on every machine and seed.
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, STEPS - 60, warmup_target=2.5e-3, warmup_steps=60
    )
    model.compile(keras.optimizers.Adam(schedule, 0.9, 0.98), LabelSmoothedCrossEntropy())
    answers = [answer(source) for source in sources]
    inputs = {
        "source": padded(sources, (), (EOS_ID,)),
        "target": padded(answers, (BOS_ID,), ()),
    }
    labels = padded(answers, (), (EOS_ID,))
    model.fit(inputs, labels, batch_size=BATCH_SIZE, epochs=1, verbose=0)
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
    sources = random_sources(BATCH_SIZE * STEPS + NUM_UNSEEN, seed=1)
    unseen = sources[:NUM_UNSEEN]
    outputs = greedy_translations(trained_model(sources[NUM_UNSEEN:]), unseen)
    for task in (COPY, REVERSE):
        pairs = [pair for pair in zip(unseen, outputs, strict=True) if pair[0][0] == task]
        assert len(pairs) > 200
        solved = [tokens == answer(source) for source, tokens in pairs]
        assert np.mean(solved) >= 0.9  # 0.95 to 1 with four seeds
