"""A classifier of sentences: an encoder (paper 3.1), the mean of its output, and a projection.

A classifier's folder has `model.keras`, `tokenizer.model` and `labels.json`.
"""

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
import sentencepiece
import tensorflow as tf

import tf_transformer
from experiments.classification.labelled import (
    Example,
    LabelScores,
    labels_of,
    read_examples,
    score_labels,
)
from experiments.common import write
from tf_transformer import Encoder, PositionalEmbedding, Tokenizer, UserError

EOS_ID = 3  # of every tokenizer of the package
MAX_LENGTH = 256  # tokens of a sentence with EOS; longer ones are cut
AVERAGED = 5  # evaluations whose weights are averaged at the end


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a training, by default for some 10,000 sentences.

    Few layers, much dropout and sampled subwords, because so little text is soon memorised.
    """

    layers: int = 2  # this and the next four are not for an encoder of a run
    d_model: int = 128
    d_ff: int = 256
    heads: int = 4
    vocab_size: int = 8_000
    dropout: float = 0.3
    subword_sampling: float = 0.1  # probability of BPE-dropout
    steps: int = 2_000
    batch_tokens: int = 2_048  # positions of a batch, with padding
    warmup: int = 200
    rate_scale: float = 0.3  # factor on the paper's learning rate (5.3)
    label_smoothing: float = 0.1
    evaluate_every: int = 100
    seed: int = 1


class Classifier:
    """Classifies sentences: a model from ids [B, S] to logits [B, C], tokenizer and labels."""

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, labels: Sequence[str]) -> None:
        self.model, self.tokenizer, self.labels = model, tokenizer, list(labels)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Loads a classifier that `train` has written; UserError if there is none."""
        try:
            labels = json.loads((folder / "labels.json").read_text("utf-8"))
            model = keras.saving.load_model(folder / "model.keras", compile=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{folder} must be the --output of a training that has ended: {error}"
            ) from None
        return cls(model, Tokenizer(folder / "tokenizer.model"), labels)

    def save(self, folder: Path) -> None:
        """Writes the classifier into a folder; the model last."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.model").write_bytes(self.tokenizer.model_bytes)
        write(folder / "labels.json", json.dumps(self.labels, ensure_ascii=False, indent=0))
        self.model.save(folder / "model.keras")

    def probabilities(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns the probability of each label for each sentence: float32 [sentences, C]."""
        rows = [[*ids[: MAX_LENGTH - 1], EOS_ID] for ids in self.tokenizer.ids(sentences)]
        found = np.zeros((len(rows), len(self.labels)), np.float32)
        for batch in batches_of([*map(len, rows)], 8_192):
            logits = self.model.predict_on_batch(padded([rows[row] for row in batch]))
            found[batch] = keras.ops.softmax(logits)
        return found

    def classify(self, sentences: Sequence[str]) -> list[dict[str, float]]:
        """Returns the labels of each sentence with their probabilities, the best first."""
        ranked = []
        for row in self.probabilities(sentences):
            order = np.argsort(-row, kind="stable")
            ranked.append({self.labels[index]: float(row[index]) for index in order})
        return ranked

    def evaluate(self, examples: Sequence[Example]) -> LabelScores:
        """Classifies labelled sentences, at least one, and scores the results."""
        sentences, gold = zip(*examples, strict=True)
        predicted = [next(iter(labels)) for labels in self.classify(sentences)]
        return score_labels(gold, predicted, self.labels)


def train(
    files: Sequence[Path],
    dev_files: Sequence[Path],
    output: Path,
    settings: Settings,
    *,
    init_from: Path | None = None,
    freeze: bool = False,
) -> Classifier:
    """Trains a classifier, and writes the one that is best on the dev sentences.

    Args:
        files: files of labelled sentences.
        dev_files: those that choose the best weights.
        output: a new folder.
        settings: sizes and recipe.
        init_from: a run of a translator: its tokenizer, embedding and encoder.
        freeze: whether these stay as they are.
    """
    if (output / "model.keras").exists():
        raise UserError(f"{output} has a classifier already: choose another --output.")
    examples = [example for file in files for example in read_examples(file)]
    labels = labels_of(examples)
    dev = [example for file in dev_files for example in read_examples(file, labels)]
    keras.utils.set_random_seed(settings.seed)
    if init_from:
        translator = tf_transformer.load(init_from)
        tokenizer, encoder = translator.tokenizer, translator.encoder
    else:
        path = output / "tokenizer.model"
        path.parent.mkdir(parents=True, exist_ok=True)
        sentences = (example.sentence for example in examples)
        tf_transformer.train_tokenizer(sentences, path, vocab_size=settings.vocab_size)
        tokenizer, encoder = Tokenizer(path), None
    model = new_model(tokenizer.vocab_size, len(labels), settings, encoder, freeze=freeze)
    width = model.get_layer("embedding").d_model
    rate = tf_transformer.TransformerSchedule(width, settings.warmup, settings.rate_scale)
    model.compile(
        keras.optimizers.Adam(rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        keras.losses.CategoricalCrossentropy(True, settings.label_smoothing),
    )
    classifier = Classifier(model, tokenizer, labels)
    model.fit(
        batches(examples, classifier, settings),
        steps_per_epoch=settings.evaluate_every,
        epochs=max(settings.steps // settings.evaluate_every, 1),
        callbacks=[BestWeights(classifier, dev)],
        verbose=0,
        shuffle=False,  # batches are in random order
    )
    classifier.save(output)
    return classifier


def new_model(
    vocab_size: int,
    num_labels: int,
    settings: Settings,
    encoder: keras.Model | None = None,
    *,
    freeze: bool = False,
) -> keras.Model:
    """Returns a model from ids [B, S] to logits [B, C].

    Its embedding and encoder have the sizes of `settings`; or those of `encoder`, a model of
    ids, with its weights but the dropout of `settings`.
    """
    if encoder:
        given = {type(layer): layer for layer in encoder.layers}
        embedding = PositionalEmbedding.from_config(given[PositionalEmbedding].get_config())
        config = given[Encoder].get_config() | {"dropout": settings.dropout}
        stack = Encoder.from_config(config)
    else:
        embedding = PositionalEmbedding(vocab_size, settings.d_model, name="embedding")
        stack = Encoder(
            settings.layers,
            num_heads=settings.heads,
            d_ff=settings.d_ff,
            dropout=settings.dropout,
            norm_first=True,
            name="encoder",
        )
    source = keras.Input((None,), dtype="int32", name="source")
    encoded = stack(embedding(source))
    if encoder:
        for kind, layer in ((PositionalEmbedding, embedding), (Encoder, stack)):
            layer.set_weights(given[kind].get_weights())
            layer.trainable = not freeze
    mean = keras.layers.Dropout(settings.dropout)(
        keras.layers.GlobalAveragePooling1D(name="pooling")(encoded)
    )
    return keras.Model(source, keras.layers.Dense(num_labels, name="labels")(mean))


class BestWeights(keras.callbacks.Callback):
    """Scores the dev set after each period, and ends with the weights that were best.

    At the end these may be the mean of the last evaluations' weights.
    """

    def __init__(self, classifier: Classifier, dev: Sequence[Example]) -> None:
        super().__init__()
        self.classifier, self.dev = classifier, dev
        self.best, self.best_weights = -1.0, classifier.model.get_weights()
        self.last: collections.deque[list] = collections.deque(maxlen=AVERAGED)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Scores the weights, prints the scores, and keeps the weights if they are best."""
        self.last.append(self.model.get_weights())
        loss = f"loss {(logs or {}).get('loss', 0):.3f}"
        self._offer(f"step {self.model.optimizer.iterations.numpy():>6,}  {loss}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Offers the mean of the last weights, and returns to the best."""
        self.model.set_weights([np.mean(each, axis=0) for each in zip(*self.last, strict=True)])
        self._offer(f"average of the last {len(self.last)}")
        self.model.set_weights(self.best_weights)

    def _offer(self, what: str) -> None:
        scores = self.classifier.evaluate(self.dev)
        better = scores.accuracy > self.best
        if better:
            self.best, self.best_weights = scores.accuracy, self.model.get_weights()
        print(f"{what}  dev {scores.summary()}{'  best' * better}", flush=True)


# --- Batches ----------------------------------------------------------------------------------


def batches(
    examples: Sequence[Example], classifier: Classifier, settings: Settings
) -> tf.data.Dataset:
    """Returns endless batches: ids [B, S], and labels as one-hot vectors [B, C].

    Each epoch has each sentence once, in another order and other subwords.
    """
    model = sentencepiece.SentencePieceProcessor(model_proto=classifier.tokenizer.model_bytes)
    sentences, labels = zip(*examples, strict=True)
    number_of = {label: number for number, label in enumerate(classifier.labels)}
    targets = np.eye(len(number_of), dtype=np.float32)[[number_of[label] for label in labels]]
    rate = settings.subword_sampling
    options = {"enable_sampling": True, "alpha": rate, "nbest_size": -1} if rate else {}

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        random = np.random.default_rng(settings.seed)
        for epoch in itertools.count():
            # Each call has a thread of its own, whose draws begin at the seed.
            sentencepiece.set_random_generator_seed(settings.seed + epoch)
            encoded = model.encode(list(sentences), num_threads=1, **options)
            rows = [[*ids[: MAX_LENGTH - 1], EOS_ID] for ids in encoded]
            made = batches_of([*map(len, rows)], settings.batch_tokens, random)
            for batch in random.permutation(len(made)):
                chosen = made[batch]
                yield padded([rows[row] for row in chosen]), targets[chosen]

    specs = (
        tf.TensorSpec([None, None], tf.int32),
        tf.TensorSpec([None, len(number_of)], tf.float32),
    )
    return tf.data.Dataset.from_generator(generate, output_signature=specs).prefetch(4)


def batches_of(
    lengths: Sequence[int], tokens: int, random: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Groups rows of similar length, so that rows times the longest are at most `tokens`.

    With `random`, rows of the same length, up to a multiple of four, come in random order.
    """
    sizes = np.array(lengths, int) + 3 & ~3
    order = random.permutation(len(sizes)) if random else np.arange(len(sizes))
    order = order[np.argsort(sizes[order], kind="stable")]
    made, start = [], 0
    while start < len(order):
        # Sizes grow, so the last row of a batch is the longest.
        fits = np.arange(1, len(order) - start + 1) * sizes[order[start:]] <= tokens
        count = max(int(fits.sum()), 1)
        made.append(order[start : start + count])
        start += count
    return made


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns rows of ids as int32 [B, S], with 0 after the shorter ones."""
    result = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, ids in zip(result, rows, strict=True):
        row[: len(ids)] = ids
    return result
