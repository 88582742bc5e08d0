"""The model, translator, tokenizer and corpora of a run."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, Config, DataConfig, DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer, target_model_path
from tf_transformer.data.vocabulary import tokenizer_settings, train_tokenizer
from tf_transformer.run import Run
from tf_transformer.tasks.models import build_model
from tf_transformer.tasks.sequences import (
    SequenceTask,
    load_tokenizer,
    require_files,
    sized,
    write_parallel_text,
)
from tf_transformer.tasks.translation.translator import load_translator


def with_settings(run: Run, settings: dict[str, object]) -> Run:
    return Run(run.path, run.config.replace(settings))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_model_computes_in_the_precision_of_the_run(run, precision):
    model = build_model(run.config.replace({"training.precision": precision}))
    assert model.dtype_policy.name == precision
    assert all(weight.dtype == "float32" for weight in model.trainable_weights)


def test_translation_computes_in_float32_whatever_the_training(run):
    mixed = with_settings(run, {"training.precision": "mixed_bfloat16"})
    translator = load_translator(mixed, "best", decoding=DecodingConfig())
    assert translator.model.dtype_policy.name == "float32"


@pytest.mark.parametrize("which", ["best", "average", "last", "160"])
def test_a_translator_has_the_weights_of_its_checkpoint(run, which):
    translator = load_translator(run, which, decoding=DecodingConfig())
    with np.load(run.checkpoints.find(which)) as arrays:
        for weight in translator.model.trainable_weights:
            np.testing.assert_array_equal(weight.numpy(), arrays[f"model/{weight.path}"])


def test_a_run_without_tokenizer_cannot_translate(run):
    run.tokenizer.unlink()
    with pytest.raises(UserError, match="has no tokenizer.model"):
        load_translator(run, "best", decoding=DecodingConfig())


def no_lines():
    raise AssertionError("the text must not be read again")


def test_the_tokenizer_of_the_run_is_kept(run):
    before = run.tokenizer.read_bytes()
    elsewhere = with_settings(run, {"data.tokenizer": "/gone/since.model"})
    assert load_tokenizer(elsewhere, no_lines).model_bytes == before
    assert run.tokenizer.read_bytes() == before


def test_a_configured_tokenizer_is_copied_into_the_run(trained_run, tmp_path):
    file = tmp_path / "configured.model"
    train_tokenizer(trained_run.lines("train.en"), file, vocab_size=400, kind="unigram")
    config = Config().replace({"data.tokenizer": str(file)})
    new = Run.create_or_resume(tmp_path / "new", config)
    assert load_tokenizer(new, no_lines).model_bytes == file.read_bytes()
    file.unlink()
    assert Tokenizer(new.tokenizer).vocab_size == 400


@pytest.fixture
def two_models(trained_run, tmp_path) -> Tokenizer:
    """A tokenizer with a separate model for the target language."""
    for language, name in (("en", "two.model"), ("de", "two.target.model")):
        lines = trained_run.lines(f"train.{language}")
        train_tokenizer(lines, tmp_path / name, vocab_size=330, kind="bpe")
    return Tokenizer(tmp_path / "two.model")


def prepared(trained_run, run: Path, tokenizer: Tokenizer) -> SequenceTask:
    changes = {"data.tokenizer": str(tokenizer.path), "model.vocab_size": 330}
    config = Run.open(trained_run.path).config.replace(changes)
    new = Run.create_or_resume(run, config)
    return SequenceTask(new, lambda *_: None)


def test_targets_are_segmented_by_a_model_of_their_own(trained_run, two_models, tmp_path):
    """They are encoded again when that model changes."""
    task = prepared(trained_run, tmp_path / "new", two_models)
    for language, model, ids_of in (
        ("en", two_models.path, task.train.source),
        ("de", target_model_path(two_models.path), task.train.target),
    ):
        library = sentencepiece.SentencePieceProcessor(model_file=str(model))
        expected = library.encode(trained_run.lines(f"train.{language}"))
        assert [[*ids, EOS_ID] for ids in expected] == [
            ids_of(index).tolist() for index in range(len(task.train))
        ]
    task.run.tokenizer.unlink()
    target_model_path(two_models.path).unlink()
    again = prepared(trained_run, tmp_path / "new", Tokenizer(two_models.path))
    assert not target_model_path(task.run.tokenizer).exists()
    assert again.train.target(0).tolist() != task.train.target(0).tolist()
    assert again.train.source(0).tolist() == task.train.source(0).tolist()


def test_an_ensemble_must_have_one_model_of_the_target_too(run, tmp_path):
    other = Run.open(shutil.copytree(run.path, tmp_path / "other"))
    assert load_translator(run, "best", decoding=DecodingConfig(), ensemble=[other])
    shutil.copy(other.tokenizer, target_model_path(other.tokenizer))
    message = "must have the same tokenizer.*different ones in .*other"
    with pytest.raises(UserError, match=message):
        load_translator(run, "best", decoding=DecodingConfig(), ensemble=[other])


def test_without_a_tokenizer_one_is_trained_on_the_text(tmp_path):
    lines = ["a small text", "that repeats a little", "a small text that repeats"] * 20
    config = Config().replace({"model.vocab_size": 276, "data.tokenizer_kind": "unigram"})
    new = Run.create_or_resume(tmp_path / "new", config)
    tokenizer = load_tokenizer(new, lambda: iter(lines))
    path = tmp_path / "expected.model"
    train_tokenizer(lines, path, vocab_size=276, kind="unigram")
    assert tokenizer.model_bytes == path.read_bytes()


@pytest.mark.parametrize(("kind", "told"), [("bpe", 0), ("unigram", 1)])
def test_a_tokenizer_kind_without_effect_is_reported(tmp_path, trained_run, caplog, kind, told):
    file = str(trained_run.path / "tokenizer.model")
    settings = {"data.tokenizer": file, "data.tokenizer_kind": kind}
    load_tokenizer(Run.create_or_resume(tmp_path / "new", Config().replace(settings)), no_lines)
    expected = f"data.tokenizer_kind={kind} has no effect: the kind of {file} is fixed"
    assert caplog.messages == [expected] * told


def test_a_lost_tokenizer_is_not_trained_again(run):
    """With different pieces the weights would be useless."""
    run.tokenizer.unlink()
    with pytest.raises(UserError, match="tokenizer.model is gone. Restore it from a copy"):
        load_tokenizer(run, no_lines)


def corpus_task(run: Run, **options) -> SequenceTask:
    return SequenceTask(run, lambda *_: None, **options)


@pytest.mark.parametrize(
    "file", ["source_ids.bin", "target_ids.bin", "source_lengths.npy", "corpus.json"]
)
def test_a_damaged_corpus_is_encoded_again_with_a_warning(run, caplog, file):
    path = run.data / "train" / file
    before = path.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(UserError, match="not match the text that this worker sees.*damaged"):
        corpus_task(run, may_encode=False)
    task = corpus_task(run)
    assert path.read_bytes() == before
    assert "data/train is encoded again: " in caplog.text
    assert len(task.train) == task.train.report.kept


def test_moved_text_is_not_encoded_again(run, trained_run, tmp_path, caplog):
    """Text is identified by its content, not by its path."""
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        shutil.copy(trained_run.corpus / name, tmp_path)
    inode = (run.data / "train" / "source_ids.bin").stat().st_ino
    files = {"data.train": [str(tmp_path / "train")], "data.valid": [str(tmp_path / "dev")]}
    moved = with_settings(run, files)
    assert corpus_task(moved).dev_set == corpus_task(run).dev_set
    assert (run.data / "train" / "source_ids.bin").stat().st_ino == inode
    assert caplog.messages == []


def test_a_tokenizer_is_trained_with_the_settings_of_the_run(tmp_path):
    settings = {"data.normalization": "nfkc", "data.character_coverage": 0.999}
    new = Run(tmp_path, Config().replace(settings | {"model.vocab_size": 267}))
    lines = ["x² … 龘"] + ["a b c"] * 2_000
    tokenizer = load_tokenizer(new, lambda: iter(lines))
    assert tokenizer_settings(new.tokenizer) == settings
    assert "²".encode() not in tokenizer.pieces(tf.range(267)).numpy()
    default = Run(tmp_path / "default", Config().replace({"model.vocab_size": 270}))
    load_tokenizer(default, lambda: iter(lines))
    assert tokenizer_settings(default.tokenizer)["data.normalization"] == "identity"


def test_a_configured_tokenizer_decides_the_size_of_the_vocabulary(trained_run):
    config = Config().replace({"data.tokenizer": str(trained_run.path / "tokenizer.model")})
    assert sized(config).model.vocab_size == 600 != config.model.vocab_size
    small = Config().replace({"model.vocab_size": 1_000})
    assert sized(small) == small


@pytest.fixture
def data(tmp_path) -> DataConfig:
    """Two training files; the second is the dev set too."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("we won")
    two.write_text("yes")
    return DataConfig(train=(str(one), str(two)), valid=(str(two),))


@pytest.mark.parametrize("missing", ["train", "valid"])
def test_incomplete_data_options_are_refused(data, missing):
    with pytest.raises(
        UserError, match="Parsing needs --train FILE and --valid FILE of trees"
    ) as error:
        require_files(dataclasses.replace(data, **{missing: ()}), "Parsing", "trees")
    assert f"--{missing}" not in str(error.value).partition("Received")[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "en"}, "no --source or --target. Received: .*--source"),
        ({"tag": ("de=<2de>",)}, "data.tag is only for --task translation"),
        ({"join": 0.3}, "data.join is only for --task translation"),
        ({"caps": 0.1}, "data.caps is only for --task translation"),
    ],
)
def test_languages_and_tags_are_refused(data, settings, message):
    with pytest.raises(UserError, match=message):
        require_files(dataclasses.replace(data, **settings), "Parsing", "trees")


def pairs(file: Path) -> Iterator[tuple[str, str]]:
    return ((word, word.upper()) for word in file.read_text().split())


def written(data: DataConfig, **options) -> DataConfig:
    folder = Path(data.train[0]).parent / "text"
    return write_parallel_text(data, folder, ("low", "high"), pairs, **options)


def text_of(prefix: str, side: str) -> str:
    return Path(f"{prefix}.{side}").read_text("utf-8")


def test_each_pair_becomes_a_line_of_both_sides(data):
    text = written(data)
    assert (len(text.train), len(text.valid)) == (2, 1)
    assert (text.source, text.target) == ("low", "high")
    assert text_of(text.train[0], "low") == "we\nwon\n"
    assert text_of(text.train[0], "high") == "WE\nWON\n"
    assert text_of(text.train[1], "high") == text_of(text.valid[0], "high") == "YES\n"


def test_text_is_written_only_if_it_changes_and_never_by_a_worker(data):
    train = written(data).train
    files = [Path(f"{prefix}.{side}") for prefix in train for side in ("low", "high")]
    before = [file.stat().st_ino for file in files]
    Path(data.train[1]).write_text("no\n")
    assert written(data, may_write=False).train == train
    assert [file.stat().st_ino for file in files] == before
    written(data)
    after = [file.stat().st_ino for file in files]
    assert after[:2] == before[:2] and text_of(train[1], "low") == "no\n"
