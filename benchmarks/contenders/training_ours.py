"""A training step of tf_transformer: its model, its recipe, Keras's `fit`."""

import tensorflow as tf
from endless import dataset_of
from harness.arrays import load_batches, real_tokens
from harness.child import serve

from tf_transformer.config import Config, ModelConfig, TrainingConfig
from tf_transformer.models.transformer import build_model
from tf_transformer.training.trainer import compile_model


def setup(
    batches: str,
    model: dict,
    precision: str,
    jit_compile: bool = False,
    max_tokens_per_device: int = 0,
    recompute: bool = False,
) -> dict:
    """Args:
    batches: path of the file of batches.
    model: arguments of ModelConfig.
    precision: precision setting, such as "mixed_bfloat16".
    jit_compile: train by XLA programs, one for each kind of layer.
    max_tokens_per_device: compute larger batches in parts; 0 for whole batches.
    recompute: recompute layers in the backward pass.
    """
    arrays = load_batches(batches)
    training = TrainingConfig(
        precision=precision,
        jit_compile=jit_compile,
        max_tokens_per_device=max_tokens_per_device,
        recompute=recompute,
    )
    config = Config(model=ModelConfig(**model), training=training)
    transformer = build_model(config)
    compile_model(transformer, config)
    dataset = dataset_of(arrays)
    traces = Traces(transformer)

    def work() -> dict:
        history = transformer.fit(
            dataset, epochs=1, steps_per_epoch=len(arrays), shuffle=False, verbose=0
        )
        loss = history.history["loss"][0]
        return real_tokens(arrays) | {"loss": loss, "traces": traces.number}

    return {"work": work} | gpu_memory()


class Traces:
    """Counts the traces of a model's train step, whose Python code only runs when traced."""

    def __init__(self, model) -> None:
        self.number = 0
        step = model.train_step

        def counted(data):
            self.number += 1
            return step(data)

        model.train_step = counted


def gpu_memory() -> dict:
    """Returns functions that read and reset a GPU's peak memory, if there is a GPU."""
    if not tf.config.list_physical_devices("GPU"):
        return {}

    def peak() -> dict:
        return {"peak_bytes": int(tf.config.experimental.get_memory_info("GPU:0")["peak"])}

    def forget() -> dict:
        tf.config.experimental.reset_memory_stats("GPU:0")
        return {}

    return {"memory": peak, "forget_peak": forget}


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
