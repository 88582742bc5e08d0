"""Beginning a training with the embeddings and the encoder of another run; no TensorFlow."""

import dataclasses

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.run import Run

# What of `model` may differ from the run that the encoder is from: it shapes no weight of it.
_OWN = ("dropout", "tie_embeddings", "output_bias")


def take_over(config: Config, path: str) -> Config:
    """The configuration with the model and the tokenizer of a run, and its own dropout.

    Raises:
        UserError: if `path` is no run.
    """
    run = Run.open(path)
    model = dataclasses.replace(run.config.model, dropout=config.model.dropout)
    config = dataclasses.replace(config, model=model)
    own = {"training.encoder_from": path, "data.tokenizer": str(run.tokenizer)}
    return config.replace(own)


def check_encoder(config: Config) -> None:
    """Refuses an encoder that is not there, or does not fit the configuration.

    Raises:
        UserError: if `training.encoder_from` is no run, has no best weights or no tokenizer,
            or if model or tokenizer are others than its.
    """
    path = config.training.encoder_from
    run = Run.open(path)
    run.checkpoints.find("best")
    run.require_tokenizer()
    wanted = dataclasses.asdict(run.config.model)
    received = dataclasses.asdict(config.model)
    for name in wanted:
        if name not in _OWN and wanted[name] != received[name]:
            raise UserError(
                f"`model.{name}` must be {wanted[name]!r}, as in {path}, which the encoder is "
                f"from. Received: {received[name]!r}."
            )
    if config.data.tokenizer != str(run.tokenizer):
        raise UserError(
            f"`data.tokenizer` must be {run.tokenizer}, that of the encoder. Received: "
            f"{config.data.tokenizer!r}."
        )


def encoder_layers(run: Run) -> dict[str, str]:
    """What a classifier's embedding and encoder are called in the checkpoints of a run."""
    shared = run.config.model.tie_embeddings or bool(run.labels())
    return {"embedding": "embedding" if shared else "source_embedding", "encoder": "encoder"}
