"""A language model: a decoder-only stack learns to count in words, letter by letter."""

import keras
import numpy as np

from tf_transformer.layers import Decoder, PositionalEmbedding

TEXT = "one two three four five six seven eight nine ten " * 40
LETTERS = sorted(set(TEXT))
IDS = np.array([1 + LETTERS.index(letter) for letter in TEXT], "int32")  # 0 is padding
LENGTH = 48


def make_model() -> keras.Model:
    embedding = PositionalEmbedding(1 + len(LETTERS), d_model=32)
    decoder = Decoder(2, num_heads=4, d_ff=64, norm_first=True, cross_attention=False)
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, embedding(decoder(embedding(ids)), reverse=True))


def continued(model: keras.Model, text: str, letters: int) -> str:
    for _ in range(letters):
        ids = np.array([[1 + LETTERS.index(letter) for letter in text[-LENGTH:]]], "int32")
        text += LETTERS[int(np.argmax(model(ids)[0, -1])) - 1]
    return text


keras.utils.set_random_seed(1)
model = make_model()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(5e-3), loss)
starts = np.arange(len(IDS) - LENGTH - 1)
windows = np.stack([IDS[start : start + LENGTH + 1] for start in starts])
model.fit(windows[:, :-1], windows[:, 1:], batch_size=64, epochs=3, verbose=0)

answer = continued(model, "one two three four ", letters=20)
print(answer)
assert answer == "one two three four five six seven eight"
