"""A sentence classifier: the Transformer's encoder (paper 3.1), pooling and a projection."""

import keras

from tf_transformer.config.config import DEFAULT_GAIN
from tf_transformer.layers import Encoder, MeanPooling, PositionalEmbedding
from tf_transformer.models.transformer import BaseTransformer, arguments_of, config_of


@keras.saving.register_keras_serializable(package="tf_transformer")
class Classifier(BaseTransformer):
    """Sentence classifier that maps source ids to logits of C classes.

    The input is {"source": [B, S]}, integer ids with 0 for padding; the output is float32
    logits [B, C]. The embedding and encoder are those of `Transformer`, named as in a tied
    model. They are followed by the mean over the real positions (no position of a translation
    model's encoder represents the sentence), dropout, and a dense layer.

    Labels number the classes from 1; 0 marks rows of padding and has no column. Keras's losses
    and metrics number classes from 0: give them `labels - 1`.

    Args:
        vocab_size: V, the number of word pieces, shared by source and target.
        num_classes: C, at least 2.
        num_layers: N, layers in the encoder, and in the decoder by default.
        d_model: D, the width of every sublayer's output; even.
        d_ff: F, the inner width of the feed-forward networks.
        num_heads: H, attention heads per sublayer.
        key_dim: K, the width of a head's queries and keys; d_model / num_heads if None.
        value_dim: width of a head's values; d_model / num_heads if None.
        dropout: rate on sublayer outputs and on embeddings plus positions.
        attention_dropout: rate on attention weights; the paper has none there.
        activation_dropout: rate after the activation of feed-forward networks; the paper has
            none there.
        norm_first: pre-LN, with a final norm on both stacks, instead of the paper's post-LN.
        positions: how the model knows the order of tokens: sinusoidal (sines and cosines added
            to the embeddings), learned (vectors added to the embeddings), relative (vectors of
            distances added in self-attention), rotary (queries and keys of self-attention
            rotated), none (nothing).
        attention_window: positions to each side (back, in a decoder) that self-attention sees;
            0: all.
        max_length: longest input if positions are learned.
        source_positions: learned positions that sources have trained, set by training;
            max_length if None.
        attention_bias: biases in the projections of attention; the paper has none.
        activation: activation of the feed-forward networks; in the last two it gates a second
            inner projection of width F ('relu', 'swish', 'swiglu' or 'geglu').
        norm: kind of every norm ('layer' or 'rms').
        norm_epsilon: added to the variance in every norm.
        query_key_gain: gain of the Xavier uniform initialisation of query and key kernels.
        value_gain: gain of the Xavier uniform initialisation of value kernels.
        dtype: policy of all layers; Keras's global policy if None.
        name: as in any Keras model.
        trainable: as in any Keras model.

    Attributes:
        config: the `ModelConfig` of these arguments.
        embedding: the `PositionalEmbedding`.
        encoder: the `Encoder`.

    Raises:
        UserError: if a setting is out of range.
        ValueError: if there are fewer than two classes.

    Example:
        >>> import numpy as np
        >>> model = Classifier(vocab_size=100, num_classes=3, num_layers=2, d_model=64,
        ...                    d_ff=128, num_heads=4)
        >>> model({"source": np.array([[5, 6, 3, 0]])}).shape
        TensorShape([1, 3])
    """

    first_label = 1
    unit = "sentences"

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        *,
        num_layers: int = 6,
        d_model: int = 512,
        d_ff: int = 2048,
        num_heads: int = 8,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        norm_first: bool = False,
        positions: str = "sinusoidal",
        attention_window: int = 0,
        max_length: int = 1024,
        source_positions: int | None = None,
        attention_bias: bool = False,
        activation: str = "relu",
        norm: str = "layer",
        norm_epsilon: float = 1e-06,
        query_key_gain: float = DEFAULT_GAIN,
        value_gain: float = DEFAULT_GAIN,
        dtype: str | dict | keras.DTypePolicy | None = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        if num_classes < 2:
            raise ValueError(f"`num_classes` must be at least 2. Received: {num_classes}.")
        config = config_of(locals())
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        arguments = arguments_of(PositionalEmbedding, config)
        embedding = PositionalEmbedding(**arguments, name="embedding", dtype=policy)
        encoder = Encoder(**arguments_of(Encoder, config), name="encoder", dtype=policy)

        source = keras.Input((None,), dtype="int32", name="source")
        mean = MeanPooling(name="pooling")(encoder(embedding(source)))
        mean = keras.layers.Dropout(dropout, name="dropout", dtype="float32")(mean)
        logits = keras.layers.Dense(num_classes, name="classes", dtype="float32")(mean)
        super().__init__({"source": source}, logits, name=name, trainable=trainable)
        self.dtype_policy = policy
        self.config = config
        self.num_classes = num_classes
        self.embedding = embedding
        self.encoder = encoder

    def get_config(self):
        settings = arguments_of(Classifier, self.config)
        return super().get_config() | settings | {"num_classes": self.num_classes}
