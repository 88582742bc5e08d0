"""A forecaster: an encoder with a causal mask predicts each next value of noisy waves."""

import keras
import numpy as np

from tf_transformer.layers import Encoder, PositionalEncoding

LENGTH = 48


def waves(count: int, seed: int) -> np.ndarray:
    """Returns noisy waves of random periods and phases, [count, LENGTH + 1, 1]."""
    random = np.random.default_rng(seed)
    periods, phases = random.uniform([[[6]], [[0]]], [[[24]], [[6.3]]], (2, count, 1))
    series = np.sin(2 * np.pi * np.arange(LENGTH + 1) / periods + phases)
    return (series + random.normal(0, 0.05, series.shape))[..., None].astype("float32")


def make_model() -> keras.Model:
    values = keras.Input((None, 1))
    hidden = PositionalEncoding()(keras.layers.Dense(32)(values))
    encoder = Encoder(2, num_heads=4, d_ff=64, norm_first=True, activation="gelu")
    return keras.Model(values, keras.layers.Dense(1)(encoder(hidden, use_causal_mask=True)))


keras.utils.set_random_seed(1)
model = make_model()
model.compile(keras.optimizers.Adam(5e-3), "mse")
train, test = waves(2_000, seed=1), waves(200, seed=2)
model.fit(train[:, :-1], train[:, 1:], batch_size=64, epochs=8, verbose=0)

error = model.evaluate(test[:, :-1], test[:, 1:], verbose=0)
naive = float(np.mean((test[:, 1:] - test[:, :-1]) ** 2))
print(f"mean squared error {error:.3f}; forecasting the last value gives {naive:.3f}")
assert error < naive / 3
