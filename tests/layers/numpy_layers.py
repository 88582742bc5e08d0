"""The paper's equations in NumPy, to compare the layers with."""

import keras
import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention_weights(query, key, mask=None) -> np.ndarray:
    """The softmax of equation 1: [..., T, K], [..., S, K] -> [..., T, S]."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores)


def attention(query, key, value, mask=None) -> np.ndarray:
    """Equation 1: [..., T, K], [..., S, K], [..., S, value_dim] -> [..., T, value_dim]."""
    return attention_weights(query, key, mask) @ value


def multi_head_weights(layer, query, value, mask=None) -> np.ndarray:
    """[B, T, D] and [B, S, D] -> [B, H, T, S]; mask [T, S]."""
    queries, keys = heads_of(layer, "query", query), heads_of(layer, "key", value)
    return attention_weights(queries, keys, mask)


def multi_head(layer, query, value, mask=None) -> np.ndarray:
    """Paper 3.2.2: [B, T, D] and [B, S, D] -> [B, T, D]; mask [T, S]."""
    weights = multi_head_weights(layer, query, value, mask)
    heads = (weights @ heads_of(layer, "value", value)).swapaxes(0, 1)  # [H, B, T, value_dim]
    return projected(layer, "output", np.concatenate(heads, axis=-1))


def heads_of(layer, name: str, x) -> np.ndarray:
    """Queries, keys or values of all heads: [B, T, D] -> [B, H, T, K]."""
    return np.stack(np.split(projected(layer, name, x), layer.num_heads, axis=-1), axis=1)


def projected(layer, name: str, x) -> np.ndarray:
    dense = getattr(layer, f"{name}_dense")
    return x @ dense.kernel.numpy() + (dense.bias.numpy() if layer.use_bias else 0)


def feed_forward(layer, x) -> np.ndarray:
    """Equation 2; for swish with x / (1 + exp(-x)) instead of max(0, x)."""
    inner = x @ layer.inner.kernel.numpy() + layer.inner.bias.numpy()
    swish = layer.activation is keras.activations.silu
    inner = inner / (1 + np.exp(-inner)) if swish else np.maximum(0, inner)
    return inner @ layer.outer.kernel.numpy() + layer.outer.bias.numpy()


def layer_norm(layer, x, epsilon: float = 1e-6) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return layer.gamma.numpy() * centred / deviation + layer.beta.numpy()


def add_and_norm(layer, x, sublayer) -> np.ndarray:
    """Figure 1's residual connection around a function; with `norm_first`, pre-LN."""
    if layer.norm_first:
        return x + sublayer(layer_norm(layer.norm, x))
    return layer_norm(layer.norm, x + sublayer(x))


def before(layer, x) -> np.ndarray:
    """The input of a sublayer inside Add & Norm."""
    return layer_norm(layer.norm, x) if layer.norm_first else x


def encoder_layer(layer, x, mask=None) -> np.ndarray:
    """The left half of Figure 1."""
    attend, feed = layer.self_attention, layer.feed_forward
    x = add_and_norm(layer.self_attention_norm, x, lambda x: multi_head(attend, x, x, mask))
    return add_and_norm(layer.feed_forward_norm, x, lambda x: feed_forward(feed, x))


def decoder_layer(layer, x, encoder_output) -> np.ndarray:
    """The right half of Figure 1."""
    causal = np.tri(x.shape[1], dtype=bool)
    attend, cross, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
    x = add_and_norm(layer.self_attention_norm, x, lambda x: multi_head(attend, x, x, causal))
    x = add_and_norm(
        layer.cross_attention_norm, x, lambda x: multi_head(cross, x, encoder_output)
    )
    return add_and_norm(layer.feed_forward_norm, x, lambda x: feed_forward(feed, x))


def randomized(layer) -> None:
    """Gives every weight random values, as initial biases of 0 and scales of 1 hide errors."""
    random = np.random.default_rng(2)
    for weight in layer.trainable_weights:
        weight.assign(random.normal(scale=0.5, size=weight.shape))
