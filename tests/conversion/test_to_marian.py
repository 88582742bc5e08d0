"""A run as a Marian checkpoint: its weights are the run's, in Marian's order and names."""

import json
import re

import keras
import numpy as np
import pytest
import sentencepiece
from marian_folder import HEADS, LAYERS, D, F, change_json, marian_logits, write_checkpoint

import tf_transformer
from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.config import BOS_ID, PAD_ID, DecodingConfig
from tf_transformer.conversion.marian import from_marian, to_marian
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.models.transformer import Transformer
from tf_transformer.run.checkpoints import read_arrays

safetensors = pytest.importorskip("safetensors.numpy")
load_file, save_file = safetensors.load_file, safetensors.save_file
SMALL = {"num_layers": LAYERS, "d_model": D, "d_ff": F, "num_heads": HEADS}
TEXTS = ["The old man sees a red house.", "We work.", "Ünknown zq words ☃ 日本"]


@pytest.fixture(scope="module")
def tokenizer(trained_run) -> Tokenizer:
    return Tokenizer(trained_run.path / "tokenizer.model")


def random_model(vocab_size: int, **settings) -> Transformer:
    """With values for norms and biases too, which would otherwise have no effect."""
    keras.utils.set_random_seed(3)
    model = Transformer(vocab_size, **SMALL | settings)
    rng = np.random.default_rng(3)
    for weight in model.trainable_weights:
        weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    return model


@pytest.mark.parametrize("extras", [False, True], ids=["paper's", "Marian's"])
def test_marian_computes_the_same_log_probabilities(tokenizer, tmp_path, extras):
    """By an own forward pass in NumPy, from vocab.json and source.spm, as Marian reads them."""
    biases = {"attention_bias": True, "output_bias": True} if extras else {}
    also = {"decoder_layers": 1, "activation": "swish", "norm_epsilon": 1e-5} if extras else {}
    model = random_model(tokenizer.vocab_size, **biases, **also)
    to_marian(model, tokenizer, DecodingConfig(), tmp_path / "hub")
    vocabulary = json.loads((tmp_path / "hub" / "vocab.json").read_text("utf-8"))
    tensors = load_file(tmp_path / "hub" / "model.safetensors")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "hub/source.spm"))
    for text, row in zip(TEXTS, tokenizer.ids(TEXTS), strict=True):
        source = [vocabulary[piece] for piece in pieces.encode(text, out_type=str)] + [0]
        target = [vocabulary["<pad>"], *source[:3], vocabulary["<unk>"]]
        found = marian_logits(tensors, source, target, swish=extras)
        names = tokenizer.vocabulary()
        ours = {name: i for i, name in enumerate(names)} | {"<pad>": BOS_ID, "<s>": PAD_ID}
        ids = [ours[name] for name in sorted(vocabulary, key=vocabulary.__getitem__)]
        shifted = np.array([[ids[i] for i in target]])
        expected = model({"source": np.array([[*row, 3]]), "target": shifted})[0]
        # All but the last, <pad>, which Marian never writes.
        np.testing.assert_allclose(found[:, :-1], np.array(expected)[:, ids[:-1]], atol=1e-3)
        assert (found[:, -1] == -100).all()


def test_ctranslate2_begins_from_the_first_position_alone(tokenizer, tmp_path):
    """Its converter takes <pad>, the last piece, to be zero, and drops it."""
    model = random_model(tokenizer.vocab_size)
    to_marian(model, tokenizer, DecodingConfig(max_source_length=40), tmp_path / "hub")
    tensors = load_file(tmp_path / "hub" / "model.safetensors")
    table, shared = (
        tensors["model.decoder.embed_positions.weight"],
        tensors["model.shared.weight"],
    )
    assert table.shape == (40 + 50, D) and not shared[-1].any()
    embeddings = np.array(model.projection.embeddings)
    by_ours = np.concatenate([np.arange(0, D, 2), np.arange(1, D, 2)])  # sines, then cosines
    begin = table[0] - np.repeat([0.0, 1.0], D // 2)
    np.testing.assert_allclose(begin, D**0.5 * embeddings[BOS_ID][by_ours], atol=1e-5)
    angles = np.arange(1, 90)[:, None] / 10000 ** (np.arange(0, D, 2) / D)
    expected = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    np.testing.assert_allclose(table[1:], expected, atol=1e-6)


def test_a_folder_that_transformers_has_saved_again_is_refused(tokenizer, tmp_path):
    """It leaves out positions, and with them what begins a translation."""
    to_marian(random_model(tokenizer.vocab_size), tokenizer, DecodingConfig(), tmp_path / "hub")
    tensors = load_file(tmp_path / "hub" / "model.safetensors")
    del tensors["model.decoder.embed_positions.weight"]
    save_file(tensors, tmp_path / "hub" / "model.safetensors")
    with pytest.raises(UserError, match="whose first row begins translations. Received: wei"):
        from_marian(tmp_path / "hub", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_to_the_hub_and_back_is_the_same(trained_run, tmp_path, capsys):
    assert main(["convert", str(trained_run.path), "--to", "marian", "hub"]) == 0
    out = capsys.readouterr().out
    assert (
        "transformers has a norm epsilon of 1e-05 instead of 1e-06; the length penalty" in out
    )
    assert main(["convert", "hub", "--from", "marian", "run"]) == 0
    before, after = (
        read_arrays(path / "checkpoints" / "best.npz", "model")
        for path in (trained_run.path, tmp_path / "run")
    )
    assert before and before.keys() < after.keys()
    for name, array in after.items():
        expected = before.get(name, np.zeros_like(array))
        if (differs := array != expected).any():  # in the embedding of BOS, by rounding
            assert {*np.argwhere(differs)[:, 0]} == {BOS_ID} and array.ndim == 2, name
            np.testing.assert_allclose(array, expected, atol=1e-7)
    files = [path / "tokenizer.model" for path in (trained_run.path, tmp_path / "run")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert not target_model_path(files[1]).exists()
    sources = trained_run.lines("train.en")[:60]
    found, expected = (
        tf_transformer.load(path).translate(sources, n_best=1)
        for path in ("run", trained_run.path)
    )
    assert found == expected
    for one, other in zip(found, expected, strict=True):
        assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=1e-5)


def test_a_checkpoint_that_becomes_a_run_and_a_checkpoint_is_the_same(tmp_path):
    (tmp_path / "opus").mkdir()
    expected = write_checkpoint(tmp_path / "opus")
    translator = tf_transformer.load(from_marian(tmp_path / "opus", tmp_path / "run").path)
    to_marian(translator.model, translator.tokenizer, translator.decoding, tmp_path / "hub")
    found = load_file(tmp_path / "hub" / "model.safetensors")
    old, new = (
        json.loads((tmp_path / name / "vocab.json").read_text("utf-8"))
        for name in ("opus", "hub")
    )
    rows = [new[name] for name in old]  # the others are of source.spm alone, and never come
    shared, begin = found.pop("model.shared.weight")[rows[:-1]], expected["model.shared.weight"]
    np.testing.assert_array_equal(shared, expected.pop("model.shared.weight")[:-1])
    first = found.pop("model.decoder.embed_positions.weight")[0] - np.repeat([0, 1], D // 2)
    np.testing.assert_allclose(first, D**0.5 * begin[-1], atol=1e-6)
    bias = found.pop("final_logits_bias")[:, rows[:-1]]
    np.testing.assert_array_equal(bias, expected.pop("final_logits_bias")[:, :-1])
    del expected["model.encoder.embed_positions.weight"]  # which Marian computes itself
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], name)
    again = tf_transformer.load(from_marian(tmp_path / "hub", tmp_path / "again").path)
    assert again.translate([*TEXTS, ">>deu<< We work."]) == translator.translate(
        [*TEXTS, ">>deu<< We work."]
    )


def test_the_folder_has_what_transformers_reads(tokenizer, tmp_path):
    search = DecodingConfig(
        beam_size=3, alpha=0.8, min_length=2, no_repeat_ngram=4, max_source_length=90
    )
    to_marian(random_model(tokenizer.vocab_size), tokenizer, search, tmp_path / "hub")
    records = {
        path.stem: json.loads(path.read_text("utf-8"))
        for path in (tmp_path / "hub").glob("*.json")
    }
    last = tokenizer.vocab_size - 1
    assert sorted(records["vocab"].values()) == [*range(last + 1)]
    assert [*records["vocab"]][:3] == ["</s>", "<unk>", "<s>"]
    assert records["vocab"]["<pad>"] == last
    ids = {"bos_token_id": 2, "eos_token_id": 0, "pad_token_id": last}
    ids |= {"decoder_start_token_id": last, "forced_eos_token_id": 0}
    assert records["generation_config"] == ids | {
        "num_beams": 3, "length_penalty": 0.6, "min_length": 2, "no_repeat_ngram_size": 4,
        "max_length": 141, "bad_words_ids": [[last], [2]],
    }  # fmt: skip
    assert records["tokenizer_config"]["model_max_length"] == 90
    assert records["config"].items() >= ids.items()
    assert records["config"]["max_position_embeddings"] == 140
    assert records["config"]["activation_function"] == "relu"
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "hub" / name).read_bytes() == tokenizer.model_bytes
    again = from_marian(tmp_path / "hub", tmp_path / "run").config.decoding
    assert again == DecodingConfig(**vars(search) | {"max_length": 140})
    change_json(tmp_path / "hub" / "generation_config.json", {"length_penalty": 0.9})
    assert from_marian(tmp_path / "hub", tmp_path / "other").config.decoding.alpha == 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm_first": True}, "lacks model.norm_first=True"),
        ({"norm": "rms"}, "lacks model.norm=rms"),
        ({"positions": "relative"}, "lacks model.positions=relative"),
        ({"attention_window": 4}, "lacks model.attention_window=4"),
        ({"activation": "swiglu"}, "lacks model.activation=swiglu"),
        ({"tie_embeddings": False}, "lacks model.tie_embeddings=False"),
        (
            {"key_dim": 8},
            "needs model.key_dim and model.value_dim to be d_model / num_heads, 4",
        ),
        (
            {"norm_epsilon": 1e-3},
            "norm_epsilon is 1e-05, .* smaller ones only. Received: 0.001",
        ),
    ],
)
def test_what_marian_lacks_is_refused_by_name(tokenizer, tmp_path, settings, message):
    model = Transformer(tokenizer.vocab_size, **SMALL | settings)
    with pytest.raises(UserError, match=message):
        to_marian(model, tokenizer, DecodingConfig(), tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ([form for i in range(1, 10) for form in (f"<{i}>", f"▁<{i}>")], "lacks slots"),
        ([">>fra<<", "▁>>fra<<"], "reads '>>fra<<' as special or as a language"),
    ],
)
def test_pieces_that_marian_reads_otherwise_are_refused(tmp_path, symbols, message):
    lines = ["a small text", "ein kleiner Text"] * 20
    tf_transformer.train_tokenizer(lines, "some.model", vocab_size=310, symbols=symbols)
    model = Transformer(310, **SMALL)
    with pytest.raises(UserError, match=message):
        to_marian(model, Tokenizer("some.model"), DecodingConfig(), tmp_path / "hub")


def test_a_model_of_hugging_face_is_said_to_need_conversion(tmp_path):
    (tmp_path / "hub").mkdir()
    for kind, message in {
        "marian": "hub is a marian model of Hugging Face. To make it a run: "
        "tf-transformer convert hub --from marian RUN",
        "bart": "hub is a bart model of Hugging Face. Only marian can be converted to a run.",
    }.items():
        (tmp_path / "hub" / "config.json").write_text(json.dumps({"model_type": kind}))
        with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
            tf_transformer.load("hub")
