"""Training that begins with another run: its settings, and what fits them; no TensorFlow."""

import dataclasses

from tf_transformer.config import Config, DataConfig
from tf_transformer.config.model import EARLIER_GAINS
from tf_transformer.errors import UserError
from tf_transformer.run import Run

_RATES = ("dropout", "attention_dropout", "activation_dropout")
# Settings of `model` that shape no weight: they may differ from those of the other run.
_FREE = (*_RATES, *EARLIER_GAINS)
_OF_OUTPUT = ("tie_embeddings", "output_bias")  # which an encoder alone lacks
# Of the other run's own beginning, and of its checkpoints.
_OWN = {
    "training.freeze": (),
    "training.lora_rank": 0,
    "training.schedule_start": 0,
    "decoding.checkpoint": "best",
}


def take_over(config: Config, path: str, *, recipe_too: bool) -> Config:
    """Returns the configuration with model and tokenizer of a run.

    Args:
        config: the configuration.
        path: the run.
        recipe_too: whether its training, search, languages and lengths are taken over as well,
            if it is of the same task; otherwise the rates of dropout stay, too.

    Raises:
        UserError: if `path` is not a run.
    """
    run = Run.open(path)
    model = run.config.model
    if recipe_too and run.config.task == config.task:
        names = ("max_length", "max_ratio", "subword_sampling")
        lengths = {name: getattr(run.config.data, name) for name in names}
        languages = {name: getattr(run.config.data, name) for name in ("source", "target")}
        data = DataConfig(**lengths, **languages)
        config = dataclasses.replace(run.config, data=data).replace(_OWN)
    else:
        rates = {name: getattr(config.model, name) for name in _RATES}
        config = dataclasses.replace(config, model=dataclasses.replace(model, **rates))
    return config.replace({"training.init_from": path, "data.tokenizer": str(run.tokenizer)})


def check_source(config: Config, *, encoder_alone: bool) -> None:
    """Refuses a run to begin with that is missing or does not fit the configuration.

    Args:
        config: the configuration.
        encoder_alone: whether its model has no decoder.

    Raises:
        UserError: if `training.init_from` is not a run, lacks best weights or a tokenizer, or
            has another model.
    """
    path = config.training.init_from
    run = Run.open(path)
    run.checkpoints.find("best")
    run.require_tokenizer()
    free = _FREE + _OF_OUTPUT * encoder_alone
    free += ("vocab_size",) * (config.data.tokenizer != str(run.tokenizer))
    wanted = dataclasses.asdict(run.config.model)
    received = dataclasses.asdict(config.model)
    for name in wanted:
        if name not in free and wanted[name] != received[name]:
            raise UserError(
                f"`model.{name}` must be {wanted[name]!r}, as in {path}, which training begins "
                f"with. Received: {received[name]!r}."
            )
