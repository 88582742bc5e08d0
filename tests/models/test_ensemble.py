"""Several models decode as one whose probabilities are their mean; against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from trained import small_model

from tf_transformer.config import BOS_ID
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.models.ensemble import Ensemble
from tf_transformer.models.transformer import Transformer
from tf_transformer.translation.translator import Translator

SOURCE = np.array([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0], [11, 3, 0, 0, 0]], "int32")


def random_model(seed: int, **arguments) -> Transformer:
    keras.utils.set_random_seed(seed)
    model = small_model(20, **arguments)
    for weight in model.trainable_weights:  # the initial distribution is nearly uniform
        weight.assign(weight * 2.0)
    return model


def found_by(model):
    step, cache = model.start_search(SOURCE)
    limits = tf.constant([12, 7, 9])
    found = beam_search(step, cache, limits, beam_size=4, num_hypotheses=3)
    return [tensor.numpy() for tensor in found]


def forced_log_probs(models, tokens: np.ndarray) -> np.ndarray:
    """[3, N, L] -> [3, N]: the tokens' log(1/M sum_m p_m), summed in double precision."""
    flat = tokens.reshape(-1, tokens.shape[-1])
    target = np.pad(flat[:, :-1], ((0, 0), (1, 0)), constant_values=BOS_ID)
    source = np.repeat(SOURCE, tokens.shape[1], axis=0)
    probabilities = 0.0
    for model in models:
        logits = np.asarray(model({"source": source, "target": target}), np.float64)
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities += exponentials / exponentials.sum(axis=-1, keepdims=True) / len(models)
    chosen = np.take_along_axis(probabilities, flat[..., np.newaxis], axis=-1)[..., 0]
    return np.where(flat == 0, 0.0, np.log(chosen)).sum(axis=-1).reshape(tokens.shape[:2])


def test_copies_of_one_model_decode_like_that_model():
    model = random_model(1)
    for found, expected in zip(found_by(Ensemble([model] * 3)), found_by(model), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_search_scores_by_the_mean_of_the_probabilities():
    models = [random_model(1), random_model(2, num_layers=2, d_model=24, norm_first=True)]
    tokens, _, log_probs, _ = found_by(Ensemble(models))
    np.testing.assert_allclose(log_probs, forced_log_probs(models, tokens), atol=1e-4)
    alone = found_by(models[0])
    assert np.any(np.abs(alone[2] - log_probs) > 0.1)


def test_each_model_has_its_own_program_of_xla():
    ensemble = Ensemble([random_model(1), random_model(2, d_model=24)])
    first = np.full((3, 2), BOS_ID, "int32"), tf.constant(0), np.zeros((3, 2, 1), "int32")
    started = [ensemble.start_search(SOURCE, by_xla) for by_xla in (True, False)]
    compiled, plain = (step(*first, caches)[0] for step, caches in started)
    np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-5)


def test_a_forced_pass_gives_the_log_of_the_mean_of_the_probabilities():
    models = [random_model(seed) for seed in (1, 2, 3)]
    target = np.array([[BOS_ID, 5, 6], [BOS_ID, 7, 0], [BOS_ID, 8, 9]], "int32")
    inputs = {"source": SOURCE, "target": target}
    found = np.asarray(Ensemble(models)(inputs), np.float64)
    softmaxes = [np.asarray(tf.nn.softmax(model(inputs)), np.float64) for model in models]
    np.testing.assert_allclose(np.exp(found), np.mean(softmaxes, axis=0), atol=1e-6)


def test_the_model_with_the_fewest_positions_limits_all():
    learned = [random_model(1, positions="learned", max_length=n) for n in (12, 9)]
    assert Ensemble([random_model(1), *learned]).longest_source == 9
    assert Ensemble([random_model(1)] * 2).longest_target is None


def test_an_ensemble_has_no_attention(translator):
    several = Translator(Ensemble([translator.model] * 2), translator.tokenizer)
    for call in (several.attention, several.align):
        with pytest.raises(ValueError, match="`model` must be a single model.* an ensemble"):
            call(["a"], ["b"])
