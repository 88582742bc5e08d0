"""The options of a training, which `train`, `doctor` and `ablate` share."""

import argparse
from typing import Any

from tf_transformer.api.configuration import configure
from tf_transformer.cli.parser import int_from, value_of
from tf_transformer.config import Config
from tf_transformer.config.presets import PRESETS
from tf_transformer.config.recipes import RECIPES
from tf_transformer.tasks.registry import TASKS

# The options, other than --set, that name a setting.
_SETTINGS = {
    "data": ("train", "valid", "mix", "tag", "source", "target"),
    "training": ("batch_tokens", "max_tokens_per_device", "init_from", "freeze", "lora_rank"),
}


def add_run_settings(parser: argparse.ArgumentParser) -> None:
    """The options of `train`; `model` is None without --model."""
    add = parser.add_argument
    tasks = " or ".join(TASKS)
    add("--task", choices=TASKS, metavar="TASK", help=f"{tasks} (default: the model's)")
    add("--model", metavar="NAME", help=f"{', '.join(PRESETS)} (default: tiny)")
    add(
        "--recipe",
        metavar="NAME",
        help=f"training recipe for any model: {', '.join(RECIPES)}; other options override it",
    )
    add(
        "--encoder-from",  # its earlier name
        "--init-from",
        dest="init_from",
        metavar="RUN",
        help="begin with the weights and the tokenizer of a run and, without --model and "
        "--recipe, with the settings of its training",
    )
    add(
        "--freeze",
        action="append",
        metavar="PATTERN",
        help="layers not to train, such as encoder or '!*norm' (all but norms); repeatable",
    )
    add(
        "--lora",
        dest="lora_rank",
        type=value_of("training.lora_rank"),
        metavar="RANK",
        help="train adapters of this rank (LoRA) on the weights of --init-from",
    )
    add(
        "--config",
        metavar="FILE",
        help="settings in YAML, or the config.json of a run; other options override them",
    )
    add("--output", metavar="DIR", help="run directory (default: runs/NAME)")
    add(
        "--accept-new-data",
        action="store_true",
        help="resume a run although the content of its training text has changed",
    )
    add_training_options(parser)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Data, batch, devices, end of the session and settings."""
    add = parser.add_argument
    add(
        "--train",
        action="append",
        metavar="PREFIX",
        help="training text PREFIX.LANG or PREFIX.LANG.gz, or a table FILE.tsv[.gz], for other "
        "tasks a file of trees or labelled sentences; repeatable",
    )
    add(
        "--mix",
        metavar="W:W",
        help="weights of the --train texts, such as 1:4, or temperature=5 (default: by size)",
    )
    add("--valid", action="append", metavar="PREFIX", help="dev text, likewise")
    add(
        "--tag",
        action="append",
        metavar="KEY=TAG",
        help="text before each source, for a target language or the name of a corpus, such as "
        "'de=<2de>'; a tag of one word is a piece of the vocabulary; repeatable",
    )
    add("--source", metavar="LANG", help="source language, such as en")
    add("--target", metavar="LANG", help="target language, such as de")
    add(
        "--batch-tokens",
        type=value_of("training.batch_tokens"),
        metavar="N",
        help="tokens per side in one update, over all devices (paper: 25000)",
    )
    add(
        "--max-tokens-per-device",
        type=value_of("training.max_tokens_per_device"),
        metavar="N",
        help="tokens that a device computes at once; larger batches are accumulated, with the "
        "same result (default: as many as its memory holds; 0: no limit)",
    )
    add("--devices", type=int_from(1, 128), metavar="N", help="default: all GPUs, or the CPU")
    add(
        "--stop-after",
        metavar="TIME",
        help="end this session after 2h, 90m, 45s or '500 steps', saved as on Ctrl-C",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="any setting, such as model.dropout=0.3; repeatable",
    )


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The values of the options other than --set, by "section.field"."""
    return {
        f"{section}.{name}": getattr(options, name)
        for section, names in _SETTINGS.items()
        for name in names
        if getattr(options, name, None) is not None
    }


def config_of(options: argparse.Namespace) -> Config:
    """The configuration that the options of `add_run_settings` describe."""
    return configure(
        options.model,
        task=options.task,
        recipe=options.recipe,
        file=options.config,
        settings=settings_of(options),
        overrides=options.set,
    )
