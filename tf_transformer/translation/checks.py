"""Checks of a configuration and its text before training, without TensorFlow."""

from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, settings_with
from tf_transformer.data.text import corpora
from tf_transformer.run import Run


def check_training(config: Config, *, has_score: bool = False) -> None:
    """Refuses a configuration that cannot be trained, before any work begins.

    `has_score` tells whether a function of the user's own scores the dev text.

    Raises UserError if files are missing, settings contradict each other, or the model does not
    fit the run of `training.init_from`.
    """
    from tf_transformer.data.vocabulary import read_model  # imports SentencePiece

    training = config.training
    if training.best_by == "score" and not has_score:
        raise UserError(
            "`training.best_by` is score if a function of one's own decides: call "
            "tf_transformer.train(score=FUNCTION) in Python. Received: no function."
        )
    if training.init_from:
        _check_source(config)
    elif training.lora_rank or training.freeze:
        raise UserError(
            "`training.lora_rank` and `training.freeze` are for weights of another run: set "
            "`training.init_from` to it. Received: none."
        )
    _check_positions(config)
    if config.data.tokenizer:
        read_model(Path(config.data.tokenizer))
    _check_data(config)


def _check_positions(config: Config) -> None:
    """Refuses fewer learned positions than the longest sentence allowed has tokens."""
    from tf_transformer.data.plan import bucket_boundaries

    longest = bucket_boundaries(config.data.max_length)[-1]
    if config.model.positions_are_limited and config.model.max_length < longest:
        raise UserError(
            "`model.max_length` must be at least `data.max_length` rounded up to a multiple of "
            f"4, {longest}, when positions are learned. "
            f"Received: {config.model.max_length} and {config.data.max_length}."
        )


def _check_data(config: Config) -> None:
    """Refuses missing files, and settings that contradict each other."""
    from tf_transformer.data.vocabulary import check_tags, kept_whole, require_whole

    data = config.data
    if data.separate_vocabularies and config.model.tie_embeddings:
        raise UserError(
            "`data.separate_vocabularies` needs a separate embedding matrix for each "
            "language: set `model.tie_embeddings=false`."
        )
    named = [name for name in ("train", "valid", "source", "target") if getattr(data, name)]
    if not named:
        if data.tag:
            raise UserError(f"`data.tag` needs `data.train`. Received: {data.tag[0]} alone.")
        return
    if len(named) < 4:
        raise UserError(
            "Your own data needs all of `train`, `valid`, `source` and `target`, the built-in "
            f"corpus none of them. Received: {', '.join(named)}."
        )
    if data.source == data.target:
        raise UserError(f"`source` and `target` must differ. Received: {data.source!r} twice.")
    for corpus in corpora((*data.train, *data.valid), data):
        corpus.check()
    if data.tokenizer:
        require_whole(kept_whole(data), Path(data.tokenizer))
    check_tags(data)


def _check_source(config: Config) -> None:
    """Refuses a run of `training.init_from` that is incomplete or has another model."""
    path = config.training.init_from
    run = Run.open(path)
    run.checkpoints.find("best")
    run.require_tokenizer()
    same = set(settings_with(init_from="same"))
    same -= {"model.vocab_size"} if config.data.tokenizer != str(run.tokenizer) else set()
    expected, received = (
        {name: value for name, value in each.flat().items() if name in same}
        | {"model.decoder_layers": each.model.num_decoder_layers}
        for each in (run.config, config)
    )
    for name in expected:
        if expected[name] != received[name]:
            raise UserError(
                f"`{name}` must be {expected[name]!r}, as in {path}, which training starts "
                f"from. Received: {received[name]!r}."
            )
