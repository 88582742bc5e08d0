"""Classifiers that begin with the embeddings and the encoder of another run; no TensorFlow."""

import dataclasses

from tf_transformer.config import Config
from tf_transformer.config.model import EARLIER_GAINS
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.classification.labelled import read_labels

_RATES = ("dropout", "attention_dropout", "activation_dropout")
# Settings of `model` that shape no weight of the encoder: they may differ from its run's.
_FREE = (*_RATES, "tie_embeddings", "output_bias", *EARLIER_GAINS)


def take_over(config: Config, path: str) -> Config:
    """Returns the configuration with model and tokenizer of a run, except for dropout.

    Raises:
        UserError: if `path` is not a run.
    """
    run = Run.open(path)
    rates = {name: getattr(config.model, name) for name in _RATES}
    model = dataclasses.replace(run.config.model, **rates)
    config = dataclasses.replace(config, model=model)
    return config.replace({"training.encoder_from": path, "data.tokenizer": str(run.tokenizer)})


def check_encoder(config: Config) -> None:
    """Refuses an encoder that is missing or does not fit the configuration.

    Raises:
        UserError: if `training.encoder_from` is not a run, lacks best weights or a tokenizer,
            or has another model or tokenizer.
    """
    path = config.training.encoder_from
    run = Run.open(path)
    run.checkpoints.find("best")
    run.require_tokenizer()
    wanted = dataclasses.asdict(run.config.model)
    received = dataclasses.asdict(config.model)
    for name in wanted:
        if name not in _FREE and wanted[name] != received[name]:
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
    """Names of a classifier's embedding and encoder in the checkpoints of a run."""
    shared = run.config.model.tie_embeddings or bool(read_labels(run))
    return {"embedding": "embedding" if shared else "source_embedding", "encoder": "encoder"}
