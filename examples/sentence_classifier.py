"""A sentence classifier: an encoder learns who wins, however the sentence is phrased."""

import keras
import numpy as np

from tf_transformer.layers import Encoder, PositionalEmbedding

NAMES = ["anna", "ben", "carla", "david"]
FORMS = ["{0} beats {1}", "{1} loses to {0}", "in the end {0} beats {1}"]


def sentences(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Returns sentences, and the index of each winner in NAMES."""
    random = np.random.default_rng(seed)
    pairs = [random.permutation(4)[:2] for _ in range(count)]
    texts = [random.choice(FORMS).format(NAMES[a], NAMES[b]) for a, b in pairs]
    return texts, np.array([winner for winner, _ in pairs])


def make_model(vocab_size: int) -> keras.Model:
    ids = keras.Input((None,), dtype="int32")
    embedded = PositionalEmbedding(vocab_size, d_model=32)(ids)  # masks padding
    encoded = Encoder(2, num_heads=4, d_ff=64, dropout=0.1, norm_first=True)(embedded)
    return keras.Model(
        ids, keras.layers.Dense(len(NAMES))(keras.layers.GlobalAveragePooling1D()(encoded))
    )


keras.utils.set_random_seed(1)
texts, winners = sentences(1_000, seed=1)
words = keras.layers.TextVectorization()
words.adapt(texts)
model = make_model(words.vocabulary_size())
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
model.fit(np.array(words(texts)), winners, epochs=5, verbose=0)
new, expected = sentences(200, seed=2)
_, accuracy = model.evaluate(np.array(words(new)), expected, verbose=0)
print(f"accuracy {accuracy:.2f}")
assert accuracy > 0.95
