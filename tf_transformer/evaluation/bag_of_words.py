"""A multinomial logistic regression on words and pairs of words: the score to beat.

The features of a sentence are the words it has and the pairs of neighbours (Wang and Manning
2012 found binary counts of both to be a strong baseline); the weights minimise the sum of the
cross-entropies and l2 / 2 times the sum of the squared weights, without the biases. The
minimum is found by L-BFGS (Nocedal and Wright 2006, algorithms 7.4 and 7.5).
"""

import itertools
import re
from collections import deque
from collections.abc import Sequence

import numpy as np

from tf_transformer.errors import UserError

MEMORY = 10  # pairs of steps and changes of gradient that L-BFGS remembers
MOST_STEPS = 1_000
CLASSES_AT_ONCE = 16  # bounds the memory of a product
TOLERANCE = 1e-4  # of the gradient's norm to that of the first
MOST_HALVINGS = 40  # of a step's length
SUFFICIENT = 1e-4  # share of the promised decrease that a step must bring

_WORD = re.compile(r"\w+|[^\w\s]")


def features_of(sentence: str) -> set[str]:
    """The words of a sentence in lower case, signs each by itself, and pairs of neighbours."""
    words = _WORD.findall(sentence.lower())
    return {*words, *(" ".join(pair) for pair in itertools.pairwise(words))}


class BagOfWords:
    """The classifier: `fit` on the labels of its sentences, then `classify` others.

    Args:
        sentences: to train on; their features are all there are.
        labels: all classes.
        l2: strength of the penalty.
    """

    def __init__(
        self, sentences: Sequence[str], labels: Sequence[str], *, l2: float = 1.0
    ) -> None:
        self._labels = list(labels)
        self._l2 = l2
        bags = [features_of(sentence) for sentence in sentences]
        names = sorted(set().union(*bags))
        self._columns = {name: column for column, name in enumerate(names)}
        self._matrix = self._sparse(bags)
        # A column of weights for each class, and a last row of biases.
        self._weights = np.zeros((len(names) + 1, len(self._labels)))

    @property
    def num_features(self) -> int:
        return len(self._columns)

    def fit(self, labels: Sequence[str]) -> int:
        """Finds the weights for the labels of the sentences; returns the steps it took.

        Raises:
            UserError: if the minimum is not found.
        """
        numbers = {label: number for number, label in enumerate(self._labels)}
        gold = np.array([numbers[label] for label in labels])
        objective = _Objective(self._matrix, gold, self._weights.shape, self._l2)
        self._weights, steps = minimise(objective, self._weights)
        return steps

    def classify(self, sentences: Sequence[str]) -> list[str]:
        """The most probable label of each sentence."""
        matrix = self._sparse([features_of(sentence) for sentence in sentences])
        best = matrix.times(self._weights).argmax(axis=1)
        return [self._labels[index] for index in best]

    def _sparse(self, bags: Sequence[set[str]]) -> "_Sparse":
        """Features that were not in training are left out; every row has the bias."""
        rows, columns = [], []
        for row, bag in enumerate(bags):
            known = sorted(self._columns[name] for name in bag if name in self._columns)
            columns += [*known, len(self._columns)]
            rows += [row] * (len(known) + 1)
        return _Sparse(np.array(rows), np.array(columns))


class _Sparse:
    """A matrix of zeros and ones, by the places of its ones; each row has one at least.

    Args:
        rows, columns: of the ones, in the order of the rows.
    """

    def __init__(self, rows: np.ndarray, columns: np.ndarray) -> None:
        self._by_row = columns, np.flatnonzero(np.diff(rows, prepend=-1))
        order = np.argsort(columns, kind="stable")
        self._by_column = rows[order], np.flatnonzero(np.diff(columns[order], prepend=-1))

    def times(self, dense: np.ndarray) -> np.ndarray:
        """[N, F] times [F, C]."""
        return _sums(dense, *self._by_row)

    def transposed_times(self, dense: np.ndarray) -> np.ndarray:
        """[F, N] times [N, C], where every column has a one."""
        return _sums(dense, *self._by_column)


def _sums(dense: np.ndarray, rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The sums of the rows of `dense` that `rows` lists, from each start to the next."""
    parts = range(0, dense.shape[1], CLASSES_AT_ONCE)
    return np.concatenate(
        [
            np.add.reduceat(dense[:, part : part + CLASSES_AT_ONCE][rows], starts)
            for part in parts
        ],
        axis=1,
    )


class _Objective:
    """The penalised sum of cross-entropies, and its gradient."""

    def __init__(self, matrix: _Sparse, gold: np.ndarray, shape: tuple[int, int], l2: float):
        self._matrix, self._gold = matrix, gold
        self._penalty = np.full((shape[0], 1), l2)
        self._penalty[-1] = 0  # the biases

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = self._matrix.times(weights)
        logits -= logits.max(axis=1, keepdims=True)
        exponentials = np.exp(logits)
        totals = exponentials.sum(axis=1, keepdims=True)
        sentences = np.arange(len(self._gold))
        losses = np.log(totals[:, 0]) - logits[sentences, self._gold]
        error = exponentials / totals
        error[sentences, self._gold] -= 1
        value = losses.sum() + np.sum(self._penalty * weights**2) / 2
        return float(value), self._matrix.transposed_times(error) + self._penalty * weights


def minimise(objective, start: np.ndarray) -> tuple[np.ndarray, int]:
    """The minimum of a smooth convex function by L-BFGS with backtracking.

    Args:
        objective: from a point to value and gradient.
        start: where to begin.

    Returns:
        The point, and how many steps it took.

    Raises:
        UserError: if it is not reached in `MOST_STEPS`.
    """
    point = start
    value, gradient = objective(point)
    goal = TOLERANCE * np.linalg.norm(gradient)
    memory: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=MEMORY)
    for step in range(MOST_STEPS):
        if np.linalg.norm(gradient) <= goal:
            return point, step
        direction = -_times_inverse_hessian(gradient, memory)
        scale = 1.0 if memory else 1 / np.linalg.norm(gradient)
        slope = np.vdot(direction, gradient)
        for _ in range(MOST_HALVINGS):
            new = point + scale * direction
            new_value, new_gradient = objective(new)
            if new_value <= value + SUFFICIENT * scale * slope:
                break
            scale /= 2
        else:
            return point, step  # no better number near: as good as float64 has it
        memory.append((new - point, new_gradient - gradient))
        point, value, gradient = new, new_value, new_gradient
    raise UserError(
        f"The bag of words has no minimum after {MOST_STEPS:,} steps: give a larger --l2."
    )


def _times_inverse_hessian(gradient: np.ndarray, memory: deque) -> np.ndarray:
    """The gradient times an estimate of the inverse Hessian (the two-loop recursion)."""
    result, factors = gradient.copy(), []
    for moved, change in reversed(memory):
        factor = np.vdot(moved, result) / np.vdot(moved, change)
        result -= factor * change
        factors.append(factor)
    if memory:
        moved, change = memory[-1]
        result *= np.vdot(moved, change) / np.vdot(change, change)
    for (moved, change), factor in zip(memory, reversed(factors), strict=True):
        result += moved * (factor - np.vdot(change, result) / np.vdot(moved, change))
    return result
