"""The contract of every layer, checked the same way for all of them.

A test module lists its layers as `Case`s and calls `check_layer` with every one of them; layers
that map sequences of hidden states also pass `check_padding_is_ignored`.
"""

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np


class Case(NamedTuple):
    """A layer class, the arguments of its constructor and the inputs of its `call`."""

    layer: type[keras.layers.Layer]
    arguments: dict[str, Any]
    inputs: dict[str, np.ndarray]
    gives_logits: bool = False

    def __str__(self) -> str:
        values = [f"{name}={value}" for name, value in self.arguments.items()]
        return f"{self.layer.__name__}({', '.join(values)}; {', '.join(self.inputs)})"


def hidden_states(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def check_layer(case: Case, folder: Path) -> None:
    """Checks the whole contract; `folder` receives a saved model."""
    check_build_from_shapes_makes_every_weight(case)
    check_symbolic_output_is_that_of_eager_calls(case)
    check_config_round_trip(case)
    check_saved_model_reloads_with_equal_outputs(case, folder)
    check_training_step_changes_every_weight(case)
    check_equal_shapes_start_different(case)
    check_mixed_precision(case)


def check_build_from_shapes_makes_every_weight(case: Case) -> None:
    built, (called, outputs) = make_layer(case), call_layer(case)
    built.build(**{f"{name}_shape": array.shape for name, array in case.inputs.items()})
    assert [weight.shape for weight in built.weights] == [
        weight.shape for weight in called.weights
    ]
    built.set_weights(called.get_weights())
    np.testing.assert_array_equal(built(*case.inputs.values()), outputs)


def check_symbolic_output_is_that_of_eager_calls(case: Case) -> None:
    layer, eager = call_layer(case)
    (symbolic,) = make_model(layer, case).outputs
    assert (symbolic.shape, symbolic.dtype) == (tuple(eager.shape), eager.dtype.name)
    unknown = [
        keras.Input((None, *array.shape[2:]), dtype=array.dtype.name)
        for array in case.inputs.values()
    ]
    assert layer(*unknown).shape == (None, None, *eager.shape[2:])


def check_config_round_trip(case: Case) -> None:
    layer = make_layer(case)
    config = layer.get_config()
    assert case.arguments.items() <= config.items()
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(again) is case.layer
    assert again.get_config() == config


def check_saved_model_reloads_with_equal_outputs(case: Case, folder: Path) -> None:
    model = make_model(make_layer(case), case)
    model.save(folder / "layer.keras")
    again = keras.saving.load_model(folder / "layer.keras")
    arrays = list(case.inputs.values())
    np.testing.assert_array_equal(again(arrays), model(arrays))


def check_training_step_changes_every_weight(case: Case) -> None:
    model = make_model(make_layer(case), case)
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
    before = [weight.numpy() for weight in model.trainable_weights]
    labels = hidden_states(*model.outputs[0].shape, seed=9)
    model.train_on_batch(list(case.inputs.values()), labels)
    assert before
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.any(weight.numpy() != old), f"{weight.path} was not trained"


def check_equal_shapes_start_different(case: Case) -> None:
    layer, _ = call_layer(case)
    matrices = [weight for weight in layer.trainable_weights if len(weight.shape) == 2]
    for one, other in itertools.combinations(matrices, 2):
        if one.shape == other.shape:
            assert np.any(one.numpy() != other.numpy()), f"{one.path} is {other.path}"


def check_mixed_precision(case: Case) -> None:
    _, expected = call_layer(case)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        layer, outputs = call_layer(case, policy)
        for part in layer._flatten_layers():
            assert part.dtype_policy.name == policy, part.name
        assert {weight.dtype for weight in layer.trainable_weights} == {"float32"}
        dtype = "float32" if case.gives_logits else layer.compute_dtype
        assert outputs.dtype.name == dtype
        # NaN and infinity are not close to anything; bfloat16 keeps eight bits.
        np.testing.assert_allclose(keras.ops.cast(outputs, "float32"), expected, atol=0.1)


def check_padding_is_ignored(case: Case) -> None:
    """Masked positions at the end of every input change nothing; the first mask is kept."""
    layer, expected = call_layer(case)
    padded = [
        keras.layers.Masking()(np.pad(array, ((0, 0), (0, 2), (0, 0))))
        for array in case.inputs.values()
    ]
    outputs = layer(*padded)
    length = expected.shape[1]
    np.testing.assert_allclose(outputs[:, :length], expected, atol=1e-5)
    mask = np.arange(length + 2) < length
    np.testing.assert_array_equal(outputs._keras_mask, [mask] * len(expected))


def make_layer(case: Case, dtype: str = "float32") -> keras.layers.Layer:
    keras.utils.set_random_seed(1)
    return case.layer(**case.arguments, dtype=dtype)


def call_layer(case: Case, dtype: str = "float32") -> tuple[keras.layers.Layer, Any]:
    """A new layer and its outputs; equal cases get equal weights."""
    layer = make_layer(case, dtype)
    return layer, layer(*case.inputs.values())


def make_model(layer: keras.layers.Layer, case: Case) -> keras.Model:
    """A functional model with this layer only, for the shapes of the case."""
    inputs = [
        keras.Input(batch_shape=array.shape, dtype=array.dtype.name)
        for array in case.inputs.values()
    ]
    return keras.Model(inputs, layer(*inputs))


# --- The paper's equations in NumPy ------------------------------------------------------


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
    """Equation 2; Shazeer 2020 for "swiglu" and "geglu"."""

    def times(dense, x):
        return x @ dense.kernel.numpy() + dense.bias.numpy()

    activation = layer.get_config()["activation"]
    inner = ACTIVATIONS[activation](times(layer.inner, x))
    if activation.endswith("glu"):
        inner = inner * times(layer.gated, x)
    return times(layer.outer, inner)


def swish(x) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x) -> np.ndarray:
    return x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2


ACTIVATIONS = {
    "relu": lambda x: np.maximum(0, x), "silu": swish, "swiglu": swish, "geglu": gelu,
}  # fmt: skip


def rms_norm(layer, x, epsilon: float = 1e-6) -> np.ndarray:
    """Zhang and Sennrich 2019, equation 4."""
    return layer.scale.numpy() * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)


def layer_norm(layer, x, epsilon: float = 1e-6) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return layer.gamma.numpy() * centred / deviation + layer.beta.numpy()


def randomized(layer) -> None:
    """Gives every weight random values, as initial biases of 0 and scales of 1 hide errors."""
    random = np.random.default_rng(2)
    for weight in layer.trainable_weights:
        weight.assign(random.normal(scale=0.5, size=weight.shape))
