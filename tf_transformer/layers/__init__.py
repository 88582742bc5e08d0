"""The Transformer's Keras layers (paper 3), in keras.ops only.

Shapes: B batch, S source length, T target length, D d_model, F d_ff, H heads, K key dimension,
V vocabulary, W beam width.
"""

from tf_transformer.layers.attention import (
    MultiHeadAttention,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from tf_transformer.layers.block import BlockOptions
from tf_transformer.layers.decoder import Decoder, DecoderLayer
from tf_transformer.layers.embedding import PositionalEmbedding, PositionalEncoding
from tf_transformer.layers.encoder import Encoder, EncoderLayer
from tf_transformer.layers.feed_forward import AddAndNorm, FeedForward
from tf_transformer.layers.positions import sinusoidal_positions

# fmt: off
__all__ = [
    "AddAndNorm", "BlockOptions", "Decoder", "DecoderLayer", "Encoder", "EncoderLayer",
    "FeedForward", "MultiHeadAttention", "PositionalEmbedding", "PositionalEncoding",
    "causal_mask", "padding_mask", "scaled_dot_product_attention", "sinusoidal_positions",
]
# fmt: on
