"""The classification task: its corpus, labels and dev score, the encoder it starts from."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import toy_labels

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, PAD_ID, Config
from tf_transformer.data.plan import BatchPlan
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.loading.load import load_classifier
from tf_transformer.models.classifier import Classifier
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.tasks.checks import check_classification
from tf_transformer.tasks.classification.labelled import (
    LABELS_FILE,
    Example,
    read_examples,
    read_labels,
)
from tf_transformer.tasks.classification.predictor import build_classifier
from tf_transformer.tasks.classification.task import (
    ClassificationTask,
    LabelledCorpus,
    encode_labelled,
    labelled_dataset,
)
from tf_transformer.tasks.registry import settings_from
from tf_transformer.training.trainer import compile_model


@pytest.fixture(scope="module")
def task(classification_run) -> ClassificationTask:
    return ClassificationTask(Run.open(classification_run.path), lambda *_: None)


@pytest.fixture(scope="module")
def predictor(task):
    return load_classifier(task.run, "best")


@pytest.fixture
def config(classification_run) -> Config:
    return Run.open(classification_run.path).config


@pytest.fixture(scope="module")
def dev(classification_run) -> list[Example]:
    return list(read_examples(classification_run.corpus / "dev.tsv"))


@pytest.fixture(scope="module")
def trained(task) -> Classifier:
    """The model with the weights of the best checkpoint."""
    model = task.build_model()
    load_weights(task.run.checkpoints.best, model)
    return model


@pytest.fixture
def run(task, tmp_path) -> Run:
    """A copy of the run, to change."""
    return Run.open(shutil.copytree(task.run.path, tmp_path / "run"))


# --- Data --------------------------------------------------------------------------------


def test_there_are_no_built_in_labels():
    with pytest.raises(
        UserError, match="Classification needs --train FILE .* of a label, .* none of them"
    ):
        check_classification(Config(task="classification"))


def test_decoder_settings_are_reported_once_as_having_no_effect(task, config, caplog):
    check_classification(config)
    assert not caplog.records
    config = config.replace({"model.output_bias": True})
    check_classification(config)
    build_classifier(Run(task.run.path, config))
    assert caplog.messages == ["model.output_bias has no effect: a classifier has no decoder"]


@pytest.mark.parametrize(
    ("split", "text", "expected"),
    [
        ("train", "animal\tcat\nanimal\tdog\n", "at least two labels"),
        ("valid", "animal\tcat\nplant\ttree\n", "bad.tsv:2: .*'plant'. They have: animal, col"),
    ],
)
def test_bad_files_are_refused_before_anything_else(config, tmp_path, split, text, expected):
    (tmp_path / "bad.tsv").write_text(text)
    with pytest.raises(UserError, match=expected):
        check_classification(config.replace({f"data.{split}": (str(tmp_path / "bad.tsv"),)}))


@pytest.fixture
def changed(run, tmp_path) -> Run:
    """A copy of the run whose training file has one more label."""
    lines = Path(run.config.data.train[0]).read_text() + "plant\ttree\n"
    (tmp_path / "more.tsv").write_text(lines)
    return Run(run.path, run.config.replace({"data.train": (str(tmp_path / "more.tsv"),)}))


def test_labels_may_not_change_once_training_has_begun(task, changed):
    with pytest.raises(
        UserError, match="must have the labels that .* New: plant; missing: none"
    ):
        ClassificationTask.effective_data(changed)
    assert read_labels(changed) == task.labels
    for path in changed.checkpoints.path.glob("state-*"):
        path.unlink()
    ClassificationTask.effective_data(changed, may_write=False)  # as on a worker
    assert read_labels(changed) == task.labels
    ClassificationTask.effective_data(changed)
    assert read_labels(changed) == ["animal", "colour", "number", "plant"]


def test_lost_labels_are_not_guessed_once_training_has_begun(run):
    file = run.path / LABELS_FILE
    file.unlink()
    with pytest.raises(UserError, match=r"labels.json is gone. Restore it from a copy"):
        ClassificationTask.effective_data(run)
    assert not file.exists()


def test_damaged_labels_are_a_clear_error(run):
    (run.path / LABELS_FILE).write_text('["animal"')
    with pytest.raises(UserError, match=r"labels.json is damaged: .*JSON list"):
        load_classifier(run, "best")


# --- Dev score ---------------------------------------------------------------------------


def test_the_dev_score_is_that_of_the_classifier(task, trained, predictor, dev):
    result = task.evaluator(trained)()
    predicted = predictor.classify([one.sentence for one in dev])
    right = sum(each == one.label for each, one in zip(predicted, dev, strict=True))
    assert result.metrics["accuracy"] == right / len(dev) > 0.7
    assert result.headline.startswith(f"accuracy {100 * right / len(dev):.2f} F1 ")


def test_keras_computes_the_same_accuracy_in_batches(task, trained, predictor, dev):
    compile_model(trained, task.run.config)
    data = task.validation_data()
    logs = trained.evaluate(data, steps=task.validation_steps, verbose=0, return_dict=True)
    probabilities = predictor.probabilities([one.sentence for one in dev])
    of_gold = [
        row[predictor.labels.index(one.label)]
        for row, one in zip(probabilities, dev, strict=True)
    ]
    assert logs["tokens"] == len(dev)
    assert logs["accuracy"] == pytest.approx(task.evaluator(trained)().metrics["accuracy"])
    assert logs["perplexity"] == pytest.approx(np.exp(-np.log(of_gold).mean()), rel=1e-4)


# --- Predictor ---------------------------------------------------------------------------


def test_probabilities_do_not_depend_on_the_batch(predictor):
    sentences = ["the cat", "", "two of " * 30, "red"]
    together = predictor.probabilities(sentences)
    np.testing.assert_allclose(together.sum(axis=1), 1, atol=1e-6)
    for sentence, row in zip(sentences, together, strict=True):
        np.testing.assert_allclose(predictor.probabilities([sentence])[0], row, atol=1e-5)
    assert predictor.probabilities([]).shape == (0, 3)


# --- The encoder of another run ----------------------------------------------------------


@pytest.mark.parametrize("which", ["trained_run", "parsing_run", "classification_run"])
def test_embeddings_and_encoder_of_any_run_are_taken_over(config, tmp_path, request, which):
    source = request.getfixturevalue(which).path
    theirs = settings_from(Run.open(source), config.flat(), named=True)
    config = config.replace({"training.init_from": str(source)} | theirs)
    check_classification(config)
    run = Run.create_or_resume(tmp_path / "fine", config)
    task = ClassificationTask(run, lambda *_: None)
    assert task.tokenizer.model_bytes == (source / "tokenizer.model").read_bytes()
    taken = {weight.path: weight.numpy() for weight in task.build_model().trainable_weights}
    with np.load(source / "checkpoints" / "best.npz") as best:
        for name, value in taken.items():
            if not name.startswith("classes/"):
                np.testing.assert_array_equal(value, best[f"model/{name}"])
    assert taken["classes/kernel"].shape[1] == 3


# --- Corpus ------------------------------------------------------------------------------

LABELS = ["animal", "colour", "number"]
EXAMPLES = [tuple(reversed(line.split("\t"))) for line in toy_labels(90, seed=1)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "t.model"
    train_tokenizer((one for one, _ in EXAMPLES), path, vocab_size=300, kind="bpe")
    return Tokenizer(path)


@pytest.fixture(scope="module")
def corpus(tokenizer, tmp_path_factory) -> LabelledCorpus:
    folder = tmp_path_factory.mktemp("corpus") / "train"
    return encode_labelled(
        [EXAMPLES], tokenizer, LABELS, folder, max_length=256, fingerprint="f"
    )


def test_sentences_and_labels_can_be_restored(tokenizer, corpus):
    assert len(corpus) == len(EXAMPLES)
    for index, (sentence, label) in enumerate(EXAMPLES):
        ids = corpus.source(index)
        assert ids[-1] == EOS_ID
        assert tokenizer.detokenize(ids[None])[0].numpy().decode() == sentence
        assert LABELS[corpus.target(index)[0] - 1] == label
    assert corpus.fingerprint == "f"
    assert corpus.report.summary() == "90 pairs read, 90 kept"


def test_a_long_sentence_is_cut_and_counted(tokenizer, tmp_path):
    examples = [("the cat " * 20, "animal"), ("blue", "colour")]
    corpus = encode_labelled([examples], tokenizer, LABELS, tmp_path / "c", max_length=9)
    assert corpus.source_lengths.max() == 9
    assert corpus.source(0)[-1] == EOS_ID
    whole = tokenizer.tokenize([examples[0][0]])[0].numpy()
    assert corpus.source(0)[:-1].tolist() == whole[:8].tolist()
    assert corpus.report.summary() == "2 pairs read, 2 kept; 1 cut to 9 tokens"


def test_sentences_may_be_segmented_anew_at_each_step(tokenizer, corpus):
    sampler = SubwordSampler(corpus, tokenizer, 0.3, seed=5)
    plan = BatchPlan(
        sampler.lengths("source", 256), batch_tokens=10_000, max_length=256, seed=1
    )
    batches = labelled_dataset(corpus, plan, sampler=sampler, num_steps=2)
    again = labelled_dataset(corpus, plan, sampler=sampler, start_step=1, num_steps=1)
    (_, _), (last, classes) = batches.as_numpy_iterator()
    ((expected, _),) = again.as_numpy_iterator()
    np.testing.assert_array_equal(last["source"], expected["source"])
    rows = plan.batch(1).indices
    usual = [corpus.source(row).tolist() for row in rows]
    drawn = [ids[ids != PAD_ID].tolist() for ids in last["source"][: len(rows)]]
    assert drawn != usual
    assert tokenizer.detokenize(tf.ragged.constant(drawn, tf.int32)).numpy().tolist() == [
        EXAMPLES[row][0].encode() for row in rows
    ]
    assert classes[: len(rows)].tolist() == [corpus.target(row)[0] for row in rows]


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_an_epoch_has_each_sentence_once_and_is_padded_with_zeros(corpus, num_replicas):
    plan = BatchPlan(corpus.source_lengths, batch_tokens=128, max_length=256, seed=1)
    examples = []
    steps, replicas = plan.steps_per_epoch, range(num_replicas)
    dataset = labelled_dataset(
        corpus, plan, num_steps=steps, replicas=replicas, num_replicas=num_replicas
    )
    for inputs, classes in dataset:
        source, classes = inputs["source"].numpy(), classes.numpy()
        assert classes.shape == source.shape[:1]
        np.testing.assert_array_equal(classes == 0, ~source.any(axis=1))
        examples += [
            (tuple(ids[ids != 0]), number)
            for ids, number in zip(source, classes, strict=True)
            if number
        ]
    expected = [(tuple(corpus.source(i)), corpus.target(i)[0]) for i in range(len(corpus))]
    assert sorted(examples) == sorted(expected)


def test_a_plan_for_one_side_counts_only_that_side(corpus):
    plan = BatchPlan(corpus.source_lengths, batch_tokens=128, max_length=256, seed=1)
    batches = [plan.batch(step) for step in range(plan.steps_per_epoch)]
    positions = sum(batch.num_rows * batch.length for batch in batches)
    expected = 1 - corpus.source_lengths.sum() / positions
    assert plan.padding_waste() == pytest.approx(expected)
    mean = corpus.source_lengths.sum() / plan.steps_per_epoch
    assert f"on average {mean:,.0f} source tokens a batch" in plan.summary()
