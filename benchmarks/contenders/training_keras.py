"""A training step with the layers of Keras or KerasHub, by the paper's recipe.

"hub" uses KerasHub's TransformerEncoder and TransformerDecoder, "layers" Keras's own
MultiHeadAttention; both train by `fit`, with Keras's Adam.
"""

import keras
import keras_hub
from endless import dataset_of
from harness.arrays import load_batches, real_tokens
from harness.child import serve
from keras import ops


def setup(batches: str, model: dict, precision: str, kind: str) -> dict:
    """Args:
    batches: path of the file of batches.
    model: arguments of ModelConfig.
    precision: Keras's dtype policy.
    kind: "hub" or "layers".
    """
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(precision)
    arrays = load_batches(batches)
    blocks = {"hub": hub_blocks, "layers": layer_blocks}[kind]
    transformer = build(model, *blocks(model))
    transformer.compile(
        keras.optimizers.Adam(1e-4, beta_2=0.98, epsilon=1e-9), smoothed_cross_entropy
    )
    dataset = dataset_of(arrays)

    def work() -> dict:
        history = transformer.fit(
            dataset, epochs=1, steps_per_epoch=len(arrays), shuffle=False, verbose=0
        )
        return real_tokens(arrays) | {"loss": history.history["loss"][0]}

    return {"work": work}


def build(model: dict, encode, decode) -> keras.Model:
    """Builds the functional model: tied, scaled embeddings, sinusoids and the two stacks."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    words = keras_hub.layers.ReversibleEmbedding(
        model["vocab_size"],
        model["d_model"],
        embeddings_initializer=keras.initializers.RandomNormal(0, model["d_model"] ** -0.5),
    )
    positions = keras_hub.layers.SinePositionEncoding()

    def embed(ids):
        embedded = words(ids) * model["d_model"] ** 0.5
        return keras.layers.Dropout(model["dropout"])(embedded + positions(embedded))

    mask = ops.not_equal(source, 0)
    encoded = encode(embed(source), mask)
    logits = words(decode(embed(target), encoded, mask), reverse=True)
    return keras.Model({"source": source, "target": target}, logits)


def hub_blocks(model: dict):
    """Builds the stacks of KerasHub."""
    sizes = (model["d_ff"], model["num_heads"], model["dropout"])

    def encode(x, mask):
        for _ in range(model["num_layers"]):
            x = keras_hub.layers.TransformerEncoder(*sizes)(x, padding_mask=mask)
        return x

    def decode(x, encoded, mask):
        for _ in range(model["num_layers"]):
            layer = keras_hub.layers.TransformerDecoder(*sizes)
            x = layer(x, encoded, encoder_padding_mask=mask)
        return x

    return encode, decode


def layer_blocks(model: dict):
    """Builds the stacks from keras.layers only."""
    heads, size = model["num_heads"], model["d_model"] // model["num_heads"]

    def add_and_norm(x, y):
        y = keras.layers.Dropout(model["dropout"])(y)
        return keras.layers.LayerNormalization(epsilon=1e-6)(x + y)

    def attend(x, memory, **masks):
        return keras.layers.MultiHeadAttention(heads, size, use_bias=False)(x, memory, **masks)

    def feed_forward(x):
        inner = keras.layers.Dense(model["d_ff"], activation="relu")(x)
        return keras.layers.Dense(model["d_model"])(inner)

    def encode(x, mask):
        for _ in range(model["num_layers"]):
            x = add_and_norm(x, attend(x, x, attention_mask=mask[:, None, :]))
            x = add_and_norm(x, feed_forward(x))
        return x

    def decode(x, encoded, mask):
        for _ in range(model["num_layers"]):
            x = add_and_norm(x, attend(x, x, use_causal_mask=True))
            x = add_and_norm(x, attend(x, encoded, attention_mask=mask[:, None, :]))
            x = add_and_norm(x, feed_forward(x))
        return x

    return encode, decode


@keras.saving.register_keras_serializable()
def smoothed_cross_entropy(labels, logits, smoothing=0.1):
    """Returns the mean over real tokens, without one-hot tensors."""
    logits = ops.cast(logits, "float32")
    labels = ops.cast(labels, "int32")
    total = ops.logsumexp(logits, axis=-1)
    chosen = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    smooth = (1 - smoothing) * chosen + smoothing * ops.mean(logits, axis=-1)
    weights = ops.cast(labels != 0, "float32")
    return ops.sum((total - smooth) * weights) / ops.sum(weights)


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras", "keras-hub")
