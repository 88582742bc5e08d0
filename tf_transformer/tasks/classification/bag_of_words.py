"""Baseline for a classifier: logistic regression on words and pairs of words.

The features of a sentence are its lower-cased words, its punctuation marks and pairs of
neighbouring ones, each present or absent (Wang and Manning 2012 found binary counts strong).
"""

import warnings
from collections.abc import Sequence

from tf_transformer.errors import UserError, missing_extra
from tf_transformer.strings import refuse_string

MAX_ITERATIONS = 1_000
TOLERANCE = 1e-6  # at scikit-learn's 1e-4, labels of test sentences still change
_WORD_OR_MARK = r"\w+|[^\w\s]"


class BagOfWords:
    """Multinomial logistic regression on binary counts, by scikit-learn.

    Training minimises the sum of the cross-entropies plus l2 / 2 times the sum of the squared
    weights; biases are not penalised. Call `fit`, then `classify`.

    Args:
        l2: strength of the penalty.

    Raises:
        UserError: if scikit-learn is not installed.
    """

    def __init__(self, *, l2: float = 1.0) -> None:
        try:
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.feature_extraction.text import CountVectorizer
            from sklearn.linear_model import LogisticRegression
        except ImportError:
            raise missing_extra("The baseline", "scikit-learn", "baseline") from None
        self._features = CountVectorizer(
            binary=True, ngram_range=(1, 2), token_pattern=_WORD_OR_MARK
        )
        self._regression = LogisticRegression(max_iter=MAX_ITERATIONS, tol=TOLERANCE)
        self._not_converged = ConvergenceWarning
        self._l2 = l2

    @property
    def num_features(self) -> int:
        """Number of distinct words and pairs of words."""
        return len(self._features.vocabulary_)

    def fit(self, sentences: Sequence[str], labels: Sequence[str]) -> int:
        """Learns the weights; returns the number of iterations.

        Raises:
            UserError: if no sentence has a word, or training does not converge.
        """
        refuse_string("sentences", sentences)
        try:
            counts = self._features.fit_transform(sentences)
        except ValueError:
            raise UserError(
                "The training sentences have no words. Expected at least one."
            ) from None
        # For two classes scikit-learn keeps one vector w instead of w / 2 and -w / 2, whose
        # squares sum to only half as much.
        penalty = self._l2 / 2 if len(set(labels)) == 2 else self._l2
        try:
            with warnings.catch_warnings(category=self._not_converged, action="error"):
                self._regression.set_params(C=1 / penalty).fit(counts, labels)
        except self._not_converged:
            raise UserError(
                f"The baseline did not converge in {MAX_ITERATIONS:,} iterations: give a "
                "larger --l2."
            ) from None
        return int(self._regression.n_iter_.max())

    def classify(self, sentences: Sequence[str]) -> list[str]:
        """Returns the most probable label of each sentence."""
        refuse_string("sentences", sentences)
        return self._regression.predict(self._features.transform(sentences)).tolist()
