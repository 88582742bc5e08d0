"""A captioner: an encoder reads 16 patches of a noisy image, a decoder names the bright one."""

import keras
import numpy as np

from tf_transformer.layers import Decoder, Encoder, PositionalEmbedding, PositionalEncoding

WORDS = ["", "<start>", "<end>", "row", "column", "1", "2", "3", "4"]  # 0 is padding


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    cells = random.integers(0, 4, (count, 2))
    bright = [np.kron(np.outer(*np.eye(4)[cell]), np.ones((4, 4))) for cell in cells]
    pixels = bright + random.normal(0, 0.3, (count, 16, 16))
    captions = np.array([[1, 3, 5 + row, 4, 5 + column, 2] for row, column in cells])
    return pixels[..., None].astype("float32"), captions


def make_model() -> keras.Model:
    image, caption = keras.Input((16, 16, 1)), keras.Input((None,), dtype="int32")
    patches = keras.layers.Reshape((16, 32))(keras.layers.Conv2D(32, 4, strides=4)(image))
    embedding = PositionalEmbedding(len(WORDS), 32)
    encoded = Encoder(1, num_heads=4, d_ff=64, norm_first=True)(PositionalEncoding()(patches))
    decoded = Decoder(1, num_heads=4, d_ff=64, norm_first=True)(embedding(caption), encoded)
    return keras.Model([image, caption], embedding(decoded, reverse=True))


keras.utils.set_random_seed(1)
model = make_model()
model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(True))
pixels, captions = images(1_500, seed=1)
model.fit([pixels, captions[:, :-1]], captions[:, 1:], batch_size=64, epochs=6, verbose=0)
pixels, captions = images(100, seed=2)
said = captions[:, :1]
for _ in range(5):
    said = np.append(said, np.argmax(model([pixels, said])[:, -1:], axis=-1), axis=1)
print(" ".join(WORDS[word] for word in said[0]))
assert np.mean(said == captions) > 0.95
