"""Training by XLA programs, one for each kind of layer, equals training without XLA."""

import os
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import (
    LOSS,
    batch,
    dataset,
    distance,
    fitted,
    metrics,
    stepped_by_hand,
    transformer,
)

from tf_transformer.base.architecture import POSITION_KINDS, PositionKind
from tf_transformer.fast.optimizers import Adam
from tf_transformer.fast.programs import draw_seeds, prune_cache
from tf_transformer.fast.recompute import by_programs
from tf_transformer.layers import positions
from tf_transformer.models import sums
from tf_transformer.run.checkpoints import restore_state, save_state
from tf_transformer.training.trainer import describe_programs

LATER = {"norm_first": True, "activation": "swiglu", "positions": "rotary", "norm": "rms"}
WINDOW = {"positions": "relative", "attention_window": 2, "attention_bias": True}
UNTIED = {"tie_embeddings": False, "output_bias": True, "positions": "learned", "max_length": 9}
EVERYWHERE = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Makes chunks of a few rows, the last one filled up."""
    monkeypatch.setattr(sums, "LOGIT_ROWS", 7)


def step_of(model: keras.Model, data, loss=LOSS, **arguments):
    """A function that returns loss, metrics and gradients of a step, and its graph."""
    model.compile("sgd", loss, metrics=metrics(), **{"chunked_loss": True} | arguments)
    specs = tf.nest.map_structure(lambda a: tf.TensorSpec([None] * a.ndim, tf.int32), data)

    @tf.function(input_signature=specs, autograph=False)
    def step(x, y):
        inputs, labels, weights, count = model._unpack((x, y))
        with by_programs(model.programs):
            total, gradients = model._gradients(inputs, labels, weights, count)
        results = [metric.result() for metric in model.running_means]
        return total / count, results, [tf.convert_to_tensor(each) for each in gradients]

    graph = step.get_concrete_function().graph
    return lambda: tf.nest.map_structure(np.array, step(*data)), graph


def adapted(model: keras.Model) -> keras.Model:
    """With LoRA; the second encoder layer is frozen, and so needs a program of its own."""
    model.enable_lora(2)
    for weight in model.trainable_weights:  # one factor is zero at first
        weight.assign(weight + 0.1)
    model.encoder.layers[1].trainable = False
    return model


@pytest.mark.parametrize(
    ("make", "programs"),
    [
        (lambda: transformer(num_layers=2), 3),
        (lambda: transformer(num_layers=2, **LATER), 5),
        (lambda: transformer(num_layers=2, **UNTIED | WINDOW), 4),
        (lambda: adapted(transformer(num_layers=2, **UNTIED)), 5),
    ],
    ids=["paper", "later", "window", "lora"],
)
def test_loss_metrics_and_gradients_equal_those_without_xla(make, programs):
    """The number of programs shows that layers share them."""
    data = batch(5, 2)
    (expected, _), (ours, graph) = (
        step_of(model := make(), data, jit_compile=jit) for jit in (False, True)
    )
    ours, expected = ours(), expected()
    assert ours[0] == pytest.approx(expected[0], rel=1e-6)
    np.testing.assert_allclose(ours[1], expected[1], rtol=1e-6)
    for one, other in zip(ours[2], expected[2], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert max(np.abs(gradient).max() for gradient in ours[2]) > 0.1
    assert model.programs.functions == 2 * programs
    assert describe_programs(model, 3).startswith(f"{6 * programs + 1} programs for 3 shapes")


def test_masks_are_drawn_anew_each_step_and_alike_in_both_passes():
    model = transformer(num_layers=2, **EVERYWHERE)
    step, graph = step_of(model, batch(5, 2), jit_compile=True)
    calls = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    forward = [op for op in calls if op.get_attr("f").name.startswith("__inference__forward")]
    assert [len(op.outputs) for op in forward] == [1] * 8  # nothing is kept for the gradient
    states = [stack.dropout.seed_generator.state for stack in (model.encoder, model.decoder)]
    before = [state.numpy() for state in states]

    def replayed():
        for state, value in zip(states, before, strict=True):
            state.assign(value)
        return step()

    first, second = step(), step()
    again = replayed()
    assert first[0] != second[0]
    assert first[0] == again[0]
    for one, other in zip(first[2], again[2], strict=True):
        np.testing.assert_array_equal(one, other)
    # The slope along a gradient, by the difference of two losses with the same masks.
    weight = model.encoder.layers[1].feed_forward.inner.kernel
    gradient = first[2][[v is weight for v in model.trainable_variables].index(True)]
    slope = np.linalg.norm(gradient)
    losses = []
    for change in (0.01, -0.02):
        weight.assign(weight + change * gradient / slope)
        losses.append(replayed()[0])
    assert (losses[0] - losses[1]) / 0.02 == pytest.approx(slope, rel=1e-3)


def test_layers_sites_steps_and_replicas_have_seeds_of_their_own():
    model = transformer(num_layers=2, **EVERYWHERE)
    layers = [model.encoder.dropout, *model.encoder.layers]
    state = model.encoder.dropout.seed_generator.state
    drawn = []
    for replica in range(2):
        state.assign(np.array([7 + replica * sums.SEED_DISTANCE, 0]))
        for _ in range(3):
            drawn.append([seeds.numpy().tolist() for seeds in draw_seeds(layers)])
    assert [len(seeds) for seeds in drawn[0]] == [1, 4, 4]
    every = [seed for step in drawn for seeds in step for seed in seeds]
    for part in (every, [seed % 2**32 for seed in every], [seed >> 32 for seed in every]):
        assert len(set(part)) == 2 * 3 * 9


def test_weights_do_not_depend_on_replicas_and_parts():
    data = [batch(4, 0), batch(5, 3)]
    options = {"max_tokens_per_device": 8, "chunked_loss": True, "jit_compile": True}
    model, logs = fitted(2, data, make=transformer, **options)
    expected = stepped_by_hand(transformer(), keras.optimizers.Adam(0.01), data)
    assert distance(model, expected) < 2e-5  # Adam divides by small gradients
    assert distance(model, transformer()) > 1e-2
    assert logs["tokens"] == sum(np.count_nonzero(labels) for _, labels in data)


def test_training_on_two_replicas_repeats_bit_for_bit_from_a_saved_state(tmp_path):
    def make() -> keras.Model:
        return transformer(**EVERYWHERE)

    data = [batch(4, 0)] * 2
    options = {"optimizer": lambda: Adam(0.01, name="adam"), "jit_compile": True}
    model, _ = fitted(2, data, make, **options)
    save_state(tmp_path / "a.npz", model, {})
    begun, ends = model.get_weights(), []
    for _ in range(2):
        restore_state(tmp_path / "a.npz", model)
        model.fit(dataset(data), shuffle=False, verbose=0)
        ends.append(model.get_weights())
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
    assert max(np.abs(a - b).max() for a, b in zip(begun, ends[0], strict=True)) > 1e-3


def test_half_precision_is_as_close_to_float32_as_without_xla():
    data = batch(5, 2)
    exact, plain, ours = (
        step_of(transformer(dtype=dtype), data, jit_compile=jit)[0]()
        for dtype, jit in (
            ("float32", False), ("mixed_bfloat16", False), ("mixed_bfloat16", True)
        )
    )  # fmt: skip
    norms = [
        [np.linalg.norm(a - b) for a, b in zip(each[2], exact[2], strict=True)]
        for each in (plain, ours)
    ]
    assert np.median(norms[1]) < 1.2 * np.median(norms[0])
    assert max(norms[1]) < 1.2 * max(norms[0])


def test_a_layer_that_reads_a_variable_from_elsewhere_is_refused(monkeypatch):
    factor = tf.Variable(2.0)

    class Outside(positions.Positions):
        def add_to_embeddings(self, x, positions):
            return x * factor

    monkeypatch.setitem(POSITION_KINDS, "none", PositionKind(layer_class=Outside))
    with pytest.raises(ValueError, match="its own weights only.*jit_compile=False"):
        step_of(transformer(positions="none"), batch(5, 2), jit_compile=True)


def test_programs_that_nobody_has_read_for_long_are_deleted(tmp_path, caplog):
    caplog.set_level("INFO")
    now = time.time()
    for name, days in (("x__1__2__GPU.pb", 91), ("x__1__3__GPU.pb", 2), ("x__1__4__GPU.pb", 1)):
        (tmp_path / name).write_bytes(b"12345678")
        os.utime(tmp_path / name, (now - days * 86_400,) * 2)
    (tmp_path / "notes.txt").write_text("mine")
    flags = f"--tf_xla_auto_jit=1 --tf_xla_persistent_cache_directory={tmp_path}"
    prune_cache("unset")
    prune_cache(flags)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "notes.txt", "x__1__3__GPU.pb", "x__1__4__GPU.pb",
    ]  # fmt: skip
    assert "unused for 90 days or beyond 10 GiB: 1" in caplog.text
    prune_cache(flags, most=12)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "x__1__4__GPU.pb"}
