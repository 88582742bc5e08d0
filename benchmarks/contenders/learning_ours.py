"""Training of tf_transformer on prepared batches: losses by step."""

from pathlib import Path

import keras
from endless import dataset_of
from harness.arrays import load_batches
from harness.child import serve

from tf_transformer.config import Config, ModelConfig, TrainingConfig
from tf_transformer.run.checkpoints import restore_state, save_state, save_weights
from tf_transformer.tasks.models import build_model
from tf_transformer.training.recipe import compile_model


def setup(batches: str, model: dict, training: dict, seed: int) -> dict:
    """Args:
    batches: path of the file of batches, in order.
    model: arguments of ModelConfig.
    training: arguments of TrainingConfig.
    seed: seed of the initial weights and of dropout.
    """
    keras.utils.set_random_seed(seed)
    arrays = load_batches(batches)
    config = Config(model=ModelConfig(**model), training=TrainingConfig(**training))
    transformer = build_model(config)
    compile_model(transformer, config)

    def train(first: int, number: int) -> dict:
        history = transformer.fit(
            dataset_of(arrays[first:]),
            epochs=1,
            steps_per_epoch=number,
            shuffle=False,
            verbose=0,
        ).history
        nats = keras.ops.log(history["perplexity"][0])
        return {"loss": float(history["loss"][0]), "nats": float(nats)}

    def start(path: str) -> dict:
        save_weights(Path(path), transformer)
        return {}

    def save(path: str) -> dict:
        save_state(Path(path), transformer, {})
        return {}

    def restore(path: str) -> dict:
        restore_state(Path(path), transformer)
        return {}

    return {"train": train, "start": start, "save": save, "restore": restore}


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
