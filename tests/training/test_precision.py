"""Half precision where it is safe: what stays in float32, padding, and learning."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from replicas import VOCAB_SIZE, batch, dataset, transformer

from tf_transformer.config import Config, ModelConfig, TrainingConfig
from tf_transformer.fast.optimizers import learning_rate, step_of
from tf_transformer.models.transformer import Transformer
from tf_transformer.training.trainer import compile_model

HALF = pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
# Operations that lose most of their digits, or overflow, in half precision.
DELICATE = {"Exp", "Log", "Softmax", "LogSoftmax", "Rsqrt", "Sqrt", "Mean", "Sin", "Cos"}


def learner(precision: str) -> Transformer:
    """A model that can learn `exercise`, with the package's recipe."""
    model = transformer(dtype=precision, d_model=32, d_ff=32)
    training = TrainingConfig(
        precision=precision, warmup_steps=20, learning_rate_scale=0.3, label_smoothing=0.0
    )
    compile_model(model, Config(model=ModelConfig(d_model=32), training=training))
    return model


def exercise(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns a batch in which each label is the previous token plus one."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(4, VOCAB_SIZE, [2, 16, 6])
    lengths = rng.integers(2, 7, [16, 1])
    target[np.arange(6) >= lengths] = 0
    labels = np.where(target, 4 + (target - 3) % (VOCAB_SIZE - 4), 0)
    return {"source": source, "target": target}, labels


@functools.cache
def operations(policy: str) -> list[tuple[str, str]]:
    """Lists kind and type of all operations of a training step's forward pass."""
    model = transformer(dtype=policy, norm_first=True, dropout=0.1)
    compile_model(model, Config())

    @tf.function(autograph=False)
    def loss(source, target, labels):
        logits = model({"source": source, "target": target}, training=True)
        return model.loss(labels, logits)

    ids = tf.TensorSpec([None, None], tf.int32)
    graph = loss.get_concrete_function(ids, ids, ids).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    typed = [node for node in nodes if node.attr["T"].type]
    return [(node.op, tf.as_dtype(node.attr["T"].type).name) for node in typed]


@HALF
def test_softmax_statistics_positions_and_loss_are_computed_in_float32(policy):
    delicate = [(kind, dtype) for kind, dtype in operations(policy) if kind in DELICATE]
    assert {dtype for _, dtype in delicate} == {"float32"}
    kinds = {kind for kind, _ in delicate}
    assert kinds >= {"Log", "Rsqrt", "Sin"} and kinds & {"Exp", "Softmax"}


@HALF
def test_products_are_computed_in_half_precision(policy):
    products = [dtype for kind, dtype in operations(policy) if "MatMul" in kind]
    assert len(products) > 10
    assert set(products) == {policy.removeprefix("mixed_")}


@HALF
def test_padding_does_not_change_the_output_in_half_precision(policy):
    model = transformer(dtype=policy)
    inputs, _ = batch(3, 2)
    logits = model(inputs).numpy()
    wider = {name: np.pad(ids, [(0, 2), (0, 5)]) for name, ids in inputs.items()}
    padded = model(wider).numpy()
    assert np.isfinite(padded).all()  # two rows are all padding
    real = inputs["target"] != 0
    np.testing.assert_allclose(padded[:3, :-5][real], logits[real], atol=2e-2)
    other = {**inputs, "source": inputs["source"][::-1]}
    assert np.abs(model(other).numpy() - logits)[real].max() > 0.1  # the source matters


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_model_learns_in_every_precision(precision):
    model = learner(precision)
    data = dataset([exercise(seed) for seed in range(100)])
    first = model.evaluate(dataset([exercise(-1 % 2**32)]), return_dict=True, verbose=0)
    model.fit(data, shuffle=False, verbose=0)
    logs = model.evaluate(dataset([exercise(2**31)]), return_dict=True, verbose=0)
    assert first["accuracy"] < 0.3
    assert logs["accuracy"] > 0.98
    assert logs["loss"] < 0.5


def test_the_schedule_counts_only_applied_updates():
    model = learner("mixed_float16")
    model.optimizer.build(model.trainable_variables)
    model.optimizer.dynamic_scale.assign(2.0**40)  # overflows until it is about 2^16
    model.fit(dataset([exercise(seed) for seed in range(30)]), shuffle=False, verbose=0)
    applied = step_of(model.optimizer)
    assert 1 < applied < 20
    halvings = 40 - np.log2(float(model.optimizer.dynamic_scale.numpy()))
    assert applied == 30 - halvings
    expected = 0.3 * 32**-0.5 * min((applied + 1) ** -0.5, (applied + 1) * 20**-1.5)
    assert learning_rate(model.optimizer) == pytest.approx(expected)
    for weight in model.get_weights():
        assert np.isfinite(weight).all()
