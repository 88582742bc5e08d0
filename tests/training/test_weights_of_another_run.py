"""Initial weights from another run, frozen and adapted ones."""

import json
import logging
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, DecodingConfig, ModelConfig
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.export.signatures import Signatures
from tf_transformer.loading.translators import load_translator
from tf_transformer.models.transformer import Transformer, build_model
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights, save_state, save_weights
from tf_transformer.training.fine_tuning import begin, freeze
from tf_transformer.training.trainer import compile_model
from tf_transformer.translation.task import TranslationTask
from tf_transformer.translation.translator import Translator

TEXT = ["the cat sat on the mat", "a dog ran to the cat", "the dogs and cats run"] * 20
SHAPE = {"num_layers": 1, "d_model": 8, "d_ff": 12, "num_heads": 2}


def transformer(vocab_size: int = 290, seed: int = 1, **options) -> Transformer:
    keras.utils.set_random_seed(seed)
    return Transformer(vocab_size, **SHAPE | options)


def arrays(model) -> dict[str, np.ndarray]:
    return {weight.path: weight.numpy() for weight in model.weights}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> dict[int, Tokenizer]:
    folder = tmp_path_factory.mktemp("tokenizers")
    for size in (290, 295):
        train_tokenizer(TEXT, folder / f"{size}.model", vocab_size=size, kind="bpe")
    return {size: Tokenizer(folder / f"{size}.model") for size in (290, 295)}


@pytest.fixture
def source(tmp_path, tokenizers) -> Run:
    """A run whose best weights are those of `transformer()`."""
    run = Run.create_or_resume(
        tmp_path / "old", Config(model=ModelConfig(vocab_size=290, **SHAPE))
    )
    tokenizers[290].copy(run.tokenizer)
    save_weights(run.checkpoints.best, transformer())
    return run


def new_run(source: Run, **training) -> Run:
    config = source.config.replace({"training.init_from": str(source.path)})
    config = config.replace({f"training.{name}": value for name, value in training.items()})
    return Run.create_or_resume(source.path.parent / "new", config)


def test_every_weight_is_taken_over_and_its_origin_recorded(source, tokenizers):
    run, model = new_run(source), transformer(seed=2)
    begin(run, model, tokenizers[290])
    for path, value in arrays(transformer()).items():
        np.testing.assert_array_equal(arrays(model)[path], value, err_msg=path)
    origin = json.loads(run.origin.read_text())
    assert origin["run"] == str(source.path) and origin["anew"] == []


@pytest.mark.parametrize("tied", [True, False])
def test_with_another_tokenizer_shared_pieces_keep_their_embeddings(
    source, tokenizers, tied, caplog
):
    old = transformer(tie_embeddings=tied, output_bias=True)
    save_weights(source.checkpoints.best, old)
    model = transformer(295, seed=2, tie_embeddings=tied, output_bias=True)
    model.projection.output_bias.assign(np.arange(295) + 1)
    fresh = arrays(model)
    begin(new_run(source), model, tokenizers[295])
    pieces = {
        size: [piece.decode() for piece in tokenizer.pieces(np.arange(size)).numpy()]
        for size, tokenizer in tokenizers.items()
    }
    shared = set(pieces[290]) & set(pieces[295])
    assert 280 < len(shared) < 295
    for name, weight in arrays(old).items():
        taken, before, now = weight, fresh[name], arrays(model)[name]
        if name == "output_projection/kernel":
            taken, before, now = taken.T, before.T, now.T
        elif not name.endswith(("embeddings", "output_bias")):
            np.testing.assert_array_equal(now, taken)
            continue
        for row, piece in enumerate(pieces[295]):
            expected = taken[pieces[290].index(piece)] if piece in shared else before[row]
            np.testing.assert_array_equal(now[row], expected)
    assert f"{len(shared)} of 295 pieces are also in" in caplog.text


def test_each_side_keeps_the_embeddings_of_its_own_pieces(source, tokenizers, tmp_path):
    """Only the target's vocabulary differs from the other run's."""
    pieces = {}
    for name, text in (("other", TEXT), ("new", [line[::-1] for line in TEXT])):
        path = tmp_path / f"{name}.model"
        path.write_bytes(tokenizers[290].path.read_bytes())
        train_tokenizer(text, target_model_path(path), vocab_size=290, kind="bpe")
        pieces[name] = Tokenizer(path).pieces(np.arange(290), "target").numpy().tolist()
    Tokenizer(tmp_path / "other.model").copy(source.tokenizer)
    old = transformer(tie_embeddings=False)
    save_weights(source.checkpoints.best, old)
    model = transformer(seed=2, tie_embeddings=False)
    begin(new_run(source), model, Tokenizer(tmp_path / "new.model"))
    before, now = arrays(old), arrays(model)
    name = "source_embedding/embeddings"
    np.testing.assert_array_equal(now[name], before[name])
    moved = [row for row, piece in enumerate(pieces["new"]) if piece in pieces["other"]]
    rows = [pieces["other"].index(pieces["new"][row]) for row in moved]
    assert rows != moved
    name = "target_embedding/embeddings"
    np.testing.assert_array_equal(now[name][moved], before[name][rows])
    name = "output_projection/kernel"
    np.testing.assert_array_equal(now[name][:, moved], before[name][:, rows])


def test_a_weight_of_a_different_shape_is_refused_by_name(source, tokenizers):
    with pytest.raises(UserError, match=r"inner/bias of shape \(16,\)\. Received: \(12,\)"):
        begin(new_run(source), transformer(d_ff=16), tokenizers[290])


def test_a_resumed_run_takes_no_weights(source, tokenizers):
    run, model = new_run(source), transformer(seed=2)
    compile_model(model, run.config)
    model.optimizer.build(model.trainable_variables)
    save_state(run.checkpoints.state_path(1), model, {})
    before = arrays(model)
    begin(run, model, tokenizers[290])
    name = "embedding/embeddings"
    np.testing.assert_array_equal(arrays(model)[name], before[name])


# --- Frozen weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "trained"),
    [
        (["encoder"], lambda path: not path.startswith("encoder/")),
        (["embedding", "*/layer_0/self_attention"],
         lambda path: "embedding" not in path and "/self_attention/" not in path),
        (["!*norm"], lambda path: "norm/" in path),
        (["*/kernel"], lambda path: not path.endswith("/kernel")),
    ],
)  # fmt: skip
def test_a_pattern_freezes_the_layers_and_weights_it_matches(patterns, trained):
    model = transformer()
    freeze(model, patterns)
    assert {w.path for w in model.trainable_weights} == {*filter(trained, arrays(model))}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["encoder", "norm"], "`training.freeze` 'norm' matches no weight. There are: embed"),
        (["!norm"], "`training.freeze` '!norm' matches no weight"),
        (["*"], r"leaves nothing to train. Received: \*"),
    ],
)
def test_patterns_that_freeze_nothing_or_everything_are_refused(patterns, message):
    with pytest.raises(UserError, match=message):
        freeze(transformer(), patterns)


def test_random_weights_are_not_frozen(source, tokenizers):
    keras.utils.set_random_seed(3)
    model = Transformer(290, **SHAPE, output_bias=True)
    with pytest.raises(UserError, match="which lacks .*output_bias. Freeze fewer"):
        begin(new_run(source, freeze=["*output_bias"]), model, tokenizers[290])


# --- Adapters ---------------------------------------------------------------------------------


def test_checkpoints_hold_merged_kernels_and_are_loaded_with_idle_adapters(
    source, tokenizers, tmp_path
):
    run, model = new_run(source, lora_rank=2), transformer(seed=2)
    begin(run, model, tokenizers[290])
    compile_model(model, run.config)
    ids = np.random.default_rng(1).integers(4, 290, [4, 6])
    batch = {"source": ids, "target": ids}
    for _ in range(30):
        model.train_on_batch(batch, ids)
    logits = model(batch)
    save_weights(tmp_path / "merged.npz", model)
    save_state(tmp_path / "state.npz", model, {})
    for file in ("merged.npz", "state.npz"):
        load_weights(tmp_path / file, plain := transformer(seed=3))
        np.testing.assert_allclose(plain(batch), logits, atol=1e-5)
    assert np.abs(transformer()(batch) - logits).max() > 1e-3  # it has learned
    begin(run, adapted := transformer(seed=4), tokenizers[290])
    load_weights(tmp_path / "merged.npz", adapted)
    np.testing.assert_allclose(adapted(batch), logits, atol=1e-5)


DECODING = DecodingConfig(beam_size=2, max_extra_length=50)


@pytest.fixture
def run(run) -> Run:
    """A copy of the trained run as if its positions were learned, with random weights."""
    changes = {"model.positions": "learned", "model.max_length": 256}
    run = Run(run.path, run.config.replace(changes))
    save_weights(run.checkpoints.best, build_model(run.config))
    return run


@pytest.fixture
def translator(run) -> Translator:
    run.set_positions(6, 7)
    return load_translator(run, "best", decoding=DECODING)


def sources(translator: Translator) -> tuple[str, str]:
    """A text as long as the longest training sentence, and a longer one."""
    fitting, longer = " ".join(["the"] * 5), " ".join(["the"] * 8)
    ids = translator.tokenizer.tokenize(tf.constant([fitting, longer]))
    assert ids.row_lengths().numpy().tolist() == [5, 8]
    return fitting, longer


def limits(run: Run) -> tuple[int | None, int | None]:
    return run.config.model.longest_source, run.config.model.longest_target


def longest(run: Run) -> tuple[int, int]:
    """The lengths of the longest source and target in the training corpus."""
    corpus = EncodedCorpus.open(run.data / "train")
    return int(corpus.source_lengths.max()), int(corpus.target_lengths.max())


def test_training_sets_the_lengths_of_its_longest_sentences(run):
    task = TranslationTask(run, lambda *_: None)
    assert limits(run) == limits(Run.open(run.path)) == longest(run)
    assert max(longest(run)) < run.config.data.max_length
    model = task.build_model()
    assert (model.longest_source, model.longest_target) == longest(run)


def test_a_worker_that_is_not_the_chief_writes_nothing(run):
    before = (run.path / "config.json").read_bytes()
    TranslationTask(run, lambda *_: None, may_encode=False)
    assert limits(run) == longest(run)
    assert (run.path / "config.json").read_bytes() == before


def test_positions_that_an_earlier_run_trained_stay_usable(run, tmp_path):
    before = Run(shutil.copytree(run.path, tmp_path / "before"), run.config)
    before.set_positions(40, 5)
    run = Run(run.path, run.config.replace({"training.init_from": str(before.path)}))
    TranslationTask(run, lambda *_: None)
    assert limits(run) == (40, longest(run)[1]) and longest(run)[1] > 5


def test_a_resumed_run_keeps_what_earlier_sessions_trained(run):
    assert run.checkpoints.state_steps()
    config = run.config
    run.set_positions(40, 5)
    resumed = Run.create_or_resume(run.path, config)
    assert limits(resumed) == (40, 5) and not resumed.changes()
    TranslationTask(resumed, lambda *_: None)
    assert limits(resumed) == limits(Run.open(run.path)) == (40, longest(run)[1])


def test_sources_are_cut_where_the_trained_positions_end_with_a_warning(translator, caplog):
    fitting, longer = sources(translator)
    with caplog.at_level(logging.WARNING, logger="tf_transformer"):
        whole = translator.translate(fitting)
        assert not caplog.records
        cut = translator.translate(longer)
    assert caplog.messages == ["texts cut at 6 tokens, where the trained positions end: 1"]
    assert cut == whole
    assert translator.translate([longer, fitting])[0].num_tokens <= 7
    assert translator.codec.length_limits([longer]) == [7]
    (scored,) = translator.score([fitting], [longer * 3])
    assert scored.num_tokens == 7


def test_exported_functions_cut_sources_too(translator):
    fitting, longer = sources(translator)
    answer = Signatures(translator.engine, translator.decoding).functions()["serving_default"](
        tf.constant([fitting, longer])
    )
    assert answer["source_cut"].numpy().tolist() == [False, True]
    translations = answer["translation"].numpy()
    assert translations[0] == translations[1]


def test_without_trained_positions_the_table_is_the_limit(run):
    assert limits(run) == (256, 256)
    assert limits(Run(run.path, run.config.replace({"model.positions": "sinusoidal"}))) == (
        None,
        None,
    )
