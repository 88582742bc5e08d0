"""The tokenizer of a run: kept, copied, or trained with the settings of the run."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, Config
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import tokenizer_settings, train_tokenizer
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.run.run_tokenizer import load_tokenizer, sized, trained_pieces


def no_lines():
    raise AssertionError("the text must not be read again")


def test_the_tokenizer_of_the_run_is_kept(run):
    before = run.tokenizer.read_bytes()
    elsewhere = Run(run.path, run.config.replace({"data.tokenizer": "/gone/since.model"}))
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


def test_samples_have_only_pieces_that_training_has_seen(run, trained_run):
    """At a high temperature, where each piece that may be drawn is."""
    tokenizer, lines = Tokenizer(run.tokenizer), trained_run.lines("train.de")
    seen = {EOS_ID, *itertools.chain(*tokenizer.ids(lines, "target"))}
    wild = {"sample": True, "n_best": 200, "temperature": 100.0, "max_length": 20}

    def may_draw() -> set[int]:
        return {*np.flatnonzero(trained_pieces(run, tokenizer)).tolist()}

    def drawn() -> set[int]:
        found = load_translator(run).translate("A dog.", **wild)
        assert len(found) == 200 and not any("\ufffd" in one or "\0" in one for one in found)
        return {token for one in found for token in one.tokens}

    assert may_draw() == seen and len(seen) < tokenizer.vocab_size - 256
    assert drawn() <= seen and len(drawn()) > 0.8 * len(seen)
    pieces = tokenizer.vocabulary("target")
    spelt = {i for i, piece in enumerate(pieces) if not re.fullmatch("<unk>|<0x..>", piece)}
    (file,) = (run.data / "train").glob("target_ids.bin")
    file.write_bytes(file.read_bytes()[:200])
    config, few = run.config, may_draw()
    assert few < seen
    run = Run(run.path, config.replace({"data.subword_sampling": 0.1}))
    assert may_draw() == spelt
    run = Run(run.path, config.replace({"training.init_from": "elsewhere"}))
    assert may_draw() == spelt
    file.unlink()
    assert may_draw() == spelt and drawn() <= spelt


def test_a_lost_tokenizer_is_not_trained_again(run):
    """With different pieces the weights would be useless."""
    run.tokenizer.unlink()
    with pytest.raises(UserError, match="tokenizer.model is gone. Restore it from a copy"):
        load_tokenizer(run, no_lines)


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
