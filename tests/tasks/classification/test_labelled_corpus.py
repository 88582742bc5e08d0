"""Labelled sentences as token ids and class numbers, on disk and in batches."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import toy_labels

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.batches import BatchPlan
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.tasks.classification.labelled_corpus import (
    LabelledCorpus,
    encode_labelled,
    labelled_dataset,
)

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
    rows = plan.batch(1).rows
    usual = [corpus.source(row).tolist() for row in rows]
    drawn = [ids[ids != PAD_ID].tolist() for ids in last["source"][: len(rows)]]
    assert drawn != usual
    assert tokenizer.detokenize(tf.ragged.constant(drawn, tf.int32)).numpy().tolist() == [
        EXAMPLES[row][0].encode() for row in rows
    ]
    assert classes[: len(rows)].tolist() == [corpus.target(row)[0] for row in rows]


def test_it_has_lengths_like_any_corpus(corpus, tokenizer, tmp_path):
    """A run's model card reads it as an `EncodedCorpus`, where a label counts as one token."""
    encode_labelled([EXAMPLES], tokenizer, LABELS, tmp_path / "c", max_length=256)
    plain = EncodedCorpus.open(tmp_path / "c")
    np.testing.assert_array_equal(plain.source_lengths, corpus.source_lengths)
    assert plain.target_lengths.tolist() == [1] * len(corpus)


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
