"""Learned positions beyond the longest training sentence are never used."""

import logging
import shutil

import pytest
import tensorflow as tf

from tf_transformer.config import DecodingConfig
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.export.signatures import Signatures
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import save_weights
from tf_transformer.tasks.models import build_model
from tf_transformer.tasks.translation.task import TranslationTask
from tf_transformer.tasks.translation.translator import Translator, load_translator

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
