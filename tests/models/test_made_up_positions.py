"""A kind of positions that only this file knows does all that the package's own kinds do."""

import keras
import numpy as np
import pytest
from keras import ops
from trained import quick_export

from tf_transformer.base.architecture import POSITION_KINDS
from tf_transformer.base.errors import UserError
from tf_transformer.config import DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.interface import column
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.layers import MultiHeadAttention
from tf_transformer.layers.positions import Positions, for_heads, register
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.transformer import Transformer
from tf_transformer.translation.translator import Translator

SIZES = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 4, "dropout": 0.0}
IDS = np.array([[5, 6, 7, 8, 9, 5, 4, 3], [9, 8, 4, 3, 0, 0, 0, 0]], "int32")
WINDOWS = pytest.mark.parametrize("window", [0, 2])
TEXTS = ["one two three", "six", "", "four " * 12, "two one", "five six seven eight"]


class Slopes(Positions):
    """A slope for each head, times the distance (Press et al. 2022, arXiv 2108.12409, 3)."""

    in_attention = True

    def build_attention(self, layer, key_dim, value_dim):
        heads = np.arange(1, layer.num_heads + 1)
        self.slopes = np.float32(2 ** (-8 * heads / layer.num_heads))  # [H]

    def add_to_scores(self, scores, queries, distances):
        slopes = for_heads(ops.array(self.slopes), scores)[:, None, None]
        return ops.cast(scores, "float32") - slopes * ops.cast(ops.abs(distances), "float32")


@pytest.fixture(scope="module", autouse=True)
def slopes():
    register("slopes", Slopes, help="a slope for each head in self-attention")
    yield
    del POSITION_KINDS["slopes"]


def make_model(vocab_size: int = 20, window: int = 0) -> Transformer:
    keras.utils.set_random_seed(1)
    options = SIZES | {"positions": "slopes", "attention_window": window}
    return Transformer(vocab_size, **options)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_within_a_window_is_its_formula_with_a_slope_for_each_head(causal):
    layer = MultiHeadAttention(4, positions="slopes", attention_window=3)
    x = np.random.default_rng(0).normal(size=(2, 11, 16)).astype("float32")
    outputs = layer(x, use_causal_mask=causal)  # in blocks
    distances = np.arange(11) - np.arange(11)[:, None]
    seen = (abs(distances) <= 3) & ((distances <= 0) | (not causal))
    query, key, value = (
        (x @ dense.kernel.numpy()).reshape(2, 11, 4, 4).swapaxes(1, 2)
        for dense in (layer.query_dense, layer.key_dense, layer.value_dense)
    )
    slopes = np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None, None]
    scores = query @ key.swapaxes(-1, -2) / 2 - slopes * abs(distances)
    weights = np.exp(np.where(seen, scores, -np.inf))
    heads = weights / weights.sum(-1, keepdims=True) @ value
    expected = heads.swapaxes(1, 2).reshape(2, 11, 16) @ layer.output_dense.kernel.numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    whole, _ = layer(x, use_causal_mask=causal, return_attention_scores=True)
    np.testing.assert_allclose(whole, expected, atol=1e-5)


@WINDOWS
def test_a_step_of_training_lowers_the_loss(window):
    model = make_model(window=window)
    model.compile(keras.optimizers.Adam(1e-2), LabelSmoothedCrossEntropy())
    losses = model.fit({"source": IDS, "target": IDS}, IDS, epochs=4, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


@WINDOWS
def test_a_cached_step_equals_the_full_pass(window):
    model = make_model(window=window)
    step, cache = model.step_function(), model.initial_cache(IDS)
    target = np.random.default_rng(2).integers(4, 20, (2, 9)).astype("int32")
    expected = model({"source": IDS, "target": target})
    for index in range(9):
        ancestry = np.zeros((2, 1, index + 1), "int32")
        logits, cache = step(target[:, index : index + 1], index, ancestry, cache)
        np.testing.assert_allclose(logits[:, 0], expected[:, index], atol=1e-5)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("made_up") / "tokenizer.model"
    train_tokenizer(TEXTS * 3, path, vocab_size=290)
    return Tokenizer(path)


@WINDOWS
def test_a_savedmodel_and_litert_translate_as_python_does(tokenizer, tmp_path, window):
    model = make_model(tokenizer.vocab_size, window)
    for weight in model.trainable_weights:  # else each text has the same translation
        weight.assign(weight * 1.5)
    translator = Translator(model, tokenizer, DecodingConfig(beam_size=3, max_extra_length=20))
    expected = translator.translate(TEXTS)
    assert len({*expected}) > 2
    scores = [one.score for one in expected]
    with ExportEngine(quick_export(translator, tmp_path / "model", "nbest")) as session:
        answer = session.run("nbest", {"text": column(TEXTS)})
    assert [best.decode() for best, *_ in answer["translations"]] == expected
    np.testing.assert_allclose(answer["scores"][:, 0], scores, atol=1e-4)
    lite = InterpreterPool(lite_file(model, "float32"), threads=1)
    engine = LiteEngine.beside(GraphEngine(model, tokenizer), lite)
    found = Translator(engine=engine, decoding=translator.decoding).translate(TEXTS)
    assert found == expected
    np.testing.assert_allclose([one.score for one in found], scores, atol=1e-4)


def test_a_name_without_a_class_is_refused():
    with pytest.raises(UserError, match="one of .*'none', 'slopes'.* Received: 'unknown'"):
        Transformer(20, **SIZES, positions="unknown")
    with pytest.raises(ValueError, match="must be one of .*'slopes'.* positions='unknown'"):
        MultiHeadAttention(2, positions="unknown")
