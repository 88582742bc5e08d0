"""The Transformer is an ordinary Keras model: `compile`, `fit`, callbacks, `.keras` files.

Fails when the configuration in a file leaves out `norm_first`: the file then loads as another
model, with other outputs.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import (
    LabelSmoothedCrossEntropy,
    Perplexity,
    TokenAccuracy,
    Transformer,
    TransformerSchedule,
)

PAD, BOS, EOS, VOCABULARY = 0, 2, 3, 12


def sentences_to_copy(batches, seed):
    """Batches of ({source, target shifted right}, labels), padded, as the README says."""
    random, rows = np.random.default_rng(seed), []
    for length in random.integers(1, 6, size=16 * batches):
        words = [*random.integers(4, VOCABULARY, size=length), EOS]
        rows.append(words + [PAD] * (6 - len(words)))
    labels = np.array(rows, "int32")
    target = np.pad(labels, [(0, 0), (1, 0)], constant_values=BOS)[:, :-1]
    data = tf.data.Dataset.from_tensor_slices(({"source": labels, "target": target}, labels))
    return data.batch(16)


TRAIN, DEV = sentences_to_copy(20, seed=1), sentences_to_copy(2, seed=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model fitted with callbacks of Keras, its history, and the folder they wrote to."""
    folder = tmp_path_factory.mktemp("fit")
    keras.utils.set_random_seed(1)
    model = Transformer(
        VOCABULARY, num_layers=1, d_model=16, d_ff=32, num_heads=2, dropout=0, norm_first=True
    )
    model.compile(
        keras.optimizers.Adam(TransformerSchedule(16, warmup_steps=60), beta_2=0.98),
        LabelSmoothedCrossEntropy(0.1),
        metrics=[Perplexity(), TokenAccuracy()],
    )
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.EarlyStopping("val_perplexity", mode="min", min_delta=0.2, patience=2),
    ]
    history = model.fit(
        TRAIN, epochs=50, validation_data=DEV, callbacks=callbacks, shuffle=False, verbose=0
    )
    return model, history.history, folder


def test_fit_learns_and_its_callbacks_run(trained):
    _, history, folder = trained
    assert min(history["val_perplexity"]) < 0.5 * history["val_perplexity"][0]
    assert max(history["val_accuracy"]) > 0.5
    epochs = len(history["loss"])
    assert 5 < epochs < 50  # `EarlyStopping` stopped it
    assert len((folder / "log.csv").read_text().splitlines()) == 1 + epochs


def test_the_file_of_the_best_epoch_has_its_loss(trained):
    _, history, folder = trained
    best = keras.saving.load_model(folder / "best.keras")
    assert type(best) is Transformer
    loss = best.evaluate(DEV, return_dict=True, verbose=0)["loss"]
    assert loss == pytest.approx(min(history["val_loss"]), rel=1e-6)


def test_a_loaded_model_answers_and_trains_on_as_if_it_had_never_left(trained):
    """Weights, the optimizer's slots and the schedule's step all continue."""
    model, _, folder = trained
    model.save(folder / "now.keras")
    loaded = keras.saving.load_model(folder / "now.keras")
    ((inputs, _),) = DEV.take(1)
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    for each in (model, loaded):
        each.fit(TRAIN, shuffle=False, verbose=0)
    for found, expected in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
