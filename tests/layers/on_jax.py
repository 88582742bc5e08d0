"""A program for KERAS_BACKEND=jax: the layers compute, train, are saved and are loaded.

Its argument is a folder. The layers do not import TensorFlow. A `Transformer` computes but
cannot be compiled; a plain model with its graph trains with Keras's own step.
"""

import sys
from pathlib import Path

import keras
import numpy as np

from tf_transformer.layers import Decoder, MeanPooling, PositionalEmbedding, PositionalEncoding

assert keras.backend.backend() == "jax" and "tensorflow" not in sys.modules
random = np.random.default_rng(0)
vectors = random.normal(size=(6, 5, 8)).astype("float32")
ids = random.integers(1, 9, (6, 4)).astype("int32")
ids[3:, 2:] = 0
file = Path(sys.argv[1]) / "model.keras"


def saved_and_loaded(model: keras.Model) -> keras.Model:
    model.save(file)
    return keras.saving.load_model(file)


source, target = keras.Input((None, 8)), keras.Input((None,), dtype="int32")
hidden = PositionalEmbedding(9, 8)(target)
decoder = Decoder(1, num_heads=2, d_ff=16, norm_first=True)
outputs, scores = decoder(hidden, PositionalEncoding()(source), return_attention_scores=True)
model = keras.Model([source, target], [MeanPooling()(outputs), scores[0][0]])
mean, weights = model([vectors, ids])
np.testing.assert_array_equal(np.asarray(weights)[:, :, 0, 1:], 0)  # the future
np.testing.assert_array_equal(np.asarray(weights)[3:, :, :, 2:], 0)  # padding
np.testing.assert_allclose(saved_and_loaded(model)([vectors, ids])[0], mean, atol=1e-6)

from tf_transformer import LabelSmoothedCrossEntropy, Transformer  # noqa: E402

rates = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
transformer = Transformer(9, num_layers=1, d_model=8, d_ff=8, num_heads=2, **rates)
inputs = {"source": ids, "target": ids}
try:
    transformer.compile("adam", LabelSmoothedCrossEntropy())
except RuntimeError as error:
    assert "needs the TensorFlow backend" in str(error)
assert not transformer.compiled
plain = keras.Model(transformer.inputs, transformer.outputs)
plain.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossEntropy())
losses = plain.fit(inputs, ids, epochs=8, verbose=0).history["loss"]
assert losses[-1] < losses[0]
np.testing.assert_array_equal(transformer(inputs), plain(inputs))
np.testing.assert_allclose(saved_and_loaded(plain)(inputs), plain(inputs), atol=1e-6)
print("done")
