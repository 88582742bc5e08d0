"""A Marian checkpoint as a run."""

import dataclasses
import functools
import json
import re

import numpy as np
import pytest
import sentencepiece
from marian_folder import LAYERS, marian_logits, write_checkpoint

from tf_transformer.cli.main import main
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.conversion.from_marian import from_marian
from tf_transformer.export.publish import publish
from tf_transformer.export.session import SavedModelSession
from tf_transformer.export.translations import exportable
from tf_transformer.run import Run
from tf_transformer.tasks.translation.translator import Translator, load_translator

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
    whole = exportable(translator.engine, translator.decoding, translator)
    names = ("serving_default", "attention", "score")
    functions = {name: whole.functions[name] for name in names}
    some = dataclasses.replace(
        whole, functions=functions, requests=(), checks=lambda session: ()
    )
    texts = np.array(TEXTS, object)
    with SavedModelSession(publish(some, tmp_path / "exported")) as session:
        answer = session.run("serving_default", {"text": texts})
        drawn = session.run("attention", {"text": texts})
        scored = session.run("score", {"source": texts, "target": texts[::-1]})
    expected = translator.translate(TEXTS)
    assert [text.decode() for text in answer["translation"]] == expected
    np.testing.assert_allclose(answer["score"], [one.score for one in expected], atol=1e-4)
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
