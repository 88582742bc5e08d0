"""An endless dataset for Keras models, also in environments without this package."""

import tensorflow as tf


def dataset_of(arrays) -> tf.data.Dataset:
    """Repeats the batches with one signature for all lengths, like the package's training."""
    ids = tf.TensorSpec([None, None], tf.int32)

    def generate():
        while True:
            for source, target, labels in arrays:
                yield {"source": source, "target": target}, labels

    signature = ({"source": ids, "target": ids}, ids)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    options = tf.data.Options()
    options.autotune.enabled = False  # the end of `fit` would wait for the tuner
    return dataset.prefetch(2).with_options(options)
