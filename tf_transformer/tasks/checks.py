"""Checks of a configuration and its text before training, by task, without TensorFlow."""

import logging
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, DataConfig, settings_with
from tf_transformer.data.text import corpora
from tf_transformer.run import Run
from tf_transformer.tasks.parsing.trees import check_rules, check_treebank
from tf_transformer.tasks.registry import task_named

logger = logging.getLogger(__name__)


def check_training(config: Config) -> None:
    """Refuses a configuration that its task cannot use, before any work begins.

    Raises UserError if there is no such task, it does not measure `training.best_by`, its model
    does not fit the run of `training.init_from`, or the task's own check fails.
    """
    from tf_transformer.data.vocabulary import read_model  # imports SentencePiece

    task, training = task_named(config.task), config.training
    measured = (*task.scores, "perplexity")
    if training.best_by not in measured:
        raise UserError(
            f"`training.best_by` must be one of {measured} for --task {config.task}. "
            f"Received: {training.best_by!r}."
        )
    if training.init_from:
        _check_source(config, encoder_alone=task.encoder_alone)
    elif training.lora_rank or training.freeze:
        given = f"--lora {training.lora_rank}" * bool(training.lora_rank)
        raise UserError(
            "--lora and --freeze are for weights of another run: add --init-from RUN. "
            f"Received: {given or f'--freeze {training.freeze[0]}'} without it."
        )
    _check_positions(config)
    if config.data.tokenizer:
        read_model(Path(config.data.tokenizer))
    CHECKS[task.name](config)


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


def check_translation(config: Config) -> None:
    """Refuses missing files, and settings that contradict each other."""
    from tf_transformer.data.vocabulary import check_tags, kept_whole, require_whole

    data = config.data
    if data.separate_vocabularies and config.model.tie_embeddings:
        raise UserError(
            "`data.separate_vocabularies` needs a separate embedding matrix for each "
            "language: add --set model.tie_embeddings=false."
        )
    named = [name for name in ("train", "valid", "source", "target") if getattr(data, name)]
    if not named:
        if data.tag:
            raise UserError(f"--tag needs --train. Received: --tag {data.tag[0]} without it.")
        return
    if len(named) < 4:
        raise UserError(
            "Your own data needs all of --train PREFIX --valid PREFIX --source LANG "
            "--target LANG, the built-in corpus none of them. Received: "
            f"--{', --'.join(named)}."
        )
    if data.source == data.target:
        raise UserError(f"--source and --target must differ. Received: {data.source!r} twice.")
    for corpus in corpora((*data.train, *data.valid), data):
        corpus.check()
    if data.tokenizer:
        require_whole(kept_whole(data), Path(data.tokenizer))
    check_tags(data)


def check_parsing(config: Config) -> None:
    """Refuses missing or damaged trees, and settings that contradict each other."""
    check_rules(config.decoding)
    data = config.data
    require_files(data, "Parsing", "trees in Penn brackets")
    if data.subword_sampling:
        raise UserError(
            "data.subword_sampling is only for --task translation and classification: "
            f"brackets have one segmentation. Received: {data.subword_sampling}."
        )
    for name in (*data.train, *data.valid):
        check_treebank(Path(name))


def check_classification(config: Config) -> None:
    """Refuses missing or damaged files, and settings that contradict each other."""
    from tf_transformer.tasks.classification.labelled import labels_of, read_examples

    if not config.training.init_from:  # the run it names may have a decoder
        for name, setting in settings_with(of_decoders=True).items():
            if config.flat()[name] != setting.default:
                logger.warning("%s has no effect: a classifier has no decoder", name)
    content = "a label, a TAB and a sentence on each line"
    require_files(config.data, "Classification", content)
    labels = labels_of(config.data.train, log=True)
    for name in config.data.valid:
        for _ in read_examples(Path(name), labels):
            pass


CHECKS = {
    "translation": check_translation,
    "parsing": check_parsing,
    "classification": check_classification,
}


def require_files(data: DataConfig, task: str, content: str) -> None:
    """Refuses all but --train and --valid with files of `content`, without languages."""
    if not (data.train and data.valid) or data.source or data.target:
        names = ("train", "valid", "source", "target")
        named = [f"--{name}" for name in names if getattr(data, name)]
        raise UserError(
            f"{task} needs --train FILE and --valid FILE of {content}, and no "
            f"--source or --target. Received: {', '.join(named) or 'none of them'}."
        )
    for name in ("tag", "separate_vocabularies", "join", "caps", "slots"):
        if value := getattr(data, name):
            raise UserError(f"data.{name} is only for --task translation. Received: {value}.")


def _check_source(config: Config, *, encoder_alone: bool) -> None:
    """Refuses a run of `training.init_from` that is incomplete or has another model."""
    path = config.training.init_from
    run = Run.open(path)
    run.checkpoints.find("best")
    run.require_tokenizer()
    same = set(settings_with(init_from="same"))
    same -= set(settings_with(of_decoders=True)) if encoder_alone else set()
    same -= {"model.vocab_size"} if config.data.tokenizer != str(run.tokenizer) else set()
    expected, received = (
        {name: value for name, value in each.flat().items() if name in same}
        | {"model.decoder_layers": encoder_alone or each.model.num_decoder_layers}
        for each in (run.config, config)
    )
    for name in expected:
        if expected[name] != received[name]:
            raise UserError(
                f"`{name}` must be {expected[name]!r}, as in {path}, which training starts "
                f"from. Received: {received[name]!r}."
            )
