"""A classifier of sentences: the Transformer's encoder (paper 3.1) and a projection."""

import keras

from tf_transformer.layers import Encoder, MeanPooling
from tf_transformer.models.parts import arguments_of, clonable, make_embedding, stack_arguments
from tf_transformer.models.token_model import TokenModel


@keras.saving.register_keras_serializable(package="tf_transformer")
class Classifier(TokenModel):
    """Input {"source": [B, S]}, integer ids with 0 for padding; output float32 logits [B, C].

    Embedding and encoder are those of `Transformer`, with the same arguments and defaults, and
    in a tied model the same names. Above them the mean over the real positions: the encoder
    of a translation model has no position that stands for the sentence. Then dropout and a
    dense layer.

    Labels are classes from 1 on; 0 is for rows of padding, which have no column. For losses
    and metrics of Keras, which number classes from 0, give them `labels - 1`.

    Args:
        vocab_size: V.
        num_classes: C, at least 2.
        num_layers, d_model, d_ff, num_heads, key_dim, value_dim: sizes of the encoder.
        dropout: as in the Transformer, and on the mean.
        norm_first, positions, max_length, attention_bias, activation, norm_epsilon: see
            `Transformer`.

    Raises:
        ValueError: if there are fewer than two classes.

    Example:
        >>> model = Classifier(vocab_size=100, num_classes=3, num_layers=2, d_model=64,
        ...                    d_ff=128, num_heads=4)
        >>> model({"source": np.array([[5, 6, 3, 0]])}).shape
        TensorShape([1, 3])
    """

    first_label = 1
    unit = "sentences"

    @clonable
    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        num_layers: int = 6,
        d_model: int = 512,
        d_ff: int = 2048,
        num_heads: int = 8,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.1,
        norm_first: bool = False,
        positions: str = "sinusoidal",
        max_length: int | None = None,
        attention_bias: bool = False,
        activation: str = "relu",
        norm_epsilon: float = 1e-6,
        dtype=None,
        **kwargs,
    ):
        if num_classes < 2:
            raise ValueError(f"`num_classes` must be at least 2. Received: {num_classes}.")
        arguments = {
            "vocab_size": vocab_size,
            "num_classes": num_classes,
            "num_layers": num_layers,
            "d_model": d_model,
            "d_ff": d_ff,
            "num_heads": num_heads,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "dropout": dropout,
            "norm_first": norm_first,
            "positions": positions,
            "max_length": max_length,
            "attention_bias": attention_bias,
            "activation": activation,
            "norm_epsilon": norm_epsilon,
        }
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        embedding = make_embedding(arguments, policy, "embedding")
        encoder = Encoder(**stack_arguments(arguments, policy), name="encoder")

        source = keras.Input((None,), dtype="int32", name="source")
        mean = MeanPooling(name="pooling")(encoder(embedding(source)))
        mean = keras.layers.Dropout(dropout, name="dropout", dtype="float32")(mean)
        logits = keras.layers.Dense(num_classes, name="classes", dtype="float32")(mean)

        self._adopt({"source": source}, logits, **kwargs)

    def _adopt(self, inputs, outputs, **kwargs):
        """Becomes the model of a graph of these layers, its own or that of a clone."""
        super().__init__(inputs, outputs, **kwargs)
        layers = {layer.name: layer for layer in self.layers}
        self.embedding = layers["embedding"]
        self.encoder = layers["encoder"]
        self.dtype_policy = self.encoder.dtype_policy
        own = {"num_classes": layers["classes"].units}
        self.arguments = arguments_of(self.embedding, self.encoder) | own

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        own = {"name": self.name, "trainable": self.trainable, "dtype": policy}
        return own | self.arguments
