"""The whole model: its equivalences and its tied embeddings."""

import keras
import numpy as np
import pytest
from small_transformer import SOURCE, TARGET, VARIANTS, VOCAB_SIZE, logits_of, make_model

from tf_transformer.config import BOS_ID
from tf_transformer.models.transformer import Transformer

# --- Equivalences ------------------------------------------------------------------------


@VARIANTS
def test_a_step_of_every_beam_equals_a_full_pass_over_its_history(variant):
    model = make_model(**variant)
    random, width = np.random.default_rng(3), 3
    for weight in model.trainable_weights:
        if "bias" in weight.name:  # initially zero
            weight.assign(random.normal(size=weight.shape))
    step, cache = model.step_function(), model.initial_cache(SOURCE)
    histories = np.empty((2, width, 0), "int32")
    ancestry = np.empty((2, width, 0), "int32")
    for index in range(6):
        tokens = random.integers(4, VOCAB_SIZE, (2, width)) if index else [[BOS_ID] * 3] * 2
        histories = np.concatenate([histories, np.int32(tokens)[..., None]], axis=-1)
        own = np.broadcast_to(np.arange(width, dtype="int32"), (2, width))[..., None]
        ancestry = np.concatenate([ancestry, own], axis=-1)
        logits, cache = step(histories[..., -1], index, ancestry, cache)

        rows = np.repeat(SOURCE, width, axis=0)
        full = logits_of(model, rows, histories.reshape(2 * width, -1))[:, -1]
        np.testing.assert_allclose(logits, full.reshape(2, width, -1), atol=1e-5)
        # The search drops some beams, duplicates others and reorders them.
        parents = random.integers(0, width, (2, width, 1))
        histories = np.take_along_axis(histories, parents, axis=1)
        ancestry = np.take_along_axis(ancestry, parents, axis=1)


@VARIANTS
def test_a_sentence_alone_equals_a_padded_row_of_a_batch(variant):
    model = make_model(**variant)
    batch = logits_of(model, SOURCE, TARGET)
    first = logits_of(model, SOURCE[:1], TARGET[:1])
    second = logits_of(model, SOURCE[1:, :3], TARGET[1:, :3])
    np.testing.assert_allclose(batch[:1], first, atol=1e-5)
    np.testing.assert_allclose(batch[1:, :3], second, atol=1e-5)


@VARIANTS
def test_a_later_target_token_changes_no_earlier_logits(variant):
    model = make_model(**variant)
    changed = TARGET.copy()
    changed[:, 2] = 18
    before, after = logits_of(model, SOURCE, TARGET), logits_of(model, SOURCE, changed)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert np.all(after[:, 2] != before[:, 2])


def test_every_source_token_reaches_every_target_position():
    model = make_model()
    before = logits_of(model, SOURCE, TARGET)
    for column in range(3):
        changed = SOURCE.copy()
        changed[:, column] = 18
        assert np.all(np.any(logits_of(model, changed, TARGET) != before, axis=-1))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32_and_carry_no_mask(policy):
    model = make_model(dtype=policy)
    logits = model({"source": SOURCE, "target": TARGET})
    assert logits.dtype == model.outputs[0].dtype == "float32"
    assert getattr(logits, "_keras_mask", None) is None
    assert {layer.compute_dtype for layer in model.encoder._flatten_layers()} == {
        keras.dtype_policies.get(policy).compute_dtype
    }
    step_logits, _ = model.step_function()(
        TARGET[:, :1], 0, np.zeros((2, 1, 1), "int32"), model.initial_cache(SOURCE)
    )
    assert step_logits.dtype == "float32"


@VARIANTS
def test_attention_weights_are_zero_at_later_and_padded_positions(variant):
    model = make_model(**variant)
    weights = {k: np.asarray(v) for k, v in model.attention_weights(SOURCE, TARGET).items()}
    shapes = {name: array.shape for name, array in weights.items()}
    assert shapes == {
        "encoder": (2, 2, 2, 5, 5),
        "decoder": (model.config.num_decoder_layers, 2, 2, 4, 4),
        "cross": (model.config.num_decoder_layers, 2, 2, 4, 5),
    }
    for array in weights.values():
        np.testing.assert_allclose(array.sum(axis=-1), 1.0, atol=1e-5)
    source = (SOURCE != 0)[:, None, None]  # [B, 1, 1, S]
    target = np.tri(4, dtype=bool) & (TARGET != 0)[:, None, None]  # [B, 1, T, T]
    for name, seen in (("encoder", source), ("decoder", target), ("cross", source)):
        expected = np.broadcast_to(seen, weights[name].shape)
        np.testing.assert_array_equal(weights[name] > 0, expected)


@pytest.mark.parametrize("layer", [0, 1])
def test_cross_attention_of_one_layer_is_computed_without_later_layers(layer):
    model = make_model()
    expected = model.attention_weights(SOURCE, TARGET)["cross"][layer]
    for late in model.decoder.layers[layer + 1 :]:
        late.self_attention.attend = None
    weights = model.cross_attention_weights(SOURCE, TARGET, layer)
    np.testing.assert_array_equal(weights, expected)


@VARIANTS
def test_padding_does_not_change_attention_weights(variant):
    model = make_model(**variant)
    expected = model.attention_weights(SOURCE[1:, :3], TARGET[1:, :3])
    padded = model.attention_weights(SOURCE, TARGET)
    for name, weights in expected.items():
        inside = np.asarray(padded[name])[:, 1:, :, :3, :3]
        np.testing.assert_allclose(inside, weights, atol=1e-6)


# --- Tying and norms ---------------------------------------------------------------------


def vocabulary_matrices(model: Transformer) -> list[keras.Variable]:
    return [weight for weight in model.weights if VOCAB_SIZE in weight.shape]


def changes(model: Transformer, matrix: keras.Variable, row: int) -> np.ndarray:
    """Marks the logits, bool [B, T, V], that change with one row of a matrix [V, D]."""
    before = logits_of(model, SOURCE, TARGET)
    old, new = matrix.numpy(), matrix.numpy().copy()
    new[row] += 0.5 * np.cos(np.arange(new.shape[1]))
    matrix.assign(new)
    after = logits_of(model, SOURCE, TARGET)
    matrix.assign(old)
    return before != after


def test_one_matrix_embeds_source_and_target_and_gives_logits():
    model = make_model()
    (matrix,) = vocabulary_matrices(model)
    in_source, in_target, in_neither = 6, 12, 19
    others = np.arange(VOCAB_SIZE) < 4
    assert changes(model, matrix, in_source)[0][:, others].all()
    in_first_target = changes(model, matrix, in_target)[0]
    assert in_first_target[2:, others].all()
    assert not in_first_target[:2, others].any()
    np.testing.assert_array_equal(
        changes(model, matrix, in_neither),
        np.eye(VOCAB_SIZE, dtype=bool)[[[in_neither] * 4] * 2],
    )


def test_untied_embeddings_and_projection_are_three_matrices():
    model = make_model(tie_embeddings=False)
    assert [weight.shape for weight in vocabulary_matrices(model)] == [
        (VOCAB_SIZE, 16),
        (VOCAB_SIZE, 16),
        (16, VOCAB_SIZE),
    ]
    assert changes(model, model.source_embedding.embeddings, 6)[0].all()
    assert not changes(model, model.source_embedding.embeddings, 12).any()
    assert changes(model, model.target_embedding.embeddings, 12)[0, 2:].all()
    assert not changes(model, model.target_embedding.embeddings, 6).any()


@pytest.mark.parametrize("norm_first", [False, True])
def test_only_pre_ln_ends_its_stacks_with_a_norm(norm_first):
    model = make_model(norm_first=norm_first)
    per_stack = {"encoder": 2 * 2, "decoder": 2 * 3}
    for name, sublayers in per_stack.items():
        gains = [w for w in getattr(model, name).weights if w.path.endswith("norm/gamma")]
        assert len(gains) == sublayers + norm_first
