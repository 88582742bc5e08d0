"""The export of a classifier: its signature from sentences to labels, and its self-test.

B batch, S length, C classes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID
from tf_transformer.decoding.text_codec import IDS
from tf_transformer.serving.exportable import Exportable
from tf_transformer.serving.groups import in_groups
from tf_transformer.serving.selftest import Comparison, compare, tolerance_of
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.token_signature import Outputs, of_vectors
from tf_transformer.serving.warmup import TEXTS, Request
from tf_transformer.tasks.classification.labelled_corpus import closed_ids

if TYPE_CHECKING:
    from tf_transformer.tasks.classification.predictor import SentenceClassifier

NAME = "serving_default"


def exportable(classifier: "SentenceClassifier") -> Exportable:
    """Returns what an export needs to know of a classifier."""
    text = {"text": np.array(TEXTS[:2], object)}
    return Exportable(
        models=[classifier.model],
        tokenizer=classifier.tokenizer,
        functions={NAME: of_vectors(_classify(classifier), text=tf.string)},
        requests=[Request(NAME, text), Request(NAME, text, ("label",))],
        compare=lambda session: _comparisons(session, classifier),
        sizes={"labels": len(classifier.labels), "max_source_tokens": classifier.max_length},
    )


def _classify(classifier: "SentenceClassifier"):
    probabilities_of = in_groups(classifier.probabilities_of, [IDS], classifier.batch_tokens)

    def classify(text: tf.Tensor) -> Outputs:
        source, cut = closed_ids(classifier.tokenizer, text, classifier.max_length)
        probabilities = probabilities_of(source.to_tensor(PAD_ID))
        labels = tf.constant(list(classifier.labels))
        return {
            "label": tf.gather(labels, tf.argmax(probabilities, axis=1)),
            "labels": tf.broadcast_to(labels, tf.shape(probabilities)),
            "probabilities": probabilities,
            "source_cut": cut,
        }

    return classify


def _comparisons(
    session: SavedModelSession, classifier: "SentenceClassifier"
) -> Iterator[Comparison]:
    """Yields all outputs beside Python's; of a tie, either label is right."""
    texts = [text for text in TEXTS if isinstance(text, str)]
    probabilities = classifier.probabilities(texts)
    answer = session.run(NAME, {"text": np.array(texts, object)})
    tolerance, names = tolerance_of(classifier.model).absolute, np.array(classifier.labels)
    best = []
    for row, received in zip(probabilities, answer["label"], strict=True):
        nearly_best = names[row >= row.max() - tolerance]
        label = received.decode()
        best.append(label if label in nearly_best else str(names[row.argmax()]))
    _, cut = closed_ids(classifier.tokenizer, tf.constant(texts), classifier.max_length)
    expected = {
        "label": best,
        "labels": [[label.encode() for label in names]] * len(texts),
        "probabilities": list(probabilities),
        "source_cut": cut.numpy().tolist(),
    }
    yield from compare(NAME, texts, expected, answer)
