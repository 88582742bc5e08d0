"""A Marian checkpoint as a run."""

import functools
import json
import re

import numpy as np
import pytest
import sentencepiece
from marian_folder import LAYERS, change_json, marian_logits, write_checkpoint
from safetensors.numpy import load_file, save_file
from trained import quick_export

from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.conversion.marian import from_marian
from tf_transformer.data.sentencepiece_model import ModelProto
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.translation.translator import Translator

pytest.importorskip("safetensors")


TEXTS = [
    "The old man sees a red house.",
    "We work.",
    "Ünknown zq words ☃ 日本",
    ">>deu<< Good day.",
]


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    """`convert(activation, ...)`: Marian's tensors, its vocabulary and our run."""

    @functools.cache
    def convert(activation: str, decoder_layers: int):
        folder = tmp_path_factory.mktemp(activation)
        changes = {"activation_function": activation, "decoder_layers": decoder_layers}
        tensors = write_checkpoint(folder, **changes)
        vocabulary = json.loads((folder / "vocab.json").read_text())
        return tensors, vocabulary, from_marian(folder, folder / "run")

    return convert


@pytest.fixture(scope="module")
def converted(convert):
    return convert("swish", LAYERS)


def translator_of(run: Run, **decoding) -> Translator:
    config = run.config.replace({f"decoding.{k}": v for k, v in decoding.items()})
    return load_translator(run, "best", decoding=config.decoding)


def marian_ids(translator: Translator, vocabulary) -> list[int]:
    """Marian's id for each of ours, from the names of the pieces alone."""
    pieces = translator.tokenizer.pieces(np.arange(translator.tokenizer.vocab_size)).numpy()
    names = [piece.decode().removeprefix("▁" * (b">>" in piece)) for piece in pieces]
    ids = [vocabulary.get(name, vocabulary["<unk>"]) for name in names]
    ids[BOS_ID] = vocabulary["<pad>"]
    return ids


@pytest.mark.parametrize("activation, decoder_layers", [("swish", LAYERS), ("relu", 1)])
def test_logits_are_marians(convert, activation, decoder_layers):
    tensors, vocabulary, run = convert(activation, decoder_layers)
    translator = translator_of(run)
    ids = np.array(marian_ids(translator, vocabulary))
    source = translator.codec.encode(np.array(TEXTS))[0].to_tensor(PAD_ID).numpy()
    target = np.random.default_rng(1).integers(4, len(vocabulary), (len(TEXTS), 9), "int32")
    target[:, 0] = BOS_ID
    logits = translator.model({"source": source, "target": target}).numpy()
    assert source[1, -1] == PAD_ID  # padding is part of the comparison
    for row, found in enumerate(logits):
        expected = marian_logits(
            tensors, ids[source[row][source[row] != PAD_ID]], ids[target[row]],
            swish=activation == "swish",
        )  # fmt: skip
        for ours in range(4, len(vocabulary)):
            np.testing.assert_allclose(found[:, ours], expected[:, ids[ours]], atol=2e-5)
        np.testing.assert_allclose(
            found[:, [1, BOS_ID, EOS_ID]], expected[:, [1, -1, 0]], atol=2e-5
        )
        assert found[:, PAD_ID].max() < expected.min() - 50
        assert found[:, len(vocabulary) + 1 :].max() < expected.min() - 50


def test_the_greedy_translation_is_marians(converted):
    tensors, vocabulary, run = converted
    # Without repetitions, which a random model would end in.
    translator = translator_of(run, beam_size=1, max_length=12, no_repeat_ngram=1)
    ids = np.array(marian_ids(translator, vocabulary))
    sources = translator.codec.encode(np.array(TEXTS))[0].to_list()
    for source, hypothesis in zip(sources, translator.translate(TEXTS), strict=True):
        log_prob, written = 0.0, [vocabulary["<pad>"]]
        while len(written) <= 12 and (len(written) == 1 or written[-1] != 0):
            logits = marian_logits(tensors, ids[source], written)[-1]
            logits -= np.log(np.sum(np.exp(logits)))
            allowed = logits.copy()
            allowed[written] = -np.inf  # <pad> is the first of them
            best = 0 if len(written) == 12 else int(np.argmax(allowed))
            log_prob += logits[best]
            written.append(best)
        names = list(vocabulary)
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-3)
        assert hypothesis.num_tokens == len(written) - 1
        spelled = "".join(names[i] for i in written[1:-1]).replace("▁", " ")
        assert hypothesis.replace(" ⁇ ", "<unk>").strip() == spelled.strip()


def test_targets_are_segmented_and_scored_as_by_marian(converted):
    tensors, vocabulary, run = converted
    translator = translator_of(run)
    target = "Der alte Mann sieht ein schönes Haus."
    model = sentencepiece.SentencePieceProcessor(model_file=str(run.path.parent / "target.spm"))
    labels = [vocabulary.get(piece, 1) for piece in model.encode(target, out_type=str)] + [0]
    source = np.array(marian_ids(translator, vocabulary))[
        translator.codec.encode(np.array(TEXTS[:1]))[0].to_list()[0]
    ]
    logits = marian_logits(tensors, source, [vocabulary["<pad>"], *labels[:-1]])
    log_probs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    (found,) = translator.score(TEXTS[:1], [target])
    assert found.num_tokens == len(labels)
    assert found.log_prob == pytest.approx(
        log_probs[np.arange(len(labels)), labels].sum(), abs=1e-3
    )


def test_language_tags_are_one_piece_and_unlisted_pieces_are_unknown(converted):
    _, vocabulary, run = converted
    translator = translator_of(run)
    ids = marian_ids(translator, vocabulary)
    (found,) = translator.tokenizer.tokenize([">>fra<< We work."]).to_list()
    assert ids[found[0]] == vocabulary[">>fra<<"]
    assert translator.tokenizer.pieces(found[1:2]).numpy()[0].decode().startswith("▁")
    extra = range(len(vocabulary) + 1, translator.tokenizer.vocab_size)
    assert len(extra) >= 5
    assert {ids[i] for i in extra} == {vocabulary["<unk>"]}


def test_epsilon_and_search_are_marians(converted):
    config = converted[2].config
    assert config.model.norm_epsilon == 1e-5  # PyTorch's: it is in no config.json
    decoding = config.decoding
    assert (decoding.beam_size, decoding.alpha) == (3, 1.0)
    assert (decoding.max_length, decoding.max_source_length) == (39, 64)


def test_convert_writes_a_run_and_does_not_overwrite_it(checkpoint, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["convert", str(checkpoint), "--from", "marian", run]) == 0
    assert re.fullmatch(rf"converted .* to {run} \(0\.\d MB\)\n", capsys.readouterr().out)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.json", "versions.json", "tokenizer.model", "tokenizer.target.model",
        "checkpoints",
    }  # fmt: skip
    assert main(["convert", str(checkpoint), "--from", "marian", run]) == 1
    assert "run exists already" in capsys.readouterr().err


def test_a_converted_run_is_exported_like_any_other(converted, tmp_path):
    """With biases, activation and both tokenizers; only signatures that differ in their use."""
    translator = translator_of(converted[2], beam_size=2, max_length=5)
    folder = quick_export(translator, tmp_path / "exported", "attention", "score")
    texts = np.array(TEXTS, object)
    with ExportEngine(folder) as session:
        drawn = session.run("attention", {"text": texts})
        scored = session.run("score", {"source": texts, "target": texts[::-1]})
    expected = translator.translate(TEXTS)
    assert [text.decode() for text in drawn["translation"]] == expected
    pieces = [b"".join(row).decode() for row in drawn["target_pieces"]]
    spelled = [piece.replace("▁", " ").replace("</s>", "").strip() for piece in pieces]
    assert spelled == [one.replace(" ⁇ ", "<unk>").strip() for one in expected]
    log_probs = [one.log_prob for one in translator.score(TEXTS, TEXTS[::-1])]
    np.testing.assert_allclose(scored["log_prob"], log_probs, atol=1e-4)


def test_a_converted_run_is_fine_tuned_like_any_other(checkpoint, tmp_path, capsys):
    run, text = from_marian(checkpoint, tmp_path / "run").path, tmp_path / "text"
    text.with_suffix(".en").write_text("The old man sees a red house.\nWe work.\n")
    text.with_suffix(".de").write_text("Der alte Mann sieht ein rotes Haus.\nWir arbeiten.\n")
    words = ["train", "--init-from", str(run), "--freeze", "encoder", "--source", "en"]
    words += ["--target", "de", "--train", str(text), "--valid", str(text)]
    for setting in ("steps", "evaluate_every", "average_last"):
        words += ["--set", f"training.{setting}=1"]
    words += ["--set", "decoding.max_extra_length=2", "--output", str(tmp_path / "tuned")]
    assert main(words) == 0
    assert "old dev set" not in capsys.readouterr().out  # a checkpoint comes without one
    before, after = (
        np.load(path / "checkpoints" / "best.npz") for path in (run, tmp_path / "tuned")
    )
    for name in before.files:
        # A bias of keys moves all scores of a query alike: its gradient is 0, up to rounding.
        if name.startswith("model/") and not name.endswith("/key/bias"):
            frozen = name.startswith("model/encoder/")
            assert np.array_equal(before[name], after[name]) == frozen, name
    for name in ("tokenizer.model", "tokenizer.target.model"):
        assert (tmp_path / "tuned" / name).read_bytes() == (run / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_type", "bart"), ("scale_embedding", False), ("normalize_embedding", True),
        ("normalize_before", True), ("static_position_embeddings", False),
        ("share_encoder_decoder_embeddings", False), ("tie_word_embeddings", False),
        ("encoder_attention_heads", 2), ("encoder_ffn_dim", 8), ("activation_function", "gelu"),
        ("activation_function", ["swish"]), ("decoder_start_token_id", 0), ("d_model", None),
        ("dropout", "x"), ("dropout", 1.5),
    ],
)  # fmt: skip
def test_other_architectures_are_refused_by_setting(checkpoint, assert_refused, name, value):
    change_json(checkpoint / "config.json", {name: value})
    assert_refused(f"{name}` .*Received: ")


def test_missing_values_have_the_defaults_of_transformers(checkpoint, tmp_path):
    file = checkpoint / "config.json"
    record = json.loads(file.read_text())
    del record["normalize_before"], record["share_encoder_decoder_embeddings"]
    file.write_text(json.dumps(record))
    assert from_marian(checkpoint, tmp_path / "run").config.model.attention_bias
    del record["scale_embedding"]
    file.write_text(json.dumps(record))
    with pytest.raises(UserError, match="`scale_embedding` .*nothing, which means False"):
        from_marian(checkpoint, tmp_path / "another")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "config.json cannot be read: No such file.* huggingface.co"),
        ("config.json", b"{", "config.json is not valid JSON"),
        ("vocab.json", b"[]", "must hold a JSON object. Received: list"),
        ("vocab.json", b'{"<pad>": 0}', "vocab.json must have .*Received"),
        ("source.spm", None, "source.spm cannot be read: No such file"),
        ("target.spm", b"no model", "target.spm is not a SentencePiece model"),
        ("model.safetensors", b"no tensors", "model.safetensors cannot be read"),
        ("model.safetensors", None, "has no weights. Expected model.safetensors or"),
        ("generation_config.json", b'{"bad_words_ids": [[3]]}', "`bad_words_ids` must be"),
    ],
)
def test_a_damaged_folder_is_refused(checkpoint, assert_refused, name, content, message):
    (checkpoint / name).unlink()
    if content is not None:
        (checkpoint / name).write_bytes(content)
    assert_refused(message)


def test_search_settings_and_nulls_are_converted(checkpoint, tmp_path):
    """The minimum of transformers counts the start and not the end; ours, the reverse."""
    lengths = {"min_length": 7, "max_length": 12, "no_repeat_ngram_size": 3}
    neutral = {"do_sample": False, "repetition_penalty": 1.0, "suppress_tokens": []}
    nulls = dict.fromkeys(["num_beams", "length_penalty", "forced_bos_token_id"])
    change_json(checkpoint / "generation_config.json", lengths | neutral | nulls)
    change_json(checkpoint / "config.json", {"dropout": None, "length_penalty": 0.5})
    config = from_marian(checkpoint, tmp_path / "run").config
    assert config.decoding == DecodingConfig(
        beam_size=4, alpha=0.5, max_source_length=64, max_length=11, min_length=7,
        no_repeat_ngram=3,
    )  # fmt: skip
    assert config.model.dropout == 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_length", 1), ("max_length", "40"), ("num_beams", 0), ("num_beams", 1.5),
        ("num_beams", "4"), ("length_penalty", -1), ("length_penalty", 10.5),
        ("length_penalty", "x"), ("min_length", 40), ("no_repeat_ngram_size", -1),
        ("forced_eos_token_id", 1), ("forced_bos_token_id", 3), ("repetition_penalty", 1.2),
        ("do_sample", True), ("num_beam_groups", 2), ("max_new_tokens", 5),
        ("suppress_tokens", [4]),
    ],
)  # fmt: skip
def test_unsupported_search_settings_are_refused_by_name(
    checkpoint, assert_refused, name, value
):
    change_json(checkpoint / "generation_config.json", {name: value})
    received = re.escape(repr(value))
    assert_refused(f"`{name}` must be .*Received: {received}\\.")


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("", "not empty, .*Received: ''"),
        ("a\0b", r"without NUL. Received: 'a\\x00b'"),
        ("\ud800", r"valid Unicode.*Received: '\\ud800'"),
        ("▁>>fra<<", "must have >>fra<< or ▁>>fra<<.*Received: both"),
    ],
)
def test_pieces_that_sentencepiece_cannot_have_are_refused(
    checkpoint, assert_refused, piece, message
):
    vocabulary = json.loads((checkpoint / "vocab.json").read_text())
    *names, _, pad = vocabulary
    vocabulary = {name: i for i, name in enumerate([*names, piece, pad])}
    (checkpoint / "vocab.json").write_text(json.dumps(vocabulary))
    assert_refused(message)


def test_an_id_that_is_a_string_is_refused(checkpoint, assert_refused):
    change_json(checkpoint / "vocab.json", {">>fra<<": "3"})
    assert_refused("ids in vocab.json must be 0 to")


def test_tokenizers_that_cannot_be_opened_are_refused(checkpoint, assert_refused):
    """The source model has a second unknown piece, under a name in vocab.json."""
    vocabulary = json.loads((checkpoint / "vocab.json").read_text())
    model = ModelProto.FromString((checkpoint / "source.spm").read_bytes())
    name = next(piece.piece for piece in model.pieces[3:] if piece.piece in vocabulary)
    model.pieces[0].piece = name
    model.pieces[[piece.piece for piece in model.pieces].index(name, 1)].piece = "<another>"
    (checkpoint / "source.spm").write_bytes(model.SerializeToString())
    assert_refused("must together be valid SentencePiece models")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.shared.weight", None, "must have model.shared.weight of shape .* nothing"),
        ("final_logits_bias", lambda x: x[0], "final_logits_bias of shape"),
        ("lm_head.weight", lambda x: x + 1, "lm_head.weight must equal model.shared.weight"),
        ("model.encoder.layernorm_embedding.weight", lambda x: x, "Received also: model.enc"),
        ("model.decoder.embed_positions.weight", lambda x: x, "hold the paper's sinusoids"),
    ],
)
def test_unexpected_tensors_are_refused(checkpoint, assert_refused, name, change, message):
    tensors = load_file(checkpoint / "model.safetensors")
    tensor = tensors.pop(name, tensors["model.shared.weight"])
    if change:
        tensors[name] = change(tensor)
    save_file(tensors, checkpoint / "model.safetensors")
    assert_refused(message)
