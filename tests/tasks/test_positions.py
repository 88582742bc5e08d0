"""Learned positions beyond the longest training sentence are never used."""

import logging
import shutil

import pytest
import tensorflow as tf

from tf_transformer.config import DecodingConfig
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import save_weights
from tf_transformer.serving.module import Signatures
from tf_transformer.tasks.models import build_model, load_translator, position_limits
from tf_transformer.tasks.translation.task import TranslationTask

DECODING = DecodingConfig(beam_size=2, max_extra_length=50)


@pytest.fixture
def run(run) -> Run:
    """A copy of the trained run as if its positions were learned, with random weights."""
    changes = {"model.positions": "learned", "model.max_length": 256}
    run = Run(run.path, run.config.replace(changes))
    save_weights(run.checkpoints.best, build_model(run.config))
    return run


@pytest.fixture
def translator(run) -> BatchTranslator:
    run.write_trained_lengths(6, 7)
    return load_translator(run, "best", DECODING)


def sources(translator: BatchTranslator) -> tuple[str, str]:
    """A text as long as the longest training sentence, and a longer one."""
    fitting, longer = " ".join(["the"] * 5), " ".join(["the"] * 8)
    ids = translator.tokenizer.tokenize(tf.constant([fitting, longer]))
    assert ids.row_lengths().numpy().tolist() == [5, 8]
    return fitting, longer


def test_training_records_the_lengths_of_its_longest_sentences(run):
    task = TranslationTask(run, lambda *_: None)
    corpus = EncodedCorpus.open(run.data / "train")
    longest = int(corpus.source_lengths.max()), int(corpus.target_lengths.max())
    assert position_limits(run) == longest == task.build_model().position_limits
    assert max(longest) < run.config.data.max_length


def test_positions_that_an_earlier_run_trained_stay_usable(run, tmp_path):
    before = Run(shutil.copytree(run.path, tmp_path / "before"), run.config)
    before.write_trained_lengths(40, 5)
    run = Run(run.path, run.config.replace({"training.init_from": str(before.path)}))
    TranslationTask(run, lambda *_: None)
    longest = int(EncodedCorpus.open(run.data / "train").target_lengths.max())
    assert position_limits(run) == (40, longest) and longest > 5


def test_sources_are_cut_where_the_trained_positions_end_with_a_warning(translator, caplog):
    fitting, longer = sources(translator)
    with caplog.at_level(logging.WARNING, logger="tf_transformer"):
        ((whole,),) = translator.translate([fitting])
        assert not caplog.records
        ((cut,),) = translator.translate([longer])
    assert caplog.messages == ["texts cut at 6 tokens, where the trained positions end: 1"]
    assert cut == whole
    assert translator.translate([longer, fitting])[0][0].num_tokens <= 7
    assert translator.codec.length_limits([longer]) == [7]
    (scored,) = translator.score([fitting], [longer * 3])
    assert scored.num_tokens == 7


def test_exported_functions_cut_sources_too(translator):
    fitting, longer = sources(translator)
    answer = Signatures(translator).functions()["serving_default"](
        tf.constant([fitting, longer])
    )
    assert answer["source_cut"].numpy().tolist() == [False, True]
    translations = answer["translation"].numpy()
    assert translations[0] == translations[1]


def test_without_recorded_lengths_the_filters_are_the_limit(run):
    limit = run.config.data.max_length
    assert position_limits(run) == (limit, limit)
    sinusoidal = Run(run.path, run.config.replace({"model.positions": "sinusoidal"}))
    assert position_limits(sinusoidal) is None


def test_lengths_of_earlier_training_still_count(run):
    assert run.checkpoints.state_steps()
    run.write_trained_lengths(30, 20)
    run.write_trained_lengths(10, 25)
    assert run.trained_lengths() == (30, 25)


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", '{"source": "x", "target": 1}'])
def test_a_damaged_record_is_a_user_error(run, text):
    run.lengths.write_text(text, "utf-8")
    with pytest.raises(UserError, match="lengths.json is damaged"):
        load_translator(run, "best", DECODING)
