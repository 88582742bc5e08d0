"""The cost of training compared with the paper's."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.config import ModelConfig
from tf_transformer.config.presets import PRESETS
from tf_transformer.models.transformer import Transformer
from tf_transformer.reports.cost import (
    SUSTAINED_TFLOPS,
    TABLE2_FLOPS,
    Lengths,
    costs,
    parameter_count,
    training_flops,
)

SMALL = ModelConfig(vocab_size=40, num_layers=2, d_model=12, d_ff=20, num_heads=3)


@pytest.mark.parametrize(
    "config",
    [
        *(PRESETS[name].model for name in ("base", "big", "multi30k")),
        PRESETS["base"].replace({"model.positions": "learned"}).model,
        ModelConfig(vocab_size=50, d_model=6, num_heads=3, value_dim=7, tie_embeddings=False),
        ModelConfig(
            vocab_size=50, d_model=6, num_heads=3, positions="learned", tie_embeddings=False,
            norm_first=True, max_length=9, decoder_layers=2,
        ),
        ModelConfig(
            vocab_size=50, d_model=6, num_heads=3, key_dim=5, value_dim=7, attention_bias=True,
            output_bias=True,
        ),
        ModelConfig(
            vocab_size=50, d_model=6, num_heads=3, activation="geglu", norm="rms",
            norm_first=True, positions="relative", value_dim=7,
        ),
    ],
    ids=lambda config: f"{config.vocab_size}-{config.d_model}-{config.num_layers}",
)  # fmt: skip
def test_the_parameter_count_is_that_of_the_transformer(config):
    with keras.StatelessScope(initialize_variables=False):
        model = Transformer(**vars(config))
    assert parameter_count(config) == model.count_params()


def products_in_graph(config, batch, source, target):
    """Returns the FLOPs of all matrix products in TensorFlow's graph of a forward pass."""
    model = Transformer(**vars(config))
    specs = [tf.TensorSpec([batch, length], tf.int32) for length in (source, target)]
    return products_of(lambda s, t: model({"source": s, "target": t}), *specs)


def products_of(forward, *specs):
    """Returns the FLOPs of the matrix products in a function's graph."""
    graph = tf.function(forward).get_concrete_function(*specs).graph
    flops = 0
    for each in every_operation(graph):
        if each.type in ("MatMul", "BatchMatMulV2"):
            transposed = each.get_attr("transpose_a" if each.type == "MatMul" else "adj_x")
            inner = each.inputs[0].shape[-2 if transposed else -1]
            flops += 2 * each.outputs[0].shape.num_elements() * inner
        assert each.type not in ("Einsum", "BatchMatMul", "BatchMatMulV3"), each.type
    return flops


def every_operation(graph):
    yield from graph.get_operations()
    for function in graph._functions.values():
        yield from every_operation(getattr(function, "graph", tf.Graph()))


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        dataclasses.replace(SMALL, key_dim=5, value_dim=2, decoder_layers=1),
        dataclasses.replace(SMALL, norm_first=True, tie_embeddings=False),
        dataclasses.replace(SMALL, activation="swiglu", positions="relative", key_dim=5),
        dataclasses.replace(SMALL, attention_window=3),  # in blocks, the last not whole
        dataclasses.replace(SMALL, attention_window=6, positions="relative"),
    ],
)
def test_flops_are_three_times_those_of_a_forward_pass(config):
    batch, source, target = 2, 7, 5
    window = config.attention_window
    lengths = Lengths.of(np.full(batch, source), np.full(batch, target), window)
    forward = products_in_graph(config, batch, source, target)
    assert training_flops(config, lengths) == 3 * forward


def test_flops_add_up_over_sentences():
    lengths = [(3, 4), (9, 2)]
    together = Lengths.of(np.array([3, 9]), np.array([4, 2]))
    apart = [Lengths.of(np.array([s]), np.array([t])) for s, t in lengths]
    assert training_flops(SMALL, together) == sum(training_flops(SMALL, each) for each in apart)


def test_many_long_sentences_do_not_overflow():
    lengths = np.full(1_000_000, 60_000, np.uint16)
    assert Lengths.of(lengths, lengths).both == 1_000_000 * 60_000**2


HISTORY = [
    {"step": 10, "train_seconds": 2.0, "tokens_per_second": 50.0},
    {"step": 20, "train_seconds": 1.0, "tokens_per_second": 200.0},
]


def test_costs_accumulate_over_evaluations():
    lengths = Lengths.of(np.array([3, 9]), np.array([4, 6]))  # 10 target tokens an epoch
    first, second = costs(HISTORY, SMALL, lengths)
    assert (first.step, first.target_tokens, first.seconds) == (10, 100, 2.0)
    assert (second.step, second.target_tokens, second.seconds) == (20, 300, 3.0)
    assert second.counted == 30 * training_flops(SMALL, lengths)


def test_without_lengths_no_flops_are_counted():
    assert [cost.counted for cost in costs(HISTORY, SMALL, None)] == [None, None]


HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(("model", "seconds"), [("base", 12 * HOUR), ("big", 3.5 * DAY)])
def test_table_2_is_time_times_gpus_times_their_rate(model, seconds):
    """5.2: eight P100, 12 hours for base and 3.5 days for big; the table has two digits."""
    flops = seconds * 8 * SUSTAINED_TFLOPS["P100"] * 1e12
    assert f"{flops:.1e}" == f"{TABLE2_FLOPS[model]:.1e}"
