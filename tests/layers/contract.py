"""What every layer promises, checked the same way for all of them.

A test module lists its layers as `Case`s and runs `CONTRACT` over them; layers that read
sequences also pass `check_padding_is_ignored`.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

Case = NamedTuple(
    "Case",
    [
        ("layer", type[keras.layers.Layer]),
        ("arguments", dict[str, Any]),
        ("inputs", dict[str, np.ndarray]),  # by the names of the call arguments
    ],
)


def hidden_states(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def case_name(case: Case) -> str:
    values = ",".join(f"{name}={value}" for name, value in case.arguments.items())
    return f"{case.layer.__name__}({values};{','.join(case.inputs)})"


def _layer(case: Case, dtype: str = "float32") -> keras.layers.Layer:
    keras.utils.set_random_seed(1)
    return case.layer(**case.arguments, dtype=dtype)


def _called(case: Case, dtype: str = "float32") -> tuple[keras.layers.Layer, Any]:
    """A layer and its eager outputs."""
    layer = _layer(case, dtype)
    return layer, layer(*case.inputs.values())


def _model(layer: keras.layers.Layer, case: Case, static: bool = True) -> keras.Model:
    """A functional model of the layer alone; batch and length are unknown unless `static`."""
    inputs = [
        keras.Input(batch_shape=array.shape, dtype=array.dtype.name)
        if static
        else keras.Input((None, *array.shape[2:]), dtype=array.dtype.name)
        for array in case.inputs.values()
    ]
    return keras.Model(inputs, layer(*inputs))


def check_shapes_alone_build_every_weight(case: Case) -> None:
    built, (called, _) = _layer(case), _called(case)
    built.build(**{f"{name}_shape": array.shape for name, array in case.inputs.items()})
    for layer in built._flatten_layers():
        assert layer.built, f"`build` left out {layer.name}"
    assert [weight.shape for weight in built.weights] == [
        weight.shape for weight in called.weights
    ]
    built.set_weights(called.get_weights())
    np.testing.assert_array_equal(
        built(*case.inputs.values()), called(*case.inputs.values())
    )


def check_symbolic_output_is_that_of_eager_calls(case: Case) -> None:
    layer, eager = _called(case)
    static = _model(layer, case).outputs[0]
    assert (static.shape, static.dtype) == (tuple(eager.shape), eager.dtype.name)
    dynamic = _model(layer, case, static=False).outputs[0]
    assert dynamic.shape == (None, None, *eager.shape[2:])


def check_config_round_trip(case: Case) -> None:
    config = _layer(case).get_config()
    assert config.items() >= case.arguments.items()
    serialized = keras.saving.serialize_keras_object(_layer(case))
    assert serialized["registered_name"] == f"tf_transformer>{case.layer.__name__}"
    again = keras.saving.deserialize_keras_object(serialized)
    assert type(again) is case.layer
    assert again.get_config() == config


def check_saved_model_reloads_with_equal_outputs(case: Case, folder: Path) -> None:
    model = _model(_layer(case), case)
    model.save(folder / "layer.keras")
    again = keras.saving.load_model(folder / "layer.keras")
    arrays = list(case.inputs.values())
    np.testing.assert_array_equal(again(arrays), model(arrays))


def check_training_step_changes_every_weight(case: Case) -> None:
    model = _model(_layer(case), case)
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
    before = model.get_weights()
    labels = hidden_states(*model.outputs[0].shape, seed=9)
    model.train_on_batch(list(case.inputs.values()), labels)
    for weight, old, new in zip(model.weights, before, model.get_weights(), strict=True):
        if "seed" not in weight.path:
            assert np.any(old != new), f"{weight.path} was not trained"
            assert np.all(np.isfinite(new)), weight.path


def check_mixed_precision(case: Case, policy: str) -> None:
    layer, outputs = _called(case, policy)
    for part in layer._flatten_layers():
        assert part.dtype_policy.name == policy, part.name
    for weight in layer.trainable_weights:
        assert weight.dtype == "float32", weight.path
    _, float32_outputs = _called(case)
    is_logits = outputs.dtype == float32_outputs.dtype
    assert outputs.dtype.name == ("float32" if is_logits else layer.compute_dtype)
    difference = keras.ops.cast(outputs, "float32") - float32_outputs
    assert np.max(np.abs(difference)) < 0.25  # eight bits; NaN would fail as well


def check_equal_shapes_start_different(case: Case) -> None:
    layer, _ = _called(case)
    kernels = [weight for weight in layer.trainable_weights if len(weight.shape) == 2]
    for one, other in itertools.combinations(kernels, 2):
        if one.shape == other.shape:
            assert np.any(one.numpy() != other.numpy()), f"{one.path} = {other.path}"


CONTRACT: list[Callable[[Case, Path], None]] = [
    lambda case, _: check_shapes_alone_build_every_weight(case),
]


def check_padding_is_ignored(case: Case) -> None:
    """Masked positions behind every input change nothing, and the first mask goes on."""
    layer, expected = _called(case)
    padded = [
        keras.layers.Masking()(np.pad(array, ((0, 0), (0, 2), (0, 0))))
        for array in case.inputs.values()
    ]
    outputs = layer(*padded)
    length = expected.shape[1]
    np.testing.assert_allclose(outputs[:, :length], expected, rtol=1e-5, atol=1e-5)
    mask = np.arange(length + 2) < length
    np.testing.assert_array_equal(outputs._keras_mask, [mask] * len(expected))
