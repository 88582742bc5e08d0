"""KerasHub's TransformerDecoder with its caches and samplers.

The weights are random, so it is only measured on forced lengths.
"""

import functools

import keras
import keras_hub
import tensorflow as tf
from harness.child import serve
from harness.sentences import BOS, Work, with_eos
from keras import ops


def setup(work: str, precision: str) -> dict:
    """Args:
    work: the folder of the work.
    precision: Keras's dtype policy.
    """
    keras.config.set_dtype_policy(precision)
    given = Work(work)
    model = _Model(given.model)

    @functools.cache
    def searcher(beam: int, forced: int):
        sampler = keras_hub.samplers.BeamSampler(num_beams=beam)
        if beam == 1:
            sampler = keras_hub.samplers.GreedySampler()

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
        def search(source):
            batch = ops.shape(source)[0]
            prompt = tf.concat(
                [tf.fill([batch, 1], BOS), tf.zeros([batch, forced], tf.int32)], axis=1
            )
            step, cache = model.start(source, forced + 1)
            return sampler(step, prompt, cache=cache, index=1, mask=prompt == BOS)

        return lambda rows: search(tf.constant(with_eos(rows)))[:, 1:].numpy().tolist()

    def measured(batch: int, beam: int, forced: int, batches: int) -> dict:
        return given.decode(searcher(beam, forced), batch, batches)

    return {"work": measured}


class _Model:
    def __init__(self, model: dict) -> None:
        sizes = (model["d_ff"], model["num_heads"], model["dropout"])
        layers = range(model["num_layers"])
        self._heads = model["num_heads"]
        self._d_model = model["d_model"]
        self._encoders = [keras_hub.layers.TransformerEncoder(*sizes) for _ in layers]
        self._decoders = [keras_hub.layers.TransformerDecoder(*sizes) for _ in layers]
        self._words = keras_hub.layers.ReversibleEmbedding(model["vocab_size"], self._d_model)
        self._positions = keras_hub.layers.SinePositionEncoding()
        ids = tf.ones([1, 2], tf.int32)  # builds the layers
        embedded = self._embed(ids)
        for encoder, decoder in zip(self._encoders, self._decoders, strict=True):
            decoder(embedded, encoder(embedded))
        self._words(embedded, reverse=True)

    def _embed(self, ids, start=0):
        embedded = self._words(ids) * self._d_model**0.5
        return embedded + self._positions(embedded, start_index=start)

    def start(self, source, length: int):
        """Returns the sampler's step function and cache: encoder output, mask, keys, values."""
        mask = ops.not_equal(source, 0)
        encoded = self._embed(source)
        for encoder in self._encoders:
            encoded = encoder(encoded, padding_mask=mask)
        batch, size = ops.shape(source)[0], self._d_model // self._heads
        shape = (batch, len(self._decoders), 2, length, self._heads, size)
        own = ops.zeros(shape, dtype=encoded.dtype)
        cross = ops.stack(
            [_keys_and_values(decoder, encoded) for decoder in self._decoders], axis=1
        )
        return self._step, (encoded, mask, own, cross)

    def _step(self, prompt, cache, index):
        encoded, mask, own, cross = cache
        position = index - 1
        token = ops.slice(prompt, (0, position), (ops.shape(prompt)[0], 1))
        hidden = self._embed(token, start=position)
        caches = []
        for number, decoder in enumerate(self._decoders):
            hidden, updated, _ = decoder(
                hidden,
                encoded,
                encoder_padding_mask=mask,
                self_attention_cache=own[:, number],
                self_attention_cache_update_index=position,
                cross_attention_cache=cross[:, number],
            )
            caches.append(updated)
        logits = self._words(hidden, reverse=True)[:, 0]
        return logits, hidden[:, 0], (encoded, mask, ops.stack(caches, axis=1), cross)


def _keys_and_values(decoder, encoded):
    """Returns keys and values of the decoder's cross-attention, [B, 2, S, H, K]."""
    attention = decoder._cross_attention_layer
    return ops.stack([attention._key_dense(encoded), attention._value_dense(encoded)], axis=1)


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras", "keras-hub")
