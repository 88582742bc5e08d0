"""Settings of training that starts from the weights of another run; no TensorFlow."""

import dataclasses

from tf_transformer.config import Config, DataConfig
from tf_transformer.errors import UserError
from tf_transformer.run import Run

_RATES = ("dropout", "attention_dropout", "activation_dropout")
# Settings of `model` that affect no weight's shape and may differ from those of the source run.
_FREE = (*_RATES, "query_key_gain", "value_gain")
# Settings without effect in an encoder-only model.
_OUTPUT = ("decoder_layers", "tie_embeddings", "output_bias")
# Settings that are not taken over from the source run but reset to their defaults.
_RESET = {
    "training.freeze": (),
    "training.lora_rank": 0,
    "training.schedule_start": 0,
    "decoding.checkpoint": "best",
}


def take_over(config: Config, path: str, *, recipe_too: bool) -> Config:
    """Returns the configuration with the model and tokenizer of a run.

    If it samples subwords, it does so at the run's rate.

    Args:
        config: the configuration.
        path: the run.
        recipe_too: whether to copy its training, search, languages, length limits and BLEU's
            tokeniser as well if the task is the same; otherwise the dropout rates of `config`
            are kept.

    Raises:
        UserError: if `path` is not a run.
    """
    run = Run.open(path)
    model = run.config.model
    if recipe_too and run.config.task == config.task:
        names = (
            "max_length", "max_ratio", "subword_sampling", "source", "target",
            "bleu_tokenizer",
        )  # fmt: skip
        data = DataConfig(**{name: getattr(run.config.data, name) for name in names})
        config = dataclasses.replace(run.config, data=data).replace(_RESET)
    else:
        rates = {name: getattr(config.model, name) for name in _RATES}
        config = dataclasses.replace(config, model=dataclasses.replace(model, **rates))
    sampled = config.data.subword_sampling and run.config.data.subword_sampling
    return config.replace({
        "training.init_from": path,
        "data.tokenizer": str(run.tokenizer),
        "data.subword_sampling": sampled,  # the rate depends on the kind of the tokenizer
    })  # fmt: skip


def check_source(config: Config, *, encoder_alone: bool) -> None:
    """Refuses a run of `training.init_from` that is missing or does not fit the configuration.

    Args:
        config: the configuration.
        encoder_alone: whether the model to train has no decoder.

    Raises:
        UserError: if `training.init_from` is not a run, lacks best weights or a tokenizer, or
            has another model.
    """
    path = config.training.init_from
    run = Run.open(path)
    run.checkpoints.find("best")
    run.require_tokenizer()
    free = _FREE + _OUTPUT * encoder_alone
    free += ("vocab_size",) * (config.data.tokenizer != str(run.tokenizer))
    expected, received = (
        dataclasses.asdict(model) | {"decoder_layers": model.num_decoder_layers}
        for model in (run.config.model, config.model)
    )
    for name in expected:
        if name not in free and expected[name] != received[name]:
            raise UserError(
                f"`model.{name}` must be {expected[name]!r}, as in {path}, which training "
                f"starts from. Received: {received[name]!r}."
            )
