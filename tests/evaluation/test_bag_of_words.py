"""The bag of words: its features, its minimum, its answers."""

import numpy as np
import pytest
from toy_labels import toy_labels

from tf_transformer.errors import UserError
from tf_transformer.evaluation import bag_of_words
from tf_transformer.evaluation.bag_of_words import BagOfWords, features_of, minimise


def split(lines):
    labels, sentences = zip(*(line.split("\t") for line in lines), strict=True)
    return list(sentences), list(labels)


def test_features_are_words_signs_and_pairs():
    assert features_of("It's GOOD, good!") == {
        *("it", "'", "s", "good", ",", "!"),
        *("it '", "' s", "s good", "good ,", ", good", "good !"),
    }
    assert features_of(" ") == set()


def loss_by_hand(model: BagOfWords, sentences, labels, weights, l2: float) -> float:
    """The objective with a dense matrix, from its definition."""
    names = sorted(set().union(*map(features_of, sentences)))
    dense = np.array([[name in features_of(one) for name in names] for one in sentences], float)
    logits = dense @ weights[:-1] + weights[-1]
    exponentials = np.exp(logits)
    probabilities = exponentials / exponentials.sum(1, keepdims=True)
    classes = sorted(set(labels))
    of_gold = [row[classes.index(one)] for row, one in zip(probabilities, labels, strict=True)]
    return -np.log(of_gold).sum() + l2 / 2 * np.sum(weights[:-1] ** 2)


@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_the_weights_are_a_minimum_of_the_objective(l2):
    sentences, labels = split(toy_labels(60, seed=1))
    model = BagOfWords(sentences, sorted(set(labels)), l2=l2)
    model.fit(labels)
    weights, rng = model._weights, np.random.default_rng(0)
    least = loss_by_hand(model, sentences, labels, weights, l2)
    for size in (1e-2, 1e-1):
        for _ in range(20):
            moved = weights + size * rng.normal(size=weights.shape)
            assert loss_by_hand(model, sentences, labels, moved, l2) > least


def test_unseen_sentences_get_the_label_of_their_word():
    sentences, labels = split(toy_labels(300, seed=1))
    model = BagOfWords(sentences, sorted(set(labels)))
    model.fit(labels)
    test, gold = split(toy_labels(50, seed=2))
    assert model.classify(test) == gold


def test_without_a_known_word_the_most_frequent_label_is_given():
    model = BagOfWords(["red", "blue", "cat"], ["animal", "colour"])
    model.fit(["colour", "colour", "animal"])
    assert model.classify(["???", ""]) == ["colour", "colour"]


def test_many_classes_are_the_same_in_parts(monkeypatch):
    sentences = [f"word{number} and {number % 7}" for number in range(40)]
    labels = [f"class {number % 20:02}" for number in range(40)]
    found = []
    for at_once in (3, 100):
        monkeypatch.setattr(bag_of_words, "CLASSES_AT_ONCE", at_once)
        model = BagOfWords(sentences, sorted(set(labels)))
        model.fit(labels)
        found.append(model._weights)
    np.testing.assert_allclose(*found, atol=1e-10)


def test_a_quadratic_of_bad_condition_is_minimised():
    scales, best = np.logspace(0, 3, 8), np.arange(8.0)

    def quadratic(point):
        return float(scales @ (point - best) ** 2 / 2), scales * (point - best)

    found, steps = minimise(quadratic, np.zeros(8))
    np.testing.assert_allclose(found, best, atol=1e-2)
    assert steps < 60


def test_no_minimum_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(bag_of_words, "MOST_STEPS", 3)
    sentences, labels = split(toy_labels(60, seed=1))
    model = BagOfWords(sentences, sorted(set(labels)), l2=1e-6)
    with pytest.raises(UserError, match="no minimum after 3 steps: give a larger --l2"):
        model.fit(labels)
