"""The paper's equations in NumPy, written out per head: what the layers are compared with.

Weights are the arrays of a layer's variables, by the names of its attributes.
"""

import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention_weights(query, key, mask=None) -> np.ndarray:
    """The softmax of equation 1 for one sentence and one head: [T, K], [S, K] -> [T, S]."""
    scores = query @ key.T / np.sqrt(query.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores)


def attention(query, key, value, mask=None) -> np.ndarray:
    """Equation 1 for one sentence and one head: [T, K], [S, K], [S, value_dim]."""
    return attention_weights(query, key, mask) @ value


def multi_head_weights(layer, query, value, mask=None) -> np.ndarray:
    """[B, T, D] and [B, S, D] -> [B, H, T, S]; mask [T, S]."""
    return np.array(
        [
            [
                attention_weights(*heads, mask)
                for heads in zip(
                    projected_heads(layer, "query", queries),
                    projected_heads(layer, "key", values),
                    strict=True,
                )
            ]
            for queries, values in zip(query, value, strict=True)
        ]
    )


def multi_head(layer, query, value, mask=None) -> np.ndarray:
    """Paper 3.2.2: [B, T, D] and [B, S, D] -> [B, T, D]; mask [T, S]."""
    rows = []
    for queries, values in zip(query, value, strict=True):
        outputs = [
            attention(*parts, mask)
            for parts in zip(
                projected_heads(layer, "query", queries),
                projected_heads(layer, "key", values),
                projected_heads(layer, "value", values),
                strict=True,
            )
        ]
        output = np.concatenate(outputs, axis=-1) @ layer.output_kernel.numpy()
        rows.append(output + (layer.output_bias.numpy() if layer.use_bias else 0))
    return np.stack(rows)


def projected_heads(layer, name: str, x) -> list[np.ndarray]:
    """Queries, keys or values of each head: [T, D] -> H arrays [T, K]."""
    projected = x @ getattr(layer, f"{name}_kernel").numpy()
    if layer.use_bias:
        projected = projected + getattr(layer, f"{name}_bias").numpy()
    return np.split(projected, layer.num_heads, axis=1)


def feed_forward(layer, x) -> np.ndarray:
    """Equation 2, or with x / (1 + exp(-x)) in place of max(0, x)."""
    inner = x @ layer.inner.kernel.numpy() + layer.inner.bias.numpy()
    swish = layer.activation == "swish"
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
    length = x.shape[1]
    causal = np.tri(length, dtype=bool)
    cross = layer.cross_attention
    x = add_and_norm(
        layer.self_attention_norm,
        x,
        lambda x: multi_head(layer.self_attention, x, x, causal),
    )
    x = add_and_norm(
        layer.cross_attention_norm, x, lambda x: multi_head(cross, x, encoder_output)
    )
    return add_and_norm(
        layer.feed_forward_norm, x, lambda x: feed_forward(layer.feed_forward, x)
    )


def randomized(layer) -> None:
    """Gives every weight random values: fresh biases of 0 and scales of 1 would hide errors."""
    random = np.random.default_rng(2)
    for weight in layer.trainable_weights:
        weight.assign(random.normal(scale=0.5, size=weight.shape))
