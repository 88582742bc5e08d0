"""A sentence classifier: the Transformer's encoder (paper 3.1), pooling and a projection."""

import keras

from tf_transformer.config import ModelConfig
from tf_transformer.layers import Encoder, MeanPooling
from tf_transformer.models.configured import (
    ConfiguredModel,
    config_of,
    make_embedding,
    make_stack,
)


@keras.saving.register_keras_serializable(package="tf_transformer")
class Classifier(ConfiguredModel):
    """Sentence classifier that maps source ids to logits of C classes.

    The input is {"source": [B, S]}, integer ids with 0 for padding; the output is float32
    logits [B, C]. The embedding and encoder are those of `Transformer`, named as in a tied
    model. They are followed by the mean over the real positions (no position of a translation
    model's encoder represents the sentence), dropout, and a dense layer.

    Labels number the classes from 1; 0 marks rows of padding and has no column. Keras's losses
    and metrics number classes from 0: give them `labels - 1`.

    Args:
        config: a `ModelConfig`, or its fields as arguments:
        {settings}
        num_classes: C, at least 2.
        dtype, name, trainable: as in any Keras model; `dtype` is the layers' policy.

    Raises:
        UserError: if a setting is out of range.
        ValueError: if there are fewer than two classes.

    Example:
        >>> model = Classifier(vocab_size=100, num_classes=3, num_layers=2, d_model=64,
        ...                    d_ff=128, num_heads=4)
        >>> model({"source": np.array([[5, 6, 3, 0]])}).shape
        TensorShape([1, 3])
    """

    first_label = 1
    unit = "sentences"
    unused = ("decoder_layers", "tie_embeddings", "output_bias")
    why_unused = "a classifier has no decoder"

    @staticmethod
    def graph(config: ModelConfig, policy, num_classes: int):
        """Connects embedding, encoder, mean, dropout and dense layer."""
        if num_classes < 2:
            raise ValueError(f"`num_classes` must be at least 2. Received: {num_classes}.")
        embedding = make_embedding(config, policy, "embedding", output_bias=False)
        encoder = make_stack(Encoder, config, policy, "encoder")

        source = keras.Input((None,), dtype="int32", name="source")
        mean = MeanPooling(name="pooling")(encoder(embedding(source)))
        mean = keras.layers.Dropout(config.dropout, name="dropout", dtype="float32")(mean)
        logits = keras.layers.Dense(num_classes, name="classes", dtype="float32")(mean)
        return {"source": source}, logits

    def take_layers(self, layers) -> None:
        """Sets the attributes from the layers of the graph."""
        self.embedding = layers["embedding"]
        self.encoder = layers["encoder"]
        self.dtype_policy = self.encoder.dtype_policy
        self.config = config_of(self.embedding, self.encoder)
        self.extra = {"num_classes": layers["classes"].units}
