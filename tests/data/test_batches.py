"""Batches as a dataset: their ids, padding, order, shares of replicas, and text to batches."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.data.batches import make_dataset, text_dataset
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.plan import BatchPlan


@pytest.fixture(scope="module")
def corpus(letters, tmp_path_factory) -> EncodedCorpus:
    rng = np.random.default_rng(0)
    pairs = [
        tuple(" ".join(rng.choice(list("abcdefghij"), rng.integers(5, 15))) for _ in range(2))
        for _ in range(100)
    ]
    folder = tmp_path_factory.mktemp("corpus") / "c"
    return encode_corpus([pairs], letters, folder, max_length=16, max_ratio=4.0)


@pytest.fixture(scope="module")
def plan(corpus) -> BatchPlan:
    lengths = corpus.source_lengths, corpus.target_lengths
    return BatchPlan(*lengths, batch_tokens=128, max_length=16, seed=3)


def test_padding_waste_is_the_fraction_of_pad_positions(corpus, plan):
    pad = positions = 0
    for inputs, labels in make_dataset(corpus, plan, num_steps=plan.steps_per_epoch):
        for ids in (inputs["source"].numpy(), labels.numpy()):
            pad += np.sum(ids == PAD_ID)
            positions += ids.size
    assert plan.padding_waste() == pytest.approx(pad / positions)


def test_dataset_holds_the_sentences_of_the_plan(corpus, plan):
    dataset = make_dataset(corpus, plan, num_steps=plan.steps_per_epoch)
    for step, (inputs, labels) in enumerate(dataset):
        batch = plan.batch(step)
        assert labels.shape == inputs["source"].shape == (batch.num_rows, batch.length)
        for side, ids in (("source", inputs["source"]), ("target", labels)):
            expected = corpus.padded(side, batch.indices, batch.length)
            np.testing.assert_array_equal(ids[: len(batch.indices)], expected)
        unused = np.concatenate([inputs["source"], inputs["target"], labels], axis=1)
        assert not unused[len(batch.indices) :].any()


def test_text_becomes_batches_whose_order_differs_in_each_epoch(corpus, letters, caplog):
    texts = [
        [letters.texts([ids(index)[:-1]])[0] for index in range(len(corpus))]
        for ids in (corpus.source, corpus.target)
    ]
    dataset = text_dataset(*texts, letters, batch_tokens=128, max_length=16, seed=3)
    assert not caplog.messages
    epochs = [[labels.numpy() for _, labels in dataset] for _ in range(2)]
    assert [len(epoch) for epoch in epochs] == [len(dataset)] * 2
    expected = sorted(corpus.target(index).tolist() for index in range(len(corpus)))
    for epoch in epochs:
        rows = [row[row != PAD_ID].tolist() for labels in epoch for row in labels]
        assert sorted(rows) == expected  # without blank rows
    assert any(np.any(one != other) for one, other in zip(*epochs, strict=True))
    shorter = text_dataset(["a", "a b c d e f g h"], ["b", "c"], letters.path, max_length=8)
    assert len(shorter) == 1 and "2 pairs read, 1 kept" in caplog.text
    with pytest.raises(ValueError, match="the same number of strings. Received: 2 and 1"):
        text_dataset(["a", "b"], ["a"], letters)


def test_decoder_input_is_bos_and_the_labels_without_eos(corpus, plan):
    for inputs, labels in make_dataset(corpus, plan, num_steps=plan.steps_per_epoch):
        for target, label in zip(inputs["target"].numpy(), labels.numpy(), strict=True):
            label = label[label != PAD_ID].tolist()
            expected = [BOS_ID, *label[:-1]] if label else []
            assert label[-1:] in ([EOS_ID], [])
            assert target[target != PAD_ID].tolist() == expected
            assert not target[len(expected) :].any()


def test_dataset_has_the_promised_element_spec_and_cardinality(corpus, plan):
    ids = tf.TensorSpec([None, None], tf.int32)
    endless = make_dataset(corpus, plan)
    assert endless.element_spec == ({"source": ids, "target": ids}, ids)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    for shares in ({}, {"replicas": [0, 1], "num_replicas": 2}):
        counted = make_dataset(corpus, plan, num_steps=3, **shares)
        elements = 3 * len(shares.get("replicas", [0]))
        assert counted.cardinality() == sum(1 for _ in counted) == elements


def test_an_endless_dataset_continues_into_the_next_epochs(corpus, plan):
    steps = 2 * plan.steps_per_epoch + 1
    endless = make_dataset(corpus, plan).take(steps)
    counted = make_dataset(corpus, plan, num_steps=steps)
    for (_, labels), (_, expected) in zip(endless, counted, strict=True):
        np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize("start", [1, 5, 40])
def test_resuming_gives_the_batches_of_an_unbroken_run(corpus, plan, start):
    unbroken = list(make_dataset(corpus, plan, num_steps=start + 3))[start:]
    resumed = make_dataset(corpus, plan, start_step=start, num_steps=3)
    for (inputs, labels), (expected, expected_labels) in zip(resumed, unbroken, strict=True):
        np.testing.assert_array_equal(inputs["source"], expected["source"])
        np.testing.assert_array_equal(labels, expected_labels)


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_replicas_together_see_the_batches_of_one(corpus, plan, num_replicas):
    """Apart from rows of padding; here two workers make the shares."""
    steps = plan.steps_per_epoch
    whole = make_dataset(corpus, plan, start_step=1, num_steps=steps)
    options = {"start_step": 1, "num_steps": steps, "num_replicas": num_replicas}
    workers = [range(num_replicas - 1), [num_replicas - 1]]
    made = [iter(make_dataset(corpus, plan, replicas=own, **options)) for own in workers]
    for batch in whole:
        shares = [next(made[0]) for _ in workers[0]] + [next(made[1])]
        assert len({tuple(labels.shape) for _, labels in shares}) == 1
        assert real_rows(shares) == real_rows([batch])
    assert all(next(rest, None) is None for rest in made)


def real_rows(elements) -> list[tuple[tuple[int, ...], ...]]:
    """Source, decoder input and labels of every row that is not all padding, sorted."""
    rows = []
    for inputs, labels in elements:
        sides = inputs["source"].numpy(), inputs["target"].numpy(), labels.numpy()
        rows += [tuple(tuple(ids.tolist()) for ids in row) for row in zip(*sides, strict=True)]
    return sorted(row for row in rows if any(row[2]))
