"""The bag-of-words baseline: its features, its optimum and its answers."""

import numpy as np
import pytest
from toy_labels import toy_labels

from tf_transformer.errors import UserError
from tf_transformer.tasks.classification import bag_of_words
from tf_transformer.tasks.classification.bag_of_words import BagOfWords

FEATURES = {
    *("it", "'", "s", "good", ",", "!"),
    *("it '", "' s", "s good", "good ,", ", good", "good !"),
}


def split(lines):
    labels, sentences = zip(*(line.split("\t") for line in lines), strict=True)
    return list(sentences), list(labels)


def test_features_are_words_marks_and_pairs():
    model = BagOfWords()
    model.fit(["It's GOOD, good!", "bad"], ["yes", "no"])
    assert set(model._features.vocabulary_) == FEATURES | {"bad"}


def loss_by_hand(counts, gold, weights, biases, l2: float) -> float:
    """The objective with one vector of weights per class, from its definition."""
    logits = counts @ weights.T + biases
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return -log_probs[np.arange(len(gold)), gold].sum() + l2 / 2 * np.sum(weights**2)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_the_weights_are_a_minimum_of_the_objective(l2, num_classes):
    sentences, labels = split(toy_labels(60, seed=1))
    classes = sorted(set(labels))[:num_classes]
    chosen = [index for index, label in enumerate(labels) if label in classes]
    sentences, labels = [sentences[i] for i in chosen], [labels[i] for i in chosen]
    model = BagOfWords(l2=l2)
    model.fit(sentences, labels)
    counts = model._features.transform(sentences).toarray()
    gold = np.array([classes.index(label) for label in labels])
    weights, biases = model._regression.coef_, model._regression.intercept_
    if num_classes == 2:
        weights, biases = np.vstack([-weights, weights]) / 2, np.hstack([-biases, biases]) / 2
    least = loss_by_hand(counts, gold, weights, biases, l2)
    rng = np.random.default_rng(0)
    for size in (1e-2, 1e-1):
        for _ in range(20):
            moved = weights + size * rng.normal(size=weights.shape)
            assert loss_by_hand(counts, gold, moved, biases, l2) > least
        for sign in (-1, 1):  # scaling changes the penalty most
            moved = weights * (1 + sign * size)
            assert loss_by_hand(counts, gold, moved, biases, l2) > least


def test_unseen_sentences_get_the_label_of_their_word():
    model = BagOfWords()
    model.fit(*split(toy_labels(300, seed=1)))
    test, gold = split(toy_labels(50, seed=2))
    assert model.classify(test) == gold


def test_without_a_known_word_the_most_frequent_label_is_returned():
    model = BagOfWords()
    model.fit(["red", "blue", "cat"], ["colour", "colour", "animal"])
    assert model.classify(["???", ""]) == ["colour", "colour"]


def test_no_convergence_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(bag_of_words, "MAX_ITERATIONS", 3)
    sentences, labels = split(toy_labels(60, seed=1))
    with pytest.raises(UserError, match="did not converge in 3 iterations: give a larger --l2"):
        BagOfWords(l2=1e-6).fit(sentences, labels)


def test_sentences_without_words_are_refused():
    with pytest.raises(UserError, match="no words"):
        BagOfWords().fit([" ", ""], ["a", "b"])
