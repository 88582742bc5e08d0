"""The model and the corpora of a run."""

import shutil
from pathlib import Path

import pytest
import sentencepiece

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.models.transformer import build_model
from tf_transformer.run import Run
from tf_transformer.translation.task import TranslationTask


def with_settings(run: Run, settings: dict[str, object]) -> Run:
    return Run(run.path, run.config.replace(settings))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_model_computes_in_the_precision_of_the_run(run, precision):
    model = build_model(run.config.replace({"training.precision": precision}))
    assert model.dtype_policy.name == precision
    assert all(weight.dtype == "float32" for weight in model.trainable_weights)


@pytest.fixture
def two_models(trained_run, tmp_path) -> Tokenizer:
    """A tokenizer with a separate model for the target language."""
    for language, name in (("en", "two.model"), ("de", "two.target.model")):
        lines = trained_run.lines(f"train.{language}")
        train_tokenizer(lines, tmp_path / name, vocab_size=330, kind="bpe")
    return Tokenizer(tmp_path / "two.model")


def prepared(trained_run, run: Path, tokenizer: Tokenizer) -> TranslationTask:
    changes = {"data.tokenizer": str(tokenizer.path), "model.vocab_size": 330}
    config = Run.open(trained_run.path).config.replace(changes)
    new = Run.create_or_resume(run, config)
    return TranslationTask(new, lambda *_: None)


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


def corpus_task(run: Run, **options) -> TranslationTask:
    return TranslationTask(run, lambda *_: None, **options)


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
