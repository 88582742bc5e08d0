"""A logistic regression on words and pairs of words: the score that a classifier has to beat.

The features of a sentence are its words in lower case, its punctuation marks and the pairs of
neighbours, present or not (Wang and Manning 2012 found binary counts to be a strong baseline).
"""

import warnings
from collections.abc import Sequence

from tf_transformer.errors import UserError, missing_extra
from tf_transformer.strings import refuse_string

MAX_ITERATIONS = 1_000
TOLERANCE = 1e-6  # scikit-learn's 1e-4 stops where labels of test sentences still change
_WORD_OR_MARK = r"\w+|[^\w\s]"


class BagOfWords:
    """Scikit-learn's multinomial logistic regression on binary counts.

    The weights minimise the sum of the cross-entropies plus l2 / 2 times the sum of the squared
    weights; the biases are not penalised. `fit` it, then `classify`.

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
        """Number of words and pairs of words."""
        return len(self._features.vocabulary_)

    def fit(self, sentences: Sequence[str], labels: Sequence[str]) -> int:
        """Finds the weights; returns the number of iterations.

        Raises:
            UserError: if no sentence has a word, or the minimum is not found.
        """
        refuse_string("sentences", sentences)
        try:
            counts = self._features.fit_transform(sentences)
        except ValueError:
            raise UserError("The training sentences have no words.") from None
        # With two classes scikit-learn keeps one vector w in place of w / 2 and -w / 2, whose
        # squares sum to half of w's.
        penalty = self._l2 / 2 if len(set(labels)) == 2 else self._l2
        try:
            with warnings.catch_warnings(category=self._not_converged, action="error"):
                self._regression.set_params(C=1 / penalty).fit(counts, labels)
        except self._not_converged:
            raise UserError(
                f"The baseline has not converged after {MAX_ITERATIONS:,} iterations: give a "
                "larger --l2."
            ) from None
        return int(self._regression.n_iter_.max())

    def classify(self, sentences: Sequence[str]) -> list[str]:
        """Returns the most probable label of each sentence."""
        refuse_string("sentences", sentences)
        return self._regression.predict(self._features.transform(sentences)).tolist()
