"""Settings of training that starts from the weights of another run; no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.run import Run

_RATES = ("dropout", "attention_dropout", "activation_dropout")
_POSITIONS = ("source_positions", "target_positions")  # set by training
# Settings of `model` that affect no weight's shape and may differ from those of the source run.
_FREE = (*_RATES, "query_key_gain", "value_gain", *_POSITIONS)
# Settings without effect in an encoder-only model.
_OUTPUT = ("decoder_layers", "tie_embeddings", "output_bias")
# Settings of `data` that belong to the languages and tokenizer of the source run.
_DATA = (
    "max_length", "max_ratio", "subword_sampling", "source", "target", "bleu_tokenizer",
)  # fmt: skip
# Settings that are not taken over from the source run but reset to their defaults.
_RESET = {
    "model.source_positions": None,
    "model.target_positions": None,
    "training.freeze": (),
    "training.lora_rank": 0,
    "training.schedule_start": 0,
    "decoding.checkpoint": "best",
}


def settings_from(run: Run, values: Mapping[str, Any], named: object) -> dict[str, Any]:
    """Returns what training that begins with a run's weights takes from its configuration.

    That is its model, except dropout rates and trained positions, and its tokenizer. If nothing
    is `named` and the task is the same, it is also all of its training and search, its
    languages, its length limits and BLEU's tokeniser. Subwords are sampled at the run's rate,
    if at all.

    Args:
        run: the run to begin from.
        values: the settings so far, by "section.field", with `task`.
        named: the preset or recipe that the user has named, if any.
    """
    theirs = run.config.flat()
    if not named and run.config.task == values["task"]:
        theirs |= _RESET
        kept = ("data.", "training.init_from")
        names = {name for name in theirs if not name.startswith(kept)}
        names |= {f"data.{name}" for name in _DATA}
    else:
        own = {f"model.{name}" for name in (*_RATES, *_POSITIONS)}
        names = {name for name in theirs if name.startswith("model.")} - own
    rate = values["data.subword_sampling"] and theirs["data.subword_sampling"]
    taken = {"data.tokenizer": str(run.tokenizer), "data.subword_sampling": rate}
    return taken | {name: theirs[name] for name in names}


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
